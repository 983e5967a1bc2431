"""How operators are reached: by webhook (JSON, POST), by e-mail, by a dead man's switch that misses its beat.

Messages are written to the database first, and sent until a place has taken them.
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
from typing import Any, Literal

import httpx2

from medlive.config import NotifySection
from medlive.db import watch
from medlive.db.session import Database, Session
from medlive.errors import ServiceUnavailable
from medlive.guard.printable import printable_lines
from medlive.guard.redaction import remember
from medlive.guard.trust import tls_context

_log = logging.getLogger(__name__)
_TIMEOUT_S = 15.0
_SLOW_S = 5.0
_AT_ONCE = 20  # Messages for each place
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
    message = {"event": event, "week": week, "text": text, **more}
    await watch.post(session, named, message)
    return len(named)


async def deliver(database: Database, section: NotifySection) -> int:
    """Send what is due; how many messages were delivered. A place that cannot be reached is tried again later.

    One that is slow is sent no more this time: whoever sends has other things to do every minute.
    """
    messages = await database.ask(watch.due_messages, _AT_ONCE)
    delivered, slow = 0, set[str]()
    for message in messages:
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


async def send(section: NotifySection, place: str, message: dict[str, Any]) -> None:
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


async def beat(section: NotifySection, failing: Sequence[str]) -> None:
    """Tell the dead man's switch that all is well, or by its address with `/fail` which checks are failing.

    Raises:
        ServiceUnavailable: if it cannot be reached or refuses.
    """
    assert section.heartbeat_url
    url = section.heartbeat_url.get_secret_value()
    address = f"{url.rstrip('/')}/fail" if failing else url
    with _delivery("heartbeat"):
        content = "\n".join(failing).encode("utf-8", "replace")
        await _post(address, content, "text/plain")


@contextmanager
def _delivery(what: str) -> Iterator[None]:
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
    remember(url)  # httpx2 logs addresses
    headers = {"Content-Type": kind}
    async with httpx2.AsyncClient(timeout=_TIMEOUT_S, verify=tls_context()) as client:
        answer = await client.post(url, content=content, headers=headers)
        answer.raise_for_status()


def _mail(section: NotifySection, text: str) -> None:
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
