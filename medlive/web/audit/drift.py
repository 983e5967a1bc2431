"""Whether a source's latest week went as those before: shares of what was kept, held, parked, rejected for what."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import sqrt
from statistics import fmean, variance
from typing import Final

from medlive.clock import iso_week
from medlive.db.audit.listing import week_bounds
from medlive.db.audit.standing import Standing

LEAST_WEEKS: Final = 3
"""Weeks before the latest from which their spread is computed."""
_MOST_WEEKS: Final = 8
_T: Final = (4.303, 3.182, 2.776, 2.571, 2.447, 2.365)
"""Student's t at 0.975 for 2 to 7 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A share of the threads of a source that were decided in its latest week, beside the weeks before."""

    source: str
    week: str
    what: str  # An outcome, or the reason of a rejection
    share: float
    n: int  # Standing threads of the week
    mean: float  # Of the shares of the weeks before
    low: float  # Where the share of a week is in 95 of 100 cases, if nothing changed
    high: float
    weeks: int  # How many there are before

    @property
    def unusual(self) -> bool:
        """Whether the share lies outside of the interval."""
        return not self.low <= self.share <= self.high


def find_drift(decided: Iterable[Standing]) -> tuple[list[Drift], str]:
    """The shares of each source's latest week, kept first; without any, the week from which on there are some.

    The mean is of at most 8 weeks. The interval is Student's for one further week, and at least as wide as chance
    makes the share of so many threads.
    """
    sources: dict[str, dict[str, Counter[str]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    for one in decided:
        sources[one.source][one.week][one.what] += one.n
    found = [
        drift
        for source, weeks in sorted(sources.items())
        for drift in _of_source(source, weeks)
    ]
    if found or not sources:
        return found, ""
    return [], min(_first_week(sorted(weeks)) for weeks in sources.values())


def _of_source(source: str, weeks: Mapping[str, Counter[str]]) -> list[Drift]:
    *earlier, latest = sorted(weeks)
    earlier = earlier[-_MOST_WEEKS:]
    if len(earlier) < LEAST_WEEKS:
        return []
    n, names = (
        weeks[latest].total(),
        {name for week in (*earlier, latest) for name in weeks[week]},
    )
    found = []
    for name in names:
        shares = [weeks[week][name] / weeks[week].total() for week in earlier]
        mean, half = fmean(shares), _half_width(shares, n)
        found.append(
            Drift(
                source,
                latest,
                name,
                weeks[latest][name] / n,
                n,
                mean,
                max(0.0, mean - half),
                min(1.0, mean + half),
                len(earlier),
            )
        )
    return sorted(
        found, key=lambda d: (d.what not in ("kept", "held", "parked"), -d.mean, d.what)
    )


def _half_width(shares: Sequence[float], n: int) -> float:
    mean, k = fmean(shares), len(shares)
    spread = max(variance(shares), mean * (1 - mean) / n)
    return _T[k - LEAST_WEEKS] * sqrt(spread * (1 + 1 / k))


def _first_week(weeks: Sequence[str]) -> str:
    """The week in which a source with decisions in these will have enough, if each of the next has some."""
    start, _ = week_bounds(weeks[-1])
    return iso_week(start + timedelta(weeks=LEAST_WEEKS + 1 - len(weeks)))
