"""The scheduler's look at everything, once a minute: checks, messages about what they find, the heartbeat."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from medlive.clock import iso_week, now
from medlive.config import Settings
from medlive.db import watch
from medlive.db.session import Database, Session, read_clock
from medlive.db.tables.watch import OpenProblemRow, Severity
from medlive.errors import DatabaseUnavailable, ServiceUnavailable
from medlive.service.watch.checks import find_problems
from medlive.service.watch.facts import read_facts
from medlive.service.watch.local import read_local, verify_evidence
from medlive.service.watch.model import (
    EVIDENCE,
    HEARTBEAT,
    SCHEDULER_HEARD,
)
from medlive.service.watch.notify import Event, beat
from medlive.service.watch.outbox import deliver, write_message
from medlive.service.watch.problems import ENDS_AFTER

_log = logging.getLogger(__name__)
LOOK_S: Final = 60.0
"""Seconds between looks; a problem is named within five minutes of its beginning."""
RESENT_AFTER: Final = (timedelta(hours=1), timedelta(hours=4))
RESENT_DAILY: Final = timedelta(days=1)
"""How long after each message the next one is sent, until somebody acknowledges the problem."""
_DAILY: Final = timedelta(days=1)
Clock = Callable[[], datetime]


async def look(
    database: Database, settings: Settings, *, heard: bool = False, clock: Clock = now
) -> list[OpenProblemRow]:
    """Run every check, store what they find, and send messages about it; the problems.

    `heard`: a scheduler that goes on working is looking, which others may rely on. Raises DatabaseUnavailable.
    """
    if heard:
        async with database.begin() as session:
            await watch.observe(session, SCHEDULER_HEARD)
    await _look_closer(database, settings)
    problems = find_problems(await read_facts(database, settings, clock))
    async with database.begin() as session:
        await _store(session, settings, problems, iso_week(clock()))
    await deliver(database, settings.notify)
    if heard:
        await _beat(database, settings, problems)
    return problems


async def keep_looking(
    database: Database, settings: Settings, alive: asyncio.Event, clock: Clock = now
) -> None:
    """Look once a minute. `alive` is set by the loop that is watched, whenever it goes round.

    Raises DatabaseUnavailable.
    """
    while True:
        heard = alive.is_set()
        alive.clear()
        await look_safely(database, settings, heard=heard, clock=clock)
        await asyncio.sleep(LOOK_S)


async def look_safely(
    database: Database, settings: Settings, *, heard: bool = False, clock: Clock = now
) -> None:
    """`look`, whose own faults are logged: they stop no step. Raises DatabaseUnavailable."""
    try:
        await look(database, settings, heard=heard, clock=clock)
    except DatabaseUnavailable:
        raise
    except Exception:
        _log.exception("the checks could not be run")


async def _store(
    session: Session, settings: Settings, problems: Sequence[OpenProblemRow], week: str
) -> None:
    """Bring the stored problems up to date, and write the messages that are due."""
    await watch.save_seen(session, problems)
    ended = await watch.end_unseen(
        session, {problem.key for problem in problems}, ENDS_AFTER
    )
    moment = await read_clock(session)
    for stored in await watch.list_open(session):
        if stored.send_at <= moment and not stored.is_acknowledged(moment):
            event: Event = "problem_again" if stored.sent else "problem"
            await write_message(
                session,
                settings.notify,
                event,
                week,
                _text(stored),
                code=stored.code,
            )
            wait = (
                RESENT_AFTER[stored.sent]
                if stored.sent < len(RESENT_AFTER)
                else RESENT_DAILY
            )
            await watch.note_sent(session, stored, wait)
            _log.warning("%s: %s", stored.code, stored.text)
    for gone in ended:
        if gone.sent:
            text = f"ended: {gone.text}\nIt began {gone.began_at:%Y-%m-%d %H:%M} UTC."
            await write_message(
                session,
                settings.notify,
                "problem_ended",
                week,
                text,
                code=gone.code,
            )
            _log.info("ended: %s: %s", gone.code, gone.text)


def _text(problem: OpenProblemRow) -> str:
    return (
        f"{problem.text}\nWhat to do: {problem.next_step}\n"
        f"Since {problem.began_at:%Y-%m-%d %H:%M} UTC. No more messages: medlive status ack {problem.code}"
    )


async def _look_closer(database: Database, settings: Settings) -> None:
    """What takes longer: evidence, when its files changed, or a day later."""
    async with database.begin() as session:
        noted, moment = await watch.observations(session), await read_clock(session)
    local = await asyncio.to_thread(read_local, settings, None)
    if local is None or local.evidence_missing or local.evidence_corrupt:
        return
    verified = noted.get(EVIDENCE)
    if (
        verified is None
        or verified.value["state"] != local.evidence_state
        or moment - verified.at > _DAILY
    ):
        problem = await asyncio.to_thread(verify_evidence, settings)
        async with database.begin() as session:
            await watch.observe(
                session, EVIDENCE, {"state": local.evidence_state, "problem": problem}
            )


async def _beat(
    database: Database, settings: Settings, problems: Sequence[OpenProblemRow]
) -> None:
    """Tell the dead man's switch that a scheduler works, or which problems stop the week."""
    if settings.notify.heartbeat_url is None:
        return
    failing = sorted(
        {problem.code for problem in problems if problem.severity is Severity.PAGE}
    )
    problem = None
    try:
        await beat(settings.notify, failing)
    except ServiceUnavailable as error:
        problem = error.message
    async with database.begin() as session:
        await watch.observe(session, HEARTBEAT, {"problem": problem})
