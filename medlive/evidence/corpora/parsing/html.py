"""Plain text out of simple HTML: what stands in a publisher's field, without scripts or styles."""

import re
from html import unescape

_LINE = re.compile(r"(?i)<(/?)(?:h[1-5]|p|br|[uo]l|(li)|div|tr)\b[^<>]*>")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


def lines_of(markup: str) -> str:
    """The text with each block on lines of its own, items of lists with a mark."""
    # A line end in the file is white space of its HTML.
    text = _LINE.sub(_line_end, markup.replace("\n", " "))
    return unescape(_TAG.sub("", text))


def _line_end(tag: re.Match[str]) -> str:
    is_item = tag[2] and not tag[1]
    return "\n- " if is_item else "\n"


def sentences_of(markup: str) -> str:
    """The text on one line; a heading ends as a sentence does."""
    text = ""
    for line in lines_of(markup).replace("\n- ", "\n").split("\n"):
        text = text.rstrip()
        text += ". " if text[-1:].isalnum() else " "
        text += line
    return " ".join(text.split())
