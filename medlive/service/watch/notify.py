"""Messages to operators about what the checks find, by webhook (JSON, POST) and e-mail.

`keep_looking` runs the checks once a minute; a dead man's switch misses its `beat` where nobody looks. Messages are
written to the database first, and sent until each configured place (webhook, e-mail) has taken them.
"""

import asyncio
import json
import logging
import smtplib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from email.message import EmailMessage
from email.utils import localtime, make_msgid
from functools import partial
from typing import Any, Literal

import httpx2

from medlive.clock import iso_week
from medlive.config import NotifySection, Settings
from medlive.db import watch
from medlive.db.session import Database, Session, read_clock
from medlive.db.tables.work import OpenProblemRow, Severity
from medlive.errors import DatabaseUnavailable, ServiceUnavailable
from medlive.guard.printable import printable_lines
from medlive.guard.redaction import remember
from medlive.guard.trust import tls_context

from .checks import ENDS_AFTER, find_problems
from .facts import Clock, read_facts

_log = logging.getLogger(__name__)
_TIMEOUT_S = 15.0
_SLOW_S = 5.0  # A place that takes longer is slow
_AT_ONCE = 20  # Most messages sent to a place at once
_WAITS = tuple(timedelta(minutes=n) for n in (1, 5, 30, 60, 240, 720))
"""How long a message waits after each attempt that failed; the last is repeated."""

Event = Literal["problem", "problem_again", "problem_ended", "released", "test"]


def places(section: NotifySection) -> list[str]:
    """The kinds of places that are configured."""
    named = [] if section.webhook is None else ["webhook"]
    return [*named, "email"] if section.email_to else named


async def write_message(
    session: Session,
    section: NotifySection,
    event: Event,
    week: str,
    text: str,
    **more: Any,
) -> int:
    """Write a message for every configured place in the session's transaction; how many places there are.

    The first line of `text` is the subject of the e-mail; `more` is added to what a webhook is sent.
    """
    named = places(section)
    await watch.post(
        session, named, {"event": event, "week": week, "text": text, **more}
    )
    return len(named)


async def deliver(database: Database, section: NotifySection) -> int:
    """Send what is due; how many messages were delivered. A place that cannot be reached is tried again later.

    A place that is slow is sent no more this time, since the caller has other things to do every minute.
    """
    delivered, slow = 0, set[str]()
    for message in await database.ask(watch.due_messages, _AT_ONCE):
        if message.place in slow:
            continue
        problem, began = None, time.monotonic()
        if message.place in places(section):
            try:
                await send(section, message.place, message.message)
                delivered += 1
            except ServiceUnavailable as error:
                _log.warning("%s", error.message)
                problem = error.message
        if time.monotonic() - began > _SLOW_S:
            slow.add(message.place)
        async with database.begin() as session:
            if problem is None:
                await watch.remove_message(session, message)
            else:
                wait = _WAITS[min(message.attempts, len(_WAITS) - 1)]
                await watch.note_failure(session, message, problem, wait)
    return delivered


async def send(
    section: NotifySection,
    place: str,
    message: dict[str, Any],
) -> None:
    """Send a message to one of `places`. The first line of its text is the subject of the e-mail.

    Raises:
        ServiceUnavailable: if the place cannot be reached or refuses.
    """
    with _delivery(place):
        if place == "webhook":
            assert section.webhook
            # As ASCII: a lone surrogate of a stranger's text has no other spelling.
            content = json.dumps(message).encode("ascii")
            await _post(section.webhook.get_secret_value(), content, "application/json")
        else:
            await asyncio.to_thread(_mail, section, message["text"])


async def beat(section: NotifySection) -> None:
    """Tell the dead man's switch that all is well.

    Raises:
        ServiceUnavailable: if it cannot be reached or refuses.
    """
    assert section.heartbeat_url
    with _delivery("heartbeat"):
        await _post(section.heartbeat_url.get_secret_value(), b"", "text/plain")


@contextmanager
def _delivery(what: str) -> Iterator[None]:
    """Raise ServiceUnavailable for any error of sending."""
    try:
        yield
    except (
        httpx2.HTTPError,
        httpx2.InvalidURL,
        OSError,
        smtplib.SMTPException,
    ) as error:
        # Neither the address nor what it answers is shown: both may hold a secret.
        raise ServiceUnavailable(
            f"the {what} was not delivered ({type(error).__name__})",
            hint="see [notify] in medlive.toml",
        ) from error


