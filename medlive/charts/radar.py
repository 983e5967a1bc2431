"""A radar: a few profiles over a few axes; a plain table belongs beside it, for areas mislead."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from medlive.charts.bars import tick_step
from medlive.charts.drawing import (
    COLOURS,
    PAD,
    SMALL,
    WIDTH,
    Drawing,
    Frame,
    coordinate,
    pieces,
    plain,
    text_width,
    wrap,
)

_DASHES: Final = ("", "7 3", "2 3", "9 3 2 3", "4 4", "12 3")
_RADIUS: Final = 116.0
_LEAST_RADIUS: Final = 84.0
_LEAST_RIM: Final = 4.0
"""A web of less shows nothing but noise, and its rings could not be told apart."""
_INK: Final = ("#2166ac", "#b35806", "#1b7837", "#8e3b8c", "#7a6a00", "#5f6b76")
_NIGHT: Final = ("#6cb0f0", "#f0a35e", "#7cc68d", "#d59ad3", "#d6c34a", "#aab4bf")
_STYLE: Final = (
    ".mc-r{fill:none;stroke:#d8dee4}.mc text.mc-q{paint-order:stroke;stroke:#fff;stroke-width:3px}"
    + "".join(f".mc-r{k}{{fill:none;stroke:{ink};stroke-width:2}}" for k, ink in enumerate(_INK))
    + "@media (prefers-color-scheme:dark){.mc-r{stroke:#3d444d}.mc text.mc-q{stroke:#161b22}"
    + "".join(f".mc-r{k}{{stroke:{ink}}}" for k, ink in enumerate(_NIGHT))
    + "}"
)


@dataclass(frozen=True, slots=True)
class Polygon:
    """One profile: a value from 0 to 100 for each axis, None where there is none."""

    label: str
    values: Sequence[float | None]


def radar(frame: Frame, axes: Sequence[str], profiles: Sequence[Polygon], *, most: float = 0) -> str:
    """Profiles over at least three axes, told apart by dash, mark and colour; the rim is the ring next above
    `most`, or above the greatest value where that is more.

    Raises ValueError for fewer axes, more than six profiles, or a profile of another number of values.
    """
    if len(axes) < 3:
        raise ValueError(f"a radar needs at least 3 axes, not {len(axes)}")
    if len(profiles) > COLOURS:
        raise ValueError(f"at most {COLOURS} profiles can be told apart, not {len(profiles)}")
    if any(len(profile.values) != len(axes) for profile in profiles):
        raise ValueError("every profile needs a value for each axis, or None")
    told = [
        (f"{profile.label}, {axis}", f"{value:z.1f}")
        for profile in profiles
        for axis, value in zip(axes, profile.values, strict=True)
        if value is not None
    ]
    out = Drawing(frame, told, style=_STYLE)
    if not told:
        out.empty()
        return out.svg()
    values = [value for profile in profiles for value in profile.values if value is not None]
    greatest = max(most, *values, _LEAST_RIM)
    step = tick_step(greatest)
    rings = math.ceil(greatest / step - 1e-9)
    rim = rings * step
    _legend(out, profiles)
    out.y += 44
    radius = _radius([plain(axis) for axis in axes])
    x0, y0 = WIDTH / 2, out.y + radius
    for ring in range(1, rings + 1):
        spots = [_spot(x0, y0, radius, k, len(axes), ring / rings) for k in range(len(axes))]
        out.draw(f'<path d="{_closed(spots)}" class="mc-r"/>')
    for place, axis in enumerate(axes):
        x, y = _spot(x0, y0, radius, place, len(axes), 1.0)
        out.line(x0, y0, x, y)
        _label(out, plain(axis), *_spot(x0, y0, radius, place, len(axes), 1.07), y0)
    for number, profile in enumerate(profiles):
        _profile(
            out,
            number,
            profile,
            [_spot(x0, y0, radius, k, len(axes), (v or 0.0) / rim) for k, v in enumerate(profile.values)],
        )
    for ring in range(1, rings + 1):
        # Beside the upright axis, where rings lie as far apart as they can, clear of the marks on it.
        out.text(
            x0 - 8, y0 - radius * ring / rings + 11, f"{step * ring:g}", anchor="end", classes="mc-m mc-s mc-q"
        )
    out.y = max(_spot(x0, y0, radius, k, len(axes), 1.07)[1] for k in range(len(axes))) + 50
    return out.svg()


def _spot(x0: float, y0: float, radius: float, place: int, count: int, share: float) -> tuple[float, float]:
    turn = 2 * math.pi * place / count
    reach = radius * min(max(share, 0.0), 1.1)
    return x0 + reach * math.sin(turn), y0 - reach * math.cos(turn)


def _closed(spots: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in spots) + "Z"


def _radius(axes: Sequence[str]) -> float:
    """As large as leaves room beside the web for the longest word of any axis at its sides."""
    words = [part for axis in axes for part in pieces(axis)]
    beside = max((text_width(word, SMALL) for word in words), default=0.0)
    return max(_LEAST_RADIUS, min(_RADIUS, (WIDTH / 2 - PAD - beside) / 1.07))


def _label(out: Drawing, text: str, x: float, y: float, y0: float) -> None:
    aside = x - WIDTH / 2
    anchor = "middle" if abs(aside) < 1 else "" if aside > 0 else "end"
    room = {"middle": WIDTH - 2 * PAD, "": WIDTH - PAD - x, "end": x - PAD}[anchor]
    rows = wrap(text, room, SMALL)[:4]
    below = y > y0
    first = y + 10 if below else y - 13 * (len(rows) - 1) - 2
    for place, row in enumerate(rows):
        out.text(x, first + 13 * place, row, anchor=anchor, classes="mc-s")


def _profile(out: Drawing, number: int, profile: Polygon, spots: Sequence[tuple[float, float]]) -> None:
    dash = f' stroke-dasharray="{_DASHES[number]}"' if _DASHES[number] else ""
    known = [spot for spot, value in zip(spots, profile.values, strict=True) if value is not None]
    out.tooltip(profile.label)
    if len(known) == len(spots):
        out.draw(f'<path d="{_closed(known)}" class="mc-r{number}"{dash}/>')
    for x, y in known:
        _mark(out, number, x, y)
    out.end()


def _mark(out: Drawing, number: int, x: float, y: float) -> None:
    """A shape of its own for each profile, so that a print without colours can be read."""
    if number == 0:
        shape = [(x + 3.5 * math.cos(k * math.pi / 4), y + 3.5 * math.sin(k * math.pi / 4)) for k in range(8)]
    elif number == 1:
        shape = [(x - 3.5, y - 3.5), (x + 3.5, y - 3.5), (x + 3.5, y + 3.5), (x - 3.5, y + 3.5)]
    elif number == 2:
        shape = [(x, y - 4.5), (x + 4.2, y + 3.5), (x - 4.2, y + 3.5)]
    elif number == 3:
        shape = [(x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)]
    elif number == 4:
        shape = [(x, y + 4.5), (x + 4.2, y - 3.5), (x - 4.2, y - 3.5)]
    else:
        shape = [(x - 5, y - 1.5), (x + 5, y - 1.5), (x + 5, y + 1.5), (x - 5, y + 1.5)]
    out.draw(f'<path d="{_closed(shape)}" class="mc-{number}"/>')


def _legend(out: Drawing, profiles: Sequence[Polygon]) -> None:
    for number, profile in enumerate(profiles):
        out.y += 17
        dash = f' stroke-dasharray="{_DASHES[number]}"' if _DASHES[number] else ""
        y = coordinate(out.y - 4)
        out.draw(f'<path d="M{PAD} {y}L{PAD + 34} {y}" class="mc-r{number}"{dash}/>')
        _mark(out, number, PAD + 17, out.y - 4)
        out.text(PAD + 44, out.y, profile.label, classes="mc-s", room=WIDTH - 2 * PAD - 44)
    out.y += 4
