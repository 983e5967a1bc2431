"""Fit a table into a terminal's width without cutting a word: `fit_table`."""

import re
from collections.abc import Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

Rows = Sequence[Sequence[Text]]
"""A table's rows, the first of which holds the columns' names."""

_LINES = re.compile("\n")
_WORDS = re.compile(
    r"(?<=\s)(?=\S)|(?<=[\u3001-\u30ff\u4e00-\u9fff\uff01-\uff60])(?=[\u3040-\u30ff\u4e00-\u9fff])"
)
"""Where a line may break: after spaces, and between the characters of scripts without spaces."""


def fit_table(rows: Rows, width: int) -> Table:
    """Fit a table into `width` characters.

    Lines break at spaces, in Chinese anywhere. Where that is not enough, each value has a line of its own beside its
    column's name, and only what is longer than that line is cut.
    """
    columns = list(zip(*rows, strict=True))
    available = width - 3 * (len(columns) - 1)
    widths = [_longest(_LINES, column) for column in columns]
    least = [_longest(_WORDS, column) for column in columns]
    if sum(least) > available:
        return _one_value_a_line(rows, width)
    # Narrow the column that has the most to spare, character by character.
    while sum(widths) > available:
        slack = [have - need for have, need in zip(widths, least, strict=True)]
        widths[slack.index(max(slack))] -= 1
    table = Table(show_edge=False, pad_edge=False)
    for name, size in zip(rows[0], widths, strict=True):
        table.add_column(name, overflow="fold", width=size)
    for row in rows[1:]:
        table.add_row(*row)
    return table


def _longest(ends: re.Pattern[str], cells: Sequence[Text]) -> int:
    """The width of the widest part of cells, split at `ends`."""
    parts = [part for cell in cells for part in ends.split(cell.plain)]
    return max(cell_len(part.rstrip()) for part in parts)


def _one_value_a_line(rows: Rows, width: int) -> Table:
    names, *records = rows
    first = min(_longest(_LINES, names), width // 2)
    table = Table(show_edge=False, pad_edge=False, show_header=False)
    table.add_column(overflow="fold", width=first)
    table.add_column(overflow="fold", max_width=width - first - 3)
    for record in records:
        for name, cell in zip(names, record, strict=True):
            table.add_row(name, cell)
        table.add_section()
    return table
