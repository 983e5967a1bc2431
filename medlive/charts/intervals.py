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
    text: str = ""
    """What stands behind the bar."""
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
    if len(series) > len(_MARKS):
        raise ValueError(f"at most 3 series can be told apart without colour, not {len(series)}")
    rows = [row for group in groups for row in group.rows]
    if any(len(row.values) != len(series) for row in rows):
        raise ValueError("every row needs a value for each series, or None")
    named = [(row.label, name, v) for row in rows for name, v in zip(series, row.values, strict=True) if v]
    out = Drawing(
        frame, [(f"{label}, {name}" if name else label, v.text) for label, name, v in named], style=_STYLE
    )
    if not named:
        out.empty()
        return out.svg()
    ends = [end for _, _, v in named for end in (v.value, v.low, v.high) if end is not None]
    low, high = min(0.0, least, *ends), max(most, *ends)
    if high - low < _LEAST_SPAN:
        high = low + 1.0
    behind = min(max(text_width(v.text, SMALL) for _, _, v in named) + 8, WIDTH / 2)
    left, span = float(PAD), WIDTH - 2 * PAD - behind

    def at(value: float) -> float:
        return left + (value - low) / (high - low) * span

    if len(series) > 1:
        _legend(out, series)
    top = out.y + 4
    tall = sum(24 if group.heading else 0 for group in groups)
    tall += sum(21 + 17 * sum(value is not None for value in row.values) for row in rows)
    step = tick_step(high - low)
    ticks = [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    for tick in ticks:
        out.line(at(tick), top, at(tick), top + tall)
    for group in groups:
        if group.heading:
            out.y += 3
            out.heading(group.heading)
        for row in group.rows:
            out.y += 18
            out.text(PAD, out.y, fit_middle(plain(row.label), WIDTH - 2 * PAD, SIZE))
            for place, value in enumerate(row.values):
                if value is not None:
                    name = f"{row.label}, {series[place]}" if series[place] else row.label
                    _bar(out, place, replace(value, text=fit(plain(value.text), behind - 8, SMALL)), at, name)
            out.y += 3
    out.y = top + tall + 13
    for tick in ticks:
        out.text(
            min(max(at(tick), PAD + 8), left + span), out.y, f"{tick:g}", anchor="middle", classes="mc-m mc-s"
        )
    if axis:
        out.y += 15
        out.text(left + span / 2, out.y, axis, anchor="middle", classes="mc-m mc-s", room=span)
    out.y += 4
    return out.svg()


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
