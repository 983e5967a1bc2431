"""A ranking of bundles that verify: one snapshot, one grader, scored together; all others apart, each with why."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from medlive.evaluation.bundle import RUN, named_errata
from medlive.evaluation.bundle_verify import BundleReport
from medlive.evaluation.errata import ErrataMode, FoundErrata, RunErrata, without
from medlive.evaluation.graded import GradedRun
from medlive.evaluation.metrics import Metric
from medlive.evaluation.run import GRADES
from medlive.evaluation.score import ScoreTable, score_runs
from medlive.snapshot.errata import Errata


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """The bundles that are ranked together, and those that are not."""

    table: ScoreTable | None
    """None where no bundle verifies. Models that share a name are told apart by their bundle's."""
    ranked: tuple[BundleReport, ...]
    """In the order that was given."""
    apart: tuple[tuple[BundleReport, str], ...]
    """Each with why it is not ranked."""
    left_out: RunErrata
    """Cases and criteria that a ranked bundle leaves out as withdrawn: they are left out for all."""


def rank_bundles(
    reports: Sequence[BundleReport], *, metric: Metric = Metric.PAPER, draws: int = 1000, seed: int = 0
) -> Leaderboard:
    """Rank the bundles that verify wholly and are of the same cases and grader.

    Where there are several such sets the largest is ranked, of equally large ones that of the bundle given first.
    """
    apart: dict[int, str] = {place: r.why_not for place, r in enumerate(reports) if r.run is None}
    sound = {place: r.run for place, r in enumerate(reports) if r.run is not None}
    held: dict[tuple[str, str], int] = {}
    for place in sound:
        # The same bundle twice would be two ranks for one run.
        same = held.setdefault(_content(reports[place]), place)
        if same != place:
            apart[place] = f"the same run as {reports[same].path.name}"
    sets = Counter(_set(run) for place, run in sound.items() if place not in apart)
    if not sets:
        return Leaderboard(None, (), tuple((reports[p], why) for p, why in sorted(apart.items())), _none())
    chosen = max(sets, key=lambda one: sets[one])
    for place, run in sound.items():
        if place not in apart and (why := _differs(_set(run), chosen)):
            apart[place] = why
    places = [place for place in sound if place not in apart]
    gone = _left_out([reports[place] for place in places])
    runs = [_named(reports[place], sound[place], gone) for place in places]
    return Leaderboard(
        score_runs(runs, metric=metric, draws=draws, seed=seed),
        tuple(reports[place] for place in places),
        tuple((reports[place], why) for place, why in sorted(apart.items())),
        gone,
    )


def _set(run: GradedRun) -> tuple[str, str]:
    return run.run.info.cases.rows, run.grader.judge if run.grader else ""


def _content(report: BundleReport) -> tuple[str, str]:
    files = report.info.files if report.info else {}
    return files[RUN].digest, files[GRADES].digest


def _differs(one: tuple[str, str], chosen: tuple[str, str]) -> str:
    if one[0] != chosen[0]:
        return "its cases are others than those of the ranked bundles"
    return "" if one == chosen else "its grader is another than that of the ranked bundles"


def _none() -> RunErrata:
    return RunErrata("", FoundErrata(None, Errata()))


def _left_out(reports: Sequence[BundleReport]) -> RunErrata:
    """What any of them leaves out."""
    cases: set[str] = set()
    criteria: set[tuple[str, str]] = set()
    for report in reports:
        if report.run is not None and report.errata and report.errata["mode"] == ErrataMode.APPLY.value:
            one = named_errata(report.run.run.cases, report.errata)
            cases.update(one.cases)
            criteria.update(one.criteria)
    if not reports or reports[0].run is None or not (cases or criteria):
        return _none()
    row = {
        "withdrawn_cases": sorted(cases),
        "withdrawn_criteria": [{"case_id": c, "criterion_id": k} for c, k in sorted(criteria)],
    }
    return named_errata(reports[0].run.run.cases, row)


def _named(report: BundleReport, run: GradedRun, gone: RunErrata) -> GradedRun:
    folder = replace(run.run, path=report.path)
    return replace(run, run=without(folder, gone) if gone.concerned or gone.emptied else folder)
