"""MEDIC's cross-examination: each of two texts is asked what the other says; no reference and no rubric.

The document is the case's advice and the other text the answer, or both are a pair of a file: coverage finds what
the other text leaves out, conformity what it contradicts, consistency what it adds (seed 004 appendix A.4;
docs/method.md §5). Questions that a text answers with yes are asked of it again, which shows how far they can be
trusted. Prompts, checks and formulas are those that curation uses on thread and case.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Final

import numpy as np
from pydantic import Field

from medlive.curation.cross_examination import (
    MAX_TEXT,
    check_answers,
    check_questions,
    compare,
    number_questions,
)
from medlive.curation.model import CrossExamination
from medlive.curation.tasks import AnswersReply, QuestionsReply
from medlive.evaluation.grading.questions import Findings, Question
from medlive.evaluation.model import Answer, EvaluationCase
from medlive.evaluation.protocols.model import (
    Cell,
    Material,
    Protocol,
    Results,
    Subject,
    Table,
    bounds_by_case,
    has_reference,
)

SCORES: Final = (
    "coverage",
    "conformity",
    "conformity_strict",
    "consistency",
    "conciseness",
    "summary",
    "stability",
)


class CrossExamine(Protocol):
    """See the module."""

    name: ClassVar[str] = "cross-examination"
    about: ClassVar[str] = (
        "what an answer leaves out, contradicts and adds to the advice (MEDIC)"
    )
    figure: ClassVar[str] = "mean of coverage, conformity and consistency, 0 to 100"
    of_pairs: ClassVar[bool] = True

    count: Annotated[
        int, Field(ge=1, le=20, description="questions made of each text, at most")
    ] = 10
    brief: Annotated[
        bool,
        Field(description="the figure is the summary score, which rewards brevity"),
    ] = False
    lowest: Annotated[
        int,
        Field(
            ge=0, description="answers that are listed, those with the lowest figures"
        ),
    ] = 10
    draws: Annotated[int, Field(ge=1, description="draws of the bootstrap")] = 1000
    seed: Annotated[int, Field(ge=0, description="where the draws begin")] = 0

    @classmethod
    def fits(cls, material: Material) -> bool:
        """Cases with a reference, and no error planted in it."""
        return has_reference(material)

    def questions(self, material: Material, found: Findings) -> Iterator[Question]:
        """Questions from both texts, then all of them to both texts."""
        for run in material:
            for case, answer in run.answered():
                if case.advice.strip():
                    made = self._made(case, answer)
                    yield from made
                    yield from self._answers(case, answer, made, found)

    def _made(self, case: EvaluationCase, answer: Answer) -> tuple[Question, Question]:
        first, second = (
            Question(
                case_id=case.case_id,
                part=f"questions of {name}",
                task=QuestionsReply.task,
                inputs={
                    "language": case.language,
                    "count": self.count,
                    "text": text[:MAX_TEXT],
                },
                reply=QuestionsReply,
                check=lambda reply: check_questions(reply, self.count),
                package="medlive.curation",
            )
            for name, text in (
                ("the document", case.advice),
                ("the answer", answer.response),
            )
        )
        return first, second

    def _answers(
        self,
        case: EvaluationCase,
        answer: Answer,
        made: tuple[Question, Question],
        found: Findings,
    ) -> list[Question]:
        """All questions put to the document, and to the answer; none while questions are missing."""
        replies = [reply for one in made if (reply := found.get(one, QuestionsReply))]
        if len(replies) < len(made):
            return []
        asked = number_questions(replies)
        return [
            Question(
                case_id=case.case_id,
                part=f"answers of {name}",
                task=AnswersReply.task,
                inputs={
                    "language": case.language,
                    "text": text[:MAX_TEXT],
                    "questions": asked,
                },
                reply=AnswersReply,
                check=lambda reply: check_answers(reply, asked),
                package="medlive.curation",
            )
            for name, text in (
                ("the document", case.advice),
                ("the answer", answer.response),
            )
        ]

    def examined(
        self, case: EvaluationCase, answer: Answer, found: Findings
    ) -> CrossExamination | None:
        """The scores of one answer; None while a reply is missing."""
        made = self._made(case, answer)
        questions = [reply for one in made if (reply := found.get(one, QuestionsReply))]
        said = [
            r
            for q in self._answers(case, answer, made, found)
            if (r := found.get(q, AnswersReply))
        ]
        return (
            compare(questions, said, case.advice, answer.response)
            if len(said) == len(made)
            else None
        )

    def results(self, material: Material, found: Findings) -> Results:
        """The mean of each score by model, and the answers with the lowest figures."""
        rows: list[list[Cell]] = []
        each: list[tuple[float, list[Cell]]] = []
        figures: dict[str, float | None] = {}
        for run in material:
            asked = [
                (case, answer) for case, answer in run.answered() if case.advice.strip()
            ]
            scored = [
                (case, one)
                for case, answer in asked
                if (one := self.examined(case, answer, found))
            ]
            rows.append(row := self._row(run, len(asked), scored))
            figures[run.label] = row[2] if isinstance(row[2], float) else None
            for case, one in scored:
                scores: list[Cell] = [getattr(one, name) for name in SCORES]
                each.append(
                    (
                        self._figure(one),
                        [run.label, case.case_id, self._figure(one), *scores],
                    )
                )
        named = [name.replace("_", " ") for name in SCORES]
        titles = (
            "model",
            "answers",
            "figure",
            "low",
            "high",
            *named,
            "ungraded",
            "left out",
        )
        note = (
            "Percent; conformity strict counts what the answer does not say against it. Stability: questions that "
            "their own text answers with yes. Left out: no answer, or no document."
        )
        tables = [Table("Cross-examination", titles, rows, note)]
        if listed := [
            row for _, row in sorted(each, key=lambda one: one[0])[: self.lowest]
        ]:
            of = f"{len(listed)} of {len(each)}; the option `lowest` says how many."
            tables.append(
                Table(
                    "The lowest figures",
                    ["model", "case", "figure", *named],
                    listed,
                    of,
                )
            )
        return Results(tables, figures)

    def _figure(self, one: CrossExamination) -> float:
        return (
            one.summary
            if self.brief
            else (one.coverage + one.conformity + one.consistency) / 3
        )

    def _row(
        self,
        run: Subject,
        asked: int,
        scored: Sequence[tuple[EvaluationCase, CrossExamination]],
    ) -> list[Cell]:
        lost: list[Cell] = [asked - len(scored), len(run.cases) - asked]
        if not scored:
            return [run.label, 0, *([None] * (3 + len(SCORES))), *lost]
        figure = [self._figure(one) for _, one in scored]
        shares, cases = [value / 100 for value in figure], [case for case, _ in scored]
        ends = bounds_by_case(shares, cases, draws=self.draws, seed=self.seed)
        bounds: list[Cell] = [None if end is None else 100 * end for end in ends]
        means: list[Cell] = [
            float(np.mean([getattr(one, name) for _, one in scored])) for name in SCORES
        ]
        return [run.label, len(scored), float(np.mean(figure)), *bounds, *means, *lost]
