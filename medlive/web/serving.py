"""Serves the application by uvicorn inside the process's own event loop."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from fastapi import FastAPI

from medlive.bounds import HEADER_BYTES
from medlive.errors import ServiceUnavailable


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command, which ends other things too."""
        yield


@asynccontextmanager
async def serve_web(app: FastAPI, host: str, port: int) -> AsyncIterator[str]:
    """Serve while the context lasts; yields the address. `port` 0 takes a free one.

    Raises ServiceUnavailable when the address is taken.
    """
    listener = await asyncio.to_thread(_listen, host, port)
    app.state.listens_on = host
    # No access log: it would keep the addresses of readers. Nor is a proxy's word about them taken. Faults are
    # logged by the application, with the path.
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
        http="h11",
        h11_max_incomplete_event_size=HEADER_BYTES,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve([listener]))
    try:
        bound = listener.getsockname()
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        yield f"http://{shown}:{bound[1]}"
    finally:
        server.should_exit = True
        await running


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1024)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise ServiceUnavailable(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="choose another port",
        ) from error
    listener.setblocking(False)
    return listener
