"""What a reader's browser may be given: the figures and pages of a snapshot, read by what is allowed in them.

A list of what is dangerous is never complete (`u\\72l(`, `&#117;rl(`, `image-set(`), so nothing is decoded and
nothing is searched for: whatever medlive's own figures and pages do not consist of is a fault.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from medlive.integrity.folder import REQUIRED

_MAX_SHOWN: Final = 40
"""Characters of a fault that are quoted."""

# --- figures

_TEXT: Final = re.compile(r"(?:[^<>&]|&(?:amp|lt|gt|quot);)*")
"""Text between elements: no character but these four is written as an entity."""
_TAG: Final = re.compile(r"<(/?)([a-z]+)((?: [A-Za-z0-9-]+=\"[^\"<>&]*\")*)(/?)>")
_ATTRIBUTE: Final = re.compile(r" ([A-Za-z0-9-]+)=\"([^\"]*)\"")
_ELEMENTS: Final = frozenset(
    (
        "svg",
        "title",
        "desc",
        "metadata",
        "style",
        "g",
        "rect",
        "line",
        "text",
        "tspan",
        "circle",
        "path",
    )
)

_NUMBER: Final = r"-?[0-9]{1,6}(?:\.[0-9]{1,3})?"
_NUMERIC: Final = (
    "x",
    "y",
    "x1",
    "x2",
    "y1",
    "y2",
    "dx",
    "dy",
    "cx",
    "cy",
    "r",
    "rx",
    "ry",
    "width",
    "height",
)
_VALUES: Final[Mapping[str, re.Pattern[str]]] = {
    **{name: re.compile(_NUMBER) for name in _NUMERIC},
    "xmlns": re.compile(r"http://www\.w3\.org/2000/svg"),
    "class": re.compile(r"[A-Za-z0-9 -]*"),
    "id": re.compile(r"[A-Za-z0-9-]+"),
    "role": re.compile(r"img"),
    "aria-labelledby": re.compile(r"[A-Za-z0-9 -]+"),
    "viewBox": re.compile(rf"{_NUMBER}(?: {_NUMBER}){{3}}"),
    "text-anchor": re.compile(r"start|middle|end"),
    "transform": re.compile(rf"rotate\({_NUMBER}(?: {_NUMBER}){{0,2}}\)"),
    "stroke-dasharray": re.compile(r"[0-9 .]+"),
    "d": re.compile(r"[MLHVCSQTAZmlhvcsqtaz0-9 .,-]+"),
}
"""The attributes of a figure's elements, and what each may hold: nothing that names an address or runs."""

_SELECTOR: Final = r"[A-Za-z0-9 .,-]+"
_PROPERTY: Final = (
    r"(?:font-family|font-size|font-weight|font-style|max-width|height|width|opacity|fill|fill-opacity|stroke"
    r"|stroke-width|stroke-opacity|stroke-linecap|stroke-linejoin|stroke-dasharray|text-anchor)"
)
_VALUE: Final = r"(?:[A-Za-z0-9 .,#%-]|'[A-Za-z0-9 -]*')+"
"""Colours, lengths, words and names of fonts: without parentheses there is no function, so nothing is loaded."""
_DECLARATION: Final = rf"{_PROPERTY}:{_VALUE}"
_RULE: Final = rf"{_SELECTOR}\{{(?:{_DECLARATION}(?:;{_DECLARATION})*;?)?\}}"
_CSS_PART: Final = re.compile(
    rf"{_RULE}|@media \(prefers-color-scheme:(?:dark|light)\)\{{(?:{_RULE})*\}}"
)

# --- pages

