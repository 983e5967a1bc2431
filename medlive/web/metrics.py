"""The room of a monitor: `/metrics`, without an account, served on a port of its own that no proxy passes on."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from fastapi.responses import Response

from medlive.web.site import Room


def metrics_room(read: Callable[[], Awaitable[bytes]]) -> Room:
    """The room whose one page is what `read` returns, in Prometheus' text format."""
    router = APIRouter(include_in_schema=False)

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(
            await read(), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    return Room(True, router)
