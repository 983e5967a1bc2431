"""How models did on single cases: read from bundles that verify, and from run folders."""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from medlive.errors import MedliveError, describe
from medlive.evaluation.bundles.files import BUNDLE, RUN
from medlive.evaluation.bundles.verify import verify_bundle
from medlive.evaluation.model import EvaluationCriterion
from medlive.evaluation.scoring.graded import GradedRun, load_graded
from medlive.evaluation.scoring.metrics import CaseState, Metric
from medlive.printable import printable

_LONGEST: Final = 200
"""Characters of a name or a message of a file that is shown."""
_Mark = tuple[tuple[str, int, int], ...]


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
    criteria: tuple[EvaluationCriterion, ...]
    results: tuple[CaseResult, ...]


@dataclass(frozen=True, slots=True)
class _Source:
    """A bundle or run folder as it was read."""

    mark: _Mark
    cases: str = ""
    results: Mapping[str, tuple[tuple[EvaluationCriterion, ...], CaseResult]] | None = (
        None
    )
    problem: str = ""  # Why it is not shown


class CaseResults:
    """What bundles and run folders say about cases; nothing in them is trusted."""

    def __init__(self, places: Sequence[Path]) -> None:
        """`places`: bundles, run folders, and folders of them; one that is missing may come to be."""
        self._places, self._lock = tuple(places), threading.Lock()
        self._reading: threading.Thread | None = None
        self._sources: dict[Path, _Source] = {}
        self._rubrics: dict[
            tuple[EvaluationCriterion, ...], tuple[EvaluationCriterion, ...]
        ] = {}

    def refresh(self) -> None:
        """Read what is new or has changed since; a fault of one source is its `problem`."""
        with self._lock:
            marks: dict[Path, _Mark] = {}
            for place in self._places:
                marks.update(_sources(place))
            self._sources = {
                path: source for path, source in self._sources.items() if path in marks
            }
            for path, mark in marks.items():
                known = self._sources.get(path)
                if known is None or known.mark != mark:
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
        by_rubric: dict[
            tuple[str, tuple[EvaluationCriterion, ...]], list[CaseResult]
        ] = {}
        for source in self._sources.values():
            if source.results is not None and case_id in source.results:
                criteria, result = source.results[case_id]
                by_rubric.setdefault((source.cases, criteria), []).append(result)
        newest_first = sorted(by_rubric, key=lambda rubric: rubric[0], reverse=True)
        out = []
        for cases, criteria in newest_first:
            results = sorted(by_rubric[cases, criteria], key=_rank)
            out.append(RubricResults(cases, criteria, tuple(results)))
        return out

    def problems(self) -> list[tuple[str, str]]:
        """(name, why) of what is not shown, such as a bundle that does not verify."""
        problems = []
        for path, source in self._sources.items():
            if source.problem:
                problems.append((printable(path.name), source.problem))
        return problems

    def _read(self, path: Path, mark: _Mark) -> _Source:
        try:
            if is_run := (path / RUN).is_file() and not (path / BUNDLE).exists():
                run: GradedRun | None = load_graded(path)
            else:
                report = verify_bundle(path)
                run = report.run
                if run is None or not report.ok:
                    return _Source(
                        mark,
                        problem=f"the bundle does not verify: {printable(report.why_not)[:500]}",
                    )
            assert run is not None
            return _Source(
                mark,
                printable(run.run.info.cases.name)[:_LONGEST],
                self._results(run, not is_run),
            )
        except Exception as exc:
            # Whatever a file holds, the others are shown.
            why = exc.message if isinstance(exc, MedliveError) else describe(exc)
            return _Source(mark, problem=printable(why)[:500])

    def _results(
        self, run: GradedRun, verified: bool
    ) -> dict[str, tuple[tuple[EvaluationCriterion, ...], CaseResult]]:
        model, grader = printable(run.run.info.model)[:_LONGEST], run.grader
        name = printable(grader.model)[:_LONGEST] if grader else ""
        results = {}
        for score in run.case_scores(Metric.COMPLETE):
            criteria = score.case.criteria
            met: list[bool | None] = []
            if score.met:
                met = [score.met.get(criterion.id) for criterion in criteria]
            result = CaseResult(
                model=model,
                grader=name,
                verified=verified,
                state=score.state,
                score=score.score,
                met=tuple(met),
            )
            # Runs of the same cases share their rubrics.
            shared = self._rubrics.setdefault(criteria, criteria)
            results[score.case.case_id] = (shared, result)
        return results


def _rank(result: CaseResult) -> tuple[float, str]:
    return (1.0 if result.score is None else -result.score, result.model)


def _sources(place: Path) -> Iterator[tuple[Path, _Mark]]:
    """The bundles and run folders at or in a place, each with what tells whether it has changed."""
    inside = _entries(place)
    if inside is None:
        if place.exists():
            yield place, _mark([place])
    elif _is_source(inside):
        yield place, _mark(inside)
    else:
        for path in inside:
            of = _entries(path)
            if of is None and path.suffix == ".zip":
                yield path, _mark([path])
            elif of is not None and _is_source(of):
                yield path, _mark(of)


def _is_source(files: Sequence[Path]) -> bool:
    return any(path.name in (BUNDLE, RUN) for path in files)


def _entries(place: Path) -> list[Path] | None:
    """What is in a folder, sorted; None: it is none."""
    try:
        return sorted(
            place / name for name in os.listdir(place) if not name.startswith(".")
        )
    except OSError:
        return None


def _mark(files: Sequence[Path]) -> _Mark:
    found = []
    for path in files:
        try:
            state = path.stat()
        except OSError:
            continue
        found.append((path.name, state.st_mtime_ns, state.st_size))
    return tuple(found)
