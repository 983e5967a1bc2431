"""How models did on single cases: read from bundles that verify, and from run folders."""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from medlive.errors import CheckFailed, MedliveError, describe
from medlive.evaluation.bundles.files import RUN
from medlive.evaluation.bundles.verify import verify_bundle
from medlive.evaluation.model import EvaluationCriterion
from medlive.evaluation.scoring.graded import GradedRun, load_graded
from medlive.evaluation.scoring.metrics import CaseState, Metric
from medlive.printable import printable

_LONGEST: Final = 200
"""Characters of a name or a message of a file that is shown."""
_Mark = tuple[tuple[str, int, int], ...]
_Rubric = tuple[EvaluationCriterion, ...]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A model's result on a case."""

    model: str
    grader: str  # Empty: nothing is graded
    verified: bool  # Whether it is of a bundle that verified, and not of a run folder
    state: CaseState
    score: float | None  # By equation 1; None unless scored
    met: tuple[bool | None, ...]
    """Of each criterion; None: ungraded. Empty when unanswered."""


@dataclass(frozen=True, slots=True)
class RubricResults:
    """The results on one wording of a case's rubric, by model."""

    cases: str  # The snapshot's version, or the file's name
    criteria: _Rubric
    results: tuple[CaseResult, ...]


class _Result(NamedTuple):
    """A result, and the rubric that it is by."""

    criteria: _Rubric
    result: CaseResult


class _Source(NamedTuple):
    """A bundle or run folder as it was read."""

    mark: _Mark
    cases: str = ""
    results: Mapping[str, _Result] = {}
    problem: str = ""  # Why it is not shown


class CaseResults:
    """What bundles and run folders say about cases; nothing in them is trusted."""

    def __init__(self, places: Sequence[Path]) -> None:
        """`places`: bundles, run folders, and folders of them; one that is missing may come to be."""
        self._places, self._lock = tuple(places), threading.Lock()
        self._reading: threading.Thread | None = None
        self._sources: dict[Path, _Source] = {}
        self._rubrics: dict[_Rubric, _Rubric] = {}

    def refresh(self) -> None:
        """Read what is new or has changed since; a fault of one source is its `problem`."""
        with self._lock:
            marks: dict[Path, _Mark] = {}
            for place in self._places:
                marks.update(_sources(place))
            gone = self._sources.keys() - marks.keys()
            self._sources = {p: s for p, s in self._sources.items() if p not in gone}
            for path, mark in marks.items():
                known = self._sources.get(path)
                if known is None or known.mark != mark:
                    # A new dict, since other threads read the old one.
                    self._sources = {**self._sources, path: self._read(path, mark)}

    def refresh_within(self, seconds: float) -> bool:
        """Refresh, for as long as `seconds`; False where it goes on in the background."""
        reading = self._reading
        if reading is None or not reading.is_alive():
            reading = self._reading = threading.Thread(target=self.refresh, daemon=True)
            reading.start()
        reading.join(seconds)
        return not reading.is_alive()

    def of_case(self, case_id: str) -> list[RubricResults]:
        """The results on a case; the newest snapshot first, the best score first."""
        by_rubric: dict[tuple[str, _Rubric], list[CaseResult]] = {}
        for source in self._sources.values():
            if case_id in source.results:
                criteria, result = source.results[case_id]
                by_rubric.setdefault((source.cases, criteria), []).append(result)
        out = []
        for (cases, criteria), results in by_rubric.items():
            results.sort(key=_rank)
            out.append(RubricResults(cases, criteria, tuple(results)))
        return sorted(out, key=lambda rubric: rubric.cases, reverse=True)

    def problems(self) -> list[tuple[str, str]]:
        """(name, why) of what is not shown, such as a bundle that does not verify."""
        problems = []
        for path, source in self._sources.items():
            if source.problem:
                problems.append((printable(path.name), source.problem))
        return problems

    def _read(self, path: Path, mark: _Mark) -> _Source:
        try:
            run = load_graded(path) if path.is_dir() else _verified_run(path)
            cases = printable(run.run.info.cases.name)[:_LONGEST]
            return _Source(mark, cases, self._results(run, verified=path.is_file()))
        except Exception as exc:
            # Whatever a file holds, the others are shown.
            why = exc.message if isinstance(exc, MedliveError) else describe(exc)
            return _Source(mark, problem=printable(why)[:500])

    def _results(self, run: GradedRun, *, verified: bool) -> dict[str, _Result]:
        results = {}
        for score in run.case_scores(Metric.COMPLETE):
            criteria = score.case.criteria
            met: list[bool | None] = []
            if score.met:
                met = [score.met.get(criterion.id) for criterion in criteria]
            result = CaseResult(
                model=printable(run.run.info.model)[:_LONGEST],
                grader=printable(run.grader.model)[:_LONGEST] if run.grader else "",
                verified=verified,
                state=score.state,
                score=score.score,
                met=tuple(met),
            )
            # Runs of the same cases share their rubrics.
            shared = self._rubrics.setdefault(criteria, criteria)
            results[score.case.case_id] = _Result(shared, result)
        return results


def _verified_run(path: Path) -> GradedRun:
    """The run of a bundle. Raises CheckFailed if it does not verify."""
    report = verify_bundle(path)
    if report.run is None:
        raise CheckFailed(f"the bundle does not verify: {report.why_not}")
    return report.run


def _rank(result: CaseResult) -> tuple[float, str]:
    return (1.0 if result.score is None else -result.score, result.model)


def _sources(place: Path, *, given: bool = True) -> Iterator[tuple[Path, _Mark]]:
    """The bundles and run folders at or in a place, each with a mark that differs once it has changed."""
    if place.is_file():
        if given or place.suffix == ".zip":
            yield place, _mark([place])
        return
    try:
        names = sorted(os.listdir(place))
    except OSError:
        return
    inside = [place / name for name in names if not name.startswith(".")]
    if RUN in names:
        yield place, _mark(inside)
    elif given:
        for path in inside:
            yield from _sources(path, given=False)


def _mark(files: Sequence[Path]) -> _Mark:
    states = []
    for path in files:
        try:
            state = path.stat()
        except OSError:
            continue
        states.append((path.name, state.st_mtime_ns, state.st_size))
    return tuple(states)
