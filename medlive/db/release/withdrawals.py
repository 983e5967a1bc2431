"""Withdrawals: what no later snapshot may hold, and the errata about what frozen ones do."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased
from sqlalchemy.sql.elements import ColumnElement

from medlive.db.audit_log import record
from medlive.db.mapping import add_row, is_one_of, read
from medlive.db.tables.people import Act
from medlive.db.tables.release import (
    CriterionRow,
    DisputeRow,
    ReinstatementRow,
    SnapshotMemberRow,
    SnapshotRow,
    SnapshotState,
    WithdrawalRow,
)
from medlive.integrity.digest import digest_text
from medlive.rubric.lint import MIN_CRITERIA
from medlive.rubric.model import Criterion, Origin, Rubric
from medlive.snapshot.errata import Errata, Erratum, WithdrawalKind
from medlive.text.normalise import fold

_Criteria = dict[tuple[str, int], dict[str | None, CriterionRow]]
"""(Case, revision) → criterion's id → criterion."""
_LOCK = 0x6D656572  # "meer": one number for every writer of this database's errata


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A case, or a criterion of one, that was withdrawn."""

    number: int
    case_id: str
    revision: int
    criterion_id: str | None  # Within its case (`c3`); None: the whole case
    criterion_digest: str | None
    # The revision without the criterion; None where none had to be made
    new_revision: int | None
    kind: WithdrawalKind
    reason: str  # Public
    withdrawn_by: str | None
    withdrawn_at: datetime
    reinstated_at: datetime | None = None  # None: it stands


def text_digest(criterion: str) -> str:
    """What a criterion is known by in every revision of its case: the digest of its folded text."""
    return digest_text(fold(criterion))


def without_criteria(rubric: Rubric, withdrawn: Collection[str]) -> Rubric:
    """The rubric without the criteria whose text has one of these digests; ids stay, positions are closed up."""
    if not withdrawn:
        return rubric
    kept = [c for c in rubric.criteria if text_digest(c.criterion) not in withdrawn]
    if len(kept) == len(rubric.criteria):
        return rubric
    criteria = tuple(replace(c, position=p) for p, c in enumerate(kept, start=1))
    return replace(rubric.unproved(), criteria=criteria)


def too_thin(rubric: Rubric) -> str | None:
    """What a rubric lacks to be one ("1 criterion", "no positive criterion"), or None when nothing."""
    if (n := len(rubric.criteria)) < MIN_CRITERIA:
        return "1 criterion" if n else "no criterion"
    return (
        None if any(c.points > 0 for c in rubric.criteria) else "no positive criterion"
    )


def _read(row: WithdrawalRow, reinstated_at: datetime | None = None) -> Withdrawal:
    return read(Withdrawal, row, number=row.id, reinstated_at=reinstated_at)


def _stands() -> ColumnElement[bool]:
    """The condition that a `WithdrawalRow` was not undone."""
    return ~exists().where(ReinstatementRow.withdrawal_id == WithdrawalRow.id)


async def holds_withdrawn(session: AsyncSession, version: str) -> bool:
    """Whether a snapshot's members hold what was withdrawn, or a case with an open dispute: since it was fixed,
    for nothing of that is fixed."""
    member, other, row, withdrawn = (
        SnapshotMemberRow,
        aliased(CriterionRow),
        WithdrawalRow,
        aliased(CriterionRow),
    )
    in_version = member.version == version
    case = exists().where(
        in_version, member.case_id == row.case_id, row.criterion_id.is_(None), _stands()
    )
    criterion = exists().where(
        in_version,
        member.case_id == row.case_id,
        withdrawn.case_id == row.case_id,
        withdrawn.revision == row.revision,
        withdrawn.criterion_id == row.criterion_id,
        other.case_id == member.case_id,
        other.revision == member.revision,
        other.criterion == withdrawn.criterion,
        _stands(),
    )
    disputed = exists().where(
        in_version, member.case_id == DisputeRow.case_id, DisputeRow.closed_at.is_(None)
    )
    return bool(await session.scalar(select(case | criterion | disputed)))


async def withdrawn_criteria(session: AsyncSession, case_id: str) -> set[str]:
    """The digests of the criteria that were withdrawn from a case.

    Taken from their texts anew where those are there: a later release may fold otherwise.
    """
    row, part = WithdrawalRow, CriterionRow
    same = (
        (part.case_id == row.case_id)
        & (part.revision == row.revision)
        & (part.criterion_id == row.criterion_id)
    )
    query = select(row.criterion_digest, part.criterion).outerjoin(part, same)
    query = query.where(
        row.case_id == case_id, row.criterion_digest.is_not(None), _stands()
    )
    rows = await session.execute(query)
    return {
        digest if criterion is None else text_digest(criterion)
        for digest, criterion in rows
        if digest
    }


async def withdrawn_from(
    session: AsyncSession, case_id: str, criterion_id: str
) -> list[int]:
    """The revisions of a case that a criterion of this id (`c3`) was withdrawn from."""
    row = WithdrawalRow
    query = select(row.revision).where(
        row.case_id == case_id, row.criterion_id == criterion_id
    )
    return list(await session.scalars(query.order_by(row.id)))


async def add_withdrawal(
    session: AsyncSession,
    *,
    case_id: str,
    revision: int,
    kind: WithdrawalKind,
    reason: str,
    criterion: Criterion | None = None,
    new_revision: int | None = None,
    withdrawn_by: str | None = None,
) -> Withdrawal:
    """Record a withdrawal; the session has locked the case's row and found none of its kind."""
    row = WithdrawalRow(
        case_id=case_id,
        revision=revision,
        new_revision=new_revision,
        kind=kind,
        reason=reason,
        withdrawn_by=withdrawn_by,
    )
    if criterion is not None:
        row.criterion_id = criterion.id
        row.criterion_digest = text_digest(criterion.criterion)
    await add_row(session, row)
    about = {"withdrawal": row.id, "kind": kind.value, "criterion": row.criterion_id}
    await record(
        session, Act.WITHDRAW, f"case:{case_id}", reason, by=withdrawn_by, **about
    )
    return _read(row)


