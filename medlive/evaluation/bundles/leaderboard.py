"""Rankings of bundles that verify: those of the same cases, template and grader together, each model once."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from medlive.evaluation.bundles.bundle import named_errata
from medlive.evaluation.bundles.files import RUN
from medlive.evaluation.bundles.verify import BundleReport
from medlive.evaluation.runs.folder import GRADES, EvidenceUse, TemplateUse
from medlive.evaluation.scoring.errata import ErrataMode, FoundErrata, RunErrata, without
from medlive.evaluation.scoring.graded import GradedRun, Grader
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.score import ScoreTable, score_runs
from medlive.integrity.checks import Trust
from medlive.snapshot.errata import Errata

MOST_UNSCORED: Final = 0.05
"""The share of a bundle's cases that may be without a score: to leave out what went badly makes a better mean."""
_ALIKE: Final = 0.5
"""The share of answers that are the same letter for letter from which on it is said."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the entries of one ranking share."""

    rows: str
    """The digest of the cases: snapshot, part and order."""
    template: TemplateUse
    evidence: tuple[str, int, bool] | None
    """Of open books: the index's digest, snippets a question, and whether undated ones were let in."""
    grader: Grader


@dataclass(frozen=True, slots=True)
class Ranking:
    """The bundles that are of the same conditions."""

    conditions: Conditions
    table: ScoreTable
    ranked: tuple[BundleReport, ...]
    """In the order that was given."""
    left_out: RunErrata
    """Cases and criteria that are left out for all as withdrawn."""
    notes: tuple[str, ...]
    """What is to be known of its entries."""


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """The rankings, and the bundles that stand in none."""

    rankings: tuple[Ranking, ...]
    """The largest first, of equally large ones that of the bundle given first; scores of two are not compared."""
    apart: tuple[tuple[BundleReport, str], ...]
    """Each with why it is not ranked."""


def rank_bundles(
    reports: Sequence[BundleReport],
    *,
    metric: Metric = Metric.PAPER,
    draws: int = 1000,
    seed: int = 0,
    errata: ErrataMode = ErrataMode.WARN,
    most_unscored: float = MOST_UNSCORED,
) -> Leaderboard:
    """Rank the bundles that verify wholly, those of the same cases, template and grader together.

    A model stands once in a ranking, with the bundle given first. What one entry leaves out as withdrawn is left
    out for all of its ranking; `errata` "apply" leaves out all that the errata known here name. `most_unscored`:
    bundles with a larger share of cases without a score stand apart.
    """
    apart: dict[int, str] = {place: r.why_not for place, r in enumerate(reports) if r.run is None}
    sound = {place: r.run for place, r in enumerate(reports) if r.run is not None}
    for place, run in sound.items():
        if (share := _unscored(run)) > most_unscored:
            apart[place] = f"{100 * share:.1f} % of its cases have no score, more than {100 * most_unscored:g} %"
    for rule in (_same_run, _same_answers, _same_model):
        _once(reports, {p: r for p, r in sound.items() if p not in apart}, rule, apart)
    sets: dict[Conditions, list[int]] = {}
    for place, run in sound.items():
        if place not in apart:
            sets.setdefault(_conditions(run), []).append(place)
    rankings = []
    for conditions, places in sorted(sets.items(), key=lambda one: -len(one[1])):
        listed = [reports[place] for place in places]
        gone = _left_out(listed, errata)
        runs = [_named(report, sound[place], gone) for report, place in zip(listed, places, strict=True)]
        table = score_runs(runs, metric=metric, draws=draws, seed=seed)
        rankings.append(Ranking(conditions, table, tuple(listed), gone, tuple(_notes(listed, gone, errata))))
    return Leaderboard(tuple(rankings), tuple((reports[place], why) for place, why in sorted(apart.items())))


def _conditions(run: GradedRun) -> Conditions:
    info = run.run.info
    assert run.grader is not None  # a bundle that verifies has verdicts
    return Conditions(info.cases.rows, info.template, _book(info.evidence), replace(run.grader, answered_by=()))


def _book(use: EvidenceUse | None) -> tuple[str, int, bool] | None:
    return None if use is None else (use.index_digest, use.top_k, use.undated)


def _unscored(run: GradedRun) -> float:
    """The share of cases without an answer or a verdict on each criterion."""
    scored = 0
    for case in run.run.cases:
        answer, met = run.answers.get(case.case_id), run.verdicts(case.case_id)
        scored += answer is not None and answer.gradable and all(met.get(c.id) is not None for c in case.criteria)
    return 1 - scored / len(run.run.cases)


