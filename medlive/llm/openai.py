"""Asks any OpenAI-compatible endpoint, hosted or local, with OpenAI's client over the guarded transport.

Endpoints that call themselves compatible differ and may send anything: bodies are read raw and up to a limit, then
checked field by field, and an endpoint that answers rubbish with status 200 is asked again. How endpoints differ,
and what is made of it, is tabled in docs/endpoints.md and tests/unit/llm/test_dialects.py.
"""

import asyncio
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
from openai import APIConnectionError, APIStatusError, AsyncOpenAI, Omit
from pydantic import SecretStr

from medlive.clock import parse_retry_after
from medlive.errors import (
    CallerRefused,
    ConfigError,
    EndpointUnavailable,
    RequestRefused,
)
from medlive.guard.bounds import ENDPOINT_BODY_BYTES, ENDPOINT_WAIT_S
from medlive.guard.http import reply_client
from medlive.guard.redaction import hide_known, hide_secrets, remember
from medlive.integrity.digest import canonical_json
from medlive.llm.budget import BudgetSpent, pay_again
from medlive.llm.circuit import Circuit
from medlive.llm.engine import (
    RULES_MODEL,
    EngineIdentity,
    Finish,
    Reply,
    Request,
    Usage,
    endpoint_engine,
)
from medlive.llm.fence import render
from medlive.llm.limiter import Ended, Limiter
from medlive.llm.wire import (
    JsonMode,
    NotACompletion,
    Price,
    chat_body,
    completion,
    count,
    encoded,
    read_completion,
    read_error,
    response_format,
    usage_bound,
)

__all__ = ["Access", "JsonMode", "OpenAIEngine", "Price"]

MAX_BACKOFF_S = 8.0
BYTES_A_TOKEN = 3
"""For estimates, on the safe side: English has about 4.5 bytes a token, Chinese from 2.5 to 4."""
# Tokens a reply is reserved for where the model's parameters set no limit
ASSUMED_OUTPUT = 4096
MOST_SPARED = 50
"""How often a call is turned away with 429, while others are served, before that counts as an attempt."""

_OURS = frozenset(
    {"model", "messages", "response_format", "stream", "stream_options", "n"}
)
_NOT_THE_FORMAT = frozenset(
    {"context_length_exceeded", "model_not_found", "invalid_api_key"}
)
_PARAMETER_CODES = frozenset(
    {"unsupported_parameter", "unsupported_value", "unknown_parameter"}
)
_PARAMETER_WORDS = (
    "unsupported",
    "not support",
    "unrecognized",
    "unknown param",
    "unexpected",
    "not permitted",
)
"""How endpoints without such a code put it, in lower case."""
_FORMAT_WORDS = (
    "response_format",
    "json_schema",
    "json_object",
    "json schema",
    "structured output",
    "grammar",
    "validation error",
)
"""What the refusal of a way of asking for JSON speaks of, whatever its status, in lower case."""
_THE_CALLERS = frozenset({"model_not_found", "invalid_api_key"})
_FILTERED = frozenset(
    {"content_filter", "content_policy_violation", "responsibleaipolicyviolation"}
)
_NO_MONEY = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_NO_MONEY_WORDS = ("insufficient_quota", "insufficient balance", "余额不足")
"""How endpoints without such a code put it, in lower case. A quota that is "exceeded" may be that of a minute."""
"""Characters from which on a key is secret, and removed from messages: a local endpoint's may be one letter."""
# How the paths of most endpoints end
_VERSIONED = re.compile(r"/v\d+[a-z0-9]*(?:/openai)?$")
_AZURE_DEPLOYMENT = "/openai/deployments/"
_PAGE = "a web page came, not JSON"
_RETRIED = frozenset({408, 409, 425, 429})
_OVERLOADED = frozenset({503, 504, 529})


@dataclass(frozen=True, slots=True)
class Access:
    """How requests to an endpoint are addressed, where a base URL and a bearer key are not enough."""

    query: Mapping[str, str] = field(default_factory=dict)
    """Query parameters of every request, as Azure's `api-version`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of every request; no secrets, since they are stored with a configuration."""
    key_header: str | None = None
    """The header with the key; None for `Authorization: Bearer`, on Azure's deployment paths "api-key"."""


_NOTHING = Usage(cost_usd=0.0)


