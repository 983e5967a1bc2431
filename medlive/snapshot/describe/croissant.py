"""The description of a snapshot for machines: Croissant 1.1 metadata with the responsible-AI vocabulary 1.0.

`croissant.json` beside this module holds what is the same for every snapshot: the context (appendix 1 of the
specification, with schema.org and the older terms as mlcroissant asks for them), fixed entries, column texts.
"""

import json
from calendar import monthrange
from collections.abc import Iterable, Mapping
from importlib.resources import files as package_files
from typing import Any

from medlive.snapshot.manifest import Manifest
from medlive.snapshot.model import Column

from .card import LIMITS, SUMMARY, bibtex

DESCRIBED_FILES: Mapping[str, tuple[str, str]] = {
    "data/cases.jsonl": (
        "application/jsonlines",
        "The cases, one a line: the snapshot's identity.",
    ),
    "data/cases.parquet": ("application/x-parquet", "The same cases, for data frames."),
    "data/criteria.jsonl": (
        "application/jsonlines",
        "The criteria, one a line: the snapshot's identity.",
    ),
    "data/criteria.parquet": (
        "application/x-parquet",
        "The same criteria, for data frames.",
    ),
    "livemedbench.json": (
        "application/json",
        "Cases with their criteria, as LiveMedBench's scripts read them.",
    ),
}
"""The data files, each with its format and its description."""


# Type of a column → its type in Croissant
_TYPES: Mapping[str, str] = {
    "integer": "sc:Integer",
    "number": "sc:Float",
    "string": "sc:Text",
}


def croissant(meta: Manifest) -> dict[str, Any]:
    """Return `croissant.json` for a snapshot; `meta.files` must have the data files already."""
    counts = meta.counts
    file = package_files("medlive.snapshot.describe").joinpath("croissant.json")
    fixed = json.loads(file.read_bytes())
    # The first day of the first month and the last of the last in which a discussion was opened, if any was
    timeframe = []
    if counts.by_month:
        first, last = min(counts.by_month), max(counts.by_month)
        days = monthrange(int(last[:-3]), int(last[-2:]))[1]
        timeframe = [f"{first}-01", f"{last}-{days:02d}"]
    year, _, week = meta.version.partition(".W")
    warning = held_out = ""
    if meta.why_not:
        warning = f" Not publishable: {'; '.join(meta.why_not)}."
    if counts.held:
        held_out = f" {counts.held} further cases are held out and only committed to."
    columns = meta.shape.columns
    texts = fixed["columns"]
    tools = [f"{e.role}: {e.engine}, {e.model}" for e in meta.provenance.engines]
    return {
        **fixed["document"],
        "name": f"medlive-{meta.version}",
        "description": f"{SUMMARY}{warning} Canary: {meta.canary}",
        # As Croissant asks for: MAJOR.MINOR.PATCH, in which no number begins with a zero.
        "version": f"{int(year)}.{int(week)}.0",
        "datePublished": f"{meta.created_at:%Y-%m-%d}",
        "inLanguage": sorted(counts.by_language),
        "citeAs": bibtex(meta),
        "medlive:version": meta.version,
        "medlive:canary": meta.canary,
        "rai:dataCollectionTimeframe": timeframe,
        "rai:dataCollectionMissingData": f"Every field has a value; some have the value unknown.{held_out}",
        "rai:dataAnnotationPlatform": [f"medlive {meta.provenance.code_version}"],
        "rai:machineAnnotationTools": tools or ["not recorded"],
        "rai:dataLimitations": list(LIMITS),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": name,
                "name": name,
                "description": text,
                "contentUrl": name,
                "contentSize": f"{meta.files[name].size} B",
                "encodingFormat": form,
                "sha256": meta.files[name].sha256,
            }
            for name, (form, text) in DESCRIBED_FILES.items()
        ],
        "recordSet": [
            _record_set("cases", "case_id", columns["cases"], texts),
            _record_set("criteria", "criterion_id", columns["criteria"], texts),
        ],
    }


def _record_set(
    table: str, key: str, columns: Iterable[Column], texts: Mapping[str, str]
) -> dict[str, Any]:
    """The record set of a table; `texts` has descriptions by `table/column`, or by `column` for both tables."""
    fields: list[dict[str, Any]] = []
    for column in columns:
        name = column.name
        fields.append(
            {
                "@type": "cr:Field",
                "@id": f"{table}/{name}",
                "name": name,
                "description": texts.get(f"{table}/{name}") or texts[name],
                "dataType": "sc:Date" if name == "posted_at" else _TYPES[column.type],
                "source": {
                    "fileObject": {"@id": f"data/{table}.parquet"},
                    "extract": {"column": name},
                },
            }
        )
        if table == "criteria" and name == "case_id":
            fields[-1]["references"] = {"field": {"@id": "cases/case_id"}}
    return {
        "@type": "cr:RecordSet",
        "@id": table,
        "name": table,
        "description": f"One record a {key.removesuffix('_id')}.",
        "key": {"@id": f"{table}/{key}"},
        "field": fields,
    }
