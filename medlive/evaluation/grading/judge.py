"""A judge: one engine, mode and prompt; how its requests are made, and what its replies count for.

The same for calls that are made one by one (`grade`), for files of calls (`batch`) and for a plan of calls that
are not made (`plan`): all send what `Judge.request` makes and read what comes by `Verdicts`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from medlive.evaluation.grading.verdict import (
    GradeReply,
    RubricGradeReply,
    Verdict,
    echo_of,
    read_criterion,
    read_rubric,
)
from medlive.evaluation.model import (
    Answer,
    EvaluationCase,
    EvaluationCriterion,
    Grade,
    Mode,
    Origin,
    grade_keys,
)
from medlive.integrity.digest import digest_json
from medlive.llm.ask import MOST_RAW, Asked, Unusable
from medlive.llm.engine import EngineIdentity, Prompt, Reply, Request
from medlive.llm.prompts import load_prompt

_MOST_FAULTS: Final = 4_000
"""Characters of the faults that a repair request names."""
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


def judge_digest(identity: EngineIdentity, mode: Mode, prompt: Prompt) -> str:
    """What makes two graders one: engine, model, parameters, mode and prompt."""
    return digest_json(
        [
            identity.engine,
            identity.model,
            dict(identity.parameters),
            mode.value,
            prompt.digest,
        ]
    )


class Settled(NamedTuple):
    """What is kept in memory of a verdict on record."""

    met: bool | None
    grader: str
    reason: str


class Judge:
    """Makes requests for verdicts and reads the replies; asks nobody itself."""

    def __init__(
        self, identity: EngineIdentity, mode: Mode, *, allow_unpinned: bool = False
    ) -> None:
        """`allow_unpinned` lets replies count that name another model than the identity's."""
        self.identity, self.mode, self.allow_unpinned = identity, mode, allow_unpinned
        self._task = f"grader.{mode}"
        self.prompt = load_prompt("medlive.evaluation", self._task)
        self.prompt_digest = self.prompt.digest
        self.digest = judge_digest(identity, mode, self.prompt)
        shape = GradeReply if mode is Mode.CRITERION else RubricGradeReply
        self._schema = shape.model_json_schema()

    def keys(
        self,
        case: EvaluationCase,
        answer: Answer,
        criteria: Sequence[EvaluationCriterion] | None = None,
    ) -> dict[str, str]:
        """The key of the grade of each criterion of a case, or of some, by its id."""
        return grade_keys(case, answer, self.digest, criteria)

    def settles(self, grade: Grade | Settled | None) -> bool:
        """Whether a verdict on record is one, by a model that counts: nothing is left to ask."""
        if grade is None or grade.met is None:
            return False
        return self.identity.accepts(grade.grader, self.allow_unpinned)

    def parts(
        self, criteria: Sequence[EvaluationCriterion]
    ) -> list[tuple[EvaluationCriterion, ...]]:
        """Criteria as they are put into calls: one each, or as many as a call holds."""
        size = 1 if self.mode is Mode.CRITERION else RUBRIC_SIZE
        return [
            tuple(criteria[start : start + size])
            for start in range(0, len(criteria), size)
        ]

    def request(self, work: Work) -> Request:
        """The request for a call's criteria: first what other calls share, the case and in rubric mode its criteria,
        which are the same for every answer."""
        inputs: dict[str, Any] = {
            "language": work.case.language,
            "question": work.case.question,
        }
        if self.mode is Mode.CRITERION:
            inputs["answer"] = work.answer.response
            inputs["criterion"] = work.criteria[0].criterion
        else:
            inputs["criteria"] = [
                {"id": c.id, "criterion": c.criterion} for c in work.criteria
            ]
            inputs["answer"] = work.answer.response
        return Request(self._task, self.prompt, inputs, self._schema, round=work.round)


def name_faults(faults: Mapping[str, str]) -> str:
    """Faults by criterion id, as a repair request names them; one that several share stands alone."""
    if len(faults) > 1 and len(set(faults.values())) == 1:
        return next(iter(faults.values()))
    return "; ".join(f"{cid}: {fault}" for cid, fault in faults.items())[:_MOST_FAULTS]


class Ungraded(Unusable):
    """A reply leaves criteria without a verdict."""

    def __init__(
        self, faults: Mapping[str, str], rest: Request, *, partial: bool
    ) -> None:
        """`faults` says why, by the criteria's ids; `partial`: others have a verdict."""
        super().__init__(name_faults(faults), rest=rest, partial=partial)
        self.faults = faults


class Verdicts:
    """Reads the replies about a call's criteria, attempt after attempt: later verdicts fill earlier gaps."""

    def __init__(self, judge: Judge, work: Work) -> None:
        self._judge, self._work = judge, work
        self._found: dict[str, tuple[Verdict, Reply]] = {}

    def read(self, reply: Reply) -> Mapping[str, tuple[Verdict, Reply]]:
        """All verdicts, when none is missing. Raises Unusable."""
        open_ = {c.id: c for c in self._work.criteria if c.id not in self._found}
        answer = self._work.answer.response
        if self._judge.mode is Mode.RUBRIC:
            echoes = {}
            for criterion in open_.values():
                echoes[criterion.id] = echo_of(self._work.case, criterion)
            read = read_rubric(reply.text, list(open_), answer, echoes)
        else:
            (criterion,) = self._work.criteria
            echo = echo_of(self._work.case, criterion)
            read = dict.fromkeys(open_, read_criterion(reply.text, answer, echo))
        faults: dict[str, str] = {}
        for criterion_id, verdict in read.items():
            if isinstance(verdict, Verdict):
                self._found[criterion_id] = verdict, reply
            else:
                faults[criterion_id] = verdict
        if faults:
            rest = replace(self._work, criteria=tuple(open_[cid] for cid in faults))
            raise Ungraded(
                faults, self._judge.request(rest), partial=len(faults) < len(read)
            )
        return self._found

    def grades(self, asked: Asked[Any], origin: Origin = Origin.CALL) -> list[Grade]:
        """The call's criteria as rows of the log; the usage of all attempts stands with the first.

        A reply that several criteria share stands whole with the first of them and with those it did not grade.
        """
        judge, work = self._judge, self._work
        keys = judge.keys(work.case, work.answer, work.criteria)
        faults = asked.fault.faults if isinstance(asked.fault, Ungraded) else {}
        grades: list[Grade] = []
        shown: set[int] = set()
        for criterion in work.criteria:
            verdict, reply = self._found.get(criterion.id, (None, asked.last))
            first = id(reply) not in shown
            shown.add(id(reply))
            grades.append(
                Grade(
                    case_id=work.case.case_id,
                    criterion_id=criterion.id,
                    key=keys[criterion.id],
                    met=verdict.met if verdict else None,
                    quote=verdict.quote if verdict else "",
                    reasoning=verdict.reasoning if verdict else "",
                    reason="" if verdict else faults.get(criterion.id, asked.reason),
                    raw=reply.text[:MOST_RAW]
                    if reply is not None and (first or verdict is None)
                    else "",
                    grader=reply.model if reply else "",
                    engine=judge.identity.engine,
                    model=judge.identity.model,
                    mode=judge.mode,
                    prompt=judge.prompt_digest,
                    judge=judge.digest,
                    usage={} if grades else asked.usage,
                    origin=origin,
                    whole=bool(verdict and verdict.whole),
                )
            )
        return grades
