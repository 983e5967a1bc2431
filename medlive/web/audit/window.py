"""Which part of a thread a page shows, and the addresses of the others."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import HTTPException, Query, Request

from medlive.db.threads.threads import Window
from medlive.guard.bounds import MESSAGE_CHARS_SHOWN, MESSAGES_SHOWN

_MOST = 10_000_000
_NAMES = ("page", "message", "part")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some of a number of things that are shown, and where the others are."""

    first: int  # From 1
    last: int
    total: int
    before: str | None  # Addresses; None: there are none
    after: str | None
    around: str | None = None  # Of the page that shows this with its neighbours


@dataclass(frozen=True, slots=True)
class Place:
    """Which part of a thread is asked for; a dependency of routes."""

    page: Annotated[int, Query(ge=1, le=_MOST)] = 1
    message: Annotated[int | None, Query(ge=0, le=_MOST)] = None  # One message alone
    part: Annotated[int, Query(ge=1, le=_MOST)] = 1  # Of that message

    @property
    def window(self) -> Window:
        """What to read of the thread."""
        chars = MESSAGE_CHARS_SHOWN
        if self.message is not None:
            start = (self.part - 1) * chars
            return Window(first=self.message, start=start, chars=chars)
        first = (self.page - 1) * MESSAGES_SHOWN
        return Window(first=first, count=MESSAGES_SHOWN, chars=chars)


def messages_shown(
    request: Request, place: Place, thread: Mapping[str, Any]
) -> Stretch:
    """Which of a thread's messages are shown. Raises HTTPException (404) where there are none such."""
    shown, first = thread["messages"], place.window.first
    if not shown and (place.page > 1 or place.message is not None):
        raise HTTPException(404, "The thread has no such message.")
    last, total = first + len(shown), thread["total"]
    page = first // MESSAGES_SHOWN + 1
    before = after = around = None
    if place.message is not None:  # Back to the page that holds it
        around = _address(request, page=page)
    else:
        before = _address(request, page=page - 1) if page > 1 else None
        after = _address(request, page=page + 1) if last < total else None
    return Stretch(first + 1 if shown else 0, last, total, before, after, around)


def parts_shown(
    request: Request, messages: Iterable[Mapping[str, Any]]
) -> dict[str, Stretch]:
    """Which characters are shown of each message that is not shown whole, by the message's id."""
    parts = {}
    for message in messages:
        start, length, number = message["start"], message["length"], message["place"]
        part = start // MESSAGE_CHARS_SHOWN + 1
        end = min(start + MESSAGE_CHARS_SHOWN, length)
        if start and start >= length:
            raise HTTPException(404, "The message has no such part.")
        before = after = None
        if part > 1:
            before = _address(request, message=number, part=part - 1)
        if end < length:
            after = _address(request, message=number, part=part + 1)
        if before or after:
            parts[f"m{number}"] = Stretch(start + 1, end, length, before, after)
    return parts


def pages_of(
    request: Request, place: Place, message_ids: Iterable[str]
) -> dict[str, str]:
    """The address of the page that shows a message, for each of these that this page does not show."""
    first, pages = place.window.first, {}
    here = range(first, first + place.window.count)
    for name in message_ids:
        number = int(name[1:]) if name[1:].isdecimal() else first
        if number not in here:
            pages[name] = _address(request, page=number // MESSAGES_SHOWN + 1)
    return pages


def _address(request: Request, **place: int) -> str:
    """The address of another part of the thread, reached from the same list."""
    url = request.url.remove_query_params(list(_NAMES)).include_query_params(**place)
    return "?" + url.query
