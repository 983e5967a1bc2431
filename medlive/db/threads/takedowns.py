"""Takedowns: which threads were erased and must not come back, and which files still hold bytes of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.mapping import dump_json, is_one_of
from medlive.db.tables.intake import TakedownRow
from medlive.threads.model import Thread

TAKEN_DOWN: Final = "taken_down"
"""Why a thread is passed over, and a case kept out."""
_LOCK: Final = 0x6D656474  # "medt": one number for every takedown of this database

_AMONG = text(
    "SELECT down.source, down.thread_id FROM takedowns AS down "
    "JOIN json_to_recordset(CAST(:keys AS json)) AS asked (source text, thread_id text) USING (source, thread_id)"
)


@dataclass(frozen=True, slots=True)
class Takedown:
    """What is left of a thread that was erased."""

    source: str
    thread_id: str
    reason: str
    taken_down_at: datetime
    counts: Mapping[str, int]


async def find_takedown(session: AsyncSession, source: str, thread_id: str) -> Takedown | None:
    """The thread's takedown; None when it was not taken down."""
    row = await session.get(TakedownRow, (source, thread_id))
    return None if row is None else _takedown(row)


async def taken_down_ids(session: AsyncSession, source: str, thread_ids: Sequence[str]) -> set[str]:
    """Those of a source's threads that were taken down."""
    query = select(TakedownRow.thread_id).where(
        TakedownRow.source == source, is_one_of(TakedownRow.thread_id, thread_ids)
    )
    return set(await session.scalars(query))


async def keep_out(session: AsyncSession, threads: Iterable[Thread]) -> set[tuple[str, str]]:
    """(source, thread's id) of those threads that were taken down and must not be saved.

    Until the session's transaction ends no other thread is taken down: a takedown sees what is saved now, or is
    seen here.
    """
    keys = [{"source": thread.source, "thread_id": thread.thread_id} for thread in threads]
    await no_takedown(session)
    return {(source, i) for source, i in await session.execute(_AMONG, {"keys": dump_json(keys)})}


async def no_takedown(session: AsyncSession) -> None:
    """Wait for a takedown that is under way, and let none begin until the session's transaction ends."""
    await session.execute(select(func.pg_advisory_xact_lock_shared(_LOCK)))


async def take_down_alone(session: AsyncSession) -> None:
    """Wait until nobody saves threads, and keep everybody from it until the session's transaction ends."""
    await session.execute(select(func.pg_advisory_xact_lock(_LOCK)))


def _takedown(row: Any) -> Takedown:
    return Takedown(row.source, row.thread_id, row.reason, row.taken_down_at, row.counts)
