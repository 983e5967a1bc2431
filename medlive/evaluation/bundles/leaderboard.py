"""Rank verified bundles: one ranking for each set of cases, template and grader, each model once."""

import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final, NamedTuple

from medlive.evaluation.bundles.bundle import errata_of
from medlive.evaluation.bundles.files import RUN
from medlive.evaluation.bundles.verify import BundleReport
from medlive.evaluation.model import gradable
from medlive.evaluation.runs.folder import GRADES, TemplateUse
from medlive.evaluation.scoring.errata import ErrataMode, RunErrata, without
from medlive.evaluation.scoring.graded import GradedRun, Grader
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.refusals import Allow
from medlive.evaluation.scoring.score import ScoreTable, score_runs
from medlive.integrity.checks import Trust

MOST_UNSCORED: Final = 0.05
"""The highest share of cases without a score: leaving out bad cases would raise a mean."""
_ALIKE: Final = 0.5
"""From this share of identical answers on, a note says so."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the entries of one ranking share."""

    rows: str
    """The digest of the cases: snapshot, part and order."""
    template: TemplateUse
    evidence: tuple[str, int, bool] | None
    """For open-book runs: index digest, snippets per question, and whether undated ones were allowed."""
    grader: Grader


@dataclass(frozen=True, slots=True)
class Ranking:
    """The bundles with the same conditions."""

    conditions: Conditions
    table: ScoreTable
    ranked: tuple[BundleReport, ...]
    left_out: RunErrata
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """The rankings, and the bundles that are not ranked."""

    rankings: tuple[Ranking, ...]
    """The largest first, then in the given order; scores of different rankings are not comparable."""
    unranked: tuple[tuple[BundleReport, str], ...]


def rank_bundles(
    reports: Sequence[BundleReport],
    *,
    metric: Metric = Metric.COMPLETE,
    draws: int = 1000,
    seed: int = 0,
    errata: ErrataMode = ErrataMode.WARN,
    most_unscored: float = MOST_UNSCORED,
    allow: Collection[Allow] = (),
) -> Leaderboard:
    """Rank verified bundles, those with the same cases, template and grader together.

    A model is ranked once, with the first of its bundles. What one entry leaves out as withdrawn is left out for
    all entries of its ranking. With `errata` "apply" what locally known errata withdraw is left out too; bundles
    with a larger share of cases without a score than `most_unscored` are not ranked.

    Raises:
        Misleading: If bundles must not be published, and `allow` does not override it.
    """
    unranked: list[tuple[BundleReport, str]] = []
    seen: dict[object, tuple[str, object]] = {}
    sets: dict[Conditions, list[tuple[BundleReport, GradedRun]]] = {}
    for report in reports:
        why = (
            report.why_not
            if report.run is None
            else _why_unranked(report, report.run, most_unscored, seen)
        )
        if report.run is None or why:
            unranked.append((report, why))
        else:
            sets.setdefault(_conditions(report.run), []).append((report, report.run))
    rankings = []
    for conditions, entries in sorted(sets.items(), key=lambda one: -len(one[1])):
        listed = [report for report, _ in entries]
        left_out = _left_out(listed, errata)
        runs = [_named(report, run, left_out) for report, run in entries]
        table = score_runs(runs, metric=metric, draws=draws, seed=seed, allow=allow)
        notes = tuple(_notes(listed, left_out, errata))
        rankings.append(Ranking(conditions, table, tuple(listed), left_out, notes))
    return Leaderboard(tuple(rankings), tuple(unranked))


def _conditions(run: GradedRun) -> Conditions:
    info = run.run.info
    assert run.grader is not None  # verified bundles have verdicts
    use = info.evidence
    evidence = None if use is None else (use.index_digest, use.top_k, use.undated)
    return Conditions(
        info.cases.rows, info.template, evidence, replace(run.grader, answered_by=())
    )


def _unscored(run: GradedRun) -> float:
    """The share of cases that lack an answer or a verdict."""
    scored = 0
    for case, _ in gradable(run.run.cases, run.answers):
        met = run.verdicts(case.case_id)
        scored += all(met.get(criterion.id) is not None for criterion in case.criteria)
    return 1 - scored / len(run.run.cases)


