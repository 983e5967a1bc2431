"""Grading a run: every criterion of every answer met, not met, or ungraded with its reason.

`grades.jsonl` is the cache as well: a verdict is found again by what it rests on, so a repeated run asks only for
what is new, was edited, or had stayed ungraded. Beside it a `GradeCache` may hold the verdicts of other runs.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from medlive.errors import EndpointUnavailable
from medlive.evaluation.asking.pinned import Pinned
from medlive.evaluation.asking.pool import Health, for_each
from medlive.evaluation.asking.run import Progress
from medlive.evaluation.grading.cache import GradeCache
from medlive.evaluation.grading.grade_line import grade_line
from medlive.evaluation.grading.judge import MOST_RAW, Judge, Outcome, Work, kind_of
from medlive.evaluation.log import LogWriter, open_log
from medlive.evaluation.model import Answer, EvaluationCase, Grade, Mode, keys_of
from medlive.evaluation.runs.folder import GRADES
from medlive.evaluation.runs.grades import grades_of
from medlive.evaluation.runs.reader import StoredRun, stored_run
from medlive.llm.budget import Asked, Budget, BudgetSpent
from medlive.llm.engine import Engine, Finish


@dataclass(frozen=True, slots=True)
class GradeResult:
    """How a run stands after grading."""

    path: Path
    criteria: int
    """Of the answers that can be graded."""
    met: int
    not_met: int
    ungraded: int
    reused: int
    """Verdicts that were there before and cost nothing."""
    calls: int
    unanswered: tuple[str, ...]
    """Cases without an answer to grade."""
    reasons: Mapping[str, int]
    """Why criteria are ungraded, the most frequent first."""
    notes: tuple[str, ...] = ()
    cached: int = 0
    """Of `reused`, those that came from the cache that runs share."""
    stopped: str | None = None
    """Which budget ended it; None: none did."""
    silence: EndpointUnavailable | None = None
    """Why the last call failed, where none of this time was answered (`Health.silence`)."""


class Held(NamedTuple):
    """What is held of a verdict on record."""

    met: bool | None
    grader: str
    reason: str


@dataclass(slots=True)
class Record:
    """The verdicts on record for one judge, by key; what the grader said is not held, a run may be long."""

    latest: dict[str, Held] = field(default_factory=dict)
    unusable: Counter[str] = field(default_factory=Counter)
    """Replies that held no verdict, by the key they were asked for."""
    notes: list[str] = field(default_factory=list)
    _alike: dict[Held, Held] = field(default_factory=dict)
    """Most verdicts are the same but for their key."""

    def put(self, grade: Grade) -> None:
        """The newest verdict of its key."""
        held = Held(grade.met, grade.grader, grade.reason)
        self.latest[grade.key] = self._alike.setdefault(held, held)


def read_record(path: Path, judge: str) -> Record:
    """What a log holds of the judge with that digest."""
    record = Record()
    for grade in grades_of(path, record.notes):
        if grade.judge != judge:
            continue
        record.put(grade)
        if grade.met is None and grade.grader:
            record.unusable[grade.key] += 1
    return record


def open_work(
    cases: Sequence[EvaluationCase], answers: Mapping[str, Answer], judge: Judge, record: Record
) -> Iterator[Work]:
    """The calls that are left to make: every criterion of a gradable answer without a settled verdict, the calls
    of a case after each other."""
    for case in cases:
        answer = answers.get(case.case_id)
        if answer is None or not answer.gradable:
            continue
        keys = {c.id: judge.key(case, c, answer) for c in case.criteria}
        open_ = [c for c in case.criteria if not judge.settles(record.latest.get(keys[c.id]))]
        for part in judge.parts(open_):
            yield Work(case, answer, part, max(record.unusable[keys[c.id]] for c in part))


def find_cached(
    cache: GradeCache, cases: Sequence[EvaluationCase], answers: Mapping[str, Answer], judge: Judge, record: Record
) -> Iterator[Grade]:
    """The verdicts of the cache that are open on record."""
    for case in cases:
        answer = answers.get(case.case_id)
        if answer is None or not answer.gradable:
            continue
        keys = [(c.id, judge.key(case, c, answer)) for c in case.criteria]
        keys = [(cid, key) for cid, key in keys if not judge.settles(record.latest.get(key))]
        held = cache.find(case, answer, judge.digest) if keys else {}
        for cid, key in keys:
            if (grade := held.get(key)) is not None and judge.settles(grade):
                yield replace(grade, criterion_id=cid)


async def grade_run(
    run_dir: Path,
    engine: Engine,
    *,
    mode: Mode = Mode.CRITERION,
    concurrency: int = 16,
    max_retries: int = 1,
    allow_unpinned: bool = False,
    budget: Budget | None = None,
    cache: GradeCache | None = None,
    progress: Progress | None = None,
) -> GradeResult:
    """Grade every answer of the run that can be graded and is not graded yet by this engine, mode and prompt.

    A reply that cannot be read is returned to the engine `max_retries` times, with what is wrong with it; what
    stays unread is `ungraded`. A verdict by another model than the engine's pinned one does not count unless
    `allow_unpinned`. What `cache` holds is not asked for, and it is given what is new. When `budget` is spent,
    calls under way are finished and kept, and the result says `stopped`. Raises Locked when another process grades
    the same folder, UsageError when every reply comes from another model, EndpointUnavailable when the endpoint
    seems dead; what was graded by then is kept.
    """
    judge = Judge(engine.identity, mode, allow_unpinned=allow_unpinned)
    asker = Asker(engine, judge, max_retries=max_retries, concurrency=concurrency, budget=budget)
    with stored_run(run_dir) as run, open_log(run.path / GRADES) as log:
        return await _Grader(run, asker, concurrency, cache).grade(log, progress)


async def grade_answer(
    case: EvaluationCase,
    answer: Answer,
    engine: Engine,
    *,
    mode: Mode = Mode.CRITERION,
    max_retries: int = 1,
    allow_unpinned: bool = False,
) -> tuple[Grade, ...]:
    """One answer's verdicts, in the rubric's order, as `grade_run` makes them but with nothing kept: for harnesses
    that keep their own log. Empty for an answer that cannot be graded. Raises as `grade_run`, but for Locked.
    """
    if not answer.gradable:
        return ()
    judge = Judge(engine.identity, mode, allow_unpinned=allow_unpinned)
    asker = Asker(engine, judge, max_retries=max_retries, concurrency=len(case.criteria) or 1)
    parts = judge.parts(case.criteria)
    grades = await asyncio.gather(*(asker.grades(Work(case, answer, part)) for part in parts))
    return tuple(grade for part in grades for grade in part)


class Asker:
    """Asks one engine for the verdicts of a call's criteria, again where a reply is none."""

    def __init__(
        self, engine: Engine, judge: Judge, *, max_retries: int, concurrency: int, budget: Budget | None = None
    ) -> None:
        self.judge = judge
        self._asked, self._retries = Asked(engine, budget), max_retries
        self._health = Health(concurrency)
        self._pinned = Pinned("grader", judge.identity.model, allow_unpinned=judge.allow_unpinned)

    @property
    def calls(self) -> int:
        """How many were made."""
        return self._asked.calls

    @property
    def silence(self) -> EndpointUnavailable | None:
        """`Health.silence`."""
        return self._health.silence

    async def grades(self, work: Work) -> list[Grade]:
        """Ask until every criterion has a verdict or the attempts are spent. Raises BudgetSpent when the budget
        does not reach for one attempt."""
        outcome = Outcome()
        again: tuple[str, str] | None = None
        strange = 0
        for _ in range(1 + self._retries):
            waiting, part = work.criteria, work
            if outcome.verdicts:
                waiting = tuple(c for c in work.criteria if c.id not in outcome.verdicts)
                part = replace(work, criteria=waiting)
            try:
                reply = await self._asked.answer(self.judge.request(part, again, strange))
            except EndpointUnavailable as exc:
                outcome.fail(waiting, f"endpoint: {exc.message[:300]}")
                self._health.bad(exc)
                break
            except BudgetSpent:
                if not outcome.replies:
                    raise
                break
            self._health.good()
            read = self.judge.read(reply, part)
            outcome.take(reply, waiting, read)
            if self._pinned.fault(reply) is not None:
                again, strange = None, strange + 1
                continue
            if len(outcome.verdicts) == len(work.criteria) or reply.finish is Finish.REFUSAL:
                break
            problem = next(v for v in read.values() if isinstance(v, str))
            again = (reply.text[:MOST_RAW], problem)
        return self.judge.grades(work, outcome)


