"""LLMEval-Med's checklist scoring: an answer is usable where the mean of three rounds is 4 or more of 5.

On its own questions core and secondary requirements are the published checklist's; on medlive's cases they are the
positive criteria, core where they have `core_points` or more (seed 003 §3.2, appendices C, D; docs/method.md §4).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from medlive.evaluation.grading.questions import JudgeReplies, Question
from medlive.evaluation.model import Answer, EvaluationCase
from medlive.evaluation.protocols.checklist.people import (
    Judged,
    compare_with_people,
    read_people,
)
from medlive.evaluation.protocols.model import (
    Cell,
    DrawsOption,
    Material,
    Protocol,
    Results,
    Rows,
    SeedOption,
    Table,
    bounds_by_case,
    cases_of,
    has_reference,
    mean,
    whole_mean,
)
from medlive.evaluation.scoring.graded import GradedRun
from medlive.grader.reply import Words
from medlive.llm.ask import ReplyModel

CATEGORIES: Final = (
    "Medical Knowledge",
    "Medical Language Understanding",
    "Medical Reasoning",
    "Medical Safety and Ethics",
    "Medical Text Generation",
)
CORE: Final = "core"
SECONDARY: Final = "secondary"
"""The axes of a rubric that is such a checklist itself."""
DEFAULT_CATEGORY: Final = "Medical Reasoning"
"""Of cases that no published category fits: a patient's question is answered by inference."""


class ChecklistReply(ReplyModel):
    """`protocol.checklist`: a score of 1 to 5.

    Inputs: language, category, reference, core, secondary, question, answer.
    """

    task = "protocol.checklist"
    reasoning: Words
    score: int = Field(ge=1, le=5)


def _checked(people: Path | None) -> Path | None:
    """The file, before anything is asked. Raises BadInput where it cannot be read."""
    if people is not None:
        read_people(people)
    return people


class Checklist(Protocol):
    """See the module."""

    name = "checklist"
    about = "usable or not, by reference and checklist, three rounds (LLMEval-Med)"
    figure = "usability rate, 0 to 1"

    rounds: int = Field(
        default=3,
        ge=1,
        le=20,
        description="how often each answer is scored",
    )
    usable: float = Field(
        default=4.0,
        ge=1,
        le=5,
        description="the mean score from which on an answer is usable",
    )
    core_points: float = Field(
        default=7.0,
        gt=0,
        description="points from which on a criterion is core",
    )
    people: Annotated[
        Path | None,
        AfterValidator(_checked),
        Field(description="people's ratings, a CSV or JSON Lines file"),
    ] = None
    draws: DrawsOption = 1000
    seed: SeedOption = 0

    @classmethod
    def fits(cls, material: Material) -> bool:
        """Cases with a reference, and no error planted in it."""
        return has_reference(material)

    def questions(
        self,
        material: Material,
        replies: JudgeReplies,
    ) -> Iterator[Question]:
        """Every answer, once for each round."""
        for run in material:
            for case, answer in run.answered():
                yield from self._rounds(case, answer)

    def _rounds(
        self,
        case: EvaluationCase,
        answer: Answer,
    ) -> list[Question]:
        core: list[str] = []
        secondary: list[str] = []
        published = {c.axis for c in case.criteria} <= {CORE, SECONDARY}
        for criterion in case.criteria:
            is_core = criterion.points >= self.core_points
            if published:
                is_core = criterion.axis == CORE
            if is_core:
                core.append(criterion.criterion)
            elif published or criterion.points > 0:
                secondary.append(criterion.criterion)
        inputs = {
            "language": case.language,
            "category": case.theme if case.theme in CATEGORIES else DEFAULT_CATEGORY,
            "reference": case.advice,
            "core": core,
            "secondary": secondary,
            "question": case.question,
            "answer": answer.response,
        }
        questions = []
        for n in range(self.rounds):
            questions.append(
                Question(
                    case_id=case.case_id,
                    part=f"round {n + 1}",
                    inputs=inputs,
                    reply=ChecklistReply,
                    round=n,
                )
            )
        return questions

    def scores(
        self,
        run: GradedRun,
        replies: JudgeReplies,
    ) -> dict[str, float | None]:
        """Case id → the mean of all rounds; None where one of them has no score."""
        means: dict[str, float | None] = {}
        for case, answer in run.answered():
            rounds = replies.get_all(self._rounds(case, answer), ChecklistReply)
            scores = [reply.score for reply in rounds or ()]
            means[case.case_id] = mean(scores)
        return means

    def results(
        self,
        material: Material,
        replies: JudgeReplies,
    ) -> Results:
        """Usability by model and category, and beside people's ratings."""
        categories = dict.fromkeys(case.theme or "none" for case in cases_of(material))
        usability: Rows = []
        by_category: Rows = []
        figures: dict[str, float | None] = {}
        judged: list[Judged] = []
        for run in material:
            means = self.scores(run, replies)
            own = []
            for case in run.cases:
                score = means.get(case.case_id)
                if score is not None:
                    own.append(Judged(run.label, case, score >= self.usable, score))
            judged += own
            values = [float(judgement.usable) for judgement in own]
            cases = [judgement.case for judgement in own]
            figures[run.label] = mean(values)
            row: list[Cell] = [run.label, len(own), mean(values)]
            row += bounds_by_case(
                values,
                cases,
                draws=self.draws,
                seed=self.seed,
            )
            row.append(mean([judgement.score for judgement in own]))
            row += [len(means) - len(own), len(run.cases) - len(means)]
            usability.append(row)
            shares = []
            for name in categories:
                of_category = [
                    j.usable for j in own if (j.case.theme or "none") == name
                ]
                shares.append(mean(of_category))
            by_category.append([run.label, *shares, whole_mean(shares)])
        titles = ["model", "answers", "usable", "low", "high", "mean score"]
        titles += ["ungraded", "unanswered"]
        note = f"Usable: the mean of {self.rounds} rounds is {self.usable:g} or more. Every answer counts the same."
        plain = "The share of usable answers. Plain mean: of the categories, whatever their size, as in the paper."
        columns = ["model", *categories, "plain mean"]
        tables = [
            Table("Usability", titles, usability, note),
            Table("Usability by category", columns, by_category, plain),
        ]
        notes: list[str] = []
        if self.people:
            people_tables, notes = compare_with_people(
                self.people,
                judged,
                draws=self.draws,
                seed=self.seed,
            )
            tables += people_tables
        return Results(tables, figures, notes)
