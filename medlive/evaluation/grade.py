"""Grading a run: every criterion of every answer met, not met, or ungraded with its reason.

`grades.jsonl` is the cache as well: a verdict is found again by what it rests on, so a repeated run asks only for
what is new, was edited, or had stayed ungraded.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from medlive.digest import digest_json
from medlive.errors import EndpointUnavailable, UsageError
from medlive.evaluation.log import LogWriter, open_log, read_log
from medlive.evaluation.model import (
    Answer,
    EvaluationCase,
    EvaluationCriterion,
    Grade,
    Mode,
    grade_key,
)
from medlive.evaluation.pool import Health, for_each
from medlive.evaluation.run import GRADES, Progress, RunFolder, open_run
from medlive.evaluation.tasks import GradeReply, RubricGradeReply
from medlive.evaluation.verdict import Unreadable, Verdict, read_criterion, read_rubric
from medlive.llm.engine import Engine, EngineIdentity, Finish, Prompt, Reply, Request
from medlive.llm.prompts import load_prompt

MOST_RAW: Final = 20_000
RUBRIC_SIZE: Final = 40
"""The most criteria of one call; longer rubrics take more calls."""
STRANGERS: Final = 8
"""This many replies in a row by another model than the pinned one, and none by it: a wrong configuration."""


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


@dataclass(frozen=True, slots=True)
class _Work:
    """One call's criteria."""

    case: EvaluationCase
    answer: Answer
    criteria: tuple[EvaluationCriterion, ...]
    round: int
    """How often unusable replies stand on record: a store of replies is asked past them."""


@dataclass(slots=True)
class _Record:
    """The verdicts on record for one judge, by key."""

    latest: dict[str, Grade] = field(default_factory=dict)
    unusable: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def judge_digest(identity: EngineIdentity, mode: Mode, prompt: Prompt) -> str:
    """What makes two graders one: engine, model, parameters, mode and prompt."""
    return digest_json([identity.engine, identity.model, dict(identity.parameters), mode.value, prompt.digest])


def read_grades(path: Path) -> tuple[list[Grade], list[str]]:
    """Every grade of a log, in order, and what in it was none."""
    lines = read_log(path)
    notes = [f"{path.name}:{number}: {why}" for number, why in lines.damaged]
    grades: list[Grade] = []
    for row in lines.rows:
        try:
            grades.append(Grade.from_row(row))
        except (TypeError, KeyError, ValueError) as exc:
            notes.append(f"{path.name}: no grade: {str(exc)[:120]}")
    return grades, notes


async def grade_run(
    run_dir: Path,
    engine: Engine,
    *,
    mode: Mode = Mode.CRITERION,
    concurrency: int = 16,
    max_retries: int = 1,
    allow_unpinned: bool = False,
    progress: Progress | None = None,
) -> GradeResult:
    """Grade every answer of the run that can be graded and is not graded yet by this engine, mode and prompt.

    A reply that cannot be read is returned to the engine `max_retries` times, with what is wrong with it; what
    stays unread is `ungraded`. A verdict by another model than the engine's pinned one does not count unless
    `allow_unpinned`. Raises Locked when another process grades the same folder, UsageError when every reply comes
    from another model, EndpointUnavailable when the endpoint seems dead; what was graded by then is kept.
    """
    run = open_run(run_dir)
    judge = _Judge(engine, mode, max_retries, allow_unpinned, concurrency)
    with open_log(run.path / GRADES) as log:
        return await _Grader(run, judge, concurrency).grade(log, progress)


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
    judge = _Judge(engine, mode, max_retries, allow_unpinned, concurrency=len(case.criteria) or 1)
    size = judge.size
    parts = [case.criteria[start : start + size] for start in range(0, len(case.criteria), size)]
    grades = await asyncio.gather(*(judge.grades(_Work(case, answer, part, 0)) for part in parts))
    return tuple(grade for part in grades for grade in part)