class _Left(NamedTuple):
    """What is left to ask about one answer."""

    case: int
    """Its place among the cases."""
    first: int
    """The place of its first criterion's key among those of the run."""
    open: tuple[int, ...]
    """Places of criteria within the case."""


class _Grader:
    """Grades a run without holding it: of the cases and answers those that are being asked about, of the verdicts
    what their keys lead to."""

    def __init__(self, run: StoredRun, asker: Asker, concurrency: int, cache: GradeCache | None) -> None:
        self._run, self._asker, self._judge = run, asker, asker.judge
        self._concurrency, self._cache = concurrency, cache
        self._keys: list[str] = []
        """Of every criterion of an answer that can be graded, in order."""
        self._left: list[_Left] = []
        self._unanswered: list[str] = []
        self._cached = 0

    async def grade(self, log: LogWriter, progress: Progress | None) -> GradeResult:
        record = read_record(self._run.path / GRADES, self._judge.digest)
        self._look_up(record, log)
        total = len(self._keys)
        done = reused = total - sum(len(left.open) for left in self._left)
        stopped: str | None = None
        if progress:
            progress(done, total)

        async def one(work: Work) -> None:
            nonlocal done, stopped
            if stopped:
                return
            try:
                grades = await self._asker.grades(work)
            except BudgetSpent as exc:
                stopped = exc.message
                return
            for grade in grades:
                line = grade_line(grade)
                log.write(line)
                record.put(grade)
                if self._cache:
                    self._cache.add(work.case, work.answer, grade, line)
            done += len(work.criteria)
            if progress:
                progress(done, total)

        try:
            await for_each(self._works(record), one, self._concurrency)
        finally:
            if self._cache:
                self._cache.flush()
        return replace(
            self._result(record), reused=reused, cached=self._cached, stopped=stopped, silence=self._asker.silence
        )

    def _look_up(self, record: Record, log: LogWriter) -> None:
        """Find what is settled and what is left to ask, and log what the cache that runs share holds of that."""
        settles, latest, answers = self._judge.settles, record.latest, self._run.answers
        for place, case in enumerate(self._run.cases):
            answer = answers.get(case.case_id)
            if answer is None:
                self._unanswered.append(case.case_id)
                continue
            keys = keys_of(case, answer, self._judge.digest)
            open_ = [k for k, key in enumerate(keys) if not settles(latest.get(key))]
            if open_ and self._cache is not None:
                held = self._cache.find(case, answer, self._judge.digest)
                for k in open_:
                    if (grade := held.get(keys[k])) is not None and settles(grade):
                        found = replace(grade, criterion_id=case.criteria[k].id)
                        record.put(found)
                        log.write(grade_line(found))
                        self._cached += 1
                open_ = [k for k in open_ if not settles(latest.get(keys[k]))]
            if open_:
                self._left.append(_Left(place, len(self._keys), tuple(open_)))
            self._keys += keys

    def _works(self, record: Record) -> Iterator[Work]:
        """The calls to make, the calls of a case after each other; each is made when it is its turn."""
        for left in self._left:
            case = self._run.cases[left.case]
            answer = self._run.answers[case.case_id]
            for part in self._judge.parts(left.open):
                keys = tuple(self._keys[left.first + k] for k in part)
                round_ = max(record.unusable[key] for key in keys)
                yield Work(case, answer, tuple(case.criteria[k] for k in part), round_, keys)

    def _result(self, record: Record) -> GradeResult:
        tally: Counter[bool | None] = Counter()
        reasons: Counter[str] = Counter()
        for key in self._keys:
            held = record.latest.get(key)
            tally[held.met if held else None] += 1
            if held is None:
                reasons["not asked yet"] += 1
            elif held.met is None:
                reasons[kind_of(held.reason)] += 1
        return GradeResult(
            path=self._run.path,
            criteria=sum(tally.values()),
            met=tally[True],
            not_met=tally[False],
            ungraded=tally[None],
            reused=0,
            calls=self._asker.calls,
            unanswered=tuple(self._unanswered),
            reasons=dict(reasons.most_common()),
            notes=(*self._run.notes, *record.notes, *(self._cache.notes if self._cache else ())),
        )
