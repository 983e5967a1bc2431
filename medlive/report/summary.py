"""The first two sentences of a report: who leads, and what is missing or wrong."""

from collections.abc import Sequence

from medlive.evaluation.scoring.estimates import FEW
from medlive.evaluation.scoring.fresh import FreshScore
from medlive.evaluation.scoring.score import ModelScore
from medlive.integrity.log import some
from medlive.report.html import points
from medlive.report.model import Report, unpublishable
from medlive.statistics.bootstrap import Comparison, pairs_below
from medlive.text.html import interval, percent

Ranked = Sequence[ModelScore | FreshScore]


def summarise(report: Report) -> dict[str, str]:
    """What each sentence is about, and the sentence.

    The ranking after every cutoff goes first where it rests on enough cases.
    """
    table, fresh = report.table, report.table.fresh
    scored = _scored(table.models)
    later = _scored(fresh.models) if fresh else []
    ranked, pairs, where = scored, table.comparisons, "On all cases"
    if fresh and later and not later[0].overall.few:
        ranked, pairs = later, fresh.comparisons
        where = f"On cases posted after every cutoff ({fresh.after})"
    leads = "Nobody: no model has a score."
    if ranked:
        leads = f"{where}, {_lead(ranked, pairs)}"
        if ranked[0].overall.few:
            leads += f" Fewer than {FEW} cases: no result."
        first = scored[0]
        if first.label != ranked[0].label:
            leads += f" On all cases {first.label} is first with {percent(first.overall.value)} %."
    return {"Who leads": leads, "Missing or wrong": _missing(report)}


def _scored(models: Ranked) -> Ranked:
    return [model for model in models if model.overall.value is not None]


def tied_with(
    leader: str,
    others: Sequence[str],
    pairs: Sequence[Comparison],
) -> list[str]:
    """The others that are not significantly below the leader, those that nothing compares it with among them."""
    below = pairs_below(pairs)
    return [other for other in others if (other, leader) not in below]


def _lead(ranked: Ranked, pairs: Sequence[Comparison]) -> str:
    first, others = ranked[0], [model.label for model in ranked[1:]]
    score = first.overall
    value = f"{percent(score.value)} % (95 % interval {interval(score.low, score.high)}, n={score.n})"
    if not others:
        return f"{first.label} scores {value}; no other model is ranked."
    tied = tied_with(first.label, others, pairs)
    if not tied:
        every = f"all {len(others)} other models" if len(others) > 1 else others[0]
        return f"{first.label} leads with {value}, significantly ahead of {every}."
    return f"{first.label} scores highest, {value}, and is tied with {some(tied)}."


def _missing(report: Report) -> str:
    models = report.models
    missing = []
    if banned := [model.label for model in models if unpublishable(model)]:
        missing.append(f"not publishable: {some(banned)}")
    for label, drop in report.table.drops.items():
        better = points(drop.difference)
        missing.append(
            f"{label} is {better} points better up to its cutoff than after it"
        )
    missing += uncounted(models)
    if unknown := [model.label for model in models if model.cutoff is None]:
        missing.append(
            f"no cutoff is known for {some(unknown)}, so nothing shows what was seen in training"
        )
    if not report.metas:
        missing.append("the grader was not compared with people")
    if warnings := len(report.table.warnings):
        missing.append(f"{warnings} warning{'s' * (warnings > 1)} below")
    if not missing:
        return "Nothing: every answer is there and every criterion graded."
    return "; ".join(missing) + "."


def uncounted(models: Sequence[ModelScore]) -> list[str]:
    """What has no verdict, no answer or no score, over all models."""
    parts = []
    cases = sum(model.rates.cases for model in models)
    criteria = sum(model.rates.criteria for model in models)
    for name, total, what in (
        ("ungraded", criteria, "verdicts are ungraded"),
        ("unanswered", cases, "cases are unanswered"),
        ("unscorable", cases, "cases have no positive criterion to score"),
    ):
        if count := sum(getattr(model.rates, name) for model in models):
            parts.append(f"{count:,} of {total:,} {what}")
    return parts
