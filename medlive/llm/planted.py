"""`is_planted` finds replies that were planted: JSON objects in a request's texts that a model copied, not judged.

The texts are read as a reply is (the same JSON, repaired nowhere), from every brace on and without a limit of length;
and also as a model sees them (neutralised), folded, and with the escapes of a quoted text undone. A reply is planted
where such an object is equal to it, or has its reasoning and another of its fields: reasoning is a judge's own words.
Each bracket is read once, the last one first, so that an answer made to cost time costs none.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from html import unescape
from typing import Any

from medlive.text.neutral import neutralise
from medlive.text.normalise import fold

REASONING = ("reasoning", "explanation", "rationale", "reason", "justification")
"""What models call the words that lead to their verdict."""
_LEVELS = 3
"""How often a text may be quoted within a text, with one more layer of escapes each time."""
_BRACKET = re.compile(r"[{\[]")
_BLANK = re.compile(r"[ \t\r\n]*+")
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_KEY = re.compile(rf"({_STRING})[ \t\r\n]*+:[ \t\r\n]*+", re.DOTALL)
_SCALAR = re.compile(
    rf"{_STRING}|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?"
    r"|true|false|null|NaN|-?Infinity",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_PLAIN = json.JSONDecoder(strict=False)


def is_planted(reply: Any, inputs: Any) -> bool:
    """Whether a reply, or a part of it that has a reasoning, was copied from the texts of a request.

    Args:
        reply: The JSON value that was read.
        inputs: What the model was shown: a text, or a mapping or list that holds texts.
    """
    planted = [shown for text in texts_in(inputs) for shown in planted_objects(text)]
    if any(_same(reply, shown) for shown in planted):
        return True
    by_words: dict[str, list[dict[str, Any]]] = {}
    for shown in planted:
        for words in _reasoning_of(shown):
            by_words.setdefault(words, []).append(shown)
    for part in _objects_of(reply) if by_words else ():
        for words in _reasoning_of(part):
            for shown in by_words.get(words, ()):
                # A field besides their reasoning that is equal in both
                names = part.keys() & shown.keys() - set(REASONING)
                if any(_same(part[name], shown[name]) for name in names):
                    return True
    return False


def texts_in(value: Any) -> Iterator[str]:
    """Every text of a value, keys apart."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts_in(item)


@lru_cache(maxsize=64)
def planted_objects(text: str) -> tuple[dict[str, Any], ...]:
    """Every JSON object that a text holds, also those within others and within quoted texts."""
    # As it is, as a model sees it, folded, and each of these with escapes (JSON's and HTML's) undone
    spellings: dict[str, None] = {}
    for _ in range(1 + _LEVELS):
        shown = neutralise(text)
        spellings |= dict.fromkeys((text, shown, fold(shown)))
        undone = unescape(_ESCAPE.sub(_unescape, text))
        if undone == text:
            break
        text = undone
    objects: list[dict[str, Any]] = []
    for spelling in spellings:
        values: dict[int, tuple[Any, int]] = {}
        places = [match.start() for match in _BRACKET.finditer(spelling)]
        for place in reversed(places):
            try:
                values[place] = value, _ = _container(spelling, place, values)
            except ValueError:
                continue
            if value and isinstance(value, dict):
                objects.append(value)
    return tuple(objects)


def _unescape(match: re.Match[str]) -> str:
    code, char = match.groups()
    return chr(int(code, 16)) if code else _ESCAPED.get(char, char)


def _container(
    text: str, start: int, values: Mapping[int, tuple[Any, int]]
) -> tuple[Any, int]:
    """The object or list that begins at a bracket, and its end; `values` has, by their start, those that begin later.

    Raises:
        ValueError: If there is none.
    """
    pairs: list[tuple[str, Any]] = []
    is_object = text[start] == "{"
    close = "}" if is_object else "]"
    at = _after_blanks(text, start + 1)
    while text[at : at + 1] != close or pairs:
        key = ""
        if is_object:
            name = _KEY.match(text, at)
            if name is None:
                raise ValueError
            key, at = neutralise(_PLAIN.decode(name[1])), name.end()
        scalar = _SCALAR.match(text, at)
        if at in values:
            value, at = values[at]
        elif scalar is None:
            raise ValueError
        else:
            value, at = _PLAIN.decode(scalar.group()), scalar.end()
            value = neutralise(value) if isinstance(value, str) else value
        pairs.append((key, value))
        at = _after_blanks(text, at)
        if text[at : at + 1] == close:
            break
        if text[at : at + 1] != ",":
            raise ValueError
        at = _after_blanks(text, at + 1)
    return dict(pairs) if is_object else [value for _, value in pairs], at + 1


def _after_blanks(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _objects_of(value: Any) -> Iterator[Mapping[str, Any]]:
    """The objects of a reply, also those within others."""
    if isinstance(value, Mapping):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _objects_of(item)


def _reasoning_of(shown: Mapping[str, Any]) -> set[str]:
    words = {
        fold(shown[name]) for name in REASONING if isinstance(shown.get(name), str)
    }
    return words - {""}


def _same(value: Any, other: Any) -> bool:
    """Whether two JSON values are equal but for the spelling of their texts."""
    if isinstance(value, str) and isinstance(other, str):
        return fold(value) == fold(other)
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(
            _same(value[name], other[name]) for name in value
        )
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_same, value, other))
    return bool(value == other)
