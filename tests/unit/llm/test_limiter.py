"""The adaptive limit in virtual time against model endpoints, and the limiter against real ones."""

import asyncio
import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.llm.limiter import CUT, START, TOGETHER, WINDOW, AdaptiveLimit, Ended, Limiter, Limiters, Turns


@dataclass
class Simulated:
    """What a run of many calls in virtual time came to."""

    seconds: float = 0.0
    limits: list[int] = field(default_factory=list)
    """The limit after each call."""
    refused: int = 0


Serve = Callable[[float], tuple[float, bool]]
"""The moment at which a call that begins now ends, and whether it is answered."""


def queueing(capacity: int, draw: Callable[[], float]) -> Serve:
    """So many at once, first come first served; the others wait."""
    free = [0.0] * capacity

    def serve(now: float) -> tuple[float, bool]:
        end = max(now, heapq.heappop(free)) + draw()
        heapq.heappush(free, end)
        return end, True

    return serve


def limited(per_second: float, burst: float, latency: float) -> Serve:
    """429 at once for what comes above a rate."""
    tokens, at = burst, 0.0

    def serve(now: float) -> tuple[float, bool]:
        nonlocal tokens, at
        tokens, at = min(burst, tokens + (now - at) * per_second), now
        if tokens < 1:
            return now + 0.002, False
        tokens -= 1
        return now + latency, True

    return serve


def simulate(limit: AdaptiveLimit, serve: Serve, calls: int, backoff: float = 0.5) -> Simulated:
    """Keep the limit used up until every call is answered; a refused one comes back after the backoff."""
    run, now, under_way, left, number = Simulated(), 0.0, 0, calls, 0
    events: list[tuple[float, int, float, bool]] = []
    back: list[float] = []
    while left or under_way or back:
        while under_way < limit.calls and (left or (back and back[0] <= now)):
            if back and back[0] <= now:
                heapq.heappop(back)
            else:
                left -= 1
            end, good = serve(now)
            heapq.heappush(events, (end, number, now, good))
            number, under_way = number + 1, under_way + 1
        if left or back:
            limit.used_up()
        if not events:
            now = back[0]
            continue
        now, _, began, good = heapq.heappop(events)
        under_way -= 1
        if good:
            limit.answered("t", began, now)
        else:
            run.refused += 1
            limit.overloaded(began, now)
            heapq.heappush(back, now + backoff)
        run.limits.append(limit.calls)
    run.seconds = now
    return run


