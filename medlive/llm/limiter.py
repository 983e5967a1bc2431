"""How many calls an endpoint is given at once: learnt from its answers, one limit for all roles that share it.

The limit starts low, so that the quickest reply is seen before a queue can form, and doubles every round trip
up to the configured most, or grows fourfold while all replies take as long as each other: a healthy endpoint is
soon asked as much as is allowed. It waits where the replies of a round are like a queue, each later. Two things
lower it. An overload that is told (429, 503, 504, 529, no answer in time) cuts it at once by a fixed share. A
standing queue is inferred: when even the quickest reply of a window took clearly longer than the task's quickest
ever (the idea of CoDel and TCP Vegas), it is cut towards what the endpoint serves without queueing. One cut a
round trip: only calls that began after the last change tell something about it. While neither happens and the
limit is used up, it grows again, slowly near the height where it was last told to stop.

Replies of one task differ in length, so a window is judged by its quickest; tasks differ more, so each has a
floor of its own. A floor rises by 1 % a window, and two cuts that make nothing quicker are taken back and the
slower pace becomes the floor: the endpoint is slow for a reason that is not ours.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from medlive.digest import digest_text

START: Final = 16
"""The limit at first, where more is allowed."""
CUT: Final = 0.6
"""What is left of the limit after an overload that was told."""
LEAST_KEPT: Final = 0.5
"""What at least is left of the limit after one that was inferred."""
INFLATED: Final = 1.5
"""So many times its floor, and SLACK_S more, is a reply that has waited in a queue."""
SLACK_S: Final = 0.03
"""The client's own delays when it is idle: no queue is inferred from less."""
PASSES: Final = 10
"""Passes of the event loop that a call takes; what the loop is late for each is no queue of the endpoint's."""
TIMED_S: Final = 0.001
"""A pass of the event loop is timed no more often than this."""
WINDOW: Final = 8
"""The least replies that a window is judged by."""
TOGETHER: Final = 8
"""Callers that go on in one pass of the event loop."""
_BELOW: Final = 0.9
"""A cut that is inferred goes a little below what the queue tells, so that the floor is seen again."""
_QUEUED: Final = 3.0
"""So many times its floor on average are replies that come one after another; lengths alone seldom differ so."""
_HELPED: Final = 0.75
"""Two cuts that leave more than this share of the inflation have not helped."""
_AGEING: Final = 1.01


class Ended(StrEnum):
    """How a call ended, as far as it tells about the endpoint's load."""

    ANSWERED = "answered"
    LIMITED = "limited"
    """Status 429."""
    OVERLOADED = "overloaded"
    """Status 503, 504 or 529, or no answer in time."""
    OTHER = "other"
    """Anything that says nothing about load: a refused connection, a plain error, a caller who left."""


@dataclass(frozen=True, slots=True)
class EndpointState:
    """What a limiter has learnt of its endpoint."""

    endpoint: str
    limit: int
    """Calls that may be under way now."""
    most: int
    """As configured."""
    under_way: int
    waiting: int
    floor_ms: Mapping[str, float]
    """Task → its quickest reply, aged; empty before the first."""
    answered: int
    limited: int
    """Answers with status 429."""
    overloaded: int
    """Answers 503, 504 or 529, and calls that got none in time."""
    lowest: int
    """The lowest that the limit was cut to; `most` when it never was."""


@dataclass(slots=True)
class _Seen:
    """One task's replies in a window."""

    quickest: float = math.inf
    """In floors, as the others."""
    slowest: float = 0.0
    total: float = 0.0
    count: int = 0


