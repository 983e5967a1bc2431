"""Freezes the cases that are ready into a week's snapshot, and writes its folder from the frozen rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from medlive import __version__
from medlive.clock import iso_week, now
from medlive.config import Settings
from medlive.db.cases import withdrawal_reasons
from medlive.db.session import Database
from medlive.db.snapshots import (
    SnapshotInfo,
    add_members,
    begin_snapshot,
    candidate_cases,
    find_snapshot,
    freeze_snapshot,
    load_manifest,
    load_members,
    load_provenance,
)
from medlive.db.tables.release import SnapshotState
from medlive.digest import digest_text
from medlive.errors import CheckFailed, UsageError
from medlive.rubric.lint import Grounds, lint
from medlive.rubric.model import Axis, Criterion
from medlive.service.paths import snapshots_path
from medlive.snapshot.diff import diff_rows
from medlive.snapshot.freeze import SnapshotMeta, write_snapshot
from medlive.snapshot.gates import GateHit, release_hits, screen, standard_scanner
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.model import SnapshotCase, week_end


@dataclass(frozen=True, slots=True)
class Frozen:
    """A frozen snapshot: what it holds and what was kept out of it."""

    version: str
    path: Path
    cases: int
    criteria: int
    publishable: bool
    why_not: tuple[str, ...]
    kept_out: tuple[GateHit, ...]
    already: bool
    """True when the week had been frozen before; nothing was changed then."""


async def freeze(database: Database, settings: Settings, week: str | None = None) -> Frozen:
    """Freeze a week (default: the present ISO week) and write its folder; a frozen week is left as it is.

    One transaction fixes which revisions are members, the folder is built from them, and a second transaction
    marks the snapshot frozen with the manifest that was written. A kill in between leaves a snapshot in
    building, which the next call begins anew. Raises UsageError for a week that cannot be made and CheckFailed
    when no case passes the gates.
    """
    version = week or iso_week(now())
    if week_end(version) is None:
        raise UsageError(f"{version!r} is no ISO week such as 2026.W47")
    async with database.begin() as session:
        known = await find_snapshot(session, version)
        if known is not None and known.state is SnapshotState.FROZEN:
            manifest = Manifest.model_validate(await load_manifest(session, version))
            return _as_frozen(known, manifest, (), already=True)
        info = await begin_snapshot(session, version)
        passing = screen(await candidate_cases(session, version), standard_scanner(), lint_case)
        members = [(case.case_id, case.revision) for case in passing]
        if not members:
            raise CheckFailed(
                f"no case is ready for {version}"
                + (f"; {len(passing.hits)} were kept out" if passing.hits else ""),
                hint="medlive status shows where the threads are",
            )
        await add_members(session, version, members)
    kept_out = tuple(passing.hits)
    async with database.begin() as session:
        rows = [case async for case in load_members(session, version)]
        before = [case async for case in load_members(session, info.parent)] if info.parent else []
        provenance = await load_provenance(session, version, code_version=__version__)
        reasons = await withdrawal_reasons(session)
    refused = release_hits(provenance, len(rows), settings.release.minimum_cases)
    meta = SnapshotMeta(
        version=version,
        created_at=info.created_at,
        provenance=provenance,
        parent=info.parent,
        why_not=tuple(hit.detail for hit in refused),
    )
    reasons |= {hit.case_id: f"kept out: {hit.detail}" for hit in kept_out if hit.case_id}
    written = write_snapshot(rows, meta, diff_rows(before, rows, reasons), snapshots_path(settings))
    async with database.begin() as session:
        frozen = await freeze_snapshot(
            session,
            version,
            manifest=written.manifest.model_dump(mode="json"),
            manifest_digest=digest_text(written.manifest.text()),
            path=str(written.path),
            publishable=written.manifest.publishable,
            why_not=written.manifest.why_not,
        )
    return _as_frozen(frozen, written.manifest, kept_out, already=False)


def lint_case(case: SnapshotCase) -> Iterable[str]:
    """The rubric linter's findings on a case as it would be released."""
    criteria = [
        Criterion(c.criterion_id, c.position, c.criterion, Axis(c.axis), c.points, "") for c in case.criteria
    ]
    grounds = Grounds({"": case.advice}, f"{case.narrative}\n{case.query}\n{case.advice}")
    findings = lint(case.language, criteria, frozenset({""}), grounds)
    return [f"{f.fault.value}: {f.detail}" for f in findings]


def _as_frozen(info: SnapshotInfo, manifest: Manifest, kept_out: tuple[GateHit, ...], *, already: bool) -> Frozen:
    return Frozen(
        version=info.version,
        path=Path(info.path or ""),
        cases=manifest.counts.cases,
        criteria=manifest.counts.criteria,
        publishable=manifest.publishable,
        why_not=manifest.why_not,
        kept_out=kept_out,
        already=already,
    )