@dataclass(eq=False)
class _TroubleError(Exception):
    """An attempt failed in a way that another attempt may mend."""

    cause: str
    ended: Ended = Ended.OTHER
    retry_after: float | None = None
    usage: Usage | None = None
    """What a body without a usable reply took; None: unknown, or nothing."""
    timed_out: bool = False

    @property
    def patience(self) -> float:
        """The seconds that the endpoint asks to wait."""
        return self.retry_after or 0.0


@dataclass(eq=False)
class _RejectedError(Exception):
    """The endpoint refused the request itself: the same request would be refused again."""

    status: int
    code: str
    message: str
    named: str = ""
    """The part of the request that the endpoint names, "" where it names none."""
    of_format: bool = False
    """Whether it speaks of the way that JSON was asked for."""

    @property
    def broke(self) -> bool:
        """Whether the account has no credit left."""
        return self.status == 402 or self.code in _NO_MONEY

    @property
    def kind(self) -> type[EndpointUnavailable]:
        """Whether this request, this caller, or the endpoint is concerned."""
        if self.of_format or (
            self.status in {400, 413, 422}
            and not self.broke
            and self.code not in _THE_CALLERS
        ):
            return RequestRefused
        return (
            CallerRefused
            if self.status in {401, 403, 404} or self.broke
            else EndpointUnavailable
        )


