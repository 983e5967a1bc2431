"""Asks any OpenAI-compatible endpoint, hosted or local, with OpenAI's client over the guarded transport.

Endpoints that call themselves compatible differ and may send anything: bodies are read raw and up to a limit, then
checked field by field (`wire`), and an endpoint that answers rubbish with status 200 is asked again. docs/endpoints.md
and tests/unit/llm/test_dialects.py list how endpoints differ.
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
from openai import APIConnectionError, APIStatusError, AsyncOpenAI, Omit

from medlive.errors import CallerRefused, ConfigError, EndpointUnavailable
from medlive.guard.bounds import ENDPOINT_BODY_BYTES, ENDPOINT_WAIT_S
from medlive.guard.http import reply_client
from medlive.guard.redaction import hide_known, hide_secrets, remember
from medlive.integrity.digest import canonical_json

from .budget import BudgetSpent, pay_again
from .engine import (
    RULES_MODEL,
    EngineIdentity,
    Finish,
    Reply,
    Request,
    Usage,
    endpoint_engine,
)
from .limiter import Limiters
from .prompts import render
from .registry import KEY_VARIABLE, JsonMode, Price, RoleEndpoint
from .wire import (
    JSON_MODES,
    Ended,
    Refusal,
    Trouble,
    chat_body,
    encoded,
    priced,
    read_completion,
    read_error,
    response_format,
    usage_bound,
)

MAX_BACKOFF_S = 8.0
BYTES_A_TOKEN = 3
"""For estimates, on the safe side: English has about 4.5 bytes a token, Chinese from 2.5 to 4."""
# Tokens a reply is reserved for where the model's parameters set no limit
ASSUMED_OUTPUT = 4096
MOST_SPARED = 50
"""How often a call is turned away with 429, while others are served, before that counts as an attempt."""

# Fields of a request that a model's parameters may not set
_OURS = frozenset(
    {"model", "messages", "response_format", "stream", "stream_options", "n"}
)
_AZURE_DEPLOYMENT = "/openai/deployments/"
_NO_USAGE = Usage(cost_usd=0.0)


class OpenAIEngine:
    """An Engine at an OpenAI-compatible endpoint. Its key is in no repr, error or log."""

    def __init__(
        self,
        endpoint: RoleEndpoint,
        api_key: str = "",
        *,
        price: Price | None = None,
        backoff_s: float = 0.5,
        limiters: Limiters | None = None,
        pinned: bool = True,
    ) -> None:
        """Raises ConfigError for an invalid URL, parameter or key.

        Args:
            endpoint: Where the model is, and how it is asked: an endpoint that refuses its `json_mode` is asked the
                looser way from then on.
            api_key: Its key, "" for none.
            price: What the model costs; None: unknown.
            backoff_s: Seconds before the second attempt; they double.
            limiters: Shared by engines: one limit at an endpoint, one circuit for a model there. None for its own.
            pinned: Whether replies must name the model.
        """
        model, base_url = endpoint.model, endpoint.base_url
        if model is None or base_url is None:
            raise ConfigError('engine "openai" needs base_url and model')
        self._parameters = _checked_parameters(model, endpoint.parameters)
        self._secret = api_key.strip()
        if not (self._secret.isascii() and self._secret.isprintable()):
            raise ConfigError(
                f"The key of model {model!r} holds characters that no key has"
            )
        remember(self._secret)
        address = _checked_address(model, base_url)
        host = address.hostname or ""
        self._endpoint = f"{host}:{address.port}" if address.port else host
        self._client = AsyncOpenAI(
            api_key=self._secret or "none",
            base_url=address._replace(query="").geturl(),
            default_query={**dict(parse_qsl(address.query)), **endpoint.query},
            max_retries=0,
            http_client=reply_client(
                ENDPOINT_BODY_BYTES, proxy=_proxy_of(host, address.scheme)
            ),
        )
        # From variables that only OpenAI's client reads: they would go to every endpoint.
        self._client.organization = self._client.project = None
        self._client._custom_headers = {}
        key_header = endpoint.key_header
        if key_header is None and _AZURE_DEPLOYMENT in address.path:
            key_header = "api-key"
        self._headers = _sent_headers(self._secret, key_header, endpoint.headers)
        self._model = model
        self.price = price
        """What the model costs; None: unknown."""
        self.identity = EngineIdentity(
            endpoint_engine(model),
            model,
            self._parameters,
            # The rules engine's reply names its version.
            pinned=pinned and model != RULES_MODEL,
        )
        """The model and parameters; the rules engine behind HTTP still counts as the rules engine."""
        self._settings, self._backoff_s = endpoint, backoff_s
        self.json_mode: JsonMode = endpoint.json_mode
        """How JSON is asked for now; looser than configured once the endpoint refused the stricter way."""
        limiters = limiters or Limiters()
        self._limiter = limiters.limiter(base_url, self._secret, endpoint.concurrency)
        self.circuit = limiters.circuit(base_url, self._secret, model)
        """Closed as long as the endpoint answers."""

    async def answer(self, request: Request) -> Reply:
        """Reply to a typed request, with a looser JSON mode where the stricter is refused; raises as Engine."""
        modes = JSON_MODES[JSON_MODES.index(self.json_mode) :]
        first: Refusal | None = None
        for mode in modes:
            try:
                content = encoded(self.body(request, mode))
                reply = await self._ask(content, shaped=mode != "none")
            except Refusal as refusal:
                # The error reports the first refusal that is not about the format, else the last
                if first is None or first.of_format:
                    first = refusal
                if (
                    mode == modes[-1]
                    or not refusal.may_be_of_format
                    or refusal.find_parameter(self._parameters)
                ):
                    break
                # The next mode is another request for the budget
                await pay_again(None)
            else:
                if first is not None:
                    self.json_mode = mode
                return reply
        assert first is not None
        raise self._refused(first) from None

    def body(
        self,
        request: Request,
        mode: JsonMode | None = None,
    ) -> dict[str, Any]:
        """The body that `answer` sends, in `mode` or else the current `json_mode`; public for other ways of sending."""
        shape = response_format(mode or self.json_mode, request)
        return chat_body(self._model, render(request), self._parameters, shape)

    def estimate(self, request: Request) -> Usage:
        """What a call may take at most: tokens from its bytes, and the longest reply that is allowed."""
        return self.estimate_chat(render(request))

    def estimate_chat(self, messages: Sequence[Mapping[str, str]]) -> Usage:
        """`estimate` for plain chat messages."""
        text = "".join(message["content"] for message in messages)
        asked = -(-len(text.encode("utf-8", "replace")) // BYTES_A_TOKEN)
        most = ASSUMED_OUTPUT
        for name in ("max_tokens", "max_completion_tokens"):
            limit = self._parameters.get(name)
            if isinstance(limit, int) and limit > 0:
                most = limit
        return priced(Usage(asked, 0, most), self.price)

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> Reply:
        """The endpoint's plain reply to chat messages, for models under evaluation; raises as `answer` does."""
        body = chat_body(self._model, messages, self._parameters)
        try:
            return await self._ask(encoded(body))
        except Refusal as refusal:
            raise self._refused(refusal) from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(self, content: bytes, *, shaped: bool = False) -> Reply:
        """The reply to a body, after retries; `shaped` where it holds a response_format."""
        # `spared` counts retries that are no attempts; `lost` is the usage of failed attempts.
        attempt, spared, lost = 1, 0, _NO_USAGE
        while True:
            served = self._limiter.answered
            try:
                reply = await self._attempt(content, shaped=shaped)
                return replace(reply, usage=lost + reply.usage, last_usage=reply.usage)
            except Trouble as exc:
                trouble = exc
            lost += trouble.usage or _NO_USAGE
            wait = trouble.retry_after
            if (wait or 0.0) > ENDPOINT_WAIT_S:
                trouble.cause += f"; asks to wait {wait:.0f} s"
                raise self._unavailable(trouble, attempt)
            # A call turned away while others were served only waits in line; the limiter has lowered its limit.
            is_in_line = (
                trouble.ended == "limited"
                and self._limiter.answered > served
                and spared < MOST_SPARED
            )
            if not is_in_line and attempt > self._settings.max_retries:
                raise self._unavailable(trouble, attempt)
            if wait is None:
                doubled = self._backoff_s * 2.0 ** (0 if is_in_line else attempt - 1)
                wait = min(doubled, MAX_BACKOFF_S) * random.uniform(0.75, 1.0)
            else:
                # The rate limit is the key's, not the call's: nobody else asks before it is over either.
                self._limiter.pause(wait)
            await asyncio.sleep(wait)
            if is_in_line:
                spared += 1
                continue
            try:
                await pay_again(trouble.usage)
            except BudgetSpent:
                raise self._unavailable(trouble, attempt) from None
            attempt += 1

    def _unavailable(self, trouble: Trouble, attempts: int) -> EndpointUnavailable:
        error = EndpointUnavailable(
            f"{self._endpoint} gave no answer for model {self._model!r} in {attempts} attempts: "
            f"{_clean(trouble.cause)}",
            hint="Check the address, which mostly ends in /v1; what failed is tried again with the next run.",
        )
        error.usage = trouble.usage
        return error

    async def _attempt(self, content: bytes, *, shaped: bool) -> Reply:
        """One attempt, when the limiter gives it a turn; limiter and circuit learn how it ended."""
        began = await self._limiter.enter()
        ended: Ended = "other"
        try:
            await self.circuit.check()
            reply = await self._exchange(content, shaped=shaped)
            ended = "answered"
            await self.circuit.answered()
            return reply
        except Refusal as refusal:
            if refusal.kind is CallerRefused:
                cause = f"status {refusal.status}: {_clean(refusal.message)}"
                certain = refusal.status == 401 or refusal.is_broke
                await self.circuit.refused(cause, certain=certain)
            else:
                await self.circuit.answered()
            raise
        except Trouble as trouble:
            ended = trouble.ended
            if ended != "limited":
                await self.circuit.failed(
                    _clean(trouble.cause), began, timed_out=trouble.timed_out
                )
            raise
        finally:
            self._limiter.leave(began, ended)

    async def _exchange(self, content: bytes, *, shaped: bool) -> Reply:
        """Send a body and read the answer; a content filter's refusal is a Reply.

        Raises Refusal (asking the same again is useless) or Trouble (it may help).
        """
        started, limit_s = time.perf_counter(), self._settings.timeout_s
        try:
            async with asyncio.timeout(limit_s):
                response = await self._client.post(
                    "/chat/completions",
                    cast_to=httpx2.Response,
                    content=content,
                    options={"headers": self._headers},
                )
        except TimeoutError:
            cause = f"no answer within {limit_s:g} s"
            raise Trouble(cause, "overloaded", timed_out=True) from None
        except APIConnectionError as error:
            broken = error.__cause__
            connected = not isinstance(broken, httpx2.ConnectError)
            what = "the connection broke" if connected else "no connection"
            raise Trouble(f"{what}: {broken or type(broken).__name__}") from None
        except APIStatusError as error:
            problem = read_error(error, shaped=shaped)
            if isinstance(problem, Trouble) or not problem.is_by_filter:
                raise problem from None
            usage = self._priced(usage_bound(content, ""), started)
            return Reply(_clean(problem.message), Finish.REFUSAL, usage, self._model)
        text = hide_known(response.content.decode("utf-8", "surrogateescape"))
        raw = text.encode("utf-8", "surrogateescape")
        try:
            reply = read_completion(raw, content)
        except Trouble as trouble:
            trouble.usage = trouble.usage and self._priced(trouble.usage, started)
            raise
        return replace(reply, usage=self._priced(reply.usage, started))

    def _priced(self, usage: Usage, started: float) -> Usage:
        latency_ms = (time.perf_counter() - started) * 1000
        return priced(usage, self.price, latency_ms)

    def _refused(self, refusal: Refusal) -> EndpointUnavailable | ConfigError:
        message = _clean(refusal.message)
        if (parameter := refusal.find_parameter(self._parameters)) is not None:
            sent = f"{parameter} = {canonical_json(self._parameters[parameter])[:80]}"
            return ConfigError(
                f"{self._endpoint}: model {self._model!r} does not take the parameter {sent}: {message}",
                hint=f"Take {parameter} out of the model's parameters, or use max_completion_tokens for max_tokens.",
            )
        return refusal.kind(
            f"{self._endpoint} refuses requests for model {self._model!r}: status {refusal.status}: {message}",
            hint=self._hint(refusal),
        )

    def _hint(self, refusal: Refusal) -> str:
        if refusal.is_broke or refusal.status in {401, 403}:
            variable = self._settings.api_key_env or KEY_VARIABLE
            return f"Check that the variable {variable} is set, and its key's rights and credit."
        if refusal.status in {400, 413, 422}:
            return "Check the parameters that the model is asked with, and that the input fits its context."
        return "Check the model's id, and the address, which mostly ends in /v1."


def _clean(text: str) -> str:
    """An endpoint's words on one line of at most 300 characters, without secrets, which some echo."""
    text = " ".join(hide_secrets(text[:6000])[:3000].split())
    return text if len(text) <= 300 else text[:299] + "…"


def _sent_headers(
    secret: str, key_header: str | None, own: Mapping[str, str]
) -> dict[str, str | Omit]:
    """The headers of every request, `own` ones included: the key under `key_header`, else where the client puts it."""
    headers: dict[str, str | Omit] = {"Content-Type": "application/json"}
    if key_header or not secret:
        headers["Authorization"] = Omit()
    headers |= own
    if key_header and secret:
        headers[key_header] = secret
    return headers


def _proxy_of(host: str, scheme: str) -> str | None:
    """The environment's proxy for a host; None for none."""
    proxies = {} if proxy_bypass(host) else getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if proxy and not proxy.startswith(("http://", "https://")):
        raise ConfigError(
            f"The environment's proxy for {host} is not an http(s) address",
            hint="Set http_proxy and https_proxy, or name the host in no_proxy.",
        )
    return proxy


def _checked_parameters(
    model: str,
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
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
        host, _ = httpx2.URL(base_url).host, address.port
    except (ValueError, httpx2.InvalidURL):
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
