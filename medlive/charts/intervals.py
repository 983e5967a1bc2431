"""Bars with intervals: a ranking, each value with how sure it is."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from medlive.charts.bars import tick_step
from medlive.charts.drawing import PAD, SIZE, SMALL, WIDTH, Drawing, Frame, fit, fit_middle, plain, text_width

_STYLE: Final = (
    ".mc-v0{fill:#2166ac;fill-opacity:.75}.mc-v1{fill:none;stroke:#b35806;stroke-width:1.5;stroke-dasharray:3 2}"
    ".mc-v2{fill:none;stroke:#1b7837;stroke-width:1.5}.mc-e{stroke:#1f2328;stroke-width:1.4}.mc-f{opacity:.5}"
    "@media (prefers-color-scheme:dark){.mc-v0{fill:#6cb0f0}.mc-v1{stroke:#f0a35e}.mc-v2{stroke:#7cc68d}"
    ".mc-e{stroke:#e6edf3}}"
)

_LEAST_SPAN: Final = 1e-6
"""A scale of less shows nothing but the noise of floating point."""
_MARKS: Final = ("mc-v0", "mc-v1", "mc-v2")


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its interval; both ends None where there is none. A faint one rests on too little."""

    value: float
    low: float | None = None
    high: float | None = None
    text: str = ""  # What stands behind the bar
    faint: bool = False


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
    frame: Frame, series: Sequence[str], groups: Sequence[IntervalGroup], *,
    least: float = 0, most: float = 0, axis: str = "",
) -> str:  # fmt: skip
    """Horizontal bars with an error bar each: the first series filled, the second outlined and dashed, the third
    outlined, so that none needs its colour.

    All share a scale from 0, or `least`, or the least end of any interval where that is lower, to `most` or the
    greatest end; charts that are read beside one another are given the same two. `axis` names the scale.
    Raises ValueError for more than three series, or a row of another number of values.
    """
    named = _named(series, [row for group in groups for row in group.rows])
    out = Drawing(frame, [(name, value.text) for name, value in named], style=_STYLE)
    if not named:
        return out.empty()
    low, high = _ends([value for _, value in named], least, most)
    behind = min(max(text_width(value.text, SMALL) for _, value in named) + 8, WIDTH / 2)
    left, span = float(PAD), WIDTH - 2 * PAD - behind

    def at(value: float) -> float:
        return left + (value - low) / (high - low) * span

    if len(series) > 1:
        _legend(out, series)
    top = out.y + 4
    tall = 17 * len(named) + sum(24 * bool(group.heading) + 21 * len(group.rows) for group in groups)
    step = tick_step(high - low)
    ticks = [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    for tick in ticks:
        out.line(at(tick), top, at(tick), top + tall)
        x = min(max(at(tick), PAD + 8), left + span)
        out.text(x, top + tall + 13, f"{tick:g}", anchor="middle", classes="mc-m mc-s")
    for group in groups:
        if group.heading:
            out.y += 3
            out.heading(group.heading)
        for row in group.rows:
            _row(out, series, row, behind - 8, at)
    out.y = top + tall + 13
    if axis:
        out.y += 15
        out.text(left + span / 2, out.y, axis, anchor="middle", classes="mc-m mc-s", room=span)
    out.y += 4
    return out.svg()


def _values(series: Sequence[str], row: IntervalRow) -> list[tuple[str, Interval | None]]:
    """A row's values, each with the row's and the series' name."""
    names = [f"{row.label}, {name}" if name else row.label for name in series]
    return list(zip(names, row.values, strict=True))


def _named(series: Sequence[str], rows: Sequence[IntervalRow]) -> list[tuple[str, Interval]]:
    if len(series) > len(_MARKS):
        raise ValueError(f"at most 3 series can be distinguished without colour, not {len(series)}")
    if any(len(row.values) != len(series) for row in rows):
        raise ValueError("every row needs a value for each series, or None")
    return [(name, value) for row in rows for name, value in _values(series, row) if value]


def _ends(values: Sequence[Interval], least: float, most: float) -> tuple[float, float]:
    """The ends of the scale."""
    ends = [end for v in values for end in (v.value, v.low, v.high) if end is not None]
    low, high = min(0.0, least, *ends), max(most, *ends)
    return low, high if high - low >= _LEAST_SPAN else low + 1.0


def _row(out: Drawing, series: Sequence[str], row: IntervalRow, room: float, at: Callable[[float], float]) -> None:
    out.y += 18
    out.text(PAD, out.y, fit_middle(plain(row.label), WIDTH - 2 * PAD, SIZE))
    for place, (name, value) in enumerate(_values(series, row)):
        if value is not None:
            _bar(out, place, replace(value, text=fit(plain(value.text), room, SMALL)), at, name)
    out.y += 3


def _bar(out: Drawing, place: int, value: Interval, at: Callable[[float], float], name: str) -> None:
    faint = " mc-f" if value.faint else ""
    zero, end = sorted((at(0.0), at(value.value)))
    middle = out.y + 11.5
    out.tooltip(f"{name}: {value.text}")
    out.rect(zero, out.y + 6, end - zero, 11, f"{_MARKS[place]}{faint}")
    if value.low is not None and value.high is not None:
        first, last = at(value.low), at(value.high)
        out.line(first, middle, last, middle, classes="mc-e")
        for x in (first, last):
            out.line(x, middle - 4, x, middle + 4, classes="mc-e")
    out.end()
    out.text(WIDTH - PAD, out.y + 16, value.text, anchor="end", classes="mc-m mc-s" if value.faint else "mc-s")
    out.y += 17


def _legend(out: Drawing, series: Sequence[str]) -> None:
    for place, name in enumerate(series):
        out.y += 16
        out.rect(PAD, out.y - 10, 22, 11, _MARKS[place])
        out.text(PAD + 30, out.y, name, classes="mc-s", room=WIDTH - 2 * PAD - 30)
    out.y += 4