async def _post(url: str, content: bytes, kind: str) -> None:
    """Send content of a type by POST. Raises what httpx2 raises."""
    remember(url)  # httpx2 logs addresses
    headers = {"Content-Type": kind}
    async with httpx2.AsyncClient(timeout=_TIMEOUT_S, verify=tls_context()) as client:
        answer = await client.post(url, content=content, headers=headers)
        answer.raise_for_status()


def _mail(section: NotifySection, text: str) -> None:
    """Send a text to the configured addresses by SMTP; blocking."""
    text = printable_lines(text)
    subject, _, _ = text.partition("\n")
    mail = EmailMessage()
    mail["From"], mail["To"] = section.email_from, ", ".join(section.email_to)
    mail["Date"], mail["Message-ID"] = localtime(), make_msgid()
    mail["Subject"] = f"medlive: {subject[:150]}"
    mail.set_content(text)
    host, port = section.smtp_host, section.smtp_port
    with smtplib.SMTP(host, port, timeout=_TIMEOUT_S) as server:
        if section.smtp_starttls:
            # Raises where the server has no STARTTLS.
            server.starttls(context=tls_context())
        if section.smtp_user is not None:
            secret = section.smtp_password
            server.login(section.smtp_user, secret.get_secret_value() if secret else "")
        server.send_message(mail)


LOOK_S = 60.0
"""Seconds between looks; a problem is named within five minutes of its beginning."""
RESENT_AFTER = tuple(timedelta(hours=n) for n in (1, 4, 24))
"""How long after each message the next one is sent, until somebody acknowledges the problem; the last is repeated."""


async def look(
    database: Database,
    settings: Settings,
    *,
    heard: bool = False,
    clock: Clock = None,
) -> list[OpenProblemRow]:
    """Run every check, store what they find, and send messages about it; the problems.

    `heard`: a scheduler that goes on working is looking, which is stored and, if all is well, sent as a `beat`. Raises
    DatabaseUnavailable; other faults are logged, since they must stop no step, and the problems are those found until
    then.
    """
    problems: list[OpenProblemRow] = []
    try:
        if heard:
            await database.ask(watch.hear_scheduler)
        problems = find_problems(await read_facts(database, settings, clock))
        await database.ask(_store, settings, problems)
        await deliver(database, settings.notify)
        is_well = all(problem.severity is not Severity.PAGE for problem in problems)
        if heard and is_well and settings.notify.heartbeat_url is not None:
            try:
                await beat(settings.notify)
            except ServiceUnavailable as error:
                _log.warning("%s", error.message)  # whoever watches it misses the beat
    except DatabaseUnavailable:
        raise
    except Exception:
        _log.exception("the checks could not be run")
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
        await look(database, settings, heard=heard, clock=clock)
        await asyncio.sleep(LOOK_S)


async def _store(
    session: Session, settings: Settings, problems: Sequence[OpenProblemRow]
) -> None:
    """Bring the stored problems up to date, and write the messages that are due."""
    await watch.save_seen(session, problems)
    seen = {problem.key for problem in problems}
    ended = await watch.end_unseen(session, seen, ENDS_AFTER)
    moment = await read_clock(session)
    write = partial(write_message, session, settings.notify, week=iso_week(moment))
    for stored in await watch.list_open(session):
        if stored.send_at <= moment and not stored.is_acknowledged(moment):
            text = (
                f"{stored.text}\nWhat to do: {stored.next_step}\nSince {stored.began_at:%Y-%m-%d %H:%M} UTC."
                f" No more messages: medlive status ack {stored.code}"
            )
            event: Event = "problem_again" if stored.sent else "problem"
            await write(event, text=text, code=stored.code)
            wait = RESENT_AFTER[min(stored.sent, len(RESENT_AFTER) - 1)]
            await watch.note_sent(session, stored, wait)
            _log.warning("%s: %s", stored.code, stored.text)
    for gone in ended:
        if gone.sent:
            text = f"ended: {gone.text}\nIt began {gone.began_at:%Y-%m-%d %H:%M} UTC."
            await write("problem_ended", text=text, code=gone.code)
            _log.info("ended: %s: %s", gone.code, gone.text)
