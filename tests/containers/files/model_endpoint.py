"""A model endpoint: the demo's recorded replies, and the rules engine's where none is recorded.

It calls itself by a model's name, so that what it curates is frozen as a real model's would be.
"""

import asyncio

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from medlive.demo.samples import sample_replies_path
from medlive.guard.serving import serve_app
from medlive.llm.recorded import RecordedEngine, load_recording
from medlive.llm.rules.engine import RulesEngine
from medlive.llm.rules.server import build_app

MODEL = "sample-2026-10-01"
PORT = 8088
LATENCY_S = 0.25


async def _serve() -> None:
    engine = RecordedEngine(load_recording(sample_replies_path()), RulesEngine())
    async with (
        serve_app(build_app(engine), "127.0.0.1", 0) as url,
        httpx2.AsyncClient(timeout=60) as client,
    ):

        async def chat(request: Request) -> JSONResponse:
            body = await request.json() | {"model": "rules"}
            await asyncio.sleep(LATENCY_S)
            reply = await client.post(f"{url}/v1/chat/completions", json=body)
            return JSONResponse(reply.json() | {"model": MODEL}, reply.status_code)

        async def health(_: Request) -> JSONResponse:
            return JSONResponse({"status": "ok"})

        routes = [
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/health", health),
        ]
        async with serve_app(Starlette(routes=routes), None, PORT):
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
