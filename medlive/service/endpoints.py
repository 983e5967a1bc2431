"""The engines that evaluation asks: an endpoint named on the command line, or the configured grader."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from medlive.config import Price, RoleSettings, Settings, models_file
from medlive.errors import ConfigError, UsageError
from medlive.evaluation.asking.registry import Candidate, load_registry
from medlive.llm.engine import Engine, EngineIdentity
from medlive.llm.limiter import Limiters
from medlive.llm.openai import RULES_MODEL, OpenAIEngine
from medlive.llm.openai import Price as EnginePrice
from medlive.llm.recorded import RecordedEngine, Recording, load_recording
from medlive.llm.rules.engine import RulesEngine

"""What a grader named on the command line is asked with."""
DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"
TIMEOUT_S = 120.0
"""The longest that one attempt of a call takes where nothing else is said."""


def open_endpoint(
    model: str,
    base_url: str,
    *,
    api_key_env: str | None,
    parameters: Mapping[str, Any],
    concurrency: int,
    timeout_s: float | None = None,
    max_retries: int = 5,
    json_mode: str = "schema",
    price: Price | None = None,
    limiters: Limiters | None = None,
) -> OpenAIEngine:
    """A model at an OpenAI-compatible endpoint.

    The key is read from `api_key_env`; None reads OPENAI_API_KEY where it is set and sends no key where it is
    not. `timeout_s` bounds one attempt; None is 120 seconds. `limiters`: engines opened with the same one share a
    limit where they share address and key. Raises ConfigError when a named variable is not set.
    """
    key = os.environ.get(api_key_env or DEFAULT_KEY_VARIABLE, "")
    if api_key_env and not key:
        raise ConfigError(f"the variable {api_key_env} is not set")
    return OpenAIEngine(
        model=model,
        base_url=base_url,
        api_key=key,
        parameters=parameters,
        timeout_s=TIMEOUT_S if timeout_s is None else timeout_s,
        max_retries=max_retries,
        concurrency=concurrency,
        json_mode=json_mode,
        price=EnginePrice(price.input, price.output, price.cached) if price else None,
        key_variable=api_key_env or DEFAULT_KEY_VARIABLE,
        limiter=limiters.of(base_url, key, concurrency) if limiters else None,
    )


def price_of(settings: RoleSettings, prices: Mapping[str, Price]) -> Price | None:
    """A role's own price, else its model's; None where neither is set: the cost is unknown."""
    return settings.price or prices.get(settings.model or "")


@cache
def _recording(path: Path) -> Recording:
    """Read once: several roles share it."""
    return load_recording(path)


def build_engine(
    role: str,
    settings: RoleSettings,
    prices: Mapping[str, Price] | None = None,
    limiters: Limiters | None = None,
) -> Engine:
    """The engine of a role. Raises ConfigError when its key's variable is not set."""
    if settings.engine == "rules":
        return RulesEngine()
    if settings.recording is not None and settings.engine == "recorded":
        return RecordedEngine(_recording(settings.recording), RulesEngine())
    if settings.base_url is None or settings.model is None:
        raise ConfigError(f'roles.{role}: engine "openai" needs base_url and model')
    return open_endpoint(
        settings.model,
        settings.base_url,
        api_key_env=settings.api_key_env,
        parameters=settings.parameters,
        concurrency=settings.concurrency,
        timeout_s=settings.timeout_s,
        max_retries=settings.max_retries,
        json_mode=settings.json_mode,
        price=price_of(settings, prices or {}),
        limiters=limiters,
    )


def check_priced(settings: Settings, roles: Sequence[str]) -> None:
    """Raises ConfigError when the budget is in dollars and a role's model has no price: before the first call,
    since afterwards the money would be spent and unknown."""
    if settings.budget.max_usd is None:
        return
    unpriced = {
        role: asked.model
        for role in roles
        if (asked := getattr(settings.roles, role)).engine == "openai" and price_of(asked, settings.prices) is None
    }
    if unpriced:
        told = ", ".join(f"{model} ({role})" for role, model in unpriced.items())
        raise ConfigError(
            f"budget.max_usd is {settings.budget.max_usd:g}, and what these models cost is unknown: {told}",
            hint=f"Give each a price under [prices] in {models_file()}, or set max_calls or max_tokens instead.",
        )


