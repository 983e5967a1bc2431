"""The limit of an endpoint's calls: it grows, is cut once for one overload, and its turns are never lost."""

import asyncio
import itertools
from types import SimpleNamespace

import pytest

from medlive.llm.limiter import CUT, START, Limiter, Limiters
from medlive.llm.wire import Ended


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reading of the limiter's clock is a millisecond after the last: a busy machine changes nothing."""
    readings = itertools.count()
    monkeypatch.setattr(
        "medlive.llm.limiter.time",
        SimpleNamespace(monotonic=lambda: next(readings) / 1000),
    )


async def full(limiter: Limiter) -> list[float]:
    """Take every turn that is free."""
    return [
        await limiter.enter() for _ in range(int(limiter.limit) - limiter.under_way)
    ]


async def test_a_healthy_endpoint_is_soon_asked_all_that_is_allowed() -> None:
    limiter = Limiter(100)
    for height, then in ((START, 4 * START), (4 * START, 100)):
        assert int(limiter.limit) == height
        turns = await full(limiter)
        waiting = [asyncio.create_task(limiter.enter()) for _ in range(200)]
        await asyncio.sleep(0)
        for began in turns:
            limiter.leave(began, "answered")
        assert int(limiter.limit) == then
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for _ in range(limiter.under_way):
            limiter.leave(0.0, "other")


async def test_what_is_not_used_up_does_not_grow() -> None:
    limiter = Limiter(64)
    for _ in range(3 * START):
        limiter.leave(await limiter.enter(), "answered")
    assert int(limiter.limit) == START


@pytest.mark.parametrize("ended", ["limited", "overloaded"])
async def test_calls_that_began_together_cut_the_limit_once(ended: Ended) -> None:
    limiter = Limiter(64)
    for began in await full(limiter):
        limiter.leave(began, ended)
    assert int(limiter.limit) == int(START * CUT)
    limiter.leave(await limiter.enter(), ended)
    assert int(limiter.limit) == int(START * CUT * CUT)
    for _ in range(30):
        limiter.leave(await limiter.enter(), ended)
    assert int(limiter.limit) == 1


async def test_turns_are_given_in_order_and_never_lost() -> None:
    limiter = Limiter(2)
    order: list[int] = []

    async def call(number: int) -> None:
        began = await limiter.enter()
        try:
            order.append(number)
            await asyncio.sleep(0.001)
        finally:
            limiter.leave(began, "other")

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
    limiter.leave(first, "other")
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    limiter.leave(second, "other")
    assert limiter.under_way == 0


@pytest.mark.thorough
async def test_a_pause_holds_everybody() -> None:
    limiter = Limiter(4)
    limiter.pause(0.15)
    loop = asyncio.get_running_loop()
    started = loop.time()
    await asyncio.gather(*(limiter.enter() for _ in range(4)))
    assert loop.time() - started >= 0.14


def test_roles_at_one_address_with_one_key_share_a_limit() -> None:
    limiters = Limiters()
    one = limiters.limiter("http://h/v1", "k", 4)
    assert limiters.limiter("http://h/v1/", "k", 16) is one
    assert limiters.limiter("http://h/v1", "other", 4) is not one
    assert limiters.limiter("http://h:81/v1", "k", 4) is not one
    assert [limiter.most for limiter in limiters.by_place.values()] == [16, 4, 4]
