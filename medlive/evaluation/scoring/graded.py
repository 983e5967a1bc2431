"""A run with the verdicts of one grader: read lean for scoring, whole only where somebody looks at them."""

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeVar

from medlive.errors import UsageError
from medlive.evaluation.log import Lines, rows_of
from medlive.evaluation.model import Answer, CaseKeys, EvaluationCase, Grade, Mode
from medlive.evaluation.runs.folder import GRADES, RunFolder, open_run
from medlive.evaluation.runs.grades import read_grades

_TEXTS: Final = (
    "case_id", "criterion_id", "key", "quote", "reasoning", "reason", "raw", "grader", "engine", "model", "prompt",
    "judge",
)  # fmt: skip
_TEXTS_OF: Final = itemgetter(*_TEXTS)
_ALL_TEXT: Final = {str}
_MODES: Final = frozenset(mode.value for mode in Mode)
_NAMED: Final = 5
"""How many oddities of a log are named; the others are counted."""
_LARGE: Final = 150_000_000
"""Bytes of logs from which on further processes are worth their start."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Grader:
    """Who graded."""

    engine: str
    model: str
    """The pinned model that was asked."""
    answered_by: tuple[str, ...]
    """The models that the replies name."""
    mode: str
    prompt: str
    judge: str


@dataclass(frozen=True, slots=True)
class GradedRun:
    """A run with the verdicts of one grader, ready to be scored."""

    run: RunFolder
    label: str
    """The model's name, made unique among the runs scored together."""
    answers: Mapping[str, Answer]
    grades: Mapping[str, Mapping[str, Grade]]
    """Case id → criterion id → the grade that fits the answer and the criterion as they are now. Of `load_graded`
    it is read from the disk when it is first looked into."""
    grader: Grader | None
    """None when nothing is graded."""
    notes: tuple[str, ...]
    met: Mapping[str, Mapping[str, bool | None]] | None = None
    """Case id → criterion id → met, not met, or None for ungraded, of the same grades; None: as `grades` says."""

    def verdicts(self, case_id: str) -> Mapping[str, bool | None]:
        """Criterion id → verdict, of what is on record for a case."""
        if self.met is not None:
            return self.met.get(case_id, {})
        return {cid: grade.met for cid, grade in self.grades.get(case_id, {}).items()}


