"""HTML that holds whatever a model or a forum wrote, and runs none of it: texts, tables, figures, whole pages."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Final

from medlive.evaluation.scoring.score import Estimate

_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
"""What HTML cannot hold. Line ends and tabs stay."""
_TURNING: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""What would turn the direction of the words that come after it."""
_STYLES: Final = re.compile(r"<style>(.*?)</style>", re.DOTALL)

NUMBER: Final = "n"
"""The class of a numeric cell."""


def t(text: object) -> str:
    """A text as HTML among others, or in an attribute in double quotes; what HTML cannot hold, and what would turn
    the words that follow, becomes U+FFFD."""
    return alone(_TURNING.sub("\ufffd", str(text)))


def alone(text: str) -> str:
    """The same for a text in an element of its own, that isolates its direction: what turns it stays."""
    return escape(_UNSAFE.sub("\ufffd", text))


def percent(score: float | None) -> str:
    """A score for people, in per cent, which its head or caption says; a dash where there is none."""
    return "–" if score is None else f"{100 * score:z.1f}"


def percents(low: float | None, high: float | None) -> str:
    """The interval of a score for people, in per cent; a dash where there is none."""
    return "–" if low is None or high is None else f"{percent(low)} to {percent(high)}"


def points(difference: float | None) -> str:
    """A difference of scores for people, in points of 100, with its sign; a dash where there is none."""
    return "–" if difference is None else f"{100 * difference:+z.1f}"


def points_around(low: float | None, high: float | None) -> str:
    """The interval of a difference for people, in points of 100; a dash where there is none."""
    return "–" if low is None or high is None else f"{points(low)} to {points(high)}"


def f(value: float | None) -> str:
    """A coefficient for people, as of agreement or correlation; a dash where there is none."""
    return "–" if value is None else f"{value:z.3f}"


def p_said(value: float | None) -> str:
    """A p for people: none is 0, however few of the draws went the other way."""
    return "–" if value is None else "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def around(low: float | None, high: float | None) -> str:
    """The interval of a coefficient for people; a dash where there is none."""
    return "–" if low is None or high is None else f"{f(low)} to {f(high)}"


def head_cell(value: object, more: str = "") -> str:
    """The cell that names its row; `more` is HTML. It stays in view when the table is scrolled sideways."""
    return f'<th scope="row">{t(value)}{more}</th>'


def number_cells(values: Iterable[str]) -> str:
    """Numeric cells of a row."""
    return "".join(f'<td class="{NUMBER}">{t(value)}</td>' for value in values)


def cells(values: Iterable[object]) -> str:
    """Plain cells of a row."""
    return "".join(f"<td>{t(value)}</td>" for value in values)


def wide_cells(values: Iterable[object]) -> str:
    """Cells of longer texts, which wrap."""
    return "".join(f'<td class="w">{t(value)}</td>' for value in values)


def under_cell(value: str, below: str, *, few: bool = False) -> str:
    """A number with what belongs to it in small under it; grey and slanted with `few`."""
    return f'<td class="{NUMBER}{" few" if few else ""}">{t(value)}<small>{t(below)}</small></td>'


def share_cell(count: int, of: int) -> str:
    """A share with the counts under it; a dash where there is nothing to have a share of."""
    return under_cell(f"{100 * count / of:.1f} %" if of else "–", f"{count} of {of}")


def estimate_cell(estimate: Estimate | None) -> str:
    """A score with its interval and n under it; a dash where there is none."""
    if estimate is None:
        return f'<td class="{NUMBER}">–</td>'
    below = f"{percents(estimate.low, estimate.high)} · n={estimate.n}"
    return under_cell(percent(estimate.mean), below, few=estimate.few)


def estimate_cells(estimate: Estimate) -> str:
    """Score, interval, bounds and n, as `ESTIMATE_HEADS` names them."""
    return number_cells(
        (
            percent(estimate.mean), percents(estimate.low, estimate.high),
            percents(estimate.least, estimate.most),
            str(estimate.n),
        )
    )  # fmt: skip


ESTIMATE_HEADS: Final = ("*score, %", "*95 % interval", "*bounds, %", "*n")
"""Heads for `estimate_cells`."""


def table(caption: str, heads: Sequence[str], rows: Iterable[str]) -> str:
    """A table in a box that scrolls by itself, by keyboard too. A head that begins with `*` is of numbers.

    `caption` and `heads` are text, `rows` are HTML.
    """
    named = "".join(
        f'<th scope="col"{f" class={NUMBER!r}" if head.startswith("*") else ""}>{t(head.removeprefix("*"))}</th>'
        for head in heads
    )
    return (
        # A caption within the table would be scrolled away with it on a narrow screen.
        f'<p class="caption">{t(caption)}</p>\n<div class="scroll" role="region" aria-label="{t(caption)}" '
        f'tabindex="0"><table aria-label="{t(caption)}">\n<thead><tr>{named}</tr></thead>\n'
        f"<tbody>{''.join(rows)}</tbody></table></div>\n"
    )


