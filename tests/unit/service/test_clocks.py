"""Which of two clocks is believed."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.clock import CLOCK_BOUND
from medlive.service.schedule.clocks import BelievedClock

START = datetime(2026, 11, 16, tzinfo=UTC)
JUMPS = st.timedeltas(
    min_value=-timedelta(days=400), max_value=timedelta(days=400)
).filter(lambda jump: abs(jump) > 2 * CLOCK_BOUND)


class Machine:
    """Three clocks: this machine's, the database's, and seconds that nobody sets."""

    def __init__(self) -> None:
        self.own = self.database = START
        self.seconds = 100.0
        self.clock = BelievedClock(lambda: self.own, lambda: self.seconds)

    def go_on(self, seconds: float) -> None:
        self.seconds += seconds
        self.own += timedelta(seconds=seconds)
        self.database += timedelta(seconds=seconds)

    def read(self) -> tuple[timedelta, bool]:
        """How far what is believed is from the true time, and whether a problem is said."""
        reading = self.clock.read(self.database)
        return reading.moment - START - timedelta(
            seconds=self.seconds - 100
        ), reading.problem is not None


@given(JUMPS, st.sampled_from(["own", "database"]), st.floats(0, 1e6))
def test_the_clock_that_did_not_jump_is_believed(
    jump: timedelta, which: str, seconds: float
) -> None:
    machine = Machine()
    assert machine.read() == (timedelta(), False)
    machine.go_on(seconds)
    setattr(machine, which, getattr(machine, which) + jump)
    for _ in range(3):
        off, said = machine.read()
        assert (abs(off) < timedelta(seconds=1), said) == (True, True)
        machine.go_on(60)
    setattr(machine, which, getattr(machine, which) - jump)
    off, said = machine.read()
    assert (abs(off) < timedelta(seconds=1), said) == (True, False)


@given(JUMPS)
def test_at_a_start_the_databases_clock_is_believed(jump: timedelta) -> None:
    machine = Machine()
    machine.own += jump
    assert machine.read() == (timedelta(), True)


@given(JUMPS)
def test_clocks_that_jump_together_are_believed_and_it_is_said_once(
    jump: timedelta,
) -> None:
    machine = Machine()
    machine.read()
    machine.own += jump
    machine.database += jump
    assert machine.read() == (jump, True)
    machine.go_on(5)
    assert machine.read() == (jump, False)


@pytest.mark.parametrize("drift", [-1, 1])
def test_a_clock_may_drift_within_the_bound(drift: int) -> None:
    machine = Machine()
    machine.own += drift * (CLOCK_BOUND - timedelta(seconds=1))
    assert machine.read() == (machine.own - START, False)
