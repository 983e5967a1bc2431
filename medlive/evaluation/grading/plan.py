"""What grading would take, before any call is made. Nothing is sent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from medlive.evaluation.asking.plan import Call, Measured, Plan, Sample, measure_calls, plan_calls, sent_text
from medlive.evaluation.grading.cache import GradeCache
from medlive.evaluation.grading.grade import find_cached, open_work, read_record
from medlive.evaluation.grading.judge import Judge, Work
from medlive.evaluation.grading.repeats import later_rounds
from medlive.evaluation.model import Answer, EvaluationCase, Grade, Mode, Origin
from medlive.evaluation.runs.folder import GRADES, open_run
from medlive.evaluation.runs.grades import read_grades
from medlive.llm.engine import EngineIdentity
from medlive.llm.wire import Price


@dataclass(frozen=True, slots=True)
class GradingPlan:
    """What grading a run would take."""

    path: Path
    criteria: int
    """Of the answers that can be graded."""
    settled: int
    """Verdicts in the run folder."""
    cached: int
    """Verdicts that the cache of other runs holds."""
    mode: Mode
    plan: Plan
    repeated: int = 0
    """Verdicts of rounds after the first, asked for besides."""


def plan_grading(
    run_dir: Path,
    identity: EngineIdentity,
    *,
    mode: Mode = Mode.CRITERION,
    concurrency: int = 16,
    allow_unpinned: bool = False,
    price: Price | None = None,
    cache: GradeCache | None = None,
    repeats: int = 1,
) -> GradingPlan:
    """What `grade_run`, and `repeat_run` after it, would ask, if no reply had to be asked for twice.

    Reads the run and the cache only. Money is unknown without a `price`, of the rules as well: an endpoint may
    charge for them.
    """
    run = open_run(run_dir)
    answers, _ = run.answers()
    judge = Judge(identity, mode, allow_unpinned=allow_unpinned)
    record = read_record(run_dir / GRADES, judge.digest)
    gradable = [c for c in run.cases if c.case_id in answers and answers[c.case_id].gradable]
    total = sum(len(case.criteria) for case in gradable)
    settled = total - sum(len(work.criteria) for work in open_work(run.cases, answers, judge, record))
    cached = 0
    if cache is not None:
        for grade in find_cached(cache, run.cases, answers, judge, record):
            record.put(grade)
            cached += 1
    measured = measure(run.cases, answers, judge, read_grades(run_dir / GRADES)[0])
    later = list(later_rounds(run, judge, repeats)) if repeats > 1 else []
    calls = (_call(judge, work) for work in chain(open_work(run.cases, answers, judge, record), later))
    plan = plan_calls(calls, price=price, concurrency=concurrency, measured=measured)
    return GradingPlan(run_dir, total, settled, cached, mode, plan, sum(len(work.criteria) for work in later))


def measure(
    cases: Sequence[EvaluationCase], answers: Mapping[str, Answer], judge: Judge, grades: Sequence[Grade]
) -> Measured:
    """What the judge's calls on record took, against what they are estimated at."""
    return measure_calls(_samples({case.case_id: case for case in cases}, answers, judge, grades))


def _samples(
    cases: Mapping[str, EvaluationCase], answers: Mapping[str, Answer], judge: Judge, grades: Sequence[Grade]
) -> Iterator[Sample]:
    for rows in _calls_on_record(grades, judge.digest):
        case, answer = cases.get(rows[0].case_id), answers.get(rows[0].case_id)
        if case is None or answer is None:
            continue
        ids = {row.criterion_id: row.key for row in rows}
        criteria = tuple(c for c in case.criteria if ids.get(c.id) == judge.key(case, c, answer))
        if len(criteria) == len(rows):
            usage = rows[0].usage
            yield Sample(
                case.language,
                _call(judge, Work(case, answer, criteria)).text,
                usage.get("input_tokens") or 0,
                usage.get("output_tokens") or 0,
                usage.get("latency_ms"),
                len(rows),
            )


def _call(judge: Judge, work: Work) -> Call:
    return Call(work.case.language, sent_text(judge.request(work)), len(work.criteria))


def _calls_on_record(grades: Sequence[Grade], judge: str) -> Iterator[list[Grade]]:
    """The rows of a log call by call: the first holds the usage, those that follow it about its case share it."""
    rows: list[Grade] = []
    for grade in grades:
        if grade.judge != judge or grade.origin is Origin.CACHE:
            continue
        if grade.usage or (rows and grade.case_id != rows[0].case_id):
            if rows:
                yield rows
            rows = [grade] if grade.usage else []
        elif rows:
            rows.append(grade)
    if rows:
        yield rows
