"""Bars: lying in groups, upright over time, and histograms."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from medlive.charts.drawing import (
    PAD,
    ROW,
    SIZE,
    SMALL,
    WIDTH,
    Drawing,
    Frame,
    fit,
    number,
    plain,
    text_width,
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One labelled value, not negative; `text` is how it is written, the value itself where it is empty."""

    label: str
    value: float
    text: str = ""

    @property
    def written(self) -> str:
        """The value as the chart writes it."""
        return self.text or number(self.value)


@dataclass(frozen=True, slots=True)
class Group:
    """Bars under one heading; an empty heading takes no room. All groups of a chart share one scale."""

    heading: str
    bars: Sequence[Bar]


def bars(frame: Frame, groups: Sequence[Group]) -> str:
    """Horizontal bars, their values behind them and their labels before them, or above where those are long."""
    every = [bar for group in groups for bar in group.bars]
    most = max((bar.value for bar in every), default=0)
    out = Drawing(frame, [(bar.label, bar.written) for bar in every])
    if not every:
        return out.empty()
    behind = max(text_width(bar.written, SIZE) for bar in every) + 8
    before = max(text_width(bar.label, SIZE) for bar in every) + 8
    inner = WIDTH - 2 * PAD
    beside = inner - before - behind >= inner / 4
    left = PAD + before if beside else PAD
    for group in groups:
        if group.heading:
            out.heading(group.heading)
        for bar in group.bars:
            if not beside:
                out.y += 19
                out.text(PAD, out.y, bar.label, room=inner)
            else:
                out.text(PAD, out.y + 16, bar.label, room=before)
            span = WIDTH - PAD - behind - left
            out.tooltip(f"{bar.label}: {bar.written}")
            out.rect(left, out.y + 5, span, 13, "mc-t")
            out.rect(left, out.y + 5, _share(bar.value, most) * span, 13, "mc-0")
            out.end()
            out.text(WIDTH - PAD, out.y + 16, bar.written, anchor="end")
            out.y += ROW
        out.y += 6
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
    labels = [
        str(first) if wide == 1 else f"{first}-{first + wide - 1}" for first in firsts
    ]
    return _upright(
        frame, [Bar(label, n) for label, n in zip(labels, tally, strict=True)], gap=0.08
    )


def _upright(frame: Frame, values: Sequence[Bar], *, gap: float) -> str:
    out = Drawing(frame, [(bar.label, bar.written) for bar in values])
    if not values:
        return out.empty()
    most = max(bar.value for bar in values)
    step = _tick(most)
    top = max(step, math.ceil(most / step) * step)
    ticks = [step * k for k in range(round(top / step) + 1)]
    left = PAD + max(text_width(number(tick), SMALL) for tick in ticks) + 6
    tall, upper = 170.0, out.y + 18
    for tick in ticks:
        at = upper + tall * (1 - tick / top)
        out.line(left, at, WIDTH - PAD, at)
        out.text(left - 6, at + 4, number(tick), anchor="end", classes="mc-m mc-s")
    pitch = (WIDTH - PAD - left) / len(values)
    # A lone column would fill the whole width and look like a background.
    wide = min(pitch * (1 - gap), 48.0)
    labels = [fit(plain(bar.label), WIDTH / 2, SMALL) for bar in values]
    widest = max(text_width(label, SMALL) for label in labels) + 8
    every = max(1, math.ceil(widest / pitch))
    valued = all(text_width(bar.written, SMALL) + 2 <= pitch for bar in values)
    free = 0.0
    for place, (bar, label) in enumerate(zip(values, labels, strict=True)):
        middle = left + pitch * (place + 0.5)
        high = _share(bar.value, top) * tall
        out.tooltip(f"{bar.label}: {bar.written}")
        out.rect(middle - wide / 2, upper + tall - high, wide, high, "mc-0")
        out.end()
        if valued and bar.value:
            out.text(
                middle,
                upper + tall - high - 4,
                bar.written,
                anchor="middle",
                classes="mc-s",
            )
        half = text_width(label, SMALL) / 2
        # The first and last labels would otherwise run over the edge of a narrow column.
        at = min(max(middle, PAD + half), WIDTH - PAD - half)
        if place % every == 0 and at - half >= free:
            out.text(at, upper + tall + 17, label, anchor="middle", classes="mc-m mc-s")
            free = at + half + 4
    out.y = upper + tall + 26
    return out.svg()


def _share(value: float, most: float) -> float:
    return value / most if most > 0 else 0.0


def _tick(most: float) -> float:
    """As `tick_step`, in whole numbers."""
    return 1.0 if most <= 4 else tick_step(most)


def ticks_of(low: float, high: float, about: int = 4) -> list[float]:
    """Round values, about so many, the first not above `low` and the last not below `high`, which is greater."""
    step = tick_step((high - low) * 4 / about)
    return [
        k * step
        for k in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)
    ]


def tick_step(most: float) -> float:
    """A round distance between grid lines, so that about four of them reach `most`, which is above 0."""
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
