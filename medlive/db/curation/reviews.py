"""What people decide: reviews of held cases, overruled rejections, disputes; and scans for identifiers."""

from collections.abc import Sequence
from typing import Any

from medlive.curation.model import Reason
from medlive.db.audit_log import record
from medlive.db.mapping import Record, as_dict
from medlive.db.session import Session, read_clock
from medlive.db.tables.decisions import OverruleRow
from medlive.db.tables.people import Act
from medlive.db.tables.release import (
    DisputeRow,
    IdentifierScanRow,
    ReviewRow,
)
from medlive.errors import CheckFailed, UsageError

_HELD = """
    SELECT case_id, revision, curation_id, r.language, r.source, query, cases.status_reason, r.created_at AS held_since,
        ARRAY(SELECT reason FROM holds WHERE holds.curation_id = r.curation_id ORDER BY position) AS reasons
    FROM cases JOIN case_revisions AS r ON case_id = cases.id
    WHERE status = 'held' AND NOT EXISTS (
            SELECT FROM case_revisions AS later WHERE later.case_id = r.case_id AND later.revision > r.revision
        )
    ORDER BY r.created_at, case_id LIMIT :most
"""
_DECIDED_SINCE = """(EXISTS (
    SELECT FROM curations AS later WHERE later.revision_id = o.revision_id AND outcome <> 'failed'
        AND later.id > coalesce(o.curation_id, 0)
) OR EXISTS (
    SELECT FROM thread_revisions AS own JOIN thread_revisions AS later USING (thread_id)
    WHERE own.id = o.revision_id AND later.revision > own.revision
))"""
"""SQL: whether the overrule `o` has been followed by a decision, or by a later revision, which is decided instead."""
_UNSCANNED = """
    SELECT case_id FROM cases JOIN case_revisions AS r ON case_id = cases.id
    WHERE status = 'ready' AND NOT EXISTS (
            SELECT FROM case_revisions AS later WHERE later.case_id = r.case_id AND later.revision > r.revision
        )
        AND NOT EXISTS (
            SELECT FROM identifier_scans AS scan
            WHERE scan.case_id = r.case_id AND scan.revision = r.revision AND scanner = :scanner
        )
    ORDER BY case_id
"""


async def list_held(session: Session, limit: int | None = None) -> Sequence[Record]:
    """The cases that wait for a person, longest first, at most `limit`.

    Each has case_id, revision, curation_id, language, source, query, reasons (of its holds; empty where something else
    holds it: a dispute's outcome, a thread decided again), status_reason and held_since.
    """
    return await session.records(_HELD, most=limit)


async def add_review(
    session: Session, row: ReviewRow, act: Act | None = None
) -> ReviewRow:
    """Record a person's decision, logged as `act` (default: the action); `cases.apply_review` changes the status."""
    await session.insert(row)
    about: dict[str, Any] = {"review": row.number, "revision": row.revision}
    if row.element_id:
        about["element"] = row.element_id
    act, by = act or Act(row.action), row.decided_by
    await record(session, act, f"case:{row.case_id}", row.reason, by=by, **about)
    return row


async def reviews_of(session: Session, case_id: str) -> list[ReviewRow]:
    """What people decided about a case, in order."""
    return await session.rows(
        ReviewRow, "WHERE case_id = :case_id ORDER BY id", case_id=case_id
    )


async def add_overrule(session: Session, thread: str, row: OverruleRow) -> OverruleRow:
    """Record that somebody overrules a rejection of `thread` (SOURCE/ID); `row.people` must agree for it to count.

    The caller has the thread curated again.
    """
    await session.insert(row)
    await record(
        session,
        Act.OVERRULE,
        f"thread:{thread}",
        row.reason,
        by=row.decided_by,
        decision=row.curation_id,
        overruled=row.overruled,
    )
    return row


async def overrules_of(session: Session, revision_id: int) -> list[OverruleRow]:
    """The overruled rejections of a thread's revision, in order."""
    return await session.rows(
        OverruleRow, "WHERE revision_id = :revision ORDER BY id", revision=revision_id
    )


def in_force(overrules: Sequence[OverruleRow]) -> list[OverruleRow]:
    """The overrules of a revision that count: those of a decision that at least `people` different people overruled."""
    people: dict[int | None, set[str | None]] = {}
    for row in overrules:
        people.setdefault(row.curation_id, set()).add(row.decided_by)
    return [row for row in overrules if len(people[row.curation_id]) >= row.people]


