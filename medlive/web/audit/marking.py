"""Texts in parts: a thread's messages with the quotes that stand in them, and what a revision changed."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any, Literal

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
    about: Mapping[str, Any]  # Role, verified, posted_at …; empty for the title
    elsewhere: tuple[str, ...]  # Elements that cite it with words that do not stand in it


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
        quotes.setdefault(element["message_id"], []).append((element["id"], element["quote"]))
    title = _mark("title", thread["title"], {}, quotes.get("title", []))
    messages = enumerate(thread["messages"])
    return title, tuple(_mark(f"m{n}", m["text"], m, quotes.get(f"m{n}", [])) for n, m in messages)


def _mark(id_: str, text: str, about: Mapping[str, Any], quotes: list[tuple[str, str]]) -> Marked:
    found = {name: place for name, quote in quotes if (place := _find(quote, text)) is not None}
    edges = sorted({0, len(text), *(edge for place in found.values() for edge in place)})
    parts = []
    for start, end in pairwise(edges):
        inside = tuple(name for name, (a, b) in found.items() if a <= start and end <= b)
        begins = tuple(name for name in inside if found[name][0] == start)
        parts.append(Part(text[start:end], inside, begins))
    return Marked(id_, tuple(parts), about, tuple(name for name, _ in quotes if name not in found))


def _find(quote: str, text: str) -> tuple[int, int] | None:
    """Where a quote stands, whatever the case of its letters and the width of its spaces."""
    words = quote.split()
    match = re.search(r"\s+".join(map(re.escape, words)), text, re.IGNORECASE) if words else None
    return match.span() if match else None


def compare(old: str, new: str) -> tuple[Change, ...]:
    """What a text lost and gained, word by word, of Chinese character by character."""
    before, after = _TOKENS.findall(old), _TOKENS.findall(new)
    changes = []
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            changes.append(Change("same", "".join(before[a:b])))
            continue
        if a < b:
            changes.append(Change("old", "".join(before[a:b])))
        if c < d:
            changes.append(Change("new", "".join(after[c:d])))
    return tuple(changes)
