"""Cases and their rubrics: one case a thread, one revision a wording."""

import hashlib
import hmac
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import exists, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased
from sqlalchemy.sql.elements import ColumnElement

from medlive.curation.model import CaseText
from medlive.db.mapping import insert_rows, read, row_of
from medlive.db.release.withdrawals import too_thin, withdrawn_criteria, without_criteria
from medlive.db.tables.intake import ThreadRow
from medlive.db.tables.release import CaseRevisionRow, CaseRow, CaseStatus, CriterionRow, ReviewAction, ReviewRow
from medlive.digest import digest_json
from medlive.errors import MedliveError, UsageError
from medlive.rubric.model import Criterion, Rubric

_BATCH = 500
_NOT_BY_MODELS = "an agent was the rules engine or a recording, whose cases are for trying the loop"


@dataclass(frozen=True, slots=True)
class SavedCase:
    """Where a case lies now."""

    case_id: str
    revision: int
    status: Literal["new", "revised", "unchanged"]


@dataclass(frozen=True, slots=True)
class StoredCase:
    """The latest revision of a case, with its rubric."""

    case_id: str
    revision: int
    curation_id: int
    language: str
    source: str
    posted_at: datetime
    text: CaseText
    rubric: Rubric
    publishable: bool
    unpublishable_reason: str | None


def case_id_of(source: str, thread_id: str, key: bytes) -> str:
    """A thread's case id: the same for ever under this instance's key, and telling nothing without it."""
    message = digest_json([source, thread_id]).encode()
    return "ml-" + hmac.new(key, message, hashlib.sha256).hexdigest()[:16]


async def save_case(
    session: AsyncSession,
    *,
    thread_pk: int,
    curation_id: int,
    language: str,
    source: str,
    posted_at: datetime | None,
    rubric: Rubric,
    text: CaseText,
    key: bytes,
    publishable: bool,
    unpublishable_reason: str | None = None,
    held: str | None = None,
) -> SavedCase:
    """Save the case that a thread made, as a new revision unless its content is the latest one's.

    `key` is the instance's own, for the id. `held` says why the case waits for a person; None makes it ready. What
    a person decided about the very same content stands, and a case that a person rejected waits for one again when
    its content changes. A withdrawn case stays withdrawn, and criteria that were withdrawn from it are left out of
    the rubric; when too few are left, the case is held with its latest revision as it was. `unpublishable_reason`
    defaults to the part that the rules engine or a recording had in it. Raises MedliveError for a thread without a
    date: the filters let none pass.
    """
    if posted_at is None:
        raise MedliveError(f"thread {thread_pk} has no date, and a case must have one")
    posted_at = posted_at.astimezone(UTC)
    thread = (
        await session.execute(select(ThreadRow.source, ThreadRow.thread_id).where(ThreadRow.id == thread_pk))
    ).one()
    case_id = case_id_of(thread.source, thread.thread_id, key)
    status = CaseStatus.READY if held is None else CaseStatus.HELD
    statement = upsert(CaseRow).values(id=case_id, thread_id=thread_pk, status=status, status_reason=held)
    # The row is locked here, changed or not, so that two savers of one case take turns.
    await session.execute(
        statement.on_conflict_do_update(index_elements=["id"], set_={"thread_id": statement.excluded.thread_id})
    )
    rejected = await session.scalar(
        select(CaseRow.status_reason).where(CaseRow.id == case_id, CaseRow.status == CaseStatus.REJECTED)
    )
    await _set_status(session, case_id, held)
    kept = without_criteria(rubric, await withdrawn_criteria(session, case_id))
    if len(kept.criteria) < len(rubric.criteria) and (thin := too_thin(kept)) is not None:
        # What is left is no rubric: the case waits, and its latest revision stays as it was.
        latest = await latest_case(session, case_id)
        if latest is not None:
            await _set_status(session, case_id, f"without its withdrawn criteria the rubric has {thin}")
            return SavedCase(case_id, latest.revision, "unchanged")
    saved = await add_revision(
        session,
        case_id,
        curation_id=curation_id,
        language=language,
        source=source,
        posted_at=posted_at,
        rubric=kept,
        text=text,
        publishable=publishable,
        unpublishable_reason=unpublishable_reason,
    )
    review = await last_review(session, case_id, saved.revision)
    if review is not None and review.action is not ReviewAction.DROP_ELEMENT:
        await apply_review(session, case_id, review.action, review.reason)
    elif rejected is not None and held is None:
        await _set_status(session, case_id, f"{rejected}; its content has changed since")
    return saved


