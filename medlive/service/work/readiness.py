"""Of which queues a worker takes jobs now, and what keeps it from the others.

A job that meets a state of its surroundings (an open circuit, a spent budget, no evidence, no rights, a full disk,
a wrong configuration) is given back, and its queue is paused: no further job of it is taken. After a while jobs are
let through. When one gets on the pause ends; otherwise the wait doubles. A state is logged when it begins and ends.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from medlive.clock import now
from medlive.errors import (
    NO_SPACE,
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

FIRST_WAIT_S = 30.0
MOST_WAIT_S = 300.0
LEAST_WAIT_S = 0.2
NEVER = float("inf")

_log = logging.getLogger(__name__)
_SURROUNDINGS = (BudgetSpent, ConfigError, MissingExtra, ServiceUnavailable)


def find_obstacle(error: BaseException) -> MedliveError | None:
    """The state of the surroundings that an error of a job shows; None for a fault of the job or of medlive.

    A lost database is no obstacle: its jobs are given back, and the worker begins again when it is back.
    """
    if isinstance(error, OSError) and error.errno in NO_SPACE:
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
    due_at: float  # When jobs are let through, by the readiness's clock; NEVER: not in this process

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
        """By queue; one that is due lasts until a job gets on."""

    def select(self, queues: Sequence[str]) -> list[str]:
        """Those of the queues of which jobs may be taken now."""
        return [queue for queue in queues if self._is_open(queue)]

    def _is_open(self, queue: str) -> bool:
        pause = self.pauses.get(queue)
        return pause is None or self._clock() >= pause.due_at

    def worked(self, queue: str) -> None:
        """A job was done, or failed for a reason of its own."""
        if self._is_open(queue):  # else it was begun before the pause
            self.resume(queue)

    def pause(
        self, queue: str, obstacle: MedliveError, wait_s: float | None = None
    ) -> None:
        """Take no jobs of a queue for a while; None: for as long as the obstacle asks for."""
        known = self.pauses.get(queue)
        lasts = known and type(known.obstacle) is type(obstacle)
        if wait_s is None:
            if not self._is_open(queue):
                return  # a job that was begun before the pause shows nothing new
            wait_s = FIRST_WAIT_S
            if isinstance(obstacle, CircuitOpen | WeekSpent):
                wait_s = (obstacle.retry_at - now()).total_seconds()
                wait_s = max(LEAST_WAIT_S, wait_s)
            elif isinstance(obstacle, BudgetSpent | EvidenceUnavailable | DatabaseFull):
                # The budget is this process's own; the others are looked at, and a job would pay for lost replies.
                wait_s = NEVER
            elif known and lasts:
                wait_s = min(MOST_WAIT_S, 2 * known.wait_s)
        if known and lasts:
            obstacle = known.obstacle
        self.pauses[queue] = pause = Pause(obstacle, wait_s, self._clock() + wait_s)
        if not lasts:
            _log.warning("no jobs of %s are taken: %s", queue, pause.reason)

    def resume(self, queue: str) -> None:
        """Take jobs of a queue again."""
        if self.pauses.pop(queue, None):
            _log.warning("jobs of %s are taken again", queue)

    def describe(self) -> str | None:
        """Why jobs of some queues are not taken; None: all are."""
        reasons = [
            f"{queue}: {pause.reason}" for queue, pause in sorted(self.pauses.items())
        ]
        return "; ".join(reasons) or None
