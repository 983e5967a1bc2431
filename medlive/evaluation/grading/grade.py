"""Grading a run: every criterion of every answer met, not met, or ungraded with its reason.

A verdict is found again in `grades.jsonl` by what it rests on, so a repeated run asks only for what is new, was
edited, or had stayed ungraded.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from medlive.evaluation.model import (
    Answer,
    CallsMade,
    EvaluationCase,
    EvaluationCriterion,
    Grade,
    Origin,
    gradable,
    grade_keys,
    kind_of,
)
from medlive.evaluation.runs.folder import GRADES, grades_of, open_run
from medlive.grader.judge import GradingCall, Judge, Mode, Verdicts
from medlive.integrity.log import open_log
from medlive.llm.ask import MOST_RAW, Asked, Asker
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine
from medlive.llm.pool import Progress, work_through


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeResult(CallsMade):
    """How a run stands after grading."""

    path: Path
    criteria: int
    """Of the answers that can be graded."""
    met: int
    not_met: int
    reused: int
    """Verdicts that were there before and cost nothing."""
    unanswered: tuple[str, ...]
    """Cases without an answer to grade."""
    reasons: Mapping[str, int]
    """Why criteria are ungraded, the most frequent first."""

    @property
    def ungraded(self) -> int:
        """Criteria without a verdict."""
        return self.left


@dataclass(frozen=True, slots=True)
class Work:
    """One call's criteria."""

    case: EvaluationCase
    answer: Answer
    criteria: tuple[EvaluationCriterion, ...]
    round: int = 0
    """As in `GradingCall`."""

    @property
    def call(self) -> GradingCall:
        """What is asked."""
        return GradingCall(
            self.case.language,
            self.case.question,
            self.answer.response,
            self.criteria,
            self.round,
        )


@dataclass(slots=True)
class Record:
    """The verdicts on record for one judge, by key; the grader's texts are not kept, a run may be long."""

    latest: dict[str, Grade] = field(default_factory=dict)
    unusable: Counter[str] = field(default_factory=Counter)
    """Replies that held no verdict, by the key they were asked for."""
    notes: list[str] = field(default_factory=list)

    def put(self, grade: Grade) -> None:
        """The newest verdict of its key."""
        self.latest[grade.key] = replace(
            grade,
            raw="",
            quote="",
            reasoning="",
        )


def read_record(path: Path, judge: str) -> Record:
    """What a log holds of the judge with that digest."""
    record = Record()
    for grade in grades_of(path, record.notes):
        if grade.judge == judge:
            record.put(grade)
            record.unusable[grade.key] += grade.met is None and bool(grade.grader)
    return record


def settles(judge: Judge, grade: Grade | None) -> bool:
    """Whether what is on record is a verdict by a model that counts: nothing is left to ask."""
    if grade is None or grade.met is None:
        return False
    return judge.identity.accepts(grade.grader)


def open_work(
    cases: Iterable[EvaluationCase],
    answers: Mapping[str, Answer],
    judge: Judge,
    record: Record,
) -> Iterator[Work]:
    """The calls that are left to make: every criterion of a gradable answer without a settled verdict, the calls
    of a case after each other."""
    for case, answer in gradable(cases, answers):
        keys = grade_keys(case, answer, judge.digest)
        unsettled = []
        for criterion in case.criteria:
            if not settles(judge, record.latest.get(keys[criterion.id])):
                unsettled.append(criterion)
        for part in judge.parts(unsettled):
            unusable = [record.unusable[keys[criterion.id]] for criterion in part]
            yield Work(case, answer, part, max(unusable))


