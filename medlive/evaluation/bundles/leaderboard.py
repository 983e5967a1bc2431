"""Rank verified bundles: one ranking for each set of cases, template and grader, each model once."""

import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from medlive.evaluation.scoring.errata import RunErrata, without
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.refusals import Allow
from medlive.evaluation.scoring.score import ScoreTable, headline, score_runs
from medlive.llm.registry import EMPTY, Registry

from .bundle import errata_of
from .verify import BundleReport

MOST_UNSCORED = 0.05
"""The highest share of cases without a score: leaving out bad cases would raise a mean."""


Entry = tuple[BundleReport, GradedRun]
"""A bundle that may be ranked, and its run."""


@dataclass(frozen=True)
class Ranking:
    """The bundles of the same cases, template, evidence and grader."""

    table: ScoreTable
    ranked: tuple[BundleReport, ...]
    left_out: RunErrata
    notes: tuple[str, ...]


Unranked = list[tuple[BundleReport, str]]
"""The bundles that are not ranked, and why."""


def rank_bundles(
    reports: Sequence[BundleReport],
    *,
    metric: Metric | None = None,
    draws: int = 1000,
    registry: Registry = EMPTY,
    allow: Collection[Allow] = (),
) -> tuple[list[Ranking], Unranked]:
    """Rank verified bundles, those with the same cases, template, evidence and grader together.

    The ranking with the most bundles comes first, equals in the given order; scores of two rankings are not comparable.

    A ranking has a model once, with the first of its bundles. What one entry leaves out as withdrawn, or locally known
    errata withdraw, is left out for all entries of its ranking. Bundles with a larger share of cases without a score
    than `MOST_UNSCORED` are not ranked.

    Raises:
        CheckFailed: If bundles must not be published, and `allow` does not override it.
    """
    unranked: Unranked = []
    ranked: list[Entry] = []
    sets: dict[object, list[Entry]] = {}
    for report in reports:
        run, why = report.run, report.why_not
        if run is not None:
            why = _why_unranked(run, ranked)
        if run is None or why:
            unranked.append((report, why))
        else:
            ranked.append((report, run))
            sets.setdefault(_conditions(run), []).append((report, run))
    for key, together in sets.items():
        if (metric or headline([run for _, run in together])) is Metric.SAFE:
            sets[key] = []
            for report, run in together:
                if why := _too_many(run, Metric.SAFE):
                    unranked.append((report, f"{why}: too few are read for harm"))
                else:
                    sets[key].append((report, run))
    rankings = []
    for together in sorted(filter(None, sets.values()), key=len, reverse=True):
        left_out = _left_out(together)
        runs = []
        for report, run in together:
            folder = replace(run.run, path=report.path)
            runs.append(replace(run, run=without(folder, left_out)))
        table = score_runs(
            runs,
            metric=metric,
            draws=draws,
            registry=registry,
            allow=allow,
        )
        ranking = Ranking(
            table=table,
            ranked=tuple(report for report, _ in together),
            left_out=left_out,
            notes=tuple(_notes(together, left_out)),
        )
        rankings.append(ranking)
    return rankings, unranked


def _too_many(run: GradedRun, metric: Metric) -> str:
    """Why a run has too few scored cases to be ranked; "" if it has enough."""
    cases = run.case_scores(metric)
    missing = sum(case.score is None and not case.unscorable for case in cases)
    share = missing / len(cases)
    if share <= MOST_UNSCORED:
        return ""
    limit = f"more than {100 * MOST_UNSCORED:g} %"
    return f"{100 * share:.1f} % of its cases have no score, {limit}"


def _conditions(run: GradedRun) -> tuple[object, ...]:
    """What the entries of one ranking share: cases with their order, template, evidence and grader."""
    assert run.grader is not None  # verified bundles have verdicts
    info, use = run.info, run.info.evidence
    evidence = use and (use.index_digest, use.top_k, use.undated)
    grader = replace(run.grader, answered_by=())
    return info.cases.rows, info.template, evidence, grader


def _model(run: GradedRun) -> str:
    """The model's name, folded so that its spellings are one."""
    return unicodedata.normalize("NFKC", run.info.model).casefold().strip()


def _texts(run: GradedRun) -> dict[str, str]:
    """A run's answers by case."""
    return {case.case_id: answer.response for case, answer in run.answered()}


def _why_unranked(run: GradedRun, earlier: Sequence[Entry]) -> str:
    """Why a run is not ranked beside those before it; "" if it is."""
    info, texts = run.info, _texts(run)
    if why := _too_many(run, Metric.COMPLETE):
        return why
    for report, other in earlier:
        same_model, name = _model(run) == _model(other), report.path.name
        if same_model and _conditions(run) == _conditions(other):
            again = f"{info.model} is already ranked with {name}"
            return f"{again}: a model is ranked once per set of conditions"
        # One run graded by two graders may be in two rankings.
        same_run = same_model and info.template == other.info.template
        if not same_run and texts == _texts(other):
            alike = f"its answers are identical to those of {name}"
            return f"{alike}, under another model or template: it is unclear which model gave them"
    return ""


def _notes(entries: Sequence[Entry], left_out: RunErrata) -> Iterator[str]:
    for report, _ in entries:
        if report.trust != "origin":
            yield f"{report.path.name}: its origin is not verified ({report.trust})"
        for note in report.notes:
            yield f"{report.path.name}: {note}"
    if left_out.concerned:
        yield f"withdrawn and left out for all: {len(left_out.cases)} cases and {len(left_out.criteria)} criteria"


def _left_out(entries: Sequence[Entry]) -> RunErrata:
    """What any bundle leaves out, and what locally known errata withdraw."""
    cases: set[str] = set()
    criteria: set[tuple[str, str]] = set()
    for report, _ in entries:
        info, known = report.info, report.withdrawn
        if info is not None:
            cases.update(info.withdrawn_cases)
            criteria.update(info.withdrawn_criteria)
        if known is not None:
            cases.update(known.cases)
            criteria.update(known.criteria)
    return errata_of(entries[0][1].cases, cases, criteria)
