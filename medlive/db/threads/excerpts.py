"""A part of a thread: some of its messages, and of each some characters, however long the thread is."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

from medlive.db.mapping import Record, read
from medlive.db.session import Session
from medlive.db.threads.threads import message_of
from medlive.errors import MedliveError
from medlive.guard.bounds import TITLE_CHARS_SHOWN
from medlive.threads.model import Thread

AROUND = 1_000
"""Characters before and after a part of a message that are read with it, so that no identifier is cut in two."""
_OPENING = {"messages": 200, "chars": 40_000}
"""Characters of a thread that decide its language: twice what `dominant_language` reads."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of a thread is wanted."""

    first: int = 0  # Number of the first message, from 0
    count: int = 1  # Messages, at most
    start: int = 0  # Of each message the first character
    chars: int = 0  # Characters of each message, at most


class Excerpt(NamedTuple):
    """A part of a thread as it is stored."""

    thread_pk: int
    thread: Thread  # Without messages
    messages: list[Record]
    """Parts of messages: place (the message's number in the thread, from 0), message (with the part's text), before and
    after (the characters beside it, at most `AROUND`), start (the part's place in the whole text), length (of that)."""
    total: int  # Messages of the thread
    opening: str  # The beginning of the whole thread's text


_THREAD = """
    SELECT r.thread_id AS thread_pk, t.source, t.thread_id, t.url, left(r.title, :title) AS title, r.language, r.tags,
        r.posted_at, jsonb_array_length(r.messages) AS total, (
            SELECT left(string_agg(left(m ->> 'text', :chars), E'\\n' ORDER BY place), :chars)
            FROM jsonb_array_elements(r.messages) WITH ORDINALITY AS said(m, place) WHERE place <= :messages
        ) AS opening
    FROM thread_revisions AS r JOIN threads AS t ON t.id = r.thread_id WHERE r.id = :pk
"""
_MESSAGES = """
    SELECT place - 1 AS place, m - 'text' AS about, char_length(m ->> 'text') AS length,
    substr(m ->> 'text', :start + 1, :chars) AS text
    FROM thread_revisions, jsonb_array_elements(messages) WITH ORDINALITY AS said(m, place)
    WHERE id = :pk AND place > :first AND place <= :first + :count ORDER BY place
"""


async def load_excerpt(session: Session, revision_pk: int, window: Window) -> Excerpt:
    """Load a part of a revision; the database cuts it. Raises MedliveError when there is no such revision."""
    row = (
        await session.run(_THREAD, pk=revision_pk, title=TITLE_CHARS_SHOWN, **_OPENING)
    ).first()
    if row is None:
        raise MedliveError(f"there is no thread revision {revision_pk}")
    before = min(window.start, AROUND)
    part = {
        "pk": revision_pk,
        "first": window.first,
        "count": window.count,
        "start": window.start - before,
        "chars": before + window.chars + AROUND,
    }
    end = before + window.chars
    messages: list[Record] = []
    for stored in await session.run(_MESSAGES, **part):
        message = SimpleNamespace(
            place=stored.place,
            message=message_of(stored.about | {"text": stored.text[before:end]}),
            before=stored.text[:before],
            after=stored.text[end:],
            start=window.start,
            length=stored.length,
        )
        messages.append(message)
    return Excerpt(
        thread_pk=row.thread_pk,
        thread=read(Thread, row, messages=()),
        messages=messages,
        total=row.total,
        opening=f"{row.title}\n{row.opening or ''}",
    )
