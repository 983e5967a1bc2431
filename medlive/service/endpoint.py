"""The rules engine as an endpoint, its sample model of evidence wired to the index when there is one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from medlive.config import Settings
from medlive.errors import IndexMissing
from medlive.evidence.passage import Query
from medlive.llm.rules.engine import RulesEngine
from medlive.llm.server import serve
from medlive.service.wiring import open_retriever

PASSAGES = 5


@asynccontextmanager
async def serve_rules(
    settings: Settings, *, host: str = "127.0.0.1", port: int = 0, latency_ms: float = 0.0
) -> AsyncIterator[str]:
    """Serve until the block ends; its base URL. Without an evidence index the sample model that answers from
    evidence gives its general answer."""
    try:
        retriever = await asyncio.to_thread(open_retriever, settings)
    except IndexMissing:
        retriever = None

    async def search(question: str) -> list[str]:
        assert retriever is not None
        (hits,) = await retriever.search([Query(question)], k=PASSAGES)
        return [hit.passage.text for hit in hits]

    async with serve(
        RulesEngine, host=host, port=port, latency_ms=latency_ms, search=search if retriever else None
    ) as url:
        yield url
