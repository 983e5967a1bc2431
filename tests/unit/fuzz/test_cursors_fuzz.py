"""A place in a table, as an address names it: any text is a row's key or is refused."""

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from medlive.db.audit.listing import _edge
from medlive.db.audit.tables import LISTINGS
from medlive.errors import UsageError
from medlive.web.audit.tables import State
from tests.support.fuzzing import DEEP, VALUES

pytestmark = [pytest.mark.security, pytest.mark.thorough]

MOMENTS = st.datetimes(timezones=st.timezones()).map(datetime.isoformat)
PARTS = st.text(max_size=40) | MOMENTS | st.integers().map(str) | VALUES.map(json.dumps)
KEYS = st.lists(PARTS, max_size=4).map("~".join)


@given(st.sampled_from(sorted(LISTINGS)), KEYS)
@example("threads", DEEP)
@example("threads", "2026-11-22T00:00:00+00:00~99999999999999999999")
@example("threads", "2026-11-22~1")
@example("threads", "9" * 10_000)
def test_any_text_is_a_key_or_is_refused(table: str, text: str) -> None:
    listing = LISTINGS[table]
    for sort in listing.sorts:
        order = listing.order(sort)
        try:
            values = _edge(text, order)
        except UsageError:
            continue
        assert len(values) == len(order)


NAMES = st.sampled_from(
    [
        "since",
        "until",
        "text",
        "sort",
        "order",
        "after",
        "before",
        "at",
        "week",
        "state",
        "x",
    ]
)
VALUE = st.text(max_size=20) | st.sampled_from(
    [
        "0001-01-01",
        "9999-12-31T23:59:59-23:59",
        "2026.W99",
        "2026.W47",
        "-1",
        "asc",
        DEEP,
        "9" * 10_000,
    ]
)


@given(st.sampled_from(sorted(LISTINGS)), st.lists(st.tuples(NAMES, VALUE), max_size=5))
def test_any_address_is_a_state_that_writes_itself_or_is_refused(
    table: str, pairs: list[Any]
) -> None:
    try:
        state = State.parse(table, QueryParams(pairs))
    except UsageError:
        return
    again = State.parse(table, QueryParams(list(state.fields)))
    assert again.where == state.where
    state.page(before=state.before)
