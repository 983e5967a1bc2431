"""An agent asks an engine for a typed reply and records each call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from medlive.curation.model import Call, Reason
from medlive.llm.ask import Asked, Asker, Attempt, CallOutcome, Unusable, read_as
from medlive.llm.budget import BudgetSpent
from medlive.llm.engine import Engine, Reply, Request
from medlive.llm.prompts import load_prompt

R = TypeVar("R", bound=BaseModel)

_ASKERS: WeakKeyDictionary[Engine, Asker] = WeakKeyDictionary()
"""One for each engine, so that replies by another model than the configured one are counted over all threads."""
MAX_ROUNDS = 50
"""Most stored unusable replies to skip before giving up."""

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


class Agent:
    """Asks one engine on behalf of one role and appends every call to a journal."""

    def __init__(self, engine: Engine, journal: list[Call]) -> None:
        """`journal` is shared by the agents of one thread."""
        self.identity = engine.identity
        self._asker = _ASKERS.get(engine) or _ASKERS.setdefault(engine, Asker(engine, allow_unpinned=False))
        self._journal = journal

    async def ask(
        self,
        package: str,
        task: str,
        inputs: Mapping[str, Any],
        reply_type: type[R],
        check: Callable[[R], str | None] = lambda _: None,
    ) -> R:
        """Ask a task and return a valid reply.

        An unusable reply goes back to the engine once, with the fault. When the repair is unusable too and both
        replies were stored ones, a new round asks again, so that a resumed run pays for that reply only.

        Args:
            package: The package whose `prompts/` has the task's prompt.
            check: Returns a fault of the reply, None if it is valid.

        Raises:
            AgentFailure: If no usable reply was given.
            ConfigError: If every reply is by another model than the configured one.
        """
        request = Request(task, load_prompt(package, task), inputs, _schema(reply_type))
        read = read_as(reply_type, request, check)
        for round_ in range(MAX_ROUNDS):
            asked = await self._ask(replace(request, round=round_), read)
            self._journal += [self._call(number, one) for number, one in enumerate(asked.attempts, start=1)]
            if asked.value is not None:
                return asked.value
            fault = asked.attempts[-1].fault
            if fault and any(one.reply is None or not one.reply.replayed for one in asked.attempts):
                raise AgentFailure(_REASONS[fault.outcome], f"{task}: {fault}")
        raise AgentFailure(Reason.INVALID_REPLY, f"{task}: {MAX_ROUNDS} stored replies are unusable")

    async def _ask(self, request: Request, read: Callable[[Reply], R]) -> Asked[R]:
        try:
            return await self._asker.ask(request, read)
        except BudgetSpent as exc:
            return Asked(attempts=[Attempt(request, None, Unusable(exc.message, CallOutcome.OVER_BUDGET))])

    def _call(self, number: int, attempt: Attempt) -> Call:
        request, fault = attempt.request, attempt.fault
        return Call(
            task=request.task,
            prompt_digest=request.prompt.digest,
            engine=self.identity.engine,
            model=self.identity.model,
            request_digest=request.digest(self.identity),
            attempt=number,
            outcome=fault.outcome if fault else CallOutcome.OK,
            problem=str(fault or ""),
            replayed=attempt.reply is not None and attempt.reply.replayed,
        )


@cache
def _schema(reply_type: type[BaseModel]) -> Mapping[str, Any]:
    """A reply's JSON schema, cached because pydantic is slow to make it."""
    return reply_type.model_json_schema()


def check_ids(given: Sequence[str], wanted: Sequence[str]) -> str | None:
    """The fault of a reply that lacks, repeats or adds ids; None if there is one item for each."""
    return None if sorted(given) == sorted(wanted) else "one item for each id that was given, no more, no fewer"
