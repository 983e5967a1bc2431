"""MEDIC's cross-examination: each of two texts is asked what the other says; no reference and no rubric.

The document is the case's advice, the other text the answer: coverage finds what the answer leaves out, conformity
what it contradicts, consistency what it adds (seed 004 appendix A.4; docs/method.md §5). Questions that a text
answers with yes are asked of it again, which shows how far the questions can be trusted. Prompts and formulas are
those that curation uses on thread and case.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field

from medlive.curation.cross_examination import MAX_TEXT, count_words, score
from medlive.curation.model import CrossExamination, CrossQuestion, Origin
from medlive.curation.tasks import AnswersReply, QuestionsReply
from medlive.evaluation.grading.questions import Findings, Question
from medlive.evaluation.model import Answer, EvaluationCase, cluster_numbers
from medlive.evaluation.protocols.model import (
    Cell,
    Material,
    Protocol,
    Results,
    Subject,
    Table,
    has_reference,
)
from medlive.statistics.bootstrap import bootstrap_means, bounds_of

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
    about: ClassVar[str] = "what an answer leaves out, contradicts and adds to the advice (MEDIC)"
    figure: ClassVar[str] = "mean of coverage, conformity and consistency, 0 to 100"

    count: Annotated[int, Field(ge=1, le=20, description="questions made of each text, at most")] = 10
    brief: Annotated[bool, Field(description="the figure is the summary score, which rewards brevity")] = False
    draws: Annotated[int, Field(ge=1, description="draws of the bootstrap")] = 1000
    seed: Annotated[int, Field(ge=0, description="where the draws begin")] = 0

    @classmethod
    def fits(cls, material: Material) -> bool:
        """Cases with a reference, and no error planted in it."""
        return all(has_reference(run.cases) for run in material)

    def questions(self, material: Material, found: Findings) -> Iterator[Question]:
        """Questions from both texts, then all of them to both texts."""
        for run in material:
            for case, answer in run.answered():
                if case.advice.strip():
                    made = self._made(case, answer)
                    yield from made
                    yield from self._answers(case, answer, made, found)

    def _made(self, case: EvaluationCase, answer: Answer) -> tuple[Question, Question]:
        texts = {"the document": case.advice, "the answer": answer.response}
        first, second = (
            self._question(
                case, f"questions of {name}", QuestionsReply, {"count": self.count, "text": text[:MAX_TEXT]}
            )
            for name, text in texts.items()
        )
        return first, second

    def _answers(
        self, case: EvaluationCase, answer: Answer, made: tuple[Question, Question], found: Findings
    ) -> list[Question]:
        """All questions put to the document, and to the answer; none while questions are missing."""
        asked = [reply.questions for one in made if (reply := found.get(one, QuestionsReply))]
        if len(asked) < len(made):
            return []
        numbered = [
            {"id": f"q{n}", "question": question}
            for n, question in enumerate((q for questions in asked for q in questions), start=1)
        ]
        return [
            self._question(
                case, f"answers of {name}", AnswersReply, {"text": text[:MAX_TEXT], "questions": numbered}
            )
            for name, text in (("the document", case.advice), ("the answer", answer.response))
        ]

    def _question(self, case: EvaluationCase, part: str, reply: Any, inputs: dict[str, Any]) -> Question:
        wanted = [question["id"] for question in inputs.get("questions", ())]

        def check(value: Any) -> str | None:
            if isinstance(value, QuestionsReply):
                more = len(value.questions) - self.count
                return f"{more} more questions than {self.count}" if more > 0 else None
            given = [item.id for item in value.answers]
            return None if sorted(given) == sorted(wanted) else f"answers to {given}, not to {wanted}"

        return Question(
            case_id=case.case_id, part=part, task=reply.task, inputs={"language": case.language, **inputs},
            reply=reply, check=check, package="medlive.curation",
        )  # fmt: skip

    def examined(self, case: EvaluationCase, answer: Answer, found: Findings) -> CrossExamination | None:
        """The scores of one answer; None while a reply is missing."""
        made = self._made(case, answer)
        put = self._answers(case, answer, made, found)
        said = [{a.id: a.answer for a in reply.answers} for q in put if (reply := found.get(q, AnswersReply))]
        if not put or len(said) < len(put):
            return None
        document, other = said
        own = [made_of.questions for one in made if (made_of := found.get(one, QuestionsReply))]
        sources = [source for source, questions in zip(Origin, own, strict=True) for _ in questions]
        asked = [
            CrossQuestion(
                source, one["question"],
                *((document[one["id"]], other[one["id"]]) if source is Origin.THREAD
                  else (other[one["id"]], document[one["id"]])),
            )
            for source, one in zip(sources, put[0].inputs["questions"], strict=True)
        ]  # fmt: skip
        words = {"thread_words": count_words(case.advice), "case_words": count_words(answer.response)}
        return score(asked, **words)

    def results(self, material: Material, found: Findings) -> Results:
        """The mean of each score by model."""
        rows: list[list[Cell]] = []
        figures: dict[str, float | None] = {}
        for run in material:
            rows.append(row := self._row(run, found))
            figures[run.label] = row[2] if isinstance(row[2], float) else None
        named = (name.replace("_", " ") for name in SCORES)
        titles = ("model", "answers", "figure", "low", "high", *named, "ungraded", "left out")
        note = (
            "Percent; conformity strict counts what the answer does not say against it. Stability: questions that "
            "their own text answers with yes. Left out: no answer, or no document."
        )
        return Results([Table("Cross-examination", titles, rows, note)], figures)

    def _row(self, run: Subject, found: Findings) -> list[Cell]:
        asked = [(case, answer) for case, answer in run.answered() if case.advice.strip()]
        scored = [(case, one) for case, answer in asked if (one := self.examined(case, answer, found))]
        lost: list[Cell] = [len(asked) - len(scored), len(run.cases) - len(asked)]
        if not scored:
            return [run.label, 0, *([None] * (3 + len(SCORES))), *lost]
        figure = [
            one.summary if self.brief else (one.coverage + one.conformity + one.consistency) / 3
            for _, one in scored
        ]
        values = np.array(figure)[:, None] / 100
        clusters = cluster_numbers([case for case, _ in scored])
        low, high = bounds_of(
            values, bootstrap_means(values, draws=self.draws, seed=self.seed, clusters=clusters), clusters
        )
        bounds: list[Cell] = [None if np.isnan(b[0]) else 100 * float(b[0]) for b in (low, high)]
        means: list[Cell] = [float(np.mean([getattr(one, name) for _, one in scored])) for name in SCORES]
        return [run.label, len(scored), float(np.mean(figure)), *bounds, *means, *lost]
