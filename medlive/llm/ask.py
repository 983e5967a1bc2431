"""The way to ask a model: a typed request, a check of its reply, repairs, the pinned model, health and a budget.

Whoever needs a model's judgement makes a `Request`, says how a reply is read, and gets an `Asked`: the value or
the reason there is none, with every attempt. A reply that cannot be used is returned to the model with its fault;
a refusal and a reply that was cut are not, since the same question would meet the same end. A reply by another
model than the pinned one is asked for anew.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from medlive.errors import (
    CallerRefused,
    CircuitOpen,
    ConfigError,
    EndpointUnavailable,
    MedliveError,
    RequestRefused,
    first_fault,
)
from medlive.guard.circuit import circuit_of

from .budget import Budget, BudgetSpent
from .engine import (
    UNNAMED,
    Engine,
    Finish,
    Prompt,
    Reply,
    Request,
    Usage,
)
from .prompts import prompt_beside
from .reading import NoObject, is_refusal, read_object
from .wire import strict_schema

T = TypeVar("T")
R = TypeVar("R", bound=BaseModel)

Loose = Annotated[T, Field(strict=False)]
"""For enumerations: a reply's JSON gives them by their value, which strict validation refuses."""
# Tuples of at most so many items, which JSON gives as lists
AtMost6 = Annotated[tuple[T, ...], Field(max_length=6, strict=False)]
AtMost10 = Annotated[tuple[T, ...], Field(max_length=10, strict=False)]
AtMost20 = Annotated[tuple[T, ...], Field(max_length=20, strict=False)]
AtMost40 = Annotated[tuple[T, ...], Field(max_length=40, strict=False)]
AtMost60 = Annotated[tuple[T, ...], Field(max_length=60, strict=False)]
AtMost120 = Annotated[tuple[T, ...], Field(max_length=120, strict=False)]

Complete = Callable[[Sequence[Mapping[str, str]]], Awaitable[Reply]]
"""Asks a model under evaluation: chat messages to a reply; raises EndpointUnavailable when none could be had."""

# Characters of a reply that are kept in a log, and returned with its fault
MOST_RAW = 20_000
PATIENCE = 20
"""The endpoint is dead after this many failures in a row, or twice the concurrency if that is more."""
STRANGERS = 8
"""After this many replies by other models and none by the pinned one, the configuration is wrong."""
UNREADABLE = 12
"""After this many replies of which none could be read, the model cannot do the task: no more are paid for."""


class ReplyModel(BaseModel):
    """Base of every reply: no extra keys, no silent conversions, frozen."""

    task: ClassVar[str] = ""  # The task that it answers; "" for a part of a reply
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class EachItem(ReplyModel):
    """One item of a reply that has an item for each input: `each` names their list, `most` limits its length."""

    each: ClassVar[str] = "verdicts"
    most: ClassVar[int] = 40
    id: str


@cache
def each_reply(item: type[EachItem]) -> type[ReplyModel]:
    """The reply type whose only field is a list of `item`."""
    items: Any = tuple[item, ...]  # type: ignore[valid-type]
    items = Annotated[items, Field(max_length=item.most, strict=False)]
    fields: Any = {item.each: (items, ...)}
    reply = create_model(
        "EachReply", __base__=ReplyModel, __module__=item.__module__, **fields
    )
    reply.task = item.task
    return reply


class CallOutcome(StrEnum):
    """How one call to an engine ended."""

    OK = "ok"
    INVALID = "invalid"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    UNAVAILABLE = "unavailable"
    OVER_BUDGET = "over_budget"


@dataclass(eq=False)
class Unusable(Exception):
    """A call brought nothing that can be used."""

    problem: str  # Why, for the repair and the record
    outcome: CallOutcome = CallOutcome.INVALID
    rest: Request | None = None  # What is still to be asked; None: the whole request
    partial: bool = False  # Whether a part of the reply could be used
    # Whether another model answered than the pinned one
    by_another_model: bool = False

    def __str__(self) -> str:
        return self.problem


class Attempt(NamedTuple):
    """One call: its request, its reply where one came, and its fault where it is not usable."""

    request: Request
    reply: Reply | None
    fault: Unusable | None


@dataclass
class Asked(Generic[T]):
    """The result of a request: a value or a fault, and every attempt."""

    value: T | None = None  # None: there is a `fault`
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def replies(self) -> list[Reply]:
        """Every reply, whether it could be used or not."""
        return [reply for _, reply, _ in self.attempts if reply is not None]

    @property
    def last(self) -> Reply | None:
        """The last reply; None where none came."""
        return next(reversed(self.replies), None)

    @property
    def fault(self) -> Unusable | None:
        """Why there is no value; a budget that ended before a repair leaves the fault that was to be repaired."""
        last = None
        for _, _, fault in self.attempts:
            if fault and fault.outcome is not CallOutcome.OVER_BUDGET:
                last = fault
        return last if self.value is None else None

    @property
    def reason(self) -> str:
        """`fault` as it stands in a log; "" where there is a value."""
        if self.fault is None:
            return ""
        if self.fault.outcome is CallOutcome.UNAVAILABLE:
            return f"endpoint: {str(self.fault)[:300]}"
        return str(self.fault)

    @property
    def usage(self) -> dict[str, Any]:
        """The sum over all replies; its cost is unknown where one reply's is. Empty without replies."""
        replies = self.replies
        if not replies:
            return {}
        return sum((reply.usage for reply in replies[1:]), replies[0].usage).as_json()


