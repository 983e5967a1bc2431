"""What all engines share: an `Engine` answers a typed `Request` with a `Reply`; agents never see an HTTP client.

A request carries the task's name, its instructions (the same for every case, so that an endpoint's prefix
cache holds) and its inputs as JSON. Text of a thread is only ever inside the inputs: data, never instruction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from medlive.integrity.digest import digest_json, digest_text

UNNAMED = "(unnamed)"
"""The model of a reply that names none: nobody knows who answered, and no pinned model has this name."""


@dataclass(frozen=True)
class Prompt:
    """A task's instructions: a file beside its agent, named and pinned by its digest."""

    task: str  # `<agent>.<what>`, e.g. "screener.extract".
    text: str

    @property
    def digest(self) -> str:
        """The prompt's identity, part of every decision's record."""
        return digest_text(self.text)


UNPUBLISHABLE_ENGINES = frozenset({"rules", "recorded"})
"""Engines whose cases are not publishable: rules make no clinical judgement, a recording holds old replies."""


RULES_MODEL = "rules"
"""The rules engine's name at an endpoint, alone or before a hyphen."""


def endpoint_engine(model: str) -> str:
    """The engine that a model at an endpoint counts as: the rules engine behind HTTP is still the rules engine."""
    is_rules = model == RULES_MODEL or model.startswith(f"{RULES_MODEL}-")
    return "rules" if is_rules else "openai"


class Finish(StrEnum):
    """Why an engine stopped."""

    STOP = "stop"
    LENGTH = "length"
    REFUSAL = "refusal"


@dataclass(frozen=True)
class Usage:
    """What an answer cost."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    # None when the model has no price in `models.toml`: unknown, not free
    cost_usd: float | None = None
    latency_ms: float = 0.0
    # Of the output tokens, those spent on reasoning, where the endpoint says so
    reasoning_tokens: int = 0
    estimated: bool = False  # Whether the endpoint reported no usage, and an upper bound was counted instead

    def as_json(self) -> dict[str, Any]:
        """The usage for a log; `reasoning_tokens` and `estimated` only where they are not 0 or False."""
        values = dict(vars(self))
        for name in ("reasoning_tokens", "estimated"):
            if not values[name]:
                del values[name]
        return values

    def __add__(self, other: "Usage") -> "Usage":
        """The sum; its cost is unknown where either cost is."""
        unknown = self.cost_usd is None or other.cost_usd is None
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            None if unknown else (self.cost_usd or 0.0) + (other.cost_usd or 0.0),
            self.latency_ms + other.latency_ms,
            self.reasoning_tokens + other.reasoning_tokens,
            self.estimated or other.estimated,
        )


@dataclass(frozen=True)
class Request:
    """One question to an engine."""

    task: str
    prompt: Prompt
    inputs: Mapping[str, Any]
    """Shown in this order: first what other calls of the case share, so that a prefix cache holds it."""
    schema: Mapping[str, Any]  # JSON schema of the reply
    # On a second attempt: the raw reply and what was wrong with it
    repair: tuple[str, str] | None = None
    round: int = 0  # Raised after an unusable stored reply, so that this request alone is asked again

    def digest(self, engine: "EngineIdentity") -> str:
        """The key that a stored reply is found by: all that the answer depends on."""
        return digest_json(
            {
                "task": self.task,
                "prompt": self.prompt.digest,
                "schema": self.schema,
                "inputs": self.inputs,
                "repair": list(self.repair) if self.repair else None,
                "round": self.round,
                **engine.as_json(),
            }
        )


@dataclass(frozen=True)
class EngineIdentity:
    """Who answers: engine, model and parameters."""

    engine: str  # "openai", "recorded" or "rules"
    model: str  # The pinned model id; for the rules engine its own version
    parameters: Mapping[str, Any] = field(default_factory=dict)
    pinned: bool = field(default=True, compare=False)
    """Whether every reply must name `model`; False where the configuration or a recording allows others."""

    def accepts(self, model: str) -> bool:
        """Whether a logged reply that names `model` counts as this engine's."""
        return not self.pinned or model == self.model

    def as_json(self) -> dict[str, Any]:
        """The identity as it is stored with what the engine decided."""
        return {
            "engine": self.engine,
            "model": self.model,
            "parameters": dict(self.parameters),
        }

    @property
    def publishable(self) -> bool:
        """Whether a case made by this engine may be released."""
        return self.engine not in UNPUBLISHABLE_ENGINES


@dataclass(frozen=True)
class Reply:
    """An engine's reply."""

    text: str
    finish: Finish
    usage: Usage  # Of all attempts
    model: str  # The model as the endpoint named it in this reply; UNNAMED where it named none
    replayed: bool = field(default=False, compare=False)
    """True when it cost this caller nothing: it was stored, or shared with the caller who paid."""
    last_usage: Usage | None = field(default=None, compare=False)
    """Usage of the last attempt, where earlier ones are charged already (`budget.pay_again`); None: `usage`."""
    thinking: str = field(default="", compare=False)
    """What a reasoning model thought before it answered, where the endpoint shows it; no part of `text`."""

    @property
    def stored_text(self) -> str:
        """`text` with the thinking before it, as stores keep it; `reading.split_thinking` separates them again."""
        return (
            f"<think>\n{self.thinking}\n</think>\n\n{self.text}"
            if self.thinking
            else self.text
        )


class Engine(Protocol):
    """Answers requests.

    `answer` raises EndpointUnavailable when no answer could be had after the engine's own retries
    (dead, rate-limited past patience, a server error, a reply that is no chat completion), and ConfigError where
    the endpoint names a parameter that the model does not take: no other call with it would fare better.
    """

    @property
    def identity(self) -> EngineIdentity:
        """Who answers."""
        ...

    async def answer(self, request: Request) -> Reply:
        """The engine's reply to one request."""
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...


class ReplyStore(Protocol):
    """Where replies are kept, so that no reply is paid for twice."""

    async def find(self, request_digest: str) -> Reply | None:
        """The reply stored under `request_digest`, None where there is none."""
        ...

    async def keep(
        self,
        request_digest: str,
        request: Request,
        identity: EngineIdentity,
        reply: Reply,
    ) -> None:
        """Store a reply, durably, before anybody uses it."""
        ...
