"""A part of a thread: some of its messages, and of each some characters, however long the thread is."""

from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from sqlalchemy import Integer, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.mapping import read
from medlive.db.tables.base import AnyText
from medlive.db.threads.threads import message_of
from medlive.errors import MedliveError
from medlive.guard.bounds import TITLE_CHARS_SHOWN
from medlive.threads.model import Message, Thread

AROUND: Final = 1_000
"""Characters before and after a part of a message that are read with it, so that no identifier is cut in two."""
_OPENING: Final = {"messages": 200, "chars": 40_000}
"""Characters of a thread that decide its language: twice what `dominant_language` reads."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of a thread is wanted."""

    first: int = 0  # Number of the first message, from 0
    count: int = 1  # Messages, at most
    start: int = 0  # Of each message the first character
    chars: int = 0  # Characters of each message, at most


class ExcerptMessage(NamedTuple):
    """A part of a message."""

    place: int  # Its number in the thread, from 0
    message: Message  # With the part's text
    before: str  # The characters before it, at most `AROUND`
    after: str
    start: int  # The part's place in the whole text
    length: int  # Characters of the whole text


class Excerpt(NamedTuple):
    """A part of a thread as it is stored."""

    thread_pk: int
    thread: Thread  # Without messages
    messages: tuple[ExcerptMessage, ...]
    total: int  # Messages of the thread
    opening: str  # The beginning of the whole thread's text


_THREAD: Final = text(
    "SELECT r.thread_id AS thread_pk, t.source, t.thread_id, t.url, left(r.title, :title) AS title, r.language,"
    " r.tags, r.posted_at, jsonb_array_length(r.messages) AS total,"
    " (SELECT left(string_agg(left(m ->> 'text', :chars), E'\\n' ORDER BY place), :chars)"
    "  FROM jsonb_array_elements(r.messages) WITH ORDINALITY AS said(m, place)"
    "  WHERE place <= :messages) AS opening"
    " FROM thread_revisions AS r JOIN threads AS t ON t.id = r.thread_id WHERE r.id = :pk"
).columns(
    thread_pk=Integer,
    source=AnyText,
    thread_id=AnyText,
    url=AnyText,
    title=AnyText,
    opening=AnyText,
)
_MESSAGES: Final = text(
    "SELECT place - 1 AS place, m - 'text' AS about, char_length(m ->> 'text') AS length,"
    " substr(m ->> 'text', :start + 1, :chars) AS text"
    " FROM thread_revisions, jsonb_array_elements(messages) WITH ORDINALITY AS said(m, place)"
    " WHERE id = :pk AND place > :first AND place <= :first + :count ORDER BY place"
).columns(place=Integer, about=JSONB, length=Integer, text=AnyText)


async def load_excerpt(
    session: AsyncSession, revision_pk: int, window: Window
) -> Excerpt:
    """Load a part of a revision; the database cuts it. Raises MedliveError when there is no such revision."""
    row = (
        await session.execute(
            _THREAD, {"pk": revision_pk, "title": TITLE_CHARS_SHOWN, **_OPENING}
        )
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
    rows = await session.execute(_MESSAGES, part)
    return Excerpt(
        thread_pk=row.thread_pk,
        thread=read(Thread, row, messages=()),
        messages=tuple(_part(message, window, before) for message in rows),
        total=row.total,
        opening=f"{row.title}\n{row.opening or ''}",
    )


def _part(row: Any, window: Window, before: int) -> ExcerptMessage:
    end = before + window.chars
    return ExcerptMessage(
        place=row.place,
        message=replace(
            message_of(row.about | {"text": ""}), text=row.text[before:end]
        ),
        before=row.text[:before],
        after=row.text[end:],
        start=window.start,
        length=row.length,
    )
