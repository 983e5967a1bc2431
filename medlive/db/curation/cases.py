"""Cases and their rubrics: saved (one case a thread, one revision a content), given a status, held, and loaded."""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from psycopg.types.json import Json

from medlive.curation.model import CaseText
from medlive.db.mapping import Record, read, row_of
from medlive.db.session import Session
from medlive.db.tables.intake import ThreadRow
from medlive.db.tables.release import (
    CaseRevisionRow,
    CaseRow,
    CaseStatus,
    CriterionRow,
    ReviewAction,
)
from medlive.errors import UsageError
from medlive.integrity.digest import digest_json
from medlive.rubric.model import Criterion, Origin, Rubric

_NOT_BY_MODELS = (
    "an agent was the rules engine or a recording, whose cases are for trying the loop"
)

CaseRevision = tuple[CaseRevisionRow, Sequence[Criterion]]
"""A revision of a case, and its criteria."""


@dataclass(frozen=True)
class SavedCase:
    """The revision that a case has after saving."""

    case_id: str
    revision: int
    status: Literal["new", "revised", "unchanged", "left"]
    """"left": `save_case` kept the latest revision, as the new rubric was too thin without its withdrawn criteria."""


@dataclass(frozen=True, kw_only=True)
class CaseContent:
    """What a revision of a case says, the decision that it came from, and where it is stored."""

    curation_id: int
    language: str
    source: str
    posted_at: datetime
    text: CaseText
    rubric: Rubric
    publishable: bool
    overruled: str | None = None  # Why people overruled a confirmed veto
    unpublishable_reason: str | None = None
    """If None in an unpublishable case, `_NOT_BY_MODELS` is stored."""
    case_id: str = ""  # Empty and 0 until it is stored
    revision: int = 0

    def digest(self) -> str:
        """The digest of what a revision says: with an equal digest the case has not changed."""
        rubric = self.rubric
        criteria = []
        for c in rubric.criteria:
            parts = [c.id, c.position, c.criterion, c.axis.value, c.points, c.advice_id]
            if c.origin is not Origin.ADVICE:  # Else as before there were origins
                parts += [c.origin.value, c.source]
            criteria.append([*parts, c.asked] if c.asked else parts)
        values: dict[str, Any] = {
            "language": self.language,
            "source": self.source,
            "posted_at": self.posted_at.isoformat(),
            "theme": rubric.theme.value,
            "specialty": rubric.specialty,
            "difficulty": rubric.difficulty.value,
            "dialogue_register": rubric.dialogue_register.value,
        }
        if rubric.ceiling is not None:
            # Only then, so that the digest of a case that was never proved stays the same.
            values["proof"] = [rubric.ceiling, rubric.floor, rubric.separation]
            if rubric.ordinary is not None:
                values["proof"].append(rubric.ordinary)
        if rubric.asked:
            values["asked"] = list(map(asdict, rubric.asked))
        if self.overruled is not None:
            values["overruled"] = self.overruled
        return digest_json(values | asdict(self.text) | {"criteria": criteria})


def case_id_of(source: str, thread_id: str, key: bytes) -> str:
    """A thread's case id, a hash under this instance's `key`; without the key it says nothing of the thread."""
    message = digest_json([source, thread_id]).encode()
    return "ml-" + hmac.new(key, message, hashlib.sha256).hexdigest()[:16]


async def lock_thread_case(
    session: Session,
    thread_pk: int,
    key: bytes,
    status: CaseStatus,
    reason: str | None,
) -> Record:
    """Lock a thread's case, made if necessary, until the transaction ends: two processes that save it take turns.

    Args:
        session: The transaction.
        thread_pk: The thread's row.
        key: The instance's own, for the case's id.
        status: The status of a new case.
        reason: Why a new case is not ready; None: it is.

    Returns:
        The case's id, status and status_reason.
    """
    thread = await session.get_one(ThreadRow, thread_pk)
    case_id = case_id_of(thread.source, thread.thread_id, key)
    [case] = await session.records(
        """
        INSERT INTO cases (id, thread_id, status, status_reason) VALUES (:case_id, :thread, :status, :reason)
        ON CONFLICT (id) DO UPDATE SET thread_id = excluded.thread_id RETURNING id, status, status_reason
        """,
        case_id=case_id,
        thread=thread_pk,
        status=status,
        reason=reason,
    )
    case.status = CaseStatus(case.status)
    return case


