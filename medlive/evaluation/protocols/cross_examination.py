"""MEDIC's cross-examination: questions from each of two texts are put to both; no rubric is needed.

The document is the case's advice and the other text the answer: coverage finds what the answer leaves out, conformity
what it contradicts, consistency what it adds (seed 004 appendix A.4; docs/method.md §5). How many questions their own
text answers with yes when it is asked again (stability) shows how far they can be trusted. Prompts, checks and formulas
are those that curation uses on thread and case.
"""

from collections.abc import Iterator, Sequence

from medlive.curation.cross_examination import (
    MAX_TEXT,
    check_answers,
    check_questions,
    compare,
    number_questions,
)
from medlive.curation.model import CrossExamination
from medlive.curation.tasks import AnswersReply, QuestionsReply
from medlive.evaluation.grading.questions import JudgeReplies, Question
from medlive.evaluation.model import Answer, EvaluationCase

from .model import (
    Figures,
    Material,
    Records,
    Results,
    SampledProtocol,
    Table,
    has_reference,
    mean,
)

COUNT = 10
"""Questions made of each text, at most."""
SCORES = (
    "coverage",
    "conformity",
    "conformity_strict",
    "consistency",
    "conciseness",
    "summary",
    "stability",
)
"""The columns of the table, in percent."""


class CrossExamine(SampledProtocol):
    """Cross-examination of advice and answer; see the module."""

    name = "cross-examination"
    about = "what an answer leaves out, contradicts and adds to the advice (MEDIC)"
    figure = "mean of coverage, conformity and consistency, 0 to 100"

    @classmethod
    def fits(cls, material: Material) -> bool:
        """Whether the cases have a reference, with no error planted in it."""
        return has_reference(material)

    def questions_about(
        self,
        case: EvaluationCase,
        answer: Answer,
        replies: JudgeReplies,
    ) -> Iterator[Question]:
        """Questions from both texts, then all of them to both texts."""
        if case.advice.strip():
            making = list(self._making(case, answer))
            yield from making
            made = replies.get_all(making, QuestionsReply)
            if made is not None:
                yield from self._putting(case, answer, made)

    def _making(
        self,
        case: EvaluationCase,
        answer: Answer,
    ) -> Iterator[Question]:
        """The calls that make questions of the document, and of the answer."""
        for name, text in _texts(case, answer).items():
            inputs = {
                "language": case.language,
                "count": COUNT,
                "text": text[:MAX_TEXT],
            }
            yield Question(
                case_id=case.case_id,
                part=f"questions of {name}",
                inputs=inputs,
                reply=QuestionsReply,
                check=lambda reply: check_questions(reply, COUNT),
            )

    def _putting(
        self,
        case: EvaluationCase,
        answer: Answer,
        made: Sequence[QuestionsReply],
    ) -> Iterator[Question]:
        """The calls that put all questions to the document, and to the answer."""
        asked = number_questions(made)
        for name, text in _texts(case, answer).items():
            inputs = {
                "language": case.language,
                "text": text[:MAX_TEXT],
                "questions": asked,
            }
            yield Question(
                case_id=case.case_id,
                part=f"answers of {name}",
                inputs=inputs,
                reply=AnswersReply,
                check=lambda reply: check_answers(reply, asked),
            )

    def examined(
        self,
        case: EvaluationCase,
        answer: Answer,
        replies: JudgeReplies,
    ) -> CrossExamination | None:
        """The scores of one answer; None while a reply is missing."""
        made = replies.get_all(self._making(case, answer), QuestionsReply)
        if made is None:
            return None
        answers = replies.get_all(self._putting(case, answer, made), AnswersReply)
        if answers is None:
            return None
        return compare(made, answers, case.advice, answer.response)

    def results(
        self,
        material: Material,
        replies: JudgeReplies,
    ) -> Results:
        """The mean of each score by model."""
        rows: Records = []
        figures: Figures = {}
        for run in material:
            asked = 0
            cases: list[EvaluationCase] = []
            scored: list[CrossExamination] = []
            for case, answer in run.answered():
                if not case.advice.strip():
                    continue
                asked += 1
                scores = self.examined(case, answer, replies)
                if scores is not None:
                    cases.append(case)
                    scored.append(scores)
            wholes = [s.coverage + s.conformity + s.consistency for s in scored]
            shares = [whole / 300 for whole in wholes]
            figure, low, high = (
                None if share is None else 100 * share
                for share in (mean(shares), *self.interval(shares, cases))
            )
            figures[run.label] = figure
            percents = {}
            for name in SCORES:
                values = [getattr(scores, name) for scores in scored]
                percents[name.replace("_", " ")] = mean(values)
            rows.append(
                {
                    "model": run.label,
                    "answers": len(scored),
                    "figure": figure,
                    "low": low,
                    "high": high,
                    **percents,
                    "ungraded": asked - len(scored),
                    "left out": len(run.cases) - asked,
                }
            )
        note = (
            "Percent; conformity strict counts what the answer does not say against it. Stability: questions that "
            "their own text answers with yes. Left out: no answer, or no document."
        )
        return Results([Table.of_rows("Cross-examination", rows, note)], figures)


def _texts(case: EvaluationCase, answer: Answer) -> dict[str, str]:
    return {"the document": case.advice, "the answer": answer.response}