@dataclass(slots=True)
class AdaptiveLimit:
    """The limit as pure arithmetic: no clock, no waiting. Times are seconds of one monotonic clock."""

    most: int
    value: float = field(init=False)
    lowest: float = field(init=False)
    """The lowest that it was cut to; `most` when it never was."""
    floors: dict[str, float] = field(default_factory=dict, init=False)
    _changed: float = field(default=-math.inf, init=False)
    _window: dict[str, _Seen] = field(default_factory=dict, init=False)
    _used_up: bool = field(default=False, init=False)
    _doubling: bool = field(default=True, init=False)
    """Until the endpoint first has enough."""
    _ceiling: float = field(default=math.inf, init=False)
    _step: float = field(default=0.5, init=False)
    _cuts: list[tuple[float, float]] = field(default_factory=list, init=False)
    """Limit and inflation before each of the last cuts that were inferred, two at most."""

    def __post_init__(self) -> None:
        self.value = min(START, self.most)
        self.lowest = self.most

    @property
    def calls(self) -> int:
        """Calls that may be under way: from 1 to `most`."""
        return max(1, int(self.value))

    def used_up(self) -> None:
        """Somebody had to wait: only then does a quiet window raise the limit."""
        self._used_up = True

    def overloaded(self, began: float, now: float) -> None:
        """The endpoint said no more to a call that began then."""
        if began < self._changed:
            return  # asked for under a limit that has been cut since
        self._ceiling, self._step = self.value, 0.5
        self._cuts.clear()
        self._cut(CUT, now)

    def answered(self, task: str, began: float, now: float, lag: float = 0.0) -> None:
        """A reply came now to a call that began then, while a pass of the client's loop took so long."""
        seconds = now - began
        floor = self.floors[task] = min(seconds, self.floors.get(task, math.inf))
        if began < self._changed:
            return
        seen = self._window.setdefault(task, _Seen())
        seen.count += 1
        inflation = seconds / (floor + (SLACK_S + PASSES * lag) / INFLATED)
        seen.quickest = min(seen.quickest, inflation)
        seen.slowest = max(seen.slowest, inflation)
        seen.total += inflation
        share = 0.75 if self._doubling else 0.5
        if sum(one.count for one in self._window.values()) >= max(WINDOW, self.value * share):
            self._judge(now)

    def _judge(self, now: float) -> None:
        told = [seen.quickest for seen in self._window.values() if seen.count >= WINDOW / 2]
        inflation = max(told, default=1.0)
        for task in self.floors:
            self.floors[task] *= _AGEING
        if inflation <= INFLATED:
            self._cuts.clear()
            self._grow(now)
        elif len(self._cuts) == 2 and inflation > _HELPED * self._cuts[0][1]:
            for task, seen in self._window.items():
                self.floors[task] *= max(1.0, seen.quickest)
            self._change(self._cuts[0][0], now)
            self._cuts.clear()
        else:
            self._cuts = [*self._cuts[-1:], (self.value, inflation)]
            self._cut(max(LEAST_KEPT, _BELOW / inflation), now)

    def _grow(self, now: float) -> None:
        if self._used_up and self.value < self.most:
            step = self._first_step() if self._doubling else math.sqrt(self.value)
            if self.value + step > 0.9 * self._ceiling:
                step, self._step = self._step, self._step * (2 if self.value > self._ceiling else 1)
            self._change(self.value + step, now)
        self._window.clear()
        self._used_up = False

    def _first_step(self) -> float:
        """While the endpoint has never had enough."""
        seen = self._window.values()
        if all(one.slowest <= INFLATED for one in seen):
            return 3 * self.value
        queued = sum(one.total for one in seen) > _QUEUED * sum(one.count for one in seen)
        return 0.0 if queued else self.value

    def _cut(self, kept: float, now: float) -> None:
        self._doubling = False
        self._change(self.value * kept, now)
        self.lowest = min(self.lowest, self.value)

    def _change(self, value: float, now: float) -> None:
        self.value = min(float(self.most), max(1.0, value))
        self._changed = now
        self._window.clear()
        self._used_up = False


