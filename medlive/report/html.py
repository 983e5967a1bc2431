"""HTML from `templates/` (`render`, `page`), every text escaped: nothing that a model or a forum wrote is run."""

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any

from markupsafe import Markup, escape

from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.scoring.refusals import marked
from medlive.integrity.log import some
from medlive.statistics.charts import Frame, intervals
from medlive.text.html import NONE, environment, interval, percent

MOST_TEXT = 50_000
"""The most characters of one text that a page shows."""
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff"
_UNSAFE = re.compile(f"[{_CONTROLS}]")
"""What HTML cannot hold. Line ends and tabs stay."""
_UNSAFE_OR_TURNING = re.compile(f"[{_CONTROLS}\u202a-\u202e\u2066-\u2069]")
"""The same, and what would turn the direction of the words that come after it."""
_NUMBER = re.compile(r"(?<!\w)\d[\d.]{0,7}(?:[-/:]\d[\d.]{0,7}){1,3}(?!\d)")
"""A number or date with separators, short enough for every column; a digest may look like a longer one."""
_LACKS = '<p class="missing">'  # how the HTML of `missing` begins


def clean(value: object) -> object:
    """A template's value, before it is escaped: None becomes a dash, and U+FFFD replaces what HTML cannot hold or what
    would turn the direction of the words that follow."""
    if value is None:
        return NONE
    if hasattr(value, "__html__"):
        return value
    return _UNSAFE_OR_TURNING.sub("\ufffd", str(value))


def box(text: str) -> Markup:
    """A text of any length for an element of its own that isolates its direction; a text that is cut says so."""
    shown = escape(_UNSAFE.sub("\ufffd", text[:MOST_TEXT]))
    if len(text) > MOST_TEXT:
        cut = ' <span class="open" lang="en">[cut here: {:,} characters in all]</span>'
        shown += Markup(cut).format(len(text))
    return shown


def lang_of(case: EvaluationCase) -> str:
    """The language tag of a case's texts."""
    return "zh-Hans" if case.language == "zh" else "en"


def points(difference: float | None) -> str:
    """A difference of scores for people, in points of 100, with its sign."""
    return NONE if difference is None else f"{100 * difference:+z.1f}"


def coefficient(value: float | None) -> str:
    """A coefficient for people, as of agreement or correlation."""
    return NONE if value is None else f"{value:z.3f}"


def format_p(value: float | None) -> str:
    """A p for people; it is never written as 0."""
    if value is None:
        return NONE
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def utf8(text: str) -> bytes:
    """A text as a file's bytes; a lone surrogate, which an answer may hold and UTF-8 cannot, is escaped."""
    return text.encode("utf-8", "backslashreplace")


def file_name(case_id: str) -> str:
    """A file name for a case's page: safe on every system, and different for every id."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", case_id)[:40].strip("-")
    digest = hashlib.sha256(case_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{readable}-{digest}.html" if readable else f"{digest}.html"


def whole(text: object) -> Markup:
    """A text in which no line ends inside a number or date, as `2025-12-11` in a model's name."""
    if isinstance(text, Markup):
        return text
    # S704: the text is escaped, and a number needs no escape.
    marked_up = _NUMBER.sub(r'<span class="nb">\g<0></span>', str(escape(clean(text))))
    return Markup(marked_up)


TEMPLATES = environment("medlive.report", finalize=clean, keep_trailing_newline=True)
TEMPLATES.filters |= {
    "file_name": file_name,
    "whole": whole,
    "box": box,
    "lang": lang_of,
    "prefixed": "*{}".format,
}
TEMPLATES.globals |= {
    "percent": percent,
    "interval": interval,
    "points": points,
    "points_around": partial(interval, write=points),
    "coefficient": coefficient,
    "around": partial(interval, write=coefficient),
    "format_p": format_p,
    "marked": marked,
    "some": some,
}
_PARTS: Any = TEMPLATES.get_template("parts.html").module
missing: Callable[[str], Markup] = _PARTS.missing
"""`missing(sentence)`: a paragraph in place of a figure, which says what is lacking and how to get it."""
soft: Callable[[str], Markup] = _PARTS.soft
"""`soft(sentence)`: a paragraph with a remark."""


def render(name: str, **values: Any) -> Markup:
    """The HTML of a template, filled with `values`."""
    return Markup(TEMPLATES.get_template(name).render(values))


@dataclass(frozen=True)
class Section:
    """A part of a page under a heading."""

    name: str
    """Its anchor."""
    title: str
    parts: list[Markup]

    @property
    def lacking(self) -> bool:
        """Whether all its parts only say what is missing."""
        return all(
            part.count("</p>") == 1 and part.strip().startswith(_LACKS)
            for part in self.parts
        )


def picture(
    title: str,
    note: str,
    rows: Sequence[tuple[str, float, float | None, float | None]],
) -> Markup:
    """Shares with their intervals as an image, in per cent; `rows` otherwise as for `charts.intervals`.

    As an image it runs nothing, whatever its texts are; the table beside it holds the same figures.
    """
    in_percent = []
    for label, value, *ends in rows:
        low, high = (None if end is None else 100 * end for end in ends)
        in_percent.append((label, 100 * value, low, high))
    drawn = intervals(
        Frame(title, f"{title}.", note=note),
        in_percent,
    )
    data = base64.b64encode(drawn.encode()).decode("ascii")
    return Markup(_PARTS.picture(title, f"data:image/svg+xml;base64,{data}"))


def resource(name: str) -> str:
    """The text of a file of this package."""
    return files("medlive.report").joinpath(name).read_text(encoding="utf-8")


def page(
    title: str,
    body: Markup,
    nav: Sequence[tuple[str, str]],
    *,
    script: str = "",
    data: object = None,
) -> Markup:
    """A whole page that runs `script` alone, asks for nothing and needs no other file.

    What may run is named by its digest in the page's own policy, so that markup that slipped through an escape
    would not run. `nav`: (address, name) of other pages and parts. `data`: what the script reads, as JSON.
    """
    style = resource("style.css")
    scripts = _digest(script) if script else "'none'"
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {scripts}; base-uri 'none'; "
        "form-action 'none'; img-src data:"
    )
    return render(
        "page.html",
        title=title,
        body=body,
        nav=nav,
        script=script,
        data=data,
        style=style,
        policy=policy,
    )


def _digest(text: str) -> str:
    """A text's digest as a page's policy names it."""
    digest = hashlib.sha256(utf8(text)).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
