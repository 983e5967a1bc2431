"""What grading would take, before any call is made. Nothing is sent."""

from collections.abc import Sequence
from pathlib import Path

from medlive.evaluation.asking.plan import (
    ASCII_A_TOKEN,
    HAN_A_TOKEN,
    Plan,
    plan_calls,
    sent_text,
)
from medlive.evaluation.asking.run import AN_ANSWER
from medlive.evaluation.grading.grade import Work, open_work, read_record
from medlive.evaluation.grading.repeats import later_rounds
from medlive.evaluation.model import Answer, AnswerState, EvaluationCase, gradable
from medlive.evaluation.runs.folder import GRADES, open_run
from medlive.grader.judge import Judge, Mode
from medlive.llm.engine import EngineIdentity
from medlive.llm.wire import Price


def plan_grading(
    run_dir: Path,
    identity: EngineIdentity,
    *,
    mode: Mode = Mode.RUBRIC,
    price: Price | None = None,
    repeats: int = 1,
    ahead: Sequence[EvaluationCase] = (),
) -> Plan:
    """What `grade_run`, and `repeat_run` after it, would ask, if no reply had to be asked for twice.

    `ahead` is as in `planned_answers`. `about` counts criteria of answers that can be graded, verdicts of the run
    folder, and verdicts of rounds after the first that are asked for besides.
    """
    cases, answers = planned_answers(run_dir, ahead)
    judge = Judge(identity, mode)
    record = read_record(run_dir / GRADES, judge.digest)
    first = list(open_work(cases, answers, judge, record))
    later: list[Work] = []
    if repeats > 1:
        later += later_rounds(open_run(run_dir), judge, repeats, planned=True)
    total = sum(len(case.criteria) for case, _ in gradable(cases, answers))
    calls = []
    for work in [*first, *later]:
        calls.append((sent_text(judge.request(work.call)), len(work.criteria)))
    about = {
        "criteria": total,
        "settled": total - sum(len(work.criteria) for work in first),
        "repeated": sum(len(work.criteria) for work in later),
    }
    return plan_calls(
        calls,
        about=about,
        price=price,
    )


def planned_answers(
    run_dir: Path,
    ahead: Sequence[EvaluationCase],
) -> tuple[Sequence[EvaluationCase], dict[str, Answer]]:
    """The cases of a run and its answers, for those ahead without one an answer of AN_ANSWER tokens.

    `ahead` are the cases of a run that may not have begun.
    """
    cases, answers = ahead, dict[str, Answer]()
    if not ahead or (run_dir / "run.json").exists():
        run = open_run(run_dir)
        cases, answers = run.cases, run.answers()[0]
    answered = {case.case_id for case, _ in gradable(cases, answers)}
    for case in ahead:
        text = "a" * round(AN_ANSWER * ASCII_A_TOKEN)
        if case.language == "zh":
            text = "字" * round(AN_ANSWER * HAN_A_TOKEN)
        if case.case_id not in answered:
            answers[case.case_id] = Answer(
                case.case_id, AnswerState.OK, text, "stop", ""
            )
    return cases, answers
