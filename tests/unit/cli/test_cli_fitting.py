"""Tables at every width: no word is cut, and nothing is lost."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from medlive.cli import output
from medlive.cli.fitting import fit_table

WORDS = st.text("abcdefgh", min_size=1, max_size=12)
CELLS = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    columns = draw(st.integers(1, 12))
    row = st.lists(CELLS, min_size=columns, max_size=columns)
    return draw(st.lists(row, min_size=2, max_size=4))


def drawn(rows: list[list[str]], width: int) -> str:
    console = Console(width=width, color_system=None)
    texts = [[Text(cell) for cell in row] for row in rows]
    with console.capture() as captured:
        console.print(fit_table(texts, width))
    return captured.get()


def words(text: str) -> set[str]:
    return set(re.split(r"[\s│┃━─╇┼]+", text)) - {""}


@settings(max_examples=10)
@given(rows=tables(), width=st.integers(40, 160))
def test_every_word_is_whole_at_every_width(rows: list[list[str]], width: int) -> None:
    shown = drawn(rows, width)
    assert max(map(len, shown.splitlines())) <= width
    wanted = set()
    for row in rows:
        for cell in row:
            wanted |= words(cell)
    assert words(shown) == wanted


def test_what_does_not_fit_has_a_line_for_each_value() -> None:
    rows = [[f"{row}{column}" * 6 for column in "abcdefgh"] for row in "pqrstuvw"]
    shown = drawn(rows, 60)
    names = rows[0]
    assert shown.splitlines()[0].split() == [names[0], "│", rows[1][0]]
    assert all(shown.count(name) == len(rows) - 1 for name in names)


def test_chinese_ends_a_line_anywhere() -> None:
    rows = [["case", "query"], ["ml-e3d67db7364e32bf", "非布司他之类的降尿酸药" * 4]]
    lines = drawn(rows, 60).splitlines()
    assert lines[0].split() == ["case", "┃", "query"]
    assert "".join(re.findall("[一-鿿]+", "".join(lines))) == rows[1][1]


def test_a_title_does_not_wrap_at_its_tables_width(
    capsys: pytest.CaptureFixture[str],
) -> None:
    title = "icliniq/ic-1: nothing was erased, this is what would be"
    output.print_table(["what", "rows"], [["a", 1]], title=title)
    assert capsys.readouterr().out.splitlines()[0].rstrip() == title
