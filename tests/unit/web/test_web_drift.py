"""Drift: a week's shares beside the weeks before; a change is unusual, chance is not."""

import pytest

from medlive.db.audit.standing import Standing
from medlive.web.audit.drift import find_drift


def weeks(*kept: int, of: int = 100) -> list[Standing]:
    """Weeks from 2026.W50 on, each with so many of `of` threads kept and the others without an answer."""
    names = ["2026.W50", "2026.W51", "2026.W52", "2026.W53", "2027.W01", "2027.W02"]
    return [
        Standing(week, "sdn", what, n)
        for week, good in zip(names, kept, strict=False)
        for what, n in (("kept", good), ("no_advice", of - good))
        if n
    ]


def test_a_week_is_compared_with_the_weeks_before() -> None:
    found, since = find_drift(weeks(30, 34, 28, 32, 60))
    kept, rejected = found
    assert (since, kept.week, kept.what, rejected.what, kept.weeks) == (
        "",
        "2027.W01",
        "kept",
        "no_advice",
        4,
    )
    assert (kept.share, kept.n, kept.mean) == (0.6, 100, pytest.approx(0.31))
    # Student's t for 3 degrees; chance alone, 0.31 · 0.69 / 100, is wider than the four weeks' spread.
    half = 3.182 * (0.31 * 0.69 / 100 * 1.25) ** 0.5
    assert (kept.low, kept.high) == (
        pytest.approx(0.31 - half),
        pytest.approx(0.31 + half),
    )
    assert kept.unusual
    assert rejected.unusual
    assert not any(one.unusual for one in find_drift(weeks(30, 34, 28, 32, 40))[0])
    assert not any(one.unusual for one in find_drift(weeks(3, 60, 10, 45, 70))[0]), (
        "weeks that vary much"
    )


def test_what_is_new_or_gone_is_there() -> None:
    found, _ = find_drift(
        [*weeks(100, 100, 100, 100), Standing("2026.W53", "sdn", "held", 100)]
    )
    assert [(d.what, d.share, d.mean, d.unusual) for d in found] == [
        ("kept", 0.5, 1.0, True),
        ("held", 0.5, 0.0, True),
    ]


@pytest.mark.parametrize(
    ("decided", "since"),
    [(weeks(5), "2026.W53"), (weeks(5, 5, 5), "2026.W53"), ([], "")],
)
def test_with_few_weeks_it_says_from_when_there_is_some(
    decided: list[Standing], since: str
) -> None:
    assert find_drift(decided) == ([], since)
