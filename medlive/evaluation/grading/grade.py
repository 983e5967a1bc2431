"""Grade a run (`grade_run`): every criterion of every answer is met, not met, or ungraded with its reason.

A verdict is found again in `grades.jsonl` by the digest of all that it depends on, so a repeated run asks only for what
is new, was edited, or had stayed ungraded. `plan_grading` says what that would take. `repeat_run` grades the same
answers again for a measure of stability: `repeats.jsonl` holds these rows with their `round`, from 2 (the verdicts that
count are round 1), and scoring never reads it (docs/method.md §3: the same response graded five times).
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import Field

from medlive.evaluation.asking.plan import (
    BYTES_A_TOKEN,
    Plan,
    plan_calls,
    sent_text,
)
from medlive.evaluation.asking.run import AN_ANSWER
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    CallsMade,
    EvaluationCase,
    EvaluationCriterion,
    Grade,
    Origin,
    gradable,
    grade_keys,
    kind_of,
)
from medlive.evaluation.runs.folder import GRADES, RunFolder, grades_of, open_run
from medlive.grader.judge import GradingCall, Judge, Mode
from medlive.integrity.log import open_log, values_of
from medlive.llm.ask import MOST_RAW, Asked, Asker
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine, EngineIdentity
from medlive.llm.pool import Progress, work_through
from medlive.llm.registry import Price

REPEATS = "repeats.jsonl"
_A_ROUND = 1000
"""`Work.round` of two rounds differs by this, so that a store of replies does not give an earlier round's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeResult(CallsMade):
    """The state of a run after grading."""

    path: Path
    criteria: int
    """All criteria of the answers that can be graded."""
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
    """What one call grades: criteria of one answer."""

    case: EvaluationCase
    answer: Answer
    criteria: tuple[EvaluationCriterion, ...]
    round: int = 0
    """As in `GradingCall`."""

    def call(self, judge: Judge) -> GradingCall:
        """The call to a judge."""
        return GradingCall(
            judge,
            self.case.language,
            self.case.question,
            self.answer.response,
            self.criteria,
            self.round,
        )


class Record:
    """The latest grades of one judge, by key; the grader's texts are not kept in memory, as a run may be long."""

    def __init__(self, judge: Judge, log: Path) -> None:
        self.judge = judge
        self.latest: dict[str, Grade] = {}
        self.unusable: Counter[str] = Counter()
        """Replies that held no verdict, by the key they were asked for."""
        self.notes: list[str] = []
        for grade in grades_of(log, self.notes):
            if grade.judge == judge.digest:
                self.put(grade)
                self.unusable[grade.key] += grade.met is None and bool(grade.grader)

    def put(self, grade: Grade) -> None:
        """Remember a grade, the newest of its key."""
        self.latest[grade.key] = replace(
            grade,
            raw="",
            quote="",
            reasoning="",
        )

    def settles(self, key: str) -> bool:
        """Whether a key has a verdict that counts, so that nothing is left to ask."""
        return settles(self.judge, self.latest.get(key))


def settles(judge: Judge, grade: Grade | None) -> bool:
    """Whether a grade on record is a verdict by a model that the judge accepts."""
    if grade is None or grade.met is None:
        return False
    return judge.identity.accepts(grade.grader)


