"""How stable a grader is: the same answers graded again, round after round, beside the verdicts that count.

`repeats.jsonl` holds the rows of `grades.jsonl` with `round`, from 2; round 1 is the verdict that counts. Scoring
never reads it (docs/method.md §3: the same response graded five times).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from medlive.errors import BadInput, EndpointUnavailable, UsageError
from medlive.evaluation.grading.grade import open_asker
from medlive.evaluation.grading.judge import Judge, Work
from medlive.evaluation.log import open_log, values_of
from medlive.evaluation.model import CaseKeys, Grade, Mode, gradable
from medlive.evaluation.runs.folder import GRADES, RunFolder, open_run
from medlive.evaluation.runs.grades import read_grades
from medlive.evaluation.scoring.graded import load_graded
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine
from medlive.llm.pool import Progress, work_through

REPEATS: Final = "repeats.jsonl"
Place = tuple[str, str]
"""(case id, criterion id)."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """What one grader said of every criterion of a run, round after round."""

    judge: str
    n: int
    """Rounds, the one that counts included."""
    verdicts: Mapping[Place, tuple[bool | None, ...]]
    """The first is the verdict that counts; None is a round without one, which is invalid and not "not met"."""


@dataclass(frozen=True, slots=True)
class Stability:
    """How far the rounds say the same."""

    rounds: int
    criteria: int
    """With a verdict in at least two rounds."""
    unanimous: int
    """Of these, those of which every verdict is the same."""
    pairs: int
    equal_pairs: int
    """Pairs of rounds of one criterion, and those that agree."""
    invalid: int
    """Rounds of a criterion without a verdict."""
    met: tuple[float | None, ...]
    """The share met in each round, of its verdicts; None where it has none."""

    @property
    def agreement(self) -> float | None:
        """The share of pairs of verdicts that are equal."""
        return self.equal_pairs / self.pairs if self.pairs else None


@dataclass(frozen=True, slots=True)
class RepeatResult:
    """What a repetition came to."""

    stability: Stability
    calls: int
    missing: int
    """Verdicts of rounds that are wanted and not there, of graded criteria."""
    notes: tuple[str, ...]
    """Damaged lines of the log; what they held is asked again."""
    stopped: str | None
    """Which budget ended it; None: none did."""
    silence: EndpointUnavailable | None = None
    """Why the last call failed, where none of this time was answered (`Health.silence`)."""


async def repeat_run(
    run_dir: Path,
    engine: Engine,
    *,
    repeats: int,
    mode: Mode = Mode.CRITERION,
    concurrency: int = 16,
    max_retries: int = 1,
    allow_unpinned: bool = False,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> RepeatResult:
    """Grade what the run has graded by this engine, mode and prompt again, until each has `repeats` verdicts.

    Every round is asked afresh: no cache is looked into. A round that is there is not asked again. Raises as
    `grade_run`, and UsageError for fewer than two repeats.
    """
    if repeats < 2:
        raise UsageError("--repeats must be at least two rounds")
    run = open_run(run_dir)
    judge = Judge(engine.identity, mode, allow_unpinned=allow_unpinned)
    asker = open_asker(engine, max_retries, concurrency, allow_unpinned, budget)
    with open_log(run.path / REPEATS) as log:
        first, later, notes = _on_record(run.path, judge.digest)
        todo = list(_rounds(run, judge, later, repeats, lambda key: judge.settles(first.get(key))))

        async def ask(item: tuple[int, Work]) -> int:
            round_, work = item
            for grade in await judge.ask(asker, work):
                log.add({**grade.row(), "round": round_})
            return len(work.criteria)

        total = sum(len(work.criteria) for _, work in todo)
        stopped = await work_through(todo, ask, concurrency, done=0, total=total, progress=progress)
    rounds = read_rounds(run_dir, judge=judge.digest)
    wanted = sum(1 for verdicts in rounds.verdicts.values() if verdicts[0] is not None)
    have = sum(
        sum(met is not None for met in verdicts[1:repeats])
        for verdicts in rounds.verdicts.values()
        if verdicts[0] is not None
    )
    missing = wanted * (repeats - 1) - have
    return RepeatResult(stability(rounds), asker.calls, missing, tuple(notes), stopped, asker.silence)


def read_rounds(run_dir: Path, *, judge: str | None = None) -> Rounds:
    """The rounds of the grader that `load_graded` chooses, or of the one whose judge digest is given.

    Only verdicts about the answers and criteria as they are now. Raises BadInput when nothing is graded.
    """
    run = open_run(run_dir)
    if judge is None:
        grader = load_graded(run_dir).grader
        if grader is None:
            raise BadInput(f"{run_dir} holds no grades", hint="medlive eval grade makes them")
        judge = grader.judge
    first, later, _ = _on_record(run_dir, judge)
    n = max((round_ for _, round_ in later), default=1)
    verdicts: dict[Place, tuple[bool | None, ...]] = {}
    for case, answer in gradable(run.cases, run.answers()[0]):
        for cid, key in CaseKeys.of(case).keys(answer, judge).items():
            if key in first:
                rounds = (later.get((key, round_)) for round_ in range(2, n + 1))
                verdicts[case.case_id, cid] = (first[key].met, *(g.met if g else None for g in rounds))
    return Rounds(judge, n, verdicts)


def stability(rounds: Rounds) -> Stability:
    """How far a grader agrees with itself, over the criteria that have a verdict in at least two rounds."""
    several = [[met for met in row if met is not None] for row in rounds.verdicts.values()]
    several = [row for row in several if len(row) > 1]
    pairs = [one is other for row in several for one, other in combinations(row, 2)]
    return Stability(
        rounds=rounds.n,
        criteria=len(several),
        unanimous=sum(len(set(row)) == 1 for row in several),
        pairs=len(pairs),
        equal_pairs=sum(pairs),
        invalid=sum(met is None for row in rounds.verdicts.values() for met in row),
        met=tuple(_share([row[place] for row in rounds.verdicts.values()]) for place in range(rounds.n)),
    )


def _share(verdicts: Sequence[bool | None]) -> float | None:
    given = [met for met in verdicts if met is not None]
    return sum(given) / len(given) if given else None


def _on_record(run_dir: Path, judge: str) -> tuple[dict[str, Grade], dict[tuple[str, int], Grade], list[str]]:
    """A judge's verdicts: those that count by key, the later rounds by (key, round); and what is damaged."""
    notes: list[str] = []
    first = {grade.key: grade for grade in read_grades(run_dir / GRADES)[0] if grade.judge == judge}
    later = {
        (grade.key, round_): grade
        for grade, round_ in values_of(run_dir / REPEATS, _repeated, notes)
        if grade.judge == judge
    }
    return first, later, notes