@settings(deadline=None, max_examples=30)
@given(
    capacity=st.integers(1, 64),
    latency=st.sampled_from([0.2, 1.0, 6.0]),
    spread=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 9),
)
def test_it_settles_near_what_an_endpoint_serves_at_once(
    capacity: int, latency: float, spread: float, seed: int
) -> None:
    chance = random.Random(seed)
    calls = 1500

    def draw() -> float:
        return latency * chance.uniform(1 - spread, 1 + spread)

    limit = AdaptiveLimit(64)
    run = simulate(limit, queueing(capacity, draw), calls)
    assert run.seconds < 1.15 * latency * calls / capacity + 3 * latency
    late = sorted(run.limits[500:])
    typical = late[len(late) // 2]
    assert 0.7 * capacity <= typical <= 2.6 * capacity + 1


@settings(deadline=None, max_examples=20)
@given(
    per_second=st.sampled_from([20, 60, 150]), latency=st.sampled_from([0.1, 0.5]), most=st.sampled_from([32, 64])
)
def test_a_rate_limit_is_used_well_and_seldom_hit(per_second: int, latency: float, most: int) -> None:
    calls = 40 * per_second
    run = simulate(AdaptiveLimit(most), limited(per_second, per_second / 2, latency), calls)
    ideal = max(calls / per_second, calls * latency / most)
    assert run.seconds < 1.35 * ideal + 2
    assert run.refused < 0.12 * calls + most


def test_an_endpoint_that_grows_slow_by_itself_is_not_starved() -> None:
    limit = AdaptiveLimit(32)
    moments = iter(range(10**9))

    def serve(now: float) -> tuple[float, bool]:
        return now + (1.0 if next(moments) < 400 else 5.0), True

    run = simulate(limit, serve, 4000)
    assert min(run.limits) < 32  # it was suspected
    assert limit.calls == 32  # and cleared


def test_one_round_trip_is_cut_once() -> None:
    limit = AdaptiveLimit(START)
    for _ in range(10):
        limit.overloaded(began=0.0, now=1.0)
    assert limit.value == pytest.approx(START * CUT)
    for second in range(1, 40):
        limit.overloaded(began=second, now=second + 0.5)
    assert limit.calls == 1


def test_what_is_not_used_up_does_not_grow() -> None:
    limit = AdaptiveLimit(START)
    limit.overloaded(0.0, 1.0)
    for second in range(2, 50):
        limit.answered("t", second, second + 0.5)
    assert limit.calls == int(START * CUT)
    for second in range(50, 300):
        limit.used_up()
        limit.answered("t", second, second + 0.5)
    assert limit.calls == START


def test_a_healthy_endpoint_is_soon_asked_all_that_is_allowed() -> None:
    limit = AdaptiveLimit(64)
    run = simulate(limit, lambda now: (now + 1.0, True), 640)
    assert run.limits.index(64) < 64
    assert limit.lowest == 64
    assert run.seconds < 14  # ten round trips, and three to find out


def test_a_short_run_at_a_healthy_endpoint_is_soon_at_full_height() -> None:
    run = simulate(AdaptiveLimit(64), lambda now: (now + 0.2, True), 500)
    assert run.seconds < 0.2 * (500 / 64 + 2)


def test_an_endpoint_that_serves_one_at_a_time_is_not_asked_more_than_the_first_round() -> None:
    limit = AdaptiveLimit(64)
    run = simulate(limit, queueing(1, lambda: 6.0), 200)
    assert max(run.limits) == START
    assert run.limits[-1] < START / 2


def test_what_the_client_is_late_itself_is_no_queue() -> None:
    def limit_with(lag: float) -> AdaptiveLimit:
        limit = AdaptiveLimit(START)
        for second in range(3 * START):
            limit.answered("t", second, second + 0.1)
        for second in range(3 * START, 3 * START + 2 * WINDOW):
            limit.answered("t", second, second + 0.4, lag)
        return limit

    assert limit_with(lag=0.0).calls < START
    assert limit_with(lag=0.05).calls == START


async def test_turns_are_given_in_order_and_never_lost() -> None:
    limiter = Limiter("e", 2)
    order: list[int] = []

    async def call(number: int) -> None:
        began = await limiter.enter()
        try:
            order.append(number)
            await asyncio.sleep(0.001)
        finally:
            limiter.leave("t", began, Ended.OTHER)

    tasks = [asyncio.create_task(call(number)) for number in range(30)]
    await asyncio.sleep(0)
    for gone in (5, 6, 11, 29):
        tasks[gone].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [n for n in range(30) if n not in (5, 6, 11, 29)]
    # A caller who leaves at the very moment at which its turn comes gives it back.
    first = await limiter.enter()
    second = await limiter.enter()
    late = asyncio.create_task(limiter.enter())
    await asyncio.sleep(0)
    limiter.leave("t", first, Ended.OTHER)
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    limiter.leave("t", second, Ended.OTHER)
    state = limiter.state()
    assert (state.under_way, state.waiting) == (0, 0)


async def test_a_pause_holds_everybody() -> None:
    limiter = Limiter("e", 4)
    limiter.pause(0.15)
    loop = asyncio.get_running_loop()
    started = loop.time()
    await asyncio.gather(*(limiter.enter() for _ in range(4)))
    assert loop.time() - started >= 0.14


def test_roles_at_one_address_with_one_key_share_a_limit() -> None:
    limiters = Limiters()
    one = limiters.of("http://h/v1", "k", 4)
    assert limiters.of("http://h/v1/", "k", 16) is one
    assert limiters.of("http://h/v1", "other", 4) is not one
    assert limiters.of("http://h:81/v1", "k", 4) is not one
    assert [(state.endpoint, state.most) for state in limiters.states()] == [("h", 16), ("h", 4), ("h:81", 4)]


async def test_of_many_replies_at_once_a_few_are_worked_off_before_their_next_calls_leave() -> None:
    turns, loop = Turns(), asyncio.get_running_loop()
    worked: list[int] = []
    left: list[int] = []

    async def caller(number: int) -> None:
        await turns.next()
        worked.append(number)
        loop.call_soon(left.append, number)  # as what is sent leaves in the next pass
        assert len(worked) - len(left) <= 2 * TOGETHER

    tasks = [asyncio.create_task(caller(number)) for number in range(10 * TOGETHER)]
    await asyncio.sleep(0)
    tasks[TOGETHER].cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ended if end is not None] == [asyncio.CancelledError]
    assert worked == [number for number in range(10 * TOGETHER) if number != TOGETHER]
    await asyncio.wait_for(turns.next(), 5)


async def test_a_pass_of_the_loop_lets_few_go_on_also_when_they_come_one_by_one() -> None:
    turns, loop = Turns(), asyncio.get_running_loop()
    passes = 0
    gone: Counter[int] = Counter()

    def tick() -> None:
        nonlocal passes
        passes += 1
        if sum(gone.values()) < 100:
            loop.call_soon(tick)

    async def caller() -> None:
        for _ in range(10):
            await turns.next()
            gone[passes] += 1

    tick()
    await asyncio.gather(*(caller() for _ in range(10)))
    assert sum(gone.values()) == 100
    assert max(gone.values()) <= 2 * TOGETHER
