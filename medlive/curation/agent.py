"""An agent asks an engine for a typed reply and keeps account of each call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

from medlive.curation.model import Call, Reason
from medlive.llm.ask import Asked, Asker, Attempt, CallOutcome, Unusable, read_as
from medlive.llm.budget import BudgetSpent
from medlive.llm.engine import Engine, Reply, Request
from medlive.llm.prompts import load_prompt

R = TypeVar("R", bound=BaseModel)

MAX_ROUNDS = 50
"""How often a stored unusable reply is stepped over: a bound against a store that only ever returns such."""

_REASONS = {
    CallOutcome.INVALID: Reason.INVALID_REPLY,
    CallOutcome.REFUSED: Reason.REFUSED,
    CallOutcome.TRUNCATED: Reason.TRUNCATED,
    CallOutcome.UNAVAILABLE: Reason.ENDPOINT_UNAVAILABLE,
    CallOutcome.OVER_BUDGET: Reason.BUDGET_SPENT,
}


class AgentFailure(Exception):
    """An agent could not do its work: a failure of ours, never a verdict about a thread."""

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
        self._asker = Asker(engine)
        self._journal = journal

    async def ask(
        self,
        package: str,
        task: str,
        inputs: Mapping[str, Any],
        reply_type: type[R],
        check: Callable[[R], str | None] = lambda _: None,
    ) -> R:
        """A reply of `reply_type` for which `check` finds no fault.

        An unusable reply is returned to the engine once, with the fault named. When the repair is unusable as well
        and both replies came out of the store, a new round asks afresh, so that a run which resumes pays for the
        unusable reply again and for nothing else.

        Raises AgentFailure.
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
    """A reply's schema, made once: pydantic takes longer to make it than a call takes to prepare."""
    return reply_type.model_json_schema()


def one_each(given: Sequence[str], wanted: Sequence[str]) -> str | None:
    """What is wrong with a reply whose items are not one for each id that was asked for."""
    return None if sorted(given) == sorted(wanted) else "one item for each id that was given, no more, no fewer"
