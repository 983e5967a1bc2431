"""Asks any OpenAI-compatible endpoint as the official client asks, over one aiohttp session (see `transport`).

The client's own retries are off: an endpoint that answers rubbish with status 200 must be asked again too, and
one place counts the attempts. Bodies are read raw and up to a limit, then checked field by field, because an
endpoint that calls itself compatible may send anything.
"""

import asyncio
import math
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from openai import APIStatusError
from pydantic import SecretStr

from medlive.clock import now
from medlive.digest import canonical_json
from medlive.errors import CallerRefused, ConfigError, EndpointUnavailable, RequestRefused
from medlive.llm.engine import EngineIdentity, Finish, Reply, Request, Usage
from medlive.llm.fence import render
from medlive.llm.limiter import Ended, EndpointState, Limiter, Turns
from medlive.llm.transport import TooLongError, Transport
from medlive.llm.wire import (
    Frame,
    JsonMode,
    NotACompletion,
    Price,
    chat_body,
    completion,
    count,
    encoded,
    read_completion,
    response_format,
)

__all__ = ["JsonMode", "OpenAIEngine", "Price"]

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""An answer longer than this is rubbish: no task's reply comes near it."""
PATIENCE_S: Final = 120.0
"""The longest Retry-After that is waited for; past it the endpoint counts as unavailable."""
MAX_BACKOFF_S: Final = 8.0
RULES_MODEL: Final = "rules"
"""Model ids that start so are the rules engine behind HTTP; what it makes is labelled as the rules engine's."""

_OURS: Final = frozenset({"model", "messages", "response_format", "stream", "stream_options", "n"})
_NOT_THE_FORMAT: Final = frozenset({"context_length_exceeded", "model_not_found", "invalid_api_key"})
_PARAMETER_CODES: Final = frozenset({"unsupported_parameter", "unsupported_value", "unknown_parameter"})
_PARAMETER_WORDS: Final = (
    "unsupported",
    "not support",
    "unrecognized",
    "unknown param",
    "unexpected",
    "not permitted",
)
"""How endpoints without such a code put it, in lower case."""
_THE_CALLERS: Final = _NOT_THE_FORMAT - {"context_length_exceeded"}
_FILTERED: Final = frozenset({"content_filter", "content_policy_violation"})
_LEAST_SECRET: Final = 8
"""Characters from which on a key is one, and taken out of messages."""
_NO_MONEY: Final = "insufficient_quota"
_OUT_OF_MONEY: Final = frozenset({_NO_MONEY, "billing_hard_limit_reached"})
_NO_MONEY_WORDS: Final = (_NO_MONEY, "insufficient balance", "余额不足")
"""How endpoints without such a code put it, in lower case. A quota that is "exceeded" may be that of a minute."""
_VERSIONED: Final = re.compile(r"/v\d+[a-z0-9]*(?:/openai)?$")
"""How the addresses of such endpoints end."""
_PAGE: Final = "a web page came, no JSON"
_OVERLOADED: Final = frozenset({503, 504, 529})
BYTES_A_TOKEN: Final = 3
"""For estimates, on the safe side: English has about 4.5 bytes a token, Chinese from 2.5 to 4."""
ASSUMED_OUTPUT: Final = 4096
"""Tokens a reply is reserved for where the model's parameters set no limit."""
MOST_SPARED: Final = 50
"""How often a call is turned away with 429, while others are served, before that counts as an attempt."""


class _TroubleError(Exception):
    """An attempt failed in a way that another attempt may mend."""

    def __init__(
        self, cause: str, ended: Ended = Ended.OTHER, retry_after: float | None = None, usage: Usage | None = None
    ) -> None:
        """`usage` is what a body without a usable reply took; None: unknown, or nothing."""
        super().__init__(cause)
        self.usage = usage
        self.cause = cause
        self.ended = ended
        self.retry_after = retry_after


