"""A week's durations, as people read them."""

from datetime import timedelta

from medlive.service.watch.week import format_duration


def test_durations_are_for_people() -> None:
    spans = {3: "3 s", 61: "1 min 1 s", 12_345: "3 h 25 min"}
    assert {
        seconds: format_duration(timedelta(seconds=seconds)) for seconds in spans
    } == spans
