"""What pages are made of: parts of tables, probabilitiesand names of files."""

import re

from hypothesis import given
from hypothesis import strategies as st

from medlive.report.html import file_name, format_p
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
