"""How many calls an endpoint is given at once: one limit for all roles that share its address and key.

The limit starts low and grows fourfold every round trip up to the configured maximum, while somebody waits. An
overload (429, 503, 504, 529, or no answer in time) cuts it by a fixed share, once for all calls that began before
the cut; from then on it grows by one a round trip.
"""

import asyncio
import time
from collections import deque

from medlive.guard.circuit import Circuit, CircuitStore, circuit_key, circuit_name

from .wire import Ended

START = 16  # The limit at first, where more is allowed
GROWTH = 3.0  # Added for each answer before the first cut, while somebody waits
CUT = 0.6  # What is left of the limit after an overload


class Limiter:
    """Turns at one endpoint, first come first served. One event loop at a time."""

    def __init__(self, most: int) -> None:
        """`most` is the configured maximum of calls under way."""
        self.most = most
        self.limit = float(min(START, most))
        """Calls that may be under way now, adapted."""
        self._cut_at = -1.0
        """When the limit was last cut; -1 if it never was."""
        self.under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._paused_until = 0.0
        self.answered = 0
        """Calls that were answered so far."""

    def allow(self, most: int) -> None:
        """Raise the maximum for another role that shares this endpoint."""
        self.most = max(self.most, most)

    def pause(self, seconds: float) -> None:
        """Begin no call before `seconds` are over, as a Retry-After asks for."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    async def enter(self) -> float:
        """Wait for a turn; return when it began, for `leave`, which must follow."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._wake()
        try:
            await turn
            while (pause := self._paused_until - time.monotonic()) > 0:  # noqa: ASYNC110 - it may be prolonged
                await asyncio.sleep(pause)
        except asyncio.CancelledError:
            # The turn may have come when its caller left.
            if not turn.cancelled():
                self._release()
            raise
        return time.monotonic()

    def leave(self, began: float, ended: Ended) -> None:
        """End the turn that `enter` returned `began` for, and adapt the limit."""
        self.answered += ended == "answered"
        if ended == "answered" and self._waiting:
            growth = GROWTH if self._cut_at < 0 else 1 / self.limit
            self.limit = min(self.most, self.limit + growth)
        elif ended in ("limited", "overloaded") and began > self._cut_at:
            self.limit = max(1.0, self.limit * CUT)
            self._cut_at = time.monotonic()
        self._release()

    def _release(self) -> None:
        self.under_way -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and (
            self._waiting[0].done() or self.under_way < int(self.limit)
        ):
            turn = self._waiting.popleft()
            if not turn.done():
                self.under_way += 1
                turn.set_result(None)


class Limiters:
    """One limiter for each endpoint and key, and one circuit for each model there, however many roles ask."""

    def __init__(self, circuits: CircuitStore | None = None) -> None:
        """`circuits` stores which circuits are open, for all processes."""
        self.by_place: dict[str, Limiter] = {}
        """The limiter of each address and key, by a digest of both."""
        self._circuits: dict[str, Circuit] = {}
        self._store = circuits

    def limiter(self, base_url: str, key: str, most: int) -> Limiter:
        """The limiter of an address and key; its maximum is the largest `most` that was asked for."""
        place = circuit_key(base_url, key, "")
        limiter = self.by_place.setdefault(place, Limiter(most))
        limiter.allow(most)
        return limiter

    def circuit(self, base_url: str, key: str, model: str) -> Circuit:
        """The circuit of a model at an address, for this key."""
        place = circuit_key(base_url, key, model)
        circuit = Circuit(place, circuit_name(base_url, model), self._store)
        return self._circuits.setdefault(place, circuit)
