"""Lines over time: a panel for each series, its values with a band, and how many items each value rests on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from medlive.charts.bars import tick_step
from medlive.charts.drawing import PAD, SMALL, WIDTH, Drawing, Frame, coordinate, text_width

_STYLE: Final = (
    ".mc-l{fill:none;stroke:#2166ac;stroke-width:2}.mc-a{fill:#2166ac;fill-opacity:.18}"
    ".mc-d{fill:#2166ac}.mc-o{fill:#fff;stroke:#7d8690;stroke-width:1.5}.mc-n{fill:#8c959f}"
    ".mc-x{stroke:#b35806;stroke-width:1.5;stroke-dasharray:4 3}.mc text.mc-y{fill:#8f4700}"
    "@media (prefers-color-scheme:dark){.mc-l{stroke:#6cb0f0}.mc-a{fill:#6cb0f0}.mc-d{fill:#6cb0f0}"
    ".mc-o{fill:#161b22;stroke:#9da7b3}.mc-x{stroke:#f0a35e}.mc text.mc-y{fill:#f0a35e}}"
)
_TALL: Final = 84
_FOOT: Final = 16
"""Units for the strip that shows n under each panel."""


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
    """One panel; a point for each label of the axis. `mark`: before which label a dashed line stands."""

    label: str
    points: Sequence[Point]
    mark: int | None = None
    mark_text: str = ""


def scale_of(series: Sequence[Line]) -> tuple[float, float, int]:
    """The least and the greatest value that panels of these lines reach, 0 among them, and the greatest n."""
    known = [p for line in series for p in line.points if p.value is not None]
    # A faint point's interval would stretch the scale for all the others.
    ends = [e for p in known for e in ((p.value,) if p.faint else (p.value, p.low, p.high)) if e is not None]
    low, high = min(0.0, *ends), max(0.0, *ends)
    return low, high if high - low > 1e-6 else low + 1.0, max(p.n for p in known) or 1


def lines(frame: Frame, labels: Sequence[str], series: Sequence[Line], *, among: Sequence[Line] = ()) -> str:
    """Panels one above the other on one scale; a faint point is hollow and no band is drawn at it.

    `among`: all lines whose charts are read beside one another, these too, which are then drawn to one scale.
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
    low, high, most = scale_of(among or series)
    step = tick_step((high - low) / 2 * 4)
    ticks = [k * step for k in range(-9, 10) if low - 1e-9 <= k * step <= high + 1e-9]
    left = PAD + max(text_width(f"{t:g}", SMALL) for t in ticks) + 8
    pitch = (WIDTH - PAD - left) / len(labels)
    for line in series:
        out.heading(line.label)
        top = out.y + 6 + (14 if line.mark is not None else 0)
        for tick in ticks:
            y = top + _TALL * (1 - (tick - low) / (high - low))
            out.line(left, y, WIDTH - PAD, y)
            out.text(left - 6, y + 4, f"{tick:g}", anchor="end", classes="mc-m mc-s")
        if line.mark is not None:
            x = left + pitch * line.mark
            out.line(x, top - 4, x, top + _TALL, classes="mc-x")
            wide = text_width(line.mark_text, SMALL)
            out.text(
                min(max(left + wide / 2, x), WIDTH - PAD - wide / 2), top - 7, line.mark_text,
                anchor="middle", classes="mc-y mc-s",
            )  # fmt: skip
        _panel(out, line, labels, left, pitch, top, (low, high), most)
        out.y = top + _TALL + _FOOT + 8
    _axis(out, labels, left, pitch)
    return out.svg()


def _panel(
    out: Drawing, line: Line, labels: Sequence[str], left: float, pitch: float, top: float,
    scale: tuple[float, float], most: int,
) -> None:  # fmt: skip
    low, high = scale

    def spot(place: int, value: float) -> tuple[float, float]:
        value = min(max(value, low), high)
        return left + pitch * (place + 0.5), top + _TALL * (1 - (value - low) / (high - low))

    for run in _stretches([place for place, point in enumerate(line.points) if point.value is not None]):
        _curve(out, line.points, run, spot)
    for place, (label, point) in enumerate(zip(labels, line.points, strict=True)):
        if point.value is None:
            continue
        x, y = spot(place, point.value)
        around = "" if point.low is None else f", {point.low:z.1f} to {point.high:z.1f}"
        out.tooltip(f"{line.label}, {label}: {point.value:z.1f}{around}, n={point.n}")
        out.draw(
            f'<circle cx="{coordinate(x)}" cy="{coordinate(y)}" r="{3.2 if point.faint else 2.6}" '
            f'class="{"mc-o" if point.faint else "mc-d"}"/>'
        )
        tall = point.n / most * (_FOOT - 2)
        out.rect(x - pitch * 0.35, top + _TALL + 2 + _FOOT - tall, pitch * 0.7, tall, "mc-n")
        out.end()


def _curve(
    out: Drawing, points: Sequence[Point], run: Sequence[int], spot: Callable[[int, float], tuple[float, float]]
) -> None:
    """Points that follow one another without a gap: their band, and the line through them."""
    for stretch in _stretches([k for k in run if points[k].low is not None and not points[k].faint]):
        upper = [spot(k, points[k].high or 0.0) for k in stretch]
        lower = [spot(k, points[k].low or 0.0) for k in reversed(stretch)]
        if len(stretch) > 1:
            out.draw(f'<path d="M{_path([*upper, *lower])}Z" class="mc-a"/>')
        else:
            out.line(*upper[0], *lower[0], classes="mc-l")
    if len(run) > 1:
        out.draw(f'<path d="M{_path([spot(k, points[k].value or 0.0) for k in run])}" class="mc-l"/>')


def _axis(out: Drawing, labels: Sequence[str], left: float, pitch: float) -> None:
    out.y += 8
    free = 0.0
    for place, label in enumerate(labels):
        half = text_width(label, SMALL) / 2
        x = min(max(left + pitch * (place + 0.5), PAD + half), WIDTH - PAD - half)
        if x - half >= free:
            out.text(x, out.y, label, anchor="middle", classes="mc-m mc-s")
            free = x + half + 8
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
