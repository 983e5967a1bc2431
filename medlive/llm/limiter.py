"""How many calls an endpoint is given at once: one limit for all roles that share its address and key.

The limit starts low and grows fourfold every round trip up to the configured maximum. An overload (429, 503, 504,
529, or no answer in time) cuts it by a fixed share, once for all calls that began before the cut; from then on it
grows by one a round trip, while somebody waits. The limit does not grow by an answer that took several times as
long as the quickest one, since that has waited in the endpoint's queue, nor by calls that began before the first
answer.
"""

import asyncio
import math
import time
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from medlive.errors import EndpointUnavailable
from medlive.integrity.digest import digest_text
from medlive.llm.circuit import Circuit, CircuitStore, circuit_key, circuit_name
from medlive.llm.wire import JsonMode

START = 16  # The limit at first, where more is allowed
GROWTH = 3.0  # Added for each answer before the first cut, while somebody waits
CUT = 0.6  # What is left of the limit after an overload
QUEUED = 4.0  # An answer took so many times the quickest one's time, and SLACK_S more: it has queued
SLACK_S = 0.05
STUCK_S = 240.0
"""Seconds without any call at the endpoint after which a caller waits for its turn no longer."""
SPREAD = 0.5
"""Of the quickest round trip, over which as many calls begin as are allowed: calls that begin as one burst are answered
as one, and the processor, idle meanwhile, delays each next burst."""
AGEING = 1.001  # The quickest time's growth with each answer: one odd answer does not count for ever


class Ended(StrEnum):
    """How a call ended, as far as it says something about the endpoint's load."""

    ANSWERED = "answered"
    LIMITED = "limited"  # Status 429
    OVERLOADED = "overloaded"  # Status 503, 504 or 529, or no answer in time
    OTHER = "other"  # Anything that says nothing about load, as a refused connection


@dataclass(frozen=True, slots=True)
class EndpointState:
    """What a limiter has learnt of its endpoint."""

    endpoint: str
    limit: int  # Calls that may be under way now
    most: int  # As configured
    under_way: int
    waiting: int
    answered: int
    limited: int  # Answers with status 429
    overloaded: int  # Answers 503, 504 or 529, and calls that got none in time
    lowest: int  # The lowest that the limit was cut to; `most` if it never was


