"""Grading through an endpoint's batch API: the calls as a file to hand in, and the results back into the same log.

What is written is what `grade` would send, and a result counts by the same checks. `batches.jsonl` in the run
folder remembers which calls were written, so results can be read without naming the grader again, in any order,
in parts, and twice, and what is left can be written as the next file: a call whose reply held no verdict with that
reply and what is wrong with it, since the same words would often get the same reply.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from medlive.digest import digest_json
from medlive.errors import BadInput
from medlive.evaluation.asking.batch_files import (
    BATCHES,
    MOST_BYTES,
    MOST_REQUESTS,
    BatchFiles,
    BatchWritten,
    Result,
    brief,
    read_results,
    result_error,
)
from medlive.evaluation.grading.cache import GradeCache
from medlive.evaluation.grading.grade import find_cached, open_work, read_record
from medlive.evaluation.grading.judge import Judge, Verdicts, Work, kind_of
from medlive.evaluation.log import LogWriter, open_log, values_of
from medlive.evaluation.model import Grade, Mode, Origin
from medlive.evaluation.runs.folder import GRADES, RunFolder, open_run
from medlive.evaluation.runs.grades import read_grades
from medlive.llm.ask import Asked, Attempt, Unusable, read_checked
from medlive.llm.engine import EngineIdentity, Request
from medlive.llm.fence import render
from medlive.llm.wire import JsonMode, NotACompletion, Price, chat_body, completion, response_format


class Batching(Protocol):
    """Whose calls can be sent another way: an engine, or `Bodies`."""

    @property
    def identity(self) -> EngineIdentity:
        """Who answers."""
        ...

    def body(self, request: Request) -> dict[str, Any]:
        """The body that a live call would send."""
        ...


@dataclass(frozen=True, slots=True)
class Bodies:
    """What a grader's calls send, with the reply's shape asked for in one way: a file cannot try another."""

    identity: EngineIdentity
    shape: JsonMode = JsonMode.SCHEMA

    def body(self, request: Request) -> dict[str, Any]:
        """The body of a call."""
        asked = response_format(self.shape, request)
        return chat_body(self.identity.model, render(request), self.identity.parameters, asked)


@dataclass(slots=True)
class BatchRead:
    """What result files came to; every line of them counts once."""

    met: int = 0
    not_met: int = 0
    ungraded: int = 0
    """Criteria of results that hold no verdict."""
    again: int = 0
    """Results that were read before and hold nothing new, and results for what has a verdict by now."""
    duplicates: int = 0
    """Results for a call that has had another one: the first verdict stands."""
    unknown: int = 0
    """Lines whose custom_id was never written by this run."""
    stale: int = 0
    """Results about an answer or a criterion that has changed since."""
    damaged: int = 0
    """Lines that are no result."""
    missing: int = 0
    """Calls that were written, are still open, and have no result in any file read so far."""
    open: int = 0
    """Criteria that were asked for, whenever that was, and have no verdict now."""
    strangers: Counter[str] = field(default_factory=Counter)
    """Models that answered in place of the one asked, and how many criteria their replies leave ungraded."""
    shape_refused: int = 0
    """Calls that the endpoint refused for the shape of reply that they asked for."""
    reasons: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call that was written."""

    case_id: str
    criteria: tuple[str, ...]
    keys: tuple[str, ...]
    judge: str


