"""Snapshots: begun and fixed, frozen, and what is recorded of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy import delete, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.clock import now
from medlive.db.curation.cases import is_member
from medlive.db.mapping import add_row, is_one_of
from medlive.db.tables.decisions import AgentCallRow, CurationRow, EvidenceIndexRow
from medlive.db.tables.release import (
    CaseRevisionRow,
    CaseRow,
    CaseStatus,
    CriterionRow,
    SnapshotChangeRow,
    SnapshotKeptOutRow,
    SnapshotMemberRow,
    SnapshotRow,
    SnapshotState,
)
from medlive.db.tables.weeks import WeekThreadRow
from medlive.errors import CheckFailed, UsageError
from medlive.snapshot.gates import Gate, GateHit
from medlive.snapshot.manifest import (
    Ancestor,
    AuditLogHead,
    EngineUse,
    EvidenceUse,
    Partial,
    Provenance,
    Signing,
    WeekCost,
)


class MembersGone(CheckFailed):
    """Cases were taken back after the snapshot was fixed and before it was frozen."""


class Numbers(BaseModel):
    """How many cases a snapshot shows and holds out, with how many criteria, and what became of the parent's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cases: int
    criteria: int  # Of the cases that are shown
    held: int
    revealed: int = 0
    dropped: int = 0


class FixedMeta(BaseModel):
    """What a snapshot says of itself besides its rows, fixed in one transaction with them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lineage: tuple[Ancestor, ...]
    signing: Signing | None
    provenance: Provenance
    why_not: tuple[str, ...]
    numbers: Numbers
    hold_out: float  # The share that was asked for
    gates_digest: str
    audit_log: AuditLogHead | None = None  # None: fixed before it was noted
    partial: Partial | None = None  # None: the week was whole
    cost: WeekCost | None = None  # None: fixed before it was counted
    standing: tuple[int, int, int, int, int] | None = None
    """Of the week's threads: queued, decided, held, failed and waiting; None: frozen before they were counted."""


async def begin_snapshot(session: AsyncSession, version: str) -> SnapshotRow:
    """A snapshot being built, without members; its parent is the latest frozen one.

    What was begun and never frozen is dropped, this version and others. Raises UsageError when it is frozen, or
    when a later one is: history is not written backwards.
    """
    latest = await latest_frozen(session)
    if latest is not None and latest.version >= version:
        ended = "is frozen" if latest.version == version else "can no longer be made"
        raise UsageError(f"snapshot {latest.version} is frozen, so {version} {ended}")
    building = select(SnapshotRow.version).where(
        SnapshotRow.state == SnapshotState.BUILDING
    )
    counted = update(WeekThreadRow).where(WeekThreadRow.frozen_in.in_(building))
    await session.execute(counted.values(frozen_in=None))
    for row in (SnapshotMemberRow, SnapshotChangeRow, SnapshotKeptOutRow, SnapshotRow):
        await session.execute(delete(row).where(row.version.in_(building)))
    parent = latest.version if latest else None
    made = SnapshotRow(version=version, state=SnapshotState.BUILDING, parent=parent)
    return await add_row(session, made)


async def settle_snapshot(session: AsyncSession, version: str, meta: FixedMeta) -> None:
    """Keep what a snapshot says of itself, in the transaction that adds its members."""
    statement = update(SnapshotRow).where(SnapshotRow.version == version)
    await session.execute(statement.values(meta=meta.model_dump(mode="json")))


async def load_fixed(session: AsyncSession, version: str) -> FixedMeta | None:
    """What a snapshot was fixed with; None when there is no such snapshot, or one of before format 2."""
    meta = await session.scalar(
        select(SnapshotRow.meta).where(SnapshotRow.version == version)
    )
    return None if meta is None else FixedMeta.model_validate(meta)


