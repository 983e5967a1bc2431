"""What pages are made of: parts of tables, probabilitiesand names of files."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.report.html import file_name, format_p

pytestmark = pytest.mark.whole


def test_no_p_is_said_to_be_nothing() -> None:
    assert [format_p(p) for p in (0.0, 0.00009, 0.0002, 0.07, 1.0, None)] == [
        "< 0.0001",
        "< 0.0001",
        "0.0002",
        "0.0700",
        "1.0000",
        "–",
    ]


@settings(max_examples=10)
@given(st.lists(st.text(), min_size=2, max_size=12, unique=True))
def test_every_case_has_a_file_of_its_own_that_any_system_can_name(
    ids: list[str],
) -> None:
    names = [file_name(case_id).lower() for case_id in ids]
    assert len(set(names)) == len(ids)
    assert all(re.fullmatch(r"[a-z0-9_-]{10,60}\.html", name) for name in names)
