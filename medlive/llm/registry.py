"""The model registry: what is known of each candidate, its training cutoff above all, and how it is asked; and `Price`,
what a model's tokens cost.

Tables `[candidates."MODEL"]` of `models.toml`, or of a file of the same form. A cutoff that nobody stated
is unknown; nothing here guesses one.
"""

import re
import tomllib
from calendar import monthrange
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from medlive.errors import BadInput, ConfigError
from medlive.integrity.log import read_bytes

_SENT = (
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "reasoning_effort",
)
"""Fields that are sent under their own names."""
_TABLES = {"candidates", "prices", "roles"}
"""What a `models.toml` may hold."""
_CUTOFF = re.compile(r"\d{4}-\d{2}(-\d{2})?")


Basis = Literal["stated", "inferred", "released"]
"""What a cutoff rests on: its maker says it, somebody worked it out (`cutoff_source` says who), or it is undisclosed,
and no model was trained on what came after its own release."""


Amount = Annotated[float, Field(ge=0)]


class Price(BaseModel):
    """US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    input: Amount
    """Of a million tokens of a request."""
    # Of those that the endpoint's prefix cache held; None for the price of other tokens
    cached: Amount | None = None
    output: Amount
    """Of a million tokens of a reply."""

    def cost(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        """Dollars for one answer; the cached tokens are among the input tokens."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(0, input_tokens - cached_tokens)
        asked = fresh * self.input + cached_tokens * cached
        return (asked + output_tokens * self.output) / 1e6


@dataclass(frozen=True, slots=True)
class Cutoff:
    """The last day whose texts a model may have seen in training."""

    day: date
    """Inclusive; of a cutoff that names a month alone, the month's last day."""
    text: str
    """As the registry spells it."""
    basis: Basis
    source: str | None

    def before(self, posted: str | None, month: str | None) -> bool | None:
        """Whether a case was posted by the cutoff, so that the model may have seen it; None without a date.

        `posted` begins with `YYYY-MM-DD` where the day is known; `month` is `YYYY-MM`, as `posted` may be. A case
        that is known to its month alone counts as seen when any day of the month is: what may have been seen is not
        called fresh.
        """
        for first in ((posted or "")[:10], f"{posted}-01", f"{month}-01"):
            try:
                return date.fromisoformat(first) <= self.day
            except ValueError:
                continue
        return None


