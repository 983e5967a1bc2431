"""The model registry: what is known of each candidate, its training cutoff above all, and how it is asked; and `Price`,
what a model's tokens cost.

Tables `[candidates."MODEL"]` of `models.toml`. A cutoff that nobody stated is unknown; nothing here guesses one.
"""

import re
from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

_CUTOFF = re.compile(r"\d{4}-\d{2}(-\d{2})?")


Basis = Literal["stated", "inferred", "released"]
"""What a cutoff rests on: its maker says it, somebody worked it out (`cutoff_source` says who), or it is undisclosed,
and no model was trained on what came after its own release."""


Amount = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Calls = Annotated[int, Field(ge=1, le=1024)]
JsonMode = Literal["schema", "object", "none"]
"""How an endpoint is asked for JSON, from the strictest."""
KEY_VARIABLE = "OPENAI_API_KEY"
"""The environment variable with the key of an endpoint that names none."""


class Price(BaseModel):
    """US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    input: Amount
    """Of a million tokens of a request."""
    # Of request tokens that the endpoint's prefix cache held; None: the same as `input`
    cached: Amount | None = None
    output: Amount
    """Of a million tokens of a reply."""

    def cost(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        """Dollars for one answer; the cached tokens are among the input tokens."""
        cached = self.input if self.cached is None else self.cached
        fresh = max(0, input_tokens - cached_tokens)
        asked = fresh * self.input + cached_tokens * cached
        return (asked + output_tokens * self.output) / 1e6


@dataclass(frozen=True)
class Cutoff:
    """The last day whose texts a model may have seen in training."""

    day: date
    """Inclusive; of a cutoff that names a month alone, the month's last day."""
    text: str
    """The day or month as the registry spells it."""
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


class Endpoint(BaseModel):
    """Where a model is asked, and what each request holds besides its messages."""

    # Built when the first table is read: a command that only says how it is used need not wait for it.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    model: str | None = None
    """The id at the endpoint; None for a candidate: the table's name."""
    base_url: str | None = None
    """The endpoint up to `/v1`; a role's with engine "recorded" is asked for what is not recorded."""
    api_key_env: str | None = None
    """The environment variable with the key; None: OPENAI_API_KEY, which may be unset."""
    parameters: dict[str, Any] = {}
    """Fields of every request, such as `temperature` or `max_completion_tokens`."""
    query: dict[str, str] = {}
    """Query parameters of every request, as Azure's `api-version`."""
    headers: dict[str, str] = {}
    """Headers of every request; the key belongs in a variable."""
    key_header: str | None = None
    """The header that carries the key; None for `Authorization: Bearer`, on Azure's deployment paths "api-key"."""


class RoleEndpoint(Endpoint):
    """An endpoint, and how it is asked."""

    concurrency: Calls = 32
    """Most concurrent calls; roles with the same base_url and key share the largest limit."""
    json_mode: JsonMode = "schema"
    """How JSON is requested first; if the endpoint refuses, the next looser mode is used."""
    timeout_s: Positive = 120.0
    """Seconds after which a request is given up."""
    max_retries: Annotated[int, Field(ge=0, le=20)] = 5
    """How often a request that failed is sent again."""


class Candidate(Endpoint):
    """One model under evaluation."""

    cutoff: str | None = None
    """`YYYY-MM` or `YYYY-MM-DD`, inclusive; None: undisclosed."""
    cutoff_source: str | None = None
    """Where the cutoff is said: an address or a citation."""
    confidence: Literal["stated", "inferred"] | None = None
    """How far the cutoff is to be believed."""
    released: date | None = None
    """The day the model was released; used where the cutoff is undisclosed."""

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
    def _check_cutoff(self) -> Self:
        if self.cutoff is not None and not (self.cutoff_source and self.confidence):
            raise ValueError(
                "a cutoff needs cutoff_source and confidence (stated or inferred)"
            )
        return self


class Registry(BaseModel):
    """The candidates by name."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    candidates: Mapping[str, Candidate]

    def find(self, model: str) -> Candidate | None:
        """The candidate of that name, else the only one asked under that id; names are never guessed at."""
        if model in self.candidates:
            return self.candidates[model]
        same = [c for c in self.candidates.values() if c.model == model]
        return same[0] if len(same) == 1 else None

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


EMPTY = Registry(candidates={})
