"""An agent asks an engine for a typed reply, gives it one chance to mend it, and keeps account of each call."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from medlive.curation.model import Call, CallOutcome, Reason
from medlive.errors import EndpointUnavailable
from medlive.llm.budget import BudgetSpent
from medlive.llm.engine import EngineIdentity, Finish, Prompt, Reply, Request
from medlive.llm.prompts import load_prompt
from medlive.llm.reading import NoObject, read_object
from medlive.llm.refusal import is_refusal

R = TypeVar("R", bound=BaseModel)

MAX_ROUNDS = 50
"""How often a stored unusable reply is stepped over: a bound against a store that only ever returns such."""


class Respondent(Protocol):
    """An engine with a memory: says of each reply whether it was stored before."""

    @property
    def identity(self) -> EngineIdentity:
        """Who answers."""
        ...

    async def answer_or_replay(self, request: Request) -> tuple[Reply, bool]:
        """The reply, and True when it was replayed and nothing was paid."""
        ...


class AgentFailure(Exception):
    """An agent could not do its work: a failure of ours, never a verdict about a thread."""

    def __init__(self, reason: Reason, detail: str) -> None:
        """`reason` is one of the failure reasons; `detail` names the task and the cause."""
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}")


class Agent:
    """Asks one engine on behalf of one role and appends every call to a journal."""

    def __init__(self, respondent: Respondent, journal: list[Call]) -> None:
        """`journal` is shared by the agents of one thread, in the order of their replies."""
        self._respondent = respondent
        self._journal = journal

    @property
    def identity(self) -> EngineIdentity:
        """Who answers for this role."""
        return self._respondent.identity

    async def ask(
        self,
        package: str,
        task: str,
        inputs: Mapping[str, Any],
        reply_type: type[R],
        check: Callable[[R], str | None] = lambda _: None,
    ) -> R:
        """A reply of `reply_type` for which `check` finds no fault.

        `check` returns what is wrong with a reply that fits its schema (an id that was not given, a quote that
        is in no passage), or None. An unusable reply is returned to the engine once, with the fault named; a
        refusal and a cut reply are not, since the same question would meet the same end. When the repair is
        unusable as well and both replies came out of the store, a new round asks afresh, so that a run which
        resumes pays for the unusable reply again and for nothing else.

        Raises AgentFailure.
        """
        prompt = load_prompt(package, task)
        schema = _schema(reply_type)
        for round_ in range(MAX_ROUNDS):
            request = Request(task, prompt, inputs, schema, round=round_)
            fresh = False
            for attempt in (1, 2):
                reply, replayed = await self._call(request, prompt, attempt)
                fresh = fresh or not replayed
                outcome, parsed, problem = _judge(reply, inputs, reply_type, check)
                self._note(request, prompt, attempt, outcome, problem, replayed)
                if parsed is not None:
                    return parsed
                if outcome is not CallOutcome.INVALID:
                    break
                request = Request(task, prompt, inputs, schema, repair=(reply.text, problem), round=round_)
            if fresh:
                raise AgentFailure(_REASONS[outcome], f"{task}: {problem}")
        raise AgentFailure(Reason.INVALID_REPLY, f"{task}: {MAX_ROUNDS} stored replies are unusable")

    async def _call(self, request: Request, prompt: Prompt, attempt: int) -> tuple[Reply, bool]:
        try:
            return await self._respondent.answer_or_replay(request)
        except EndpointUnavailable as exc:
            self._note(request, prompt, attempt, CallOutcome.UNAVAILABLE, exc.message, False)
            raise AgentFailure(Reason.ENDPOINT_UNAVAILABLE, f"{request.task}: {exc.message}") from exc
        except BudgetSpent as exc:
            self._note(request, prompt, attempt, CallOutcome.OVER_BUDGET, exc.message, False)
            raise AgentFailure(Reason.BUDGET_SPENT, f"{request.task}: {exc.message}") from exc

    def _note(
        self,
        request: Request,
        prompt: Prompt,
        attempt: int,
        outcome: CallOutcome,
        problem: str,
        replayed: bool,
    ) -> None:
        identity = self.identity
        self._journal.append(
            Call(
                task=request.task,
                prompt_digest=prompt.digest,
                engine=identity.engine,
                model=identity.model,
                request_digest=request.digest(identity),
                attempt=attempt,
                outcome=outcome,
                problem=problem,
                replayed=replayed,
            )
        )


@cache
def _schema(reply_type: type[BaseModel]) -> Mapping[str, Any]:
    """A reply's schema, made once: pydantic takes longer to make it than a call takes to prepare."""
    return reply_type.model_json_schema()


_REASONS = {
    CallOutcome.INVALID: Reason.INVALID_REPLY,
    CallOutcome.REFUSED: Reason.REFUSED,
    CallOutcome.TRUNCATED: Reason.TRUNCATED,
}


def _judge(
    reply: Reply, inputs: Mapping[str, Any], reply_type: type[R], check: Callable[[R], str | None]
) -> tuple[CallOutcome, R | None, str]:
    if reply.finish is Finish.REFUSAL:
        return CallOutcome.REFUSED, None, "the engine refused"
    if reply.finish is Finish.LENGTH:
        return CallOutcome.TRUNCATED, None, "the reply was cut at the token limit"
    try:
        parsed = reply_type.model_validate(read_object(reply.text, inputs))
    except NoObject as exc:
        if is_refusal(reply.text):
            return CallOutcome.REFUSED, None, f"the engine refused in plain words: {reply.text.strip()[:200]}"
        return CallOutcome.INVALID, None, str(exc)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the reply"
        return CallOutcome.INVALID, None, f"{where}: {first['msg']} ({exc.error_count()} faults)"
    except ValueError as exc:
        return CallOutcome.INVALID, None, str(exc)
    problem = check(parsed)
    if problem:
        return CallOutcome.INVALID, None, problem
    return CallOutcome.OK, parsed, ""


def one_each(given: Sequence[str], wanted: Sequence[str]) -> str | None:
    """What is wrong with a reply whose items are not one for each id that was asked for."""
    return None if sorted(given) == sorted(wanted) else "one item for each id that was given, no more, no fewer"
