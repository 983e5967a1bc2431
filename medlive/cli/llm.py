"""`medlive llm serve`: serve the rules engine and the sample models as an OpenAI-compatible endpoint."""

import asyncio
from typing import Annotated

from typer import Option

from medlive.instance.loading import read_settings

from .output import say, wait_for


def serve(
    host: str = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535)] = 8088,
) -> None:
    """Serve the rules engine and the sample models at /v1/chat/completions until stopped.

    Args:
        host: Address to listen on.
        port: Port; 0 picks a free one.
    """
    from medlive.instance.opening import serve_rules

    async def run() -> None:
        settings = read_settings()
        async with serve_rules(settings, host=host, port=port, warn=say) as url:
            say(
                f"serving rules, sample-generic and sample-evidence at {url} (stop with Ctrl-C)"
            )
            await asyncio.Event().wait()

    wait_for(run())
