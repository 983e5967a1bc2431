"""Engines, endpoints and the evidence index, made from the settings and a command's options.

Concrete engines are named only here, in `service.wiring` and in `demo`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medlive.config import RoleSettings, Settings
from medlive.errors import ConfigError, IndexMissing, UsageError
from medlive.home import models_file
from medlive.llm.engine import Engine, EngineIdentity, endpoint_engine
from medlive.llm.limiter import Limiters
from medlive.llm.recorded import RecordedEngine, load_recording
from medlive.llm.registry import KEY_VARIABLE, Candidate, Price, Registry

from .paths import encoder_settings, index_path

if TYPE_CHECKING:
    from medlive.evidence.retriever import IndexRetriever
    from medlive.llm.openai import OpenAIEngine


def open_endpoint(
    settings: RoleSettings, price: Price | None = None, limiters: Limiters | None = None
) -> "OpenAIEngine":
    """Open a model at an OpenAI-compatible endpoint, with its own price or else the one given.

    Engines with the same `limiters`, address and key share a limit. Raises ConfigError if the key is not set.
    """
    # OpenAI's client takes half a second to import.
    from medlive.llm.openai import OpenAIEngine

    return OpenAIEngine(
        settings,
        read_key(settings.api_key_env),
        price=settings.price or price,
        limiters=limiters,
        pinned=not settings.allow_unpinned,
    )


def read_key(variable: str | None) -> str:
    """The key in `variable`, which must be set; for None that in OPENAI_API_KEY, or "". Raises ConfigError."""
    key = os.environ.get(variable or KEY_VARIABLE, "")
    if variable and not key:
        raise ConfigError(f"environment variable {variable} is not set")
    return key


_recording = cache(load_recording)  # several roles share a recording


def build_engine(
    settings: RoleSettings,
    prices: Mapping[str, Price] | None = None,
    limiters: Limiters | None = None,
) -> Engine:
    """The engine of a role. Raises ConfigError when its key's variable is not set."""
    from medlive.llm.rules.engine import RulesEngine

    if settings.engine == "rules":
        return RulesEngine()
    price = (prices or {}).get(settings.model or "")
    if settings.engine == "recorded" and settings.recording is not None:
        otherwise: Engine = RulesEngine()
        if settings.base_url is not None:
            otherwise = open_endpoint(settings, price, limiters)
        return RecordedEngine(_recording(settings.recording), otherwise)
    return open_endpoint(settings, price, limiters)


def check_priced(max_usd: float | None, prices: Mapping[str, object]) -> None:
    """Raise ConfigError when a budget is in dollars and a model has no price (None): before the first call, since
    afterwards the money would be spent and unknown."""
    if max_usd is not None and (
        unpriced := [model for model, price in prices.items() if price is None]
    ):
        raise ConfigError(
            f"a budget of {max_usd:g} US dollars (--max-usd or [budget]) cannot be kept: the price of "
            f"{', '.join(unpriced)} is unknown",
            hint=f"set it under [prices] in {models_file(os.environ)} (`medlive eval`: --price IN,OUT), or limit "
            "calls or tokens instead",
        )


def choose_candidate(
    settings: Settings,
    name: str,
    *,
    base_url: str | None = None,
    api_key_env: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> RoleSettings:
    """The endpoint and price of a model under evaluation, by name; None in `parameters` removes one of the registry's.

    The registry's key variable is used only with the registry's endpoint. Raises UsageError without an endpoint.
    """
    known = Registry(candidates=settings.candidates).find(name) or Candidate()
    address = base_url or known.base_url
    if address is None:
        raise UsageError(
            f"{name} has no endpoint",
            hint=f'give --base-url, or base_url under [candidates."{name}"] in {models_file(os.environ)}',
        )
    model = known.model or name
    own = known if address == known.base_url else Candidate()
    price = settings.prices.get(model) or settings.prices.get(name)
    return RoleSettings(
        engine="openai",
        model=model,
        base_url=address,
        api_key_env=api_key_env or own.api_key_env,
        parameters=_merged(known.parameters, parameters),
        price=price,
        query=own.query,
        headers=own.headers,
        key_header=own.key_header,
    )


def _merged(
    own: Mapping[str, Any], overrides: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Parameters with their overrides; None removes a parameter."""
    merged = {**own, **(overrides or {})}
    return {name: value for name, value in merged.items() if value is not None}


def grader_identity(settings: RoleSettings, model: str) -> EngineIdentity:
    """The identity of the grader of that name, configured or given by `--grader`."""
    if settings.engine == "openai" and settings.model == model:
        return EngineIdentity("openai", model, settings.parameters)
    return EngineIdentity(endpoint_engine(model), model)


def grader_engine(
    settings: RoleSettings,
    *,
    model: str | None = None,
    base_url: str | None = None,
    api_key_env: str | None = None,
    concurrency: int,
    prices: Mapping[str, Price] | None = None,
    timeout_s: float | None = None,
    parameters: Mapping[str, Any] | None = None,
    allow_unpinned: bool = False,
) -> Engine:
    """Build the grader named by `model` and `base_url`, or else the configured one.

    `timeout_s` bounds one attempt; None for the role's, or 120. `parameters` are sent with each call,
    beside those of the role; one that is None is not sent. With `allow_unpinned`, or where the role says so, replies
    of other models count. Raises UsageError if only one of `model` and `base_url` is given, or one is empty.
    """
    if "" in (model, base_url):
        raise UsageError("--grader or --base-url is empty")
    if (model is None) != (base_url is None):
        raise UsageError(
            "give --grader and --base-url together, or neither to use the configured grader"
        )
    if model is not None:
        settings = RoleSettings(
            engine="openai",
            model=model,
            base_url=base_url,
            api_key_env=api_key_env,
            concurrency=concurrency,
        )
    update = {
        "timeout_s": timeout_s or settings.timeout_s,
        "parameters": _merged(settings.parameters, parameters),
        "allow_unpinned": allow_unpinned or settings.allow_unpinned,
    }
    return build_engine(settings.model_copy(update=update), prices)


def open_retriever(settings: Settings, at: Path | None = None) -> "IndexRetriever":
    """Open the evidence index at `at`, or the instance's own; its files are verified before the first search ends.

    Raises IndexMissing with a hint how to build one.
    """
    from medlive.evidence.index import open_index

    return open_index(
        at or index_path(settings),
        settings=encoder_settings(settings),
        retriever=settings.evidence.retriever,
        verify=True,
    )


@asynccontextmanager
async def serve_rules(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    warn: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[str]:
    """Serve the rules engine and the sample models until the block ends; yields the base URL.

    `sample-evidence` searches the evidence index; `warn` is called if there is none.
    """
    from medlive.guard.serving import serve_app
    from medlive.llm.rules.engine import RulesEngine
    from medlive.llm.rules.server import build_app

    retriever = None
    with suppress(IndexMissing):
        if index_path(settings).exists():
            retriever = await asyncio.to_thread(open_retriever, settings)
    if retriever is None:
        warn(
            f"no evidence index at {index_path(settings)}: sample-evidence answers like sample-generic"
        )

    async def search(question: str) -> list[str]:

        assert retriever is not None
        (hits,) = await retriever.search([(question,)], k=5)
        return [hit.passage.text for hit in hits]

    app = build_app(RulesEngine(), search if retriever else None)
    async with serve_app(app, host, port) as address:
        yield f"{address}/v1"
