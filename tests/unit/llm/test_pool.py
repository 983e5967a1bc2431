"""Many calls at once: what is under way when the end comes may be paid for."""

import asyncio

import pytest

from medlive.llm import pool
from tests.support.waiting import LIMIT_S


class Calls:
    """Calls of which each ends when it is told to."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.may_end = asyncio.Event()

    async def one(self, item: int) -> None:
        self.begun.append(item)
        await self.may_end.wait()
        if item == 1:
            raise ValueError("the second")
        self.ended.append(item)


async def until_begun(calls: Calls, count: int) -> None:
    while len(calls.begun) < count:  # noqa: ASYNC110 - the loop's passes are what is waited for
        await asyncio.sleep(0)


async def test_a_caller_that_leaves_gets_what_is_under_way_and_nothing_begins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = Calls()
    whole = asyncio.create_task(pool.for_each(range(2, 100), calls.one, 8))
    await until_begun(calls, 8)
    whole.cancel()
    await asyncio.sleep(0)
    assert not whole.done()
    assert caplog.messages == [
        "finishing the 8 calls under way, for at most 10 s; Ctrl-C again stops at once"
    ]
    calls.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await whole
    assert sorted(calls.ended) == sorted(calls.begun) == list(range(2, 10))


async def test_a_failure_is_raised_once_what_is_under_way_has_ended() -> None:
    calls = Calls()
    calls.may_end.set()
    late = asyncio.Event()

    async def one(item: int) -> None:
        if item == 0:
            await late.wait()
        await calls.one(item)

    whole = asyncio.create_task(pool.for_each(range(100), one, 2))
    await until_begun(calls, 1)
    await asyncio.sleep(0)
    assert not whole.done()
    late.set()
    with pytest.raises(ValueError, match="the second"):
        await whole
    assert (calls.begun, calls.ended) == ([1, 0], [0])


async def test_who_leaves_twice_waits_for_nothing() -> None:
    calls = Calls()
    whole = asyncio.create_task(pool.for_each(range(2, 100), calls.one, 3))
    await until_begun(calls, 3)
    for _ in range(2):
        whole.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(whole, LIMIT_S)
    assert calls.ended == []


async def test_what_hangs_is_waited_for_no_longer_than_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "DRAIN_S", 0.01)
    calls = Calls()

    async def one(item: int) -> None:
        if item == 0:
            raise ValueError("at once")
        await calls.one(item)

    with pytest.raises(ValueError, match="at once"):
        await asyncio.wait_for(pool.for_each(range(100), one, 4), LIMIT_S)
    assert calls.begun == [1, 2, 3]
    assert calls.ended == []


async def test_every_item_is_done_once_and_few_at_a_time() -> None:
    at_once = most = 0
    done: list[int] = []

    async def one(item: int) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        done.append(item)

    await pool.for_each(iter(range(50)), one, 4)
    assert sorted(done) == list(range(50))
    assert most == 4


async def test_calls_that_end_together_are_all_counted() -> None:
    seen: list[tuple[int, int]] = []

    async def work(item: int) -> int:
        await asyncio.sleep(0)
        return item

    def progress(done: int, total: int) -> None:
        seen.append((done, total))

    await pool.work_through(range(1, 5), work, 4, done=2, total=12, progress=progress)
    assert [seen[0], seen[-1]] == [(2, 12), (12, 12)]
