"""Snapshots: begun, filled, frozen; and the rows of a frozen one, from which its folder is written."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.cases import StoredCase, criteria_of, iter_ready_cases
from medlive.db.tables import (
    AgentCallRow,
    CaseRevisionRow,
    CriterionRow,
    CurationRow,
    EvidenceIndexRow,
    SnapshotMemberRow,
    SnapshotRow,
    SnapshotState,
)
from medlive.errors import CheckFailed, UsageError
from medlive.rubric.model import Criterion
from medlive.snapshot.manifest import EngineUse, EvidenceUse, Provenance
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion

_BATCH = 500


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """What is recorded of a snapshot; the last six are None while it is being built."""

    version: str
    parent: str | None
    state: SnapshotState
    created_at: datetime
    frozen_at: datetime | None
    cases: int | None
    criteria: int | None
    publishable: bool | None
    why_not: tuple[str, ...] | None
    path: str | None
    manifest_digest: str | None


async def begin_snapshot(session: AsyncSession, version: str) -> SnapshotInfo:
    """A snapshot being built, without members; its parent is the latest frozen one before it.

    One that was begun and never frozen is begun anew; another process that builds the same one is waited for.
    Raises UsageError when it is frozen, or when a later one is: history is not written backwards.
    """
    latest = await latest_frozen(session)
    if latest is not None and latest.version > version:
        raise UsageError(f"snapshot {latest.version} is frozen, so {version} can no longer be made")
    await session.execute(
        upsert(SnapshotRow).values(version=version, state=SnapshotState.BUILDING).on_conflict_do_nothing()
    )
    row = await session.scalar(
        select(SnapshotRow)
        .where(SnapshotRow.version == version)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    if row is None or row.state is SnapshotState.FROZEN:
        raise UsageError(f"snapshot {version} is frozen")
    await session.execute(delete(SnapshotMemberRow).where(SnapshotMemberRow.version == version))
    await session.execute(
        update(SnapshotRow).where(SnapshotRow.version == version).values(parent=latest.version if latest else None)
    )
    await session.refresh(row)
    return _info(row)


async def candidate_cases(session: AsyncSession, version: str) -> list[SnapshotCase]:
    """The latest revision of every ready case as it would stand in that snapshot, by case id."""
    cases = [case async for case in iter_ready_cases(session)]
    released = await first_releases(session, [c.case_id for c in cases])
    return [_as_row(case, released.get(case.case_id, version)) for case in cases]


async def add_members(session: AsyncSession, version: str, members: Iterable[tuple[str, int]]) -> int:
    """Add (case id, revision) pairs; how many. Each case's first release is the earliest frozen snapshot that
    held it, or this one. Raises UsageError when the snapshot is frozen or was not begun."""
    info = await find_snapshot(session, version)
    if info is None or info.state is SnapshotState.FROZEN:
        raise UsageError(f"snapshot {version} is " + ("frozen" if info else "not begun"))
    pairs = sorted(members)
    released = await first_releases(session, [case_id for case_id, _ in pairs])
    rows = [
        {
            "version": version,
            "case_id": case_id,
            "revision": revision,
            "first_release": released.get(case_id, version),
        }
        for case_id, revision in pairs
    ]
    if rows:
        await session.execute(insert(SnapshotMemberRow), rows)
    return len(rows)


async def freeze_snapshot(
    session: AsyncSession,
    version: str,
    *,
    manifest: Mapping[str, Any],
    manifest_digest: str,
    path: str,
    publishable: bool,
    why_not: Sequence[str],
) -> SnapshotInfo:
    """Freeze a snapshot as it is filled: from now on the database refuses every change of it.

    Raises CheckFailed when the manifest's counts are not the members', and UsageError when it was not begun.
    """
    cases, criteria = await _counts(session, version)
    told = manifest.get("counts", {})
    if (told.get("cases"), told.get("criteria")) != (cases, criteria):
        raise CheckFailed(
            f"the manifest counts {told.get('cases')} cases and {told.get('criteria')} criteria, "
            f"snapshot {version} has {cases} and {criteria}"
        )
    frozen = await session.scalar(
        update(SnapshotRow)
        .where(SnapshotRow.version == version, SnapshotRow.state == SnapshotState.BUILDING)
        .values(
            state=SnapshotState.FROZEN,
            frozen_at=func.now(),
            manifest=dict(manifest),
            manifest_digest=manifest_digest,
            cases=cases,
            criteria=criteria,
            publishable=publishable,
            why_not=list(why_not),
            path=path,
        )
        .returning(SnapshotRow)
        .execution_options(populate_existing=True)
    )
    if frozen is None:
        raise UsageError(f"snapshot {version} is frozen already, or was not begun")
    return _info(frozen)


async def find_snapshot(session: AsyncSession, version: str) -> SnapshotInfo | None:
    """What is recorded of a snapshot; None when there is none."""
    row = await session.get(SnapshotRow, version)
    return None if row is None else _info(row)


async def list_snapshots(session: AsyncSession) -> list[SnapshotInfo]:
    """Every snapshot, newest first."""
    rows = await session.scalars(select(SnapshotRow).order_by(SnapshotRow.version.desc()))
    return [_info(row) for row in rows]


async def latest_frozen(session: AsyncSession, *, before: str | None = None) -> SnapshotInfo | None:
    """The newest frozen snapshot, or the newest before a version; None when there is none."""
    query = select(SnapshotRow).where(SnapshotRow.state == SnapshotState.FROZEN)
    if before is not None:
        query = query.where(SnapshotRow.version < before)
    row = await session.scalar(query.order_by(SnapshotRow.version.desc()).limit(1))
    return None if row is None else _info(row)


async def load_manifest(session: AsyncSession, version: str) -> dict[str, Any] | None:
    """The manifest as it was frozen; None while there is none."""
    manifest: dict[str, Any] | None = await session.scalar(
        select(SnapshotRow.manifest).where(SnapshotRow.version == version)
    )
    return manifest


async def first_releases(session: AsyncSession, case_ids: Sequence[str]) -> dict[str, str]:
    """Case id → the earliest frozen snapshot that held it, for those that were released."""
    member = SnapshotMemberRow
    query = (
        select(member.case_id, func.min(member.version))
        .join(SnapshotRow, SnapshotRow.version == member.version)
        .where(SnapshotRow.state == SnapshotState.FROZEN, member.case_id.in_(case_ids))
        .group_by(member.case_id)
    )
    return {row[0]: row[1] for row in await session.execute(query)}


async def load_members(session: AsyncSession, version: str) -> AsyncIterator[SnapshotCase]:
    """The rows of a snapshot with their criteria, by case id, streamed."""
    member, row = SnapshotMemberRow, CaseRevisionRow
    query = (
        select(row, member.first_release)
        .join(member, (member.case_id == row.case_id) & (member.revision == row.revision))
        .where(member.version == version)
        .order_by(row.case_id)
    )
    stream = await session.stream(query, execution_options={"yield_per": _BATCH})
    async for rows in stream.partitions():
        criteria = await criteria_of(session, {r.case_id: r.revision for r, _ in rows})
        for r, first_release in rows:
            yield SnapshotCase(
                case_id=r.case_id,
                revision=r.revision,
                first_release=first_release,
                language=r.language,
                source=r.source,
                posted_at=r.posted_at,
                specialty=r.specialty,
                theme=r.theme.value,
                narrative=r.narrative,
                query=r.query,
                advice=r.advice,
                criteria=_criteria(r.case_id, r.revision, criteria.get(r.case_id, [])),
            )


async def load_provenance(session: AsyncSession, version: str, *, code_version: str) -> Provenance:
    """How the snapshot's cases were made: every engine, prompt, index and threshold that took part.

    Where cases of several weeks differ, a prompt's or threshold's further values follow under `name#2` and on.
    """
    member, case, curation, call = SnapshotMemberRow, CaseRevisionRow, CurationRow, AgentCallRow
    ours = (
        select(case.curation_id)
        .join(member, (member.case_id == case.case_id) & (member.revision == case.revision))
        .where(member.version == version)
    )
    engines: set[tuple[str, str, str]] = set()
    for used in await session.scalars(select(curation.engines).where(curation.id.in_(ours)).distinct()):
        engines |= {(role, engine["engine"], engine["model"]) for role, engine in used.items()}
    prompts = await session.execute(
        select(call.task, call.prompt_digest)
        .where(call.curation_id.in_(ours))
        .distinct()
        .order_by(call.task, call.prompt_digest)
    )
    thresholds = await session.execute(
        select(curation.threshold_sufficiency, curation.threshold_alignment)
        .where(curation.id.in_(ours))
        .distinct()
        .order_by(curation.threshold_sufficiency, curation.threshold_alignment)
    )
    used_indexes = select(curation.index_digest).where(curation.id.in_(ours))
    indexes = await session.scalars(
        select(EvidenceIndexRow).where(EvidenceIndexRow.digest.in_(used_indexes)).order_by(EvidenceIndexRow.digest)
    )
    pairs = [(name, value) for s, a in thresholds for name, value in (("sufficiency", s), ("alignment", a))]
    return Provenance(
        code_version=code_version,
        engines=tuple(EngineUse(role=r, engine=e, model=m) for r, e, m in sorted(engines)),
        prompts=_numbered((task, digest) for task, digest in prompts),
        evidence=tuple(
            EvidenceUse(
                retriever=i.retriever,
                index_digest=i.digest,
                corpora=dict(sorted(i.corpora.items())),
                passages=i.passages,
            )
            for i in indexes
        ),
        thresholds=_numbered(pairs),
    )


def _numbered(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Name → value; a name's further values under `name#2`, `name#3`."""
    values: dict[str, list[Any]] = {}
    for name, value in pairs:
        if value not in (seen := values.setdefault(name, [])):
            seen.append(value)
    return {
        name if place == 1 else f"{name}#{place}": value
        for name, seen in sorted(values.items())
        for place, value in enumerate(seen, start=1)
    }