class _GradeBook(Mapping[str, Mapping[str, Grade]]):
    """The grades of a run, read when they are first asked for: scoring many runs needs none of their texts."""

    def __init__(self, run: RunFolder, answers: Mapping[str, Answer], judge: str) -> None:
        self._run, self._answers, self._judge = run, answers, judge
        self._found: dict[str, dict[str, Grade]] | None = None

    def _read(self) -> dict[str, dict[str, Grade]]:
        if self._found is None:
            grades, _ = read_grades(self._run.path / GRADES)
            latest = {grade.key: grade for grade in grades if grade.judge == self._judge}
            self._found = dict(_fitting(self._run.cases, self._answers, self._judge, latest))
        return self._found

    def __getitem__(self, case_id: str) -> Mapping[str, Grade]:
        return self._read()[case_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


@dataclass(slots=True)
class _Judged:
    """What a log holds of one judge."""

    last: dict[str, Any]
    """Its last row."""
    latest: dict[str, bool | None]
    """Key → the verdict that was written last."""
    named: set[str]
    contradicted: set[str]
    """Keys that were met at one time and not met at another."""


def load_graded(path: Path, *, judge: str | None = None) -> GradedRun:
    """A run with the verdicts of the grader that has the most on the answers and criteria as they are now (of
    equals: the one that wrote last), or of the one whose digest, its beginning or whose model is given, where no
    other has the same.

    A verdict about an answer or a criterion that has changed since does not count; of several verdicts of one
    judge on the same thing the last one does. Raises UsageError for a judge that did not grade here.
    """
    run = open_run(path)
    return _graded(run, _read(run, judge))


def load_all(paths: Sequence[Path], *, judge: str | None = None) -> list[GradedRun]:
    """`load_graded` of many runs; large logs are read by as many processes as there are processors."""
    size = sum((path / GRADES).stat().st_size for path in paths if (path / GRADES).exists())
    workers = min(_processors(), len(paths))
    if workers < 2 or size < _LARGE:
        with uncollected():
            return [load_graded(path, judge=judge) for path in paths]
    with uncollected():
        try:
            # A fresh process each: a copy of this one might hold a lock of a thread that it does not have.
            with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
                found = list(pool.map(_read_path, paths, [judge] * len(paths)))
        except BrokenProcessPool:
            # They begin by importing the caller's script, which may have no `if __name__ == "__main__"`.
            return [load_graded(path, judge=judge) for path in paths]
        return [_graded(open_run(path), read) for path, read in zip(paths, found, strict=True)]


def _processors() -> int:
    """How many processors this process may use; 1 where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


@contextmanager
def uncollected() -> Iterator[None]:
    """The collector of cycles kept from looking through millions of new objects, none of which is in a cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read_path(path: Path, judge: str | None) -> "_Read":
    with uncollected():
        return _read(open_run(path), judge)


@dataclass(frozen=True, slots=True)
class _Read:
    """What the logs of a run say; small enough to be handed from one process to another."""

    answers: dict[str, Answer]
    met: dict[str, dict[str, bool | None]]
    grader: Grader | None
    notes: tuple[str, ...]


def _graded(run: RunFolder, read: _Read) -> GradedRun:
    grades = {} if read.grader is None else _GradeBook(run, read.answers, read.grader.judge)
    return GradedRun(run, run.info.model, read.answers, grades, read.grader, read.notes, read.met)


def _read(run: RunFolder, judge: str | None) -> _Read:
    answers, notes = run.answers()
    judges, order, grade_notes = _read_verdicts(run.path / GRADES)
    notes = [*_few(notes), *_few(grade_notes)]
    if not order:
        if judge is not None:
            raise UsageError(f"{run.path}: 0 judges are {judge!r}", hint="graded by nobody")
        return _Read(answers, {}, None, tuple(notes))
    chosen = _asked(judges, order, judge, run.path) if judge is not None else order[-1]
    looked = [chosen] if len(order) == 1 or judge is not None else order
    fitting = {one: dict(_fitting(run.cases, answers, one, judges[one].latest)) for one in looked}
    counts = {one: _given(met) for one, met in fitting.items()} if len(looked) > 1 else {}
    if counts:
        # One that was broken off or only failed, as a mistyped one, does not push aside what others have graded.
        chosen = fullest(counts)
    found = judges[chosen]
    last = found.last
    named = tuple(sorted(found.named))
    grader = Grader(last["engine"], last["model"], named, last["mode"], last["prompt"], chosen)
    if counts:
        told = {one: f"{_judge_text(judges[one].last)}: {n} verdicts" for one, n in counts.items()}
        tied = list(counts.values()).count(counts[chosen]) > 1
        why = "wrote last of those with the most" if tied else "has the most"
        others = "; ".join(text for one, text in told.items() if one != chosen)
        notes.append(
            f"graded by {len(judges)} judges; scored is the one that {why}, {told[chosen]} on the answers and "
            f"criteria as they are now; not {others} (--judge chooses)"
        )
    if found.contradicted:
        notes.append(
            f"{GRADES}: {len(found.contradicted)} criteria are met in one verdict and not met in another of "
            "the same judge; the last one counts"
        )
    return _Read(answers, fitting[chosen], grader, tuple(notes))


def fullest(counts: dict[str, int]) -> str:
    """The name with the most; of equals the one that stands last. Of judges and their verdicts, as they wrote."""
    return max(reversed(counts), key=counts.__getitem__)


def _given(met: Mapping[str, Mapping[str, bool | None]]) -> int:
    """How many of the verdicts are one."""
    return sum(verdict is not None for of in met.values() for verdict in of.values())


def _judge_text(row: Mapping[str, Any]) -> str:
    return f"{row['model']} ({row['mode']} mode, {row['judge'][:19]})"


def _few(notes: list[str]) -> list[str]:
    more = len(notes) - _NAMED
    return notes if more <= 0 else [*notes[:_NAMED], f"and {more} more of this kind"]


def _asked(judges: Mapping[str, _Judged], order: list[str], asked: str, path: Path) -> str:
    """The judge of that digest, or its beginning, or the one whose model has that name."""
    fitting = [j for j in judges if j.partition(":")[2].startswith(asked) or j.startswith(asked)]
    fitting = fitting or [j for j in judges if judges[j].last["model"] == asked]
    if len(fitting) == 1:
        return fitting[0]
    there = "; ".join(_judge_text(judges[j].last) for j in order)
    raise UsageError(
        f"{path}: {len(fitting)} judges are {asked!r}",
        hint=f"graded by {there}; give the digest's first digits, or the model where it is one judge's alone",
    )


def _read_verdicts(path: Path) -> tuple[dict[str, _Judged], list[str], list[str]]:
    """What each judge said last of each key; the judges, that which wrote last at the end; and what was odd.

    As `grade.read_grades` counts rows, but no `Grade` is built: 38 runs hold 600,000 of them.
    """
    judges: dict[str, _Judged] = {}
    last = ""
    found = None
    lines = Lines()
    for row, number, _, _ in rows_of(path, lines):
        if (why := _no_grade(row)) is not None:
            lines.damaged.append((number, f"not a valid row: {why}"))
            continue
        judge, key, met = row["judge"], row["key"], row["met"]
        if found is None or judge != last:
            found = judges.pop(judge, None) or _Judged(row, {}, set(), set())
            judges[judge] = found
            last = judge
        found.last = row
        found.named.add(row["grader"])
        if key in found.latest and (was := found.latest[key]) is not met and None not in (was, met):
            found.contradicted.add(key)
        found.latest[key] = met
    for one in judges.values():
        one.named.discard("")
    return judges, list(judges), lines.notes(path.name)


def _no_grade(row: Mapping[str, Any]) -> str | None:
    """Why a row is no grade, or None."""
    try:
        texts = _TEXTS_OF(row)
        met, mode = row["met"], row["mode"]
    except KeyError as exc:
        return f"{exc.args[0]} is missing"
    if set(map(type, texts)) != _ALL_TEXT:
        name = next(name for name, text in zip(_TEXTS, texts, strict=True) if type(text) is not str)
        return f"{name} is no text"
    if met is not None and met is not True and met is not False:
        return "met is neither true, false nor null"
    return None if type(mode) is str and mode in _MODES else f"mode {mode!r} is unknown"


def _fitting(
    cases: tuple[EvaluationCase, ...], answers: Mapping[str, Answer], judge: str, latest: Mapping[str, T]
) -> Iterator[tuple[str, dict[str, T]]]:
    """Case id → criterion id → what `latest` holds under its key, for every case with an answer to grade."""
    for case, shared in zip(cases, _case_keys(_Same(cases)), strict=True):
        answer = answers.get(case.case_id)
        if answer is not None and answer.gradable:
            keys = shared.keys(answer, judge).items()
            yield case.case_id, {criterion: latest[key] for criterion, key in keys if key in latest}


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """Cases that are equal to themselves alone: to compare and hash thousands takes longer than to read them."""

    cases: tuple[EvaluationCase, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.cases is other.cases

    def __hash__(self) -> int:
        return id(self.cases)


@lru_cache(maxsize=2)
def _case_keys(same: _Same) -> tuple[CaseKeys, ...]:
    """Made once for all runs of the same cases."""
    return tuple(CaseKeys.of(case) for case in same.cases)