class _RejectedError(Exception):
    """The endpoint refused the request itself: the same request would be refused again."""

    def __init__(self, status: int, code: str, message: str, named: str = "") -> None:
        """`named` is the part of the request that the endpoint names, "" where it names none."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.named = named


class OpenAIEngine:
    """An Engine at an OpenAI-compatible endpoint. Its key is in no repr, error or log."""

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: SecretStr | str = "",
        parameters: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = 120.0,
        max_retries: int = 4,
        concurrency: int = 16,
        json_mode: JsonMode | str = JsonMode.SCHEMA,
        price: Price | None = None,
        key_variable: str | None = None,
        backoff_s: float = 0.5,
        limiter: Limiter | None = None,
    ) -> None:
        """`base_url` ends before `/chat/completions`; `parameters` are sent as they are (temperature, …).

        `timeout_s` bounds one whole attempt; `max_retries` counts the attempts after the first; `concurrency`
        is how many attempts are under way at most; `limiter` is shared by engines at one endpoint (None: one of
        its own); `json_mode` is where to start, an endpoint that refuses it is asked the looser way from then
        on; `key_variable` is the environment variable's name, for hints.
        Raises ConfigError for a URL, a parameter or a limit that cannot be.
        """
        endpoint = _host(base_url)
        if endpoint is None:
            raise ConfigError(
                f"The base_url of model {model!r} is no http(s) address without user and password",
                hint="Write it like https://host/v1; a key is named by its variable.",
            )
        if urlsplit(base_url).query or urlsplit(base_url).fragment:
            raise ConfigError(
                f"The base_url of model {model!r} has words after ? or #, and no call would come where it should",
                hint="Write it like https://host/v1; a key is named by its variable, all else is a parameter.",
            )
        self._parameters = dict(parameters or {})
        if taken := _OURS & self._parameters.keys():
            raise ConfigError(f"The parameters of model {model!r} may not set {', '.join(sorted(taken))}")
        try:
            canonical_json(self._parameters)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"The parameters of model {model!r} are no JSON: {error}") from error
        if timeout_s <= 0 or max_retries < 0 or concurrency < 1 or backoff_s < 0:
            raise ConfigError(f"The limits of model {model!r} must be positive")
        self._model = model
        self._secret = (api_key.get_secret_value() if isinstance(api_key, SecretStr) else api_key).strip()
        if not (self._secret.isascii() and self._secret.isprintable()):
            raise ConfigError(f"The key of model {model!r} holds characters that no key has")
        self._endpoint = endpoint
        self._versioned = _VERSIONED.search(urlsplit(base_url).path.rstrip("/")) is not None
        self._timeout_s = timeout_s
        self._late = f"no answer within {timeout_s:g} s"
        self._max_retries = max_retries
        self._mode = JsonMode(json_mode)
        self._price = price
        self._key_variable = key_variable
        self._backoff_s = backoff_s
        self._limiter = limiter or Limiter(endpoint, concurrency)
        self._turns = Turns()
        self._frames: dict[tuple[str, JsonMode], Frame] = {}
        self._transport = Transport(base_url, self._secret or "none")

    def __repr__(self) -> str:
        return f"OpenAIEngine(model={self._model!r}, endpoint={self._endpoint!r})"

    @property
    def identity(self) -> EngineIdentity:
        """The configured model and parameters; the rules engine behind HTTP still counts as the rules engine."""
        rules = self._model == RULES_MODEL or self._model.startswith(RULES_MODEL + "-")
        return EngineIdentity("rules" if rules else "openai", self._model, self._parameters)

    @property
    def price(self) -> Price | None:
        """What the model costs; None: unknown."""
        return self._price

    @property
    def json_mode(self) -> JsonMode:
        """How JSON is asked for now; looser than configured once the endpoint refused the stricter way."""
        return self._mode

    @property
    def endpoint_state(self) -> EndpointState:
        """What was learnt of the endpoint, by all engines that share its limiter."""
        return self._limiter.state()

    async def answer(self, request: Request) -> Reply:
        """The endpoint's reply to a typed request; see Engine for what it raises."""
        mode = self._mode
        first: _RejectedError | None = None
        while True:
            try:
                reply = await self._ask(self._content(mode, request), request.task)
            except _RejectedError as rejected:
                first = first or rejected
                looser = None if self._rejected_parameter(rejected) else _looser(mode)
                if looser is None or rejected.status not in {400, 415, 422} or rejected.code in _NOT_THE_FORMAT:
                    raise self._refused(first) from None
                mode = looser
                continue
            if mode is not self._mode and first is not None:
                self._mode = mode
            return reply

    def body(self, request: Request) -> dict[str, Any]:
        """The body that `answer` sends first, for whoever sends it another way."""
        return chat_body(self._model, render(request), self._parameters, response_format(self._mode, request))

    def read(self, body: object) -> Reply:
        """The reply in a chat completion that came another way. Raises NotACompletion."""
        return completion(body, self._price)

    def estimate(self, request: Request) -> Usage:
        """What a call may take at most: tokens from its bytes, and the longest reply that is allowed."""
        return self.estimate_chat(render(request))

    def estimate_chat(self, messages: Sequence[Mapping[str, str]]) -> Usage:
        """The same for plain messages."""
        sent = sum(len(message["content"].encode("utf-8", "replace")) for message in messages)
        limits = (self._parameters.get(name) for name in ("max_completion_tokens", "max_tokens"))
        most = next((limit for limit in map(count, limits) if limit), ASSUMED_OUTPUT)
        asked = -(-sent // BYTES_A_TOKEN)
        return Usage(asked, 0, most, self._price.cost(asked, 0, most) if self._price else None)

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> Reply:
        """The endpoint's plain reply to chat messages, for models under evaluation; raises as `answer` does."""
        try:
            return await self._ask(encoded(chat_body(self._model, messages, self._parameters)), "chat")
        except _RejectedError as rejected:
            raise self._refused(rejected) from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    def _content(self, mode: JsonMode, request: Request) -> bytes:
        """A request's body as it is sent; what the first requests of a task share is written once."""
        frame = self._frames.get((request.task, mode))
        if frame is None or not frame.fits(request):
            shape = response_format(mode, request)
            if request.repair:
                return encoded(chat_body(self._model, render(request), self._parameters, shape))
            frame = self._frames[request.task, mode] = Frame(self._model, request, self._parameters, shape)
        return frame.around(request)

    async def _ask(self, content: bytes, task: str) -> Reply:
        attempt, spared = 1, 0
        lost: Usage | None = None
        while True:
            served = self._limiter.answered
            try:
                reply = await self._attempt(content, task)
                await self._turns.next()
                if attempt == 1:
                    return reply
                return replace(reply, attempts=attempt, usage=lost + reply.usage if lost else reply.usage)
            except _TroubleError as trouble:
                cause, wait, ended = trouble.cause, trouble.retry_after, trouble.ended
                if trouble.usage:
                    lost = lost + trouble.usage if lost else trouble.usage
            if wait is not None and wait > PATIENCE_S:
                cause = f"{cause}; asks to wait {wait:.0f} s"
                break
            # Turned away while others were served is waiting in line: the limit was lowered for it.
            in_line = ended is Ended.LIMITED and self._limiter.answered > served and spared < MOST_SPARED
            if not in_line and attempt > self._max_retries:
                break
            if wait is None:
                wait = min(self._backoff_s * 2.0 ** (0 if in_line else attempt - 1), MAX_BACKOFF_S)
                wait *= random.uniform(0.75, 1.0)
            else:
                # The rate limit is the key's, not the call's: nobody else asks before it is over either.
                self._limiter.pause(wait)
            spared, attempt = (spared + 1, attempt) if in_line else (spared, attempt + 1)
            await asyncio.sleep(wait)
        error = EndpointUnavailable(
            f"{self._endpoint} gave no answer for model {self._model!r} in {attempt} "
            f"attempt{'s' if attempt > 1 else ''}: {self._clean(cause)}",
            hint=(
                "Does the address end in /v1, as most do? This one is a web site's, or a proxy stands before it."
                if cause == _PAGE
                else "Check that the endpoint is up and reachable; what failed is tried again with the next run."
            ),
        )
        error.attempts, error.usage = attempt, lost
        raise error

    async def _attempt(self, content: bytes, task: str) -> Reply:
        began = await self._limiter.enter()
        ended = Ended.OTHER
        try:
            reply = await self._exchange(content)
            ended = Ended.ANSWERED
            return reply
        except _TroubleError as trouble:
            ended = trouble.ended
            raise
        finally:
            self._limiter.leave(task, began, ended)

    async def _exchange(self, content: bytes) -> Reply:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                raw = await self._transport.post(content, MAX_BODY_BYTES)
        except TimeoutError:
            raise _TroubleError(self._late, Ended.OVERLOADED) from None
        except APIStatusError as error:
            filtered = self._status(error)
            return Reply(filtered, Finish.REFUSAL, Usage(latency_ms=_since(started)), self._model)
        except TooLongError as error:
            raise _TroubleError(str(error)) from None
        except aiohttp.ClientConnectorError as error:
            raise _TroubleError(f"no connection: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _TroubleError(f"the connection broke: {error or type(error).__name__}") from None
        try:
            return read_completion(raw, self._price, _since(started))
        except NotACompletion as fault:
            page = raw.lstrip()[:1] == b"<"
            spent = fault.usage if fault.usage and fault.usage.input_tokens + fault.usage.output_tokens else None
            raise _TroubleError(_PAGE if page else str(fault), usage=spent) from None

    def _status(self, error: APIStatusError) -> str:
        """What the endpoint's filter said, or raises what the status means."""
        status = error.status_code
        message = error.body.get("message") if isinstance(error.body, dict) else None
        text = str(message or error.message)
        code = _code(error, text)
        if status == 400 and code in _FILTERED:
            return self._clean(text)
        retried = status in {408, 409, 425, 429} or status >= 500
        if retried and code not in _OUT_OF_MONEY:
            ended = Ended.LIMITED if status == 429 else Ended.OVERLOADED if status in _OVERLOADED else Ended.OTHER
            raise _TroubleError(f"status {status}: {text}", ended, _retry_after(error.response.headers)) from None
        raise _RejectedError(status, code, text, error.param if isinstance(error.param, str) else "") from None

    def _rejected_parameter(self, rejected: _RejectedError) -> str | None:
        """The parameter that the endpoint says the model does not take; None where it says no such thing."""
        if rejected.status not in {400, 422} or rejected.code in _NOT_THE_FORMAT:
            return None
        said = rejected.message.casefold()
        if rejected.code not in _PARAMETER_CODES and not any(word in said for word in _PARAMETER_WORDS):
            return None
        named = rejected.named.split(".")[0]
        if named in self._parameters:
            return named
        words = set(re.findall(r"\w+", said))
        quoted = [name for name in self._parameters if name.casefold() in words]
        # The longest: "max_tokens" may be named beside the parameter that should stand in its place.
        return max(quoted, key=len) if quoted else None

    def _refused(self, rejected: _RejectedError) -> EndpointUnavailable | ConfigError:
        if (parameter := self._rejected_parameter(rejected)) is not None:
            return ConfigError(
                f"{self._endpoint}: model {self._model!r} does not take the parameter {parameter} = "
                f"{canonical_json(self._parameters[parameter])[:80]}: {self._clean(rejected.message)}",
                hint=_parameter_hint(parameter),
            )
        variable = self._key_variable or "of this model"
        if rejected.code in _OUT_OF_MONEY:
            hint = f"The account behind the key in the variable {variable} has no credit left."
        elif rejected.status in {401, 403} and not self._secret:
            hint = f"The variable {variable} is not set or empty, so no key was sent: set it, or name another one."
        elif rejected.status in {401, 403}:
            hint = f"Check the key in the variable {variable}: the endpoint does not accept it."
        elif rejected.status == 404 and rejected.code != "model_not_found" and not self._versioned:
            hint = f"Does the address end in /v1, as most do? Else the endpoint knows no model {self._model!r}."
        elif rejected.status == 404:
            hint = (
                f"The endpoint knows no model {self._model!r}: look for its id in the endpoint's list of models."
            )
        else:
            hint = "Check the parameters that the model is asked with, and that the input fits its context."
        # About this request's content or length, where it is not about the key, the model or the account.
        alone = rejected.status in {400, 413, 422} and rejected.code not in _OUT_OF_MONEY | _THE_CALLERS
        caller = rejected.status in {401, 403, 404} or rejected.code in _OUT_OF_MONEY
        kind = RequestRefused if alone else CallerRefused if caller else EndpointUnavailable
        return kind(
            f"{self._endpoint} refuses requests for model {self._model!r}: "
            f"status {rejected.status}: {self._clean(rejected.message)}",
            hint=hint,
        )

    def _clean(self, text: str) -> str:
        """An endpoint's words on one line of at most 300 characters, without the key, which some echo."""
        # A local endpoint's key may be a letter, which is no secret and stands in every word.
        if len(self._secret) >= _LEAST_SECRET:
            text = text.replace(self._secret, "***")
        text = " ".join(text[:3000].split())
        return text if len(text) <= 300 else text[:299] + "…"


def _code(error: APIStatusError, text: str) -> str:
    """The endpoint's word for what is wrong; "" where it has none."""
    said = [word for word in (error.code, error.type) if isinstance(word, str) and word]
    broke = error.status_code == 402 or any(words in text.casefold() for words in _NO_MONEY_WORDS)
    if broke or not _OUT_OF_MONEY.isdisjoint(said):
        return _NO_MONEY
    return said[0] if said else ""


def _parameter_hint(parameter: str) -> str:
    if parameter == "max_tokens":
        return "Models that reason often know this limit as max_completion_tokens: set that one instead."
    return f"Take {parameter} out of the model's table in models.toml, or of --parameters."


def _host(base_url: str) -> str | None:
    """Host and port of an http(s) address; None where it is none, or holds a user or a password."""
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        return None
    return parts.hostname + (f":{port}" if port else "")


def _looser(mode: JsonMode) -> JsonMode | None:
    return {JsonMode.SCHEMA: JsonMode.OBJECT, JsonMode.OBJECT: JsonMode.NONE}.get(mode)


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or a date; None where it says nothing usable."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = (moment - now()).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