class Limiter:
    """Turns at one endpoint, first come first served. One event loop at a time."""

    def __init__(self, endpoint: str, most: int) -> None:
        """`endpoint` is its name for people; `most` the calls under way that were configured."""
        self._endpoint = endpoint
        self._limit = AdaptiveLimit(most)
        self._under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._paused_until = 0.0
        self._timed = -math.inf
        """When a pass of the loop was last timed."""
        self._lag = 0.0
        self._ended = dict.fromkeys(Ended, 0)

    @property
    def answered(self) -> int:
        """Calls that were answered so far."""
        return self._ended[Ended.ANSWERED]

    def allow(self, most: int) -> None:
        """Another role shares this endpoint: the larger of what is configured holds."""
        if most > self._limit.most:
            self._limit.most = self._limit.lowest = most

    def state(self) -> EndpointState:
        """What has been learnt, for status and logs."""
        return EndpointState(
            endpoint=self._endpoint,
            limit=self._limit.calls,
            most=self._limit.most,
            under_way=self._under_way,
            waiting=sum(not turn.done() for turn in self._waiting),
            floor_ms={task: floor * 1000 for task, floor in self._limit.floors.items()},
            answered=self._ended[Ended.ANSWERED],
            limited=self._ended[Ended.LIMITED],
            overloaded=self._ended[Ended.OVERLOADED],
            lowest=int(self._limit.lowest),
        )

    def pause(self, seconds: float) -> None:
        """Nobody begins a call before so many seconds are over: what a Retry-After asks for."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    async def enter(self) -> float:
        """Wait for a turn; when it began, for `leave`, which every turn must be given back with."""
        if self._under_way < self._limit.calls and not self._waiting:
            self._under_way += 1
        else:
            await self._turn()
        try:
            while (pause := self._paused_until - time.monotonic()) > 0:  # noqa: ASYNC110 - it may be prolonged
                await asyncio.sleep(pause)
        except BaseException:
            self._give_back()
            raise
        now = time.monotonic()
        if now >= self._timed + TIMED_S:
            self._timed = now
            asyncio.get_running_loop().call_soon(self._passed, now)
        return now

    def leave(self, task: str, began: float, ended: Ended) -> None:
        """The call of a turn is over."""
        self._ended[ended] += 1
        if ended is Ended.ANSWERED:
            self._limit.answered(task, began, time.monotonic(), self._lag)
        elif ended in (Ended.LIMITED, Ended.OVERLOADED):
            self._limit.overloaded(began, time.monotonic())
        self._give_back()

    def _passed(self, since: float) -> None:
        self._lag += ((time.monotonic() - since) - self._lag) / 16

    async def _turn(self) -> None:
        self._limit.used_up()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the turn had come when its caller left
                self._give_back()
            raise

    def _give_back(self) -> None:
        self._under_way -= 1
        while self._waiting and (self._waiting[0].done() or self._under_way < self._limit.calls):
            turn = self._waiting.popleft()
            if not turn.done():
                self._under_way += 1
                turn.set_result(None)
        if self._waiting:
            self._limit.used_up()


class Turns:
    """Lets a few callers go on in each pass of the event loop, first come first served. One event loop at a time.

    Replies that came together would else be worked off together, and what is asked next would leave together at
    the end of that: a convoy, in which endpoint and client wait for each other in turn, and which lasts.
    """

    def __init__(self) -> None:
        self._gone = 0
        """Callers that went on in this pass."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def next(self) -> None:
        """Go on when few others do."""
        loop = asyncio.get_running_loop()
        if self._gone < TOGETHER and not self._waiting:
            if self._gone == 0:
                loop.call_soon(self._pass, loop)
            self._gone += 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _pass(self, loop: asyncio.AbstractEventLoop) -> None:
        self._gone = 0
        while self._waiting and self._gone < TOGETHER:
            turn = self._waiting.popleft()
            if not turn.done():  # its caller has left
                turn.set_result(None)
                self._gone += 1
        if self._gone:
            loop.call_soon(self._pass, loop)


class Limiters:
    """One limiter for each endpoint and key, however many roles ask there."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], Limiter] = {}

    def of(self, base_url: str, key: str, most: int) -> Limiter:
        """The limiter of that address and key; its most is the largest that was asked for."""
        address = base_url.rstrip("/")
        place = (address, digest_text(key.strip()))
        if place in self._of:
            self._of[place].allow(most)
        else:
            self._of[place] = Limiter(urlsplit(address).netloc.rpartition("@")[2], most)
        return self._of[place]

    def states(self) -> list[EndpointState]:
        """What each has learnt."""
        return [limiter.state() for limiter in self._of.values()]
