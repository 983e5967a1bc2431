"""The demo's four communities, at ports 8800 to 8803 of loopback, until the container ends."""

import asyncio

from medlive.demo.communities import serve_communities
from medlive.demo.samples import load_sample_threads

FIRST_PORT = 8800


async def _serve() -> None:
    async with serve_communities(load_sample_threads(), first_port=FIRST_PORT):
        await asyncio.Event().wait()


asyncio.run(_serve())