async def last_review(session: AsyncSession, case_id: str, revision: int) -> ReviewRow | None:
    """A person's latest decision about that revision; None when there is none."""
    found: ReviewRow | None = await session.scalar(
        select(ReviewRow)
        .where(ReviewRow.case_id == case_id, ReviewRow.revision == revision)
        .order_by(ReviewRow.id.desc())
        .limit(1)
    )
    return found


async def apply_review(session: AsyncSession, case_id: str, action: ReviewAction, reason: str) -> None:
    """Give a case the status that a person's approval or rejection asks for, unless it is withdrawn."""
    approved = action is ReviewAction.APPROVE
    await session.execute(
        update(CaseRow)
        .where(CaseRow.id == case_id, CaseRow.status != CaseStatus.WITHDRAWN)
        .values(
            status=CaseStatus.READY if approved else CaseStatus.REJECTED,
            status_reason=None if approved else f"rejected by a person: {reason}",
        )
    )


async def add_revision(
    session: AsyncSession,
    case_id: str,
    *,
    curation_id: int,
    language: str,
    source: str,
    posted_at: datetime,
    rubric: Rubric,
    text: CaseText,
    publishable: bool,
    unpublishable_reason: str | None,
) -> SavedCase:
    """Add a revision to a case whose row the session has locked, unless its content is the latest one's.

    `posted_at` is in UTC.
    """
    digest = digest_json(_content(language, source, posted_at, rubric, text))
    row = CaseRevisionRow
    latest = (
        await session.execute(
            select(row.revision, row.content_digest, row.publishable)
            .where(row.case_id == case_id)
            .order_by(row.revision.desc())
            .limit(1)
        )
    ).first()
    if latest is not None and latest.content_digest == digest and latest.publishable == publishable:
        return SavedCase(case_id, latest.revision, "unchanged")
    revision = 1 if latest is None else latest.revision + 1
    await session.execute(
        insert(row).values(
            case_id=case_id,
            revision=revision,
            curation_id=curation_id,
            language=language,
            source=source,
            posted_at=posted_at,
            publishable=publishable,
            unpublishable_reason=None if publishable else unpublishable_reason or _NOT_BY_MODELS,
            content_digest=digest,
            **row_of(row, rubric),
            **row_of(row, text),
        )
    )
    await insert_rows(
        session,
        CriterionRow,
        [row_of(CriterionRow, c, case_id=case_id, revision=revision, criterion_id=c.id) for c in rubric.criteria],
    )
    return SavedCase(case_id, revision, "new" if revision == 1 else "revised")


async def withdraw_case(session: AsyncSession, case_id: str, reason: str) -> None:
    """Keep a case out of every later snapshot; frozen ones stay as they are. Raises UsageError for no case."""
    statement = update(CaseRow).where(CaseRow.id == case_id).returning(CaseRow.id)
    done = await session.scalar(statement.values(status=CaseStatus.WITHDRAWN, status_reason=reason))
    if done is None:
        raise UsageError(f"there is no case {case_id}")


async def hold_case_of_thread(session: AsyncSession, thread_pk: int, reason: str) -> str | None:
    """Take a thread's ready case back until a person looks; its id, or None when it had none that was ready."""
    held: str | None = await session.scalar(
        update(CaseRow)
        .where(CaseRow.thread_id == thread_pk, CaseRow.status == CaseStatus.READY)
        .values(status=CaseStatus.HELD, status_reason=reason)
        .returning(CaseRow.id)
    )
    return held