JUDGES: Mapping[str, tuple[str, ...]] = {
    "controller": ("screener",),
    "reader": ("screener", "controller", "rubric"),
}
"""Role → the roles whose work it judges."""


def dependent_judges(settings: Settings) -> list[str]:
    """The roles that judge what their own model wrote, a sentence each; empty when all are independent."""
    found = []
    for judge, writers in JUDGES.items():
        own: RoleSettings = getattr(settings.roles, judge)
        same = [w for w in writers if getattr(settings.roles, w).model == own.model]
        if own.engine == "openai" and same:
            found.append(
                f"{judge} judges what {', '.join(same)} wrote, and both are {own.model}:"
                " a model is lenient with itself"
            )
    return found


@dataclass(frozen=True, slots=True)
class CandidateChoice:
    """A model under evaluation and how it is asked: what the registry says, and the command line over it."""

    name: str
    model: str
    """Its id at the endpoint."""
    base_url: str
    api_key_env: str | None
    parameters: Mapping[str, Any]
    """As they are sent."""
    price: Price | None


def choose_candidate(
    settings: Settings,
    name: str,
    *,
    base_url: str | None = None,
    api_key_env: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> CandidateChoice:
    """The model of that name; None among `parameters` takes away what the registry sends.

    A key's variable is the registry's only where the endpoint is, too. Raises UsageError without an endpoint.
    """
    known = load_registry(settings.candidates).find(name) or Candidate()
    address = base_url or known.base_url
    if address is None:
        raise UsageError(
            f"{name} has no endpoint",
            hint=f'give --base-url, or base_url under [candidates."{name}"] in {models_file()}',
        )
    own_key = known.api_key_env if address == known.base_url else None
    model = known.model or name
    return CandidateChoice(
        name=name,
        model=model,
        base_url=address,
        api_key_env=api_key_env or own_key,
        parameters=sent_parameters(known.sent(), parameters),
        price=settings.prices.get(model) or settings.prices.get(name),
    )


def sent_parameters(*given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters that are sent: of one that is given twice the last; None takes it away."""
    merged = {key: value for one in given for key, value in (one or {}).items()}
    return {key: value for key, value in merged.items() if value is not None}


def grader_identity(settings: RoleSettings, model: str) -> EngineIdentity:
    """The identity of the grader of that name: the configured one's, else as `--grader` asks it."""
    if settings.engine == "openai" and settings.model == model:
        return EngineIdentity("openai", model, settings.parameters)
    rules = model == RULES_MODEL or model.startswith(RULES_MODEL + "-")
    return EngineIdentity("rules" if rules else "openai", model)


def grader_engine(
    settings: RoleSettings,
    *,
    model: str | None,
    base_url: str | None,
    api_key_env: str | None,
    concurrency: int,
    prices: Mapping[str, Price] | None = None,
    timeout_s: float | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Engine:
    """The grader: the endpoint that is named, or the configured role. Raises UsageError for half a name.

    `timeout_s` bounds one attempt; None: as the role says, or 120 seconds. `parameters` are sent with each call,
    beside those of the role; one that is None is not sent.
    """
    if (model is None) != (base_url is None):
        raise UsageError("--grader and --base-url belong together; without both the configured grader is used")
    if model is not None and base_url is not None:
        return open_endpoint(
            model,
            base_url,
            api_key_env=api_key_env,
            parameters=sent_parameters(parameters),
            concurrency=concurrency,
            timeout_s=timeout_s,
            price=(prices or {}).get(model),
        )
    sent = sent_parameters(settings.parameters, parameters)
    settings = settings.model_copy(update={"timeout_s": timeout_s or settings.timeout_s, "parameters": sent})
    return build_engine("grader", settings, prices)
