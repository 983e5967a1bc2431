"""Threads that wait and that nothing would take up: they are queued again, and it is said.

Jobs are deferred in the transaction of the rows that they are for, and none is ended without a decision, so there
should be no such thread. What is found is a fault of medlive, or somebody changed the database.
"""

import logging
from typing import Final

import procrastinate

from medlive.db.session import Database
from medlive.db.waits import find_lost, forget_failures, take_turn
from medlive.service.work.jobs import defer_revisions

_log = logging.getLogger(__name__)
_TURN: Final = 0x6D65646E
""" "medn": the lock of whoever looks."""


async def queue_lost(app: procrastinate.App, database: Database) -> int:
    """Queue threads that wait for nothing, unless another process does it now; how many."""
    async with database.begin() as session:
        if not await take_turn(session, _TURN):
            return 0
        await forget_failures(session)
        lost = await find_lost(session)
        queued = await defer_revisions(app, session, lost)
    if queued:
        _log.warning("%d threads waited without a job, and are queued again", queued)
    return queued
