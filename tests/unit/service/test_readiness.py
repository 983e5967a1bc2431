"""Which queues a worker takes jobs of: paused by an obstacle, tried with one job, resumed when that gets on."""

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
from medlive.service.work.readiness import (
    FIRST_WAIT_S,
    MOST_WAIT_S,
    Readiness,
    find_obstacle,
)

QUEUE = "curate"


def test_one_job_is_let_through_after_a_wait_that_doubles_and_all_when_it_gets_on() -> (
    None
):
    moment = [0.0]
    readiness = Readiness(lambda: moment[0])
    readiness.pause(QUEUE, ConfigError("wrong"), 1)
    wait_s, job = FIRST_WAIT_S, 10
    for _ in range(6):
        moment[0] += wait_s - 1
        assert readiness.select([QUEUE, "release"]) == ["release"]
        moment[0] += 1
        assert readiness.select([QUEUE]) == [QUEUE]
        readiness.took(QUEUE, job)
        assert readiness.select([QUEUE]) == [], "one at a time"
        readiness.pause(
            QUEUE, ConfigError("wrong"), job - 1
        )  # begun before, it says nothing new
        readiness.worked(QUEUE, job - 1)
        assert readiness.select([QUEUE]) == []
        readiness.pause(QUEUE, ConfigError("wrong"), job)
        wait_s, job = min(2 * wait_s, MOST_WAIT_S), job + 1
    moment[0] += wait_s
    readiness.took(QUEUE, job)
    readiness.worked(QUEUE, job)
    assert readiness.select([QUEUE]) == [QUEUE]
    assert readiness.describe() is None


@pytest.mark.parametrize(
    "obstacle", [BudgetSpent("spent"), IndexMissing("none"), DatabaseFull("full")]
)
def test_what_a_job_cannot_find_out_lets_none_through(obstacle: MedliveError) -> None:
    moment = [0.0]
    readiness = Readiness(lambda: moment[0])
    readiness.pause(QUEUE, obstacle, 1)
    moment[0] = 1e12
    assert readiness.select([QUEUE]) == []


@given(st.floats(-3600, 7200))
def test_an_open_circuit_is_waited_for_as_long_as_it_says(seconds: float) -> None:
    moment = [0.0]
    readiness = Readiness(lambda: moment[0])
    readiness.pause(
        QUEUE,
        CircuitOpen("open", hint="", retry_at=now() + timedelta(seconds=seconds)),
        1,
    )
    moment[0] = max(1.0, seconds + 1)
    assert readiness.select([QUEUE]) == [QUEUE]


def test_one_job_is_let_through_where_the_wait_was_shortened() -> None:
    readiness = Readiness(lambda: 0.0)
    until = now() + timedelta(hours=1)
    readiness.pause(QUEUE, CircuitOpen("open", hint="", retry_at=until), 1)
    assert readiness.select([QUEUE]) == []
    readiness.hasten(QUEUE)
    assert readiness.select([QUEUE]) == [QUEUE]
    readiness.took(QUEUE, 2)
    assert readiness.select([QUEUE]) == []


def test_faults_of_a_job_and_a_lost_database_are_no_obstacles() -> None:
    assert find_obstacle(ValueError("x")) is None
    assert find_obstacle(DatabaseUnavailable("away")) is None
    assert isinstance(find_obstacle(DatabaseFull("full")), DatabaseFull)
    assert isinstance(find_obstacle(OSError(errno.ENOSPC, "full", "/x")), DiskFull)
    assert find_obstacle(OSError(errno.ENOENT, "gone")) is None
