"""A score table as plain data: JSON for machines, CSV for spreadsheets."""

import csv
import io
from typing import Any

from medlive.evaluation.score import Estimate, ModelScore, ScoreTable


def estimate_row(estimate: Estimate) -> dict[str, Any]:
    """A mean with everything that belongs to it."""
    return {
        "n": estimate.n,
        "mean": estimate.mean,
        "ci_low": estimate.low,
        "ci_high": estimate.high,
        "least": estimate.least,
        "most": estimate.most,
        "bounds_over": estimate.of,
        "few": estimate.few,
    }


def model_row(model: ModelScore) -> dict[str, Any]:
    """One model's figures, with what they rest on."""
    info, grader, standing, rates = model.run.run.info, model.run.grader, model.standing, model.rates
    return {
        "model": model.label,
        "cases": {"origin": info.cases.origin, "name": info.cases.name, "digest": info.cases.digest},
        "template": info.template.model_dump(mode="json"),
        "engine": info.engine,
        "parameters": info.parameters,
        "grader": None
        if grader is None
        else {
            "engine": grader.engine,
            "model": grader.model,
            "answered_by": list(grader.answered_by),
            "mode": grader.mode,
            "prompt": grader.prompt,
        },
        "overall": estimate_row(model.overall),
        "group": standing.group if standing else None,
        "rank_best": standing.rank_best if standing else None,
        "rank_worst": standing.rank_worst if standing else None,
        "rates": {
            "cases": rates.cases,
            "criteria": rates.criteria,
            "ungraded": rates.ungraded,
            "partly_graded": rates.partly_graded,
            "unanswered": rates.unanswered,
            "truncated": rates.truncated,
            "refused": rates.refused,
            "unscorable": rates.unscorable,
        },
        "axis_errors": [{"axis": a.axis, "n": a.n, "errors": a.errors, "rate": a.rate} for a in model.axes],
        "slices": [{"kind": s.kind, "value": s.value, **estimate_row(s.estimate)} for s in model.slices],
    }


def scores_json(table: ScoreTable) -> dict[str, Any]:
    """`scores.json`: the whole table but the cases."""
    return {
        "format": "medlive-scores",
        "format_version": 1,
        "metric": table.metric.value,
        "bootstrap": {"draws": table.draws, "seed": table.seed, "level": 0.95},
        "common_cases": table.common,
        "warnings": list(table.warnings),
        "errata": errata_row(table),
        "models": [model_row(model) for model in table.models],
        "comparisons": [
            {
                "first": c.first,
                "second": c.second,
                "n": c.n,
                "difference": c.difference,
                "ci_low": c.low,
                "ci_high": c.high,
                "p": c.p,
                "p_holm": c.p_holm,
            }
            for c in table.comparisons
        ],
    }


def errata_row(table: ScoreTable) -> dict[str, Any] | None:
    """What was done about errata and what they concern of each model's run; None when nobody looked."""
    if table.errata is None:
        return None
    runs = [{"model": label, **run.row()} for label, run in zip(table.labels, table.errata.runs, strict=True)]
    return {"mode": table.errata.mode.value, "runs": runs}


def scores_csv(table: ScoreTable) -> str:
    """`scores.csv`: a row for each model and slice, the overall score under slice "overall"."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = ["n", "mean", "ci_low", "ci_high", "least", "most"]
    writer.writerow(["model", "metric", "cases", "grader", "slice", "value", *columns])
    for model in table.models:
        grader = model.run.grader.model if model.run.grader else ""
        head = [model.label, table.metric.value, model.run.run.info.cases.name, grader]
        rows = [("overall", "", model.overall), *((s.kind, s.value, s.estimate) for s in model.slices)]
        for kind, value, estimate in rows:
            row = estimate_row(estimate)
            figures = ["" if row[c] is None else row[c] for c in columns]
            writer.writerow([_plain(x) for x in (*head, kind, value)] + figures)
    return out.getvalue()


def _plain(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
