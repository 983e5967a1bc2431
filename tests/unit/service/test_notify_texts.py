"""What is sent to operators may quote strangers: it is one message with one subject, whatever it holds."""

from pydantic import SecretStr

from medlive.config import NotifySection
from medlive.service.watch import notify
from tests.support.receivers import serve_mail, serve_webhook

TEXTS = [
    "",
    "\n",
    "a\r\nBcc: b@c\r\n\r\nd",
    "\x00\x1b[2J",
    "\ud800",
    "x\u2028y\x85z",
    ".\r\nRSET\r\n",
    "é" * 5_000,
]


async def test_a_strangers_text_adds_no_header_and_stops_no_message() -> None:
    with serve_mail() as (port, mails), serve_webhook() as (url, posts):
        section = NotifySection(
            email_to=("a@b",), smtp_port=port, webhook=SecretStr(url)
        )
        for text in TEXTS:
            await notify.send(section, "email", {"text": text})
            await notify.send(section, "webhook", {"text": text})
    assert [post["text"] for post in posts] == TEXTS
    assert len(mails) == len(TEXTS)
    for mail in mails:
        assert len(mail.keys()) == len(set(mail.keys()))
        assert mail["Bcc"] is None
        assert mail["Subject"].isprintable()
        assert mail.get_content().replace("\n", "").replace("\r", "").isprintable()