class Caller:
    """Makes calls to one endpoint: counted, within a budget, and ended when too many in a row fail."""

    def __init__(self, concurrency: int | None, budget: Budget | None = None) -> None:
        """`concurrency` is how many calls run at once, which may all fail by one hiccup.

        None: failures in a row end nothing here; for jobs of a few calls each.
        """
        self.calls = 0
        """Calls that were made, answered or not."""
        self._budget = budget or Budget()
        self._is_watched = concurrency is not None
        self._limit = max(PATIENCE, 2 * (concurrency or 0))
        self._failures = 0
        self._answered = self._turned_down = False
        self._last: EndpointUnavailable | None = None

    @property
    def silence(self) -> EndpointUnavailable | None:
        """Why the last call failed; None where any call was answered or turned down, or none was made."""
        return None if self._answered or self._turned_down else self._last

    async def call(
        self, estimate: Usage, make: Callable[[], Awaitable[Reply]]
    ) -> Reply | EndpointUnavailable:
        """The reply, or why none came.

        Raises BudgetSpent; EndpointUnavailable after too many failures in a row, and at once where nothing was answered
        yet and the key, the model's name or the account is wrong; without `concurrency`, CircuitOpen.
        """

        async def made() -> Reply:
            self.calls += 1
            return await make()

        try:
            reply = await self._budget.pay(estimate, made)
        except EndpointUnavailable as exc:
            if not self._is_watched:
                if isinstance(exc, CircuitOpen):
                    raise
                return exc
            self._last = exc
            is_refused = isinstance(exc, RequestRefused)
            self._turned_down = self._turned_down or is_refused
            # An endpoint that has answered before and refuses a request, perhaps as too long, is not dead.
            if self._answered and is_refused:
                return exc
            # The key, the model's name or the account is what is wrong.
            if not self._answered and isinstance(exc, CallerRefused):
                raise
            self._failures += 1
            if self._failures >= self._limit:
                raise EndpointUnavailable(
                    f"{self._failures} calls in a row failed, the last: {exc.message}",
                    hint="what was answered is kept; run this again when the endpoint is back",
                ) from exc
            return exc
        self._failures = 0
        self._answered = self._is_watched
        return reply


