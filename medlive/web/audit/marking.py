"""Texts in parts: a thread's messages with the quotes that stand in them, and what a revision changed."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any, Literal

_MOST_PAIRS = 25_000_000
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


Change = tuple[Literal["same", "old", "new"], str]
"""What became of a stretch of a text in a revision, and the stretch."""


def mark_thread(
    thread: Mapping[str, Any], elements: Iterable[Mapping[str, Any]]
) -> tuple[Marked, tuple[Marked, ...]]:
    """The title and the messages of `inspect_thread`'s thread, with the quotes of its elements."""
    quotes: dict[str, dict[str, str]] = {}
    for element in elements:
        own = quotes.setdefault(element["message_id"], {})
        own[element["id"]] = element["quote"]
    title = _mark("title", thread["title"], {}, quotes.get("title", {}))
    messages = []
    for n, message in enumerate(thread["messages"]):
        name = f"m{message.get('place', n)}"
        messages.append(_mark(name, message["text"], message, quotes.get(name, {})))
    return title, tuple(messages)


def _mark(
    id_: str, text: str, about: Mapping[str, object], quotes: Mapping[str, str]
) -> Marked:
    """A text with its quotes, by element."""
    folded, places = _fold(text if quotes else "")
    spans = {}
    edges = {0, len(text)}
    for name, quote in quotes.items():
        wanted = _fold(quote)[0].strip()
        start = folded.find(wanted) if wanted else -1
        if start >= 0:
            last = start + len(wanted) - 1
            spans[name] = places[start], places[last] + 1
            edges.update(spans[name])
    parts = []
    for start, end in pairwise(sorted(edges)):
        inside = []
        begins = []
        for name, (first, last) in spans.items():
            if first <= start and end <= last:
                inside.append(name)
                if first == start:
                    begins.append(name)
        parts.append(Part(text[start:end], tuple(inside), tuple(begins)))
    elsewhere = tuple(name for name in quotes if name not in spans)
    return Marked(id_, tuple(parts), about, elsewhere)


def _fold(text: str) -> tuple[str, list[int]]:
    """A text in small letters with single spaces, and where each of its characters stands in the text."""
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
    return "".join(letters), places


def compare(old: str, new: str) -> list[Change]:
    """What a text lost and gained, word by word, of Chinese character by character; as a whole if it is long."""
    before, after = _TOKENS.findall(old), _TOKENS.findall(new)
    if len(before) * len(after) > _MOST_PAIRS:
        return [("old", old), ("new", new)]
    changes: list[Change] = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            changes.append(("same", "".join(before[a:b])))
            continue
        if a < b:
            changes.append(("old", "".join(before[a:b])))
        if c < d:
            changes.append(("new", "".join(after[c:d])))
    return changes
