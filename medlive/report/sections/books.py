"""Open book against closed (LiveMedBench, Table 4)."""

from medlive.report.html import Row, Section, missing, p_said, percent, percents, points, points_around, table
from medlive.report.model import Report
from medlive.statistics.contamination import Mean

_LACKING = (
    "No model has both a closed-book and an open-book run here. Run the same model on the same cases once more "
    "with --template open-book and give both run folders to this report."
)


def books(report: Report) -> Section:
    """The section."""
    if not report.arms:
        return Section("books", "Open and closed book", [missing(_LACKING)])
    rows = []
    for arm in report.arms:
        where = (
            f"after {arm.cutoff.text}" if arm.fresh and arm.cutoff else "all common cases: the cutoff is unknown"
        )
        cells = [
            arm.model, arm.open_template, where, _mean(arm.baseline), _mean(arm.closed_score),
            _mean(arm.open_score), points(arm.difference), points_around(arm.low, arm.high), p_said(arm.p_holm),
            arm.n,
        ]  # fmt: skip
        rows.append(Row(cells, arm.few))
    heads = (
        "model", "open-book prompt", "compared on", "*baseline (all cases)", "*closed book", "*open book",
        "*open less closed", "*95 % interval", "*p (Holm)", "*n",
    )  # fmt: skip
    caption = f"Scores in % with 95 % interval and n; {report.said}. {report.few_said}"
    return Section("books", "Open and closed book", [table(caption, heads, rows)])


def _mean(mean: Mean) -> str:
    return f"{percent(mean.mean)} ({percents(mean.low, mean.high)}), n={mean.n}"
