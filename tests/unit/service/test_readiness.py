"""Which queues a worker takes jobs of: paused by an obstacle, tried after a while, resumed when a job gets on."""

import errno
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.clock import now
from medlive.errors import (
    CircuitOpen,
    ConfigError,
    DatabaseFull,
    DatabaseUnavailable,
    DiskFull,
    IndexMissing,
    MedliveError,
)
from medlive.llm.budget import BudgetSpent
from medlive.service.work.taken import (
    FIRST_WAIT_S,
    MOST_WAIT_S,
    Readiness,
    find_obstacle,
)

QUEUE = "curate"


def test_jobs_are_let_through_after_a_wait_that_doubles_until_one_gets_on() -> None:
    moment = [0.0]
    readiness = Readiness(lambda: moment[0])
    wait_s = FIRST_WAIT_S
    for _ in range(6):
        readiness.pause(QUEUE, ConfigError("wrong"))
        # Begun before the pause, these say nothing new.
        readiness.pause(QUEUE, ConfigError("wrong"))
        readiness.worked(QUEUE)
        moment[0] += wait_s - 1
        assert [q for q in (QUEUE, "release") if readiness.is_open(q)] == ["release"]
        moment[0] += 1
        assert readiness.is_open(QUEUE)
        assert "wrong" in str(readiness.describe())
        wait_s = min(2 * wait_s, MOST_WAIT_S)
    readiness.worked(QUEUE)
    assert readiness.describe() is None


@pytest.mark.parametrize(
    "obstacle", [BudgetSpent("spent"), IndexMissing("none"), DatabaseFull("full")]
)
def test_what_a_job_cannot_find_out_lets_none_through(obstacle: MedliveError) -> None:
    moment = [0.0]
    readiness = Readiness(lambda: moment[0])
    readiness.pause(QUEUE, obstacle)
    moment[0] = 1e12
    assert not readiness.is_open(QUEUE)


@given(st.floats(-3600, 7200))
def test_an_open_circuit_is_waited_for_as_long_as_it_says(seconds: float) -> None:
    moment = [0.0]
    readiness = Readiness(lambda: moment[0])
    readiness.pause(
        QUEUE,
        CircuitOpen("open", hint="", retry_at=now() + timedelta(seconds=seconds)),
    )
    moment[0] = max(1.0, seconds + 1)
    assert readiness.is_open(QUEUE)


def test_faults_of_a_job_and_a_lost_database_are_no_obstacles() -> None:
    assert find_obstacle(ValueError("x")) is None
    assert find_obstacle(DatabaseUnavailable("away")) is None
    assert isinstance(find_obstacle(DatabaseFull("full")), DatabaseFull)
    assert isinstance(find_obstacle(OSError(errno.ENOSPC, "full", "/x")), DiskFull)
    assert find_obstacle(OSError(errno.ENOENT, "gone")) is None
