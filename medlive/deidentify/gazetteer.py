"""The word lists of redaction, read from `data/english.txt` and `data/chinese.txt`.

A list is a line `[name]` and its words, `_` standing for the space inside one. Written for this project from
general knowledge.
"""

import re
from functools import cache
from importlib import resources
from typing import Literal


def word_list(language: Literal["english", "chinese"], name: str) -> frozenset[str]:
    """The words of one list. Raises KeyError for a list that does not exist."""
    return _lists(language)[name]


def characters(name: str) -> frozenset[str]:
    """The single characters of a Chinese list."""
    return frozenset("".join(word_list("chinese", name)))


def alternatives(listed: frozenset[str]) -> str:
    """A regular expression for any of the words, the longest first.

    It looks at the first character before it tries the words one by one, which is ten times as fast.
    """
    ordered = sorted(listed, key=lambda word: (-len(word), word))
    first = "".join(sorted({word[0] for word in listed}))
    return f"(?:(?=[{first}])(?:{'|'.join(map(re.escape, ordered))}))"


def one_of(language: Literal["english", "chinese"], name: str) -> str:
    """A regular expression for any word of a list."""
    return alternatives(word_list(language, name))


@cache
def _lists(language: str) -> dict[str, frozenset[str]]:
    text = (resources.files("medlive.deidentify") / "data" / f"{language}.txt").read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    found = {}
    for section in lines.split("[")[1:]:
        name, _, listed = section.partition("]")
        found[name] = frozenset(word.replace("_", " ") for word in listed.split())
    return found
