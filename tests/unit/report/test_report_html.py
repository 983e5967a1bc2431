"""What pages are made of: parts of tables, probabilities, names of files, JSON."""

import json
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.report.html import file_name, format_p, json_text
from medlive.report.model import in_parts


@given(st.integers(1, 200), st.integers(1, 12))
def test_parts_hold_every_model_once_and_none_is_left_alone(
    count: int, size: int
) -> None:
    parts = [places for _, places in in_parts(count, size)]
    assert [k for places in parts for k in places] == list(range(count))
    lengths = [len(places) for places in parts]
    assert max(lengths) <= size
    assert max(lengths) - min(lengths) <= 1
    assert len(parts) == -(-count // size)


def test_no_p_is_said_to_be_nothing() -> None:
    assert [format_p(p) for p in (0.0, 0.00009, 0.0002, 0.07, 1.0, None)] == [
        "< 0.0001",
        "< 0.0001",
        "0.0002",
        "0.0700",
        "1.0000",
        "–",
    ]


@given(st.lists(st.text(), min_size=2, max_size=12, unique=True))
def test_every_case_has_a_file_of_its_own_that_any_system_can_name(
    ids: list[str],
) -> None:
    names = [file_name(case_id).lower() for case_id in ids]
    assert len(set(names)) == len(ids)
    assert all(re.fullmatch(r"[a-z0-9_-]{10,60}\.html", name) for name in names)


@settings(max_examples=60)
@given(
    st.recursive(
        st.text() | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=4),
        max_leaves=9,
    )
)
def test_json_in_a_page_comes_back_as_it_was_and_ends_no_element(value: Any) -> None:
    text = json_text(json.dumps(value, ensure_ascii=False))
    assert "<" not in text
    assert json.loads(text.encode("utf-8", "backslashreplace")) == value