class _Judge:
    """Asks one engine, in one mode, for the verdicts of a call's criteria."""

    def __init__(
        self, engine: Engine, mode: Mode, max_retries: int, allow_unpinned: bool, concurrency: int
    ) -> None:
        self._engine, self._mode = engine, mode
        self._retries, self._allow_unpinned = max_retries, allow_unpinned
        self._identity = engine.identity
        self._prompt = load_prompt("medlive.evaluation", f"grader.{mode}")
        self.digest = judge_digest(self._identity, mode, self._prompt)
        self.size = 1 if mode is Mode.CRITERION else RUBRIC_SIZE
        shape = GradeReply if mode is Mode.CRITERION else RubricGradeReply
        self._schema = shape.model_json_schema()
        self._health = Health(concurrency)
        self.calls = 0
        self._strangers = 0
        self._pinned_seen = False

    def key(self, case: EvaluationCase, criterion: EvaluationCriterion, answer: Answer) -> str:
        return grade_key(case, criterion, answer, self.digest)

    def _request(self, work: _Work, again: tuple[str, str] | None, round_: int) -> Request:
        inputs: dict[str, Any] = {
            "language": work.case.language,
            "question": work.case.question,
            "answer": work.answer.response,
        }
        if self._mode is Mode.CRITERION:
            inputs["criterion"] = work.criteria[0].criterion
        else:
            inputs["criteria"] = [{"id": c.id, "criterion": c.criterion} for c in work.criteria]
        return Request(f"grader.{self._mode}", self._prompt, inputs, self._schema, repair=again, round=round_)

    async def grades(self, work: _Work) -> list[Grade]:
        """Ask until every criterion has a verdict or the attempts are spent; later verdicts fill earlier gaps."""
        verdicts: dict[str, Verdict] = {}
        faults: dict[str, str] = {}
        replies: list[Reply] = []
        by: dict[str, Reply] = {}
        again: tuple[str, str] | None = None
        strange = 0
        for _ in range(1 + self._retries):
            waiting = tuple(c for c in work.criteria if c.id not in verdicts)
            part = _Work(work.case, work.answer, waiting, work.round)
            try:
                self.calls += 1
                reply = await self._engine.answer(self._request(part, again, work.round + strange))
            except EndpointUnavailable as exc:
                faults |= {c.id: f"endpoint: {exc.message[:300]}" for c in waiting}
                self._health.bad(exc)
                break
            self._health.good()
            replies.append(reply)
            by |= {c.id: reply for c in waiting}
            if (fault := self._stranger(reply)) is not None:
                faults |= {c.id: fault for c in waiting}
                again, strange = None, strange + 1
                continue
            read = self._read(reply, part)
            verdicts |= {cid: v for cid, v in read.items() if isinstance(v, Verdict)}
            faults |= {cid: v for cid, v in read.items() if isinstance(v, str)}
            if len(verdicts) == len(work.criteria) or reply.finish is Finish.REFUSAL:
                break
            problem = next(v for v in read.values() if isinstance(v, str))
            again = (reply.text[:MOST_RAW], problem)
        usage = _usage(replies)
        grades = []
        for place, criterion in enumerate(work.criteria):
            verdict, reply_ = verdicts.get(criterion.id), by.get(criterion.id)
            grades.append(
                Grade(
                    case_id=work.case.case_id,
                    criterion_id=criterion.id,
                    key=self.key(work.case, criterion, work.answer),
                    met=verdict.met if verdict else None,
                    quote=verdict.quote if verdict else "",
                    reasoning=verdict.reasoning if verdict else "",
                    reason="" if verdict else faults[criterion.id],
                    raw=self._raw(reply_, verdict, place),
                    grader=reply_.model if reply_ else "",
                    engine=self._identity.engine,
                    model=self._identity.model,
                    mode=self._mode,
                    prompt=self._prompt.digest,
                    judge=self.digest,
                    usage=usage if place == 0 else {},
                )
            )
        return grades

    def _raw(self, reply: Reply | None, verdict: Verdict | None, place: int) -> str:
        """In rubric mode the whole reply stands with the first criterion and with those that it did not grade."""
        if reply is None:
            return ""
        whole = self._mode is Mode.CRITERION or place == 0 or verdict is None
        return reply.text[:MOST_RAW] if whole else ""

    def _stranger(self, reply: Reply) -> str | None:
        if self._allow_unpinned or reply.model == self._identity.model:
            self._pinned_seen = True
            return None
        self._strangers += 1
        if not self._pinned_seen and self._strangers >= STRANGERS:
            raise UsageError(
                f"the grader {self._identity.model!r} was asked and {reply.model!r} answered, every time",
                hint=f"name {reply.model!r} as the grader, or allow an unpinned one",
            )
        return f"another model answered: {reply.model[:100]!r}"

    def _read(self, reply: Reply, work: _Work) -> dict[str, Verdict | str]:
        ids = [c.id for c in work.criteria]
        if reply.finish is Finish.LENGTH:
            return dict.fromkeys(ids, "the reply was cut at the token limit")
        if reply.finish is Finish.REFUSAL:
            return dict.fromkeys(ids, "the grader refused")
        try:
            if self._mode is Mode.RUBRIC:
                return read_rubric(reply.text, ids, work.answer.response)
            return {ids[0]: read_criterion(reply.text, work.answer.response)}
        except Unreadable as exc:
            return dict.fromkeys(ids, str(exc))