def write_batch(
    run_dir: Path,
    engine: Batching,
    out: Path,
    *,
    mode: Mode = Mode.CRITERION,
    allow_unpinned: bool = False,
    cache: GradeCache | None = None,
    most_requests: int = MOST_REQUESTS,
    most_bytes: int = MOST_BYTES,
    leave_waiting: bool = False,
) -> BatchWritten:
    """Write the calls that are left to make, in OpenAI's batch format: JSON Lines of custom_id, method, url, body.

    One file at `out`, or `out` with -001, -002 … before its suffix where the limits ask for more. A call about
    which a reply without a verdict is on record asks for its repair; one that was written before and has no result
    is left out with `leave_waiting`. Raises Locked while the run is being graded,
    BadInput when the files cannot be written, UsageError for a call that is longer than a file may be.
    """
    run = open_run(run_dir)
    judge = Judge(engine.identity, mode, allow_unpinned=allow_unpinned)
    answers, _ = run.answers()
    cached = criteria = repairs = waiting = 0
    with open_log(run_dir / GRADES) as log, open_log(run_dir / BATCHES) as written:
        record = read_record(run_dir / GRADES, judge.digest)
        for grade in find_cached(cache, run.cases, answers, judge, record):
            log.add(grade.row())
            cached += 1
        known, _ = _read_batches(run_dir)
        if judge.digest not in known.judges:
            written.add(_judge_row(judge))
        if isinstance(engine, Bodies):
            written.add({"kind": "written", "judge": judge.digest, "shape": engine.shape.value})
        unread = _unread(run_dir, judge)
        with BatchFiles(out, most_requests, most_bytes).open() as files:
            for work in open_work(run.cases, answers, judge, record):
                asked = _asked(judge, work)
                custom_id = _custom_id(asked, known)
                waits = custom_id in known.asked
                waiting += waits
                if waits and leave_waiting:
                    continue
                repair = _repair(judge, work, unread)
                files.add(custom_id, engine.body(replace(judge.request(work), repair=repair)))
                criteria += len(work.criteria)
                repairs += repair is not None
                if not waits:
                    written.add(_asked_row(custom_id, asked))
    return BatchWritten(tuple(files.paths), files.requests, criteria, cached, repairs, waiting)


def last_written(run_dir: Path) -> tuple[EngineIdentity, Mode, JsonMode]:
    """The grader, the mode and the reply's shape of the batch written last. Raises BadInput where there is none
    and for another version's."""
    known, _ = _read_batches(run_dir)
    if known.last is None:
        raise BadInput(f"no batch was written of {run_dir}", hint="medlive eval batch write makes one")
    judge = known.judges.get(known.last)
    if judge is None:
        raise BadInput(f"the last batch of {run_dir} was written with another version's prompt")
    return judge.identity, judge.mode, known.shapes.get(known.last, JsonMode.SCHEMA)


def _unread(run_dir: Path, judge: Judge) -> dict[str, Grade]:
    """The newest reply without a verdict about each key that has none, where the asked model gave it."""
    found: dict[str, Grade] = {}
    for grade in read_grades(run_dir / GRADES)[0]:
        if grade.judge == judge.digest:
            found.pop(grade.key, None)
            if grade.met is None and grade.raw and (judge.allow_unpinned or grade.grader == judge.identity.model):
                found[grade.key] = grade
    return found


def _repair(judge: Judge, work: Work, unread: Mapping[str, Grade]) -> tuple[str, str] | None:
    """The reply about all of a call's criteria that held no verdict, and why; None where there is no such one."""
    keys = judge.keys(work.case, work.answer, work.criteria)
    grades = [unread.get(key) for key in keys.values()]
    first = grades[0]
    if first is None or any(grade is None or grade.raw != first.raw for grade in grades):
        return None
    return first.raw, first.reason


def read_batch(
    run_dir: Path,
    files: Sequence[Path],
    *,
    allow_unpinned: bool = False,
    cache: GradeCache | None = None,
    prices: Mapping[str, Price] | None = None,
) -> BatchRead:
    """Take result files, of successes and of errors, into the run's log.

    A result is checked as a live reply is: pinned model, finish reason, one certain verdict, the quote in the
    answer. What has a verdict keeps it. Reading a file again adds nothing but verdicts that did not count before,
    as another model's where it is allowed by now. Raises Locked while the run is being
    graded, BadInput for a file that cannot be opened and for a run that no batch was written of.
    """
    run = open_run(run_dir)
    with open_log(run_dir / GRADES) as log, open_log(run_dir / BATCHES) as written:
        known, notes = _read_batches(run_dir, allow_unpinned=allow_unpinned)
        if not known.asked:
            raise BadInput(f"no batch was written of {run_dir}", hint="medlive eval batch write makes one")
        reader = _Reader(run, known, log, written, cache, prices or {})
        reader.told.notes += notes
        for path in files:
            reader.read(path)
    if cache is not None:
        cache.flush()
        reader.told.notes += cache.notes
    return reader.finish()


