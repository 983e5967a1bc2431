"""Charts as SVG text: bars, stacked and grouped bars, columns over time, histograms.

The same values make the same bytes on every machine: no clock, no font is measured, no script, nothing fetched.
Every chart brings its own background, in light and in dark where the viewer says which, so that it reads on any
page; it is 440 units wide, so that its text is still about 10 px where a telephone shows it on 328 px. The numbers
stand beside the marks, and in `<desc>` for who hears the chart instead of seeing it.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 440
"""Units of every chart; at its natural size one is a pixel."""

_PAD: Final = 14
_SIZE: Final = 14
_SMALL: Final = 12
_ROW: Final = 23
_MOST_TOLD: Final = 120
"""How many values `<desc>` tells; a chart with more says how many it leaves out."""
_MOST_TEXT: Final = 300
"""Characters of one text that any chart tells; the rest of a longer one is cut with an ellipsis."""

# The families that hold Chinese on the usual systems come after each system's own face.
_STYLE: Final = (
    ".mc{font-family:system-ui,-apple-system,'Segoe UI','Noto Sans','PingFang SC','Hiragino Sans GB',"
    "'Microsoft YaHei','Noto Sans CJK SC','WenQuanYi Micro Hei',sans-serif;"
    "font-size:14px;max-width:100%;height:auto}"
    ".mc-p{fill:#fff;stroke:#d0d7de}.mc text{fill:#1f2328}.mc .mc-m{fill:#59636e}.mc-s{font-size:12px}"
    ".mc-h{font-size:16px;font-weight:600}.mc-b{font-weight:600}.mc-g{stroke:#d8dee4}.mc-t{fill:#eaeef2}"
    ".mc-0{fill:#2166ac}.mc-1{fill:#b35806}.mc-2{fill:#1b7837}.mc-3{fill:#8e3b8c}.mc-4{fill:#7a6a00}.mc-5{fill:#5f6b76}"
    "@media (prefers-color-scheme:dark){.mc-p{fill:#161b22;stroke:#3d444d}.mc text{fill:#e6edf3}"
    ".mc .mc-m{fill:#9da7b3}.mc-g{stroke:#3d444d}.mc-t{fill:#2a313c}.mc-0{fill:#6cb0f0}.mc-1{fill:#f0a35e}"
    ".mc-2{fill:#7cc68d}.mc-3{fill:#d59ad3}.mc-4{fill:#d6c34a}.mc-5{fill:#aab4bf}}"
)
_COLOURS: Final = 6

_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""What XML cannot hold, and what turns a line's direction or breaks it."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What a chart says of itself."""

    title: str
    description: str
    """One sentence for `<desc>`; the values are added to it."""
    metadata: str = ""
    """Kept in `<metadata>`; not shown."""
    note: str = ""
    """A line under the chart."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One labelled value, not negative; `text` is how it is written, the value itself where it is empty."""

    label: str
    value: float
    text: str = ""

    @property
    def said(self) -> str:
        """The value as the chart writes it."""
        return self.text or number(self.value)


@dataclass(frozen=True, slots=True)
class Group:
    """Bars under one heading; an empty heading takes no room. All groups of a chart share one scale."""

    heading: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled row of several series: a value, not negative, for each of them."""

    label: str
    values: Sequence[float]


def number(value: float) -> str:
    """A number for people: `1,568`, `0.472`."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3f}"


def bars(frame: Frame, groups: Sequence[Group]) -> str:
    """Horizontal bars, their values behind them and their labels before them, or above where those are long."""
    every = [bar for group in groups for bar in group.bars]
    most = max((bar.value for bar in every), default=0)
    out = _Drawing(frame, [(bar.label, bar.said) for bar in every])
    if not every:
        out.empty()
        return out.svg()
    behind = max(_width(bar.said, _SIZE) for bar in every) + 8
    before = max(_width(bar.label, _SIZE) for bar in every) + 8
    inner = WIDTH - 2 * _PAD
    beside = inner - before - behind >= inner / 4
    left = _PAD + before if beside else _PAD
    for group in groups:
        if group.heading:
            out.heading(group.heading)
        for bar in group.bars:
            if not beside:
                out.y += 19
                out.text(_PAD, out.y, bar.label, room=inner)
            else:
                out.text(_PAD, out.y + 16, bar.label, room=before)
            span = WIDTH - _PAD - behind - left
            out.tooltip(f"{bar.label}: {bar.said}")
            out.rect(left, out.y + 5, span, 13, "mc-t")
            out.rect(left, out.y + 5, _share(bar.value, most) * span, 13, "mc-0")
            out.end()
            out.text(WIDTH - _PAD, out.y + 16, bar.said, anchor="end")
            out.y += _ROW
        out.y += 6
    return out.svg()


