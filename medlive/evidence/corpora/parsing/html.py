"""Plain text out of simple HTML: what stands in a publisher's field, without scripts or styles."""

import re
from html import unescape

_ITEM = re.compile(r"(?i)<li\b[^<>]*>")
_LINE = re.compile(r"(?i)</?(?:h[1-5]|p|br|[uo]l|li|div|tr)\b[^<>]*>")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


def lines_of(markup: str) -> str:
    """The text with each block on lines of its own, items of lists with a mark."""
    # A line end in the file is white space of its HTML.
    text = _ITEM.sub("\n- ", markup.replace("\n", " "))
    return unescape(_TAG.sub("", _LINE.sub("\n", text)))


def sentences_of(markup: str) -> str:
    """The text on one line; a heading ends as a sentence does."""
    text = ""
    for line in lines_of(markup).replace("\n- ", "\n").split("\n"):
        text = text.rstrip()
        text += ". " if text[-1:].isalnum() else " "
        text += line
    return " ".join(text.split())
