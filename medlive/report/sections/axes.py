"""Error rates by axis (LiveMedBench, Table 3)."""

from typing import Final

from medlive.evaluation.scoring.score import AxisErrors
from medlive.report.html import Row, Section, Under, missing, table
from medlive.report.model import Report

_LACKING: Final = (
    "No criterion of these cases names an axis (axe in LiveMedBench's files): no errors by axis can be told."
)


def axes(report: Report) -> Section:
    """The section: each model's rates, its worst axis in bold and marked."""
    names = sorted({a.axis for model in report.models for a in model.axes})
    if not names:
        return Section("axes", "Errors by axis", [missing(_LACKING)])
    rows = []
    for model in report.models:
        found = {a.axis: a for a in model.axes}
        worst = max((a.rate for a in model.axes if a.rate is not None), default=None)
        rows.append(Row([model.label, *(_rate(found.get(name), worst) for name in names)]))
    caption = (
        "Share of graded criteria that went wrong: a positive one unmet, or a negative one met. "
        f"Under it the 95 % interval and the count. ▲ and bold: the model's worst axis; {report.said}"
    )
    return Section("axes", "Errors by axis", [table(caption, ("model", *(f"*{n}" for n in names)), rows)])


def _rate(one: AxisErrors | None, worst: float | None) -> Under | None:
    if one is None or one.rate is None:
        return None
    mark, kind = (" ▲", "worst") if one.rate == worst else ("", "")
    return Under(f"{100 * one.rate:.1f} %{mark}", f"{_around(one)}{one.errors} of {one.n}", kind)


def _around(one: AxisErrors) -> str:
    return "" if one.low is None or one.high is None else f"{100 * one.low:.1f} to {100 * one.high:.1f} · "