def stacked(frame: Frame, series: Sequence[str], rows: Sequence[Row]) -> str:
    """Horizontal bars divided among series, with a legend; at most six series.

    Raises ValueError where there are more, or a row has another number of values.
    """
    return _series(frame, series, rows, stack=True)


def grouped(frame: Frame, series: Sequence[str], rows: Sequence[Row]) -> str:
    """For each row a horizontal bar per series, with a legend; at most six series.

    Raises ValueError where there are more, or a row has another number of values.
    """
    return _series(frame, series, rows, stack=False)


def _series(frame: Frame, series: Sequence[str], rows: Sequence[Row], *, stack: bool) -> str:
    if len(series) > _COLOURS:
        raise ValueError(f"at most {_COLOURS} series can be told apart, not {len(series)}")
    if any(len(row.values) != len(series) for row in rows):
        raise ValueError("every row needs a value for each series")
    told = [(f"{row.label}, {s}", number(v)) for row in rows for s, v in zip(series, row.values, strict=True)]
    out = _Drawing(frame, told)
    if not told:
        out.empty()
        return out.svg()
    out.legend(series)
    most = max(sum(row.values) if stack else max(row.values) for row in rows)
    ends = [sum(row.values) for row in rows] if stack else [v for row in rows for v in row.values]
    behind = max(_width(number(v), _SIZE) for v in ends) + 8
    span = WIDTH - 2 * _PAD - behind
    for row in rows:
        out.y += 19
        out.text(_PAD, out.y, row.label, room=WIDTH - 2 * _PAD)
        x = float(_PAD)
        for place, (name, value) in enumerate(zip(series, row.values, strict=True)):
            wide = _share(value, most) * span
            out.tooltip(f"{row.label}, {name}: {number(value)}")
            out.rect(x, out.y + 5, wide, 13, f"mc-{place}")
            out.end()
            if stack:
                x += wide
            else:
                out.text(WIDTH - _PAD, out.y + 16, number(value), anchor="end")
                out.y += 17
        if stack:
            out.text(WIDTH - _PAD, out.y + 16, number(sum(row.values)), anchor="end")
            out.y += 17
        out.y += 8
    return out.svg()


def columns(frame: Frame, values: Sequence[Bar]) -> str:
    """Upright columns in the order given, such as months; labels under as many of them as there is room for."""
    return _upright(frame, values, gap=0.25)


