"""Drift: a collapse is noticed, chance and a busy week are not."""

import random
from fractions import Fraction
from math import comb
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.sources.drift import (
    LEAST_RUNS,
    Compared,
    Measure,
    _tail,
    compare,
    measures,
    reads_nothing,
    thread_fields,
)
from medlive.threads.model import Message, Thread


def run(
    read: int = 40, listed: int = 50, messages: float = 4.0, **shares: float
) -> dict[str, Measure]:
    """The figures of a run that read so many threads of those listed, with these shares of fields."""
    fields = {name: (share, read) for name, share in shares.items()}
    ends = {"read": read, "not_modified": listed - read, "listed": listed}
    return measures({"messages": (messages, read), **fields}, ends)


def fallen(now: dict[str, Measure], before: list[dict[str, Measure]]) -> set[str]:
    return {figure.name for figure in compare(now, before) if figure.collapsed}


USUAL = [run(posted_at=1.0, tags=0.6, media=0.1) for _ in range(5)]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (run(posted_at=1.0, tags=0.6, media=0.1), set()),
        (run(posted_at=0.0, tags=0.6, media=0.1), {"field:posted_at"}),
        (run(posted_at=0.4, tags=0.2, media=0.1), {"field:posted_at", "field:tags"}),
        (run(posted_at=0.75, tags=0.6, media=0.0), set()),
        (run(posted_at=0.5, tags=0.6, media=0.1), {"field:posted_at"}),
        (run(posted_at=1.0, tags=1.0, media=1.0), set()),
        (run(read=5, posted_at=0.0, tags=0.0, media=0.0), set()),
        (run(messages=1.0, posted_at=1.0, tags=0.6, media=0.1), {"median:messages"}),
        (run(messages=17.0, posted_at=1.0, tags=0.6, media=0.1), {"median:messages"}),
        (run(read=3, listed=3, posted_at=1.0, tags=1.0, media=0.0), {"count:listed"}),
        (run(read=500, listed=5000, posted_at=1.0, tags=0.6, media=0.1), set()),
    ],
)
def test_what_collapses_is_named_and_nothing_else(
    now: dict[str, Measure], expected: set[str]
) -> None:
    assert fallen(now, USUAL) == expected


def test_a_field_that_no_thread_has_any_more_is_missed() -> None:
    gone = run(tags=0.6, media=0.1)
    assert fallen(gone, USUAL) == {"field:posted_at"}


def test_failures_that_rise_are_noticed_with_and_without_a_history() -> None:
    def failing(read: int, **failed: int) -> dict[str, Measure]:
        fields = {
            "posted_at": (1.0, read),
            "tags": (0.6, read),
            "media": (0.1, read),
            "messages": (4.0, read),
        }
        return measures(fields, {"read": read, "listed": 50, **failed})

    bad = failing(6, layout=14)
    assert fallen(bad, USUAL) == {"end:layout"}
    assert fallen(bad, []) == {"end:layout"}
    assert not fallen(failing(17, layout=3), USUAL)
    assert not fallen(failing(6, fetch=14), USUAL), "a network is no layout"
    assert reads_nothing({"layout": 1})
    assert reads_nothing({"fault": 1, "read": 0})
    assert not reads_nothing({"layout": 9, "read": 1})
    assert not reads_nothing({"not_modified": 3})


def test_few_runs_are_no_history() -> None:
    bare = run(posted_at=0.0, tags=0.6, media=0.1)
    assert not fallen(bare, USUAL[: LEAST_RUNS - 1])
    assert fallen(bare, USUAL[:LEAST_RUNS])
    small = [run(read=4, listed=50, posted_at=1.0, tags=0.6, media=0.1)] * 5
    assert not fallen(bare, small), "runs of few threads are none either"


def test_a_list_that_shows_nothing_is_noticed_although_its_threads_are_asked_for_one_by_one() -> (
    None
):
    ends = {"read": 0, "not_modified": 60, "gone": 4, "listed": 0}
    assert fallen(measures({}, ends), USUAL) == {"count:listed"}


