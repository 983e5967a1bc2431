"""Helpers for the text of corpora: clean it, guess its language, read dates and titles, make ids, strip simple HTML."""

import re
import unicodedata
from calendar import monthrange
from datetime import date, datetime
from html import unescape

from medlive.text.lists import read_words

_CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u2060\ufeff\ufffe\uffff]"
)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LIST_ITEM = re.compile(r"  +(?=[-•*▪·] )")
_WIDE_GAP = re.compile(r"    +")
_GAP = re.compile(r"  +")
_LINES = re.compile(r"\n[ \n]+| \n[ \n]*")
# Chinese characters, for a class of a pattern
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HAN = re.compile(f"[{HAN}]")
_KANA = re.compile(r"[\u3041-\u30ff]")
_LATIN = re.compile(r"[A-Za-z]")
_RETRACTED_TITLE = re.compile(
    r"\W*(?:RETRACTED|WITHDRAWN|Retracted|Withdrawn)(?: ARTICLE| Article)?\W*[:\]]"
)
_ITEM = re.compile(r"(?i)<li\b[^<>]*>")
_BLOCK = re.compile(r"(?i)</?(?:h[1-5]|p|br|[uo]l|li|div|tr)\b[^<>]*>")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_PARTIAL_DATE = re.compile(r"\s*(\d{4})(?:[-/](\d{1,2}))?\s*")


def clean(text: str) -> str:
    """Text without controls and lone surrogates, with list items and paragraphs on lines of their own."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", " ")
    if not text.isascii():
        text = (
            _SURROGATE.sub("\ufffd", text).replace("\u00a0", " ").replace("\u3000", " ")
        )
    text = _CONTROL.sub("", text)
    text = _LIST_ITEM.sub("\n", text)
    text = _WIDE_GAP.sub("\n", text)
    text = _GAP.sub(" ", text)
    return _LINES.sub("\n", text).strip()


def one_line(text: str) -> str:
    """Cleaned text on one line: a title, a label."""
    return clean(text).replace("\n", " ")


def language_of(text: str) -> str:
    """`zh`, `ja` or `en` by the script of the first 4,000 characters; `und` (ISO 639) if it has none of these scripts.

    Latin script counts as English: a corpus in another language that uses it must say so itself.
    """
    head = text[:4000]
    if head.isascii():
        return "en" if _LATIN.search(head) else "und"
    han = len(_HAN.findall(head))
    kana = len(_KANA.findall(head))
    latin = len(_LATIN.findall(head))
    if kana * 5 > han + kana and kana * 5 > latin:
        return "ja"
    # One Chinese character carries about as much as a short English word.
    if han * 4 >= latin and han:
        return "zh"
    return "en" if latin else "und"


def stop_words() -> frozenset[str]:
    """The words that say nothing of a medical subject."""
    return read_words("medlive.evidence", "stop_words.txt")[""]


def is_retracted_title(title: str) -> bool:
    """Whether a title says that its text was taken back, as publishers mark it (`RETRACTED: …`)."""
    return _RETRACTED_TITLE.match(title) is not None


def latest_date(value: object) -> date | None:
    """The last day that a date may mean: a bare year is its 31 December.

    A search for evidence "not after" a day must never see what may be younger. Raises ValueError when the
    value is no date; None for an absent one.
    """
    if value is None or value == "":
        return None
    text = str(value)
    partial = _PARTIAL_DATE.fullmatch(text)
    if partial:
        year, month = int(partial[1]), int(partial[2] or 12)
        return date(year, month, monthrange(year, month)[1])
    return datetime.fromisoformat(text.strip()).date()


def slug(text: str) -> str:
    """A short part of an id: letters, digits, `-`, `_`, `.`, `/`; never a colon, never empty."""
    folded = unicodedata.normalize("NFKC", text).strip().lower()
    return re.sub(r"[^\w./-]+", "-", folded).strip("-")[:80] or "-"


def lines_of(markup: str) -> str:
    """The text of simple HTML, each block on lines of its own, list items marked with `- `."""
    # A line end in the file is white space of its HTML.
    text = _ITEM.sub("\n- ", markup.replace("\n", " "))
    return unescape(_TAG.sub("", _BLOCK.sub("\n", text)))


def sentences_of(markup: str) -> str:
    """The text of simple HTML on one line; a line that ends in a letter or digit, as headings do, gets a full stop."""
    text = ""
    for line in lines_of(markup).replace("\n- ", "\n").split("\n"):
        text = text.rstrip()
        text += ". " if text[-1:].isalnum() else " "
        text += line
    return " ".join(text.split())
