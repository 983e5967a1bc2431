"""Whether the files of an open index still are what was built: verified in the background, and again each day.

A flipped byte in a column of dates or corpora changes which passages a claim meets, and no search notices it. So a
search waits until every file of the index has had its digest since the process opened it.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

RECHECK_S = 24 * 3600.0
"""Seconds after which the files are verified again: a worker runs for months, and each week needs one look."""


class Verification:
    """The newest result of a check that reads many gigabytes, which runs in a thread of its own."""

    def __init__(
        self, check: Callable[[], None], *, recheck_s: float = RECHECK_S
    ) -> None:
        """Begin the first check.

        Args:
            check: Raises `IndexCorrupt` for damaged files.
            recheck_s: Seconds after which a result is too old.
        """
        self._check = check
        self._recheck_s = recheck_s
        self._lock = threading.Lock()
        self._result = self._begin()

    async def wait(self) -> None:
        """Wait for a result that is recent enough. Raises what the check raised."""
        with self._lock:
            if self._result.done() and time.monotonic() - self._began > self._recheck_s:
                self._result = self._begin()
            result = self._result
        await asyncio.shield(asyncio.wrap_future(result))

    def _begin(self) -> Future[None]:
        self._began = time.monotonic()
        result: Future[None] = Future()

        def run() -> None:
            try:
                self._check()
            except BaseException as exc:
                result.set_exception(exc)
            else:
                result.set_result(None)

        # A daemon: a command that needs no search does not wait for the last gigabyte.
        threading.Thread(target=run, name="verify-evidence", daemon=True).start()
        return result
