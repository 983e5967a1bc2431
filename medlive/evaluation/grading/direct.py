"""The direct judge, a baseline for rubrics: a model is asked for one score of each answer as a whole.

`direct_work` makes the questions, `read_direct` reads the scores. The log is `direct.jsonl` beside the grades; scoring
never reads it. The judge sees question and answer, no rubric and no physician's advice (LiveMedBench §4.2;
docs/method.md §3).
"""

import re
from pathlib import Path

from pydantic import Field

from medlive.errors import UsageError
from medlive.evaluation.model import Answer, EvaluationCase, gradable
from medlive.evaluation.runs.folder import open_run
from medlive.grader.reply import Words
from medlive.llm.ask import ReplyModel
from medlive.llm.engine import EngineIdentity
from medlive.llm.statements import words_before

from .questions import Question, Source, read_findings

DIRECT = "direct.jsonl"
_SCORED = re.compile(r"\bscore\b[^\w:=]*+[:=]\W*+([01](?:\.\d+)?)", re.IGNORECASE)
"""A score that the words before a reply's JSON state."""


class DirectReply(ReplyModel):
    """`grader.direct`: one score of an answer. Inputs: language, question (narrative, blank line, query), answer.
    `score` is a JSON number from 0 to 1."""

    task = "grader.direct"
    reasoning: Words
    score: float = Field(ge=0, le=1, allow_inf_nan=False)


def direct_work(
    run_dir: Path,
    identity: EngineIdentity,
) -> tuple[Source, Path]:
    """For `ask_questions` and `plan_questions`: a score of every answer that can be judged, and the log.

    Raises UsageError for an engine that has no such task.
    """
    if identity.engine == "rules":
        raise UsageError(
            "the rules engine gives no score of a whole answer",
            hint="name a model: --grader and --base-url",
        )
    questions = _questions(run_dir)
    return lambda _: questions, run_dir / DIRECT


def read_direct(
    run_dir: Path,
    notes: list[str],
) -> tuple[str, dict[str, float | None]]:
    """The model of the direct judge with the most scores of the current answers, and its scores by case.

    Of equal judges the one that wrote last counts. None is a case that was asked about without getting a score. Damaged
    lines are listed in `notes`.
    """
    questions = _questions(run_dir)
    last, damaged = read_findings(run_dir / DIRECT)
    notes += damaged
    judge = last.fullest(questions)
    scores: dict[str, float | None] = {}
    for question in questions:
        if judge.find(question):
            reply = judge.get(question, DirectReply)
            scores[question.case_id] = reply.score if reply else None
    return judge.identity.model, scores


def _questions(run_dir: Path) -> list[Question]:
    """A question about each answer of a run that can be judged."""
    run = open_run(run_dir)
    asked = gradable(run.cases, run.answers()[0])
    return [direct_question(case, answer) for case, answer in asked]


def direct_question(case: EvaluationCase, answer: Answer) -> Question:
    """The question for a score of an answer."""

    def fault_of(text: str, read: DirectReply) -> str | None:
        stated = _SCORED.findall(words_before(text))
        if stated and float(stated[-1]) != read.score:
            return "the words before the JSON object give another score"
        return None

    inputs = {
        "language": case.language,
        "question": case.question,
        "answer": answer.response,
    }
    return Question(
        case_id=case.case_id,
        part="answer",
        inputs=inputs,
        reply=DirectReply,
        check_text=fault_of,
    )