async def must_not_be_given_out(session: AsyncSession) -> frozenset[str]:
    """The frozen snapshots that show what was withdrawn as a takedown or for privacy."""
    row, member = WithdrawalRow, SnapshotMemberRow
    query = (
        select(member.version)
        .join(row, row.case_id == member.case_id)
        .where(
            row.kind.in_([WithdrawalKind.TAKEDOWN, WithdrawalKind.PRIVACY]),
            # Of a criterion: a later revision lacks it.
            row.criterion_id.is_(None)
            | (member.revision < row.new_revision)
            | row.new_revision.is_(None),
            member.first_release.is_not(None),
            _stands(),
        )
    )
    return frozenset(await session.scalars(query.distinct()))


async def find_withdrawal(
    session: AsyncSession,
    case_id: str,
    kind: WithdrawalKind,
    criterion_digest: str | None = None,
) -> Withdrawal | None:
    """The withdrawal of a case (no digest) or of its criterion of that kind that stands; None: there is none."""
    row = WithdrawalRow
    query = select(row).where(row.case_id == case_id, row.kind == kind, _stands())
    stored = await session.scalar(
        query.where(row.criterion_digest.is_not_distinct_from(criterion_digest))
    )
    return None if stored is None else _read(stored)


async def list_withdrawals(session: AsyncSession) -> list[Withdrawal]:
    """Every withdrawal, oldest first; undone ones too."""
    undone = ReinstatementRow
    query = select(WithdrawalRow, undone.reinstated_at).outerjoin(
        undone, undone.withdrawal_id == WithdrawalRow.id
    )
    rows = await session.execute(query.order_by(WithdrawalRow.id))
    return [_read(row, moment) for row, moment in rows]


async def reinstate(
    session: AsyncSession,
    case_id: str,
    criterion_id: str | None,
    reason: str,
    *,
    by: str | None,
) -> list[Withdrawal]:
    """Undo the standing withdrawals of a case (None) or of its criterion (`c3`), and return them."""
    row = WithdrawalRow
    query = select(row).where(
        row.case_id == case_id,
        row.criterion_id.is_not_distinct_from(criterion_id),
        _stands(),
    )
    reinstated = [
        _read(withdrawal)
        for withdrawal in await session.scalars(query.order_by(row.id))
    ]
    for withdrawal in reinstated:
        await add_row(
            session, ReinstatementRow(withdrawal_id=withdrawal.number, case_id=case_id)
        )
    if reinstated:
        about = {
            "withdrawals": [withdrawal.number for withdrawal in reinstated],
            "criterion": criterion_id,
        }
        await record(session, Act.REINSTATE, f"case:{case_id}", reason, by=by, **about)
    return reinstated


async def reasons_for(session: AsyncSession, parent: str) -> dict[str, str]:
    """Case id → the public reason, with its kind, of cases that were withdrawn or had a criterion withdrawn.

    Only of cases that the snapshot `parent` holds as they were before: a case that was revised again since has
    another reason. A case's own withdrawal prevails over its criteria's.
    """
    row, member = WithdrawalRow, SnapshotMemberRow
    query = (
        select(row)
        .join(member, (member.case_id == row.case_id) & (member.version == parent))
        .where(
            row.criterion_id.is_(None) | (member.revision < row.new_revision), _stands()
        )
        .order_by(row.id)
    )
    reasons: dict[tuple[bool, str], dict[str, None]] = {}
    for withdrawal in await session.scalars(query):
        texts = reasons.setdefault(
            (withdrawal.criterion_id is None, withdrawal.case_id), {}
        )
        texts[f"{withdrawal.kind.value}: {withdrawal.reason}"] = None
    return {
        case_id: "; ".join(texts)
        for (_, case_id), texts in sorted(reasons.items(), key=lambda item: item[0])
    }


