"""A model endpoint: the demo's recorded replies, and the rules engine's where none is recorded.

It calls itself by a model's name, so that what it curates is frozen as a real model's would be.
"""

import asyncio

import aiohttp
from aiohttp import web

from medlive.demo.samples import sample_replies_path
from medlive.llm.recorded import RecordedEngine, load_recording
from medlive.llm.rules.engine import RulesEngine
from medlive.llm.rules.server import serve

MODEL = "sample-2026-10-01"
PORT = 8088
LATENCY_MS = 250.0


def _engine() -> RecordedEngine:
    return RecordedEngine(load_recording(sample_replies_path()), RulesEngine())


async def _serve() -> None:
    async with (
        serve(_engine, latency_ms=LATENCY_MS) as url,
        aiohttp.ClientSession() as session,
    ):

        async def chat(request: web.Request) -> web.Response:
            body = await request.json() | {"model": "rules"}
            async with session.post(f"{url}/chat/completions", json=body) as reply:
                answer = await reply.json() | {"model": MODEL}
                return web.json_response(answer, status=reply.status)

        async def health(_: web.Request) -> web.Response:
            return web.json_response({"status": "ok"})

        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/chat/completions", chat)
        app.router.add_get("/health", health)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, None, PORT).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
