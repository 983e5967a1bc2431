"""Reading a reply that should be one JSON object: what is certain is read, anything that could be meant two ways
is not.

Endpoints without a JSON mode wrap the object in prose, code fences and thinking. Such a reply counts when it holds
exactly one object and nothing else that could be one. Refused are therefore: a second object, equal or not; a
list; a brace that opens no whole object (a reply that was cut, JSON with single quotes or trailing commas); a key
given twice; NaN; words after the object that take it back; an object among prose that stands in the inputs, which
somebody may have only quoted. Nothing is mended.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from medlive.text.neutral import neutralise

MOST_REPLY: Final = 1_000_000
"""Characters; a longer reply is none of our tasks'."""

_THINKING: Final = re.compile(r"\s*<(think|thinking|thought|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_THINKING_ENDS: Final = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_THINKING_OPENS: Final = re.compile(r"<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_SECOND_THOUGHTS: Final = re.compile(
    r"\b(?:actually|correction|corrected|instead|mistake|mistaken|wrong|sorry|apologi[sz]e|should (?:be|have|read)"
    r"|on second thought|wait|revised?|ignore|disregard)\b|\bno,"
    r"|更正|纠正|修正|抱歉|对不起|应为|应该是|不对|错误|有误|改为|不是|忽略|重新",
    re.IGNORECASE,
)
_BLANK: Final = re.compile(r"\s+")
_INSIDE: Final = re.compile(r"""(?:["']\s*:|[\[,])\s*\Z""")


class NoObject(ValueError):
    """A reply holds no JSON at all, nor the beginning of any."""


def read_object(text: str, inputs: Mapping[str, Any] | None = None) -> Any:
    """The JSON value of a reply; `inputs` are the texts that the reply may be quoting from.

    A reply that is JSON and nothing else is returned as it is, whatever its type. NUL and lone surrogates are
    taken out of strings, since no database row can hold them. Raises NoObject, or another ValueError that says
    what is ambiguous.
    """
    if len(text) > MOST_REPLY:
        raise ValueError(f"the reply is longer than {MOST_REPLY} characters")
    text = text.strip("\ufeff \t\r\n")
    try:
        return _seen(_loads(text))
    except json.JSONDecodeError as exc:
        fault = exc
    value, spelt, after = _only_object(without_thinking(text), fault)
    if _SECOND_THOUGHTS.search(after):
        raise ValueError("words after the JSON object may take it back")
    if inputs is not None and _stands_in(spelt, inputs):
        raise ValueError("the JSON object is a piece of the input")
    return _seen(value)


def without_thinking(text: str) -> str:
    """The text without thinking blocks before the answer; one that does not end is left where it is."""
    while (block := _THINKING.match(text)) is not None:
        text = text[block.end() :]
    ends = _THINKING_ENDS.findall(text)
    if len(ends) == 1 and not _THINKING_OPENS.search(text):
        # Some templates open the block in the prompt, so that the reply only ends it.
        _, _, rest = text.partition(ends[0])
        if rest.strip().removeprefix("```json").lstrip().startswith("{"):
            text = rest
    return text.strip("\ufeff \t\r\n")


def _only_object(text: str, fault: json.JSONDecodeError) -> tuple[Any, str, str]:
    """The one object in a text, how it is spelt, and what follows it."""
    if _THINKING_OPENS.match(text):
        raise ValueError("the reply's thinking does not end")
    start = text.find("{")
    if start < 0:
        if text.startswith(("[", '"')):
            raise ValueError(f"not JSON: {fault}")
        raise NoObject("the reply holds no JSON object" if text else "the reply is empty")
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as exc:
        raise ValueError(f"not JSON: {exc}") from exc
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    before, after = text[:start], text[end:]
    if _INSIDE.search(before[-200:]) or before.count("[") > before.count("]"):
        raise ValueError("the JSON object stands inside something else")
    if "{" in after or "}" in after or "}" in before:
        raise ValueError("the reply holds more than one JSON object")
    return value, text[start:end], after


def _loads(text: str) -> Any:
    try:
        value, end = _DECODER.raw_decode(text)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    if end != len(text):
        raise json.JSONDecodeError("words follow the JSON", text, end)
    return value


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("the reply gives one key twice")
    return value


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_no_doubles, parse_constant=_no_number)


def _stands_in(spelt: str, inputs: Mapping[str, Any]) -> bool:
    needle = _BLANK.sub("", spelt).casefold()
    return any(needle in _BLANK.sub("", text).casefold() for text in _texts(inputs))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _seen(value: Any) -> Any:
    """The value with strings as a reader sees them: what is hidden in a reply is no more to be stored than what is
    hidden in a thread is to be shown."""
    if isinstance(value, str):
        return neutralise(value)
    if isinstance(value, list):
        return [_seen(item) for item in value]
    if isinstance(value, dict):
        return {_seen(key): _seen(item) for key, item in value.items()}
    return value
