"""An engine at an endpoint, from what a test says of it; and an endpoint, from an engine."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from medlive.guard.serving import serve_app
from medlive.llm.engine import Engine
from medlive.llm.limiter import Limiters
from medlive.llm.openai import OpenAIEngine
from medlive.llm.registry import Price, RoleEndpoint
from medlive.llm.rules.server import Search, build_app


def engine_at(
    model: str,
    base_url: str,
    api_key: str = "",
    parameters: dict[str, Any] | None = None,
    *,
    price: Price | None = None,
    backoff_s: float = 0.5,
    limiters: Limiters | None = None,
    pinned: bool = True,
    **asked: Any,
) -> OpenAIEngine:
    """`asked` are the other fields of `RoleEndpoint`."""
    how: dict[str, Any] = {"concurrency": 16, "max_retries": 4, **asked}
    endpoint = RoleEndpoint(
        model=model, base_url=base_url, parameters=parameters or {}, **how
    )
    return OpenAIEngine(
        endpoint,
        api_key,
        price=price,
        backoff_s=backoff_s,
        limiters=limiters,
        pinned=pinned,
    )


@asynccontextmanager
async def serve(
    engine: Callable[[], Engine], port: int = 0, search: Search | None = None
) -> AsyncIterator[str]:
    """Serve what `engine` makes, as `medlive llm serve` does; yields the base URL."""
    async with serve_app(build_app(engine(), search), "127.0.0.1", port) as address:
        yield f"{address}/v1"
