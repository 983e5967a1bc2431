"""Serves the pages and the API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from medlive.guard.serving import serve_app


@asynccontextmanager
async def serve_web(app: FastAPI, host: str, port: int) -> AsyncIterator[str]:
    """Serve as `serve_app`; the application knows the host as a name by which it may be called."""
    app.state.listens_on = host
    async with serve_app(app, host, port) as address:
        yield address
