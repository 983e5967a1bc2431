"""Many calls at once, a bounded number of them under way, and an end when the endpoint is dead."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from medlive.errors import CallerRefused, EndpointUnavailable, RequestRefused

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)

PATIENCE: Final = 20
"""This many failures in a row, or as many as there are calls at once if that is more, and the endpoint is dead."""

DRAIN_S: Final = 10.0
"""How long calls under way are waited for when no other is to begin."""


class Health:
    """Counts failures in a row; whoever asks an endpoint tells it."""

    def __init__(self, concurrency: int) -> None:
        """`concurrency` is how many calls may fail together by one hiccup."""
        self._limit = max(PATIENCE, 2 * concurrency)
        self._failures = 0
        self._answered = self._turned_down = False
        self._last: EndpointUnavailable | None = None

    @property
    def silence(self) -> EndpointUnavailable | None:
        """Why the last call failed, where none was answered and the endpoint turned no request down.

        None: one was answered or turned down, or none was made.
        """
        return None if self._answered or self._turned_down else self._last

    def good(self) -> None:
        """A reply came."""
        self._failures = 0
        self._answered = True

    def bad(self, cause: EndpointUnavailable) -> None:
        """No reply came. Raises `cause` anew when that has become the rule, and at once where nothing was answered
        yet and the key, the model's name or the account is what is wrong.

        An endpoint that has answered and refuses a request, as one that is too long, is not dead.
        """
        self._last = cause
        self._turned_down = self._turned_down or isinstance(cause, RequestRefused)
        if not self._answered and isinstance(cause, CallerRefused):
            raise cause
        if self._answered and isinstance(cause, RequestRefused):
            return
        self._failures += 1
        if self._failures >= self._limit:
            raise EndpointUnavailable(
                f"{self._failures} calls in a row failed, the last: {cause.message}",
                hint="what was answered is kept; run this again when the endpoint is back",
            ) from cause


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[None]], concurrency: int) -> None:
    """Do `work` on every item, at most `concurrency` at a time, taking items as workers get free.

    The first exception is raised as it is. When it comes, or the caller is cancelled, no other item is taken, and
    those under way, which may be paid for, have DRAIN_S to end; what is left of them then, or when the caller is
    cancelled once more, is cancelled. That a cancelled caller is waiting is logged as a warning, which Python
    prints where nobody has said otherwise.
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
        ended, under_way = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        stopping = True
        if under_way:
            await asyncio.wait(under_way, timeout=DRAIN_S)
    except asyncio.CancelledError:
        if not stopping:
            stopping = True
            if open_calls:
                said = "finishing the %d calls under way, for at most %.0f s; Ctrl-C again stops at once"
                _log.warning(said, open_calls, DRAIN_S)
            await asyncio.wait(tasks, timeout=DRAIN_S)
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if task in ended:
            task.result()
