"""Where the words stand that rules begin at: one pass over a text for all rules together."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

_BEFORE: Final = " \n\t.,:;!?()[]{}<>\"'/-_*~=+&|#@，。：；！？（）、…—～"
_SHORT: Final = 5
_RULES: Final[dict[str, dict[str, int]]] = {}
"""Rule → what is looked for → how many of its last characters are the word."""


def anchor(rule: str, words: Iterable[str], *, anywhere: bool = False) -> str:
    """Say which words, in small letters, a rule begins at; gives the rule's name back.

    A Latin word of fewer than five letters counts only behind a space or a mark, unless `anywhere`.
    """
    held = _RULES.setdefault(rule, {})
    for word in words:
        bare = anywhere or len(word) >= _SHORT or not (word.isascii() and word[0].isalnum())
        held.update({word: len(word)} if bare else {before + word: len(word) for before in _BEFORE})
    _automaton.cache_clear()
    return rule


@cache
def _automaton() -> Any:
    import ahocorasick

    sizes: dict[str, dict[int, list[str]]] = {}
    for rule, held in _RULES.items():
        for word, size in held.items():
            sizes.setdefault(word, {}).setdefault(size, []).append(rule)
    automaton = ahocorasick.Automaton()
    for word, rules in sizes.items():
        automaton.add_word(word, tuple((size, rule) for size, names in rules.items() for rule in names))
    automaton.make_automaton()
    return automaton


def anchors(lower: str) -> Mapping[str, list[int]]:
    """Where each rule's words begin in a text of small letters; rules without any are left out."""
    found: dict[str, list[int]] = {}
    # The line end in front gives a word at the very start something to stand behind.
    for end, hits in _automaton().iter("\n" + lower):
        for size, rule in hits:
            if rule in found:
                found[rule].append(end - size)
            else:
                found[rule] = [end - size]
    return found
