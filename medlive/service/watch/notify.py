"""How operators are reached: by webhook (JSON, POST), by e-mail, by a dead man's switch that misses its beat."""

import asyncio
import json
import smtplib
from collections.abc import Awaitable, Mapping, Sequence
from email.message import EmailMessage
from email.utils import localtime, make_msgid
from types import MappingProxyType
from typing import Any, Literal

import httpx2

from medlive.config import NotifySection
from medlive.errors import ServiceUnavailable
from medlive.guard.printable import printable_lines
from medlive.guard.redaction import remember
from medlive.guard.trust import tls_context

_TIMEOUT_S = 15.0

Event = Literal["problem", "problem_again", "problem_ended", "released", "test"]


def places(section: NotifySection) -> list[str]:
    """The kinds of places that are configured."""
    named = [] if section.webhook is None else ["webhook"]
    return [*named, "email"] if section.email_to else named


async def send(section: NotifySection, place: str, message: dict[str, Any]) -> None:
    """Send a message to one of `places`. The first line of its text is the subject of the e-mail.

    Raises:
        ServiceUnavailable: if the place cannot be reached or refuses.
    """
    if place == "webhook":
        assert section.webhook is not None
        url = section.webhook.get_secret_value()
        remember(url)  # httpx2 logs addresses
        # As ASCII: a lone surrogate of a stranger's text has no other spelling.
        content = json.dumps(message).encode("ascii")
        kind = {"Content-Type": "application/json"}
        await _delivered(place, _post(url, content, kind))
    else:
        await _delivered(place, asyncio.to_thread(_mail, section, message["text"]))


async def beat(section: NotifySection, failing: Sequence[str]) -> None:
    """Tell the dead man's switch that all is well, or by its address with `/fail` which checks are failing.

    Raises:
        ServiceUnavailable: if it cannot be reached or refuses.
    """
    assert section.heartbeat_url is not None
    url = section.heartbeat_url.get_secret_value()
    remember(url)
    address = f"{url.rstrip('/')}/fail" if failing else url
    text = "\n".join(failing)
    await _delivered("heartbeat", _post(address, text.encode("utf-8", "replace")))


async def _delivered(what: str, sending: Awaitable[None]) -> None:
    try:
        await sending
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


async def _post(
    url: str, content: bytes, headers: Mapping[str, str] = MappingProxyType({})
) -> None:
    async with httpx2.AsyncClient(timeout=_TIMEOUT_S, verify=tls_context()) as client:
        answer = await client.post(url, content=content, headers=dict(headers))
        answer.raise_for_status()


def _mail(section: NotifySection, text: str) -> None:
    text = printable_lines(text)
    subject, _, _ = text.partition("\n")
    mail = EmailMessage()
    mail["From"], mail["To"] = section.email_from, ", ".join(section.email_to)
    mail["Date"], mail["Message-ID"] = localtime(), make_msgid()
    mail["Subject"] = f"medlive: {subject[:150]}"
    mail.set_content(text)
    with smtplib.SMTP(
        section.smtp_host, section.smtp_port, timeout=_TIMEOUT_S
    ) as server:
        if section.smtp_starttls:
            server.starttls(
                context=tls_context()
            )  # raises where the server has no STARTTLS
        if section.smtp_user is not None:
            password = (
                section.smtp_password.get_secret_value()
                if section.smtp_password
                else ""
            )
            server.login(section.smtp_user, password)
        server.send_message(mail)
