"""Tables that fit a terminal's width without a word being cut."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.text import Text

Rows = Sequence[Sequence[Text]]
"""A table's rows, the first of which holds the columns' names."""

_AT_SPACES: Final = re.compile(
    r"(?<=\s)(?=\S)|(?<=[\u3001-\u30ff\u4e00-\u9fff\uff01-\uff60])(?=[\u3040-\u30ff\u4e00-\u9fff])"
)
"""Spaces, and between the characters of scripts that have none."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table, with the widths of its columns by which it fits; None where it fits anyway."""

    rows: Rows
    widths: Sequence[int] | None
    has_head: bool = True


def arrange(rows: Rows, width: int) -> Fitted:
    """Fit a table into so many columns of characters.

    Lines end at spaces, Chinese anywhere. Where that is not enough, the columns become rows; else each value has a
    line of its own beside its column's name, and only what is longer than that line is cut.
    """
    fitted = _fit(rows, width) or _fit(list(zip(*rows, strict=True)), width)
    if fitted is not None:
        return fitted
    names, *cells = rows
    named: list[Sequence[Text]] = []
    for row in cells:
        named += zip(names, row, strict=True)
        named.append([Text(), Text()])
    half = width // 2
    wanted = max(cell.cell_len for cell in names)
    return Fitted(named[:-1], [min(wanted, half), width - half - 3], has_head=False)


def _fit(rows: Rows, width: int) -> Fitted | None:
    """Fit all columns beside each other; None where a word would be cut."""
    columns = list(zip(*rows, strict=True))
    room = width - 3 * (len(columns) - 1)
    widths = [max(cell.cell_len for cell in column) for column in columns]
    if sum(widths) <= room:
        return Fitted(rows, None)
    least = []
    for column in columns:
        words = [word for cell in column for word in _AT_SPACES.split(cell.plain)]
        least.append(max(cell_len(word.rstrip()) for word in words))
    if sum(least) > room:
        return None
    while sum(widths) > room:
        slack = []
        for have, need in zip(widths, least, strict=True):
            slack.append(have if have > need else 0)
        widths[slack.index(max(slack))] -= 1
    return Fitted(rows, widths)
