"""Small releases in the present format, written by the real writer."""

from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

from medlive.snapshot.diff import Change
from medlive.snapshot.freeze import FrozenSnapshot, write_snapshot
from medlive.snapshot.manifest import (
    Ancestor,
    EngineUse,
    EvidenceUse,
    Provenance,
    SnapshotMeta,
    WeekCost,
)
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion
from tests.support.entries import Entries

PROVENANCE = Provenance(
    code_version="0.1.0",
    engines=(
        EngineUse(role="screener", engine="openai", model="some-model-2026-01-01"),
    ),
    prompts={"screener.extract": "sha256:" + "0" * 64},
    evidence=(
        EvidenceUse(
            retriever="bm25", index_digest="sha256:" + "1" * 64, corpora={}, passages=3
        ),
    ),
    thresholds={"validator.sufficiency": 0.5},
)


def criterion(
    case_id: str,
    position: int,
    text: str,
    points: int = 5,
    *,
    number: int | None = None,
) -> SnapshotCriterion:
    """A criterion at that place; `number` ends its id, where that is another than the place."""
    return SnapshotCriterion(
        f"{case_id}-c{number or position}",
        case_id,
        1,
        position,
        text,
        "Accuracy",
        points,
    )


def case(case_id: str, **changes: object) -> SnapshotCase:
    """A case of two criteria; its criteria's revision follows its own."""
    values: dict[str, object] = {
        "case_id": case_id,
        "revision": 1,
        "first_release": "2026.W46",
        "language": "en",
        "source": "icliniq",
        "posted_at": date(2025, 3, 3),
        "specialty": "Cardiology",
        "theme": "Response Depth",
        "narrative": f"A knee of {case_id} hurts.",
        "query": "What now?",
        "advice": "Rest first.",
        "criteria": (
            criterion(case_id, 1, "Advises rest"),
            criterion(case_id, 2, "Names an antibiotic", -3),
        ),
    }
    made = SnapshotCase(**(values | changes))  # type: ignore[arg-type]
    return replace(
        made, criteria=tuple(replace(c, revision=made.revision) for c in made.criteria)
    )


def release(
    out: Path,
    version: str,
    cases: list[SnapshotCase],
    parent: FrozenSnapshot | None = None,
    changes: tuple[Change, ...] = (),
    provenance: Provenance = PROVENANCE,
    why_not: tuple[str, ...] = (),
    cost: WeekCost | None = None,
) -> FrozenSnapshot:
    """Freeze a release that follows `parent`; the cases that it is the first to hold are listed as added."""
    listed = {change.case_id for change in changes}
    fresh = [c for c in cases if c.first_release == version and c.case_id not in listed]
    changes += tuple(
        Change("added", c.case_id, "new in this release", None, c.revision)
        for c in fresh
    )
    lineage = (
        (
            *parent.manifest.lineage,
            Ancestor(version=parent.manifest.version, digest=parent.digest),
        )
        if parent
        else ()
    )
    moment = datetime(2026, 11, 21, tzinfo=UTC)
    meta = SnapshotMeta(
        version=version,
        created_at=moment,
        provenance=provenance,
        lineage=lineage,
        why_not=why_not,
        cost=cost,
    )
    return write_snapshot(
        sorted(cases, key=lambda c: c.case_id), meta, out, Entries(changes)
    )
