"""Whether a worker or a scheduler still runs, for whoever restarts it when it does not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from medlive.errors import ServiceUnavailable


@asynccontextmanager
async def answer_probes(port: int | None) -> AsyncIterator[None]:
    """Answer GET /healthz on every address while the block runs; None: do not listen.

    The answer comes from the event loop that does the work, so that one that hangs answers nothing. Raises
    ServiceUnavailable when the port is taken.
    """
    if port is None:
        yield
        return

    async def alive(request: web.Request) -> web.Response:
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
                f"cannot listen on port {port}: {error.strerror or error}", hint="choose another --health-port"
            ) from error
        yield
    finally:
        await runner.cleanup()
