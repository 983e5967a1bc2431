"""What answers and verdicts took: tokens and money by model; what is not on record is unknown."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from medlive.charts import WIDTH, Bar, Group, bars
from medlive.evaluation.model import Origin
from medlive.evaluation.runs.folder import GRADES, grades_of
from medlive.evaluation.scoring.score import ModelScore
from medlive.report.html import Section, missing, render, row_of, soft
from medlive.report.model import Report

_CAPTION: Final = (
    "Of the answers and verdicts that count; what an earlier try took is not among them. Unknown: the tokens or "
    "price of a call are not on record, as of a model without a table under [prices], or of imported files."
)
_NONE: Final = (
    "No tokens are on record for any model: imported answers and verdicts have none."
)


@dataclass(frozen=True, slots=True)
class Spent:
    """The sum over calls; None is unknown."""

    calls: int
    """Those whose tokens are on record."""
    of: int
    input_tokens: int | None
    output_tokens: int | None
    usd: float | None


def spent(usages: Iterable[Mapping[str, Any]]) -> Spent:
    """The sum of `Usage.as_json` values: the tokens of those that have them, money where every call's is known."""
    every = list(usages)
    known = [
        one for one in every if one.get("input_tokens") or one.get("output_tokens")
    ]
    prices = [one.get("cost_usd") for one in every]
    tokens = [
        sum(one.get(name) or 0 for one in known) if known else None
        for name in ("input_tokens", "output_tokens")
    ]
    usd = (
        sum(p for p in prices if p is not None)
        if prices and None not in prices
        else None
    )
    return Spent(len(known), len(every), tokens[0], tokens[1], usd)


def _answers(model: ModelScore) -> Spent:
    cases = {score.case.case_id for score in model.cases}
    return spent(
        answer.usage
        for case_id, answer in model.run.answers.items()
        if case_id in cases
    )


def _verdicts(model: ModelScore) -> Spent | None:
    """What grading took, a verdict from the shared cache nothing; None: nothing is on record."""
    if (grader := model.run.grader) is None:
        return None
    paid: list[Mapping[str, Any]] = []
    unpaid = imported = 0
    # Read as a stream: the texts of many runs would fill the memory.
    for grade in grades_of(model.run.run.path / GRADES, []):
        if grade.judge == grader.judge:
            paid += [grade.usage] if grade.usage else []
            imported += grade.origin is Origin.IMPORT
            unpaid += not grade.usage and grade.origin is not Origin.CACHE
    if not paid:
        return None if unpaid or imported else Spent(0, 0, 0, 0, 0.0)
    return spent([*paid, {}] if imported else paid)


def costs(report: Report) -> Section:
    """The section."""
    rows = [(model.label, _answers(model), _verdicts(model)) for model in report.models]
    if not any(
        answers.calls or (verdicts and verdicts.calls) for _, answers, verdicts in rows
    ):
        return Section("costs", "Cost and tokens", [missing(_NONE)])
    tokens = [
        (label, a.output_tokens / a.calls)
        for label, a, _ in rows
        if a.output_tokens is not None
    ]
    dollars = [(label, 100 * a.usd / a.of) for label, a, _ in rows if a.usd is not None]
    figures = [
        _bars(
            report,
            name,
            title,
            [Bar(label, value, form.format(value)) for label, value in values],
        )
        for name, title, form, values in (
            ("tokens", "Output tokens an answer", "{:,.0f}", tokens),
            ("dollars", "US dollars for 100 answers", "{:,.3f}", dollars),
        )
        if values
    ]
    table = render("costs.html", rows=rows)
    return Section("costs", "Cost and tokens", [soft(_CAPTION), row_of(figures), table])


def _bars(report: Report, name: str, title: str, values: list[Bar]) -> Markup:
    frame = report.frame(title, "A bar for each model whose figures are known.")
    return report.figures.add(
        name, frame, lambda frame: bars(frame, [Group("", values)]), width=WIDTH
    )