class Candidate(BaseModel):
    """One model under evaluation."""

    # Built when the first table is read: a command that only says how it is used need not wait for it.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    model: str | None = None
    """The id at the endpoint; None: the table's name."""
    family: str | None = None
    """Models that share what they saw in training."""
    size: str | None = None
    """As its maker writes it, e.g. "70B"."""
    cutoff: str | None = None
    """`YYYY-MM` or `YYYY-MM-DD`, inclusive; None: undisclosed."""
    cutoff_source: str | None = None
    """Where the cutoff is said: an address or a citation."""
    confidence: Literal["stated", "inferred"] | None = None
    """How far the cutoff is to be believed."""
    released: date | None = None
    """The day the model was released; used where the cutoff is undisclosed."""
    base_url: str | None = None
    """The endpoint, up to `/v1`."""
    api_key_env: str | None = None
    """The environment variable that holds the key."""
    query: dict[str, str] = Field(default_factory=dict)
    """Query parameters of every request."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of every request; the key belongs in a variable."""
    key_header: str | None = None
    """As in a role's table (`medlive.config.RoleSettings`)."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """The longest answer that is asked for."""
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    """The same for models that know only this name; with reasoning, where it counts."""
    temperature: Annotated[float, Field(ge=0)] | None = None
    """None, and "none" in the file: none is sent."""
    reasoning_effort: str | None = None
    """Sent with each request, where the model takes it."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Fields that the client's library does not know."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Anything else that is sent unchanged."""

    @field_validator("temperature", mode="before")
    @classmethod
    def _none_is_sent(cls, value: object) -> object:
        # TOML has no null.
        return None if value == "none" else value

    @field_validator("cutoff", mode="before")
    @classmethod
    def _a_day_or_month(cls, value: object) -> object:
        # TOML has dates of its own: `cutoff = 2025-06-01` is one.
        text = value.isoformat() if type(value) is date else value
        if isinstance(text, str):
            if not _CUTOFF.fullmatch(text):
                raise ValueError("a cutoff is YYYY-MM or YYYY-MM-DD")
            date.fromisoformat(text if len(text) == 10 else f"{text}-01")
        return text

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if {"max_tokens", "max_completion_tokens"} <= self.sent().keys():
            raise ValueError(
                "max_tokens and max_completion_tokens are one limit by two names: give one"
            )
        times = Counter([*self._named(), *self.parameters, *self.extra_body])
        if twice := sorted(name for name, n in times.items() if n > 1):
            raise ValueError(f"{', '.join(twice)}: given twice")
        if self.cutoff is not None and not (self.cutoff_source and self.confidence):
            raise ValueError(
                "a cutoff needs cutoff_source and confidence (stated or inferred)"
            )
        return self

    def sent(self) -> dict[str, Any]:
        """What a request holds beside model and messages."""
        return {**self._named(), **self.parameters, **self.extra_body}

    def _named(self) -> dict[str, Any]:
        """The parameters that have a field of their own here, where they are given."""
        named = {name: getattr(self, name) for name in _SENT}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Registry:
    """The candidates by name."""

    candidates: Mapping[str, Candidate]
    origin: str
    """Where they are written, for messages."""

    def find(self, model: str) -> Candidate | None:
        """The candidate of that name, else the only one asked under that id; names are never guessed at."""
        if model in self.candidates:
            return self.candidates[model]
        same = [c for c in self.candidates.values() if c.model == model]
        return same[0] if len(same) == 1 else None

    def without_run(self, models: Iterable[str]) -> list[str]:
        """The candidates' names that none of these models is found under."""
        with_run = {id(self.find(model)) for model in models}
        own = self.candidates.items()
        return [name for name, model in own if id(model) not in with_run]

    def cutoff(self, model: str) -> Cutoff | None:
        """The cutoff of a model, its release date where that is undisclosed; None where neither is known."""
        known = self.find(model)
        if known is None:
            return None
        if known.cutoff is None:
            if known.released is None:
                return None
            text = known.released.isoformat()
            return Cutoff(known.released, text, "released", None)
        last = date.fromisoformat(f"{known.cutoff}-01"[:10])
        if len(known.cutoff) < 10:
            last = last.replace(day=monthrange(last.year, last.month)[1])
        basis = known.confidence or "inferred"
        return Cutoff(last, known.cutoff, basis, known.cutoff_source)


EMPTY = Registry({}, "no registry")


def load_registry(tables: Mapping[str, Any], origin: str = "models.toml") -> Registry:
    """The registry of `[candidates]`'s tables. Raises ConfigError, naming the candidate and the field."""
    candidates = {}
    for name, table in tables.items():
        if isinstance(table, Candidate):
            candidates[name] = table
            continue
        try:
            candidates[name] = Candidate.model_validate(table)
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            message = first["msg"].removeprefix("Value error, ")
            is_table = place and isinstance(table.get(first["loc"][0]), dict)
            if first["type"] == "extra_forbidden" and is_table:
                message += (
                    f'; a name with a dot needs quotes: [candidates."{name}.{place}"]'
                )
            dotted = f".{place}" if place else ""
            raise ConfigError(
                f'{origin}: candidates."{name}"{dotted}: {message}'
            ) from exc
    return Registry(candidates, origin)


def read_registry(path: Path) -> Registry:
    """The registry of a TOML file; the other tables of a `models.toml` are passed over.

    Raises BadInput for a file that cannot be read, ConfigError for what is no registry and for tables that nothing
    reads, such as one whose name is misspelled.
    """
    try:
        content = tomllib.loads(read_bytes(path).decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise BadInput(f"{path} is not valid TOML: {exc}") from exc
    if strange := sorted(content.keys() - _TABLES):
        raise ConfigError(
            f"{path}: nothing reads {', '.join(strange)}",
            hint='a model\'s table is called [candidates."MODEL"]',
        )
    tables = content.get("candidates", {})
    if not isinstance(tables, dict) or not tables:
        raise ConfigError(f'{path} holds no table [candidates."MODEL"]')
    return load_registry(tables, str(path))
