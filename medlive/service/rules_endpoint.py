"""Serve the rules engine as an endpoint; its sample model `sample-evidence` searches the evidence index."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from medlive.config import Settings
from medlive.errors import IndexMissing
from medlive.evidence.passage import Query, Retriever
from medlive.llm.rules.engine import RulesEngine
from medlive.llm.server import serve
from medlive.service.paths import index_path

MAX_PASSAGES = 5


@asynccontextmanager
async def serve_rules(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    latency_ms: float = 0.0,
    warn: Callable[[str], None] | None = None,
) -> AsyncIterator[str]:
    """Serve until the block ends; yields the base URL. `warn` is called if there is no evidence index."""
    retriever = await asyncio.to_thread(_open, settings)
    if retriever is None and warn is not None:
        warn(f"no evidence index at {index_path(settings)}: sample-evidence answers like sample-generic")

    async def search(question: str) -> list[str]:
        assert retriever is not None
        (hits,) = await retriever.search([Query(question)], k=MAX_PASSAGES)
        return [hit.passage.text for hit in hits]

    async with serve(
        RulesEngine, host=host, port=port, latency_ms=latency_ms, search=search if retriever else None
    ) as url:
        yield url


def _open(settings: Settings) -> Retriever | None:
    if not index_path(settings).exists():
        return None
    # Imported here: serving without an index does not need medlive[service].
    from medlive.service.wiring import open_retriever

    try:
        return open_retriever(settings)
    except IndexMissing:
        return None
