"""Quotes in their messages, and what a revision changed."""

from hypothesis import given
from hypothesis import strategies as st

from medlive.web.audit.thread import compare, mark_thread

TEXT = st.text("ab 头痛,.\n", max_size=40)


@given(TEXT, st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=5))
def test_parts_are_the_text_and_each_quote_is_lit_whole(
    text: str, places: list[tuple[int, int]]
) -> None:
    quotes = [text[start : start + length] for start, length in places]
    elements = [
        {"id": f"n{n}", "message_id": "m0", "quote": quote}
        for n, quote in enumerate(quotes)
    ]
    title, [message] = mark_thread(
        {"title": "", "messages": [{"text": text, "place": 0}]}, elements
    )
    assert "".join(part.text for part in message.parts) == text
    for element in elements:
        lit = "".join(
            part.text for part in message.parts if element["id"] in part.elements
        )
        assert lit.split() in ([], element["quote"].split())
        begins = [part for part in message.parts if element["id"] in part.begins]
        assert len(begins) == bool(lit)
    assert title.parts == ()


def test_a_quote_is_found_whatever_its_spaces_and_letters_and_no_other() -> None:
    elements = [
        {"id": "n1", "message_id": "m0", "quote": "Dry cough"},
        {"id": "n2", "message_id": "m0", "quote": "wet cough"},
        {"id": "q", "message_id": "title", "quote": "cough?"},
    ]
    title, [message] = mark_thread(
        {"title": "A cough?", "messages": [{"text": "a dry\n cough", "place": 0}]},
        elements,
    )
    assert [(part.text, part.elements) for part in message.parts] == [
        ("a ", ()),
        ("dry\n cough", ("n1",)),
    ]
    assert title.parts[-1].begins == ("q",)


@given(TEXT, TEXT)
def test_a_comparison_holds_both_texts(old: str, new: str) -> None:
    changes = compare(old, new)
    assert "".join(text for kind, text in changes if kind != "new") == old
    assert "".join(text for kind, text in changes if kind != "old") == new


def test_a_comparison_names_the_words_that_changed() -> None:
    assert compare("take 10 mg daily", "take 20 mg daily") == [
        ("same", "take "),
        ("old", "10"),
        ("new", "20"),
        ("same", " mg daily"),
    ]