def _repeated(row: Mapping[str, Any]) -> tuple[Grade, int]:
    """A grade and its round. Raises TypeError, KeyError or ValueError where the row is none of a later round."""
    if not isinstance(row["round"], int) or row["round"] < 2:
        raise ValueError("round must be at least 2")
    return Grade.from_row(row), row["round"]


def later_rounds(run: RunFolder, judge: Judge, repeats: int) -> Iterator[Work]:
    """The calls of the rounds after the first that are left to make, once every criterion has its verdict."""
    _, later, _ = _on_record(run.path, judge.digest)
    return (work for _, work in _rounds(run, judge, later, repeats, lambda _: True))


def _rounds(
    run: RunFolder,
    judge: Judge,
    later: Mapping[tuple[str, int], Grade],
    repeats: int,
    counts: Callable[[str], bool],
) -> Iterator[tuple[int, Work]]:
    """The rounds that lack a verdict, of criteria that have one that counts; a case's rounds after each other, so
    that an endpoint's prefix cache holds what they share."""
    for case, answer in gradable(run.cases, run.answers()[0]):
        keys = judge.keys(case, answer)
        graded = [c for c in case.criteria if counts(keys[c.id])]
        for round_ in range(2, repeats + 1):
            open_ = [c for c in graded if not judge.settles(later.get((keys[c.id], round_)))]
            for part in judge.parts(open_):
                # A store of replies is asked past the rounds before.
                yield round_, Work(case, answer, part, 1000 * round_)