def test_weeks_of_long_threads_are_no_collapse_where_there_were_such_before() -> None:
    weeks = [run(messages=length, posted_at=1.0) for length in (2.0, 2.0, 7.0, 2.0)]
    assert not fallen(run(messages=9.0, posted_at=1.0), weeks)
    assert fallen(run(messages=30.0, posted_at=1.0), weeks) == {"median:messages"}


def test_threads_that_vanish_together_are_noticed_and_a_few_are_not() -> None:
    assert fallen(
        measures({}, {"not_modified": 10, "gone": 40, "listed": 50}), USUAL
    ) == {"end:gone"}
    assert not fallen(
        measures({}, {"not_modified": 40, "gone": 10, "listed": 50}), USUAL
    )


def test_one_odd_run_does_not_move_what_the_others_are_compared_with() -> None:
    odd = run(posted_at=0.0, tags=0.0, media=0.0)
    assert fallen(odd, [*USUAL, odd]) == {"field:posted_at", "field:tags"}


def test_chance_seldom_raises_an_alarm() -> None:
    chance = random.Random(3)
    alarms = 0
    for _ in range(500):
        share = chance.choice((0.2, 0.5, 0.9))
        weeks = []
        for _ in range(9):
            n = chance.randint(8, 60)
            weeks.append(
                run(
                    read=n,
                    listed=60,
                    tags=sum(chance.random() < share for _ in range(n)) / n,
                )
            )
        alarms += bool(fallen(weeks[0], weeks[1:]))
    assert (
        alarms <= 3
    )  # far below CHANCE a run, as a share must be far from its median besides


@given(st.integers(1, 60), st.integers(0, 60), st.floats(0.02, 0.98))
def test_the_tail_is_the_binomial_one(n: int, k: int, p: float) -> None:
    k = min(k, n)
    exact = Fraction(p)
    wanted = sum(
        comb(n, i) * exact**i * (1 - exact) ** (n - i) for i in range(k, n + 1)
    )
    assert _tail(k, n, p) == pytest.approx(float(wanted), rel=1e-9, abs=1e-12)


def test_what_is_told_names_the_figure_its_value_and_what_it_was() -> None:
    messages = {
        f.name: f.message
        for f in compare(run(posted_at=0.0, tags=0.6, media=0.1), USUAL)
    }
    assert (
        messages["field:posted_at"]
        == "field posted_at: 0 over 40 threads (median before: 1)"
    )
    assert (
        messages["median:messages"]
        == "median messages: 4 over 40 threads (median before: 4)"
    )
    assert (
        messages["count:listed"]
        == "count listed: 50 over 50 threads (median before: 50)"
    )
    assert compare(run(), [])[0].message.endswith("(median before: unknown)")
    many = Compared("count:listed", 12345.0, 12345, 9876.5, collapsed=False)
    assert (
        many.message == "count listed: 12345 over 12345 threads (median before: 9876.5)"
    )


def message(**values: Any) -> Message:
    base = {
        "id": "m0",
        "author": "a",
        "role": "patient",
        "verified": False,
        "text": "x",
        "posted_at": None,
    }
    return Message(**{**base, **values})


def test_the_fields_of_a_thread_are_what_it_shows() -> None:
    def thread(*messages: Message) -> Thread:
        return Thread("s", "1", "https://x.example/1", "T", "en", (), None, messages)

    bare = thread_fields(thread())
    assert bare["messages"] == 0
    assert not any(value for name, value in bare.items() if name != "title")
    reply = message(role="physician", verified=True, media=("image",))
    full = thread_fields(thread(message(), reply))
    assert {name for name, value in full.items() if value} == {
        "title",
        "question",
        "reply",
        "verified reply",
        "whole text",
        "media",
        "messages",
    }
    assert not thread_fields(thread(message(), message(text="")))["whole text"]
