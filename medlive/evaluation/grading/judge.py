"""A judge: one engine, mode and prompt; how its requests are made, and what its replies count for.

The same for calls that are made one by one (`grade`), for files of calls (`batch`) and for a plan of calls that
are not made (`plan`): all send what `Judge.request` makes and read what comes by `Judge.read`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from medlive.digest import digest_json
from medlive.evaluation.asking.pinned import stranger
from medlive.evaluation.grading.tasks import GradeReply, RubricGradeReply
from medlive.evaluation.grading.verdict import Unreadable, Verdict, read_criterion, read_rubric
from medlive.evaluation.model import (
    Answer,
    EvaluationCase,
    EvaluationCriterion,
    Grade,
    Mode,
    Origin,
    grade_key,
    keys_of,
)
from medlive.llm.engine import EngineIdentity, Finish, Prompt, Reply, Request, Usage
from medlive.llm.prompts import load_prompt

T = TypeVar("T")

MOST_RAW: Final = 20_000
NEAR: Final = 256
"""Cases whose keys are remembered."""
_TOLD: Final = frozenset({"endpoint", "batch", "another model answered"})
"""Reasons that say after a colon what failed, or who answered."""
_ATTEMPTS: Final = re.compile(r" in \d+ attempts?: ")
RUBRIC_SIZE: Final = 40
"""The most criteria of one call; longer rubrics take more calls."""


@dataclass(frozen=True, slots=True)
class Work:
    """One call's criteria."""

    case: EvaluationCase
    answer: Answer
    criteria: tuple[EvaluationCriterion, ...]
    round: int = 0
    """How often unusable replies stand on record: a store of replies is asked past them."""
    keys: tuple[str, ...] = ()
    """The criteria's, where they have been made; else `Judge.key` makes them."""


@dataclass(slots=True)
class Outcome:
    """What the replies about one `Work` came to, attempt after attempt: later verdicts fill earlier gaps."""

    verdicts: dict[str, Verdict] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    """Why a criterion has no verdict, by its id."""
    by: dict[str, Reply] = field(default_factory=dict)
    """The last reply about each criterion."""
    replies: list[Reply] = field(default_factory=list)

    def take(
        self, reply: Reply, waiting: Sequence[EvaluationCriterion], read: Mapping[str, Verdict | str]
    ) -> None:
        """Count a reply in, as `Judge.read` read it."""
        self.replies.append(reply)
        for criterion in waiting:
            self.by[criterion.id] = reply
        for cid, found in read.items():
            if isinstance(found, Verdict):
                self.verdicts[cid] = found
            else:
                self.faults[cid] = found

    def fail(self, waiting: Sequence[EvaluationCriterion], why: str) -> None:
        """No reply came for these."""
        self.faults |= {c.id: why for c in waiting}


def kind_of(reason: str) -> str:
    """Why a criterion is ungraded, without what is particular to one reply: to be counted."""
    kind, _, detail = reason.partition(": ")
    if kind == "endpoint":
        # "<endpoint> gave no answer for model <id> in <n> attempts: <cause>"
        detail = _ATTEMPTS.split(detail)[-1]
    return f"{kind}: {detail[:80]}" if detail and kind in _TOLD else kind


def judge_digest(identity: EngineIdentity, mode: Mode, prompt: Prompt) -> str:
    """What makes two graders one: engine, model, parameters, mode and prompt."""
    return digest_json([identity.engine, identity.model, dict(identity.parameters), mode.value, prompt.digest])


class Ruled(Protocol):
    """What tells whether a verdict is one: a `Grade`, or what is held of it."""

    @property
    def met(self) -> bool | None: ...

    @property
    def grader(self) -> str: ...


