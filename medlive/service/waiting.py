"""Let a server wait for what is missing (`wait_until_ready`), and tell probes so, instead of ending again and again."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from medlive.errors import ConfigError, ServiceUnavailable

T = TypeVar("T")
LOOK_S = 3.0
"""Seconds between looks for what is missing."""
_log = logging.getLogger(__name__)


async def wait_until_ready(
    prepare: Callable[[], Awaitable[T]],
    stop: asyncio.Event,
    host: str,
    port: int,
    look_s: float = LOOK_S,
) -> T | None:
    """Return what `prepare` gives as soon as nothing is missing; None when `stop` is set first.

    Meanwhile /healthz at the server's own address says what kind of thing is waited for, and all else is answered
    with 503. Names of hosts and users are for the log alone, which has each reason once.

    Args:
        prepare: Opens what the server needs; raises ServiceUnavailable or ConfigError for what is missing.
        stop: Ends the waiting when set.
        host: The address that the server will listen on.
        port: Its port.
        look_s: Seconds between two tries.

    Raises:
        ServiceUnavailable: when the address is taken.
    """
    health, message = Liveness(), ""
    async with AsyncExitStack() as stack:
        while not stop.is_set():
            try:
                ready = await prepare()
            except (ServiceUnavailable, ConfigError) as error:
                if not message:
                    await stack.enter_async_context(answer_probes(port, health, host))
                if error.message != message:
                    _log.warning("%s; going on when that is there", error.whole)
                message = error.message
                # The kind of the error, in its class's own words
                health.waiting = (type(error).__doc__ or "").splitlines()[0]
            else:
                if message:
                    _log.warning("nothing is missing any more")
                return ready
            await rest(stop, look_s)
    return None


async def rest(stop: asyncio.Event, seconds: float) -> None:
    """Wait for `seconds`, or until `stop` is set."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


class Liveness:
    """What a process answers to probes."""

    def __init__(self) -> None:
        """All is well until somebody sets what is waited for."""
        self.waiting: str | None = None
        """What the process waits for; None: it works."""
        self.find_obstacle: Callable[[], str | None] = lambda: None
        """What keeps the process from a part of its work meanwhile; None: nothing."""

    def answer(self) -> dict[str, str]:
        """The body for a probe."""
        if reason := self.waiting or self.find_obstacle():
            return {"status": "waiting", "reason": reason}
        return {"status": "ok"}


@asynccontextmanager
async def answer_probes(
    port: int | None, health: Liveness | None = None, host: str | None = None
) -> AsyncIterator[None]:
    """Answer /healthz while the block runs, and everything else with 503.

    The answer comes from the event loop that does the work, so that one that hangs answers nothing.

    Args:
        port: The port; None: do not listen.
        health: What is answered; None: all is well.
        host: The address to listen on; None: every one.

    Raises:
        ServiceUnavailable: When the address is taken.
    """
    if port is None:
        yield
        return
    # Imported here, since most commands do without
    from starlette.responses import JSONResponse

    from medlive.guard.serving import serve_app

    health = health or Liveness()

    async def answer(scope: "Scope", receive: "Receive", send: "Send") -> None:
        response = JSONResponse(health.answer())
        if scope["path"] != "/healthz":
            response = JSONResponse(health.answer(), 503, {"Retry-After": "10"})
        await response(scope, receive, send)

    async with serve_app(answer, host, port):
        yield
