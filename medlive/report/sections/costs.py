"""What answers and verdicts took: tokens and money by model; what is not on record is unknown."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from medlive.evaluation.runs.folder import GRADES, grades_of
from medlive.evaluation.scoring.score import ModelScore
from medlive.report.html import Section, missing, soft
from medlive.report.model import Report

_CAPTION: Final = (
    "Of the answers and verdicts that count; what an earlier try took is not among them. Unknown: the tokens or "
    "price of a call are not on record, as of a model without a table under [prices], or of imported files."
)
_NONE: Final = (
    "No tokens are on record for any model: imported answers and verdicts have none."
)


@dataclass(frozen=True, slots=True)
class CallCosts:
    """The sum over calls; None is unknown."""

    calls: int
    """Those whose tokens are on record."""
    all_calls: int
    input_tokens: int | None
    output_tokens: int | None
    usd: float | None


def spent(usages: Iterable[Mapping[str, Any]]) -> CallCosts:
    """The sum of `Usage.as_json` values: the tokens of those that have them, money where every call's is known."""
    calls = known = input_tokens = output_tokens = 0
    usd: float | None = 0.0
    for usage in usages:
        calls += 1
        known += bool(usage.get("input_tokens") or usage.get("output_tokens"))
        input_tokens += usage.get("input_tokens") or 0
        output_tokens += usage.get("output_tokens") or 0
        price = usage.get("cost_usd")
        usd = None if usd is None or price is None else usd + price
    return CallCosts(
        calls=known,
        all_calls=calls,
        input_tokens=input_tokens if known else None,
        output_tokens=output_tokens if known else None,
        usd=usd if calls else None,
    )


def _verdicts(model: ModelScore) -> CallCosts | None:
    """What grading took, a verdict from the shared cache nothing; None: nothing is on record."""
    if (grader := model.run.grader) is None:
        return None
    paid: list[Mapping[str, Any]] = []
    unpaid = imported = 0
    # Read as a stream: the texts of many runs would fill the memory.
    for grade in grades_of(model.run.run.path / GRADES, []):
        if grade.judge == grader.judge:
            paid += [grade.usage] if grade.usage else []
            imported += grade.origin == "import"
            unpaid += not grade.usage and grade.origin != "cache"
    if not paid:
        return None if unpaid or imported else CallCosts(0, 0, 0, 0, 0.0)
    return spent([*paid, {}] if imported else paid)


def costs(report: Report) -> Section:
    """The section."""
    rows = []
    any_calls = 0
    for model in report.models:
        answers = model.run.answers
        cases = {score.case_id for score in model.cases}
        spent_on_answers = spent(
            answers[name].usage for name in answers if name in cases
        )
        verdicts = _verdicts(model)
        rows.append((model.label, spent_on_answers, verdicts))
        any_calls += spent_on_answers.calls + (verdicts.calls if verdicts else 0)
    parts = [missing(_NONE)]
    if any_calls:
        parts = [soft(_CAPTION), report.render("costs.html", rows=rows)]
    return Section("costs", "Cost and tokens", parts)
