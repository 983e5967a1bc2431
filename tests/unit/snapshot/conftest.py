"""A small snapshot written for these tests, English and Chinese."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from unittest.mock import patch

import pytest

from medlive.snapshot.diff import Change
from medlive.snapshot.freeze import FrozenSnapshot, draft_manifest, write_snapshot
from medlive.snapshot.manifest import (
    EngineUse,
    EvidenceUse,
    Manifest,
    Provenance,
    SnapshotMeta,
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
    thresholds={"validator.sufficiency": 0.5, "rubric.most": 19},
)


def make_case(number: int, **changes: object) -> SnapshotCase:
    case_id = f"c{number:03d}"
    zh = number % 2 == 1
    values: dict[str, object] = {
        "case_id": case_id,
        "revision": 1,
        "first_release": "2026.W47",
        "language": "zh" if zh else "en",
        "source": "dxy" if zh else "icliniq",
        "posted_at": date(2025, 1 + number % 12, 3),
        "specialty": "Cardiology",
        "theme": "Response Depth",
        "narrative": "我膝盖疼了三天，体温 38.2℃。"
        if zh
        else 'My "knee" hurts \u2028 <b>since</b> 3 days.',
        "query": "需要吃药吗？" if zh else "Do I need a tablet?",
        "advice": "先休息。" if zh else "Rest first.",
        "criteria": tuple(
            SnapshotCriterion(
                f"{case_id}-c{k}",
                case_id,
                1,
                k,
                f"Criterion {k} of {case_id}",
                axis,
                points,
            )
            for k, axis, points in (
                (1, "Accuracy", 5),
                (2, "Safety", -8),
                (3, "Completeness", 3),
            )
        ),
    }
    if number % 3 == 2:
        values |= {"ceiling": 0.9, "floor": 0.1 * (number % 2), "separation": 0.7}
    return SnapshotCase(**(values | changes))  # type: ignore[arg-type]


def added(cases: list[SnapshotCase]) -> Entries:
    """The entries of a first release."""
    return Entries(
        tuple(Change("added", c.case_id, "new", None, c.revision) for c in cases)
    )


META = SnapshotMeta(
    version="2026.W47",
    created_at=datetime(2026, 11, 21, 8, 30, 1, 999, tzinfo=UTC),
    provenance=PROVENANCE,
)

Freeze = Callable[..., FrozenSnapshot]


@contextmanager
def earlier_format(number: int) -> Iterator[None]:
    """Freeze snapshots in an earlier format; medlive itself writes only the latest."""

    def draft(meta: SnapshotMeta) -> Manifest:
        earlier = {"format_version": number, "columns": {}, "enumerations": {}}
        return draft_manifest(meta).model_copy(update=earlier)

    with patch("medlive.snapshot.freeze.draft_manifest", draft):
        yield


@pytest.fixture(scope="session")
def frozen_once(tmp_path_factory: pytest.TempPathFactory) -> dict[int, FrozenSnapshot]:
    """What was frozen in this session already, by its number of cases."""
    return {}


@pytest.fixture
def copied(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    frozen_once: dict[int, FrozenSnapshot],
) -> Callable[[int], Path]:
    """A copy of a snapshot of n cases, to be spoilt."""

    def build(n: int) -> Path:
        if n not in frozen_once:
            cases = [make_case(i) for i in range(n)]
            out = tmp_path_factory.mktemp("frozen")
            frozen_once[n] = write_snapshot(cases, META, out, added(cases))
        return Path(
            shutil.copytree(frozen_once[n].path, tmp_path / frozen_once[n].path.name)
        )

    return build


@pytest.fixture
def freeze(tmp_path: Path) -> Freeze:
    """Freeze n cases under a folder of that name."""

    def build(
        n: int = 5, folder: str = "out", meta: SnapshotMeta = META
    ) -> FrozenSnapshot:
        cases = [make_case(i) for i in range(n)]
        return write_snapshot(cases, meta, tmp_path / folder, added(cases))

    return build
