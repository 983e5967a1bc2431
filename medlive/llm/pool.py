"""Concurrent work on many items: `for_each` bounds how many run at once, `work_through` also stops at the budget."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from .budget import BudgetSpent

T = TypeVar("T")

_log = logging.getLogger(__name__)

# Seconds for which calls under way are waited for when no other is to begin
DRAIN_S = 10.0

Progress = Callable[[int, int], None]  # Called with (done, total)


async def work_through(
    items: Iterable[T],
    work: Callable[[T], Awaitable[int]],
    concurrency: int,
    *,
    done: int,
    total: int,
    progress: Progress | None = None,
) -> str | None:
    """Run `for_each` with progress; return which budget ended it, or None.

    `work` returns how much of `total` it did; when it raises BudgetSpent, no other item is begun. `done` is how much
    was done before.
    """
    stopped: str | None = None

    async def work_on(item: T) -> None:
        nonlocal done, stopped
        if stopped:
            return
        try:
            results = await work(item)
        except BudgetSpent as exc:
            stopped = exc.message
            return
        done += results
        if progress:
            progress(done, total)

    if progress:
        progress(done, total)
    await for_each(items, work_on, concurrency)
    return stopped


async def for_each(
    items: Iterable[T], work: Callable[[T], Awaitable[None]], concurrency: int
) -> None:
    """Do `work` on every item, at most `concurrency` at a time, taking items as workers get free.

    The first exception is raised as it is. When it comes, or the caller is cancelled, no other item is taken, and
    those under way, which may be paid for, have DRAIN_S to end; what is left of them then, or when the caller is
    cancelled once more, is cancelled. That a cancelled caller is waiting is logged as a warning, which Python
    prints unless logging is configured otherwise.
    """
    source = iter(items)
    stopping = False
    open_calls = 0

    async def worker() -> None:
        nonlocal open_calls
        for item in source:
            open_calls += 1
            try:
                await work(item)
            finally:
                open_calls -= 1
            if stopping:
                return

    tasks = [asyncio.create_task(worker()) for _ in range(max(1, concurrency))]
    try:
        ended, under_way = await asyncio.wait(
            tasks, return_when=asyncio.FIRST_EXCEPTION
        )
        stopping = True
        if under_way:
            await asyncio.wait(under_way, timeout=DRAIN_S)
    except asyncio.CancelledError:
        if not stopping:
            stopping = True
            message = "finishing the %d calls under way, for at most %.0f s; Ctrl-C again stops at once"
            if open_calls:
                _log.warning(message, open_calls, DRAIN_S)
            await asyncio.wait(tasks, timeout=DRAIN_S)
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()
