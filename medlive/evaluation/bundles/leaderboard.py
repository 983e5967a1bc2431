"""Rank verified bundles: one ranking for each set of cases, template and grader, each model once."""

import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from medlive.evaluation.bundles.bundle import errata_of
from medlive.evaluation.bundles.verify import BundleReport
from medlive.evaluation.model import gradable
from medlive.evaluation.runs.folder import TemplateUse
from medlive.evaluation.scoring.errata import ErrataMode, RunErrata, without
from medlive.evaluation.scoring.graded import GradedRun, Grader
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.refusals import Allow
from medlive.evaluation.scoring.score import (
    ScoreTable,
    score_runs,
)
from medlive.integrity.checks import Trust
from medlive.llm.registry import EMPTY, Registry

MOST_UNSCORED: Final = 0.05
"""The highest share of cases without a score: leaving out bad cases would raise a mean."""


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


class _Entry(NamedTuple):
    """A bundle that may be ranked."""

    report: BundleReport
    run: GradedRun
    model: str
    """Its name, folded."""
    conditions: Conditions
    texts: dict[str, str]
    """Its answers by case."""


def rank_bundles(
    reports: Sequence[BundleReport],
    *,
    metric: Metric | None = None,
    draws: int = 1000,
    seed: int = 0,
    registry: Registry = EMPTY,
    errata: ErrataMode = ErrataMode.WARN,
    most_unscored: float = MOST_UNSCORED,
    allow: Collection[Allow] = (),
) -> Leaderboard:
    """Rank verified bundles, those with the same cases, template and grader together.

    A model is ranked once, with the first of its bundles. What one entry leaves out as withdrawn is left out for
    all entries of its ranking. With `errata` "apply" what locally known errata withdraw is left out too; bundles
    with a larger share of cases without a score than `most_unscored` are not ranked.

    Raises:
        CheckFailed: If bundles must not be published, and `allow` does not override it.
    """
    unranked: list[tuple[BundleReport, str]] = []
    entries: list[_Entry] = []
    sets: dict[Conditions, list[_Entry]] = {}
    for report in reports:
        if report.run is None:
            unranked.append((report, report.why_not))
            continue
        entry = _entry(report, report.run)
        why = _why_unranked(entry, entries, most_unscored)
        if why:
            unranked.append((report, why))
        else:
            entries.append(entry)
            sets.setdefault(entry.conditions, []).append(entry)
    rankings = []
    for conditions, together in sorted(sets.items(), key=lambda item: -len(item[1])):
        left_out = _left_out(together, errata)
        runs = []
        for entry in together:
            folder = replace(entry.run.run, path=entry.report.path)
            runs.append(replace(entry.run, run=without(folder, left_out)))
        table = score_runs(
            runs,
            metric=metric,
            draws=draws,
            seed=seed,
            registry=registry,
            allow=allow,
        )
        ranking = Ranking(
            conditions=conditions,
            table=table,
            ranked=tuple(entry.report for entry in together),
            left_out=left_out,
            notes=tuple(_notes(together, left_out, errata)),
        )
        rankings.append(ranking)
    return Leaderboard(tuple(rankings), tuple(unranked))


def _entry(report: BundleReport, run: GradedRun) -> _Entry:
    info, use = run.run.info, run.run.info.evidence
    assert run.grader is not None  # verified bundles have verdicts
    conditions = Conditions(
        rows=info.cases.rows,
        template=info.template,
        evidence=None if use is None else (use.index_digest, use.top_k, use.undated),
        grader=replace(run.grader, answered_by=()),
    )
    texts = {}
    for answer in run.answers.values():
        if answer.gradable:
            texts[answer.case_id] = answer.response
    return _Entry(
        report=report,
        run=run,
        model=unicodedata.normalize("NFKC", info.model).casefold().strip(),
        conditions=conditions,
        texts=texts,
    )


def _why_unranked(
    entry: _Entry,
    earlier: Sequence[_Entry],
    most_unscored: float,
) -> str:
    """Why a bundle is not ranked beside those before it; "" if it is."""
    cases, scored = entry.run.run.cases, 0
    for case, _ in gradable(cases, entry.run.answers):
        met = entry.run.verdicts(case.case_id)
        scored += all(met.get(criterion.id) is not None for criterion in case.criteria)
    if (share := 1 - scored / len(cases)) > most_unscored:
        return f"{100 * share:.1f} % of its cases have no score, more than {100 * most_unscored:g} %"
    for other in earlier:
        same_model = entry.model == other.model
        name = other.report.path.name
        if same_model and entry.conditions == other.conditions:
            again = f"{entry.run.run.info.model} is already ranked with {name}"
            return f"{again}: a model is ranked once per set of conditions"
        # One run graded by two graders may be in two rankings.
        same_run = same_model and entry.conditions.template == other.conditions.template
        if entry.texts == other.texts and not same_run:
            alike = f"its answers are identical to those of {name}"
            return f"{alike}, under another model or template: it is unclear which model gave them"
    return ""


def _notes(
    entries: Sequence[_Entry],
    left_out: RunErrata,
    errata: ErrataMode,
) -> Iterator[str]:
    unproven = {
        Trust.NOT_SIGNED: "unsigned",
        Trust.INTEGRITY: "signed only with a key named in the bundle",
    }
    for trust, how in unproven.items():
        names = [
            ranked.report.path.name
            for ranked in entries
            if ranked.report.trust is trust
        ]
        if names:
            yield f"{how}, so the origin is not verified: {', '.join(names)}"
    for entry in entries:
        for note in entry.report.notes:
            yield f"{entry.report.path.name}: {note}"
    if left_out.concerned:
        yield f"withdrawn and left out for all: {len(left_out.cases)} cases and {len(left_out.criteria)} criteria"
    if errata is ErrataMode.WARN:
        known = _left_out(entries, ErrataMode.APPLY)
        late = len(known.cases) + len(known.criteria)
        late -= len(left_out.cases) + len(left_out.criteria)
        if late:
            yield f"{late} cases or criteria were withdrawn since; --errata apply leaves them out for all"


def _left_out(entries: Sequence[_Entry], errata: ErrataMode) -> RunErrata:
    """What any bundle leaves out and, with "apply", what is known to be withdrawn."""
    cases: set[str] = set()
    criteria: set[tuple[str, str]] = set()
    for entry in entries:
        info, known = entry.report.info, entry.report.withdrawn
        if info is not None:
            cases.update(info.withdrawn_cases)
            criteria.update(info.withdrawn_criteria)
        if known is not None and errata is ErrataMode.APPLY:
            cases.update(known.cases)
            criteria.update(known.criteria)
    return errata_of(entries[0].run.run.cases, cases, criteria)
