"""Whether a worker or a scheduler still runs, for whoever restarts it when it does not."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from medlive.errors import ServiceUnavailable

if TYPE_CHECKING:
    from aiohttp import web


class Liveness:
    """What a process answers to probes."""

    def __init__(self) -> None:
        """All is well until somebody sets what finds a problem."""
        self.find_problem: Callable[[], str | None] = lambda: None
        """What is wrong so that only a restart helps; None: nothing."""
        self.waiting: str | None = None
        """What the process waits for, which a restart would not bring; None: it works."""
        self.find_obstacle: Callable[[], str | None] = lambda: None
        """What keeps the process from a part of its work meanwhile; None: nothing."""

    def answer(self) -> tuple[int, dict[str, str]]:
        """The status and the body for a probe: 503 where only a restart helps."""
        if (problem := self.find_problem()) is not None:
            return 503, {"status": "failing", "reason": problem}
        if (reason := self.waiting or self.find_obstacle()) is not None:
            return 200, {"status": "waiting", "reason": reason}
        return 200, {"status": "ok"}


@asynccontextmanager
async def answer_probes(
    port: int | None, health: Liveness | None = None
) -> AsyncIterator[None]:
    """Answer GET /healthz on every address while the block runs; None: do not listen.

    The answer comes from the event loop that does the work, so that one that hangs answers nothing. Its status is
    503 where `health` finds a problem. Raises ServiceUnavailable when the port is taken.
    """
    if port is None:
        yield
        return
    async with _listening(None, port, health or Liveness()):
        yield


@asynccontextmanager
async def answer_waiting(host: str, port: int, health: Liveness) -> AsyncIterator[None]:
    """Stand in for a server that waits: /healthz as `answer_probes`, 503 for everything else.

    Args:
        host: The address to listen on.
        port: The port.
        health: What is waited for.

    Raises:
        ServiceUnavailable: when the address is taken.
    """
    from aiohttp import web

    async def unready(request: "web.Request") -> "web.Response":
        body = {"status": "waiting", "reason": health.waiting}
        return web.json_response(body, status=503, headers={"Retry-After": "10"})

    async with _listening(host, port, health, unready):
        yield


@asynccontextmanager
async def _listening(
    host: str | None,
    port: int,
    health: Liveness,
    otherwise: "Callable[[web.Request], Awaitable[web.Response]] | None" = None,
) -> AsyncIterator[None]:
    """Answer probes, and by `otherwise` what else is asked, while the block runs."""
    from aiohttp import web  # which most commands do without

    async def alive(request: "web.Request") -> "web.Response":
        status, body = health.answer()
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_get("/healthz", alive)
    if otherwise is not None:
        app.router.add_route("*", "/{path:.*}", otherwise)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ServiceUnavailable(
                f"cannot listen on port {port}: {error.strerror or error}",
                hint="choose another port",
            ) from error
        yield
    finally:
        await runner.cleanup()