def histogram(frame: Frame, counts: Mapping[int, int], *, most_bins: int = 30) -> str:
    """How often each whole number occurs, the ones between that do not occur included.

    Where the numbers span more than `most_bins`, neighbours share a column, which its label then says (`0-9`).
    """
    if not counts:
        return _upright(frame, (), gap=0.08)
    low, high = min(counts), max(counts)
    wide = _nice_step(high - low + 1, most_bins)
    start = low if wide == 1 else low // wide * wide
    tally = [0] * ((high - start) // wide + 1)
    for value, count in counts.items():
        tally[(value - start) // wide] += count
    firsts = [start + place * wide for place in range(len(tally))]
    labels = [str(first) if wide == 1 else f"{first}-{first + wide - 1}" for first in firsts]
    return _upright(frame, [Bar(label, n) for label, n in zip(labels, tally, strict=True)], gap=0.08)


def _upright(frame: Frame, values: Sequence[Bar], *, gap: float) -> str:
    out = _Drawing(frame, [(bar.label, bar.said) for bar in values])
    if not values:
        out.empty()
        return out.svg()
    most = max(bar.value for bar in values)
    step = _tick(most)
    top = max(step, math.ceil(most / step) * step)
    ticks = [step * k for k in range(round(top / step) + 1)]
    left = _PAD + max(_width(number(tick), _SMALL) for tick in ticks) + 6
    tall, upper = 170.0, out.y + 18
    for tick in ticks:
        at = upper + tall * (1 - tick / top)
        out.line(left, at, WIDTH - _PAD, at)
        out.text(left - 6, at + 4, number(tick), anchor="end", classes="mc-m mc-s")
    pitch = (WIDTH - _PAD - left) / len(values)
    # A lone column would fill the whole width and look like a background.
    wide = min(pitch * (1 - gap), 48.0)
    labels = [_fit(plain(bar.label), WIDTH / 2, _SMALL) for bar in values]
    widest = max(_width(label, _SMALL) for label in labels) + 8
    every = max(1, math.ceil(widest / pitch))
    valued = all(_width(bar.said, _SMALL) + 2 <= pitch for bar in values)
    free = 0.0
    for place, (bar, label) in enumerate(zip(values, labels, strict=True)):
        middle = left + pitch * (place + 0.5)
        high = _share(bar.value, top) * tall
        out.tooltip(f"{bar.label}: {bar.said}")
        out.rect(middle - wide / 2, upper + tall - high, wide, high, "mc-0")
        out.end()
        if valued and bar.value:
            out.text(middle, upper + tall - high - 4, bar.said, anchor="middle", classes="mc-s")
        half = _width(label, _SMALL) / 2
        # The first and last labels would otherwise run over the edge of a narrow column.
        at = min(max(middle, _PAD + half), WIDTH - _PAD - half)
        if place % every == 0 and at - half >= free:
            out.text(at, upper + tall + 17, label, anchor="middle", classes="mc-m mc-s")
            free = at + half + 4
    out.y = upper + tall + 26
    return out.svg()


def _share(value: float, most: float) -> float:
    return value / most if most > 0 else 0.0


def _tick(most: float) -> float:
    """A round distance between grid lines, so that about four of them reach `most`."""
    if most <= 4:
        return 1.0
    size = 10.0 ** math.floor(math.log10(most / 4))
    return next(size * k for k in (1, 2, 2.5, 5, 10) if size * k * 4 >= most)


def _nice_step(span: int, most: int) -> int:
    """The smallest of 1, 2, 5, 10, 20, … by which `span` makes at most `most` parts."""
    size = 1
    while True:
        for step in (size, 2 * size, 5 * size):
            if math.ceil(span / step) < most or (step == 1 and span <= most):
                return step
        size *= 10


def plain(text: str, most: int = _MOST_TEXT) -> str:
    """A text on one line, as XML may hold it: other characters become U+FFFD, line ends and tabs a space.

    One of more than `most` characters is cut, and ends in an ellipsis.
    """
    if len(text) > most:
        text = text[: most - 1] + "…"
    text = re.sub(r"[\t\r\n]+", " ", text)
    return _UNSAFE.sub("\ufffd", text)


def _escape(text: str) -> str:
    """A text for an element's content or an attribute in double quotes."""
    for raw, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(raw, name)
    return text


# Widths in thousandths of the size, those of the widest of the usual faces; whatever is not listed takes 640.
_WIDTHS: Final = {
    **dict.fromkeys("ijlI.,:;'|! ", 320),
    **dict.fromkeys("frt()[]-/\\", 410),
    **dict.fromkeys("cksvxyz", 600),
    **dict.fromkeys("mwMW@%", 970),
    **dict.fromkeys("ABCDEFGHKLNOPQRSTUVXYZ&", 740),
}


def _width(text: str, size: int) -> float:
    """About how wide a text is drawn: from a small table, since the viewer's font is not known here."""
    # By code point and not by Unicode's tables, which differ between versions of Python.
    return sum(_WIDTHS.get(c, 640) if ord(c) < 0x1100 else 1000 for c in plain(text)) * size / 1000


def _fit(text: str, room: float, size: int) -> str:
    if _width(text, size) <= room:
        return text
    while text and _width(text + "…", size) > room:
        text = text[:-1]
    return text.rstrip() + "…"


def _wrap(text: str, room: float, size: int) -> list[str]:
    """A text as lines that fit, broken at spaces, or between any two characters where there is none."""
    rows = [""]
    for piece in re.findall(r"[\u1100-\uffff\U00010000-\U0010ffff]|[^\s\u1100-\U0010ffff]+|\s+", text):
        if _width(rows[-1] + piece, size) <= room:
            rows[-1] += piece
        elif not piece.isspace():
            rows[-1] = rows[-1].rstrip()
            rows.append(_fit(piece, room, size))
    return [row for row in rows if row]


def _coordinate(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


class _Drawing:
    """SVG as it is put together from the top down; `y` is where the next thing may begin."""

    def __init__(self, frame: Frame, told: Sequence[tuple[str, str]]) -> None:
        self._frame, self._told = frame, told
        self._parts: list[str] = []
        self.y = 12.0
        # As if of 19 units: bold text is wider than the table's.
        for row in _wrap(plain(frame.title), WIDTH - 2 * _PAD, 19):
            self.y += 21
            self.text(_PAD, self.y - 4, row, classes="mc-h")
        self.y += 8

    def text(
        self, x: float, y: float, text: str, *, anchor: str = "", classes: str = "", room: float | None = None
    ) -> None:
        """Write a text on one line, cut with an ellipsis where it is wider than `room`."""
        size = _SMALL if "mc-s" in classes else _SIZE
        shown = plain(text) if room is None else _fit(plain(text), room, size)
        more = (f' text-anchor="{anchor}"' if anchor else "") + (f' class="{classes}"' if classes else "")
        self._parts.append(f'<text x="{_coordinate(x)}" y="{_coordinate(y)}"{more}>{_escape(shown)}</text>')

    def rect(self, x: float, y: float, wide: float, high: float, classes: str) -> None:
        """Draw a mark; one of no size is left out, one that would be too thin to see is a unit wide."""
        if wide > 0 and high > 0:
            size = f'width="{_coordinate(max(wide, 1.0))}" height="{_coordinate(max(high, 1.0))}"'
            self._parts.append(f'<rect x="{_coordinate(x)}" y="{_coordinate(y)}" {size} class="{classes}"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """Draw a line of the grid."""
        ends = zip(("x1", "y1", "x2", "y2"), (x1, y1, x2, y2), strict=True)
        self._parts.append("<line " + " ".join(f'{n}="{_coordinate(v)}"' for n, v in ends) + ' class="mc-g"/>')

    def tooltip(self, text: str) -> None:
        """Begin a group of marks that tells `text` to who points at it; `end` closes it."""
        self._parts.append(f"<g><title>{_escape(plain(text))}</title>")

    def end(self) -> None:
        """Close what `tooltip` began."""
        self._parts.append("</g>")

    def heading(self, text: str) -> None:
        """Write the heading of a group."""
        self.y += 17
        self.text(_PAD, self.y, text, classes="mc-b", room=WIDTH - 2 * _PAD)
        self.y += 4

    def legend(self, names: Sequence[str]) -> None:
        """Write the series' names, each with its colour, on as many lines as they take."""
        x = float(_PAD)
        self.y += 14
        for place, name in enumerate(names):
            shown = _fit(plain(name), WIDTH - 2 * _PAD - 18, _SMALL)
            wide = 18 + _width(shown, _SMALL) + 12
            if x > _PAD and x + wide - 12 > WIDTH - _PAD:
                x, self.y = float(_PAD), self.y + 18
            self.rect(x, self.y - 10, 12, 12, f"mc-{place}")
            self.text(x + 18, self.y, shown, classes="mc-s")
            x += wide
        self.y += 6

    def empty(self) -> None:
        """Say that there is nothing to show."""
        self.y += 18
        self.text(_PAD, self.y, "no data", classes="mc-m")
        self.y += 10

    def svg(self) -> str:
        """The whole file, with a line end."""
        for row in _wrap(plain(self._frame.note), WIDTH - 2 * _PAD, _SMALL):
            self.y += 16
            self.text(_PAD, self.y, row, classes="mc-m mc-s")
        tall = math.ceil(self.y + 12)
        title, metadata = _escape(plain(self._frame.title)), _escape(plain(self._frame.metadata))
        told = _escape(" ".join(_tell(plain(self._frame.description), self._told)))
        # Two charts on one page must not share the ids that name and describe them.
        mark = hashlib.sha256(f"{title}\n{told}".encode()).hexdigest()[:12]
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="mc" role="img" aria-labelledby="t{mark} d{mark}" '
            f'width="{WIDTH}" height="{tall}" viewBox="0 0 {WIDTH} {tall}">\n'
            f'<title id="t{mark}">{title}</title>\n<desc id="d{mark}">{told}</desc>\n'
        )
        return (
            head
            + (f"<metadata>{metadata}</metadata>\n" if metadata else "")
            + f"<style>{_STYLE}</style>\n"
            + f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{tall - 1}" rx="6" class="mc-p"/>\n'
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )


def _tell(description: str, told: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield description
    said: Iterable[str] = (f"{plain(label)}: {plain(text)}" for label, text in told[:_MOST_TOLD])
    if told:
        yield "; ".join(said) + (f"; and {len(told) - _MOST_TOLD} more." if len(told) > _MOST_TOLD else ".")