_PAGE_TAG: Final = re.compile(r"</?details>|<summary>[^<>&\[\]]*</summary>")
"""A line of raw HTML as the dataset card has it."""
_PAGE_TOKEN: Final = re.compile(r"\\[^<]|[<\[$]|://|www\.", re.IGNORECASE)
"""What begins HTML, an image, a link or a formula. A backslash hides no `<`: within HTML it means nothing."""
_IMAGE: Final = re.compile(r"\[[^\[\]<>\\]*\]\((figures/[a-z-]+\.svg)\)")
_ALERTS: Final = ("> [!WARNING]", "> [!NOTE]")
"""Whole lines: with something behind the bracket it would be a link or an image."""
_FENCE: Final = re.compile(r"```(?:|python|sh|bibtex)")
"""The beginning or the end of a block of code; blocks in other languages, such as maps, may load something."""
_FRONT_KEY: Final = (
    r"(?:language|license|license_name|license_link|annotations_creators|language_creators|multilinguality"
    r"|source_datasets|task_categories|tags|size_categories|configs|config_name|default|data_files|split|path)"
)
_FRONT_VALUE: Final = (
    r"(?:[A-Za-z0-9<_-]+|\"[A-Za-z-]{1,20}\"|data/(?:cases|criteria)\.parquet)"
)
_FRONT_TEXT: Final = r"(?:pretty_name|description): \"(?:[^\"\\]|\\[\"\\uU])*\""
_FRONT_LINE: Final = re.compile(
    rf" {{0,4}}(?:- )?(?:{_FRONT_TEXT}|{_FRONT_KEY}:(?: {_FRONT_VALUE})?|{_FRONT_VALUE})"
)
"""A line of the card's front matter, by which programs load the data: it names no address."""


def find_active_svg(data: bytes) -> str | None:
    """Return the first part of a figure that medlive's own figures do not have; None if there is none."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes that are not UTF-8"
    place, around = 0, list[str]()
    while (place := _end_of_text(text, place, around)) < len(text):
        tag = _TAG.match(text, place)
        if (
            tag is None
            or (fault := _tag_fault(tag) or _order_fault(tag, around)) is not None
        ):
            return text[place : place + _MAX_SHOWN] if tag is None else fault
        place = tag.end()
    return f"no end of {around[-1]}" if around else None


def _end_of_text(text: str, place: int, around: list[str]) -> int:
    """Return where the next element begins or ends: in a style known rules come before it, else text."""
    if around[-1:] == ["style"]:
        return _end_of_css(text, place)
    between = _TEXT.match(text, place)
    return between.end() if between is not None else place


def _order_fault(tag: re.Match[str], around: list[str]) -> str | None:
    """Note which elements are around what follows; a fault unless each ends, and nothing is within a style."""
    closing, name, _, empty = tag.groups()
    if closing:
        return None if around and around.pop() == name else tag[0]
    if around[-1:] == ["style"]:
        return tag[0][:_MAX_SHOWN]
    if not empty:
        around.append(name)
    return None


def _tag_fault(tag: re.Match[str]) -> str | None:
    closing, name, attributes, empty = tag.groups()
    if (
        name not in _ELEMENTS
        or (closing and (attributes or empty))
        or (name == "style" and (attributes or empty))
    ):
        return tag[0][:_MAX_SHOWN]
    for attribute in _ATTRIBUTE.finditer(attributes):
        pattern = _VALUES.get(attribute[1])
        if pattern is None or not pattern.fullmatch(attribute[2]):
            return attribute[0].strip()[:_MAX_SHOWN]
    return None


def _end_of_css(text: str, place: int) -> int:
    """Return where the known rules of a style end."""
    while (part := _CSS_PART.match(text, place)) is not None:
        place = part.end()
    return place


def find_active_markdown(data: bytes) -> str | None:
    """Return the first part of a page that a viewer could load, run or follow; None if there is none.

    Allowed are the lines of HTML and the front matter that the dataset card has, and its own figures.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes that are not UTF-8"
    rows = text.split("\n")
    body = 0
    if rows[0] == "---":
        body = rows.index("---", 1) if "---" in rows[1:] else len(rows)
    elif not rows[0].startswith("# "):
        return rows[0][:_MAX_SHOWN]
    for number, row in enumerate(rows):
        if 0 < number < body:
            fault = None if _FRONT_LINE.fullmatch(row) else row[:_MAX_SHOWN]
        else:
            fault = _line_fault(row)
        if fault is not None:
            return fault
    return None


def _line_fault(row: str) -> str | None:
    if row in _ALERTS or _PAGE_TAG.fullmatch(row):
        return None
    if "\r" in row or (("```" in row or "~~~" in row) and not _FENCE.fullmatch(row)):
        return row[:_MAX_SHOWN]
    return next(_active_tokens(row), None)


def _active_tokens(row: str) -> Iterator[str]:
    """Yield what begins HTML, a link, an image or a formula in a line, other than the card's own."""
    for token in _PAGE_TOKEN.finditer(row):
        start = token.start()
        image = _IMAGE.match(row, start)
        own = (
            image is not None and row[start - 1 : start] == "!" and image[1] in REQUIRED
        )
        if not own and not token[0].startswith("\\"):
            yield row[max(0, start - 1) : start + _MAX_SHOWN]
