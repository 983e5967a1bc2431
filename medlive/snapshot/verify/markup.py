"""Checks that a snapshot's figures (SVG) and pages (Markdown) hold nothing that a browser would run, load or follow.

A list of what is dangerous is never complete (`u\\72l(`, `&#117;rl(`, `image-set(`), so these are lists of what is
allowed: whatever medlive's own figures and pages do not consist of is a fault.
"""

import re
from collections.abc import Mapping
from xml.etree import ElementTree

from medlive.integrity.folder import REQUIRED

_MAX_SHOWN = 40
"""The most characters of a fault that are quoted."""

# --- figures

_SVG = "{http://www.w3.org/2000/svg}"
_DECLARATION_OF_XML = re.compile(rb"<[!?].{0,40}", re.DOTALL)
"""What may bring entities, other documents or programs in, or hide something: figures have none of these."""
_ELEMENTS = frozenset(
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

_NUMBER = r"-?[0-9]{1,6}(?:\.[0-9]{1,3})?"
_NUMERIC = (
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
_VALUES: Mapping[str, re.Pattern[str]] = {
    **{name: re.compile(_NUMBER) for name in _NUMERIC},
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

_SELECTOR = r"[A-Za-z0-9 .,-]+"
_PROPERTY = (
    r"(?:font-family|font-size|font-weight|font-style|max-width|height|width|opacity|fill|fill-opacity|stroke"
    r"|stroke-width|stroke-opacity|stroke-linecap|stroke-linejoin|stroke-dasharray|text-anchor)"
)
_VALUE = r"(?:[A-Za-z0-9 .,#%-]|'[A-Za-z0-9 -]*')+"
"""Colours, lengths, words and names of fonts: without parentheses there is no function, so nothing is loaded."""
_DECLARATION = rf"{_PROPERTY}:{_VALUE}"
_RULE = rf"{_SELECTOR}\{{(?:{_DECLARATION}(?:;{_DECLARATION})*;?)?\}}"
_CSS = re.compile(
    rf"(?:{_RULE}|@media \(prefers-color-scheme:(?:dark|light)\)\{{(?:{_RULE})*\}})*"
)

# --- pages

_PAGE_TAG = re.compile(r"</?details>|<summary>[^<>&\[\]]*</summary>")
"""A line of raw HTML as the dataset card has it."""
_PAGE_TOKEN = re.compile(r"\\[^<]|[<\[$]|://|www\.", re.IGNORECASE)
"""What begins HTML, an image, a link or a formula. A backslash hides no `<`: within HTML it means nothing."""
_IMAGE = re.compile(r"\[[^\[\]<>\\]*\]\((figures/[a-z-]+\.svg)\)")
_ALERTS = ("> [!WARNING]", "> [!NOTE]")
"""Whole lines: with something behind the bracket it would be a link or an image."""
_FENCE = re.compile(r"```(?:|python|sh|bibtex)")
"""The beginning or the end of a block of code; blocks in other languages, such as maps, may load something."""
_FRONT_KEY = (
    r"(?:language|license|license_name|license_link|annotations_creators|language_creators|multilinguality"
    r"|source_datasets|task_categories|tags|size_categories|configs|config_name|default|data_files|split|path)"
)
_FRONT_VALUE = (
    r"(?:[A-Za-z0-9<_-]+|\"[A-Za-z-]{1,20}\"|data/(?:cases|criteria)\.parquet)"
)
_FRONT_TEXT = r"(?:pretty_name|description): \"(?:[^\"\\]|\\[\"\\uU])*\""
_FRONT_LINE = re.compile(
    rf" {{0,4}}(?:- )?(?:{_FRONT_TEXT}|{_FRONT_KEY}:(?: {_FRONT_VALUE})?|{_FRONT_VALUE})"
)
"""A line of the card's front matter, by which programs load the data: it names no address."""


def find_active_svg(data: bytes) -> str | None:
    """Return the first part of a figure that medlive's own figures do not have; None if there is none."""
    if declared := _DECLARATION_OF_XML.search(data):
        return repr(declared[0])
    try:
        figure = ElementTree.fromstring(data.decode("utf-8"))
    except (UnicodeDecodeError, ElementTree.ParseError) as exc:
        return str(exc)[:_MAX_SHOWN]
    faults = map(_element_fault, figure.iter())
    return next((fault[:_MAX_SHOWN] for fault in faults if fault), None)


def _element_fault(element: ElementTree.Element) -> str | None:
    """What is not allowed in an element by itself; None if all is."""
    name = element.tag.removeprefix(_SVG)
    if name not in _ELEMENTS or name == element.tag:
        return name
    if name == "style":
        if element.attrib or len(element):
            return name
        if not _CSS.fullmatch(element.text or ""):
            return element.text
    for attribute, value in element.items():
        pattern = _VALUES.get(attribute)
        if pattern is None or not pattern.fullmatch(value):
            return f"{attribute}={value!r}"
    return None


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
    """The first HTML, link, image or formula in a line that is not the card's own; None if there is none."""
    if row in _ALERTS or _PAGE_TAG.fullmatch(row):
        return None
    if "\r" in row or (("```" in row or "~~~" in row) and not _FENCE.fullmatch(row)):
        return row[:_MAX_SHOWN]
    for token in _PAGE_TOKEN.finditer(row):
        start = token.start()
        image = _IMAGE.match(row, start)
        is_own = image and image[1] in REQUIRED and row[:start].endswith("!")
        if not is_own and not token[0].startswith("\\"):
            return row[max(0, start - 1) : start + _MAX_SHOWN]
    return None
