"""Values with intervals, a row each: a ranking or a forest of differences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from medlive.charts.bars import ticks_of
from medlive.charts.drawing import (
    PAD,
    SIZE,
    SMALL,
    WIDTH,
    Drawing,
    Frame,
    coordinate,
    fit,
    fit_middle,
    plain,
    text_width,
)

_STYLE: Final = (
    ".mc-v0{fill:#2166ac}.mc-v1{fill:#fff;stroke:#b35806;stroke-width:1.8}"
    ".mc-e0{stroke:#2166ac;stroke-width:2}.mc-e1{stroke:#b35806;stroke-width:1.5;stroke-dasharray:4 2}"
    ".mc-z{stroke:#59636e;stroke-width:1.2}.mc-f{opacity:.5}"
    "@media (prefers-color-scheme:dark){.mc-v0{fill:#6cb0f0}.mc-v1{fill:#161b22;stroke:#f0a35e}"
    ".mc-e0{stroke:#6cb0f0}.mc-e1{stroke:#f0a35e}.mc-z{stroke:#9da7b3}}"
)
_LEAST_SPAN: Final = 1e-6
"""A scale of less shows nothing but the noise of floating point."""
_LINE: Final = 19
_SERIES: Final = 2


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its interval; both ends None where there is none. A faint one rests on too little."""

    value: float
    low: float | None = None
    high: float | None = None
    text: str = ""  # What stands behind the interval
    more: str = ""  # What follows the text where there is room for it
    faint: bool = False

    @property
    def ends(self) -> list[float]:
        """The value and the known ends."""
        return [end for end in (self.value, self.low, self.high) if end is not None]


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """One labelled row: an interval for each series, None where it has none."""

    label: str
    values: Sequence[Interval | None]


@dataclass(frozen=True, slots=True)
class IntervalGroup:
    """Rows under one heading; an empty heading takes no room."""

    heading: str
    rows: Sequence[IntervalRow]


def intervals(
    frame: Frame,
    series: Sequence[str],
    groups: Sequence[IntervalGroup],
    *,
    ends: Sequence[float] = (),
    origin: float | None = None,
    axis: str = "",
) -> str:
    """A mark with a bar for each interval: the first series a dot, the second a hollow square and dashed, so that
    neither needs its colour. The label stands before the marks, or above them in a chart as narrow as a telephone.

    `series` has one name or two; the scale reaches `ends` too, as of charts that are read beside this one, and a
    line marks `origin`, such as no difference.

    Raises:
        ValueError: If there are more than two series, or a row has another number of values.
    """
    rows = list(chain.from_iterable(group.rows for group in groups))
    named, wide = _named(series, rows), frame.width > WIDTH
    values = [(name, value.text + value.more) for name, value in named]
    out = Drawing(frame, values, style=_STYLE)
    if not named:
        return out.empty()
    reach = [*ends] if origin is None else [*ends, origin]
    ticks = _scale([value for _, value in named], reach, 8 if wide else 4)
    texts = max(text_width(_text(value, wide), SMALL) for _, value in named)
    behind = min(texts + 12, frame.width / 2)
    left = PAD + 6.0 + (_label_width(rows, frame) if wide else 0.0)
    span = frame.width - PAD - behind - left - 6

    def at(value: float) -> float:
        return left + (value - ticks[0]) / (ticks[-1] - ticks[0]) * span

    if len(series) > 1:
        _legend(out, series)
    top = out.y + 4
    tall = _LINE * len(named) + (3 if wide else 21) * len(rows)
    tall += 24 * sum(bool(group.heading) for group in groups)
    _ticks(out, ticks, at, top, tall, origin)
    for group in groups:
        _group(out, series, group, at, left if wide else 0.0, behind - 10)
    out.y = top + tall + 14
    if axis:
        out.y += 16
        out.text(left, out.y, axis, classes="mc-m mc-s", room=frame.width - PAD - left)
    out.y += 4
    return out.svg()


def _group(
    out: Drawing,
    series: Sequence[str],
    group: IntervalGroup,
    at: Callable[[float], float],
    left: float,
    room: float,
) -> None:
    if group.heading:
        out.y += 3
        out.heading(group.heading)
    for row in group.rows:
        _row(out, series, row, at, left, room)


def _label_width(rows: Sequence[IntervalRow], frame: Frame) -> float:
    widest = max(text_width(row.label, SIZE) for row in rows)
    return min(max(widest + PAD, 110.0), 0.36 * frame.width)


