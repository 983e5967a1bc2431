"""Croissant: what mlcroissant accepts without a word, and reads the same rows through."""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from medlive.integrity.folder import REQUIRED
from medlive.snapshot.describe.croissant import DESCRIBED_FILES, croissant
from medlive.snapshot.manifest import Counts, EngineUse, FileEntry
from medlive.snapshot.model import FIELDS
from tests.unit.snapshot.test_card import HOSTILE, META, manifest_of
from tests.unit.snapshot.test_card_figures import CANARY, COUNTS

FILES = {name: FileEntry(size=7, sha256=f"{n:064x}") for n, name in enumerate(REQUIRED)}

RAI_TERMS = {
    "annotationsPerItem",
    "annotatorDemographics",
    "dataAnnotationAnalysis",
    "dataAnnotationPlatform",
    "dataAnnotationProtocol",
    "dataBiases",
    "dataCollection",
    "dataCollectionMissingData",
    "dataCollectionRawData",
    "dataCollectionTimeframe",
    "dataCollectionType",
    "dataImputationProtocol",
    "dataLimitations",
    "dataManipulationProtocol",
    "dataPreprocessingProtocol",
    "dataReleaseMaintenancePlan",
    "dataSocialImpact",
    "dataUseCases",
    "machineAnnotationTools",
    "personalSensitiveInformation",
}
"""Every property of http://mlcommons.org/croissant/RAI/1.0."""


def described(counts: Counts = COUNTS, **changes: Any) -> dict[str, Any]:
    """The description of a snapshot with these counts."""
    manifest = manifest_of(counts, **changes)
    return croissant(manifest.model_copy(update={"files": FILES}))


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return described()


def test_every_term_of_the_responsible_ai_vocabulary_is_there_and_no_other(
    made: dict[str, Any],
) -> None:
    assert {
        key.removeprefix("rai:") for key in made if key.startswith("rai:")
    } == RAI_TERMS
    assert all(made[f"rai:{term}"] for term in RAI_TERMS)
    assert made["rai:dataCollectionTimeframe"] == ["2025-01-01", "2025-04-30"]


def test_it_names_version_canary_and_how_to_cite_in_words_that_are_filled_in(
    made: dict[str, Any],
) -> None:
    assert (made["name"], made["version"], made["medlive:version"]) == (
        "medlive-2026.W47",
        "2026.47.0",
        "2026.W47",
    )
    assert made["medlive:canary"] == CANARY
    assert f"canary {CANARY}" in made["citeAs"]
    assert "of." not in made["citeAs"].replace("sha256", "")
    assert described(version="2026.W05")["version"] == "2026.5.0"


def test_every_data_file_and_every_column_is_described(made: dict[str, Any]) -> None:
    names = [f["@id"] for f in made["distribution"]]
    assert (
        names
        == [*DESCRIBED_FILES]
        == [n for n in REQUIRED if n.startswith("data/") or n == "livemedbench.json"]
    )
    for file in made["distribution"]:
        assert (file["sha256"], file["contentSize"]) == (
            FILES[file["@id"]].sha256,
            "7 B",
        )
    for record_set, fields in zip(made["recordSet"], FIELDS.values(), strict=True):
        types = {f["name"]: f["dataType"] for f in record_set["field"]}
        assert list(types) == list(fields)
        for name, kind in fields.items():
            assert types[name] == (
                "sc:Date"
                if name == "posted_at"
                else {
                    "integer": "sc:Integer",
                    "number": "sc:Float",
                    "string": "sc:Text",
                }[kind]
            )
            assert all(f["description"] for f in record_set["field"])


def test_what_may_not_be_published_says_so_to_machines_too() -> None:
    loud = described(why_not=("no key", "no evidence"))
    assert "Not publishable: no key; no evidence." in loud["description"]
    assert "Not publishable" not in described()["description"]


_READER = """
import datetime, json, logging, sys
from absl import logging as absl_logging
import mlcroissant as mlc
from mlcroissant._src.core.context import Context
from mlcroissant._src.core.rdf import make_context

said = []
class Ear(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())
absl_logging.get_absl_logger().addHandler(Ear(level=logging.WARNING))

def value(v):
    if isinstance(v, bytes):
        return v.decode("utf-8")
    return v.date().isoformat() if isinstance(v, datetime.datetime) else v

def described(path):
    dataset = mlc.Dataset(jsonld=path)
    issues = dataset.metadata.ctx.issues
    return dataset, sorted(issues.errors) + sorted(issues.warnings)

dataset, issues = described(sys.argv[1])
hostile, other_issues = described(sys.argv[2])
read = {
    name: [{k.split("/")[1]: value(v) for k, v in row.items()} for row in dataset.records(record_set=name)]
    for name in ("cases", "criteria")
}
metadata = dataset.metadata
print(json.dumps({
    "issues": issues + other_issues + said,
    "read": read,
    "known": sorted(make_context(metadata.ctx)),
    "conforms_to": str(metadata.ctx.conforms_to.value),
    "rai": [metadata.data_biases, metadata.machine_annotation_tools],
    "cited": metadata.cite_as,
    "tools": hostile.metadata.machine_annotation_tools,
}))
"""


@pytest.mark.skipif(
    find_spec("mlcroissant") is None, reason="`mlcroissant` is not installed"
)
def test_mlcroissant_finds_no_fault_and_reads_the_rows_of_the_json_lines(
    copied: Callable[[int], Path], tmp_path: Path
) -> None:
    folder = copied(8)
    # Names that nothing checks, in a description of their own: it must validate as quietly.
    tools = [text for text in HOSTILE if "\ud800" not in text]
    engines = tuple(EngineUse.model_construct(role=t, engine=t, model=t) for t in tools)
    made = META.provenance.model_copy(
        update={"engines": engines, "code_version": "---\n\"'"}
    )
    counts = COUNTS.model_copy(update={"by_month": {}, "by_language": {}})
    hostile = tmp_path / "croissant.json"
    hostile.write_text(json.dumps(described(counts, provenance=made)), encoding="utf-8")
    command = [
        sys.executable,
        "-c",
        _READER,
        str(folder / "croissant.json"),
        str(hostile),
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["issues"] == []
    for name in ("cases", "criteria"):
        rows = [
            json.loads(row)
            for row in (folder / "data" / f"{name}.jsonl").read_bytes().splitlines()
        ]
        assert found["read"][name] == rows
    written = json.loads((folder / "croissant.json").read_bytes())
    assert set(found["known"]) <= written["@context"].keys()
    assert found["conforms_to"] == "http://mlcommons.org/croissant/1.1"
    assert found["cited"] == written["citeAs"]
    assert found["rai"] == [
        written["rai:dataBiases"],
        written["rai:machineAnnotationTools"],
    ]
    assert sorted(found["tools"]) == sorted({f"{t}: {t}, {t}" for t in tools})