async def freeze_snapshot(
    session: AsyncSession,
    version: str,
    *,
    manifest: Mapping[str, Any],
    manifest_digest: str,
    sums_digest: str,
    signature: str | None,
    path: str,
    publishable: bool,
    why_not: Sequence[str],
) -> SnapshotRow:
    """Freeze a snapshot as it is filled: from now on the database refuses every change of it.

    Raises MembersGone when the manifest's counts are not the members', and UsageError when it was not begun.
    """
    # Whoever takes a member away has the snapshot's row locked until that is done.
    row = await session.get(
        SnapshotRow, version, with_for_update=True, populate_existing=True
    )
    if row is None or row.state is not SnapshotState.BUILDING:
        raise UsageError(f"snapshot {version} is frozen already, or was not begun")
    numbers = await count_members(session, version)
    counts = manifest.get("counts", {})
    listed = (counts.get("cases"), counts.get("criteria"), counts.get("held", 0))
    if listed != (numbers.cases, numbers.criteria, numbers.held):
        raise MembersGone(
            f"the manifest counts {listed[0]} cases and {listed[1]} criteria, "
            f"snapshot {version} has {numbers.cases} and {numbers.criteria}"
        )
    row.manifest, row.manifest_digest = dict(manifest), manifest_digest
    row.sums_digest, row.signature, row.path = sums_digest, signature, path
    row.cases, row.criteria = numbers.cases, numbers.criteria
    row.publishable, row.why_not = publishable, list(why_not)
    row.state, row.frozen_at = SnapshotState.FROZEN, now()
    await session.flush()
    return row


async def find_snapshot(session: AsyncSession, version: str) -> SnapshotRow | None:
    """What is recorded of a snapshot; None when there is none."""
    return await session.get(SnapshotRow, version)


async def list_snapshots(session: AsyncSession) -> list[SnapshotRow]:
    """Every snapshot, newest first."""
    query = select(SnapshotRow).order_by(SnapshotRow.version.desc())
    return list(await session.scalars(query))


async def latest_frozen(session: AsyncSession) -> SnapshotRow | None:
    """The newest frozen snapshot; None when there is none."""
    query = select(SnapshotRow).where(SnapshotRow.state == SnapshotState.FROZEN)
    return await session.scalar(query.order_by(SnapshotRow.version.desc()).limit(1))


async def load_manifest(session: AsyncSession, version: str) -> dict[str, Any] | None:
    """The manifest as it was frozen; None while there is none."""
    return await session.scalar(
        select(SnapshotRow.manifest).where(SnapshotRow.version == version)
    )


async def list_log_heads(session: AsyncSession) -> dict[str, AuditLogHead]:
    """The head of the audit log that each frozen snapshot was fixed with, by version."""
    row = SnapshotRow
    query = select(row.version, row.meta["audit_log"]).where(
        row.state == SnapshotState.FROZEN
    )
    heads: dict[str, AuditLogHead] = {}
    for version, stated in await session.execute(query.order_by(row.version)):
        if stated is not None:
            heads[version] = AuditLogHead.model_validate(stated)
    return heads


async def load_kept_out(session: AsyncSession, version: str) -> list[GateHit]:
    """Why ready cases are not in a snapshot, by case id."""
    row = SnapshotKeptOutRow
    query = select(row.gate, row.case_id, row.detail).where(row.version == version)
    rows = await session.execute(query.order_by(row.case_id, row.position))
    return [GateHit(Gate(gate), case_id, detail) for gate, case_id, detail in rows]


async def count_waiting(session: AsyncSession) -> int:
    """The ready cases that no snapshot holds, nor its gates kept out."""
    case, member, kept_out = CaseRow, SnapshotMemberRow, SnapshotKeptOutRow
    query = select(func.count()).where(
        case.status == CaseStatus.READY,
        ~exists().where(member.case_id == case.id),
        ~exists().where(kept_out.case_id == case.id),
    )
    return int(await session.scalar(query) or 0)


async def held_weeks(session: AsyncSession, version: str | None) -> list[str]:
    """Since which snapshots the cases that a snapshot holds out have been so."""
    member = SnapshotMemberRow
    query = select(member.held_since).where(
        member.version == version,
        member.first_release.is_(None),
        member.held_since.is_not(None),
    )
    return sorted(await session.scalars(query.distinct()))


