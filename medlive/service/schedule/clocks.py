"""The moment that decides what is due: this machine's clock, believed within bounds of the database's."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from medlive import clock
from medlive.clock import CLOCK_BOUND


class Reading(NamedTuple):
    """A moment, and what is wrong with a clock."""

    moment: datetime
    problem: str | None  # None: nothing


def _elapsed() -> float:
    """Seconds of a clock that nobody sets and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass
class BelievedClock:
    """Of two clocks that disagree, the one that did not jump; the database's where none was read before."""

    own: Callable[[], datetime] = lambda: clock.now()  # looked up at each call
    elapsed: Callable[[], float] = _elapsed
    _last: tuple[datetime, float] | None = field(default=None, init=False)

    def read(self, database: datetime) -> Reading:
        """The moment to believe; `database` is what the database's clock says now."""
        own, elapsed = self.own(), self.elapsed()
        expected = None
        if self._last is not None:
            moment, then = self._last
            expected = moment + timedelta(seconds=elapsed - then)
        reading = self._judge(own, database, expected)
        self._last = (reading.moment, elapsed)
        return reading

    def _judge(
        self, own: datetime, database: datetime, expected: datetime | None
    ) -> Reading:
        if abs(own - database) <= CLOCK_BOUND:
            if expected is None or abs(own - expected) <= CLOCK_BOUND:
                return Reading(own, None)
            jump = f"the clocks of this machine and the database jumped {_span(own - expected)}"
            return Reading(own, f"{jump}, to {own:%Y-%m-%d %H:%M} UTC")
        if expected is not None and abs(own - expected) <= CLOCK_BOUND:
            return Reading(
                own,
                f"the database's clock jumped {_span(database - own)}: this machine's is believed",
            )
        off = f"this machine's clock is {_span(own - database)} of the database's, which is believed"
        return Reading(database, off)


def clock_problem(own: datetime, database: datetime) -> str | None:
    """That this machine's clock and the database's do not agree; None: they do."""
    if abs(own - database) <= CLOCK_BOUND:
        return None
    return f"this machine's clock is {_span(own - database)} of the database's: set the one that is wrong"


def _span(difference: timedelta) -> str:
    """Such as "22 days ahead"."""
    seconds = abs(difference.total_seconds())
    days, hours, minutes = seconds / 86_400, seconds / 3600, seconds / 60
    count, unit = (
        (days, "days")
        if days >= 2
        else (hours, "hours")
        if hours >= 2
        else (minutes, "minutes")
    )
    return f"{count:.0f} {unit} {'ahead' if difference > timedelta() else 'behind'}"