@dataclass(slots=True)
class _Known:
    """What `batches.jsonl` holds."""

    judges: dict[str, Judge] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    """Judges whose prompt this version of medlive does not have."""
    asked: dict[str, _Asked] = field(default_factory=dict)
    results: set[tuple[str, str]] = field(default_factory=set)
    """(custom_id, digest of the result)."""
    answered: set[str] = field(default_factory=set)
    last: str | None = None
    """The judge whose calls were written last."""
    shapes: dict[str, JsonMode] = field(default_factory=dict)
    """By judge, how the reply's shape was asked for last."""


class _Reader:
    def __init__(
        self,
        run: RunFolder,
        known: _Known,
        log: LogWriter,
        written: LogWriter,
        cache: GradeCache | None,
        prices: Mapping[str, Price],
    ) -> None:
        self.told = BatchRead()
        self._run, self._known, self._log, self._written = run, known, log, written
        self._cache, self._prices = cache, prices
        self._cases = {case.case_id: case for case in run.cases}
        self._answers, _ = run.answers()
        self._records = {digest: read_record(run.path / GRADES, digest) for digest in known.judges}

    def read(self, path: Path) -> None:
        for result in read_results(path):
            if isinstance(result, str):
                self.told.damaged += 1
                self.told.notes.append(result)
            else:
                self._count(result)

    def finish(self) -> BatchRead:
        """The count, once all files are read."""
        without: set[tuple[str, str, str]] = set()
        for custom_id, asked in self._known.asked.items():
            judge = self._known.judges.get(asked.judge)
            work = self._work(asked, judge) if judge else None
            if judge is None or work is None:
                continue
            open_ = self._open(work, judge)
            without |= {(asked.judge, asked.case_id, cid) for cid in open_}
            self.told.missing += bool(open_) and custom_id not in self._known.answered
        self.told.open = len(without)
        self.told.notes = brief(self.told.notes)
        return self.told

    def _count(self, result: Result) -> None:
        told, where, custom_id = self.told, result.where, result.custom_id
        asked = self._known.asked.get(custom_id)
        judge = self._known.judges.get(asked.judge) if asked else None
        if asked is None or judge is None:
            told.unknown += 1
            told.notes.append(f"{where}: no call of this run is named {custom_id[:80]!r}")
            return
        mark = (custom_id, result.digest)
        if mark in self._known.results:
            self._settle(result, asked, judge, again=True)
            return
        if custom_id in self._known.answered:
            told.duplicates += 1
            told.notes.append(f"{where}: a second result for {custom_id[:12]}…")
        self._settle(result, asked, judge)
        # Last: were the log full now, or the process killed, the result would be passed over for good.
        self._written.add({"kind": "read", "custom_id": custom_id, "digest": result.digest})
        self._known.results.add(mark)
        self._known.answered.add(custom_id)

    def _settle(self, result: Result, asked: _Asked, judge: Judge, again: bool = False) -> None:
        """Take a result about what is as it was; of one that was read before, what holds a verdict now: another
        model may be allowed by now, or a reply be read that was not."""
        told = self.told
        work = self._work(asked, judge)
        if work is None:
            told.stale += not again
            told.again += again
            if not again:
                told.notes.append(
                    f"{result.where}: the answer or the criterion of {asked.case_id!r} has changed since"
                )
            return
        open_ = self._open(work, judge)
        grades = self._grades(judge, work, result.row) if open_ else []
        usage = grades[0].usage if grades else {}
        taken = [g for g in grades if g.criterion_id in open_ and not (again and g.met is None)]
        told.again += not taken
        for grade in taken:
            grade, usage = replace(grade, usage=usage), {}
            self._take(work, judge, grade)

    def _grades(self, judge: Judge, work: Work, row: Mapping[str, Any]) -> list[Grade]:
        """What a result says of a call's criteria."""
        verdicts, request = Verdicts(judge, work), judge.request(work)
        asked = Asked[Mapping[str, object]]()
        reply = None
        try:
            if (why := result_error(row)) is not None:
                raise Unusable(f"batch: {why}")
            reply = completion(row["response"]["body"], self._prices.get(judge.identity.model))
            pinned = None if judge.allow_unpinned else judge.identity.model
            asked.value = read_checked(reply, pinned, "grader", verdicts.read)
            asked.attempts.append(Attempt(request, reply, None))
        except NotACompletion as exc:
            asked.attempts.append(Attempt(request, None, Unusable(f"batch: {exc}")))
        except Unusable as exc:
            asked.attempts.append(Attempt(request, reply, exc))
        return verdicts.grades(asked, Origin.BATCH)

    def _take(self, work: Work, judge: Judge, grade: Grade) -> None:
        told = self.told
        self._log.add(grade.row())
        self._records[judge.digest].put(grade)
        if self._cache is not None:
            self._cache.add(work.case, work.answer, grade)
        told.met += grade.met is True
        told.not_met += grade.met is False
        if grade.met is None:
            told.ungraded += 1
            told.reasons[kind_of(grade.reason)] += 1
            told.shape_refused += "response_format" in grade.reason or "json_schema" in grade.reason
            if grade.grader not in ("", judge.identity.model) and not judge.allow_unpinned:
                told.strangers[grade.grader] += 1

    def _work(self, asked: _Asked, judge: Judge) -> Work | None:
        """The call as it would be made now; None when what it asked about has changed."""
        case, answer = self._cases.get(asked.case_id), self._answers.get(asked.case_id)
        if case is None or answer is None or not answer.gradable:
            return None
        by_id = {c.id: c for c in case.criteria}
        criteria = tuple(by_id[cid] for cid in asked.criteria if cid in by_id)
        if tuple(judge.keys(case, answer, criteria).values()) != asked.keys:
            return None
        return Work(case, answer, criteria)

    def _open(self, work: Work, judge: Judge) -> frozenset[str]:
        """Of a call's criteria those without a settled verdict."""
        latest = self._records[judge.digest].latest
        keys = judge.keys(work.case, work.answer, work.criteria)
        return frozenset(cid for cid, key in keys.items() if not judge.settles(latest.get(key)))


