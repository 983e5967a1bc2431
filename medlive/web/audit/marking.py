"""Texts in parts: a thread's messages with the quotes that stand in them, and what a revision changed."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

_MOST_PAIRS: Final = 25_000_000
"""Pairs of words that are compared: two texts of 5,000 words."""
_TOKENS = re.compile(r"[\u3400-\u9fff]|\s+|[^\s\u3400-\u9fff]+")


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a text, the elements whose quotes hold it, and those whose quotes begin with it."""

    text: str
    elements: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Marked:
    """A message or the title, with its quotes."""

    id: str
    parts: tuple[Part, ...]
    about: Mapping[str, object]  # Role, verified, posted_at …; empty for the title
    # Elements that cite it with words that do not stand in it
    elsewhere: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A stretch of a text before and after a revision."""

    kind: Literal["same", "old", "new"]
    text: str


def mark_thread(
    thread: Mapping[str, Any], elements: Iterable[Mapping[str, Any]]
) -> tuple[Marked, tuple[Marked, ...]]:
    """The title and the messages of `inspect_thread`'s thread, with the quotes of its elements."""
    quotes: dict[str, list[tuple[str, str]]] = {}
    for element in elements:
        quotes.setdefault(element["message_id"], []).append(
            (element["id"], element["quote"])
        )
    title = _mark("title", thread["title"], {}, quotes.get("title", []))
    messages = []
    for n, message in enumerate(thread["messages"]):
        name = f"m{message.get('place', n)}"
        messages.append(_mark(name, message["text"], message, quotes.get(name, [])))
    return title, tuple(messages)


def _mark(
    id_: str, text: str, about: Mapping[str, object], quotes: list[tuple[str, str]]
) -> Marked:
    folded = _fold(text) if quotes else None
    places = {}
    for name, quote in quotes:
        if folded is not None and (place := _find(quote, folded)) is not None:
            places[name] = place
    edges = sorted(
        {0, len(text), *(edge for place in places.values() for edge in place)}
    )
    parts = []
    for start, end in pairwise(edges):
        inside = tuple(
            name for name, (a, b) in places.items() if a <= start and end <= b
        )
        begins = tuple(name for name in inside if places[name][0] == start)
        parts.append(Part(text[start:end], inside, begins))
    return Marked(
        id_,
        tuple(parts),
        about,
        tuple(name for name, _ in quotes if name not in places),
    )


class _Folded(NamedTuple):
    """A text in small letters with single spaces, and where each of its characters stands in the text."""

    text: str
    places: list[int]


def _fold(text: str) -> _Folded:
    letters: list[str] = []
    places: list[int] = []
    for place, letter in enumerate(text):
        if not letter.isspace():
            small = letter.lower()
            letters.append(small if len(small) == 1 else letter)
            places.append(place)
        elif letters and letters[-1] != " ":
            letters.append(" ")
            places.append(place)
    return _Folded("".join(letters), places)


def _find(quote: str, folded: _Folded) -> tuple[int, int] | None:
    """Where a quote stands, whatever the case of its letters and the width of its spaces."""
    wanted = _fold(quote).text.strip()
    start = folded.text.find(wanted) if wanted else -1
    return (
        (folded.places[start], folded.places[start + len(wanted) - 1] + 1)
        if start >= 0
        else None
    )


def compare(old: str, new: str) -> tuple[Change, ...]:
    """What a text lost and gained, word by word, of Chinese character by character; as a whole if it is long."""
    before, after = _TOKENS.findall(old), _TOKENS.findall(new)
    if len(before) * len(after) > _MOST_PAIRS:
        return (Change("old", old), Change("new", new))
    changes = []
    for kind, a, b, c, d in SequenceMatcher(
        None, before, after, autojunk=False
    ).get_opcodes():
        if kind == "equal":
            changes.append(Change("same", "".join(before[a:b])))
            continue
        if a < b:
            changes.append(Change("old", "".join(before[a:b])))
        if c < d:
            changes.append(Change("new", "".join(after[c:d])))
    return tuple(changes)
