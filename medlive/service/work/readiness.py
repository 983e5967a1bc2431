"""Of which queues a worker takes jobs now, and what keeps it from the others.

A job that meets a state of its surroundings (an open circuit, a spent budget, no evidence, no rights, a full disk,
a wrong configuration) is given back, and its queue is paused: no further job of it is taken. After a while one job
is let through. When it gets on, all do; otherwise the wait doubles. A state is logged when it begins and ends.
"""

import errno
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from medlive.clock import now
from medlive.errors import (
    CircuitOpen,
    ConfigError,
    DatabaseFull,
    DatabaseUnavailable,
    DiskFull,
    EvidenceUnavailable,
    MedliveError,
    MissingExtra,
    ServiceUnavailable,
)
from medlive.llm.budget import BudgetSpent
from medlive.service.week_budget import WeekSpent

FIRST_WAIT_S: Final = 30.0
MOST_WAIT_S: Final = 300.0
LEAST_WAIT_S: Final = 0.2
NEVER: Final = float("inf")

_log = logging.getLogger(__name__)
_SURROUNDINGS = (BudgetSpent, ConfigError, MissingExtra, ServiceUnavailable)
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


def find_obstacle(error: BaseException) -> MedliveError | None:
    """The state of the surroundings that an error of a job shows; None for a fault of the job or of medlive.

    A lost database is no obstacle: its jobs are given back, and the worker begins again when it is back.
    """
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        return DiskFull(
            f"no space is left on this machine: {error.filename or error.strerror}"
        )
    if isinstance(error, DatabaseUnavailable) and not isinstance(error, DatabaseFull):
        return None
    return error if isinstance(error, _SURROUNDINGS) else None


@dataclass(slots=True)
class Pause:
    """Why no jobs of a queue are taken, and until when."""

    obstacle: MedliveError
    wait_s: float
    due_at: float  # When one job is let through, by the readiness's clock; NEVER: not in this process
    trial: int | None = None  # The job that was let through and has not ended

    @property
    def reason(self) -> str:
        """The obstacle, and what can be done about it."""
        hint = self.obstacle.hint
        return f"{self.obstacle.message} ({hint})" if hint else self.obstacle.message


class Readiness:
    """What a worker takes jobs of. One event loop at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self.pauses: dict[str, Pause] = {}
        """By queue."""

    def select(self, queues: Sequence[str]) -> list[str]:
        """Those of the queues of which a job may be taken now."""
        return [queue for queue in queues if self._may_take(queue)]

    def _may_take(self, queue: str) -> bool:
        pause = self.pauses.get(queue)
        return pause is None or (pause.trial is None and self._clock() >= pause.due_at)

    def took(self, queue: str, job: int) -> None:
        """A job was taken; of a paused queue it is the one that shows whether others can be."""
        if (pause := self.pauses.get(queue)) is not None:
            pause.trial = job

    def let_go(self, queue: str, job: int) -> None:
        """A job ended without showing anything: the next one does."""
        if (pause := self.pauses.get(queue)) is not None and pause.trial == job:
            pause.trial = None

    def worked(self, queue: str, job: int) -> None:
        """A job was done, or failed for a reason of its own."""
        if (pause := self.pauses.get(queue)) is not None and pause.trial == job:
            self.resume(queue)

    def pause(self, queue: str, obstacle: MedliveError, job: int | None = None) -> None:
        """Take no jobs of a queue for a while; `job` met the obstacle."""
        known = self.pauses.get(queue)
        if known is not None and (job is None or job != known.trial):
            return  # begun before the pause, it shows nothing new
        self._set(queue, obstacle, self._wait_for(obstacle, known))

    def hold(self, queue: str, obstacle: MedliveError) -> None:
        """Take no jobs of a queue until `resume`: nothing here could do them."""
        self._set(queue, obstacle, NEVER)

    def _set(self, queue: str, obstacle: MedliveError, wait_s: float) -> None:
        known = self.pauses.get(queue)
        self.pauses[queue] = pause = Pause(obstacle, wait_s, self._clock() + wait_s)
        if known is None or type(known.obstacle) is not type(obstacle):
            _log.warning("no jobs of %s are taken: %s", queue, pause.reason)
        else:
            pause.obstacle = known.obstacle  # the same state lasts

    def hasten(self, queue: str) -> None:
        """Let a job of a paused queue through now, to see whether the others can be taken."""
        pause = self.pauses.get(queue)
        if pause is not None:
            pause.due_at = min(pause.due_at, self._clock())

    def resume(self, queue: str) -> None:
        """Take jobs of a queue again."""
        if self.pauses.pop(queue, None) is not None:
            _log.warning("jobs of %s are taken again", queue)

    def obstacle(self, queue: str) -> MedliveError | None:
        """What keeps the worker from a queue; None: nothing."""
        pause = self.pauses.get(queue)
        return None if pause is None else pause.obstacle

    def describe(self) -> str | None:
        """Why jobs of some queues are not taken; None: all are."""
        reasons = [
            f"{queue}: {pause.reason}" for queue, pause in sorted(self.pauses.items())
        ]
        return "; ".join(reasons) or None

    @staticmethod
    def _wait_for(obstacle: MedliveError, known: Pause | None) -> float:
        if isinstance(obstacle, CircuitOpen | WeekSpent):
            return max(LEAST_WAIT_S, (obstacle.retry_at - now()).total_seconds())
        if isinstance(obstacle, BudgetSpent | EvidenceUnavailable | DatabaseFull):
            # The budget is this process's own; the others are looked at, and a job would pay for lost replies.
            return NEVER
        if known is None or type(known.obstacle) is not type(obstacle):
            return FIRST_WAIT_S
        return min(MOST_WAIT_S, 2 * known.wait_s)