def _scale(
    values: Sequence[Interval], reach: Sequence[float], most: int
) -> list[float]:
    """Ticks from below all values to above them."""
    ends = [*reach]
    for value in values:
        ends += value.ends
    low, high = min(ends), max(ends)
    return ticks_of(low, high if high - low >= _LEAST_SPAN else low + 1.0, most)


def _ticks(
    out: Drawing,
    ticks: Sequence[float],
    at: Callable[[float], float],
    top: float,
    tall: float,
    origin: float | None,
) -> None:
    """Vertical lines with their values below; the origin's is darker."""
    for tick in ticks:
        x, below = at(tick), top + tall
        out.line(x, top, x, below, classes="mc-z" if tick == origin else "mc-g")
        place = max(x, PAD + 8)
        out.text(place, below + 14, f"{tick:g}", anchor="middle", classes="mc-m mc-s")


def interval_lines(values: Sequence[Interval | None]) -> list[str]:
    """The same in characters: each interval as a line with a dot at its value, all on one scale; "" for none."""
    width = 33
    known = [end for value in values if value for end in value.ends]
    low, high = min(known, default=0.0), max(known, default=0.0)

    def at(end: float) -> int:
        return round((end - low) / (high - low or 1.0) * (width - 1))

    lines = []
    for value in values:
        line = [" "] * width
        for place in (
            range(at(min(value.ends)), at(max(value.ends)) + 1) if value else ()
        ):
            line[place] = "─"
        if value:
            line[at(value.value)] = "●"
        lines.append("".join(line).rstrip())
    return lines


def _row(
    out: Drawing,
    series: Sequence[str],
    row: IntervalRow,
    at: Callable[[float], float],
    left: float,
    room: float,
) -> None:
    """The label, before the marks where they begin at `left`, else above them, and a line for each value."""
    label = fit_middle(plain(row.label), (left or out.width) - 2 * PAD, SIZE)
    out.text(PAD, out.y + 17, label)
    out.y += 0 if left else 18
    for place, (name, value) in enumerate(_values(series, row)):
        if value is not None:
            _mark(out, place, value, at, name, room)
    out.y += 3


def _values(
    series: Sequence[str], row: IntervalRow
) -> list[tuple[str, Interval | None]]:
    """A row's values, each with the row's and the series' name."""
    names = [f"{row.label}, {name}" if name else row.label for name in series]
    return list(zip(names, row.values, strict=True))


def _named(
    series: Sequence[str], rows: Sequence[IntervalRow]
) -> list[tuple[str, Interval]]:
    if len(series) > _SERIES:
        raise ValueError(
            f"at most {_SERIES} series can be distinguished without colour, not {len(series)}"
        )
    if any(len(row.values) != len(series) for row in rows):
        raise ValueError("every row needs a value for each series, or None")
    return [
        (name, value) for row in rows for name, value in _values(series, row) if value
    ]


def _text(value: Interval, wide: bool) -> str:
    return value.text + (value.more if wide else "")


def _mark(
    out: Drawing,
    place: int,
    value: Interval,
    at: Callable[[float], float],
    name: str,
    room: float,
) -> None:
    faint = " mc-f" if value.faint else ""
    x, y = at(value.value), out.y + 12
    out.tooltip(f"{name}: {value.text}{value.more}")
    if value.low is not None and value.high is not None:
        first, last = at(value.low), at(value.high)
        out.line(first, y, last, y, classes=f"mc-e{place}{faint}")
        for end in (first, last):
            out.line(end, y - 4, end, y + 4, classes=f"mc-e{place}{faint}")
    _shape(out, place, x, y, faint)
    out.end()
    classes = "mc-m mc-s" if value.faint else "mc-s"
    out.text(
        out.width - PAD,
        out.y + 16,
        fit(plain(_text(value, out.width > WIDTH)), room, SMALL),
        anchor="end",
        classes=classes,
    )
    out.y += _LINE


def _shape(out: Drawing, place: int, x: float, y: float, faint: str = "") -> None:
    if place:
        out.rect(x - 4, y - 4, 8, 8, f"mc-v1{faint}")
    else:
        out.draw(
            f'<circle cx="{coordinate(x)}" cy="{coordinate(y)}" r="4.5" class="mc-v0{faint}"/>'
        )


def _legend(out: Drawing, series: Sequence[str]) -> None:
    for place, name in enumerate(series):
        out.y += 17
        out.line(PAD, out.y - 5, PAD + 24, out.y - 5, classes=f"mc-e{place}")
        _shape(out, place, PAD + 12, out.y - 5)
        out.text(PAD + 32, out.y, name, classes="mc-s", room=out.width - 2 * PAD - 32)
    out.y += 4
