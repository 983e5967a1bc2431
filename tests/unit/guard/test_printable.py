"""What a stranger wrote reaches a terminal or a log without any power over it."""

import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from medlive.guard.printable import printable, printable_lines


@given(st.text())
@example("\x1b[2J\x1b]0;title\x07")
@example("\x9b31m")
@example("‮evil")
@example("a\r\nerror: forged")
def test_nothing_in_it_moves_the_cursor_or_forges_a_line(text: str) -> None:
    shown = printable(text)
    assert not any(unicodedata.category(c)[0] == "C" for c in shown)
    assert not {"\n", "\r", "\u2028", "\u2029"} & set(shown)
    assert printable(shown) == shown
    assert not any(
        unicodedata.category(c)[0] == "C"
        for c in printable_lines(text)
        if c not in "\n\t"
    )


def test_words_of_every_language_stay_as_they_are() -> None:
    text = "Dr. Müller 说：“头痛　三天” – 37.2 ℃ 👍"
    assert printable(text) == text
    assert printable_lines("a\n\tb") == "a\n\tb"