async def find_veto_reason(session: Session, revision_id: int) -> str | None:
    """Why people overruled the confirmed veto of a revision; None if they did not, or too few."""
    reasons = []
    for row in in_force(await overrules_of(session, revision_id)):
        if row.overruled == Reason.CONTRADICTED:
            reasons.append(row.reason)
    return "; ".join(dict.fromkeys(reasons)) or None


async def list_waiting_overrules(session: Session) -> Sequence[Record]:
    """The overrules that too few people agree on so far, oldest first: source, thread_id, reason, decided_by,
    decided_at."""
    return await session.records(f"""
        SELECT source, threads.thread_id, o.reason, o.decided_by, o.decided_at FROM overrules AS o
        JOIN thread_revisions AS r ON r.id = o.revision_id JOIN threads ON threads.id = r.thread_id
        WHERE NOT {_DECIDED_SINCE} AND people > (
            SELECT count(DISTINCT coalesce(decided_by, '')) FROM overrules AS others
            WHERE others.revision_id = o.revision_id AND others.curation_id IS NOT DISTINCT FROM o.curation_id
        )
        ORDER BY o.id
        """)


async def overruled_revisions(session: Session) -> list[int]:
    """The revisions whose rejection enough people overruled and that have not been decided since, oldest first."""
    return await session.column(f"""
        SELECT DISTINCT revision_id FROM overrules AS o WHERE NOT {_DECIDED_SINCE}
        GROUP BY revision_id, curation_id HAVING count(DISTINCT coalesce(decided_by, '')) >= max(people)
        ORDER BY revision_id
        """)


async def save_scan(
    session: Session, case_id: str, revision: int, scanner: str, *, found: int
) -> None:
    """Record that a case revision was scanned for identifiers; a second scan by the same scanner changes nothing."""
    scan = {"case_id": case_id, "revision": revision, "scanner": scanner}
    scans = [scan | {"found": found}]
    await session.insert_rows(IdentifierScanRow, scans, skip_known=True)


async def unscanned_cases(session: Session, scanner: str) -> list[str]:
    """The ready cases whose latest revision this scanner has not scanned, by id."""
    return await session.column(_UNSCANNED, scanner=scanner)


async def open_dispute(session: Session, row: DisputeRow) -> DisputeRow:
    """Open a dispute about an existing case or a criterion of it; an equal one that is open is returned instead.

    The session must have locked the case's row, so that two equal objections at once do not both open one.
    """
    known = await session.first(
        DisputeRow,
        """
        WHERE case_id = :case_id AND reason = :reason AND closed_at IS NULL
        AND criterion_id IS NOT DISTINCT FROM :criterion_id AND opened_by IS NOT DISTINCT FROM :opened_by
        """,
        **as_dict(row),
    )
    if known is not None:
        return known
    await session.insert(row)
    await record(
        session,
        Act.DISPUTE,
        f"case:{row.case_id}",
        row.reason,
        by=row.opened_by,
        dispute=row.number,
        criterion=row.criterion_id,
    )
    return row


async def close_dispute(
    session: Session, number: int, resolution: str, *, closed_by: str | None
) -> DisputeRow:
    """Close a dispute with its resolution. Raises UsageError if there is none, CheckFailed if it is closed already."""
    row = await session.get(
        DisputeRow, number, with_for_update=True, populate_existing=True
    )
    if row is None:
        raise UsageError(
            f"unknown dispute {number}", hint="medlive review disputes --all lists them"
        )
    if row.closed_at is not None:
        raise CheckFailed(f"dispute {number} was closed already: {row.resolution}")
    row.closed_at = await read_clock(session)
    row.closed_by, row.resolution = closed_by, resolution
    await session.flush()
    act, subject = Act.RESOLVE, f"case:{row.case_id}"
    await record(session, act, subject, resolution, by=closed_by, dispute=number)
    return row


async def list_disputes(session: Session, *, closed: bool = False) -> list[DisputeRow]:
    """The open disputes, oldest first; with `closed` every one."""
    return await session.rows(
        DisputeRow, "WHERE closed_at IS NULL OR :closed ORDER BY id", closed=closed
    )
