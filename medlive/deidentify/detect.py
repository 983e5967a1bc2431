"""Find and redact identifiers of people and places, and hash the handles of authors.

Used on raw text before it is displayed, and on every text of a release, where one identifier blocks the case. A
name is recognised by a title or an introduction, never by a capital letter alone, so that eponyms and drugs stay.
"""

import hashlib
import hmac
import re
from bisect import bisect_left
from operator import itemgetter

from .identifiers import (
    Candidate,
    Candidates,
    Identifier,
    IdentifierKind,
    View,
)
from .numbers import net_addresses, numeric_identifiers

__all__ = ["Identifier", "IdentifierKind", "find_identifiers", "keyed_handle", "redact"]

_ROLE_WORDS = frozenset(("asker", "patient", "doctor", "physician", "other"))
_LATIN = re.compile(r"[A-Za-z]{3}")
_HAN = re.compile(r"[\u3400-\u9fff]")
# Between two parts of an address; a postcode after it
_BETWEEN = re.compile(r"[ \t,，、.#-]{0,3}|,? ?(?:in|near) ")
_CODE = re.compile(r"[ ,-]{1,3}(?:\d{6}|\d{5}(?:-\d{4})?)(?!\d)")
# A heading such as "同事信息：" or "staff list:" with the lines below it
_OTHERS = re.compile(
    r"(?:(?:员工|职工|同事|同学|学生|乘客|家属|邻居|接触者|密接者?|(?:同行|接触|密接|隔离|相关|确诊)人员)的?(?:个人|基本|具体|详细|登记)?"
    r"(?:信息|资料|名单)(?:如下)?|(?<![a-z])(?:employee|staff|co-?worker|colleague|contact|passenger|student|relative)s?(?:'s?)?"
    r" (?:details?|information|info|data|list))\s?[:：](?P<line>[^\n]{0,500})(?P<more>(?:\n[^\n]{0,500}){0,30})"
)
_FIELD = re.compile(
    r"姓名|性别|年龄|出生|电话|手机|身份证|住址|地址|工号|学号|单位|部门|籍贯|(?<![a-z])(?:name|phone|tel|mobile|e-?mail"
    r"|address|dob|date of birth|id|employee no|department|sex|age)(?![a-z])"
)
_ROUNDS = 64
"""Rounds of replacing; each leaves fewer characters that could be an identifier's."""


def find_identifiers(text: str, language: str | None) -> list[Identifier]:
    """Find the identifiers of a text, in order; of two that overlap the longer is kept.

    Full-width and spelled digits and zero-width characters do not hide an identifier. Needs the extra `service`
    for texts with long numbers.

    Args:
        text: Any text; offsets in the result are those of this text.
        language: "en", "zh" or None: which telephone plans numbers without a country code are tried in.
    """
    view = View(text)
    candidates = [
        *numeric_identifiers(view, language),
        *net_addresses(view),
        *_others_data(view),
    ]
    # The rules of a language are built when a text first needs them.
    if view.text.isascii() or _LATIN.search(view.text):
        from .english import english_names
        from .english_places import english_places

        candidates += english_names(view)
        candidates += english_places(view)
    if _HAN.search(view.text):
        from .chinese import chinese_names, chinese_places

        candidates += chinese_names(view)
        candidates += chinese_places(view)
    merged = _without_overlaps(_merge_places(candidates))
    identifiers = []
    for kind, view_start, view_end in _join_addresses(merged, view.text):
        start, end = view.span(view_start, view_end)
        identifiers.append(Identifier(kind, start, end, text[start:end]))
    return identifiers


def redact(text: str, language: str | None) -> str:
    """Replace each identifier by its kind in brackets: [name], [phone], [place], …

    Repeats until nothing is found: replacing one may expose the next ("Dr. SmithDr. Jones").
    """
    return redact_beginning(text, language, len(text))


def redact_beginning(text: str, language: str | None, end: int) -> str:
    """Redact `text[:end]` as it reads in the whole text: an identifier over its end is replaced as a whole."""
    for _ in range(_ROUNDS):
        redacted, copied_to = "", 0
        for identifier in find_identifiers(text, language):
            if identifier.start < end:
                redacted += f"{text[copied_to : identifier.start]}[{identifier.kind}]"
                copied_to = identifier.end
        if not copied_to:
            break
        rest = max(end, copied_to)
        redacted += text[copied_to:rest]
        text, end = redacted + text[rest:], len(redacted)
    return text[:end]


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
    data = handle.encode("utf-8", "surrogatepass")
    return f"u_{hmac.new(key, data, hashlib.sha256).hexdigest()[:16]}"


def _others_data(view: View) -> Candidates:
    """Find form fields about people other than the patient: the lines after a heading as long as they hold fields."""
    for match in _OTHERS.finditer(view.lower):
        start, end = match.span("line")
        for line in match["more"].split("\n")[1:]:
            if not _FIELD.search(line):
                break
            end += len("\n") + len(line)
        if len(_FIELD.findall(view.lower, start, end)) > 1:
            yield "others' data", start, end


def _merge_places(candidates: list[Candidate]) -> list[Candidate]:
    """Merge places that overlap; the result is an address if one of them is."""
    places: list[Candidate] = []
    others = []
    for kind, start, end in sorted(candidates, key=itemgetter(1)):
        if kind not in ("place", "address"):
            others.append((kind, start, end))
        elif places and start < places[-1][2]:
            kind_before, first, last = places[-1]
            merged = kind_before if kind == "place" else "address"
            places[-1] = (merged, first, max(last, end))
        else:
            places.append((kind, start, end))
    return others + places


def _without_overlaps(candidates: list[Candidate]) -> list[Candidate]:
    """Return the candidates in order of their starts; of two that overlap the longer, else the first."""
    kept: list[Candidate] = []
    by_start = sorted(candidates, key=itemgetter(1))
    for kind, start, end in sorted(by_start, key=lambda c: c[1] - c[2]):
        # Those that are kept do not overlap: only the last one before `end` can reach into this one.
        place = bisect_left(kept, end, key=itemgetter(1))
        is_free = place == 0 or kept[place - 1][2] <= start
        if is_free and start < end:
            kept.insert(place, (kind, start, end))
    return kept


def _join_addresses(candidates: list[Candidate], text: str) -> list[Candidate]:
    """Join the parts of an address that follow each other, and add its postcode.

    Two are parts of one address where at least one is an address and no more than `_BETWEEN` separates them.
    """
    joined: list[Candidate] = []
    for kind, start, end in candidates:
        kind_before, first, last = joined[-1] if joined else (kind, start, end)
        are_parts = "address" in {kind_before, kind} <= {"address", "place"}
        if joined and are_parts and _BETWEEN.fullmatch(text, last, start):
            joined[-1] = ("address", first, end)
        else:
            joined.append((kind, start, end))
    with_postcodes = []
    for kind, start, end in joined:
        postcode = _CODE.match(text, end) if kind == "address" else None
        with_postcodes.append((kind, start, postcode.end() if postcode else end))
    return with_postcodes