def _asked(judge: Judge, work: Work) -> _Asked:
    keys = judge.keys(work.case, work.answer, work.criteria)
    return _Asked(work.case.case_id, tuple(keys), tuple(keys.values()), judge.digest)


def _custom_id(asked: _Asked, known: _Known) -> str:
    """A name that no result has yet: 64 hexadecimal digits, since endpoints take no longer one."""
    names = (
        digest_json([asked.case_id, asked.criteria, asked.keys, attempt]).partition(":")[2] for attempt in count()
    )
    return next(name for name in names if name not in known.answered)


def _asked_row(custom_id: str, asked: _Asked) -> dict[str, Any]:
    return {
        "kind": "asked",
        "custom_id": custom_id,
        "case_id": asked.case_id,
        "criteria": asked.criteria,
        "keys": asked.keys,
        "judge": asked.judge,
    }


def _judge_row(judge: Judge) -> dict[str, Any]:
    identity = judge.identity
    return {
        "kind": "judge",
        "judge": judge.digest,
        "engine": identity.engine,
        "model": identity.model,
        "parameters": dict(identity.parameters),
        "mode": judge.mode.value,
    }


def _read_batches(run_dir: Path, *, allow_unpinned: bool = False) -> tuple[_Known, list[str]]:
    notes: list[str] = []
    known = _Known()
    for _ in values_of(run_dir / BATCHES, lambda row: _note_row(known, row, allow_unpinned), notes):
        pass
    notes += [f"{BATCHES}: calls of another version's prompt cannot be read" for _ in known.foreign]
    return known, notes


def _note_row(known: _Known, row: Mapping[str, Any], allow_unpinned: bool) -> None:
    if row["kind"] == "judge":
        identity = EngineIdentity(row["engine"], row["model"], row["parameters"])
        judge = Judge(identity, Mode(row["mode"]), allow_unpinned=allow_unpinned)
        if judge.digest == row["judge"]:
            known.judges[judge.digest] = judge
        else:
            known.foreign.add(row["judge"])
    elif row["kind"] == "written":
        known.last, known.shapes[row["judge"]] = row["judge"], JsonMode(row["shape"])
    elif row["kind"] == "asked":
        known.last = row["judge"]
        known.asked[row["custom_id"]] = _Asked(
            row["case_id"], tuple(row["criteria"]), tuple(row["keys"]), row["judge"]
        )
    elif row["kind"] == "read":
        known.results.add((row["custom_id"], row["digest"]))
        known.answered.add(row["custom_id"])