async def _counts(session: AsyncSession, version: str) -> tuple[int, int]:
    member = SnapshotMemberRow
    cases = await session.scalar(select(func.count()).select_from(member).where(member.version == version))
    criteria = await session.scalar(
        select(func.count())
        .select_from(CriterionRow)
        .join(member, (member.case_id == CriterionRow.case_id) & (member.revision == CriterionRow.revision))
        .where(member.version == version)
    )
    return cases or 0, criteria or 0


def _as_row(case: StoredCase, first_release: str) -> SnapshotCase:
    return SnapshotCase(
        case_id=case.case_id,
        revision=case.revision,
        first_release=first_release,
        language=case.language,
        source=case.source,
        posted_at=case.posted_at,
        specialty=case.rubric.specialty,
        theme=case.rubric.theme.value,
        narrative=case.text.narrative,
        query=case.text.query,
        advice=case.text.advice,
        criteria=_criteria(case.case_id, case.revision, case.rubric.criteria),
    )


def _criteria(case_id: str, revision: int, criteria: Iterable[Criterion]) -> tuple[SnapshotCriterion, ...]:
    """The criteria with ids that are unique in a snapshot, their positions from 1."""
    return tuple(
        SnapshotCriterion(
            criterion_id=f"{case_id}-{c.id}",
            case_id=case_id,
            revision=revision,
            position=position,
            criterion=c.criterion,
            axis=c.axis.value,
            points=c.points,
        )
        for position, c in enumerate(criteria, start=1)
    )


def _info(row: SnapshotRow) -> SnapshotInfo:
    return SnapshotInfo(
        version=row.version,
        parent=row.parent,
        state=row.state,
        created_at=row.created_at,
        frozen_at=row.frozen_at,
        cases=row.cases,
        criteria=row.criteria,
        publishable=row.publishable,
        why_not=None if row.why_not is None else tuple(row.why_not),
        path=row.path,
        manifest_digest=row.manifest_digest,
    )
