"""The scheduler's look at everything, once a minute: checks, messages about what they find, the heartbeat."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from medlive.clock import iso_week
from medlive.config import Settings
from medlive.db import watch
from medlive.db.session import Database, Session, read_clock
from medlive.db.tables.work import OpenProblemRow, Severity
from medlive.errors import DatabaseUnavailable, ServiceUnavailable
from medlive.service.watch.checks import ENDS_AFTER, find_problems
from medlive.service.watch.facts import (
    HEARTBEAT,
    SCHEDULER_HEARD,
    read_facts,
)
from medlive.service.watch.notify import Event, beat, deliver, write_message

_log = logging.getLogger(__name__)
LOOK_S = 60.0
"""Seconds between looks; a problem is named within five minutes of its beginning."""
RESENT_AFTER = (timedelta(hours=1), timedelta(hours=4))
RESENT_DAILY = timedelta(days=1)
"""How long after each message the next one is sent, until somebody acknowledges the problem."""
Clock = Callable[[], datetime] | None
"""What decides which weekly steps are due; None: the database's clock."""


async def look(
    database: Database,
    settings: Settings,
    *,
    heard: bool = False,
    clock: Clock = None,
) -> list[OpenProblemRow]:
    """Run every check, store what they find, and send messages about it; the problems.

    `heard`: a scheduler that goes on working is looking, which others may rely on. Raises DatabaseUnavailable.
    """
    if heard:
        await database.ask(watch.observe, SCHEDULER_HEARD)
    problems = find_problems(await read_facts(database, settings, clock))
    await database.ask(_store, settings, problems)
    await deliver(database, settings.notify)
    if heard and settings.notify.heartbeat_url is not None:
        pages = {p.code for p in problems if p.severity is Severity.PAGE}
        problem = None
        try:
            await beat(settings.notify, sorted(pages))
        except ServiceUnavailable as error:
            problem = error.message
        await database.ask(watch.observe, HEARTBEAT, {"problem": problem})
    return problems


async def keep_looking(
    database: Database, settings: Settings, alive: asyncio.Event, clock: Clock = None
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
    database: Database,
    settings: Settings,
    *,
    heard: bool = False,
    clock: Clock = None,
) -> None:
    """`look`, whose own faults are logged: they stop no step. Raises DatabaseUnavailable."""
    try:
        await look(database, settings, heard=heard, clock=clock)
    except DatabaseUnavailable:
        raise
    except Exception:
        _log.exception("the checks could not be run")


async def _store(
    session: Session, settings: Settings, problems: Sequence[OpenProblemRow]
) -> None:
    """Bring the stored problems up to date, and write the messages that are due."""

    async def write(event: Event, problem: OpenProblemRow, text: str) -> None:
        await write_message(
            session, settings.notify, event, week, text, code=problem.code
        )

    await watch.save_seen(session, problems)
    seen = {problem.key for problem in problems}
    ended = await watch.end_unseen(session, seen, ENDS_AFTER)
    moment = await read_clock(session)
    week = iso_week(moment)
    for stored in await watch.list_open(session):
        began = f"{stored.began_at:%Y-%m-%d %H:%M} UTC"
        if stored.send_at <= moment and not stored.is_acknowledged(moment):
            event: Event = "problem_again" if stored.sent else "problem"
            text = (
                f"{stored.text}\nWhat to do: {stored.next_step}\n"
                f"Since {began}. No more messages: medlive status ack {stored.code}"
            )
            await write(event, stored, text)
            wait = (*RESENT_AFTER, RESENT_DAILY)[min(stored.sent, len(RESENT_AFTER))]
            await watch.note_sent(session, stored, wait)
            _log.warning("%s: %s", stored.code, stored.text)
    for gone in ended:
        if gone.sent:
            began = f"{gone.began_at:%Y-%m-%d %H:%M} UTC"
            await write("problem_ended", gone, f"ended: {gone.text}\nIt began {began}.")
            _log.info("ended: %s: %s", gone.code, gone.text)
