"""Lines over time: up to six in one plot, more in a plot each."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from medlive.charts.bars import ticks_of
from medlive.charts.drawing import (
    COLOURS,
    PAD,
    SMALL,
    WIDTH,
    Drawing,
    Frame,
    coordinate,
    fit_middle,
    plain,
    text_width,
)

_INK: Final = ("#2166ac", "#b35806", "#1b7837", "#8e3b8c", "#7a6a00", "#5f6b76")
_NIGHT: Final = ("#6cb0f0", "#f0a35e", "#7cc68d", "#d59ad3", "#d6c34a", "#aab4bf")
_DASHES: Final = ("", "7 3", "2 3", "9 3 2 3", "4 4", "12 3")
_MARKS: Final = (
    tuple(
        (3.5 * math.cos(k * math.pi / 4), 3.5 * math.sin(k * math.pi / 4))
        for k in range(8)
    ),
    ((-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)),
    ((0, -4.5), (4.2, 3.5), (-4.2, 3.5)),
    ((0, -5), (5, 0), (0, 5), (-5, 0)),
    ((0, 4.5), (4.2, -3.5), (-4.2, -3.5)),
    ((-5, -1.5), (5, -1.5), (5, 1.5), (-5, 1.5)),
)
_STYLE: Final = (
    "".join(
        f".mc-l{k}{{fill:none;stroke:{ink};stroke-width:2}}.mc-o{k}{{fill:#fff;stroke:{ink};stroke-width:1.4}}"
        for k, ink in enumerate(_INK)
    )
    + ".mc-a{fill:#2166ac;fill-opacity:.18}.mc-n{fill:#8c959f}"
    ".mc-x{stroke:#b35806;stroke-width:1.5;stroke-dasharray:4 3}"
    "@media (prefers-color-scheme:dark){.mc-a{fill:#6cb0f0}.mc-x{stroke:#f0a35e}"
    + "".join(
        f".mc-l{k}{{stroke:{ink}}}.mc-o{k}{{fill:#161b22;stroke:{ink}}}"
        for k, ink in enumerate(_NIGHT)
    )
    + "}"
)
_TALL: Final = 250.0
_TALL_PANEL: Final = 62.0
_FOOT: Final = 16
"""Units for the strip that shows n under the only plot."""
_PANEL: Final = 240
"""The least units of a plot of its own."""


@dataclass(frozen=True, slots=True)
class Point:
    """A value in per cent at a place on the axis; None where there is none. Faint: it rests on too few items."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    faint: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One series; a point for each label of the axis. `mark`: before which label its cutoff stands."""

    label: str
    points: Sequence[Point]
    mark: int | None = None


@dataclass(frozen=True, slots=True)
class _Plot:
    """Where a plot lies, and its scale."""

    left: float
    top: float
    pitch: float
    tall: float
    ticks: Sequence[float]

    def spot(self, place: int, value: float) -> tuple[float, float]:
        low, high = self.ticks[0], self.ticks[-1]
        share = (min(max(value, low), high) - low) / (high - low)
        return self.left + self.pitch * (place + 0.5), self.top + self.tall * (
            1 - share
        )


def lines(frame: Frame, labels: Sequence[str], series: Sequence[Line]) -> str:
    """Up to six lines over one another, distinguished by mark, dash and colour; more in a plot each, on one scale.

    A faint point's mark is hollow. A line alone in its plot has a band, its intervals, but not at faint points.
    Raises ValueError where a line has another number of points than there are labels.
    """
    if any(len(line.points) != len(labels) for line in series):
        raise ValueError("every line needs a point for each label")
    values = [
        (f"{line.label}, {label}", f"{p.value:z.1f} (n={p.n})")
        for line in series
        for label, p in zip(labels, line.points, strict=True)
        if p.value is not None
    ]
    out = Drawing(frame, values, style=_STYLE)
    if not values:
        return out.empty()
    if len(series) <= COLOURS:
        _together(out, labels, series)
    else:
        _apart(out, labels, series)
    return out.svg()


