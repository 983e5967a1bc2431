"""Charts as SVG text (`bars`, `intervals`, `columns`, `histogram`), for a snapshot's card and the audit's pages.

The same values make the same bytes on every machine: no clock, no font is measured, no script, nothing fetched.
Every chart brings its own background, in light and in dark where the viewer says which, so that it reads on any
page. It is 440 units wide, so that its text is still about 10 px where a telephone shows it on 328 px. The numbers
are beside or on the marks, and in `<desc>` for those who hear the chart instead of seeing it.
"""

import hashlib
import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

WIDTH = 440
"""The width of a chart in units; one unit is a pixel at its natural size."""
# Also in units: margin, width inside it, sizes of text, height of a row
_PAD = 14
_INNER = WIDTH - 2 * _PAD
_SIZE = 14
_SMALL = 12
_ROW = 23
_MOST_TEXT = 300
"""The most characters of one text in a chart; a longer one is cut, and ends in an ellipsis."""
_MOST_NOTE = 1_500
"""The same for the note under a chart."""

# The families that hold Chinese on the usual systems come after each system's own font.
_STYLE = (
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
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""Characters that XML cannot hold, or that turn a line's direction or break it."""

# Widths of characters in thousandths of the font size, by the widest of the usual fonts; 640 for all others.
_WIDTHS = {
    **dict.fromkeys("ijlI.,:;'|! ", 320),
    **dict.fromkeys("frt()[]-/\\", 410),
    **dict.fromkeys("cksvxyz", 600),
    **dict.fromkeys("mwMW@%", 970),
    **dict.fromkeys("+=<>~", 840),
    **dict.fromkeys("ABCDEFGHKLNOPQRSTUVXYZ&", 740),
}


@dataclass(frozen=True)
class Frame:
    """The texts around a chart."""

    title: str
    description: str  # One sentence for `<desc>`; the values are added to it
    metadata: str = ""  # Kept in `<metadata>`; not shown
    note: str = ""  # A line under the chart


@dataclass(frozen=True)
class Bar:
    """One labelled value, not negative; `text` is how it is written; if it is empty, the value itself."""

    label: str
    value: float
    text: str = ""

    @property
    def written(self) -> str:
        """The value as the chart writes it."""
        return self.text or number(self.value)


def number(value: float) -> str:
    """A number for people: `1,568`, `0.472`."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3f}"


def plain(text: str, most: int = _MOST_TEXT) -> str:
    """A text on one line, as XML may hold it: other characters become U+FFFD, line ends and tabs a space.

    A text of more than `most` characters is cut, and ends in an ellipsis.
    """
    if len(text) > most:
        text = text[: most - 1] + "…"
    text = re.sub(r"[\t\r\n]+", " ", text)
    return _UNSAFE.sub("\ufffd", text)


def bars(
    frame: Frame,
    groups: Mapping[str, Sequence[Bar]],
) -> str:
    """Horizontal bars on one scale, with labels before and values behind them.

    `groups` are bars by heading; an empty heading is not written.
    """
    every = list(chain.from_iterable(groups.values()))
    drawing = _Drawing(frame, every)
    if not every:
        return drawing.empty()
    most = max(bar.value for bar in every)
    behind = max(_width(bar.written, _SIZE) for bar in every) + 8
    before = max(_width(bar.label, _SIZE) for bar in every) + 8
    before = min(before, _INNER * 3 / 4 - behind)
    left = _PAD + before
    span = WIDTH - _PAD - behind - left
    for heading, group in groups.items():
        if heading:
            drawing.heading(heading)
        for bar in group:
            drawing.text(
                _PAD,
                drawing.y + 16,
                bar.label,
                room=before,
            )
            length = bar.value / (most or 1.0) * span
            drawing.marks(
                bar,
                (left, drawing.y + 5, span, 13, "mc-t"),
                (left, drawing.y + 5, length, 13, "mc-0"),
            )
            drawing.text(
                WIDTH - _PAD,
                drawing.y + 16,
                bar.written,
                anchor="end",
            )
            drawing.y += _ROW
        drawing.y += 6
    return drawing.svg()


def intervals(
    frame: Frame,
    rows: Sequence[tuple[str, float, float | None, float | None]],
) -> str:
    """Values as marks on one scale that includes 0, with lines for the intervals of those that have one.

    `rows` are (label, value, low, high). A row's label and figures are above its mark.
    """
    values = []
    ends = [0.0]
    for label, value, low, high in rows:
        ends += [end for end in (value, low, high) if end is not None]
        text = f"{value:.1f}"
        if low is not None and high is not None:
            text += f" ({low:.1f} to {high:.1f})"
        values.append(Bar(label, value, text))
    out = _Drawing(frame, values)
    if not values:
        return out.empty()
    least = min(ends)
    unit = _INNER / ((max(ends) - least) or 1.0)

    def at(value: float) -> float:
        return _PAD + (value - least) * unit

    for bar, (_, value, low, high) in zip(values, rows, strict=True):
        out.y += 19
        out.text(
            _PAD,
            out.y,
            bar.label,
            room=_INNER - _width(bar.written, _SIZE) - 8,
        )
        out.text(
            WIDTH - _PAD,
            out.y,
            bar.written,
            anchor="end",
        )
        start = wide = 0.0
        if low is not None and high is not None:
            start, wide = at(low), at(high) - at(low)
        out.marks(
            bar,
            (_PAD, out.y + 5, _INNER, 13, "mc-t"),
            (at(0.0), out.y + 5, 1, 13, "mc-5"),
            (start, out.y + 10, wide, 3, "mc-0"),
            (at(value) - 3, out.y + 7, 6, 9, "mc-0"),
        )
        out.y += _ROW
    return out.svg()


def columns(
    frame: Frame,
    values: Sequence[Bar],
    *,
    gap: float = 0.25,
) -> str:
    """Upright columns in the order of `values`, such as months, with as many labels under them as fit.

    `gap` is the share of the width for one column that is empty.
    """
    out = _Drawing(frame, values)
    if not values:
        return out.empty()
    most = max(bar.value for bar in values)
    step = _tick_step(most)
    top = max(step, math.ceil(most / step) * step)
    ticks = [step * k for k in range(round(top / step) + 1)]
    left = _PAD + max(_width(number(tick), _SMALL) for tick in ticks) + 6
    tall, upper = 170.0, out.y + 18
    for tick in ticks:
        at = upper + tall * (1 - tick / top)
        out.grid_line(left, WIDTH - _PAD, at)
        out.text(
            left - 6,
            at + 4,
            number(tick),
            anchor="end",
            classes="mc-m mc-s",
        )
    pitch = (WIDTH - _PAD - left) / len(values)
    # A lone column would fill the whole width and look like a background.
    wide = min(pitch * (1 - gap), 48.0)
    labels = [_fit(plain(bar.label), WIDTH / 2, _SMALL) for bar in values]
    widest = max(_width(label, _SMALL) for label in labels) + 8
    every = max(1, math.ceil(widest / pitch))
    valued = all(_width(bar.written, _SMALL) + 2 <= pitch for bar in values)
    free = 0.0
    for place, (bar, label) in enumerate(zip(values, labels, strict=True)):
        middle = left + pitch * (place + 0.5)
        high = bar.value / top * tall
        upper_end = upper + tall - high
        out.marks(bar, (middle - wide / 2, upper_end, wide, high, "mc-0"))
        if valued and bar.value:
            out.text(
                middle, upper_end - 4, bar.written, anchor="middle", classes="mc-s"
            )
        half = _width(label, _SMALL) / 2
        # The first and last labels would otherwise run over the edge of a narrow column.
        at = min(max(middle, _PAD + half), WIDTH - _PAD - half)
        if place % every == 0 and at - half >= free:
            out.text(
                at,
                upper + tall + 17,
                label,
                anchor="middle",
                classes="mc-m mc-s",
            )
            free = at + half + 4
    out.y = upper + tall + 26
    return out.svg()


def histogram(
    frame: Frame,
    counts: Mapping[int, int],
) -> str:
    """Columns that show how often each whole number occurs, from the least to the greatest, those between included."""
    values = []
    for value in range(min(counts, default=0), max(counts, default=-1) + 1):
        values.append(Bar(str(value), counts.get(value, 0)))
    return columns(frame, values, gap=0.08)


def _tick_step(most: float) -> float:
    """A round distance between grid lines, so that about four of them reach `most`; in whole numbers."""
    if most <= 4:
        return 1.0
    size = 10.0 ** math.floor(math.log10(most / 4))
    return next(size * k for k in (1, 2, 2.5, 5, 10) if size * k * 4 >= most)


def _width(text: str, size: int) -> float:
    """About how wide a text is drawn, in units: by a small table, since the viewer's font is not known."""
    # By code point and not by Unicode's tables, which differ between versions of Python.
    whole = 0
    for character in plain(text):
        wide = ord(character) >= 0x1100
        whole += 1000 if wide else _WIDTHS.get(character, 640)
    return whole * size / 1000


def _fit(
    text: str,
    room: float,
    size: int,
) -> str:
    """A text, cut with an ellipsis where it is wider than `room` units."""
    if _width(text, size) <= room:
        return text
    while text and _width(text + "…", size) > room:
        text = text[:-1]
    return text.rstrip() + "…"


def _wrap(text: str, size: int) -> list[str]:
    """A text as lines that fit, broken at spaces; a word that no line holds is cut."""
    rows: list[str] = []
    for word in text.split():
        longer = f"{rows[-1]} {word}" if rows else word
        if rows and _width(longer, size) <= _INNER:
            rows[-1] = longer
        else:
            rows.append(_fit(word, _INNER, size))
    return rows


def _escape(text: str) -> str:
    """A text for an element's content or an attribute in double quotes."""
    return html.escape(text, quote=False).replace('"', "&quot;")


def _unit(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


class _Drawing:
    """An SVG file that is put together from the top down; `y` is where the next thing may begin."""

    def __init__(
        self,
        frame: Frame,
        values: Sequence[Bar],
    ) -> None:
        self._frame, self._values = frame, values
        self._parts: list[str] = []
        self.y = 12.0
        # Wrapped as if of size 19, drawn at 16: bold text is wider than the table says.
        for row in _wrap(plain(frame.title), 19):
            self.y += 21
            self.text(_PAD, self.y - 4, row, classes="mc-h")
        self.y += 8

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "",
        classes: str = "",
        room: float | None = None,
    ) -> None:
        """Write a text on one line, cut with an ellipsis where it is wider than `room`."""
        shown = plain(text) if room is None else _fit(plain(text), room, _SIZE)
        more = f' text-anchor="{anchor}"' if anchor else ""
        if classes:
            more += f' class="{classes}"'
        self._parts.append(
            f'<text x="{_unit(x)}" y="{_unit(y)}"{more}>{_escape(shown)}</text>'
        )

    def marks(
        self,
        bar: Bar,
        *marks: tuple[float, float, float, float, str],
    ) -> None:
        """Draw rectangles (left, top, width, height, class) that show a value's text when pointed at.

        A rectangle without a size is left out; one too thin to see is drawn 1 unit wide or high.
        """
        text = plain(f"{bar.label}: {bar.written}")
        self._parts.append(f"<g><title>{_escape(text)}</title>")
        for x, y, wide, high, classes in marks:
            if wide > 0 and high > 0:
                size = (
                    f'width="{_unit(max(wide, 1.0))}" height="{_unit(max(high, 1.0))}"'
                )
                self._parts.append(
                    f'<rect x="{_unit(x)}" y="{_unit(y)}" {size} class="{classes}"/>'
                )
        self._parts.append("</g>")

    def grid_line(
        self,
        left: float,
        right: float,
        y: float,
    ) -> None:
        """Draw a line of the grid."""
        at = _unit(y)
        self._parts.append(
            f'<line x1="{_unit(left)}" y1="{at}" x2="{_unit(right)}" y2="{at}" class="mc-g"/>'
        )

    def heading(self, text: str) -> None:
        """Write the heading of a group."""
        self.y += 17
        # Bold text is wider than the table says.
        self.text(
            _PAD,
            self.y,
            text,
            classes="mc-b",
            room=0.9 * _INNER,
        )
        self.y += 4

    def empty(self) -> str:
        """The whole file of a chart without values, which says so."""
        self.y += 18
        self.text(_PAD, self.y, "no data", classes="mc-m")
        self.y += 10
        return self.svg()

    def svg(self) -> str:
        """The whole file: frame, style and marks, with a line end."""
        for row in _wrap(plain(self._frame.note, _MOST_NOTE), _SMALL):
            self.y += 16
            self.text(_PAD, self.y, row, classes="mc-m mc-s")
        tall = math.ceil(self.y + 12)
        title = _escape(plain(self._frame.title))
        metadata = _escape(plain(self._frame.metadata))
        description = plain(self._frame.description)
        if self._values:
            values = []
            for bar in self._values:
                values.append(f"{plain(bar.label)}: {plain(bar.written)}")
            description += f" {'; '.join(values)}."
        described = _escape(description)
        # Two charts on one page must not share the ids that name and describe them.
        mark = hashlib.sha256(f"{title}\n{described}".encode()).hexdigest()[:12]
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="mc" role="img" aria-labelledby="t{mark} d{mark}" '
            f'width="{WIDTH}" height="{tall}" viewBox="0 0 {WIDTH} {tall}">',
            f'<title id="t{mark}">{title}</title>',
            f'<desc id="d{mark}">{described}</desc>',
            *([f"<metadata>{metadata}</metadata>"] if metadata else []),
            f"<style>{_STYLE}</style>",
            f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{tall - 1}" rx="6" class="mc-p"/>',
            *self._parts,
            "</svg>\n",
        ]
        return "\n".join(lines)