async def grade_run(
    run_dir: Path,
    engine: Engine,
    *,
    mode: Mode = Mode.RUBRIC,
    concurrency: int = 16,
    max_retries: int = 1,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> GradeResult:
    """Grade every answer of the run that can be graded and is not graded yet by this engine, mode and prompt.

    A reply that cannot be read is returned to the engine `max_retries` times with what is wrong with it; what
    stays unread is `ungraded`. Replies by another model count only for an engine that is not pinned. When
    `budget` is spent, calls under way are finished and kept, and the result says `stopped`. Raises Locked when
    another process grades the same folder, ConfigError when every reply comes from another model or none of the
    first can be read, EndpointUnavailable when the endpoint seems dead; what was graded by then is kept.
    """
    judge = Judge(engine.identity, mode)
    asker = open_asker(engine, max_retries, concurrency, budget)
    run = open_run(run_dir)
    answers, notes = run.answers()
    keys: list[str] = []
    unanswered = dict.fromkeys(case.case_id for case in run.cases)
    for case, answer in gradable(run.cases, answers):
        unanswered.pop(case.case_id, None)
        keys += grade_keys(case, answer, judge.digest).values()
    with open_log(run.path / GRADES) as log:
        record = read_record(run.path / GRADES, judge.digest)
        reused = sum(settles(judge, record.latest.get(key)) for key in keys)
        asker.readable = reused > 0

        def keep(work: Work, grade: Grade) -> None:
            log.add(grade.row())
            record.put(grade)

        stopped = await work_through(
            open_work(run.cases, answers, judge, record),
            partial(ask_work, judge, asker, keep),
            concurrency,
            done=reused,
            total=len(keys),
            progress=progress,
        )
    counts: Counter[bool | None] = Counter()
    reasons: Counter[str] = Counter()
    for key in keys:
        verdict = record.latest.get(key)
        met = verdict.met if verdict else None
        counts[met] += 1
        if met is None:
            reasons[kind_of(verdict.reason) if verdict else "not asked yet"] += 1
    return GradeResult(
        path=run.path,
        criteria=len(keys),
        met=counts[True],
        not_met=counts[False],
        left=counts[None],
        reused=reused,
        calls=asker.calls,
        unanswered=tuple(unanswered),
        reasons=dict(reasons.most_common()),
        notes=(*notes, *record.notes),
        stopped=stopped,
        silence=asker.silence,
    )


async def ask_work(
    judge: Judge,
    asker: Asker,
    keep: Callable[[Work, Grade], None],
    work: Work,
) -> int:
    """Ask for a call's verdicts and hand each to `keep`; how many criteria the call has."""
    verdicts = Verdicts(judge, work.call)
    asked = await asker.ask(judge.request(work.call), verdicts.read)
    for grade in make_grades(work, verdicts, asked):
        keep(work, grade)
    return len(work.criteria)


def make_grades(
    work: Work,
    verdicts: Verdicts,
    asked: Asked[Any],
    origin: Origin = "call",
) -> list[Grade]:
    """A call's criteria as rows of the log; the usage of all attempts stands with the first.

    A reply that several criteria share stands whole with the first of them and with those it did not grade.
    """
    judge = verdicts.judge
    keys = grade_keys(work.case, work.answer, judge.digest, work.criteria)
    faults = verdicts.faults if asked.fault is verdicts.fault else {}
    grades: list[Grade] = []
    shown: set[int] = set()
    for criterion in work.criteria:
        verdict, reply = verdicts.by_criterion.get(criterion.id, (None, asked.last))
        raw = ""
        if reply is not None and (verdict is None or id(reply) not in shown):
            raw = reply.text[:MOST_RAW]
        shown.add(id(reply))
        grade = Grade(
            case_id=work.case.case_id,
            criterion_id=criterion.id,
            key=keys[criterion.id],
            met=verdict.met if verdict else None,
            quote=verdict.quote if verdict else "",
            reasoning=verdict.reasoning if verdict else "",
            reason="" if verdict else faults.get(criterion.id, asked.reason),
            raw=raw,
            grader=reply.model if reply else "",
            engine=judge.identity.engine,
            model=judge.identity.model,
            mode=judge.mode,
            prompt=judge.prompt.digest,
            judge=judge.digest,
            usage={} if grades else asked.usage,
            origin=origin,
            whole=bool(verdict and verdict.whole),
        )
        grades.append(grade)
    return grades


async def grade_answer(
    case: EvaluationCase,
    answer: Answer,
    engine: Engine,
    *,
    mode: Mode = Mode.RUBRIC,
) -> tuple[Grade, ...]:
    """One answer's verdicts, in the rubric's order, as `grade_run` makes them, for harnesses with a log of their own.

    Empty for an answer that cannot be graded. Raises as `grade_run`, but for Locked.
    """
    if not answer.gradable:
        return ()
    judge = Judge(engine.identity, mode)
    grades: dict[str, Grade] = {}
    asker = open_asker(engine, 1, len(case.criteria))

    def keep(_: Work, grade: Grade) -> None:
        grades[grade.criterion_id] = grade

    calls = []
    for part in judge.parts(case.criteria):
        calls.append(ask_work(judge, asker, keep, Work(case, answer, part)))
    await asyncio.gather(*calls)
    return tuple(grades[criterion.id] for criterion in case.criteria)


def open_asker(
    engine: Engine,
    repairs: int,
    concurrency: int,
    budget: Budget | None = None,
) -> Asker:
    """Asks the grader."""
    return Asker(
        engine,
        "grader",
        repairs=repairs,
        concurrency=concurrency,
        budget=budget,
    )
