"""The audit log: who did what, when and why, in a chain of digests that `verify_log` walks.

A row is written in the transaction of the act. The database assigns its number, its salt and its digest, which
covers every other column, the previous row's digest among them: a row that was changed, removed or inserted
afterwards breaks the chain at its place. Rows missing at the end are found by an anchor: a number of entries with the
last one's digest, noted outside the database, as in each snapshot's manifest.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import insert, select

from medlive.clock import now
from medlive.guard.bounds import LOG_CHARS_SHOWN
from medlive.snapshot.manifest import AuditLogHead

from .session import Session
from .tables.people import Act, AuditLogRow


class LogCheck(NamedTuple):
    """What `verify_log` found."""

    entries: int
    head: str | None  # The last digest; None: the log is empty
    faults: tuple[str, ...]


async def record(
    session: Session,
    action: Act,
    subject: str,
    reason: str | None = None,
    /,
    *,
    by: str | None,
    **details: Any,
) -> AuditLogRow:
    """Add an entry. It blocks other writers of the log until the transaction ends, so do it last.

    `subject` is `kind:name`; `by` the person, None for the command line without --by; `details` are numbers and names
    that belong to the act, never words of a thread, which a takedown must erase.
    """
    added = insert(AuditLogRow).returning(AuditLogRow)
    added = added.values(
        at=now(),
        by=by,
        action=action,
        subject=subject,
        reason=reason,
        details=details,
    )
    return (await session.scalars(added)).one()


async def read_head(session: Session) -> AuditLogHead:
    """The number of entries, and the last one's digest."""
    latest = await session.first(AuditLogRow, "ORDER BY number DESC LIMIT 1")
    if latest is None:
        return AuditLogHead(entries=0, head=None)
    return AuditLogHead(entries=latest.number, head=latest.digest)


async def erase_reasons(
    session: Session, thread: str, case_ids: Sequence[str]
) -> list[int]:
    """Erase the reasons in entries about a thread (its log subject) and its cases; return these entries' numbers.

    Do it in the takedown's transaction, whose own entry must name the numbers.
    """
    erased = """
        UPDATE audit_log SET reason = NULL
        WHERE subject = ANY (:subjects) AND action <> 'take_down' AND reason IS NOT NULL RETURNING number
    """
    subjects = [thread, *map("case:{}".format, case_ids)]
    return sorted(await session.column(erased, subjects=subjects))


async def list_entries(
    session: Session,
    *,
    before: int | None = None,
    subject: str | None = None,
    limit: int = 100,
) -> list[AuditLogRow]:
    """The entries with a number below `before`, about `subject` where given, newest first.

    Texts are cut to LOG_CHARS_SHOWN, and longer details left out: an attacker in the web could write texts of any
    length.
    """
    entries = await session.records(
        """
        SELECT number, at, left("by", :chars) AS "by", action, left(subject, :chars) AS subject,
            left(reason, :chars) AS reason, reason_digest, previous, digest, salt,
            CASE WHEN length(details::text) <= :chars THEN details ELSE '{}' END AS details
        FROM audit_log
        WHERE number < coalesce(CAST(:before AS bigint), 9223372036854775807)
            AND (CAST(:subject AS text) IS NULL OR subject = :subject)
        ORDER BY number DESC LIMIT :most
        """,
        before=before,
        subject=subject,
        most=limit,
        chars=LOG_CHARS_SHOWN,
    )
    for entry in entries:
        entry.action = Act(entry.action)
    return [AuditLogRow(**vars(entry)) for entry in entries]


async def latest_act(session: Session, action: Act) -> int:
    """The number of the latest entry with this action; 0 if there is none."""
    latest = "SELECT max(number) FROM audit_log WHERE action = :action"
    return await session.value(latest, action=action) or 0


async def verify_log(
    session: Session,
    *,
    head: str | None = None,
    anchors: Mapping[str, AuditLogHead] = MappingProxyType({}),
) -> LogCheck:
    """Walk the chain and name every row that does not fit.

    Args:
        session: Of the database whose log it is.
        head: A digest that an entry must have; None: no such check.
        anchors: Where an anchor was noted, for the message → the log's length and last digest then.
    """
    faults: list[str] = []
    # Entries with an erased reason that no takedown has named yet
    erased: set[int] = set()
    number, previous, seen = 0, None, head is None
    query = select(AuditLogRow).order_by(AuditLogRow.number)
    rows = await session.stream_scalars(query.execution_options(yield_per=1000))
    async for entry in rows:
        name = f"entry {entry.number} ({entry.at:%Y-%m-%d %H:%M} UTC, {entry.action} {entry.subject})"
        if entry.number != number + 1:
            faults.append(f"entry {number + 1} to {entry.number - 1} was removed")
        elif entry.previous != previous:
            faults.append(
                f"{name} does not follow entry {number}: one of the two was inserted or replaced"
            )
        if not entry.is_intact():
            faults.append(f"{name} was changed")
        if entry.reason is None and entry.reason_digest is not None:
            erased.add(entry.number)
        elif entry.action is Act.TAKE_DOWN:
            erased.difference_update(entry.erased)
        seen = seen or entry.digest == head
        number, previous = entry.number, entry.digest
    if not seen:
        faults.append(
            f"no entry has the digest {head}: entries were removed at the end, or replaced"
        )
    numbers = [anchor.entries for anchor in anchors.values()]
    digests = await session.lookup(
        "SELECT number, digest FROM audit_log WHERE number = ANY (:numbers)",
        numbers=numbers,
    )
    faults += _anchor_faults(number, digests, anchors)
    faults += [
        f"the reason of entry {n} was erased without a takedown" for n in sorted(erased)
    ]
    return LogCheck(number, previous, tuple(faults))


def _anchor_faults(
    entries: int, digests: Mapping[int, str], anchors: Mapping[str, AuditLogHead]
) -> list[str]:
    """The anchors that a log of `entries` entries contradicts; `digests` has the digests of the entries they name."""
    faults = []
    in_order = sorted(anchors.items(), key=lambda item: (item[1].entries, item[0]))
    for source, anchor in in_order:
        if anchor.entries > entries:
            cut = f"entry {entries + 1} to {anchor.entries} was removed at the end"
            stated = f"{source} states {anchor.entries} with head {anchor.head}"
            faults.append(f"{cut}: {stated}")
        elif anchor.entries and digests.get(anchor.entries) != anchor.head:
            got = digests.get(anchor.entries, "none")
            faults.append(
                f"entry {anchor.entries} or one before was replaced: {source} states digest {anchor.head}, "
                f"the log has {got}"
            )
    return faults
