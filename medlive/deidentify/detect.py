"""Find and redact identifiers of people and places, and hash the handles of authors.

Used on raw text before it is displayed, and on every text of a release, where one identifier blocks the case. A
name is recognised by a title or an introduction, never by a capital letter alone, so that eponyms and drugs stay.
"""

import hashlib
import hmac
import re
from bisect import bisect_left

from medlive.deidentify.chinese import chinese_names, chinese_places
from medlive.deidentify.english import english_names, english_places
from medlive.deidentify.identifiers import (
    Candidate,
    Candidates,
    Identifier,
    IdentifierKind,
    View,
)
from medlive.deidentify.numbers import net_addresses, numeric_identifiers

__all__ = ["Identifier", "IdentifierKind", "find_identifiers", "keyed_handle", "redact"]

_ROLE_WORDS = frozenset(("asker", "patient", "doctor", "physician", "other"))
_LATIN = re.compile(r"[A-Za-z]{3}")
_HAN = re.compile(r"[\u3400-\u9fff]")
_BETWEEN = re.compile(r"[ \t,，、.#-]{0,3}|,? ?(?:in|near) ")
_CODE = re.compile(r"[ ,-]{1,3}(?:\d{6}|\d{5}(?:-\d{4})?)(?!\d)")
_OTHERS = re.compile(
    r"(?:(?:员工|职工|同事|同学|学生|乘客|家属|邻居|接触者|密接者?|(?:同行|接触|密接|隔离|相关|确诊)人员)的?(?:个人|基本|具体|详细|登记)?"
    r"(?:信息|资料|名单)(?:如下)?|(?<![a-z])(?:employee|staff|co-?worker|colleague|contact|passenger|student|relative)s?(?:'s?)?"
    r" (?:details?|information|info|data|list))\s?[:：](?P<line>[^\n]{0,500})(?P<more>(?:\n[^\n]{0,500}){0,30})"
)
_FIELD = re.compile(
    r"姓名|性别|年龄|出生|电话|手机|身份证|住址|地址|工号|学号|单位|部门|籍贯|(?<![a-z])(?:name|phone|tel|mobile|e-?mail"
    r"|address|dob|date of birth|id|employee no|department|sex|age)(?![a-z])"
)
_WHERE = (IdentifierKind.PLACE, IdentifierKind.ADDRESS)
_ROUNDS = 64


def keyed_handle(handle: str, key: bytes) -> str:
    """Replace a community handle by `u_` and 16 hexadecimal digits of its HMAC-SHA256; a role word stays.

    The same handle and key give the same name, and a guess cannot be tested without the key.

    Raises:
        ValueError: if the key is empty.
    """
    if not key:
        raise ValueError("expected a key of at least one byte")
    if handle in _ROLE_WORDS or re.fullmatch(r"u_[0-9a-f]{16}", handle):
        return handle
    return (
        "u_"
        + hmac.new(
            key, handle.encode("utf-8", "surrogatepass"), hashlib.sha256
        ).hexdigest()[:16]
    )


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
    """Find form fields about people other than the patient: the heading's lines as long as they contain fields."""
    for match in _OTHERS.finditer(view.lower):
        end = match.end("line")
        for line in match.group("more").split("\n")[1:]:
            if not _FIELD.search(line):
                break
            end += 1 + len(line)
        if len(_FIELD.findall(view.lower, match.start("line"), end)) > 1:
            yield IdentifierKind.OTHERS, match.start("line"), end


def _without_overlaps(candidates: Candidates) -> list[Candidate]:
    """Return the candidates in order; places that overlap are merged, else the longer of two is kept."""
    merged: list[Candidate] = []
    others: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: c[1]):
        if candidate[0] not in _WHERE:
            others.append(candidate)
        elif merged and candidate[1] < merged[-1][2]:
            before, begin, stop = merged[-1]
            kind = (
                IdentifierKind.ADDRESS
                if IdentifierKind.ADDRESS in (candidate[0], before)
                else before
            )
            merged[-1] = (kind, begin, max(candidate[2], stop))
        else:
            merged.append(candidate)
    kept: list[Candidate] = []
    for candidate in sorted(others + merged, key=lambda c: (c[1] - c[2], c[1])):
        _, start, end = candidate
        at = bisect_left(kept, end, key=lambda c: c[1])
        if end > start and (at == 0 or kept[at - 1][2] <= start):
            kept.insert(at, candidate)
    return kept


def _join_addresses(candidates: list[Candidate], text: str) -> list[Candidate]:
    """Join the parts of an address that follow each other, and add its postcode."""
    joined: list[Candidate] = []
    for kind, start, end in candidates:
        before, begin, stop = joined[-1] if joined else (kind, start, start)
        together = {kind, before} in ({IdentifierKind.ADDRESS}, set(_WHERE))
        if joined and together and _BETWEEN.fullmatch(text, stop, start):
            joined[-1] = (IdentifierKind.ADDRESS, begin, end)
        else:
            joined.append((kind, start, end))
    return [
        (
            kind,
            start,
            code.end()
            if kind is IdentifierKind.ADDRESS and (code := _CODE.match(text, end))
            else end,
        )
        for kind, start, end in joined
    ]


def find_identifiers(text: str, language: str | None) -> list[Identifier]:
    """Find the identifiers of a text, in order; of two that overlap the longer is kept.

    Full-width and spelled digits and zero-width characters do not hide an identifier. Needs the extra `service`
    for texts with long numbers.

    Args:
        text: Any text; offsets in the result are those of this text.
        language: "en", "zh" or None: which telephone plans numbers without a country code are tried in.
    """
    view = View(text)
    candidates = _join_addresses(
        _without_overlaps(_candidates(view, language)), view.text
    )
    spans = ((kind, *view.span(start, end)) for kind, start, end in candidates)
    return [Identifier(kind, start, end, text[start:end]) for kind, start, end in spans]


def redact(text: str, language: str | None) -> str:
    """Replace each identifier by its kind in brackets: [name], [phone], [place], …

    Repeats until nothing is found: replacing one may expose the next ("Dr. SmithDr. Jones").
    """
    return redact_part(text, language, 0, len(text))


def redact_part(text: str, language: str | None, start: int, end: int) -> str:
    """Redact `text[start:end]` as it reads in the whole text: an identifier over an end is replaced as a whole."""
    for _ in range(_ROUNDS):
        identifiers = [
            i
            for i in find_identifiers(text, language)
            if i.end > start and i.start < end
        ]
        if not identifiers:
            break
        parts: list[str] = []
        at = start = min(start, identifiers[0].start)
        end = max(end, identifiers[-1].end)
        for identifier in identifiers:
            parts += [text[at : identifier.start], f"[{identifier.kind.value}]"]
            at = identifier.end
        part = "".join([*parts, text[at:end]])
        text, end = text[:start] + part + text[end:], start + len(part)
    return text[start:end]