def _ends(series: Sequence[Line], banded: bool) -> tuple[float, float]:
    """The least and the greatest value shown; a faint point's interval would stretch the scale for all others."""
    ends: list[float] = []
    for line in series:
        for point in line.points:
            if point.value is not None:
                ends.append(point.value)
                if banded and not point.faint:
                    ends += [e for e in (point.low, point.high) if e is not None]
    low, high = min(ends), max(ends)
    return (low, high) if high - low > 1e-6 else (low - 0.5, low + 0.5)


def _together(out: Drawing, labels: Sequence[str], series: Sequence[Line]) -> None:
    _legend(out, series)
    alone = len(series) == 1
    ticks = ticks_of(*_ends(series, banded=alone))
    left = PAD + max(text_width(f"{t:g}", SMALL) for t in ticks) + 8
    # The marks of cutoffs stand on the plot, those of one month above one another.
    cutoffs = Counter(line.mark for line in series if line.mark is not None)
    top = out.y + 10 + 12 * max(cutoffs.values(), default=0)
    pitch = (out.width - PAD - left) / len(labels)
    plot = _Plot(left=left, top=top, pitch=pitch, tall=_TALL, ticks=ticks)
    _grid(out, plot, out.width - PAD)
    _cutoffs(out, plot, series)
    for number, line in enumerate(series):
        _line(out, line, number, plot, band=alone)
        for place, (label, point) in enumerate(zip(labels, line.points, strict=True)):
            _point(out, plot, number, place, f"{line.label}, {label}", point)
    _foot(out, plot, labels, series)
    out.y = top + _TALL + _FOOT + 20
    free = 0.0
    for place, label in enumerate(labels):
        free = _month(out, plot, place, label, out.width, free)
    out.y += 4


def _cutoffs(out: Drawing, plot: _Plot, series: Sequence[Line]) -> None:
    """A dotted line and a mark for each line's cutoff."""
    heights = Counter[int]()
    for number, line in enumerate(series):
        if line.mark is not None:
            x, level = plot.left + plot.pitch * line.mark, heights[line.mark]
            heights[line.mark] += 1
            out.tooltip(f"{line.label}: cutoff")
            d = f"M{_path([(x, plot.top - 3), (x, plot.top + _TALL)])}"
            out.draw(f'<path d="{d}" class="mc-l{number}" stroke-dasharray="1 4"/>')
            _mark(out, number, x, plot.top - 9 - 12 * level)
            out.end()


def _point(
    out: Drawing, plot: _Plot, number: int, place: int, name: str, point: Point
) -> None:
    """A point's mark, with its value as a tooltip."""
    if point.value is None:
        return
    around = ""
    if point.low is not None:
        around = f", {point.low:z.1f} to {point.high:z.1f}"
    out.tooltip(f"{name}: {point.value:z.1f}{around}, n={point.n}")
    _mark(out, number, *plot.spot(place, point.value), hollow=point.faint)
    out.end()


def _foot(
    out: Drawing, plot: _Plot, labels: Sequence[str], series: Sequence[Line]
) -> None:
    """The strip that shows n under the plot."""
    most = [max(line.points[k].n for line in series) for k in range(len(labels))]
    wide, bottom = plot.pitch * 0.7, plot.top + _TALL + 4 + _FOOT
    for place, n in enumerate(most):
        tall = n / (max(most) or 1) * (_FOOT - 2)
        x = plot.spot(place, 0)[0] - plot.pitch * 0.35
        out.tooltip(f"{labels[place]}: n={n} at most")
        out.rect(x, bottom - tall, wide, tall, "mc-n")
        out.end()


def _month(
    out: Drawing, plot: _Plot, place: int, label: str, right: float, free: float
) -> float:
    """Write a label under its place where there is room after `free`; where the next one may begin."""
    half = text_width(label, SMALL) / 2
    x = min(max(plot.left + plot.pitch * (place + 0.5), PAD + half), right - PAD - half)
    if x - half < free:
        return free
    out.text(x, out.y, label, anchor="middle", classes="mc-m mc-s")
    return x + half + 8


