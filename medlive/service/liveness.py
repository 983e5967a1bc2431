"""Whether a worker or a scheduler still runs, for whoever restarts it when it does not."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from medlive.errors import ServiceUnavailable

if TYPE_CHECKING:
    from aiohttp import web


class Health:
    """What a process answers to probes."""

    def __init__(self) -> None:
        """All is well until somebody sets what finds a problem."""
        self.find_problem: Callable[[], str | None] = lambda: None
        """What is wrong so that only a restart helps; None: nothing."""
        self.waiting: str | None = None
        """What the process waits for, which a restart would not bring; None: it works."""


@asynccontextmanager
async def answer_probes(
    port: int | None, health: Health | None = None
) -> AsyncIterator[None]:
    """Answer GET /healthz on every address while the block runs; None: do not listen.

    The answer comes from the event loop that does the work, so that one that hangs answers nothing. Its status is
    503 where `health` finds a problem. Raises ServiceUnavailable when the port is taken.
    """
    if port is None:
        yield
        return
    from aiohttp import web  # which most commands do without

    told = health or Health()

    async def alive(request: "web.Request") -> "web.Response":
        if (problem := told.find_problem()) is not None:
            return web.json_response(
                {"status": "failing", "reason": problem}, status=503
            )
        if told.waiting is not None:
            return web.json_response({"status": "waiting", "reason": told.waiting})
        return web.json_response({"status": "ok"})

    app = web.Application()
    app.router.add_get("/healthz", alive)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, None, port).start()
        except OSError as error:
            raise ServiceUnavailable(
                f"cannot listen on port {port}: {error.strerror or error}",
                hint="choose another --health-port",
            ) from error
        yield
    finally:
        await runner.cleanup()
