"""A matrix of shaded cells, each with its number in it, so that no cell is known by its shade alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from medlive.charts.drawing import (
    PAD,
    SMALL,
    Drawing,
    Frame,
    coordinate,
    escape,
    fit_middle,
    plain,
    text_width,
    wrap,
)

_SHADES: Final = 7
_HEAD_ROWS: Final = 3
_LIGHT: Final = (
    "#f1f6fb",
    "#dbe9f6",
    "#bcd7ec",
    "#93c0e0",
    "#5fa2d0",
    "#2b74ab",
    "#1a5a96",
)
_DARK: Final = (
    "#1b2733",
    "#1c3347",
    "#1d415f",
    "#1f5278",
    "#246897",
    "#3b86bb",
    "#6aabdb",
)
_BELOW: Final = (
    "#fdf3ea",
    "#f9dcc0",
    "#f3bd8c",
    "#e8975a",
    "#d0702f",
    "#a84f17",
    "#7f3a0c",
)
_BELOW_DARK: Final = (
    "#2b231c",
    "#41301f",
    "#5a3d22",
    "#784c22",
    "#9b6024",
    "#c07c35",
    "#e0a263",
)


def _style() -> str:
    rules = []
    dark = []
    for kind, light, night in (("h", _LIGHT, _DARK), ("k", _BELOW, _BELOW_DARK)):
        for place in range(_SHADES):
            rules.append(f".mc-{kind}{place}{{fill:{light[place]}}}")
            dark.append(f".mc-{kind}{place}{{fill:{night[place]}}}")
    rules.append(
        ".mc text.mc-i{fill:#fff}.mc .mc-u{fill-opacity:.4;stroke:#8c959f;stroke-dasharray:2 2}"
        ".mc text.mc-c{font-size:11px}"
    )
    dark.append(".mc text.mc-i{fill:#0d1117}.mc .mc-u{stroke:#6e7681}")
    return "".join(rules) + "@media (prefers-color-scheme:dark){" + "".join(dark) + "}"


_STYLE: Final = _style()


class Scale(Enum):
    """How a matrix is shaded."""

    SHARE = "from 0 to 1"
    FROM_LOW = "from the least value shown to the greatest"
    AROUND_ZERO = "from -1 over 0 to 1"


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell; None where there is no value; its text may say why. A faint one rests on too little: pale, in
    dashes."""

    value: float | None
    text: str = ""  # What stands in it, a few characters
    long: str = ""  # What stands in it where there is room for it
    tooltip: str = ""  # What a tooltip and `<desc>` say beside the two labels
    faint: bool = False


def matrix(
    frame: Frame,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[Cell]],
    *,
    scale: Scale = Scale.FROM_LOW,
    among: Sequence[Cell] = (),
) -> str:
    """Rows by columns, over the frame's width, or wider; the labels of narrow columns stand upright.

    `among`: all cells whose matrices are read beside one another, these too, which are then shaded alike.
    Raises ValueError where `cells` are not one for each row and column.
    """
    values = _values(rows, columns, cells)
    least = max(
        24.0,
        max((text_width(cell.text, 11) for line in cells for cell in line), default=0)
        + 6,
    )
    # Where the columns make it wider than asked anyway, the rows' names need not be cut for it.
    room = frame.width - 2 * PAD - 8 - least * len(columns)
    most = max(250.0, 0.34 * frame.width)
    room = min(most, room) if room >= 150 else most
    named = [fit_middle(plain(row), room, SMALL) for row in rows]
    left = PAD + max((text_width(name, SMALL) for name in named), default=0) + 8
    side = max(least, (frame.width - PAD - left) / max(1, len(columns)))
    out = Drawing(frame, values, width=left + side * len(columns) + PAD, style=_STYLE)
    if not values:
        return out.empty()
    _heads(out, columns, left, side)
    low, high, texts = _ends(scale, among or [cell for line in cells for cell in line])
    for row, name, line in zip(rows, named, cells, strict=True):
        out.text(left - 6, out.y + 15, name, anchor="end", classes="mc-s")
        for place, (column, cell) in enumerate(zip(columns, line, strict=True)):
            _cell(
                out,
                left + side * place,
                side,
                cell,
                f"{row}, {column}",
                _shade(cell, low, high, scale),
            )
        out.y += 22
    below = (
        [f"k{k}" for k in reversed(range(_SHADES))]
        if scale is Scale.AROUND_ZERO
        else []
    )
    _legend(out, left, texts, below + [f"h{k}" for k in range(_SHADES)])
    return out.svg()


