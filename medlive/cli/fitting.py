"""Tables that fit a terminal's width without a word being cut."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.text import Text

Rows = Sequence[Sequence[Text]]
"""A table's rows, the first of which holds the columns' names."""

_SPACES: Final = r"(?<=\s)(?=\S)|(?<=[\u3001-\u30ff\u4e00-\u9fff\uff01-\uff60])(?=[\u3040-\u30ff\u4e00-\u9fff])"
_AT_SPACES: Final = re.compile(_SPACES)
"""Spaces, and between the characters of scripts that have none."""
_AT_HYPHENS: Final = re.compile(_SPACES + r"|(?<=[^\W\d_]-)(?=[^\W\d_])")
"""Hyphens between letters too; those of numbers, dates and options stay."""

_NO_WORD: Final = 32
"""Longer tokens, such as digests and paths, may be cut where nothing else helps."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table, or a part of one, with the widths by which it fits; None where it fits anyway."""

    rows: Rows
    widths: Sequence[int] | None
    padding: int


def arrange(rows: Rows, width: int) -> list[Fitted]:
    """Fit a table into so many columns of characters.

    Lines end at spaces, Chinese anywhere; where that is not enough, the columns become rows; or lines end at hyphens
    too, and the padding goes; then what is too long for a word is cut; and then the table comes in parts that each
    begin with the first column.
    """
    turned = list(zip(*rows, strict=True))
    fitted = (
        _fit(rows, width, _AT_SPACES, 1)
        or _fit(turned, width, _AT_SPACES, 1)
        or _fit(rows, width, _AT_HYPHENS, 1)
        or _fit(rows, width, _AT_HYPHENS, 0)
        or _fit(turned, width, _AT_HYPHENS, 0)
        or _fit(rows, width, _AT_HYPHENS, 0, _NO_WORD)
    )
    return _in_parts(turned, width) if fitted is None else [fitted]


def _in_parts(columns: Rows, width: int) -> list[Fitted]:
    parts: list[Fitted] = []
    key, *others = columns
    chosen, last = [key], None
    for column in others:
        fitted = _fit_columns([*chosen, column], width)
        if fitted is None and last is not None:
            parts.append(last)
            chosen = [key]
            fitted = _fit_columns([key, column], width)
        chosen.append(column)
        last = fitted or _squeezed(chosen)
    parts.append(last or _squeezed(chosen))
    return parts


def _fit_columns(columns: Rows, width: int) -> Fitted | None:
    return _fit(list(zip(*columns, strict=True)), width, _AT_HYPHENS, 0, _NO_WORD)


def _squeezed(columns: Rows) -> Fitted:
    """Two columns of which each is too wide for words to stay whole."""
    return Fitted(list(zip(*columns, strict=True)), None, 0)


def _fit(
    rows: Rows,
    width: int,
    at: re.Pattern[str],
    padding: int,
    longest: int | None = None,
) -> Fitted | None:
    """Fit all columns beside each other; None where a word would be cut."""
    columns = list(zip(*rows, strict=True))
    room = width - (2 * padding + 1) * (len(columns) - 1)
    natural = [max(cell.cell_len for cell in column) for column in columns]
    if sum(natural) <= room:
        return Fitted(rows, None, padding)
    least = []
    for column in columns:
        needed = max(_longest(cell.plain, at) for cell in column)
        least.append(needed if longest is None else min(needed, longest))
    if sum(least) > room:
        return None
    widths = _narrowed(natural, least, room)
    return Fitted(_wrapped(rows, widths, at), widths, padding)


def _narrowed(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Take from the widest columns what is too much."""
    widths = list(natural)
    while sum(widths) > room:
        slack = []
        for have, need in zip(widths, least, strict=True):
            slack.append(have if have > need else 0)
        widths[slack.index(max(slack))] -= 1
    return widths


def _longest(text: str, at: re.Pattern[str]) -> int:
    return max((cell_len(piece.rstrip()) for piece in at.split(text)), default=0)


def _wrapped(rows: Rows, widths: Sequence[int], at: re.Pattern[str]) -> Rows:
    """Break the lines of each cell; spaces are left to what draws the table."""
    if at is _AT_SPACES:
        return rows
    wrapped = []
    for row in rows:
        cells = []
        for cell, width in zip(row, widths, strict=True):
            cells.append(Text(_broken(cell.plain, width), style=cell.style))
        wrapped.append(cells)
    return wrapped


def _broken(text: str, width: int) -> str:
    lines = []
    for line in text.split("\n"):
        start = ""
        for piece in _AT_HYPHENS.split(line):
            if start and cell_len((start + piece).rstrip()) > width:
                lines.append(start.rstrip())
                start = ""
            start += piece
        lines.append(start.rstrip())
    return "\n".join(lines)
