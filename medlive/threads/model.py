"""The thread: one discussion as a community showed it, its authors already hashed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args
from urllib.parse import unquote

from medlive.guard.bounds import THREAD_ID_CHARS
from medlive.integrity.digest import digest_json

Role = Literal["patient", "physician", "other"]
"""Who wrote a message, as the community shows it."""
ROLES = get_args(Role)


@dataclass(frozen=True)
class Message:
    """One message. Its id is its place in the thread: `m0` is the opening."""

    id: str
    author: str  # A keyed hash of the handle, or a role word; never a name
    role: Role
    verified: bool  # True only where the community itself shows the author as a verified physician
    text: str
    posted_at: datetime | None = None
    media: tuple[str, ...] = ()
    """What the message shows besides text: "image", "video", "audio", "file"."""
    verified_by: str | None = None
    """The words by which the community shows a verified author, such as "Attending Physician"; never a name.

    None for an unverified author, and where the words were not kept (imports, threads stored before they were).
    """

    def __post_init__(self) -> None:
        """Refuse a role that is none: a plugin or a stored row may have any. Raises ValueError."""
        if self.role not in ROLES:
            raise ValueError(f"{self.role!r} is not a valid Role")

    @property
    def is_advice_source(self) -> bool:
        """Whether advice may be taken from this message (LiveMedBench §3.2.1: verified physicians only)."""
        return self.verified and self.role == "physician"

    def content(self) -> dict[str, Any]:
        """The fields of a message whose change makes a new revision of its thread."""
        values = {
            "author": self.author,
            "role": self.role,
            "verified": self.verified,
            "text": self.text,
            "posted_at": self.posted_at.isoformat() if self.posted_at else None,
            "media": list(self.media),
        }
        # Left out when absent, so that revisions from before it was kept have the digest they had.
        if self.verified_by is not None:
            values["verified_by"] = self.verified_by
        return values


def is_thread_id(text: str) -> bool:
    """Whether a text can be a thread's id: short, printable, and in an address no way to another page."""
    if len(text) > THREAD_ID_CHARS or not text.isprintable():
        return False
    parts = map(str.strip, re.split(r"[/\\]", unquote(text)))
    return {"", ".", ".."}.isdisjoint(parts)


@dataclass(frozen=True)
class Thread:
    """A discussion thread T = (m_1, …, m_k) of a source (LiveMedBench §3.2)."""

    source: str
    thread_id: str  # The source's own id, unique within it
    url: str
    title: str
    # "en", "zh", or None where the source does not say; filters decide for themselves
    language: str | None
    tags: tuple[str, ...]
    # None when unknown, which is a state of its own and no date
    posted_at: datetime | None
    messages: tuple[Message, ...] = ()

    def message(self, message_id: str) -> Message | None:
        """The message of that id, or None."""
        for message in self.messages:
            if message.id == message_id:
                return message
        return None

    def advice_messages(self) -> Iterator[Message]:
        """The messages that advice may be taken from."""
        return (m for m in self.messages if m.is_advice_source)

    def content(self) -> dict[str, Any]:
        """What makes a revision: a thread whose content is equal has not changed."""
        return {
            "title": self.title,
            "tags": list(self.tags),
            "posted_at": self.posted_at.isoformat() if self.posted_at else None,
            "messages": [message.content() for message in self.messages],
        }

    @property
    def digest(self) -> str:
        """The revision's identity."""
        return digest_json(self.content())
