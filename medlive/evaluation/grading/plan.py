"""What grading would take, before any call is made. Nothing is sent."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from medlive.evaluation.asking.plan import (
    CHARACTERS_A_TOKEN,
    Call,
    Plan,
    Sample,
    plan_calls,
    sent_text,
)
from medlive.evaluation.asking.run import AN_ANSWER
from medlive.evaluation.grading.grade import open_work, read_record
from medlive.evaluation.grading.repeats import later_rounds
from medlive.evaluation.grading.work import Work
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    EvaluationCase,
    Grade,
    Origin,
    gradable,
    grade_keys,
)
from medlive.evaluation.runs.folder import GRADES, open_run, read_grades
from medlive.grader.judge import Judge, Mode
from medlive.llm.engine import EngineIdentity
from medlive.llm.wire import Price


def plan_grading(
    run_dir: Path,
    identity: EngineIdentity,
    *,
    mode: Mode = Mode.RUBRIC,
    concurrency: int = 16,
    allow_unpinned: bool = False,
    price: Price | None = None,
    repeats: int = 1,
    ahead: Sequence[EvaluationCase] = (),
) -> Plan:
    """What `grade_run`, and `repeat_run` after it, would ask, if no reply had to be asked for twice.

    `ahead` are the cases of a run that may not have begun: those without an answer are taken to get one of
    AN_ANSWER tokens. `about` counts criteria of answers that can be graded, verdicts of the run folder, and
    verdicts of rounds after the first that are asked for besides.
    """
    run = None if ahead and not (run_dir / "run.json").exists() else open_run(run_dir)
    answers, known = (run.answers()[0], run.cases) if run else ({}, ahead)
    answered = {case.case_id for case, _ in gradable(known, answers)}
    answers = dict(answers)
    for case in ahead:
        if case.case_id not in answered:
            answers[case.case_id] = assumed_answer(case)
    judge = Judge(identity, mode, allow_unpinned=allow_unpinned)
    record = read_record(run_dir / GRADES, judge.digest)
    total = sum(len(case.criteria) for case, _ in gradable(known, answers))
    settled = total - _criteria(open_work(known, answers, judge, record))
    later = list(later_rounds(run, judge, repeats)) if run else []
    cases = {case.case_id: case for case in known}
    works = chain(open_work(known, answers, judge, record), later)
    return plan_calls(
        map(partial(_call, judge), works),
        _samples(cases, answers, judge, read_grades(run_dir / GRADES)[0]),
        about={
            "criteria": total,
            "settled": settled,
            "repeated": _criteria(later),
        },
        price=price,
        concurrency=concurrency,
    )


def _criteria(works: Iterable[Work]) -> int:
    return sum(len(work.criteria) for work in works)


def assumed_answer(case: EvaluationCase) -> Answer:
    """An answer of AN_ANSWER tokens in the case's language."""
    letter, script = ("字", "Han") if case.language == "zh" else ("a", "ASCII")
    text = letter * round(AN_ANSWER * CHARACTERS_A_TOKEN[script])
    return Answer(case.case_id, AnswerState.OK, text, "stop", "")


def _samples(
    cases: Mapping[str, EvaluationCase],
    answers: Mapping[str, Answer],
    judge: Judge,
    grades: Sequence[Grade],
) -> Iterator[Sample]:
    """The calls on record: a call's first row has its usage, rows of its case without one belong to it too."""
    calls: list[list[Grade]] = []
    for grade in grades:
        if grade.judge != judge.digest or grade.origin is Origin.CACHE:
            continue
        if grade.usage:
            calls.append([grade])
        elif calls and calls[-1][0].case_id == grade.case_id:
            calls[-1].append(grade)
    for rows in calls:
        case, answer = cases.get(rows[0].case_id), answers.get(rows[0].case_id)
        if case is None or answer is None:
            continue
        asked = {row.key for row in rows}
        keys = grade_keys(case, answer, judge.digest)
        criteria = tuple(c for c in case.criteria if keys[c.id] in asked)
        if len(criteria) == len(rows):
            yield Sample(_call(judge, Work(case, answer, criteria)), rows[0].usage)


def _call(judge: Judge, work: Work) -> Call:
    return Call(
        work.case.language, sent_text(judge.request(work.call)), len(work.criteria)
    )
