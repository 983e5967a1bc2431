"""Tables that fit a terminal's width without a word being cut."""

import re
from collections.abc import Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

Rows = Sequence[Sequence[Text]]
"""A table's rows, the first of which holds the columns' names."""

_AT_SPACES = re.compile(
    r"(?<=\s)(?=\S)|(?<=[\u3001-\u30ff\u4e00-\u9fff\uff01-\uff60])(?=[\u3040-\u30ff\u4e00-\u9fff])"
)
"""Spaces, and between the characters of scripts that have none."""


def fit_table(rows: Rows, width: int) -> Table:
    """Fit a table into so many columns of characters.

    Lines end at spaces, Chinese anywhere. Where that is not enough, each value has a line of its own beside its
    column's name, and only what is longer than that line is cut.
    """
    widths = _fit(rows, width)
    has_head = widths is not None or len(rows) == 1
    if not has_head:
        names, *cells = rows
        rows = []
        for row in cells:
            rows += [*zip(names, row, strict=True), (Text(), Text())]
        rows.pop()
        half = width // 2
        wanted = max(name.cell_len for name in names)
        widths = [min(wanted, half), width - half - 3]
    table = Table(show_edge=False, pad_edge=False, show_header=has_head)
    for place, name in enumerate(rows[0]):
        table.add_column(name, overflow="fold", width=widths[place] if widths else None)
    for row in rows[1:] if has_head else rows:
        table.add_row(*row)
    return table


def _fit(rows: Rows, width: int) -> list[int] | None:
    """The widths by which all columns fit beside each other, none where they fit anyway; None: a word would be cut."""
    columns = list(zip(*rows, strict=True))
    room = width - 3 * (len(columns) - 1)
    widths = [max(cell.cell_len for cell in column) for column in columns]
    if sum(widths) <= room:
        return []
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
    return widths
