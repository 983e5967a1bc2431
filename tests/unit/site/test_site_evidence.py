"""What a case's page shows of the evidence of its criteria, and of verdicts on an earlier revision."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.site.model import Content
from medlive.site.pages import site_files
from medlive.site.read import Inputs, read_content
from medlive.snapshot.manifest import EvidenceUse
from tests.support.releases import PROVENANCE, case, criterion, release
from tests.support.site import made_board, made_graded

pytestmark = pytest.mark.whole

VERSION = "2026.W47"
CASE = "ml-0000000000000005"
GOUT, ASTHMA = "notes:gout:acute-attacks.1", "notes:asthma:-.1"
OPEN = {
    "id": "gout",
    "title": "Gout & its care",
    "section": "Acute attacks",
    "text": 'Colchicine eases gout. "id":"notes:asthma:-.1" is no field.',
    "licence": "CC-BY-4.0",
    "url": "https://publisher.example/gout",
}
CLOSED = {
    "id": "asthma",
    "title": "Asthma",
    "text": "Salbutamol opens the airways in asthma.",
}


@pytest.fixture
def index(tmp_path: Path) -> Path:
    source = tmp_path / "notes.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in (OPEN, CLOSED)))
    build_index([open_corpus(source)], tmp_path / "index")
    return tmp_path / "index"


def page(tmp_path: Path, index: Path | None, digest: str) -> str:
    """The page of a case whose criteria rest on both passages, one that is not stored, and two models."""
    first = criterion(CASE, 1, "Advises rest")
    rubric = [replace(first, points=8, tier="decisive", asked="q1")]
    sources = (GOUT, ASTHMA, "pubmed:9:0.1")
    for position, source in enumerate(sources, start=2):
        cited = criterion(CASE, position, f"Says {position}")
        rubric.append(replace(cited, origin="evidence", source=source))
    named = criterion(CASE, 5, "Asks for the dose")
    rubric.append(replace(named, origin="consensus", source="model-a, model-b"))
    used = EvidenceUse(
        retriever="bm25",
        index_digest="sha256:" + "1" * 64,
        corpora={"notes": digest},
        passages=2,
    )
    frozen = case(CASE, first_release=VERSION, criteria=tuple(rubric))
    proved = replace(frozen, ceiling=1.0, floor=0.0, separation=0.9, ordinary=0.625)
    held = [replace(proved, asked='[{"id":"q1","text":"What helps?"}]')]
    provenance = PROVENANCE.model_copy(update={"evidence": (used,)})
    release(tmp_path / "snapshots", VERSION, held, provenance=provenance)
    content = read_content(Inputs(snapshots=tmp_path / "snapshots", evidence=index))
    files = site_files(content)
    return files[f"cases/{CASE}.html"].decode("utf-8")


def test_passages_are_named(tmp_path: Path, index: Path) -> None:
    manifest = json.loads((index / "manifest.json").read_text())
    text = page(tmp_path, index, manifest["corpora"][0]["digest"])
    assert "<cite>Gout &amp; its care</cite>, Acute attacks" in text
    assert "<cite>Asthma</cite>" in text
    assert "passage <code>pubmed:9:0.1</code> of pubmed" in text
    assert "named independently by model-a, model-b" in text
    assert "<td>decisive, answers the question</td>" in text
    assert "lacking what an expert would not miss, scores 62 %" in text
    assert "publisher.example" not in text


def test_without_an_index_or_with_a_damaged_one_ids_are_shown(
    tmp_path: Path, index: Path
) -> None:
    (index / "manifest.json").write_text("{}")
    for given in (None, tmp_path / "nowhere", index):
        text = page(tmp_path, given, "sha256:" + "2" * 64)
        assert f"passage <code>{GOUT}</code> of notes" in text


def test_verdicts_on_an_earlier_revision_are_no_verdicts_on_this_one(
    tmp_path: Path,
) -> None:
    board = made_board(made_graded(tmp_path, models=1, cases=2))
    scored = board.cases[1]
    first, second, *_ = scored.criteria
    same = replace(criterion(scored.case_id, 1, first.criterion), criterion_id=first.id)
    reworded = replace(criterion(scored.case_id, 2, "Is new"), criterion_id=second.id)
    added = criterion(scored.case_id, 3, "Is added")
    revised = case(scored.case_id, revision=2, criteria=(same, reworded, added))
    content = Content(boards=[board], cases={scored.case_id: revised})
    files = site_files(content)
    text = files[f"cases/{scored.case_id}.html"].decode("utf-8")
    labels = re.findall('role="img" aria-label="([^"]+)"', text)
    verdict = board.models[0].score.run.verdicts(scored.case_id)[first.id]
    assert labels[0] == ("met" if verdict else "not met")
    assert labels[1:] == ["not part of this run"] * 2
