"""Whether a worker or a scheduler still runs, for whoever restarts it when it does not."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

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
        if (reason := self.waiting or self.find_obstacle()) is not None:
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
    # Which most commands do without
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