def shut(title: str, body: str) -> str:
    """A part that is opened at a click, and printed open; `body` is HTML."""
    return f"<details><summary>{t(title)}</summary>\n{body}</details>\n"


def beside(figure: str, more: str) -> str:
    """A figure and what belongs to it, side by side where there is room; both are HTML."""
    return f'<div class="beside">{figure}<div>{more}</div></div>\n' if more else figure


def row_of(*figures: str) -> str:
    """Figures side by side where they fit, each with the remarks under it; all are HTML."""
    return f'<div class="figures">{"".join(f"<div>{one}</div>" for one in figures)}</div>\n'


def section(name: str, title: str, *parts: str) -> str:
    """A part of a page under a heading; `name` is its anchor, `parts` are HTML."""
    return f'<section id="{name}">\n<h2>{t(title)}</h2>\n{"".join(parts)}</section>\n'


def missing(sentence: str) -> str:
    """What stands where a figure would: what is lacking and how to have it."""
    return f'<p class="missing">{t(sentence)}</p>\n'


def soft(sentence: str) -> str:
    """A remark."""
    return f'<p class="soft">{t(sentence)}</p>\n'


@dataclass(slots=True)
class Figures:
    """The figures of a report as they are drawn: file name without its ending → SVG."""

    drawn: dict[str, str] = field(default_factory=dict)
    png: bool = False
    """Whether each is there as PNG too, to be linked."""

    def add_parts(self, name: str, title: str, drawings: Sequence[tuple[str, str]]) -> str:
        """Keep a figure of several parts, each (which, SVG) with its own file, side by side where they fit."""
        parts = [
            self.add(name if k == 1 else f"{name}-{k}", f"{title}{f': {which}' if which else ''}", svg)
            for k, (which, svg) in enumerate(drawings, start=1)
        ]
        return parts[0] if len(parts) == 1 else f'<div class="figures">{"".join(parts)}</div>\n'

    def add(self, name: str, title: str, svg: str) -> str:
        """Keep a figure and return it as HTML: drawn in the page, with a link to its file."""
        self.drawn[name] = svg
        links = f'<a href="figures/{name}.svg">SVG</a>'
        links += f' · <a href="figures/{name}.png">PNG</a>' if self.png else ""
        # A wide one alone is scrolled; the others are drawn as small as their column.
        wide = ' class="mc mc-w"' in svg
        box = f' class="scroll" role="region" aria-label="{t(title)}" tabindex="0"' if wide else ""
        kind = ' class="wide"' if wide else ""
        return (
            f'<figure id="figure-{name}"{kind}><div{box}>\n{svg}</div>'
            f"<figcaption>{t(title)} · {links}</figcaption></figure>\n"
        )


MOST_NAMED: Final = 6
"""Names that a sentence gives; of more it says how many."""


def some(names: Sequence[str]) -> str:
    """Names for a sentence, a few of them and how many more: all of 38 models are read by nobody."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def upper_first(text: str) -> str:
    """A sentence's beginning."""
    return text[:1].upper() + text[1:]


def resource(name: str) -> str:
    """A file of this package."""
    return files("medlive.report").joinpath(name).read_text(encoding="utf-8")


def page(
    title: str, body: str, *,
    script: str = "", data: Mapping[str, str] | None = None, loads: bool = False, nav: str = "",
) -> str:  # fmt: skip
    """A whole page that runs `script` alone, asks for nothing and needs no other file.

    What may run is named by its digest in the page's own policy, so that markup that slipped through an escape
    would stay dead. `data`: element id → JSON as `json_text` writes it, for the script. `loads`: whether the
    script may load others, which markup may not all the same.
    """
    style = resource("style.css")
    styles = {style, *_STYLES.findall(body)}
    allowed = " ".join(sorted(_digest(text) for text in styles))
    scripts = (_digest(script) + (" 'strict-dynamic'" if loads else "")) if script else "'none'"
    policy = (
        f"default-src 'none'; style-src {allowed}; script-src {scripts}; base-uri 'none'; form-action 'none'; "
        "img-src 'none'"
    )
    blocks = "".join(
        f'<script type="application/json" id="{name}">{text}</script>\n' for name, text in (data or {}).items()
    )
    run = f"<script>{script}</script>\n" if script else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">\n'
        f"<title>{t(title)}</title>\n<style>{style}</style></head>\n<body>\n"
        f'<a class="skip" href="#main">Skip to the content</a>\n{nav}<main id="main">\n{body}</main>\n'
        f"{blocks}{run}</body></html>\n"
    )


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def json_text(text: str) -> str:
    """JSON as a script element may hold it: no `<` that could end the element."""
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
