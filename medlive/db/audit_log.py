"""The audit log: who did what, when and why, in a chain of digests that `verify_log` walks.

A row is written in the transaction of the act. Its digest covers every other column, the previous row's digest
among them, so that a row that was changed, removed or inserted afterwards breaks the chain where it stands. Rows
that are missing at the end are found by a digest that somebody noted before.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import func, select, update

from medlive.clock import now
from medlive.db.mapping import add_row, is_one_of, read
from medlive.db.session import Session
from medlive.db.tables.people import Act, AuditLogRow
from medlive.digest import digest_json, digest_text

_LOCK: Final = 0x6D656461  # "meda": one chain for a database


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry of the log."""

    number: int
    at: datetime
    by: str | None  # None: the command line, without --by
    action: Act
    subject: str
    reason: str | None  # None: nobody was asked, or a takedown erased it
    reason_digest: str | None
    details: dict[str, Any]
    previous: str | None  # None: the first
    digest: str

    def expected_digest(self) -> str:
        """The digest of everything else in the row; a reason counts by its own digest, which outlives it."""
        values = asdict(self) | {"at": self.at.astimezone(UTC).isoformat(), "action": self.action.value}
        return digest_json({name: value for name, value in values.items() if name not in ("digest", "reason")})

    def is_intact(self) -> bool:
        """Whether the row is as it was written, or as a takedown left it."""
        reason = self.reason_digest if self.reason is None else digest_text(self.reason)
        return self.digest == self.expected_digest() and reason == self.reason_digest


@dataclass(frozen=True, slots=True)
class LogCheck:
    """The log as it was found."""

    entries: int
    head: str | None  # The last digest; None: the log is empty
    faults: tuple[str, ...]


async def record(
    session: Session, action: Act, subject: str, reason: str | None = None, /, *, by: str | None, **details: Any
) -> LogEntry:
    """Add an entry in the session's transaction, until whose end no other is added; do it last.

    `subject` is `kind:name`; `details` are numbers and names that belong to the act, never words of a thread,
    which a takedown must erase.
    """
    await session.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    last = (await session.execute(
        select(AuditLogRow.number, AuditLogRow.digest).order_by(AuditLogRow.number.desc()).limit(1)
    )).one_or_none()  # fmt: skip
    number, previous = (last.number + 1, last.digest) if last else (1, None)
    why = None if reason is None else digest_text(reason)
    entry = LogEntry(number, now(), by, action, subject, reason, why, details, previous, "")
    values = asdict(entry) | {"digest": entry.expected_digest()}
    return read(LogEntry, await add_row(session, AuditLogRow(**values)))


async def erase_reasons(session: Session, thread: str, case_ids: Sequence[str]) -> list[int]:
    """Erase the reasons about a thread and its cases, in the transaction of its takedown, whose entry names them.

    Returns the numbers of the entries.
    """
    row, subjects = AuditLogRow, [thread, *(f"case:{case_id}" for case_id in case_ids)]
    about = is_one_of(row.subject, subjects) & (row.action != Act.TAKE_DOWN) & row.reason.is_not(None)
    return sorted(await session.scalars(update(row).where(about).values(reason=None).returning(row.number)))


async def list_entries(
    session: Session, *, before: int | None = None, subject: str | None = None, limit: int = 100
) -> list[LogEntry]:
    """The entries with a number below `before`, about `subject` where given, newest first."""
    query = select(AuditLogRow).order_by(AuditLogRow.number.desc()).limit(limit)
    if before is not None:
        query = query.where(AuditLogRow.number < before)
    if subject is not None:
        query = query.where(AuditLogRow.subject == subject)
    return [read(LogEntry, row) for row in await session.scalars(query)]


async def latest_act(session: Session, action: Act) -> int:
    """The number of the latest entry of an act; 0 before the first."""
    return await session.scalar(select(func.max(AuditLogRow.number)).where(AuditLogRow.action == action)) or 0


async def verify_log(session: Session, *, head: str | None = None) -> LogCheck:
    """Walk the chain and name every row that does not fit; `head`: a digest that the log must hold."""
    faults: list[str] = []
    erased: set[int] = set()  # Entries without their reason, of which no takedown spoke yet
    number, previous, seen = 0, None, head is None
    async for entry in _walk(session):
        name = f"entry {entry.number} ({entry.at:%Y-%m-%d %H:%M} UTC, {entry.action} {entry.subject})"
        if entry.number != number + 1:
            missing = f"{number + 1}" if entry.number == number + 2 else f"{number + 1} to {entry.number - 1}"
            faults.append(f"entry {missing} was removed")
        elif entry.previous != previous:
            faults.append(f"{name} does not follow entry {number}: one of the two was inserted or replaced")
        if not entry.is_intact():
            faults.append(f"{name} was changed")
        if entry.reason is None and entry.reason_digest is not None:
            erased.add(entry.number)
        elif entry.action is Act.TAKE_DOWN:
            erased.difference_update(entry.details["erased"])
        seen = seen or entry.digest == head
        number, previous = entry.number, entry.digest
    if not seen:
        faults.append(f"no entry has the digest {head}: entries were removed at the end, or replaced")
    faults += [f"the reason of entry {n} was erased without a takedown" for n in sorted(erased)]
    return LogCheck(number, previous, tuple(faults))


async def _walk(session: Session) -> AsyncIterator[LogEntry]:
    rows = await session.stream_scalars(
        select(AuditLogRow).order_by(AuditLogRow.number).execution_options(yield_per=1000)
    )
    async for row in rows:
        yield read(LogEntry, row)
