"""Serves an ASGI application by uvicorn inside the process's own event loop."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from medlive.errors import ServiceUnavailable

from .bounds import HEADER_BYTES, REQUEST_SECONDS


class _Protocol(H11Protocol):
    """Closes a connection whose request does not arrive: header by header, or without ever beginning."""

    _giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limit_arrival()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit_arrival()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._arrived()

    def _limit_arrival(self) -> None:
        """Start the time limit where a request is still to arrive; end it where it has arrived."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._arrived()
        elif self._giving_up is None:
            self._giving_up = self.loop.call_later(
                REQUEST_SECONDS, self.transport.close
            )

    def _arrived(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command, which ends other things too."""
        yield


@asynccontextmanager
async def serve_app(
    app: ASGIApp,
    host: str | None,
    port: int,
) -> AsyncIterator[str]:
    """Serve while the context lasts; yields the address.

    Args:
        app: What answers, without startup or shutdown of its own.
        host: The name or address to listen on; None: every address of the machine.
        port: 0 takes a free one.

    Raises:
        ServiceUnavailable: When the address is taken.
    """
    listener = await asyncio.to_thread(_listen, host, port)
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
        ws="none",
        timeout_graceful_shutdown=2,
        http=_Protocol,
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


def _listen(host: str | None, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        both = socket.has_dualstack_ipv6()
        if host is None and both:
            family, address = socket.AF_INET6, ("", port)
        # `::` is every address of the machine, those of IPv4 too.
        return socket.create_server(
            address[:2],
            family=family,
            backlog=1024,
            dualstack_ipv6=both and family == socket.AF_INET6,
        )
    except OSError as error:
        raise ServiceUnavailable(
            f"cannot listen on {host or '*'}:{port}: {error.strerror or error}",
            hint="choose another port",
        ) from error
