"""Failures alike are one group whatever varies in them, and a pause is long by its own history."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from medlive.service.watch.alike import group_failures, normalise_cause
from medlive.service.watch.checks import (
    LONGEST_PAUSE,
    SHORTEST_PAUSE,
    USUAL_PAUSE,
    longest_pause,
)
from medlive.service.watch.week import format_duration

NOW = datetime(2026, 11, 23, tzinfo=UTC)
WORDS = st.text("abcdefg xyz", max_size=20)


@given(
    st.lists(
        st.tuples(st.integers(0, 10**9), st.uuids(), WORDS), min_size=2, max_size=2
    )
)
def test_numbers_ids_addresses_and_quoted_words_do_not_tell_failures_apart(
    varying: list[tuple[int, UUID, str]],
) -> None:
    causes = set()
    for number, identity, words in varying:
        message = f"host:{number} gave '{words}' for {identity} at https://h.example/{number} : status 429"
        causes.add(normalise_cause(message))
    assert causes == {"host:# gave … for # at URL : status 429"}


def test_another_status_or_another_reason_is_another_group() -> None:
    causes = [
        ("endpoint_unavailable", "status 429: wait 3 s"),
        ("endpoint_unavailable", "status 400: no parameter 'x'"),
        ("endpoint_unavailable", "status 429: wait 7 s"),
        ("invalid_reply", "status 429: wait 7 s"),
    ]
    failures = []
    for number, (reason, detail) in enumerate(causes):
        failure = SimpleNamespace(
            source="sdn",
            thread_id=str(number),
            stage="screener",
            reason=reason,
            detail=detail,
        )
        failures.append(failure)
    groups = group_failures(failures)
    assert [(group.threads, group.reason, group.example) for group in groups] == [
        (2, "endpoint_unavailable", "sdn/0"),
        (1, "endpoint_unavailable", "sdn/1"),
        (1, "invalid_reply", "sdn/3"),
    ]
    assert (groups[0].cause, groups[1].cause) == (
        "status 429: wait # s",
        "status 400: no parameter …",
    )


@given(st.floats(0.1, 3600), st.integers(25, 400))
def test_the_longest_pause_follows_the_gaps_between_decisions(
    gap_s: float, count: int
) -> None:
    gap = timedelta(seconds=gap_s)
    decisions = [NOW - n * gap for n in range(count)]
    pause = longest_pause(decisions)
    assert pause == min(max(3 * gap, SHORTEST_PAUSE), LONGEST_PAUSE)
    # A night between two days of work is no gap of the work.
    assert longest_pause([NOW + timedelta(hours=12), *decisions]) == pause


def test_without_a_history_a_pause_is_the_usual_one() -> None:
    assert longest_pause([NOW] * 3) == USUAL_PAUSE


def test_durations_are_for_people() -> None:
    spans = {3: "3 s", 61: "1 min 1 s", 12_345: "3 h 25 min"}
    assert {
        seconds: format_duration(timedelta(seconds=seconds)) for seconds in spans
    } == spans
