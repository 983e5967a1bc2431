"""`Agent` asks an engine for a typed reply and records each call; `check_ids` and `check_known` check a reply's ids."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary, proxy

from medlive.llm.ask import (
    Asked,
    Asker,
    Attempt,
    CallOutcome,
    EachItem,
    ReplyModel,
    Unusable,
    each_reply,
    read_as,
    request_of,
)
from medlive.llm.budget import BudgetSpent
from medlive.llm.engine import Engine, Prompt, Reply, Request

from .model import Call, Reason

R = TypeVar("R", bound=ReplyModel)
E = TypeVar("E", bound=EachItem)
T = TypeVar("T")


class Identified(Protocol):
    """Has an id, as parts of replies and decisions do."""

    @property
    def id(self) -> str:
        """Unique among its kind."""
        ...


Item = TypeVar("Item", bound=Identified)

_ASKERS: WeakKeyDictionary[Engine, Asker] = WeakKeyDictionary()
"""Engine → its asker, one for all threads, which counts replies by another model than the configured one."""
MAX_ROUNDS = 50  # Most stored unusable replies to skip before giving up
# How a call failed → why its thread failed
_REASONS = {
    CallOutcome.INVALID: Reason.INVALID_REPLY,
    CallOutcome.REFUSED: Reason.REFUSED,
    CallOutcome.TRUNCATED: Reason.TRUNCATED,
    CallOutcome.UNAVAILABLE: Reason.ENDPOINT_UNAVAILABLE,
    CallOutcome.OVER_BUDGET: Reason.BUDGET_SPENT,
}


class AgentFailure(Exception):
    """An agent failed for a reason of ours; never a verdict about a thread."""

    def __init__(self, reason: Reason, detail: str) -> None:
        """`reason` is one of the failure reasons; `detail` names the task and the cause."""
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}")

    @property
    def is_outage(self) -> bool:
        """Whether no engine could be asked (endpoint down, budget spent), so that other requests would fail too."""
        return self.reason in (Reason.ENDPOINT_UNAVAILABLE, Reason.BUDGET_SPENT)


class Agent:
    """Asks one engine on behalf of one role, in one thread's language."""

    def __init__(
        self,
        engine: Engine,
        journal: list[Call],
        language: str,
    ) -> None:
        """`journal` gets every call; the agents of one thread share it."""
        self.identity = engine.identity
        self.language = language
        self._engine = engine
        # A proxy, since an asker that held its engine would keep its own entry of _ASKERS for good.
        self._asker = _ASKERS.get(engine) or _ASKERS.setdefault(
            engine, Asker(proxy(engine))
        )
        self._journal = journal

    async def ask(
        self,
        reply_type: type[R],
        inputs: Mapping[str, Any],
        check: Callable[[R], str | None] = lambda _: None,
        *,
        prompt: Prompt | None = None,
    ) -> R:
        """Ask the task that `reply_type` answers and return a valid reply.

        Args:
            reply_type: The reply's model, which names the task.
            inputs: The task's inputs; the language is put before them.
            check: Returns a fault of the reply, None if it is valid.
            prompt: The instructions; None for the task's file in the `prompts/` of the type's package.

        Raises:
            AgentFailure: If no usable reply was given.
            ConfigError: If every reply is by another model than the configured one.
        """
        shown = {"language": self.language, **inputs}
        request = request_of(reply_type, shown, prompt)
        return await self.send(request, read_as(reply_type, request, check))

    async def ask_each(
        self,
        item: type[E],
        inputs: Mapping[str, Any],
        wanted: Iterable[str],
        fault_of: Callable[[E], str | None] = lambda _: None,
    ) -> dict[str, E]:
        """Ask a task whose reply has one item for each id in `wanted`, and return the items by id.

        Args:
            item: The item's model, which names the task.
            inputs: The task's inputs; the language is put before them.
            wanted: The ids of what the inputs ask about.
            fault_of: Returns a fault of an item, None if it is valid.

        Raises:
            AgentFailure, ConfigError: As `ask`.
        """
        ids = list(wanted)

        def check(reply: ReplyModel) -> str | None:
            items: Sequence[E] = getattr(reply, item.each)
            faults = map(fault_of, items)
            return check_ids(items, ids) or next(filter(None, faults), None)

        reply = await self.ask(each_reply(item), inputs, check)
        return by_id(getattr(reply, item.each))

    async def send(
        self,
        request: Request,
        read: Callable[[Reply], T],
    ) -> T:
        """Send a request until `read` accepts a reply, and return the value that `read` makes of it.

        An unusable reply goes back to the engine once, with the fault. If no reply is usable and all were replayed
        from an earlier run, the next round sends the request as a new one, so a resumed run pays for no more than that.

        Args:
            request: The first request.
            read: Returns the value of a reply; raises Unusable.

        Raises:
            AgentFailure: If no usable reply was given.
            ConfigError: If every reply is by another model than the configured one.
        """
        task = request.task
        for round_ in range(MAX_ROUNDS):
            request = replace(request, round=round_)
            try:
                asked = await self._asker.ask(request, read)
            except BudgetSpent as exc:
                spent = Unusable(exc.message, CallOutcome.OVER_BUDGET)
                asked = Asked(attempts=[Attempt(request, None, spent)])
            calls = []
            for number, (sent, reply, fault) in enumerate(asked.attempts, start=1):
                call = Call(
                    task=task,
                    prompt_digest=sent.prompt.digest,
                    engine=self.identity.engine,
                    model=self.identity.model,
                    request_digest=sent.digest(self.identity),
                    attempt=number,
                    outcome=fault.outcome if fault else CallOutcome.OK,
                    problem=str(fault or ""),
                    replayed=reply is not None and reply.replayed,
                )
                calls.append(call)
            self._journal += calls
            if asked.value is not None:
                return asked.value
            last = asked.attempts[-1].fault
            if last and not all(call.replayed for call in calls):
                reason = _REASONS[last.outcome]
                if last.by_another_model:
                    # The endpoint's fault: tried again within the day
                    reason = Reason.ENDPOINT_UNAVAILABLE
                raise AgentFailure(reason, f"{task}: {last}")
        raise AgentFailure(
            Reason.INVALID_REPLY, f"{task}: {MAX_ROUNDS} stored replies are unusable"
        )


def ids_of(items: Iterable[Identified]) -> list[str]:
    """Return the ids in order."""
    return [item.id for item in items]


def by_id(items: Iterable[Item]) -> dict[str, Item]:
    """Return the items by their ids, in order."""
    return {item.id: item for item in items}


def check_ids(items: Iterable[Identified], wanted: Iterable[str]) -> str | None:
    """The fault of a reply that lacks, repeats or adds items; None if there is one for each id that is wanted."""
    if sorted(ids_of(items)) == sorted(wanted):
        return None
    return "one item for each id that was given, no more, no fewer"


def check_known(
    named: Iterable[str],
    known: Iterable[str],
    what: str,
) -> str | None:
    """The fault of a reply that names an unknown id; None if all are known."""
    invalid = sorted(set(named).difference(known))
    return f"{invalid[0][:20]!r} is not the id of {what}" if invalid else None
