"""The rules engine as an endpoint, its sample model of evidence wired to the index when there is one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from medlive.config import Settings
from medlive.errors import IndexMissing
from medlive.evidence.passage import Query, Retriever
from medlive.llm.rules.engine import RulesEngine
from medlive.llm.server import serve
from medlive.service.paths import index_path

PASSAGES = 5


@asynccontextmanager
async def serve_rules(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    latency_ms: float = 0.0,
    told: Callable[[str], None] | None = None,
) -> AsyncIterator[str]:
    """Serve until the block ends; its base URL. Without an evidence index the sample model that answers from
    evidence gives its general answer, and `told` hears of it."""
    retriever = await asyncio.to_thread(_open, settings)
    if retriever is None and told is not None:
        told(f"there is no evidence index at {index_path(settings)}: sample-evidence answers like sample-generic")

    async def search(question: str) -> list[str]:
        assert retriever is not None
        (hits,) = await retriever.search([Query(question)], k=PASSAGES)
        return [hit.passage.text for hit in hits]

    async with serve(
        RulesEngine, host=host, port=port, latency_ms=latency_ms, search=search if retriever else None
    ) as url:
        yield url


def _open(settings: Settings) -> Retriever | None:
    if not index_path(settings).exists():
        return None
    # What searches an index is in the extra `service`: whoever has none can serve without it.
    from medlive.service.wiring import open_retriever

    try:
        return open_retriever(settings)
    except IndexMissing:
        return None