_Rule = Callable[[BundleReport, GradedRun], tuple[object, object, str]]
"""What two bundles may not share, what makes them differ all the same, and how to say so."""


def _once(
    reports: Sequence[BundleReport], runs: Mapping[int, GradedRun], rule: _Rule, apart: dict[int, str]
) -> None:
    held: dict[object, tuple[int, object]] = {}
    for place, run in runs.items():
        shared, but, said = rule(reports[place], run)
        first, other = held.setdefault(shared, (place, but))
        if first != place and (but is None or other != but):
            apart[place] = said.format(reports[first].path.name)


def _same_run(report: BundleReport, run: GradedRun) -> tuple[object, object, str]:
    files = report.info.files if report.info else {}
    return (files[RUN].digest, files[GRADES].digest), None, "the same run as {}"


def _same_answers(report: BundleReport, run: GradedRun) -> tuple[object, object, str]:
    texts = frozenset(_texts(run).items())
    # One run graded by two graders is in two rankings, and the same answers under two names in none.
    return (
        texts,
        (_model(run), run.run.info.template),
        "its answers are, letter for letter, those of {}, under another model or template: "
        "the bundles do not show whose they are",
    )


def _same_model(report: BundleReport, run: GradedRun) -> tuple[object, object, str]:
    said = f"{run.run.info.model} is ranked already, by {{}}: a model once under the same conditions"
    return (_model(run), _conditions(run)), None, said.replace("{}", "\0").replace("{", "{{").replace("\0", "{}")


def _model(run: GradedRun) -> str:
    return unicodedata.normalize("NFKC", run.run.info.model).casefold().strip()


def _texts(run: GradedRun) -> dict[str, str]:
    return {a.case_id: a.response for a in run.answers.values() if a.gradable}


def _notes(reports: Sequence[BundleReport], gone: RunErrata, errata: ErrataMode) -> list[str]:
    notes = []
    if unsigned := [r.path.name for r in reports if r.trust is Trust.NOT_SIGNED]:
        notes.append(f"unsigned, nobody vouches for it: {', '.join(unsigned)}")
    if named := [r.path.name for r in reports if r.trust is Trust.INTEGRITY]:
        notes.append(f"signed by a key that it names itself, and that nobody vouches for: {', '.join(named)}")
    notes += [f"{r.path.name}: {note}" for r in reports for note in r.notes]
    if gone.concerned:
        notes.append(f"left out for all as withdrawn: {len(gone.cases)} cases and {len(gone.criteria)} criteria")
    known = _withdrawn(reports)
    late = len(known[0] - set(gone.cases)) + len(known[1] - set(gone.criteria))
    if late and errata is ErrataMode.WARN:
        notes.append(f"{late} cases or criteria were withdrawn since; --errata apply leaves them out for all")
    texts = [(r.path.name, _texts(r.run)) for r in reports if r.run is not None]
    for (one, mine), (other, theirs) in combinations(texts, 2):
        same, of = len(mine.items() & theirs.items()), min(len(mine), len(theirs))
        if of and same / of >= _ALIKE:
            notes.append(f"{one} and {other}: {same} of {of} answers are the same letter for letter")
    return notes


def _withdrawn(reports: Sequence[BundleReport]) -> tuple[set[str], set[tuple[str, str]]]:
    """What the errata that are known here name."""
    listed = [r.withdrawn for r in reports if r.withdrawn is not None]
    return {c for one in listed for c in one.cases}, {c for one in listed for c in one.criteria}


def _left_out(reports: Sequence[BundleReport], errata: ErrataMode) -> RunErrata:
    """What any of them leaves out, and with "apply" what is known to be withdrawn."""
    cases, criteria = _withdrawn(reports) if errata is ErrataMode.APPLY else (set(), set())
    for report in reports:
        if report.errata is not None and report.errata.mode is ErrataMode.APPLY:
            cases.update(report.errata.withdrawn_cases)
            criteria.update((one["case_id"], one["criterion_id"]) for one in report.errata.withdrawn_criteria)
    first = reports[0].run
    if first is None or not (cases or criteria):
        return RunErrata("", FoundErrata(None, Errata()))
    row = {
        "withdrawn_cases": sorted(cases),
        "withdrawn_criteria": [{"case_id": c, "criterion_id": k} for c, k in sorted(criteria)],
    }
    return named_errata(first.run.cases, row)


def _named(report: BundleReport, run: GradedRun, gone: RunErrata) -> GradedRun:
    """The run under its bundle's name, without what is left out."""
    folder = replace(run.run, path=report.path)
    return replace(run, run=without(folder, gone) if gone.concerned or gone.emptied else folder)