def open_work(
    cases: Iterable[EvaluationCase],
    answers: Mapping[str, Answer],
    record: Record,
) -> Iterator[Work]:
    """The calls left to make, for every criterion of a gradable answer whose verdict is not settled.

    The calls of a case follow each other.
    """
    judge = record.judge
    for case, answer in gradable(cases, answers):
        keys = grade_keys(case, answer, judge.digest)
        unsettled = [c for c in case.criteria if not record.settles(keys[c.id])]
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
    asker = Asker(
        engine,
        "grader",
        repairs=max_retries,
        concurrency=concurrency,
        budget=budget,
    )
    run = open_run(run_dir)
    answers, notes = run.answers()
    keys: list[str] = []
    unanswered = dict.fromkeys(case.case_id for case in run.cases)
    for case, answer in gradable(run.cases, answers):
        unanswered.pop(case.case_id, None)
        keys += grade_keys(case, answer, judge.digest).values()
    with open_log(run.path / GRADES) as log:
        record = Record(judge, run.path / GRADES)
        reused = sum(map(record.settles, keys))
        asker.readable = reused > 0

        async def ask(work: Work) -> int:
            for grade in await ask_verdicts(asker, judge, work):
                log.add(grade.row())
                record.put(grade)
            return len(work.criteria)

        stopped = await work_through(
            open_work(run.cases, answers, record),
            ask,
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


def make_grades(
    work: Work,
    call: GradingCall,
    asked: Asked[Any],
    origin: Origin = "call",
) -> list[Grade]:
    """The verdicts of a call as rows of the log; the first row has the usage of all attempts.

    A reply that several criteria share is stored with the first of them, and with those that it did not grade.
    """
    judge = call.judge
    keys = grade_keys(
        work.case,
        work.answer,
        judge.digest,
        work.criteria,
    )
    faults = call.faults if asked.fault is call.fault else {}
    grades: list[Grade] = []
    shown: set[int] = set()
    for criterion in work.criteria:
        verdict, reply = call.by_criterion.get(criterion.id, (None, asked.last))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repeated(Grade):
    """A verdict of a later round, as a line of `repeats.jsonl`."""

    round: int = Field(ge=2, strict=True)


async def ask_verdicts(asker: Asker, judge: Judge, work: Work) -> list[Grade]:
    """Ask for the verdicts of one call, as rows of the log. Raises as `Asker.ask`."""
    call = work.call(judge)
    asked = await asker.ask(call.request, call.read)
    return make_grades(work, call, asked)


async def grade_answer(
    case: EvaluationCase,
    answer: Answer,
    engine: Engine,
    *,
    mode: Mode = Mode.RUBRIC,
) -> tuple[Grade, ...]:
    """One answer's verdicts in the rubric's order, as `grade_run` makes them, for harnesses.

    Empty for an answer that cannot be graded. Raises as `grade_run`, but for Locked.
    """
    if not answer.gradable:
        return ()
    asker = Asker(engine, "grader", concurrency=len(case.criteria))
    judge = Judge(engine.identity, mode)
    calls = []
    for part in judge.parts(case.criteria):
        calls.append(ask_verdicts(asker, judge, Work(case, answer, part)))
    return tuple(chain.from_iterable(await asyncio.gather(*calls)))


async def repeat_run(
    run_dir: Path,
    engine: Engine,
    *,
    repeats: int,
    mode: Mode = Mode.RUBRIC,
    concurrency: int = 16,
    max_retries: int = 1,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> CallsMade:
    """Grade what the run has graded by this engine, mode and prompt again, until each has `repeats` verdicts.

    `left` counts the missing verdicts of the wanted rounds, of graded criteria. Arguments and errors are those of
    `grade_run`.
    """
    run = open_run(run_dir)
    judge = Judge(engine.identity, mode)
    asker = Asker(
        engine,
        "grader",
        repairs=max_retries,
        concurrency=concurrency,
        budget=budget,
    )
    with open_log(run.path / REPEATS) as log:

        async def ask(work: Work) -> int:
            for grade in await ask_verdicts(asker, judge, work):
                log.add({**grade.row(), "round": work.round // _A_ROUND})
            return len(work.criteria)

        todo = list(later_rounds(run, judge, repeats, []))
        stopped = await work_through(
            todo,
            ask,
            concurrency,
            done=0,
            total=sum(len(work.criteria) for work in todo),
            progress=progress,
        )
    notes: list[str] = []
    left = later_rounds(run, judge, repeats, notes)
    return CallsMade(
        calls=asker.calls,
        left=sum(len(work.criteria) for work in left),
        notes=tuple(notes),
        stopped=stopped,
        silence=asker.silence,
    )


def later_grades(
    run_dir: Path,
    judge: str,
    notes: list[str],
) -> dict[tuple[str, int], Grade]:
    """A judge's verdicts of the rounds after the first, by (key, round); damaged lines are listed in `notes`."""
    later: dict[tuple[str, int], Grade] = {}
    for grade in values_of(run_dir / REPEATS, _Repeated.from_row, notes):
        if grade.judge == judge:
            later[grade.key, grade.round] = grade
    return later


def later_rounds(
    run: RunFolder,
    judge: Judge,
    repeats: int,
    notes: list[str],
    *,
    planned: bool = False,
) -> Iterator[Work]:
    """The calls of later rounds, for each criterion with a verdict that counts and none of that round.

    A case's rounds come after each other, so that an endpoint's prefix cache holds what they share. `planned`: as if
    every criterion had its verdict already. Damaged lines are listed in `notes`.
    """
    first = Record(judge, run.path / GRADES)
    later = later_grades(run.path, judge.digest, notes)
    for case, answer in gradable(run.cases, run.answers()[0]):
        keys = grade_keys(case, answer, judge.digest)
        for round_ in range(2, repeats + 1):
            unsettled = []
            for criterion in case.criteria:
                key = keys[criterion.id]
                is_graded = planned or first.settles(key)
                if is_graded and not settles(judge, later.get((key, round_))):
                    unsettled.append(criterion)
            for part in judge.parts(unsettled):
                yield Work(
                    case,
                    answer,
                    part,
                    _A_ROUND * round_,
                )


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

    `ahead` is as in `planned_answers`.
    """
    cases, answers = planned_answers(run_dir, ahead)
    judge = Judge(identity, mode)
    first = list(open_work(cases, answers, Record(judge, run_dir / GRADES)))
    later: list[Work] = []
    if repeats > 1:
        later += later_rounds(
            open_run(run_dir),
            judge,
            repeats,
            [],
            planned=True,
        )
    calls = []
    for work in [*first, *later]:
        calls.append((sent_text(work.call(judge).request), len(work.criteria)))
    return plan_calls(calls, price=price)


def planned_answers(
    run_dir: Path,
    ahead: Sequence[EvaluationCase],
) -> tuple[Sequence[EvaluationCase], dict[str, Answer]]:
    """The cases of a run and its answers; a case of `ahead` without one gets a made-up answer of AN_ANSWER tokens.

    `ahead` are the cases of a run that may not have begun.
    """
    cases, answers = ahead, dict[str, Answer]()
    if not ahead or (run_dir / "run.json").exists():
        run = open_run(run_dir)
        cases, answers = run.cases, run.answers()[0]
    answered = {case.case_id for case, _ in gradable(cases, answers)}
    for case in ahead:
        text = "a" * AN_ANSWER * BYTES_A_TOKEN
        if case.case_id not in answered:
            answers[case.case_id] = Answer(
                case.case_id, AnswerState.OK, text, "stop", ""
            )
    return cases, answers