# Decisions of people that no later review has settled. An edit is pending only for revisions of another curation:
# those of the same one (a criterion withdrawn, the rubric proved) still contain it. `drop_element` is noted at the
# revision before it takes effect. `last` is about this very revision.
_PENDING = """
    SELECT EXISTS (
        SELECT FROM reinstatements AS back JOIN withdrawals AS w ON w.id = back.withdrawal_id
        WHERE back.case_id = own.case_id AND w.criterion_id IS NULL AND NOT EXISTS (
            SELECT FROM reviews AS a
            WHERE a.case_id = own.case_id AND a.action = 'approve' AND a.decided_at > back.reinstated_at
        )
    ) AS is_reinstated, EXISTS (
        SELECT FROM reviews AS r
        WHERE r.case_id = own.case_id AND r.action = 'reject' AND r.revision <> own.revision AND NOT EXISTS (
            SELECT FROM reviews AS a
            WHERE a.case_id = own.case_id AND a.action IN ('approve', 'drop_element') AND a.id > r.id
        )
    ) AS is_rejected, EXISTS (
        SELECT FROM reviews AS e JOIN case_revisions AS edited ON edited.case_id = e.case_id
            AND edited.revision = e.revision + CASE e.action WHEN 'drop_element' THEN 1 ELSE 0 END
        WHERE e.case_id = own.case_id AND e.action IN ('edit', 'drop_element')
            AND edited.curation_id <> own.curation_id AND NOT EXISTS (
                SELECT FROM reviews AS a JOIN case_revisions AS approved USING (case_id, revision)
                WHERE a.case_id = own.case_id AND a.id > e.id AND (
                    a.action = 'approve' AND approved.curation_id <> edited.curation_id
                    OR a.action = 'drop_element' AND e.action = 'drop_element'
                )
            )
    ) AS is_edited, last.action, last.reason
    FROM case_revisions AS own LEFT JOIN LATERAL (
        SELECT action, reason FROM reviews AS r
        WHERE r.case_id = own.case_id AND r.revision = own.revision AND action IN ('approve', 'reject')
        ORDER BY id DESC LIMIT 1
    ) AS last ON true WHERE own.case_id = :case_id AND own.revision = :revision
"""


async def pending_decisions(session: Session, case_id: str, revision: int) -> Record:
    """What people decided that bears on a revision.

    A person must look at it if the case `is_reinstated`, or if another revision was rejected (`is_rejected`) or edited
    by a person (`is_edited`). `action` and `reason` are the last approval or rejection of this very revision; None:
    there is none.
    """
    [pending] = await session.records(_PENDING, case_id=case_id, revision=revision)
    return pending


async def add_revision(
    session: Session, case_id: str, content: CaseContent
) -> SavedCase:
    """Add a revision to a case, unless the latest one has this content; the session must have locked the case's row."""
    digest = content.digest()
    latest = await _latest_revision(session, case_id)
    current = (digest, content.publishable)
    if latest and (latest.content_digest, latest.publishable) == current:
        return SavedCase(case_id, latest.revision, "unchanged")
    revision = latest.revision + 1 if latest else 1
    key = {"case_id": case_id, "revision": revision}
    values = row_of(CaseRevisionRow, content, **key, content_digest=digest)
    values |= row_of(CaseRevisionRow, content.rubric)
    values |= row_of(CaseRevisionRow, content.text)
    if not content.publishable:
        values["unpublishable_reason"] = content.unpublishable_reason or _NOT_BY_MODELS
    await session.insert_rows(CaseRevisionRow, [values])
    rows = []
    for criterion in content.rubric.criteria:
        named = {"criterion_id": criterion.id, "tier": criterion.tier}
        rows.append(row_of(CriterionRow, criterion, **key, **named))
    await session.insert_rows(CriterionRow, rows)
    return SavedCase(case_id, revision, "new" if revision == 1 else "revised")


async def set_status(
    session: Session,
    case_id: str,
    status: CaseStatus,
    reason: str | None,
    *,
    withdrawn: bool = False,
) -> None:
    """Give a case a status and its reason (None if ready), unless it is withdrawn; with `withdrawn` only if it is."""
    await session.run(
        """
        UPDATE cases SET status = :status, status_reason = :reason
        WHERE id = :case_id AND (status = 'withdrawn') = :withdrawn
        """,
        case_id=case_id,
        status=status,
        reason=reason,
        withdrawn=withdrawn,
    )


