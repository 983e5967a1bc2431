"""A short signed line of releases, written by the real writer."""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from medlive.integrity.folder import SIGNATURE_COMMENT
from medlive.integrity.signing import SecretKey, generate, sign
from medlive.snapshot.diff import Change
from medlive.snapshot.freeze import FrozenSnapshot, write_snapshot
from medlive.snapshot.manifest import (
    Ancestor,
    EngineUse,
    EvidenceUse,
    Provenance,
    Signing,
    SnapshotMeta,
)
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion, commitment
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
MOMENT = datetime(2026, 11, 7, 8, 30, 1, tzinfo=UTC)


def small_case(name: str, first_release: str, **changes: Any) -> SnapshotCase:
    """A short case with three criteria; its criteria follow its id and revision."""
    zh = name.endswith("zh")
    values: dict[str, Any] = {
        "case_id": name,
        "revision": 1,
        "first_release": first_release,
        "language": "zh" if zh else "en",
        "source": "dxy" if zh else "icliniq",
        "posted_at": date(2025, 3, 3),
        "specialty": "Cardiology",
        "theme": "Response Depth",
        "narrative": f"我膝盖疼了三天，体温 38.2℃ {name}。"
        if zh
        else f'My "knee" hurts\nsince 3 days, {name}.',
        "query": "需要吃药吗？" if zh else "Do I need a tablet?",
        "advice": "先休息。" if zh else "Rest first.",
        "ceiling": 0.9,
        "floor": 0.1,
        "separation": 0.7,
    }
    case = SnapshotCase(**(values | changes))
    rows = tuple(
        SnapshotCriterion(
            f"{name}-c{k}",
            name,
            case.revision,
            k,
            f"Criterion {k} of {name}",
            axis,
            points,
        )
        for k, axis, points in (
            (1, "Accuracy", 5),
            (2, "Safety", -8),
            (3, "Completeness", 3),
        )
    )
    return replace(case, criteria=case.criteria or rows)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of releases under one folder, each beside its parent."""

    root: Path
    key: SecretKey
    releases: tuple[FrozenSnapshot, ...]
    salts: dict[str, str]
    """Case id → the salt of a case that was held out."""

    @property
    def last(self) -> Path:
        """The newest release's folder."""
        return self.releases[-1].path


def freeze(
    root: Path,
    version: str,
    cases: list[SnapshotCase],
    entries: Entries,
    parent: FrozenSnapshot | None = None,
    key: SecretKey | None = None,
) -> FrozenSnapshot:
    """Write a release that follows `parent`, signed where there is a key."""
    lineage: tuple[Ancestor, ...] = ()
    if parent is not None:
        lineage = (
            *parent.manifest.lineage,
            Ancestor(version=parent.manifest.version, digest=parent.digest),
        )
    signing = None
    if key is not None:
        signing = Signing(key_id=key.public.id_text(), public_key=key.public.line())
    meta = SnapshotMeta(
        version=version,
        created_at=MOMENT,
        provenance=PROVENANCE,
        lineage=lineage,
        signing=signing,
    )
    signer = (
        None
        if key is None
        else lambda data, comment: sign(data, key, comment, SIGNATURE_COMMENT)
    )
    ordered = sorted(cases, key=lambda c: c.case_id)
    return write_snapshot(ordered, meta, root, entries, signer)


def added(cases: list[SnapshotCase], version: str) -> tuple[Change, ...]:
    """The changes of the cases whose first release this is."""
    return tuple(
        Change("added", c.case_id, "new in this release", None, c.revision)
        for c in cases
        if c.first_release == version
    )


def held(case: SnapshotCase, salt: str, since: str) -> dict[str, Any]:
    """An entry of `holdouts.json`."""
    return {"commitment": commitment(case, salt), "held_since": since}


def build_line(root: Path, *, signed: bool = True) -> Line:
    """Three releases: in the last, cases were added, revised, withdrawn, held out, revealed and dropped."""
    root.mkdir(parents=True, exist_ok=True)
    secret, _ = generate()
    key = SecretKey.parse(secret)
    signer = key if signed else None
    first, second, third = "2026.W43", "2026.W44", "2026.W45"
    names = ("h1", "h2zh", "h3", "h4zh")
    salts = {name: f"{number:064x}" for number, name in enumerate(names, start=11)}
    hidden = {name: small_case(name, third) for name in names}
    one = [small_case(f"a{n}{'zh' if n % 2 else ''}", first) for n in range(3)]
    w1 = freeze(root, first, one, Entries(added(one, first)), None, signer)

    two = [
        *one,
        *(small_case(f"b{n}{'zh' if n % 2 else ''}", second) for n in range(3)),
    ]
    kept = [held(hidden[n], salts[n], second) for n in ("h1", "h2zh", "h3")]
    w2 = freeze(root, second, two, Entries(added(two, second), tuple(kept)), w1, signer)

    better = small_case(
        "a0", first, revision=2, advice="Rest, and see a doctor if it lasts."
    )
    three = [better, *(c for c in two if c.case_id not in ("a0", "b0"))]
    three += [small_case("c0", third), small_case("c1zh", third), hidden["h1"]]
    changes = (
        *added(three, third),
        Change("revised", "a0", "the advice was incomplete", 1, 2),
        Change("withdrawn", "b0", "the patient asked for it", 1, None),
    )
    entries = Entries(
        changes,
        held=(kept[1], held(hidden["h4zh"], salts["h4zh"], third)),
        revealed=({"case_id": "h1", **kept[0], "salt": salts["h1"]},),
        dropped=({**kept[2], "reason": "a duplicate was found"},),
    )
    w3 = freeze(root, third, three, entries, w2, signer)
    return Line(root, key, (w1, w2, w3), salts)
