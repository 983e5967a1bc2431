"""Finds the identifiers of people in threads that come in, beside the process that fetches where that is busy."""

import asyncio
import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from medlive.errors import BadInput
from medlive.threads.model import Thread
from medlive.threads.prepare import FoundIdentifier, thread_identifiers

LONGEST_MESSAGE = 200_000
"""Characters of a message that are read: no community takes a tenth of that, and made-up ones cost seconds."""


class IdentifierFinder:
    """Finds identifiers here, or in a process of its own when pages come in faster than one core reads them."""

    def __init__(self, *, apart: bool) -> None:
        """`apart`: in a process of its own, which ends with this one."""
        # Not forked: this process has threads and connections that a copy must not inherit.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context, initializer=_begin) if apart else None

    async def find(self, thread: Thread) -> tuple[FoundIdentifier, ...]:
        """The thread's identifiers. Raises BadInput for a message longer than LONGEST_MESSAGE characters."""
        longest = max((len(m.text) for m in thread.messages), default=0)
        if max(longest, len(thread.title)) > LONGEST_MESSAGE:
            raise BadInput(f"a message of {longest} characters: nobody wrote that")
        if self._pool is not None:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, thread_identifiers, thread)
            except BrokenProcessPool:
                self._pool = None  # it was killed: what it was for is done here from now on
        return thread_identifiers(thread)

    def close(self) -> None:
        """End the process, if there is one."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _begin() -> None:
    # Ctrl-C is for the harvest, which ends this process in its own time.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
