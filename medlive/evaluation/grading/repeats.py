"""How stable a grader is: the same answers graded again, round after round, beside the verdicts that count.

`repeats.jsonl` holds the rows of `grades.jsonl` with `round`, from 2; round 1 is the verdict that counts. Scoring
never reads it (docs/method.md §3: the same response graded five times).
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from medlive.errors import UsageError
from medlive.evaluation.cases.benchmarks import Place
from medlive.evaluation.grading.grade import (
    Work,
    ask_work,
    open_asker,
    read_record,
    settles,
)
from medlive.evaluation.model import CallsMade, Grade, gradable, grade_keys
from medlive.evaluation.runs.folder import GRADES, RunFolder, open_run
from medlive.grader.judge import Judge, Mode
from medlive.integrity.log import open_log, values_of
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine
from medlive.llm.pool import Progress, work_through

REPEATS: Final = "repeats.jsonl"
_A_ROUND: Final = 1000
"""A store of replies is asked past the rounds before."""

Rounds = Mapping[Place, tuple[bool | None, ...]]
"""One grader's verdicts on every criterion of a run, a verdict a round. The first is the one that counts; None is a
round without one, which is invalid and not "not met"."""


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

    What is left are verdicts of wanted rounds, of graded criteria. Arguments and errors are those of `grade_run`;
    UsageError also for fewer than two repeats.
    """
    if repeats < 2:
        raise UsageError("--repeats must be at least two rounds")
    run = open_run(run_dir)
    judge = Judge(engine.identity, mode)
    asker = open_asker(engine, max_retries, concurrency, budget)
    with open_log(run.path / REPEATS) as log:

        def keep(work: Work, grade: Grade) -> None:
            log.add({**grade.row(), "round": work.round // _A_ROUND})

        todo = list(later_rounds(run, judge, repeats))
        stopped = await work_through(
            todo,
            partial(ask_work, judge, asker, keep),
            concurrency,
            done=0,
            total=sum(len(work.criteria) for work in todo),
            progress=progress,
        )
    left = 0
    notes: list[str] = []
    for verdicts in read_rounds(run_dir, judge.digest, notes).values():
        if verdicts[0] is not None:
            again = verdicts[1:repeats]
            left += repeats - 1 - len(again) + again.count(None)
    return CallsMade(
        calls=asker.calls,
        left=left,
        notes=tuple(notes),
        stopped=stopped,
        silence=asker.silence,
    )


def read_rounds(
    run_dir: Path,
    judge: str,
    notes: list[str],
) -> Rounds:
    """The rounds of the grader with that digest: verdicts about the answers and criteria as they are now.

    Damaged lines are listed in `notes`.
    """
    run = open_run(run_dir)
    first = read_record(run_dir / GRADES, judge).latest
    later = _later_grades(run_dir, judge, notes)
    n = max((round_ for _, round_ in later), default=1)
    verdicts: dict[Place, tuple[bool | None, ...]] = {}
    for case, answer in gradable(run.cases, run.answers()[0]):
        for cid, key in grade_keys(case, answer, judge).items():
            if key not in first:
                continue
            verdicts_of = [first[key].met]
            for round_ in range(2, n + 1):
                grade = later.get((key, round_))
                verdicts_of.append(grade.met if grade else None)
            verdicts[case.case_id, cid] = tuple(verdicts_of)
    return verdicts


def _later_grades(
    run_dir: Path,
    judge: str,
    notes: list[str],
) -> dict[tuple[str, int], Grade]:
    """A judge's verdicts of the rounds after the first, by (key, round); damaged lines are listed in `notes`."""

    def parse(row: Mapping[str, Any]) -> tuple[Grade, int]:
        if not isinstance(row["round"], int) or row["round"] < 2:
            raise ValueError("round must be at least 2")
        return Grade.from_row(row), row["round"]

    later: dict[tuple[str, int], Grade] = {}
    for grade, round_ in values_of(run_dir / REPEATS, parse, notes):
        if grade.judge == judge:
            later[grade.key, round_] = grade
    return later


def later_rounds(
    run: RunFolder,
    judge: Judge,
    repeats: int,
    *,
    planned: bool = False,
) -> Iterator[Work]:
    """The calls of the rounds after the first that lack a verdict, of criteria that have one that counts.

    A case's rounds come after each other, so that an endpoint's prefix cache holds what they share. `planned`: as if
    every criterion had its verdict already.
    """
    first = read_record(run.path / GRADES, judge.digest).latest
    later = _later_grades(run.path, judge.digest, [])
    for case, answer in gradable(run.cases, run.answers()[0]):
        keys = grade_keys(case, answer, judge.digest)
        for round_ in range(2, repeats + 1):
            unsettled = []
            for criterion in case.criteria:
                key = keys[criterion.id]
                counts = planned or settles(judge, first.get(key))
                if counts and not settles(judge, later.get((key, round_))):
                    unsettled.append(criterion)
            for part in judge.parts(unsettled):
                yield Work(case, answer, part, _A_ROUND * round_)
