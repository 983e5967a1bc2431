"""What operators are sent unasked, by webhook (JSON, POST) and e-mail: failed steps, open circuits, releases."""

import asyncio
import json
import smtplib
from email.message import EmailMessage
from email.utils import localtime, make_msgid
from typing import Literal

import httpx2

from medlive.config import NotifySection
from medlive.errors import ServiceUnavailable
from medlive.printable import printable_lines
from medlive.redaction import remember
from medlive.trust import tls_context

_TIMEOUT_S = 15.0

Event = Literal["step_failed", "circuit_open", "released", "clock", "test"]


async def notify(section: NotifySection, event: Event, week: str, text: str) -> list[str]:
    """Send a message to every place that is configured; the kinds of those places.

    The first line of `text` is the subject of the e-mail.

    Raises:
        ServiceUnavailable: if a place cannot be reached or refuses; the others were still tried.
    """
    sends = {}
    if section.webhook is not None:
        sends["webhook"] = _post(section, {"event": event, "week": week, "text": text})
    if section.email_to:
        sends["email"] = asyncio.to_thread(_mail, section, text)
    results = await asyncio.gather(*sends.values(), return_exceptions=True)
    for kind, result in zip(sends, results, strict=True):
        if isinstance(result, httpx2.HTTPError | httpx2.InvalidURL | OSError | smtplib.SMTPException):
            # Neither the address nor what it answers is shown: both may hold a secret.
            raise ServiceUnavailable(
                f"the {kind} was not delivered ({type(result).__name__})", hint="see [notify] in medlive.toml"
            ) from result
        if isinstance(result, BaseException):
            raise result
    return list(sends)


async def _post(section: NotifySection, message: dict[str, str]) -> None:
    assert section.webhook is not None
    url = section.webhook.get_secret_value()
    remember(url)  # httpx2 logs addresses
    async with httpx2.AsyncClient(timeout=_TIMEOUT_S, verify=tls_context()) as client:
        # As ASCII: a lone surrogate of a stranger's text has no other spelling.
        content = json.dumps(message).encode("ascii")
        answer = await client.post(url, content=content, headers={"Content-Type": "application/json"})
        answer.raise_for_status()


def _mail(section: NotifySection, text: str) -> None:
    text = printable_lines(text)
    subject, _, _ = text.partition("\n")
    mail = EmailMessage()
    mail["From"], mail["To"] = section.email_from, ", ".join(section.email_to)
    mail["Date"], mail["Message-ID"] = localtime(), make_msgid()
    mail["Subject"] = f"medlive: {subject[:150]}"
    mail.set_content(text)
    with smtplib.SMTP(section.smtp_host, section.smtp_port, timeout=_TIMEOUT_S) as server:
        if section.smtp_starttls:
            server.starttls(context=tls_context())  # raises where the server has no STARTTLS
        if section.smtp_user is not None:
            password = section.smtp_password.get_secret_value() if section.smtp_password else ""
            server.login(section.smtp_user, password)
        server.send_message(mail)
