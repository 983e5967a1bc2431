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
"""A web of less shows nothing but noise, and its rings could not be distinguished."""
_INK: Final = ("#2166ac", "#b35806", "#1b7837", "#8e3b8c", "#7a6a00", "#5f6b76")
_NIGHT: Final = ("#6cb0f0", "#f0a35e", "#7cc68d", "#d59ad3", "#d6c34a", "#aab4bf")
_MARKS: Final = (
    tuple((3.5 * math.cos(k * math.pi / 4), 3.5 * math.sin(k * math.pi / 4)) for k in range(8)),
    ((-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)),
    ((0, -4.5), (4.2, 3.5), (-4.2, 3.5)),
    ((0, -5), (5, 0), (0, 5), (-5, 0)),
    ((0, 4.5), (4.2, -3.5), (-4.2, -3.5)),
    ((-5, -1.5), (5, -1.5), (5, 1.5), (-5, 1.5)),
)
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
    """Profiles over at least three axes, distinguished by dash, mark and colour; the rim is the ring next above
    `most`, or above the greatest value where that is more.

    Raises ValueError for fewer axes, more than six profiles, or a profile of another number of values.
    """
    values = _values(axes, profiles)
    out = Drawing(frame, [(name, f"{value:z.1f}") for name, value in values], style=_STYLE)
    if not values:
        return out.empty()
    greatest = max(most, *(value for _, value in values), _LEAST_RIM)
    step = tick_step(greatest)
    rings = math.ceil(greatest / step - 1e-9)
    rim = rings * step
    _legend(out, profiles)
    out.y += 44
    radius = _radius([plain(axis) for axis in axes])
    x0, y0 = WIDTH / 2, out.y + radius
    for ring in range(1, rings + 1):
        out.draw(f'<path d="{_closed(_spots(x0, y0, radius, [ring / rings] * len(axes)))}" class="mc-r"/>')
    ends, beyond = (_spots(x0, y0, radius, [share] * len(axes)) for share in (1.0, 1.07))
    for axis, end, place in zip(axes, ends, beyond, strict=True):
        out.line(x0, y0, *end)
        _label(out, plain(axis), *place, y0)
    for number, profile in enumerate(profiles):
        _profile(out, number, profile, _spots(x0, y0, radius, [(v or 0.0) / rim for v in profile.values]))
    for ring in range(1, rings + 1):
        # Beside the upright axis, where rings lie as far apart as they can, clear of the marks on it.
        out.text(
            x0 - 8, y0 - radius * ring / rings + 11, f"{step * ring:g}", anchor="end", classes="mc-m mc-s mc-q"
        )
    out.y = max(y for _, y in beyond) + 50
    return out.svg()


def _values(axes: Sequence[str], profiles: Sequence[Polygon]) -> list[tuple[str, float]]:
    if len(axes) < 3:
        raise ValueError(f"a radar needs at least 3 axes, not {len(axes)}")
    if len(profiles) > COLOURS:
        raise ValueError(f"at most {COLOURS} profiles can be distinguished, not {len(profiles)}")
    if any(len(profile.values) != len(axes) for profile in profiles):
        raise ValueError("every profile needs a value for each axis, or None")
    return [
        (f"{profile.label}, {axis}", value)
        for profile in profiles
        for axis, value in zip(axes, profile.values, strict=True)
        if value is not None
    ]


def _spots(x0: float, y0: float, radius: float, shares: Sequence[float]) -> list[tuple[float, float]]:
    """A spot on each axis, at its share of the radius."""
    spots = []
    for place, share in enumerate(shares):
        turn, reach = 2 * math.pi * place / len(shares), radius * min(max(share, 0.0), 1.1)
        spots.append((x0 + reach * math.sin(turn), y0 - reach * math.cos(turn)))
    return spots


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
    out.draw(f'<path d="{_closed([(x + dx, y + dy) for dx, dy in _MARKS[number]])}" class="mc-{number}"/>')


def _legend(out: Drawing, profiles: Sequence[Polygon]) -> None:
    for number, profile in enumerate(profiles):
        out.y += 17
        dash = f' stroke-dasharray="{_DASHES[number]}"' if _DASHES[number] else ""
        y = coordinate(out.y - 4)
        out.draw(f'<path d="M{PAD} {y}L{PAD + 34} {y}" class="mc-r{number}"{dash}/>')
        _mark(out, number, PAD + 17, out.y - 4)
        out.text(PAD + 44, out.y, profile.label, classes="mc-s", room=WIDTH - 2 * PAD - 44)
    out.y += 4
