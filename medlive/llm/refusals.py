"""What an endpoint's error means: a refusal of the request, of the caller or of a format, or trouble that may pass.

How endpoints put it is tabled in docs/endpoints.md and tests/unit/llm/test_dialects.py.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from openai import APIStatusError
from pydantic import BaseModel

from medlive.clock import parse_retry_after
from medlive.errors import CallerRefused, EndpointUnavailable, RequestRefused
from medlive.llm.engine import Usage
from medlive.llm.limiter import Ended
from medlive.llm.wire import IF_VALID, Text

_NO_MONEY: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_NO_MONEY_WORDS: Final = ("insufficient_quota", "insufficient balance", "余额不足")
"""How endpoints without such a code put it, in lower case. A quota that is "exceeded" may be that of a minute."""
_OF_CALLER: Final = frozenset({"model_not_found", "invalid_api_key"})
_WHATEVER_THE_FORM: Final = _OF_CALLER | {"context_length_exceeded"}
_OF_FILTER: Final = frozenset(
    {"content_filter", "content_policy_violation", "responsibleaipolicyviolation"}
)
_OF_PARAMETER: Final = frozenset(
    {"unsupported_parameter", "unsupported_value", "unknown_parameter"}
)
_OF_PARAMETER_WORDS: Final = (
    "unsupported",
    "not support",
    "unrecognized",
    "unknown param",
    "unexpected",
    "not permitted",
)
"""How endpoints without such a code put it, in lower case."""
_OF_FORMAT_WORDS: Final = (
    "response_format",
    "json_schema",
    "json_object",
    "json schema",
    "structured output",
    "grammar",
    "validation error",
)
"""What the refusal of a way of asking for JSON speaks of, whatever its status, in lower case."""
_RETRIED: Final = frozenset({408, 409, 425, 429})
_OVERLOADED: Final = frozenset({503, 504, 529})


class _Inner(BaseModel):
    code: Text = None


class _Fields(BaseModel):
    """What is read of an error; what has a wrong type counts as not sent."""

    message: Text = None
    detail: Text = None  # FastAPI
    code: Text = None
    type: Text = None
    param: Text = None
    innererror: Annotated[_Inner | None, IF_VALID] = None  # Azure


@dataclass(eq=False)
class Trouble(Exception):
    """An attempt failed in a way that another attempt may mend."""

    cause: str
    ended: Ended = Ended.OTHER
    retry_after: float | None = None
    usage: Usage | None = None
    """What a body without a usable reply took; None: unknown, or nothing."""
    timed_out: bool = False


@dataclass(eq=False)
class Refusal(Exception):
    """The endpoint refused the request itself: the same request would be refused again."""

    status: int
    message: str
    codes: frozenset[str]  # In lower case
    parameter: str
    """The part of the request that the endpoint names, "" where it names none."""
    of_format: bool = False
    """Whether it speaks of the way that JSON was asked for."""

    @property
    def is_by_filter(self) -> bool:
        """Whether a content filter refuses the prompt, which it has read and charges for."""
        return self.status in {400, 403} and not _OF_FILTER.isdisjoint(self.codes)

    @property
    def is_broke(self) -> bool:
        """Whether the account has no credit left."""
        message = self.message.casefold()
        return (
            self.status == 402
            or not _NO_MONEY.isdisjoint(self.codes)
            or any(words in message for words in _NO_MONEY_WORDS)
        )

    @property
    def may_be_of_format(self) -> bool:
        """Whether the same request may be answered where JSON is asked for in another way."""
        return (
            self.of_format or self.status in {400, 415, 422}
        ) and _WHATEVER_THE_FORM.isdisjoint(self.codes)

    def find_parameter(self, parameters: Iterable[str]) -> str | None:
        """Which of a request's parameters it says the model does not take; None where it says no such thing."""
        message = self.message.casefold()
        if self.status not in {400, 422} or not _WHATEVER_THE_FORM.isdisjoint(
            self.codes
        ):
            return None
        if _OF_PARAMETER.isdisjoint(self.codes) and not any(
            words in message for words in _OF_PARAMETER_WORDS
        ):
            return None
        named = self.parameter.split(".")[0]
        if named in parameters:
            return named
        words = set(re.findall(r"\w+", message))
        quoted = [name for name in parameters if name.casefold() in words]
        # The longest: "max_tokens" may be named beside the parameter that should stand in its place.
        return max(quoted, key=len, default=None)

    @property
    def kind(self) -> type[EndpointUnavailable]:
        """Whether this request, this caller, or the endpoint is concerned."""
        if self.of_format:
            return RequestRefused
        if self.is_broke or self.status in {401, 403, 404}:
            return CallerRefused
        if self.status in {400, 413, 422} and _OF_CALLER.isdisjoint(self.codes):
            return RequestRefused
        return EndpointUnavailable


def read_error(error: APIStatusError, *, shaped: bool) -> Refusal | Trouble:
    """Read an error in each form that endpoints give it.

    Args:
        error: The error.
        shaped: Whether the request held a response_format: an error that speaks of it is a refusal, not an outage.
    """
    refusal = _refusal(error)
    status = refusal.status
    if refusal.is_by_filter:
        return refusal
    words = f"{refusal.parameter} {refusal.message}".casefold()
    if shaped and status != 429 and any(word in words for word in _OF_FORMAT_WORDS):
        refusal.of_format = True
        return refusal
    if refusal.is_broke or not (status in _RETRIED or status >= 500):
        return refusal
    ended = Ended.OTHER
    if status == 429:
        ended = Ended.LIMITED
    elif status in _OVERLOADED:
        ended = Ended.OVERLOADED
    retry_after = parse_retry_after(error.response.headers.get("Retry-After", ""))
    return Trouble(f"status {status}: {refusal.message}", ended, retry_after)


def _refusal(error: APIStatusError) -> Refusal:
    details: Any = error.body  # What stands under "error", or the whole
    if isinstance(details, list) and details and isinstance(details[0], dict):
        details = details[0].get("error")  # Google
    plain = details if isinstance(details, str) else error.response.text
    fields = _Fields.model_validate(details if isinstance(details, dict) else {})
    inner = fields.innererror.code if fields.innererror else None
    codes = (fields.code, fields.type, inner)
    return Refusal(
        status=error.status_code,
        message=fields.message or fields.detail or plain[:1000],
        codes=frozenset(code.casefold() for code in codes if code),
        parameter=fields.param or "",
    )