async def hold_case_of_thread(session: Session, thread_pk: int, reason: str) -> None:
    """Hold a thread's case, if it is ready, until a person has looked at it."""
    await session.run(
        """
        UPDATE cases SET status = 'held', status_reason = :reason WHERE thread_id = :thread AND status = 'ready'
        """,
        thread=thread_pk,
        reason=reason,
    )


async def hold_filtered_cases(session: Session, rejected: Mapping[int, str]) -> None:
    """Hold the ready cases of threads until a person has looked: thread revision → why the filters reject it now.

    Cases whose rejection for that reason somebody has overruled stay ready.
    """
    hold = """
        UPDATE cases SET status = 'held', status_reason = 'filtered again: ' || reason
        FROM json_each_text(CAST(:rejected AS json)) AS judged (revision, reason)
        JOIN thread_revisions AS r ON r.id = CAST(judged.revision AS bigint)
        WHERE cases.thread_id = r.thread_id AND status = 'ready' AND NOT EXISTS (
            SELECT FROM overrules WHERE revision_id = r.id AND overruled = judged.reason
        )
    """
    if rejected:
        await session.run(hold, rejected=Json(dict(rejected)))


async def apply_review(
    session: Session, case_id: str, action: ReviewAction, reason: str
) -> None:
    """Give a case the status that a person's approval or rejection asks for, unless it is withdrawn."""
    is_ready = action == ReviewAction.APPROVE
    status = CaseStatus.READY if is_ready else CaseStatus.REJECTED
    why = None if is_ready else f"rejected by a person: {reason}"
    await set_status(session, case_id, status, why)


async def lock_case(session: Session, case_id: str) -> CaseStatus:
    """A case's status, its row locked until the transaction ends. Raises UsageError for an unknown id."""
    return (await find_case(session, case_id, lock=True)).status


async def find_case(
    session: Session,
    case_id: str,
    *,
    lock: bool = False,
) -> CaseRow:
    """A case's row. Raises UsageError for an unknown id."""
    row = await session.get(
        CaseRow, case_id, with_for_update=lock, populate_existing=True
    )
    if row is None:
        raise UsageError(
            f"unknown case {case_id[:100]!r}", hint="medlive case list shows them"
        )
    return row


async def _latest_revision(session: Session, case_id: str) -> CaseRevisionRow | None:
    return await session.first(
        CaseRevisionRow,
        "WHERE case_id = :case_id ORDER BY revision DESC LIMIT 1",
        case_id=case_id,
    )


async def latest_case(session: Session, case_id: str) -> CaseContent | None:
    """The content of a case's latest revision, whatever its status; None if there is no case."""
    row = await _latest_revision(session, case_id)
    if row is None:
        return None
    criteria = tuple(await criteria_of(session, row.case_id, row.revision))
    rubric = read(Rubric, row, criteria=criteria)
    return read(CaseContent, row, text=read(CaseText, row), rubric=rubric)


async def list_overruled(session: Session) -> list[Mapping[str, Any]]:
    """The cases whose confirmed veto people overruled, by id: case_id, revision, status, query, overruled (why)."""
    query = """
        SELECT case_id, revision, status, query, overruled FROM case_revisions AS r JOIN cases ON cases.id = case_id
        WHERE overruled IS NOT NULL AND NOT EXISTS (
            SELECT FROM case_revisions AS later WHERE later.case_id = r.case_id AND later.revision > r.revision
        ) ORDER BY case_id
    """
    return list(map(vars, await session.records(query)))


async def case_of_thread(
    session: Session, thread_pk: int
) -> tuple[CaseRow, CaseRevisionRow] | None:
    """A thread's case with its latest revision; None without a case or without a revision of it."""
    case = await session.first(CaseRow, "WHERE thread_id = :thread", thread=thread_pk)
    revision = None if case is None else await _latest_revision(session, case.id)
    return None if case is None or revision is None else (case, revision)


async def criteria_of(session: Session, case_id: str, revision: int) -> list[Criterion]:
    """The criteria of a case's revision, in their order."""
    rows = await session.rows(
        CriterionRow,
        "WHERE case_id = :case_id AND revision = :revision ORDER BY position",
        case_id=case_id,
        revision=revision,
    )
    return [read(Criterion, row, id=row.criterion_id) for row in rows]


async def list_revisions(session: Session, case_id: str) -> list[CaseRevision]:
    """A case's revisions, the first one first."""
    revisions: list[CaseRevision] = []
    for row in await session.rows(
        CaseRevisionRow, "WHERE case_id = :case_id ORDER BY revision", case_id=case_id
    ):
        revisions.append((row, await criteria_of(session, case_id, row.revision)))
    return revisions
