"""Build engines: for a role, for a model under evaluation, or for a grader named on the command line."""

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

DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"
TIMEOUT_S = 120.0
"""The default timeout of one attempt."""


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
    """Open a model at an OpenAI-compatible endpoint.

    Args:
        api_key_env: The variable with the key; None uses OPENAI_API_KEY, or no key if that is not set.
        timeout_s: Seconds for one attempt; None for 120.
        limiters: Engines opened with the same one share a limit where they share address and key.

    Raises:
        ConfigError: If the named variable is not set.
    """
    key = os.environ.get(api_key_env or DEFAULT_KEY_VARIABLE, "")
    if api_key_env and not key:
        raise ConfigError(f"environment variable {api_key_env} is not set")
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


def role_price(settings: RoleSettings, prices: Mapping[str, Price]) -> Price | None:
    """A role's own price, else its model's; None if the cost is unknown."""
    return settings.price or prices.get(settings.model or "")


@cache
def _recording(path: Path) -> Recording:
    """Cached, as several roles share a recording."""
    return load_recording(path)


def build_engine(
    role: str, settings: RoleSettings, prices: Mapping[str, Price] | None = None, limiters: Limiters | None = None
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
        price=role_price(settings, prices or {}),
        limiters=limiters,
    )


def check_priced(settings: Settings, roles: Sequence[str]) -> None:
    """Raise ConfigError when the budget is in dollars and a role's model has no price."""
    if settings.budget.max_usd is None:
        return
    unpriced = {
        role: own.model
        for role in roles
        if (own := getattr(settings.roles, role)).engine == "openai" and role_price(own, settings.prices) is None
    }
    if unpriced:
        models = ", ".join(f"{model} ({role})" for role, model in unpriced.items())
        raise ConfigError(
            f"budget.max_usd is {settings.budget.max_usd:g}, but these models have no price: {models}",
            hint=f"give each a price under [prices] in {models_file()}, or set max_calls or max_tokens instead",
        )


JUDGED_ROLES: Mapping[str, tuple[str, ...]] = {
    "controller": ("screener",),
    "reader": ("screener", "controller", "rubric"),
}
"""Role → the roles whose output it judges."""


def find_dependent_judges(settings: Settings) -> list[str]:
    """The roles that judge output of their own model, one sentence each."""
    found = []
    for judge, writers in JUDGED_ROLES.items():
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
    """A model under evaluation: its registry entry, overridden by the command line."""

    name: str
    model: str
    """Its id at the endpoint."""
    base_url: str
    api_key_env: str | None
    parameters: Mapping[str, Any]
    """The parameters sent."""
    price: Price | None


def choose_candidate(
    settings: Settings,
    name: str,
    *,
    base_url: str | None = None,
    api_key_env: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> CandidateChoice:
    """The model of that name; None among `parameters` removes one of the registry's.

    The registry's key variable is used only with the registry's endpoint. Raises UsageError without an endpoint.
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
    """The identity of the grader of that name, configured or given by `--grader`."""
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
    """Build the grader named by `model` and `base_url`, or else the configured one.

    `timeout_s` bounds one attempt; None for the role's, or 120. `parameters` are sent with each call,
    beside those of the role; one that is None is not sent. Raises UsageError if only one of the two is given.
    """
    if (model is None) != (base_url is None):
        raise UsageError("give --grader and --base-url together, or neither to use the configured grader")
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