class Asker(Caller):
    """Asks one engine for replies that can be used."""

    def __init__(
        self,
        engine: Engine,
        role: str = "engine",
        *,
        repairs: int = 1,
        concurrency: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        """`role` names the engine in messages, as "grader"; `repairs` is how often a request is asked again."""
        super().__init__(concurrency, budget)
        self.role = role
        self._engine, self._repairs, self._circuit = engine, repairs, circuit_of(engine)
        identity = engine.identity
        self._pinned = identity.model if identity.pinned else None
        self._strangers = 0
        """Replies by others than the pinned model."""
        self._trusted = False
        """Whether the pinned model has answered once."""
        self.readable = False
        """Whether a reply could be read once, now or in the work that is continued."""
        self._unreadable = 0

    async def ask(
        self,
        request: Request,
        read: Callable[[Reply], T],
    ) -> Asked[T]:
        """Ask until `read` takes a reply, or the attempts are spent.

        `read` raises Unusable; it sees no reply that was cut, refused, or given by another model. Raises
        BudgetSpent where the budget does not reach for one attempt, EndpointUnavailable when the endpoint seems
        dead (CircuitOpen without `concurrency`), and ConfigError when every reply comes from another model or none
        can be read. Without `concurrency` and with a circuit another model opens it and raises CircuitOpen: the
        endpoint may be mended while this process runs.
        """
        asked: Asked[T] = Asked()
        for _ in range(1 + self._repairs):
            estimate = self._budget.estimate(self._engine, request)
            reply: Reply | None = None
            fault: Unusable | None = None
            try:
                answer = await self.call(
                    estimate, partial(self._engine.answer, request)
                )
                if isinstance(answer, EndpointUnavailable):
                    fault = Unusable(answer.message, CallOutcome.UNAVAILABLE)
                    # Other failures cost the thread an attempt: else a request that the endpoint never answers
                    # would be each probe of the circuit.
                    if isinstance(answer, CallerRefused):
                        await self._raise_if_open(answer)
                else:
                    reply = answer
                    asked.value, fault = await self._read(reply, read)
            except BudgetSpent as exc:
                if not asked.attempts:
                    raise
                fault = Unusable(exc.message, CallOutcome.OVER_BUDGET)
            asked.attempts.append(Attempt(request, reply, fault))
            if reply is None or not fault or fault.outcome is not CallOutcome.INVALID:
                break
            if fault.by_another_model:
                # A new round, so that the stored reply is not used again
                request = replace(request, repair=None, round=request.round + 1)
            else:
                repair = (reply.text[:MOST_RAW], str(fault))
                rest = fault.rest or request
                request = replace(rest, round=request.round, repair=repair)
        return asked

    async def _raise_if_open(self, cause: MedliveError) -> None:
        """Raise CircuitOpen where a circuit is open and nothing else ends the work."""
        if self._circuit is None or self._is_watched:
            return
        if opening := await self._circuit.opening():
            raise opening.error() from cause

    async def _read(
        self, reply: Reply, read: Callable[[Reply], T]
    ) -> tuple[T | None, Unusable | None]:
        """What `read` makes of a reply, or its fault, which is counted. Raises ConfigError and CircuitOpen as `ask`."""
        value: T | None = None
        fault: Unusable | None = None
        self._trusted = self._trusted or reply.model == self._pinned
        try:
            value = read_checked(reply, self._pinned, self.role, read)
            self.readable = True
        except Unusable as exc:
            fault = exc
            if exc.by_another_model:
                await self._count_stranger(reply)
            else:
                self._unreadable += 1
                self.readable = self.readable or exc.partial
        is_hopeless = not self.readable and self._unreadable >= UNREADABLE
        if fault and is_hopeless and self._is_watched:
            words = " ".join(reply.text.split())[:300]
            raise ConfigError(
                f"none of {self._unreadable} replies of the {self.role} could be read, the last: {fault}",
                hint=f"it said: {words!r}; name another model, or see how its endpoint is asked for JSON",
            ) from fault
        if self._circuit and not reply.replayed:
            is_usable = fault is None or fault.partial
            await self._circuit.judged(None if is_usable else str(fault))
        return value, fault

    async def _count_stranger(self, reply: Reply) -> None:
        """Count a reply by another model. Where only others answer, raise CircuitOpen (its probes notice a mended
        endpoint), or ConfigError if no circuit is open."""
        # An old reply says nothing about the endpoint of today.
        if reply.replayed:
            return
        self._strangers += 1
        if self._trusted or self._strangers < STRANGERS:
            return
        hint = "allow_unpinned = true in its table, or --allow-unpinned, accepts such replies"
        answered = "no reply names its model"
        if reply.model != UNNAMED:
            answered = f"{reply.model!r} answered, every time"
            hint = f"name {reply.model!r} as the {self.role}'s model; {hint}"
        text = f"the {self.role} {self._pinned!r} was asked and {answered}"
        if self._circuit and not self._is_watched:
            await self._circuit.replies_refused(f"{text} ({hint})")
        wrong = ConfigError(text, hint=hint)
        await self._raise_if_open(wrong)
        raise wrong


@cache
def _schema_of(reply_type: type[ReplyModel]) -> Mapping[str, Any]:
    """A reply's schema without its docstrings: stored replies do not depend on their wording.

    It takes three milliseconds to make, and a thread asks twenty times.
    """
    return strict_schema(reply_type.model_json_schema())


def request_of(
    reply_type: type[ReplyModel], inputs: Mapping[str, Any], prompt: Prompt | None
) -> Request:
    """The request whose reply is of `reply_type`; without a prompt, with its task's own from the type's package."""
    task = reply_type.task
    prompt = prompt or prompt_beside(reply_type, task)
    return Request(task, prompt, inputs, _schema_of(reply_type))


def read_checked(
    reply: Reply, pinned: str | None, role: str, read: Callable[[Reply], T]
) -> T:
    """What `read` makes of a whole reply by the right model. Raises Unusable.

    `pinned` is the model that must have answered; None: any may.
    """
    if pinned is not None and reply.model != pinned:
        named = repr(reply.model[:100])
        if reply.model == UNNAMED:
            named = "the reply names none"
        raise Unusable(f"another model answered: {named}", by_another_model=True)
    if reply.finish is Finish.REFUSAL:
        words = " ".join(reply.text.split())[:200] or "no reason given"
        raise Unusable(
            f"the {role} refused, or a content filter did: {words}", CallOutcome.REFUSED
        )
    if reply.finish is Finish.LENGTH:
        raise Unusable("the reply was cut at the token limit", CallOutcome.TRUNCATED)
    return read(reply)


def read_as(
    reply_type: type[R],
    request: Request,
    check: Callable[[R], str | None] = lambda _: None,
) -> Callable[[Reply], R]:
    """Reads a reply as an object of `reply_type` for which `check` finds no fault.

    `check` returns what is wrong with a reply that fits its schema (an id that was not given, a quote that is in
    no passage), or None.
    """

    def read(reply: Reply) -> R:
        try:
            value = reply_type.model_validate(read_object(reply.text, request.inputs))
        except NoObject as exc:
            if is_refusal(reply.text):
                words = reply.text.strip()[:200]
                raise Unusable(
                    f"the engine refused in plain words: {words}", CallOutcome.REFUSED
                ) from exc
            raise Unusable(str(exc)) from exc
        except ValidationError as exc:
            raise Unusable(first_fault(exc, "the reply")) from exc
        except ValueError as exc:
            raise Unusable(str(exc)[:300]) from exc
        if problem := check(value):
            raise Unusable(problem)
        return value

    return read
