"""LLMEval-Med's checklist scoring: an answer is usable where the mean of three rounds is 4 or more of 5.

On its own questions core and secondary requirements are the published checklist's; on medlive's cases they are the
positive criteria, core where they have `core_points` or more (seed 003 §3.2, appendices C, D; docs/method.md §4).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Final

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from medlive.evaluation.cases.llmeval import CATEGORIES, CORE, SECONDARY
from medlive.evaluation.grading.questions import Findings, Question
from medlive.evaluation.grading.verdict import Reasoning
from medlive.evaluation.model import Answer, EvaluationCase
from medlive.evaluation.protocols.checklist_people import (
    Judged,
    compare_with_people,
    read_people,
)
from medlive.evaluation.protocols.model import (
    Cell,
    Material,
    Protocol,
    Results,
    Side,
    Subject,
    Table,
    bounds_by_case,
    has_reference,
)

TASK: Final = "protocol.checklist"
DEFAULT_CATEGORY: Final = "Medical Reasoning"
"""Of cases that no published category fits: a patient's question is answered by inference."""


class ChecklistReply(BaseModel):
    """`protocol.checklist`: a score of 1 to 5.

    Inputs: language, category, reference, core, secondary, question, answer.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    reasoning: Reasoning
    score: Annotated[int, Field(ge=1, le=5)]


def _checked(people: Path | None) -> Path | None:
    """The file, before anything is asked. Raises BadInput where it cannot be read."""
    if people is not None:
        read_people(people)
    return people


class Checklist(Protocol):
    """See the module."""

    name: ClassVar[str] = "checklist"
    about: ClassVar[str] = (
        "usable or not, by reference and checklist, three rounds (LLMEval-Med)"
    )
    figure: ClassVar[str] = "usability rate, 0 to 1"
    side: ClassVar[Side | None] = Side.KNOWLEDGE

    rounds: Annotated[
        int, Field(ge=1, le=20, description="how often each answer is scored")
    ] = 3
    usable: Annotated[
        float,
        Field(
            ge=1, le=5, description="the mean score from which on an answer is usable"
        ),
    ] = 4.0
    core_points: Annotated[
        float, Field(gt=0, description="points from which on a criterion is core")
    ] = 7.0
    people: Annotated[
        Path | None,
        AfterValidator(_checked),
        Field(description="people's ratings, a CSV or JSON Lines file"),
    ] = None
    draws: Annotated[int, Field(ge=1, description="draws of the bootstrap")] = 1000
    seed: Annotated[int, Field(ge=0, description="where the draws begin")] = 0

    @classmethod
    def fits(cls, material: Material) -> bool:
        """Cases with a reference, and no error planted in it."""
        return has_reference(material)

    def questions(self, material: Material, found: Findings) -> Iterator[Question]:
        """Every answer, once for each round."""
        for run in material:
            for case, answer in run.answered():
                yield from self._rounds(case, answer)

    def _rounds(self, case: EvaluationCase, answer: Answer) -> list[Question]:
        core, secondary = self._requirements(case)
        inputs = {
            "language": case.language,
            "category": case.theme
            if case.theme in CATEGORIES.values()
            else DEFAULT_CATEGORY,
            "reference": case.advice,
            "core": core,
            "secondary": secondary,
            "question": case.question,
            "answer": answer.response,
        }
        return [
            Question(
                case_id=case.case_id,
                part=f"round {n + 1}",
                task=TASK,
                inputs=inputs,
                reply=ChecklistReply,
                round=n,
            )
            for n in range(self.rounds)
        ]

    def _requirements(self, case: EvaluationCase) -> tuple[list[str], list[str]]:
        if {c.axis for c in case.criteria} <= {CORE, SECONDARY}:
            core, secondary = (
                [c.criterion for c in case.criteria if c.axis == one]
                for one in (CORE, SECONDARY)
            )
            return core, secondary
        positive = [c for c in case.criteria if c.points > 0]
        core = [c.criterion for c in positive if c.points >= self.core_points]
        return core, [c.criterion for c in positive if c.points < self.core_points]

    def scores(self, run: Subject, found: Findings) -> dict[str, float | None]:
        """Case id → the mean of all rounds; None where one of them has no score."""
        means: dict[str, float | None] = {}
        for case, answer in run.answered():
            given = [
                found.get(question, ChecklistReply)
                for question in self._rounds(case, answer)
            ]
            scores = [reply.score for reply in given if reply is not None]
            means[case.case_id] = (
                sum(scores) / len(scores) if len(scores) == self.rounds else None
            )
        return means

    def results(self, material: Material, found: Findings) -> Results:
        """Usability by model and category, and how far the rounds agree."""
        rows: list[list[Cell]] = []
        by_category: list[list[Cell]] = []
        figures: dict[str, float | None] = {}
        categories = list(
            dict.fromkeys(c.theme or "none" for run in material for c in run.cases)
        )
        stable = equal = 0
        judged: list[Judged] = []
        for run in material:
            means = self.scores(run, found)
            usable = {
                case_id: float(mean >= self.usable)
                for case_id, mean in means.items()
                if mean is not None
            }
            cases = [case for case in run.cases if case.case_id in usable]
            judged += [
                Judged(run.label, c, bool(usable[c.case_id]), means[c.case_id] or 0.0)
                for c in cases
            ]
            values = [usable[case.case_id] for case in cases]
            figures[run.label] = _mean(values)
            bounds = bounds_by_case(values, cases, draws=self.draws, seed=self.seed)
            score = _mean(mean for mean in means.values() if mean is not None)
            missing = len(means) - len(cases), len(run.cases) - len(means)
            rows.append(
                [run.label, len(cases), figures[run.label], *bounds, score, *missing]
            )
            mine = [
                _mean([usable[c.case_id] for c in cases if (c.theme or "none") == one])
                for one in categories
            ]
            of_five = [value for value in mine if value is not None]
            by_category.append(
                [
                    run.label,
                    *mine,
                    _mean(of_five) if len(of_five) == len(categories) else None,
                ]
            )
            for case, answer in run.answered():
                given = {
                    reply.score
                    for q in self._rounds(case, answer)
                    if (reply := found.get(q, ChecklistReply))
                }
                stable += bool(given)
                equal += len(given) == 1
        titles = (
            "model",
            "answers",
            "usable",
            "low",
            "high",
            "mean score",
            "ungraded",
            "unanswered",
        )
        note = f"Usable: the mean of {self.rounds} rounds is {self.usable:g} or more. Every answer counts the same."
        plain = "The share of usable answers. Plain mean: of the categories, whatever their size, as in the paper."
        tables = [
            Table("Usability", titles, rows, note),
            Table(
                "Usability by category",
                ["model", *categories, "plain mean"],
                by_category,
                plain,
            ),
        ]
        notes = (
            [f"{equal} of {stable} answers have one score in every round"]
            if self.rounds > 1
            else []
        )
        if self.people:
            more, said = compare_with_people(
                self.people, judged, draws=self.draws, seed=self.seed
            )
            tables, notes = tables + more, notes + said
        return Results(tables, figures, notes)


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return float(np.mean(found)) if found else None
