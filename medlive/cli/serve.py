"""`medlive serve`: the status page and the frozen snapshots over HTTP."""

from typing import Annotated

import typer

from medlive.cli.output import say, wait_for
from medlive.config import load_settings


def command(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8080,
) -> None:
    """Serve the status page, /health and the files of frozen snapshots until stopped; nothing can be changed."""
    from medlive.service.database import open_database
    from medlive.service.paths import snapshots_path
    from medlive.service.schedule.worker import stopped_by_signals
    from medlive.web.app import serve_web

    settings = load_settings().settings

    async def run() -> None:
        with stopped_by_signals() as stop:
            async with (
                open_database(settings) as database,
                serve_web(database, snapshots_path(settings), host, port) as address,
            ):
                say(f"serving at {address} (stop with Ctrl-C)")
                await stop.wait()

    wait_for(run())
