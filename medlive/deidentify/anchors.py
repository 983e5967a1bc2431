"""Where the words stand that rules begin at: one pass over a text for all rules together.

Latin words are looked for by one automaton, Chinese ones by their first two characters.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

_MARKS: Final = ".'/-@#:+~"
"""Marks that stand inside words that are looked for; every other mark counts as a space."""
_SPACED: Final = str.maketrans(dict.fromkeys('\n\t\r,;!?()[]{}<>"_*=&|`^$%\\', " "))
_SPACED_AMONG_OTHERS: Final = _SPACED | str.maketrans("\v\f", "  ")
_SHORT: Final = 5
_RULES: Final[dict[str, dict[str, int]]] = {}
"""Rule → what is looked for → how many of its last characters are the word."""


def anchor(rule: str, words: Iterable[str], *, anywhere: bool = False) -> str:
    """Say which words, in small letters, a rule begins at; gives the rule's name back.

    A Latin word of fewer than five letters counts only behind a space, a mark or a Chinese character, unless
    `anywhere`.
    """
    held = _RULES.setdefault(rule, {})
    for word in words:
        bare = anywhere or len(word) >= _SHORT or not (word.isascii() and word[0].isalnum())
        held.update({word: len(word)} if bare else {before + word: len(word) for before in " " + _MARKS})
    _automaton.cache_clear()
    _pairs.cache_clear()
    return rule


@cache
def _automaton() -> Any:
    """Word → (size, rule) pairs, for the words of ASCII characters."""
    import ahocorasick

    held: dict[str, list[tuple[int, str]]] = {}
    for rule, words in _RULES.items():
        for word, size in words.items():
            if word.isascii():
                held.setdefault(word, []).append((size, rule))
    automaton = ahocorasick.Automaton()
    for word, rules in held.items():
        automaton.add_word(word, rules)
    automaton.make_automaton()
    return automaton


@cache
def _pairs() -> tuple[re.Pattern[str], dict[str, list[tuple[str, str]]]]:
    """A pattern for where other words may begin, and first two characters → (word, rule) pairs."""
    held: dict[str, list[tuple[str, str]]] = {}
    for rule, words in _RULES.items():
        for word in words:
            if not word.isascii():
                held.setdefault(word[:2], []).append((word, rule))
    single = "".join(re.escape(k) for k in held if len(k) == 1)
    firsts = "".join(re.escape(c) for c in sorted({k[0] for k in held if len(k) == 2}))
    seconds = "".join(re.escape(c) for c in sorted({k[1] for k in held if len(k) == 2}))
    return re.compile(f"[{single}{firsts}](?:(?<=[{single}])|(?=[{seconds}]))"), held


def anchors(lower: str, ascii_only: bool) -> Mapping[str, list[int]]:
    """Where each rule's words begin in a text of small letters; rules without any are left out."""
    found: dict[str, list[int]] = {}
    if ascii_only:
        _latin(lower.translate(_SPACED), found)
        return found
    # Every other character becomes a question mark, and that a space.
    _latin(lower.encode("ascii", "replace").decode("ascii").translate(_SPACED_AMONG_OTHERS), found)
    pattern, held = _pairs()
    for match in pattern.finditer(lower):
        at = match.start()
        for key in (lower[at], lower[at : at + 2]):
            for word, rule in held.get(key, ()):
                if lower.startswith(word, at):
                    found.setdefault(rule, []).append(at)
    return found


def _latin(spaced: str, found: dict[str, list[int]]) -> None:
    # The space in front gives a word at the very start something to stand behind.
    for end, rules in _automaton().iter(" " + spaced):
        for size, rule in rules:
            if rule in found:
                found[rule].append(end - size)
            else:
                found[rule] = [end - size]
