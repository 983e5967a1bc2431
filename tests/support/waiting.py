"""Wait for a state; the limit only ends a test that hangs, so that a slow machine fails none."""

import asyncio
import time
from collections.abc import Callable

LIMIT_S = 300.0


def wait_until(found: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Ask until `found` is true. Fails after `limit_s` seconds."""
    limit = time.monotonic() + limit_s
    while not found():
        assert time.monotonic() < limit, f"not within {limit_s:g} s"
        time.sleep(0.05)


async def until(found: Callable[[], object]) -> None:
    """The same in a thread of its own, so that the loop goes on."""
    await asyncio.to_thread(wait_until, found)
