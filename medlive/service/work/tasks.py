"""Ending tasks without leaving one behind."""

import asyncio
from typing import Any


async def end_tasks(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait for their end, also where whoever waits is itself cancelled; that is raised afterwards.

    A `gather` in a `finally` is broken off by a second cancellation, as when two connections are lost one after the
    other: what it waited for would go on, and what ended it would be seen by nobody.
    """
    is_cancelled = False
    for task in tasks:
        task.cancel()
    while left := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError:
            is_cancelled = True
            for task in left:
                task.cancel()
    for task in tasks:
        if not task.cancelled():
            # Known otherwise: asyncio names in the log the errors that nobody took.
            task.exception()
    if is_cancelled:
        raise asyncio.CancelledError