def _heads(out: Drawing, columns: Sequence[str], left: float, side: float) -> None:
    lying = [wrap(plain(column), side - 8, SMALL) for column in columns]
    if all(len(rows) <= _HEAD_ROWS and "…" not in "".join(rows) for rows in lying):
        out.y += 15 * max(map(len, lying)) + 8
        for place, rows in enumerate(lying):
            for up, row in enumerate(reversed(rows)):
                middle = left + side * (place + 0.5)
                out.text(
                    middle, out.y - 7 - 15 * up, row, anchor="middle", classes="mc-s"
                )
        return
    heads = [fit_middle(plain(column), 210, SMALL) for column in columns]
    out.y += max(text_width(head, SMALL) for head in heads) + 8
    for place, head in enumerate(heads):
        x, y = coordinate(left + side * (place + 0.5) + 4), coordinate(out.y - 4)
        out.draw(
            f'<text x="{x}" y="{y}" transform="rotate(-90 {x} {y})" class="mc-s">{escape(head)}</text>'
        )


def _values(
    rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[Cell]]
) -> list[tuple[str, str]]:
    """What `<desc>` tells of each cell that has a value, or a text in its place."""
    if len(cells) != len(rows) or any(len(line) != len(columns) for line in cells):
        raise ValueError("a matrix needs a cell for each row and column")
    values = []
    for row, line in zip(rows, cells, strict=True):
        for column, cell in zip(columns, line, strict=True):
            if cell.value is not None or cell.text:
                values.append((f"{row}, {column}", cell.tooltip or cell.text))
    return values


def _ends(scale: Scale, cells: Sequence[Cell]) -> tuple[float, float, tuple[str, str]]:
    """The values at the scale's two ends, and how they are written."""
    if scale is Scale.AROUND_ZERO:
        return -1.0, 1.0, ("-1", "1")
    if scale is Scale.SHARE:
        return 0.0, 1.0, ("0", "1")
    texts = {cell.value: cell.text for cell in cells if cell.value is not None}
    # What rests on too little would stretch the scale for all the others, where there are others.
    firm = {
        cell.value for cell in cells if cell.value is not None and not cell.faint
    } or texts.keys()
    low, high = min(firm, default=0.0), max(firm, default=0.0)
    if low == high:
        return low, high, ("", "")
    return low, high, (texts[low], texts[high])


def _legend(
    out: Drawing, left: float, ends: tuple[str, str], kinds: Sequence[str]
) -> None:
    """What the shades mean: the least and the greatest that they are spread over."""
    if ends[0] == ends[1]:
        # Nothing to tell apart: every number stands in its cell, and there is no scale.
        return
    out.y += 8
    tail = 15 * len(kinds) + 6 + text_width(ends[1], SMALL)
    x = max(
        PAD + text_width(ends[0], SMALL) + 6,
        min(left + text_width(ends[0], SMALL) + 6, out.width - PAD - tail),
    )
    out.text(x - 6, out.y + 11, ends[0], anchor="end", classes="mc-m mc-s")
    for kind in kinds:
        out.rect(x, out.y, 15, 13, f"mc-{kind}")
        x += 15
    out.text(x + 6, out.y + 11, ends[1], classes="mc-m mc-s")
    out.y += 16


def _shade(cell: Cell, low: float, high: float, scale: Scale) -> tuple[str, int]:
    """The class of the scale's side and how deep, 0 to `_SHADES` - 1."""
    if cell.value is None:
        return "h", 0
    if scale is Scale.AROUND_ZERO:
        return ("k" if cell.value < 0 else "h"), min(
            _SHADES - 1, int(min(abs(cell.value), 1.0) * _SHADES)
        )
    share = (cell.value - low) / (high - low) if high > low else 0.5
    return "h", min(_SHADES - 1, max(0, int(share * _SHADES)))


def _cell(
    out: Drawing, x: float, side: float, cell: Cell, name: str, shade: tuple[str, int]
) -> None:
    if cell.value is None:
        if cell.text:
            out.rect(x + 0.5, out.y + 0.5, side - 1, 21, "mc-t")
            out.text(
                x + side / 2,
                out.y + 15,
                cell.text,
                anchor="middle",
                classes="mc-c mc-m",
            )
        return
    kind, depth = shade
    out.tooltip(f"{name}: {cell.tooltip or cell.text}")
    out.rect(
        x + 0.5,
        out.y + 0.5,
        side - 1,
        21,
        f"mc-{kind}{depth}" + (" mc-u" if cell.faint else ""),
    )
    # The two deepest shades are dark by day and light at night.
    ink = "mc-i" if depth >= _SHADES - 2 and not cell.faint else ""
    text = (
        cell.long if cell.long and text_width(cell.long, 11) <= side - 8 else cell.text
    )
    out.text(
        x + side / 2, out.y + 15, text, anchor="middle", classes=f"mc-c {ink}".strip()
    )
    out.end()