class Limiter:
    """Turns at one endpoint, first come first served. One event loop at a time."""

    def __init__(self, endpoint: str, most: int) -> None:
        """`endpoint` is its name for people; `most` the calls under way that were configured."""
        self._endpoint = endpoint
        self._most = self._lowest = most
        self._limit = float(min(START, most))
        self._cut_at = -1.0
        """When the limit was last cut; -1 if it never was."""
        self._answered_at = math.inf
        """When the first answer came."""
        self._quickest = math.inf
        """Seconds of the quickest answer, aged."""
        self.json_modes: dict[str, JsonMode] = {}
        """By model, how JSON is asked for where a stricter way was refused."""
        self._under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._moved_at = time.monotonic()
        """When a call last began or ended."""
        self._paused_until = self._next_at = 0.0
        """Before when no call begins: as the endpoint asked, and so that calls are spread."""
        self._ended = dict.fromkeys(Ended, 0)

    @property
    def answered(self) -> int:
        """Calls that were answered so far."""
        return self._ended[Ended.ANSWERED]

    def allow(self, most: int) -> None:
        """Raise the maximum for another role that shares this endpoint."""
        if most > self._most:
            self._most = self._lowest = most

    @property
    def _allowed(self) -> int:
        return int(self._limit)

    def state(self) -> EndpointState:
        """What has been learnt, for status and logs."""
        return EndpointState(
            endpoint=self._endpoint,
            limit=self._allowed,
            most=self._most,
            under_way=self._under_way,
            waiting=sum(not turn.done() for turn in self._waiting),
            answered=self._ended[Ended.ANSWERED],
            limited=self._ended[Ended.LIMITED],
            overloaded=self._ended[Ended.OVERLOADED],
            lowest=self._lowest,
        )

    def pause(self, seconds: float) -> None:
        """Begin no call before so many seconds are over, as a Retry-After asks for."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    @property
    def idle_s(self) -> float:
        """Seconds since a call last began or ended."""
        return time.monotonic() - self._moved_at

    async def enter(self) -> float:
        """Wait for a turn; return when it began, for `leave`, which must follow.

        Raises EndpointUnavailable when nothing was asked of the endpoint for STUCK_S.
        """
        if self._under_way < self._allowed and not self._waiting:
            self._begin()
        else:
            await self._wait()
        begin_at = max(self._next_at, time.monotonic())
        if self._quickest < math.inf:
            self._next_at = begin_at + SPREAD * self._quickest / self._limit
        try:
            while (pause := max(begin_at, self._paused_until) - time.monotonic()) > 0:  # noqa: ASYNC110 - it may be prolonged
                await asyncio.sleep(pause)
        except BaseException:
            self._release()
            raise
        return time.monotonic()

    def leave(self, began: float, ended: Ended) -> None:
        """End the turn that began then, and adapt the limit."""
        self._ended[ended] += 1
        now = time.monotonic()
        if ended is Ended.ANSWERED:
            self._answered_at = min(now, self._answered_at)
            self._quickest = min(now - began, self._quickest * AGEING)
        queued = (
            began < self._answered_at or now - began > QUEUED * self._quickest + SLACK_S
        )
        if ended is Ended.ANSWERED and self._waiting and not queued:
            self._limit = min(
                self._most,
                self._limit + (GROWTH if self._cut_at < 0 else 1 / self._limit),
            )
        elif ended in (Ended.LIMITED, Ended.OVERLOADED) and began > self._cut_at:
            self._limit, self._cut_at = max(1.0, self._limit * CUT), now
            self._lowest = min(self._lowest, int(self._limit))
        self._release()

    async def _wait(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            # The turn is never cancelled by the wait itself: a turn that came is given back below.
            while not (await asyncio.wait([turn], timeout=STUCK_S))[0]:
                if self._under_way == 0 and self.idle_s >= STUCK_S:
                    raise EndpointUnavailable(
                        f"no call at {self._endpoint} was begun for {STUCK_S:g} s",
                        hint="it is tried again by itself",
                    )
        except BaseException:
            if turn.done():  # the turn had come when its caller left
                self._release()
            turn.cancel()
            raise

    def _begin(self) -> None:
        self._under_way += 1
        self._moved_at = time.monotonic()

    def _release(self) -> None:
        self._under_way -= 1
        self._moved_at = time.monotonic()
        self._wake()

    def _wake(self) -> None:
        while self._waiting and (
            self._waiting[0].done() or self._under_way < self._allowed
        ):
            turn = self._waiting.popleft()
            if not turn.done():
                self._begin()
                turn.set_result(None)


class Limiters:
    """One limiter for each endpoint and key, and one circuit for each model there, however many roles ask."""

    def __init__(self, circuits: CircuitStore | None = None) -> None:
        """`circuits` shares what is open with other processes."""
        self._limiters: dict[tuple[str, str], Limiter] = {}
        self._circuits: dict[str, Circuit] = {}
        self._store = circuits

    def limiter(self, base_url: str, key: str, most: int) -> Limiter:
        """The limiter of that address and key; its maximum is the largest that was asked for."""
        address = base_url.rstrip("/")
        place = (address, digest_text(key.strip()))
        limiter = self._limiters.setdefault(
            place, Limiter(urlsplit(address).netloc.rpartition("@")[2], most)
        )
        limiter.allow(most)
        return limiter

    def circuit(self, base_url: str, key: str, model: str) -> Circuit:
        """The circuit of that model there."""
        place = circuit_key(base_url, key, model)
        return self._circuits.setdefault(
            place, Circuit(place, circuit_name(base_url, model), self._store)
        )

    def by_place(self) -> dict[str, Limiter]:
        """The limiter of each address and key, by a digest of both."""
        return {
            digest_text("\n".join(place)): limiter
            for place, limiter in self._limiters.items()
        }

    def states(self) -> list[EndpointState]:
        """The state of each."""
        return [limiter.state() for limiter in self._limiters.values()]
