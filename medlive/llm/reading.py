"""Read a model's reply as one JSON object (`read_object`), split off its thinking, and recognise refusals.

Endpoints without a JSON mode wrap the object in prose, code fences and thinking. Such a reply counts when it holds
exactly one object and nothing else that could be one. Refused are therefore: a second object, equal or not; a
list; a brace that opens no whole object (a reply that was cut, JSON with single quotes or trailing commas); a key
given twice; NaN; words after the object that take it back; a reply copied from the inputs (`planted`). Nothing is
mended.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from medlive.guard.bounds import REPLY_CHARS
from medlive.text.neutral import neutralise

from .planted import is_planted

LONGEST_REFUSAL = 2000
"""Characters of the longest text that is taken for a refusal: models that refuse are brief."""
# Characters of a text's beginning in which its refusal is looked for
REFUSAL_OPENING = 400

_THINKING = re.compile(
    r"\s*<(think|thinking|thought|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE
)
_THINKING_ENDS = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_THINKING_OPENS = re.compile(r"<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_THINKING_TAG = re.compile(r"</?(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_SECOND_THOUGHTS = re.compile(
    r"\b(?:actually|correction|corrected|instead|mistake|mistaken|wrong|sorry|apologi[sz]e|should (?:be|have|read)"
    r"|on second thought|wait|revised?|ignore|disregard)\b|\bno,"
    r"|更正|纠正|修正|抱歉|对不起|应为|应该是|不对|错误|有误|改为|不是|忽略|重新",
    re.IGNORECASE,
)
# What precedes a JSON object that is a value or an item of something else
_INSIDE = re.compile(r"""(?:["']\s*:|[\[,])\s*\Z""")


class NoObject(ValueError):
    """A reply holds no JSON at all, nor the beginning of any."""


def read_object(
    text: str,
    inputs: Mapping[str, Any] | None = None,
) -> Any:
    """The JSON value of a reply; `inputs` are the request's, from whose texts a reply must not be copied.

    A reply that is JSON and nothing else is returned as it is, whatever its type. NUL and lone surrogates are
    taken out of strings, since no database row can hold them. Raises NoObject, or another ValueError that says
    what is ambiguous.
    """
    if len(text) > REPLY_CHARS:
        raise ValueError(f"the reply is longer than {REPLY_CHARS} characters")
    try:
        value = neutral(_read(text.strip("\ufeff \t\r\n")))
        if inputs is not None and is_planted(value, inputs):
            raise ValueError("the reply is a piece of the input")
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    return value


def split_thinking(
    text: str,
    *,
    cut: bool = False,
) -> tuple[str, str]:
    """(thinking, answer) of a reply that thinks aloud before it answers; ("", text) for any other.

    The opening tag may be missing, as where the prompt's template holds it, if the end tag has a line of its own
    or JSON follows. Thinking that does not end counts only in a reply that was `cut`.
    """
    rest = text
    while (block := _THINKING.match(rest)) is not None:
        rest = rest[block.end() :]
    ends = list(_THINKING_ENDS.finditer(text)) if rest == text else []
    if len(ends) == 1 and not _THINKING_OPENS.search(text):
        # What follows the end tag of thinking whose opening is missing
        before, after = text[: ends[0].start()], text[ends[0].end() :]
        own_line = before.endswith("\n") and after.startswith(("\n", "\r"))
        answer = after.strip().removeprefix("```json").lstrip()
        if (own_line and "{" not in before) or answer.startswith("{"):
            rest = after
    if rest == text and cut and _THINKING_OPENS.match(text.lstrip()):
        rest = ""
    if rest == text:
        return "", text
    return _THINKING_TAG.sub("", text[: len(text) - len(rest)]).strip(), rest.lstrip()


def without_thinking(text: str) -> str:
    """The text without thinking blocks before the answer; one that does not end is left where it is."""
    return split_thinking(text)[1].strip("\ufeff \t\r\n")


_UNABLE = (
    r"(?:can(?:['’]?t|\s?not)|could not|won['’]?t|will not|am (?:not able|unable|not allowed|not permitted)"
    r"|['’]m (?:not able|unable|not allowed|not permitted)|must decline|have to decline|decline)"
)
_WHAT = (
    r"(?:help|assist|provide|give|offer|answer|comply|do (?:that|this)|fulfil+|process|complete|continue|engage"
    r"|generate|produce|create|share|discuss|support|analy[sz]e|respond|advise|be used|participate)"
)
_REFUSALS = re.compile(
    rf"\bI\s?{_UNABLE}\s(?:\w+\s){{0,3}}{_WHAT}\b"
    r"|\bI must (?:respectfully )?(?:decline|refuse)\b"
    r"|\bI (?:refuse|decline) to\b"
    r"|\b(?:against|violates?) (?:my|our|the|openai['’]?s?) (?:guidelines|polic(?:y|ies)|programming|terms)\b"
    r"|\bas an ai(?: language)? model,? I (?:can(?:['’]?t|not)|am not|do not|don['’]t)\b"
    r"|\b(?:your|the|this) request (?:was|has been|is) (?:rejected|blocked|refused|declined|flagged)\b"
    r"|(?:我|本(?:模型|助手|AI))?(?:无法|不能|不可以|没办法|不便)(?:够)?(?:为您|为你|向您|给您|对此|就此)?"
    r"(?:提供|协助|帮助|回答|满足|完成|执行|处理|继续|生成|参与|给出|讨论|作答)"
    r"|拒绝(?:回答|提供|执行|协助)|违反(?:了)?(?:相关|我们的|平台)?(?:规定|政策|法律|准则)"
    r"|(?:您|你)的(?:请求|问题|输入)(?:被拒绝|包含敏感|不符合)",
    re.IGNORECASE,
)


def is_refusal(text: str) -> bool:
    """Whether a text in which no JSON stands is a model that declines, in English or Chinese."""
    text = without_thinking(text)
    is_brief = len(text) <= LONGEST_REFUSAL
    return is_brief and _REFUSALS.search(text[:REFUSAL_OPENING]) is not None


def _read(text: str) -> Any:
    """The value that is the whole text, or the only JSON object in it. Raises ValueError, NoObject for none."""
    try:
        value, end = _DECODER.raw_decode(text)
        if end == len(text):
            return value
        fault = json.JSONDecodeError("words follow the JSON", text, end)
    except json.JSONDecodeError as exc:
        fault = exc
    text = without_thinking(text)
    if _THINKING_OPENS.match(text):
        raise ValueError("the reply's thinking does not end")
    start = text.find("{")
    if start < 0 and text.startswith(("[", '"')):
        raise ValueError(f"not JSON: {fault}")
    if start < 0:
        raise NoObject(
            "the reply holds no JSON object" if text else "the reply is empty"
        )
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as exc:
        raise ValueError(f"not JSON: {exc}") from exc
    before, after = text[:start], text[end:]
    if _INSIDE.search(before[-200:]) or before.count("[") > before.count("]"):
        raise ValueError("the JSON object is inside something else")
    if "{" in after or "}" in after or "}" in before:
        raise ValueError("the reply holds more than one JSON object")
    if _SECOND_THOUGHTS.search(after):
        raise ValueError("words after the JSON object may take it back")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("the reply gives one key twice")
    return value


# Line ends within a text are what a model copies; nothing else could be meant by them.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_no_doubles, parse_constant=_refuse_constant, strict=False
)


def neutral(value: Any) -> Any:
    """A JSON value without the invisible characters of its strings, for replies to be stored and threads to be shown.
    Raises ValueError where two keys become one."""
    if isinstance(value, str):
        return neutralise(value)
    if isinstance(value, (list, tuple)):
        return list(map(neutral, value))
    if isinstance(value, Mapping):
        return _no_doubles([(neutral(key), neutral(v)) for key, v in value.items()])
    return value
