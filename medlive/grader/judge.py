"""A judge: one engine, mode and prompt; how its requests are made, and what its replies count for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from medlive.grader.reply import (
    GradedCriterion,
    GradeReply,
    RubricGradeReply,
    Verdict,
    echo_of,
    read_criterion,
    read_rubric,
)
from medlive.integrity.digest import digest_json
from medlive.llm.ask import Unusable
from medlive.llm.engine import EngineIdentity, Reply, Request
from medlive.llm.prompts import load_prompt

Criterion = TypeVar("Criterion", bound=GradedCriterion)
_MOST_FAULTS: Final = 4_000
"""Characters of the faults that a repair request names."""
RUBRIC_SIZE: Final = 40
"""The most criteria of one call; longer rubrics take more calls."""


class Mode(StrEnum):
    """How many criteria a call grades."""

    CRITERION = "criterion"
    RUBRIC = "rubric"


@dataclass(frozen=True, slots=True)
class GradingCall:
    """What one call asks: whether an answer meets these criteria."""

    language: str
    question: str
    answer: str
    criteria: tuple[GradedCriterion, ...]
    round: int = 0
    """How often unusable replies stand on record: a store of replies is asked past them."""


class Judge:
    """Makes requests for verdicts and reads the replies; asks nobody itself."""

    def __init__(
        self,
        identity: EngineIdentity,
        mode: Mode,
    ) -> None:
        self.identity, self.mode = identity, mode
        self._task = f"grader.{mode}"
        self.prompt = load_prompt("medlive.grader", self._task)
        parameters = dict(identity.parameters)
        self.digest = digest_json(
            [
                identity.engine,
                identity.model,
                parameters,
                mode.value,
                self.prompt.digest,
            ]
        )
        """What makes two graders one: engine, model, parameters, mode and prompt."""
        shape = GradeReply if mode is Mode.CRITERION else RubricGradeReply
        self._schema = shape.model_json_schema()

    def parts(self, criteria: Sequence[Criterion]) -> list[tuple[Criterion, ...]]:
        """Criteria as they are put into calls: one each, or as many as a call holds."""
        size = 1 if self.mode is Mode.CRITERION else RUBRIC_SIZE
        starts = range(0, len(criteria), size)
        return [tuple(criteria[start : start + size]) for start in starts]

    def request(self, call: GradingCall) -> Request:
        """The request for a call's criteria: first what other calls share, the case and in rubric mode its criteria,
        which are the same for every answer."""
        inputs: dict[str, Any] = {"language": call.language, "question": call.question}
        if self.mode is Mode.CRITERION:
            inputs["answer"] = call.answer
            inputs["criterion"] = call.criteria[0].criterion
        else:
            inputs["criteria"] = [
                {"id": c.id, "criterion": c.criterion} for c in call.criteria
            ]
            inputs["answer"] = call.answer
        return Request(self._task, self.prompt, inputs, self._schema, round=call.round)


class Verdicts:
    """Reads the replies about a call's criteria, attempt after attempt: later verdicts fill earlier gaps."""

    def __init__(
        self,
        judge: Judge,
        call: GradingCall,
    ) -> None:
        self.judge, self._call = judge, call
        self.by_criterion: dict[str, tuple[Verdict, Reply]] = {}
        """Criterion id → its verdict, and the reply that gave it."""
        self.faults: Mapping[str, str] = {}
        """Criterion id → why the last reply gave it none."""
        self.fault: Unusable | None = None
        """What was raised with these faults."""

    def read(self, reply: Reply) -> Mapping[str, tuple[Verdict, Reply]]:
        """All verdicts, when none is missing. Raises Unusable."""
        call = self._call
        missing = [c for c in call.criteria if c.id not in self.by_criterion]
        echoes = {c.id: echo_of(call.question, c) for c in missing}
        if self.judge.mode is Mode.RUBRIC:
            read = read_rubric(reply.text, list(echoes), call.answer, echoes)
        else:
            ((name, echo),) = echoes.items()
            read = {name: read_criterion(reply.text, call.answer, echo)}
        faults: dict[str, str] = {}
        for name, verdict in read.items():
            if isinstance(verdict, Verdict):
                self.by_criterion[name] = verdict, reply
            else:
                faults[name] = verdict
        if faults:
            named = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
            if len(faults) > 1 and len(set(faults.values())) == 1:
                named = next(iter(faults.values()))
            rest = replace(call, criteria=tuple(c for c in missing if c.id in faults))
            self.faults = faults
            self.fault = Unusable(
                named[:_MOST_FAULTS],
                rest=self.judge.request(rest),
                partial=len(faults) < len(read),
            )
            raise self.fault
        return self.by_criterion