class OpenAIEngine:
    """An Engine at an OpenAI-compatible endpoint. Its key is in no repr, error or log."""

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: SecretStr | str = "",
        parameters: Mapping[str, Any] | None = None,
        *,
        access: Access | None = None,
        timeout_s: float = 120.0,
        max_retries: int = 4,
        concurrency: int = 16,
        json_mode: JsonMode | str = JsonMode.SCHEMA,
        price: Price | None = None,
        key_variable: str | None = None,
        backoff_s: float = 0.5,
        limiter: Limiter | None = None,
        circuit: Circuit | None = None,
        pinned: bool = True,
    ) -> None:
        """Raises ConfigError for a URL, a parameter or a limit that cannot be.

        Args:
            base_url: The address before `/chat/completions`; it may end in a query.
            parameters: Sent as they are (temperature, …).
            timeout_s: Seconds for one whole attempt.
            max_retries: The attempts after the first.
            concurrency: Most attempts under way.
            json_mode: Where to start: an endpoint that refuses it is asked the looser way from then on.
            key_variable: The environment variable's name, for hints.
            limiter: Shared by engines at one endpoint; None for one of its own.
            circuit: Shared by engines of one model there; None for one of its own.
            pinned: Whether replies must name `model`.
        """
        self._parameters = _checked_parameters(model, parameters or {})
        if timeout_s <= 0 or max_retries < 0 or concurrency < 1 or backoff_s < 0:
            raise ConfigError(f"The limits of model {model!r} must be positive")
        self._secret = (
            api_key.get_secret_value() if isinstance(api_key, SecretStr) else api_key
        ).strip()
        if not (self._secret.isascii() and self._secret.isprintable()):
            raise ConfigError(
                f"The key of model {model!r} holds characters that no key has"
            )
        remember(self._secret)
        access = access or Access()
        self._address = address = _checked_address(model, base_url)
        host = address.hostname or ""
        self._endpoint = f"{host}:{address.port}" if address.port else host
        proxies = {} if proxy_bypass(host) else getproxies()
        self._client = AsyncOpenAI(
            api_key=self._secret or "none",
            base_url=address._replace(query="").geturl(),
            default_query={**dict(parse_qsl(address.query)), **access.query},
            max_retries=0,
            http_client=reply_client(
                ENDPOINT_BODY_BYTES,
                proxy=proxies.get(address.scheme) or proxies.get("all"),
            ),
        )
        # From variables that only OpenAI's client reads: they would go to every endpoint.
        self._client.organization = self._client.project = None
        self._client._custom_headers = {}
        self._headers = _request_headers(address.path, self._secret, access)
        self._model, self._pinned, self._price = model, pinned, price
        self._timeout_s, self._max_retries, self._backoff_s = (
            timeout_s,
            max_retries,
            backoff_s,
        )
        self._mode, self._key_variable = JsonMode(json_mode), key_variable
        self._limiter = limiter or Limiter(self._endpoint, concurrency)
        self.circuit = circuit or Circuit("", f"{self._endpoint} ({model})")
        """Closed as long as the endpoint answers."""

    def __repr__(self) -> str:
        return f"OpenAIEngine(model={self._model!r}, endpoint={self._endpoint!r})"

    @property
    def identity(self) -> EngineIdentity:
        """The configured model and parameters; the rules engine behind HTTP still counts as the rules engine."""
        return EngineIdentity(
            endpoint_engine(self._model),
            self._model,
            self._parameters,
            # The rules engine's reply names its version.
            pinned=self._pinned and self._model != RULES_MODEL,
        )

    @property
    def price(self) -> Price | None:
        """What the model costs; None: unknown."""
        return self._price

    @property
    def json_mode(self) -> JsonMode:
        """How JSON is asked for now; looser than configured once the endpoint refused the stricter way."""
        learnt = self._limiter.json_modes.get(self._model, self._mode)
        return max(learnt, self._mode, key=list(JsonMode).index)

    async def answer(self, request: Request) -> Reply:
        """The endpoint's reply to a typed request; see Engine for what it raises."""
        mode = self.json_mode
        first: _RejectedError | None = None
        while True:
            body = chat_body(
                self._model,
                render(request),
                self._parameters,
                response_format(mode, request),
            )
            try:
                reply = await self._ask(encoded(body), shaped="response_format" in body)
            except _RejectedError as rejected:
                if first is None or first.of_format:
                    first = rejected
                looser = (
                    None if self._rejected_parameter(rejected) else _LOOSER.get(mode)
                )
                if (
                    looser is None
                    or not (rejected.of_format or rejected.status in {400, 415, 422})
                    or rejected.code in _NOT_THE_FORMAT
                ):
                    raise self._refused(first) from None
                mode = looser
                await pay_again(None)
                continue
            if first is not None:
                self._limiter.json_modes[self._model] = mode
            return reply

    def body(self, request: Request) -> dict[str, Any]:
        """The body that `answer` sends first, for whoever sends it another way."""
        return chat_body(
            self._model,
            render(request),
            self._parameters,
            response_format(self.json_mode, request),
        )

    def read(self, body: object) -> Reply:
        """The reply in a chat completion that came another way. Raises NotACompletion."""
        return completion(body, self._price)

    def estimate(self, request: Request) -> Usage:
        """What a call may take at most: tokens from its bytes, and the longest reply that is allowed."""
        return self.estimate_chat(render(request))

    def estimate_chat(self, messages: Sequence[Mapping[str, str]]) -> Usage:
        """The same for plain messages."""
        sent = sum(
            len(message["content"].encode("utf-8", "replace")) for message in messages
        )
        limits = (
            self._parameters.get(name)
            for name in ("max_completion_tokens", "max_tokens")
        )
        most = next((limit for limit in map(count, limits) if limit), ASSUMED_OUTPUT)
        asked = -(-sent // BYTES_A_TOKEN)
        return Usage(
            asked, 0, most, self._price.cost(asked, 0, most) if self._price else None
        )

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> Reply:
        """The endpoint's plain reply to chat messages, for models under evaluation; raises as `answer` does."""
        try:
            return await self._ask(
                encoded(chat_body(self._model, messages, self._parameters))
            )
        except _RejectedError as rejected:
            raise self._refused(rejected) from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(self, content: bytes, *, shaped: bool = False) -> Reply:
        """The reply to a body, after retries; `shaped` where it holds a response_format."""
        attempt, spared, lost = 1, 0, _NOTHING
        while True:
            served = self._limiter.answered
            try:
                reply = await self._attempt(content, shaped=shaped)
            except _TroubleError as exc:
                trouble = exc
            else:
                return replace(reply, usage=lost + reply.usage, last_usage=reply.usage)
            lost += trouble.usage or _NOTHING
            # Turned away while others were served is waiting in line: the limit was lowered for it.
            turned_away = (
                trouble.ended is Ended.LIMITED and self._limiter.answered > served
            )
            in_line = turned_away and spared < MOST_SPARED
            if trouble.patience > ENDPOINT_WAIT_S or not (
                in_line or attempt <= self._max_retries
            ):
                raise self._unavailable(trouble, attempt)
            await self._wait(trouble.retry_after, 1 if in_line else attempt)
            if not in_line:
                try:
                    await pay_again(trouble.usage)
                except BudgetSpent:
                    raise self._unavailable(trouble, attempt) from None
            spared, attempt = (
                (spared + 1, attempt) if in_line else (spared, attempt + 1)
            )

    async def _wait(self, retry_after: float | None, attempt: int) -> None:
        if retry_after is None:
            wait = min(
                self._backoff_s * 2.0 ** (attempt - 1), MAX_BACKOFF_S
            ) * random.uniform(0.75, 1.0)
        else:
            wait = retry_after
            # The rate limit is the key's, not the call's: nobody else asks before it is over either.
            self._limiter.pause(wait)
        await asyncio.sleep(wait)

    def _unavailable(
        self, trouble: _TroubleError, attempts: int
    ) -> EndpointUnavailable:
        patience = trouble.patience
        cause = trouble.cause + (
            f"; asks to wait {patience:.0f} s" if patience > ENDPOINT_WAIT_S else ""
        )
        hint = "Check that the endpoint is up and reachable; what failed is tried again with the next run."
        if trouble.cause == _PAGE:
            hint = "Does the address end in /v1, as most do? This one is a web site's, or a proxy stands before it."
        error = EndpointUnavailable(
            f"{self._endpoint} gave no answer for model {self._model!r} in {attempts} "
            f"attempt{'s' if attempts > 1 else ''}: {self._clean(cause)}",
            hint=hint,
        )
        error.usage = trouble.usage
        return error

    async def _attempt(self, content: bytes, *, shaped: bool) -> Reply:
        began = await self._limiter.enter()
        ended = Ended.OTHER
        try:
            await self.circuit.check()
            try:
                reply = await self._exchange(content, shaped=shaped)
            except _RejectedError as rejected:
                await self._learn_refusal(rejected)
                raise
            except _TroubleError as trouble:
                ended = trouble.ended
                if ended is not Ended.LIMITED:
                    await self.circuit.failed(
                        self._clean(trouble.cause), began, timed_out=trouble.timed_out
                    )
                raise
            ended = Ended.ANSWERED
            await self.circuit.answered()
            return reply
        finally:
            self._limiter.leave(began, ended)

    async def _learn_refusal(self, rejected: _RejectedError) -> None:
        if rejected.kind is CallerRefused:
            cause = f"status {rejected.status}: {self._clean(rejected.message)}"
            await self.circuit.refused(
                cause, certain=rejected.status == 401 or rejected.broke
            )
        else:
            await self.circuit.answered()

    async def _exchange(self, content: bytes, *, shaped: bool) -> Reply:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._client.post(
                    "/chat/completions",
                    cast_to=httpx2.Response,
                    content=content,
                    options={"headers": self._headers},
                )
        except TimeoutError:
            raise _TroubleError(
                f"no answer within {self._timeout_s:g} s",
                Ended.OVERLOADED,
                timed_out=True,
            ) from None
        except APIConnectionError as error:
            cause = error.__cause__
            what = (
                "no connection"
                if isinstance(cause, httpx2.ConnectError)
                else "the connection broke"
            )
            raise _TroubleError(f"{what}: {cause or type(cause).__name__}") from None
        except APIStatusError as error:
            message = self._clean(_filter_message(error, shaped=shaped))
            # A filter that refuses a prompt has read it, and providers charge for that.
            latency_ms = (time.perf_counter() - started) * 1000
            return Reply(
                message,
                Finish.REFUSAL,
                usage_bound(content, "", self._price, latency_ms),
                self._model,
            )
        latency_ms = (time.perf_counter() - started) * 1000
        raw = hide_known(response.content.decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )
        try:
            return read_completion(raw, content, self._price, latency_ms)
        except NotACompletion as fault:
            page = raw.lstrip()[:1] == b"<"
            spent = (
                fault.usage
                if fault.usage and fault.usage.input_tokens + fault.usage.output_tokens
                else None
            )
            raise _TroubleError(_PAGE if page else str(fault), usage=spent) from None

    def _rejected_parameter(self, rejected: _RejectedError) -> str | None:
        """The parameter that the endpoint says the model does not take; None where it says no such thing."""
        if rejected.status not in {400, 422} or rejected.code in _NOT_THE_FORMAT:
            return None
        message = rejected.message.casefold()
        if rejected.code not in _PARAMETER_CODES and not any(
            word in message for word in _PARAMETER_WORDS
        ):
            return None
        named = rejected.named.split(".")[0]
        if named in self._parameters:
            return named
        words = set(re.findall(r"\w+", message))
        quoted = [name for name in self._parameters if name.casefold() in words]
        # The longest: "max_tokens" may be named beside the parameter that should stand in its place.
        return max(quoted, key=len) if quoted else None

    def _refused(self, rejected: _RejectedError) -> EndpointUnavailable | ConfigError:
        message = self._clean(rejected.message)
        if (parameter := self._rejected_parameter(rejected)) is not None:
            sent = f"{parameter} = {canonical_json(self._parameters[parameter])[:80]}"
            return ConfigError(
                f"{self._endpoint}: model {self._model!r} does not take the parameter {sent}: {message}",
                hint="Models that reason often know this limit as max_completion_tokens: set that one instead."
                if parameter == "max_tokens"
                else f"Take {parameter} out of the model's table in models.toml, or of --parameters.",
            )
        return rejected.kind(
            f"{self._endpoint} refuses requests for model {self._model!r}: status {rejected.status}: {message}",
            hint=self._hint(rejected),
        )

    def _hint(self, rejected: _RejectedError) -> str:
        variable = self._key_variable or "of this model"
        if rejected.broke:
            return f"The account behind the key in the variable {variable} has no credit left."
        if rejected.status in {401, 403} and not self._secret:
            return f"The variable {variable} is not set or empty, so no key was sent: set it, or name another one."
        if rejected.status in {401, 403}:
            return f"Check the key in the variable {variable}: the endpoint does not accept it."
        if rejected.status < 400:
            return "The address redirects: set the one that it leads to as base_url."
        if rejected.status != 404:
            return "Check the parameters that the model is asked with, and that the input fits its context."
        known = f"the endpoint knows no model {self._model!r}"
        if rejected.code == "model_not_found" or _VERSIONED.search(self._address.path):
            return f"T{known[1:]}: look for its id in the endpoint's list of models."
        return f"Does the address end in /v1, as most do? Else {known}."

    def _clean(self, text: str) -> str:
        """An endpoint's words on one line of at most 300 characters, without secrets, which some echo."""
        text = " ".join(hide_secrets(text[:6000])[:3000].split())
        return text if len(text) <= 300 else text[:299] + "…"


_LOOSER = {JsonMode.SCHEMA: JsonMode.OBJECT, JsonMode.OBJECT: JsonMode.NONE}


def _checked_parameters(model: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    if taken := _OURS & parameters.keys():
        raise ConfigError(
            f"The parameters of model {model!r} may not set {', '.join(sorted(taken))}"
        )
    try:
        canonical_json(parameters)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"The parameters of model {model!r} cannot be written as JSON: {error}"
        ) from error
    return dict(parameters)


def _checked_address(model: str, base_url: str) -> SplitResult:
    """The address that requests' paths are added to."""
    try:
        address = urlsplit(base_url)
        host, _ = address.hostname, address.port
    except ValueError:
        host = None
    if (
        not host
        or address.scheme not in {"http", "https"}
        or "@" in address.netloc
        or address.fragment
    ):
        raise ConfigError(
            f"The base_url of model {model!r} must be an http(s) address without user, password or fragment",
            hint="Write it like https://host/v1; a key is named by its variable.",
        )
    return address._replace(path=address.path.rstrip("/"))


def _request_headers(path: str, secret: str, access: Access) -> dict[str, str | Omit]:
    """The headers of every request, besides those of OpenAI's client."""
    headers: dict[str, str | Omit] = {"Content-Type": "application/json"}
    key_header = access.key_header or ("api-key" if _AZURE_DEPLOYMENT in path else None)
    if key_header or not secret:
        headers["Authorization"] = Omit()
    headers |= access.headers
    if key_header and secret:
        headers[key_header] = secret
    return headers


def _filter_message(error: APIStatusError, *, shaped: bool) -> str:
    """What the endpoint's content filter says in an error; raises what any other error means.

    `shaped`: the request held a response_format, and an error that speaks of it is a refusal, not an outage.
    """
    status = error.status_code
    text, codes, param = read_error(error.response.content)
    if status in {400, 403} and not _FILTERED.isdisjoint(codes):
        return text
    words = f"{param} {text}".casefold()
    if shaped and status != 429 and any(word in words for word in _FORMAT_WORDS):
        raise _RejectedError(status, next(iter(codes), ""), text, param, of_format=True)
    broke = not _NO_MONEY.isdisjoint(codes) or any(
        words in text.casefold() for words in _NO_MONEY_WORDS
    )
    if (status in _RETRIED or status >= 500) and not broke:
        ended = (
            Ended.LIMITED
            if status == 429
            else Ended.OVERLOADED
            if status in _OVERLOADED
            else Ended.OTHER
        )
        raise _TroubleError(
            f"status {status}: {text}",
            ended,
            parse_retry_after(error.response.headers.get("retry-after", "")),
        )
    raise _RejectedError(
        status, "insufficient_quota" if broke else next(iter(codes), ""), text, param
    )