def _apart(out: Drawing, labels: Sequence[str], series: Sequence[Line]) -> None:
    columns = max(1, out.width // (_PANEL - 20))
    wide = (out.width - 2 * PAD) / columns
    ticks = ticks_of(*_ends(series, banded=True), 2)
    margin = max(text_width(f"{t:g}", SMALL) for t in ticks) + 6
    start = out.y
    for place, line in enumerate(series):
        x = PAD + wide * (place % columns)
        y = start + (_TALL_PANEL + 42) * (place // columns)
        out.text(
            x, y + 13, fit_middle(plain(line.label), wide - 10, SMALL), classes="mc-s"
        )
        plot = _Plot(
            x + margin, y + 24, (wide - margin - 10) / len(labels), _TALL_PANEL, ticks
        )
        _grid(out, plot, x + wide - 10)
        out.tooltip(line.label)
        if line.mark is not None:
            at = plot.left + plot.pitch * line.mark
            out.line(at, plot.top, at, plot.top + plot.tall, classes="mc-x")
        _line(out, line, 0, plot, band=True)
        out.end()
        out.y = max(out.y, y + _TALL_PANEL + 42)
    left = PAD + margin
    out.y += 2
    out.text(left, out.y, f"{labels[0]} to {labels[-1]}", classes="mc-m mc-s")
    out.y += 4


def _grid(out: Drawing, plot: _Plot, right: float) -> None:
    for tick in plot.ticks:
        y = plot.spot(0, tick)[1]
        out.line(plot.left, y, right, y)
        out.text(plot.left - 6, y + 4, f"{tick:g}", anchor="end", classes="mc-m mc-s")


def _line(out: Drawing, line: Line, number: int, plot: _Plot, *, band: bool) -> None:
    dash = f' stroke-dasharray="{_DASHES[number]}"' if _DASHES[number] else ""
    known = [k for k, point in enumerate(line.points) if point.value is not None]
    for run in _stretches(known):
        if band:
            _band(out, line, run, plot)
        spots = [plot.spot(k, line.points[k].value or 0.0) for k in run]
        # A month between two gaps is seen as a dash.
        spots += [(spots[0][0] + 2, spots[0][1])] if len(spots) == 1 else []
        out.draw(f'<path d="M{_path(spots)}" class="mc-l{number}"{dash}/>')


def _band(out: Drawing, line: Line, run: Sequence[int], plot: _Plot) -> None:
    """The intervals of a stretch of points, but not at faint ones."""
    points = line.points
    certain = [k for k in run if points[k].low is not None and not points[k].faint]
    for part in _stretches(certain):
        if len(part) > 1:
            upper = [plot.spot(k, points[k].high or 0.0) for k in part]
            lower = [plot.spot(k, points[k].low or 0.0) for k in reversed(part)]
            out.draw(f'<path d="M{_path([*upper, *lower])}Z" class="mc-a"/>')


def _mark(
    out: Drawing, number: int, x: float, y: float, *, hollow: bool = False
) -> None:
    """A shape of its own for each line, so that a print without colours can be read."""
    corners = _path([(x + dx, y + dy) for dx, dy in _MARKS[number]])
    out.draw(f'<path d="M{corners}Z" class="mc-{"o" if hollow else ""}{number}"/>')


def _legend(out: Drawing, series: Sequence[Line]) -> None:
    x = float(PAD)
    out.y += 17
    for number, line in enumerate(series):
        name = fit_middle(plain(line.label), out.width - 2 * PAD - 44, SMALL)
        wide = 40 + text_width(name, SMALL) + 24
        if x > PAD and (x + wide > out.width or out.width <= WIDTH):
            x, out.y = float(PAD), out.y + 18
        dash = f' stroke-dasharray="{_DASHES[number]}"' if _DASHES[number] else ""
        y = coordinate(out.y - 4)
        out.draw(
            f'<path d="M{coordinate(x)} {y}L{coordinate(x + 32)} {y}" class="mc-l{number}"{dash}/>'
        )
        _mark(out, number, x + 16, out.y - 4)
        out.text(x + 40, out.y, name, classes="mc-s")
        x += wide
    out.y += 4


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in points)


def _stretches(places: Sequence[int]) -> list[list[int]]:
    """Places that follow one another without a gap."""
    if not places:
        return []
    found = [[places[0]]]
    for before, place in pairwise(places):
        if place == before + 1:
            found[-1].append(place)
        else:
            found.append([place])
    return found
