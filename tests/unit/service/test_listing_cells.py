"""Cells of a listing: no spreadsheet runs one, and each comes back."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from medlive.service.listings import _RISKY, guarded


@given(
    st.text(
        alphabet=st.sampled_from("='+-@\t\r\n \uff1d\uff20ab") | st.characters(),
        max_size=6,
    )
)
@example('=HYPERLINK("x","y")')
@example("'=1")
@example(" \n=1")
@example("'\r")
def test_no_cell_begins_as_a_formula_and_each_comes_back(text: str) -> None:
    cell = guarded(text)
    is_marked = cell.startswith("'") and _RISKY.match(cell[1:])
    assert (cell[1:] if is_marked else cell) == text
    assert not re.match(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]", cell)
    assert not cell.startswith(("\t", "\r", "\n"))