async def count_members(session: AsyncSession, version: str) -> Numbers:
    """How many cases a snapshot has, as it is filled."""
    member, change = SnapshotMemberRow, SnapshotChangeRow
    shown = member.first_release.is_not(None)
    count, is_revealed = func.count(), member.held_since.is_not(None)
    query = select(
        count.filter(shown), count.filter(~shown), count.filter(shown, is_revealed)
    )
    cases, held_out, revealed = (
        await session.execute(query.where(member.version == version))
    ).one()
    criteria = (
        select(func.count())
        .select_from(CriterionRow)
        .join(
            member,
            (member.case_id == CriterionRow.case_id)
            & (member.revision == CriterionRow.revision),
        )
        .where(member.version == version, shown)
    )
    dropped = (
        select(func.count())
        .select_from(change)
        .where(change.version == version, change.kind == "dropped")
    )
    return Numbers(
        cases=cases,
        criteria=await session.scalar(criteria) or 0,
        held=held_out,
        revealed=revealed,
        dropped=await session.scalar(dropped) or 0,
    )


async def thread_revisions_of(
    session: AsyncSession, version: str, case_ids: Iterable[str]
) -> dict[str, int]:
    """Case → the thread revision that it was made from, of those of the cases that are in that snapshot."""
    case = CaseRevisionRow
    query = (
        select(case.case_id, CurationRow.revision_id)
        .join(CurationRow, CurationRow.id == case.curation_id)
        .where(is_member(version), is_one_of(case.case_id, case_ids))
    )
    return {case_id: revision for case_id, revision in await session.execute(query)}  # noqa: C416


async def count_languages(session: AsyncSession, version: str) -> dict[str, int]:
    """Language → how many cases a snapshot shows in it."""
    language = CaseRevisionRow.language
    query = select(language, func.count()).where(is_member(version, shown=True))
    query = query.group_by(language)
    return {language: count for language, count in await session.execute(query)}  # noqa: C416


async def load_provenance(
    session: AsyncSession, version: str, *, code_version: str
) -> Provenance:
    """How the cases that a snapshot shows were made: every engine, prompt, index and threshold that took part.

    Where cases of several weeks differ, a prompt's or threshold's further values follow under `name#2` and on.
    """
    curation, call = CurationRow, AgentCallRow
    ours = select(CaseRevisionRow.curation_id).where(is_member(version, shown=True))
    is_ours = curation.id.in_(ours)
    engines: set[tuple[str, str, str]] = set()
    for used in await session.scalars(
        select(curation.engines).where(is_ours).distinct()
    ):
        for role, engine in used.items():
            engines.add((role, engine["engine"], engine["model"]))
    prompt = (call.task, call.prompt_digest)
    prompts = select(*prompt).where(call.curation_id.in_(ours)).distinct()
    rows = await session.execute(prompts.order_by(*prompt))
    columns = (curation.threshold_sufficiency, curation.threshold_alignment)
    thresholds = select(*columns).where(is_ours).distinct().order_by(*columns)
    pairs: list[tuple[str, float]] = []
    for sufficiency, alignment in await session.execute(thresholds):
        pairs += [("sufficiency", sufficiency), ("alignment", alignment)]
    index = EvidenceIndexRow
    used_indexes = select(curation.index_digest).where(is_ours)
    indexes = select(index).where(index.index_digest.in_(used_indexes))
    indexes = indexes.order_by(index.index_digest)
    evidence = []
    for index_row in await session.scalars(indexes):
        use = EvidenceUse(
            retriever=index_row.retriever,
            index_digest=index_row.index_digest,
            corpora=dict(sorted(index_row.corpora.items())),
            passages=index_row.passages,
        )
        evidence.append(use)
    return Provenance(
        code_version=code_version,
        engines=tuple(
            EngineUse(role=r, engine=e, model=m) for r, e, m in sorted(engines)
        ),
        prompts=_numbered((task, digest) for task, digest in rows),
        evidence=tuple(evidence),
        thresholds=_numbered(pairs),
    )


def _numbered(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Name → value; a name's further values under `name#2`, `name#3`."""
    values: dict[str, list[Any]] = {}
    for name, value in pairs:
        seen = values.setdefault(name, [])
        if value not in seen:
            seen.append(value)
    numbered = {}
    for name, seen in sorted(values.items()):
        for number, value in enumerate(seen, start=1):
            numbered[name if number == 1 else f"{name}#{number}"] = value
    return numbered