async def load_errata(session: AsyncSession, *, public: bool = False) -> Errata:
    """The errata as the database stands: of every withdrawal, which frozen snapshots hold what was withdrawn.

    Until the session's transaction ends nobody else gets them: the file is never set back. What is held out of a
    snapshot is not named. A criterion is looked for by its text, so that a revision in which it has another id is
    found, and one in which another criterion has its id is not. With `public`, snapshots that are not publishable
    count as if there were none of them.
    """
    await session.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    withdrawals = await list_withdrawals(session)
    if not withdrawals:
        return Errata()
    versions = select(SnapshotRow.version).where(
        SnapshotRow.state == SnapshotState.FROZEN
    )
    if public:
        versions = versions.where(SnapshotRow.publishable.is_(True))
    frozen = list(await session.scalars(versions.order_by(SnapshotRow.version)))
    members = await _members(session, frozen)
    criteria = await _criteria_of_withdrawn(session)
    entries: list[Erratum] = []
    for withdrawal in withdrawals:
        places = _find_places(withdrawal, members[withdrawal.case_id], criteria)
        for name in sorted(places, key=str):
            last = criteria[withdrawal.case_id, max(places[name])[1]].get(name)
            entries.append(_erratum(withdrawal, last, places[name], frozen))
    return Errata(entries=tuple(entries))


def _find_places(
    withdrawal: Withdrawal, members: Iterable[tuple[str, int]], criteria: _Criteria
) -> dict[str | None, list[tuple[str, int]]]:
    """Criterion's id, None for the whole case → (version, revision) of the snapshots that hold what was withdrawn."""
    if withdrawal.criterion_id is None:
        whole = list(members)
        return {None: whole} if whole else {}
    wanted = withdrawal.criterion_digest
    withdrawn = criteria[withdrawal.case_id, withdrawal.revision].get(
        withdrawal.criterion_id
    )
    if withdrawn is not None:
        wanted = text_digest(withdrawn.criterion)
    places: dict[str | None, list[tuple[str, int]]] = defaultdict(list)
    for version, revision in members:
        for name, criterion in criteria[withdrawal.case_id, revision].items():
            if text_digest(criterion.criterion) == wanted:
                places[name].append((version, revision))
    return places


def _erratum(
    withdrawal: Withdrawal,
    criterion: CriterionRow | None,
    places: list[tuple[str, int]],
    frozen: Iterable[str],
) -> Erratum:
    """The entry of a withdrawal, of a criterion as the last of the snapshots holds it."""
    versions = sorted({version for version, _ in places})
    part: dict[str, Any] = {"criterion_id": None, "revision": None}
    if criterion is not None:
        part["criterion_id"] = f"{withdrawal.case_id}-{criterion.criterion_id}"
        part["revision"] = criterion.revision
        if criterion.origin is not Origin.ADVICE:
            part["origin"] = criterion.origin.value
    return Erratum(
        id=withdrawal.number,
        issued_at=withdrawal.withdrawn_at.replace(microsecond=0),
        kind=withdrawal.kind,
        case_id=withdrawal.case_id,
        reason=withdrawal.reason,
        snapshots=tuple(versions),
        fixed_in=next((version for version in frozen if version > versions[-1]), None),
        reinstated_at=withdrawal.reinstated_at
        and withdrawal.reinstated_at.replace(microsecond=0),
        **part,
    )


async def _members(
    session: AsyncSession, versions: Sequence[str]
) -> dict[str, list[tuple[str, int]]]:
    """Withdrawn case → (version, revision) in each of these snapshots that shows it, oldest first."""
    member = SnapshotMemberRow
    query = (
        select(member.case_id, member.version, member.revision)
        .where(
            is_one_of(member.version, versions),
            member.first_release.is_not(None),
            member.case_id.in_(select(WithdrawalRow.case_id)),
        )
        .order_by(member.version)
    )
    members: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for case_id, version, revision in await session.execute(query):
        members[case_id].append((version, revision))
    return members


async def _criteria_of_withdrawn(
    session: AsyncSession,
) -> _Criteria:
    """(case, revision) → criterion id → criterion, of every revision of the cases that lost a criterion."""
    touched = select(WithdrawalRow.case_id).where(
        WithdrawalRow.criterion_id.is_not(None)
    )
    query = select(CriterionRow).where(CriterionRow.case_id.in_(touched))
    criteria: _Criteria = defaultdict(dict)
    for row in await session.scalars(query):
        criteria[row.case_id, row.revision][row.criterion_id] = row
    return criteria