class Judge:
    """Makes requests for verdicts and reads the replies; asks nobody itself."""

    def __init__(self, identity: EngineIdentity, mode: Mode, *, allow_unpinned: bool = False) -> None:
        """`allow_unpinned` lets replies count that name another model than the identity's."""
        self.identity, self.mode, self.allow_unpinned = identity, mode, allow_unpinned
        self._task = f"grader.{mode}"
        self.prompt = load_prompt("medlive.evaluation", self._task)
        self.digest = judge_digest(identity, mode, self.prompt)
        self._prompt_digest = self.prompt.digest
        self.size = 1 if mode is Mode.CRITERION else RUBRIC_SIZE
        shape = GradeReply if mode is Mode.CRITERION else RubricGradeReply
        self._schema = shape.model_json_schema()
        self._keys: dict[str, tuple[EvaluationCase, Answer, dict[str, str]]] = {}
        """By case, of the last NEAR, since each is asked for more than once: the keys by the criteria's texts."""

    def key(self, case: EvaluationCase, criterion: EvaluationCriterion, answer: Answer) -> str:
        """What a verdict is found again by."""
        known = self._keys.get(case.case_id)
        if known is None or known[0] is not case or known[1] is not answer:
            texts = (c.criterion for c in case.criteria)
            found = dict(zip(texts, keys_of(case, answer, self.digest), strict=True))
            if len(self._keys) >= NEAR:
                del self._keys[next(iter(self._keys))]
            known = self._keys[case.case_id] = (case, answer, found)
        return known[2].get(criterion.criterion) or grade_key(case, criterion, answer, self.digest)

    def settles(self, grade: Ruled | None) -> bool:
        """Whether a verdict on record is one, by a model that counts: nothing is left to ask."""
        if grade is None or grade.met is None:
            return False
        return self.allow_unpinned or grade.grader == self.identity.model

    def parts(self, criteria: Sequence[T]) -> list[tuple[T, ...]]:
        """Criteria, or what stands for them, as they are put into calls: one each, or as many as a call holds."""
        return [tuple(criteria[start : start + self.size]) for start in range(0, len(criteria), self.size)]

    def request(self, work: Work, repair: tuple[str, str] | None = None, later: int = 0) -> Request:
        """The request for a call's criteria: what the calls of a case share first, the criteria last."""
        inputs: dict[str, Any] = {
            "language": work.case.language,
            "question": work.case.question,
            "answer": work.answer.response,
        }
        if self.mode is Mode.CRITERION:
            inputs["criterion"] = work.criteria[0].criterion
        else:
            inputs["criteria"] = [{"id": c.id, "criterion": c.criterion} for c in work.criteria]
        return Request(self._task, self.prompt, inputs, self._schema, repair=repair, round=work.round + later)

    def read(self, reply: Reply, work: Work) -> dict[str, Verdict | str]:
        """For each of a call's criteria its verdict, or why the reply holds none."""
        ids = [c.id for c in work.criteria]
        if not self.allow_unpinned and (fault := stranger(reply, self.identity.model)) is not None:
            return dict.fromkeys(ids, fault)
        if reply.finish is Finish.LENGTH:
            return dict.fromkeys(ids, "the reply was cut at the token limit")
        if reply.finish is Finish.REFUSAL:
            return dict.fromkeys(ids, "the grader refused")
        try:
            if self.mode is Mode.RUBRIC:
                return read_rubric(reply.text, ids, work.answer.response)
            return {ids[0]: read_criterion(reply.text, work.answer.response)}
        except Unreadable as exc:
            return dict.fromkeys(ids, str(exc))

    def grades(self, work: Work, outcome: Outcome, origin: Origin = Origin.CALL) -> list[Grade]:
        """A call's criteria as rows of the log; the usage of all attempts stands with the first.

        A reply that several criteria share stands whole with the first of them and with those it did not grade.
        """
        usage = _usage(outcome.replies)
        grades: list[Grade] = []
        shown: set[int] = set()
        for place, criterion in enumerate(work.criteria):
            verdict, reply = outcome.verdicts.get(criterion.id), outcome.by.get(criterion.id)
            first = id(reply) not in shown
            shown.add(id(reply))
            grades.append(
                Grade(
                    case_id=work.case.case_id,
                    criterion_id=criterion.id,
                    key=work.keys[place] if work.keys else self.key(work.case, criterion, work.answer),
                    met=verdict.met if verdict else None,
                    quote=verdict.quote if verdict else "",
                    reasoning=verdict.reasoning if verdict else "",
                    reason="" if verdict else outcome.faults[criterion.id],
                    raw=reply.text[:MOST_RAW] if reply is not None and (first or verdict is None) else "",
                    grader=reply.model if reply else "",
                    engine=self.identity.engine,
                    model=self.identity.model,
                    mode=self.mode,
                    prompt=self._prompt_digest,
                    judge=self.digest,
                    usage=usage if place == 0 else {},
                    origin=origin,
                )
            )
        return grades


def _usage(replies: list[Reply]) -> dict[str, Any]:
    """The sum over a call's attempts; a cost that one of them does not know is unknown."""
    if not replies:
        return {}
    rows = [reply.usage for reply in replies]
    one = rows[0] if len(rows) == 1 else _sum(rows)
    return {
        "input_tokens": one.input_tokens,
        "cached_tokens": one.cached_tokens,
        "output_tokens": one.output_tokens,
        "latency_ms": one.latency_ms,
        "cost_usd": one.cost_usd,
    }


def _sum(rows: list[Usage]) -> Usage:
    costs = [one.cost_usd for one in rows if one.cost_usd is not None]
    return Usage(
        input_tokens=sum(one.input_tokens for one in rows),
        cached_tokens=sum(one.cached_tokens for one in rows),
        output_tokens=sum(one.output_tokens for one in rows),
        cost_usd=sum(costs) if len(costs) == len(rows) else None,
        latency_ms=sum(one.latency_ms for one in rows),
    )