class _Grader:
    def __init__(self, run: RunFolder, judge: _Judge, concurrency: int) -> None:
        self._run, self._judge, self._concurrency = run, judge, concurrency

    async def grade(self, log: LogWriter, progress: Progress | None) -> GradeResult:
        answers, notes = self._run.answers()
        record = self._read_record()
        todo = list(self._todo(answers, record))
        total = sum(len(c.criteria) for c in self._run.cases if _gradable(answers.get(c.case_id)))
        done = total - sum(len(work.criteria) for work in todo)
        reused = done
        if progress:
            progress(done, total)

        async def one(work: _Work) -> None:
            nonlocal done
            for grade in await self._judge.grades(work):
                log.add(grade.row())
                record.latest[grade.key] = grade
            done += len(work.criteria)
            if progress:
                progress(done, total)

        await for_each(todo, one, self._concurrency)
        return self._result(answers, record, reused, notes)

    def _read_record(self) -> _Record:
        grades, notes = read_grades(self._run.path / GRADES)
        record = _Record(notes=notes)
        for grade in grades:
            if grade.judge != self._judge.digest:
                continue
            record.latest[grade.key] = grade
            if grade.met is None and grade.raw:
                record.unusable[grade.key] += 1
        return record

    def _todo(self, answers: Mapping[str, Answer], record: _Record) -> Iterator[_Work]:
        size = self._judge.size
        for case in self._run.cases:
            answer = answers.get(case.case_id)
            if answer is None or not answer.gradable:
                continue
            keys = {c.id: self._judge.key(case, c, answer) for c in case.criteria}
            open_ = [c for c in case.criteria if not _settled(record.latest.get(keys[c.id]))]
            for start in range(0, len(open_), size):
                part = tuple(open_[start : start + size])
                yield _Work(case, answer, part, max(record.unusable[keys[c.id]] for c in part))

    def _result(
        self, answers: Mapping[str, Answer], record: _Record, reused: int, notes: list[str]
    ) -> GradeResult:
        tally: Counter[bool | None] = Counter()
        reasons: Counter[str] = Counter()
        unanswered = []
        for case in self._run.cases:
            answer = answers.get(case.case_id)
            if answer is None or not answer.gradable:
                unanswered.append(case.case_id)
                continue
            for criterion in case.criteria:
                grade = record.latest.get(self._judge.key(case, criterion, answer))
                tally[grade.met if grade else None] += 1
                if grade is not None and grade.met is None:
                    reasons[grade.reason.split(":")[0]] += 1
        return GradeResult(
            path=self._run.path,
            criteria=sum(tally.values()),
            met=tally[True],
            not_met=tally[False],
            ungraded=tally[None],
            reused=reused,
            calls=self._judge.calls,
            unanswered=tuple(unanswered),
            reasons=dict(reasons.most_common()),
            notes=(*notes, *record.notes),
        )


def _gradable(answer: Answer | None) -> bool:
    return answer is not None and answer.gradable


def _settled(grade: Grade | None) -> bool:
    return grade is not None and grade.met is not None


def _usage(replies: list[Reply]) -> dict[str, Any]:
    """The sum over a call's attempts; a cost that one of them does not know is unknown."""
    if not replies:
        return {}
    rows = [asdict(reply.usage) for reply in replies]
    total = {name: sum(row[name] for row in rows) for name in rows[0] if name != "cost_usd"}
    costs = [row["cost_usd"] for row in rows]
    return {**total, "cost_usd": None if None in costs else sum(costs)}
