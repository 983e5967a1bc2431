"""`Judge`: an engine, mode and prompt that grade answers; `GradingCall` makes its requests and reads the replies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar

from medlive.integrity.digest import digest_json
from medlive.llm.ask import Unusable
from medlive.llm.engine import EngineIdentity, Reply, Request
from medlive.llm.prompts import load_prompt

from .reply import (
    GradedCriterion,
    GradeReply,
    RubricGradeReply,
    Verdict,
    echo_of,
    read_criterion,
    read_rubric,
)

Criterion = TypeVar("Criterion", bound=GradedCriterion)
_MOST_FAULTS = 4_000
"""Characters of the faults that a repair request names."""
RUBRIC_SIZE = 40
"""The most criteria of one call; longer rubrics take more calls."""


class Mode(StrEnum):
    """How many criteria a call grades."""

    CRITERION = "criterion"
    RUBRIC = "rubric"


class Judge:
    """Who is asked for verdicts, and how."""

    def __init__(
        self,
        identity: EngineIdentity,
        mode: Mode,
    ) -> None:
        self.identity, self.mode = identity, mode
        self.task = f"grader.{mode}"
        self.prompt = load_prompt("medlive.grader", self.task)
        self.digest = digest_json(
            [
                identity.engine,
                identity.model,
                dict(identity.parameters),
                mode.value,
                self.prompt.digest,
            ]
        )
        """Identifies the judge: a digest of engine, model, parameters, mode and prompt."""
        shape = GradeReply if mode is Mode.CRITERION else RubricGradeReply
        self.schema = shape.model_json_schema()

    def parts(
        self,
        criteria: Sequence[Criterion],
    ) -> list[tuple[Criterion, ...]]:
        """The criteria split into calls: one each in criterion mode, else up to RUBRIC_SIZE."""
        size = 1 if self.mode is Mode.CRITERION else RUBRIC_SIZE
        starts = range(0, len(criteria), size)
        return [tuple(criteria[start : start + size]) for start in starts]


@dataclass
class GradingCall:
    """What one call asks a judge (whether an answer meets these criteria), and the verdicts of its replies.

    Where there are several attempts, later verdicts fill the gaps of earlier ones.
    """

    judge: Judge
    language: str
    question: str
    answer: str
    criteria: tuple[GradedCriterion, ...]
    round: int = 0
    """How many unusable replies are on record: a new round is a new request, so that no store returns them again."""
    by_criterion: dict[str, tuple[Verdict, Reply]] = field(default_factory=dict)
    """Criterion id → its verdict, and the reply that gave it."""
    faults: Mapping[str, str] = field(default_factory=dict)
    """Criterion id → why the last reply gave it no verdict."""
    fault: Unusable | None = None
    """The exception that was raised for these faults."""

    @property
    def request(self) -> Request:
        """The request for the criteria. Its inputs begin with what other calls share: the case, and in rubric mode its
        criteria, the same for every answer."""
        judge = self.judge
        inputs: dict[str, Any] = {"language": self.language, "question": self.question}
        if judge.mode is Mode.CRITERION:
            inputs["answer"] = self.answer
            inputs["criterion"] = self.criteria[0].criterion
        else:
            inputs["criteria"] = [
                {"id": c.id, "criterion": c.criterion} for c in self.criteria
            ]
            inputs["answer"] = self.answer
        return Request(
            judge.task,
            judge.prompt,
            inputs,
            judge.schema,
            round=self.round,
        )

    def read(self, reply: Reply) -> Mapping[str, tuple[Verdict, Reply]]:
        """Keep the verdicts of a reply, and return all when none is missing. Else raise Unusable."""
        missing = [c for c in self.criteria if c.id not in self.by_criterion]
        echoes = {c.id: echo_of(self.question, c) for c in missing}
        if self.judge.mode is Mode.RUBRIC:
            read = read_rubric(reply.text, list(echoes), self.answer, echoes)
        else:
            ((name, echo),) = echoes.items()
            read = {name: read_criterion(reply.text, self.answer, echo)}
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
            rest = replace(self, criteria=tuple(c for c in missing if c.id in faults))
            self.faults = faults
            self.fault = Unusable(
                named[:_MOST_FAULTS],
                rest=rest.request,
                partial=len(faults) < len(read),
            )
            raise self.fault
        return self.by_criterion