async def hold_case(session: AsyncSession, case_id: str, reason: str) -> None:
    """Take a case back until a person looks, unless it is withdrawn."""
    await _set_status(session, case_id, reason)


async def withdrawal_reasons(session: AsyncSession) -> dict[str, str]:
    """Case id → why it is not ready, of all that are not."""
    query = select(CaseRow.id, CaseRow.status_reason).where(CaseRow.status != CaseStatus.READY)
    return {case_id: reason or "" for case_id, reason in await session.execute(query)}


async def _set_status(session: AsyncSession, case_id: str, held: str | None) -> None:
    """Make a case ready, or hold it for that reason, unless it is withdrawn."""
    status = CaseStatus.READY if held is None else CaseStatus.HELD
    await session.execute(
        update(CaseRow)
        .where(CaseRow.id == case_id, CaseRow.status != CaseStatus.WITHDRAWN)
        .values(status=status, status_reason=held)
    )


async def latest_case(session: AsyncSession, case_id: str) -> StoredCase | None:
    """The latest revision of a case, whatever its status; None for no case."""
    query = select(CaseRevisionRow).where(CaseRevisionRow.case_id == case_id, is_latest_case())
    row = await session.scalar(query)
    if row is None:
        return None
    criteria = await criteria_of(session, {case_id: row.revision})
    return _stored(row, criteria.get(case_id, ()))


async def iter_ready_cases(session: AsyncSession) -> AsyncIterator[StoredCase]:
    """The latest revision of every ready case, by id, streamed."""
    row = CaseRevisionRow
    query = (
        select(row)
        .join(CaseRow, CaseRow.id == row.case_id)
        .where(CaseRow.status == CaseStatus.READY, is_latest_case())
        .order_by(row.case_id)
    )
    stream = await session.stream_scalars(query, execution_options={"yield_per": _BATCH})
    async for rows in stream.partitions():
        criteria = await criteria_of(session, {r.case_id: r.revision for r in rows})
        for r in rows:
            yield _stored(r, criteria.get(r.case_id, ()))


def is_latest_case() -> ColumnElement[bool]:
    """The condition that a `CaseRevisionRow` is its case's latest."""
    later = aliased(CaseRevisionRow)
    return ~exists().where(later.case_id == CaseRevisionRow.case_id, later.revision > CaseRevisionRow.revision)


async def criteria_of(session: AsyncSession, revisions: Mapping[str, int]) -> dict[str, list[Criterion]]:
    """Case id → criteria in their order, of one revision of each case."""
    query = (
        select(CriterionRow)
        .where(CriterionRow.case_id.in_(revisions))
        .order_by(CriterionRow.case_id, CriterionRow.position)
    )
    found: dict[str, list[Criterion]] = {}
    for c in await session.scalars(query):
        if revisions[c.case_id] == c.revision:
            found.setdefault(c.case_id, []).append(read(Criterion, c, id=c.criterion_id))
    return found


def _stored(row: CaseRevisionRow, criteria: Iterable[Criterion]) -> StoredCase:
    return read(StoredCase, row, text=read(CaseText, row), rubric=read(Rubric, row, criteria=tuple(criteria)))


def _content(language: str, source: str, posted_at: datetime, rubric: Rubric, text: CaseText) -> dict[str, Any]:
    """What makes a revision: a case whose content is equal has not changed."""
    return {
        "language": language,
        "source": source,
        "posted_at": posted_at.isoformat(),
        "theme": rubric.theme.value,
        "specialty": rubric.specialty,
        **asdict(text),
        "criteria": [
            [c.id, c.position, c.criterion, c.axis.value, c.points, c.advice_id] for c in rubric.criteria
        ],
    }
