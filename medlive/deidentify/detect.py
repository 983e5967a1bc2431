"""Handles become keyed hashes, and what names a person or a place is found and redacted.

Two uses: raw text before it is displayed, and everything a release holds, where one hit blocks the case.
Rules work on names with a title or an introduction, never on bare capitalised words, so that eponyms and
drugs stay.
"""

import hashlib
import hmac
import re
from bisect import bisect_left
from typing import Final

from medlive.deidentify.anchors import anchor
from medlive.deidentify.chinese import chinese_names, chinese_places
from medlive.deidentify.english import english_names, english_places
from medlive.deidentify.identifiers import Candidate, Candidates, Identifier, IdentifierKind, View
from medlive.deidentify.numbers import net_addresses, numeric_identifiers

__all__ = ["Identifier", "IdentifierKind", "find_identifiers", "keyed_handle", "redact"]

_ROLE_WORDS: Final = frozenset(("asker", "patient", "doctor", "physician", "other"))
_LATIN: Final = re.compile(r"[A-Za-z]{3}")
_HAN: Final = re.compile(r"[\u3400-\u9fff]")
_BETWEEN: Final = re.compile(r"[ \t,，、.#-]{0,3}|,? ?(?:in|near) ")
_CODE: Final = re.compile(r"[ ,-]{1,3}(?:\d{6}|\d{5}(?:-\d{4})?)(?!\d)")
_OTHERS_AT: Final = anchor(
    "others' data",
    (
        "信息", "资料", "名单", "如下", "details", "detail", "information", "info", "data", "list",
    ),
)  # fmt: skip
_OTHERS: Final = re.compile(
    r"(?:(?:员工|职工|同事|同学|学生|乘客|家属|邻居|接触者|密接者?|(?:同行|接触|密接|隔离|相关|确诊)人员)的?(?:个人|基本|具体|详细|登记)?"
    r"(?:信息|资料|名单)(?:如下)?|(?<![a-z])(?:employee|staff|co-?worker|colleague|contact|passenger|student|relative)s?(?:'s?)?"
    r" (?:details?|information|info|data|list))\s?[:：](?P<line>[^\n]{0,500})(?P<more>(?:\n[^\n]{0,500}){0,30})"
)
_FIELD: Final = re.compile(
    r"姓名|性别|年龄|出生|电话|手机|身份证|住址|地址|工号|学号|单位|部门|籍贯|(?<![a-z])(?:name|phone|tel|mobile|e-?mail"
    r"|address|dob|date of birth|id|employee no|department|sex|age)(?![a-z])"
)
_WHERE: Final = (IdentifierKind.PLACE, IdentifierKind.ADDRESS)
_ROUNDS: Final = 64


def keyed_handle(handle: str, key: bytes) -> str:
    """A community handle as `u_` and 16 hexadecimal digits of HMAC-SHA256; a role word stays as it is.

    The same handle and key give the same name; without the key nobody can test a guess. ValueError
    without one.
    """
    if not key:
        raise ValueError("keyed_handle needs a key of at least one byte")
    if handle in _ROLE_WORDS or re.fullmatch(r"u_[0-9a-f]{16}", handle):
        return handle
    return "u_" + hmac.new(key, handle.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:16]


def _candidates(view: View, language: str | None) -> Candidates:
    yield from numeric_identifiers(view, language)
    yield from net_addresses(view)
    yield from _others_data(view)
    if view.ascii or _LATIN.search(view.text):
        yield from english_names(view)
        yield from english_places(view)
    if not view.ascii and _HAN.search(view.text):
        for start, end in chinese_names(view):
            yield IdentifierKind.NAME, start, end
        for exact, start, end in chinese_places(view):
            yield IdentifierKind.ADDRESS if exact else IdentifierKind.PLACE, start, end


def _others_data(view: View) -> Candidates:
    """Blocks of fields about people who are not the patient: the lines from their heading on that hold fields."""
    for match in view.around(_OTHERS_AT, _OTHERS, 16, 1200):
        end = match.end("line")
        for line in match.group("more").split("\n")[1:]:
            if not _FIELD.search(line):
                break
            end += 1 + len(line)
        if len(_FIELD.findall(view.lower, match.start("line"), end)) > 1:
            yield IdentifierKind.OTHERS, match.start("line"), end


def _whole_places(candidates: Candidates) -> Candidates:
    """The candidates, places and addresses that overlap made one."""
    places: list[Candidate] = []
    for found in candidates:
        if found[0] in _WHERE:
            places.append(found)
        else:
            yield found
    held: Candidate | None = None
    for kind, start, end in sorted(places, key=lambda c: c[1]):
        if held is None or start >= held[2]:
            if held is not None:
                yield held
            held = (kind, start, end)
        else:
            exact = IdentifierKind.ADDRESS in (kind, held[0])
            held = (IdentifierKind.ADDRESS if exact else held[0], held[1], max(end, held[2]))
    if held is not None:
        yield held


def _apart(candidates: Candidates) -> list[Candidate]:
    """The candidates in order, none overlapping another; of two that overlap the longer stands."""
    taken: list[Candidate] = []
    starts: list[int] = []
    for found in sorted(_whole_places(candidates), key=lambda c: (c[1] - c[2], c[1])):
        _, start, end = found
        at = bisect_left(starts, end)
        if end > start and (at == 0 or taken[at - 1][2] <= start):
            taken.insert(at, found)
            starts.insert(at, start)
    return taken


def _joined(found: list[Candidate], text: str) -> list[Candidate]:
    """The parts of an address that stand side by side as one."""
    joined: list[Candidate] = []
    for kind, start, end in found:
        if joined and kind in _WHERE and joined[-1][0] in _WHERE:
            before, begun, stopped = joined[-1]
            exact = IdentifierKind.ADDRESS in (kind, before)
            if exact and _BETWEEN.fullmatch(text, stopped, start):
                joined[-1] = (IdentifierKind.ADDRESS, begun, end)
                continue
        joined.append((kind, start, end))
    return [
        (kind, start, code.end() if kind is IdentifierKind.ADDRESS and (code := _CODE.match(text, end)) else end)
        for kind, start, end in joined
    ]


def find_identifiers(text: str, language: str | None) -> list[Identifier]:
    """The identifiers of a text in order, none overlapping another; of two that overlap the longer stands.

    `language` ("en", "zh" or None) chooses whose telephone plans a number without a country code is tried in.
    Full-width and spelled digits, zero-width characters inside numbers and the like are seen through; offsets are
    those of the text as given. Needs the extra `service` only where a text holds long numbers.
    """
    view = View(text)
    candidates = list(_candidates(view, language))
    if not candidates:
        return []
    found = _joined(_apart(iter(candidates)), view.text)
    spans = ((kind, *view.span(start, end)) for kind, start, end in found)
    return [Identifier(kind, start, end, text[start:end]) for kind, start, end in spans]


def redact(text: str, language: str | None) -> str:
    """The text with each identifier replaced by its kind in brackets: [name], [phone], [place], …

    What only shows once its neighbour is gone ("Dr. SmithDr. Jones") is replaced too.
    """
    for _ in range(_ROUNDS):
        found = find_identifiers(text, language)
        if not found:
            break
        parts: list[str] = []
        at = 0
        for identifier in found:
            parts += [text[at : identifier.start], f"[{identifier.kind.value}]"]
            at = identifier.end
        text = "".join([*parts, text[at:]])
    return text