def _why_unranked(
    report: BundleReport,
    run: GradedRun,
    most_unscored: float,
    seen: dict[object, tuple[str, object]],
) -> str:
    """Why a bundle is not ranked beside those before it; "" if it is. Adds what no other may share to `seen`."""
    if (share := _unscored(run)) > most_unscored:
        return f"{100 * share:.1f} % of its cases have no score, more than {100 * most_unscored:g} %"
    files, model = report.info.files if report.info else {}, _model(run)
    alike = "its answers are identical to those of {first}, under another model or template: it is unclear which "
    again = f"{run.run.info.model} is already ranked with {{first}}: a model is ranked once per set of conditions"
    claims: tuple[tuple[object, object, str], ...] = (
        (
            ("run", files[RUN].digest, files[GRADES].digest),
            None,
            "the same run as {first}",
        ),
        # One run graded by two graders may be in two rankings.
        (
            ("answers", frozenset(_texts(run).items())),
            (model, run.run.info.template),
            f"{alike}model gave them",
        ),
        (("model", model, _conditions(run)), None, again),
    )
    for key, owner, reason in claims:
        if key in seen and (owner is None or seen[key][1] != owner):
            return reason.replace("{first}", seen[key][0])
        seen.setdefault(key, (report.path.name, owner))
    return ""


def _model(run: GradedRun) -> str:
    return unicodedata.normalize("NFKC", run.run.info.model).casefold().strip()


def _texts(run: GradedRun) -> dict[str, str]:
    return {a.case_id: a.response for a in run.answers.values() if a.gradable}


def _notes(
    reports: Sequence[BundleReport], left_out: RunErrata, errata: ErrataMode
) -> list[str]:
    notes = []
    unproven = {
        Trust.NOT_SIGNED: "unsigned",
        Trust.INTEGRITY: "signed only with a key named in the bundle",
    }
    for trust, how in unproven.items():
        names = [report.path.name for report in reports if report.trust is trust]
        if names:
            notes.append(f"{how}, so the origin is not verified: {', '.join(names)}")
    for report in reports:
        notes += [f"{report.path.name}: {note}" for note in report.notes]
    if left_out.concerned:
        notes.append(
            f"withdrawn and left out for all: {len(left_out.cases)} cases and {len(left_out.criteria)} criteria"
        )
    known = _withdrawn(reports)
    late = len(known.cases - set(left_out.cases))
    late += len(known.criteria - set(left_out.criteria))
    if late and errata is ErrataMode.WARN:
        notes.append(
            f"{late} cases or criteria were withdrawn since; --errata apply leaves them out for all"
        )
    return [*notes, *_alike(reports)]


def _alike(reports: Sequence[BundleReport]) -> Iterator[str]:
    """Notes on bundles that share many answers."""
    texts = [(r.path.name, _texts(r.run)) for r in reports if r.run is not None]
    for (one, own), (other, theirs) in combinations(texts, 2):
        same, of = len(own.items() & theirs.items()), min(len(own), len(theirs))
        if of and same / of >= _ALIKE:
            yield f"{one} and {other}: {same} of {of} answers are identical"


class _Withdrawn(NamedTuple):
    """Cases, and criteria by case and id."""

    cases: set[str]
    criteria: set[tuple[str, str]]


def _withdrawn(reports: Sequence[BundleReport]) -> _Withdrawn:
    """The cases and criteria that locally known errata withdraw."""
    withdrawn = _Withdrawn(set(), set())
    for report in reports:
        if report.withdrawn is not None:
            withdrawn.cases.update(report.withdrawn.cases)
            withdrawn.criteria.update(report.withdrawn.criteria)
    return withdrawn


def _left_out(reports: Sequence[BundleReport], errata: ErrataMode) -> RunErrata:
    """What any bundle leaves out and, with "apply", what is known to be withdrawn."""
    left_out = _Withdrawn(set(), set())
    if errata is ErrataMode.APPLY:
        left_out = _withdrawn(reports)
    for report in reports:
        if report.errata is not None and report.errata.mode is ErrataMode.APPLY:
            left_out.cases.update(report.errata.withdrawn_cases)
            for one in report.errata.withdrawn_criteria:
                left_out.criteria.add((one["case_id"], one["criterion_id"]))
    first = reports[0].run
    cases = first.run.cases if first is not None and any(left_out) else ()
    return errata_of(cases, left_out.cases, left_out.criteria)


def _named(report: BundleReport, run: GradedRun, left_out: RunErrata) -> GradedRun:
    """The run with the bundle's path, without what is left out."""
    folder = replace(run.run, path=report.path)
    return replace(
        run,
        run=without(folder, left_out)
        if left_out.concerned or left_out.emptied
        else folder,
    )
