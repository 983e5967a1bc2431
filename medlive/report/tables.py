"""A score table as plain data: JSON for machines, CSV, TSV and Parquet for spreadsheets and data frames."""

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any, Final

from medlive.errors import BadInput, MissingExtra
from medlive.evaluation.asking.registry import Cutoff
from medlive.evaluation.scoring.contamination import ContaminationTable, ModelContamination
from medlive.evaluation.scoring.open_vs_closed_book import BookArm
from medlive.evaluation.scoring.score import Estimate, ModelScore, ScoreTable, month_table
from medlive.statistics.contamination import Drop, Effect, Mean

_FIGURES: Final = ("n", "mean", "ci_low", "ci_high", "least", "most", "bounds_over", "few")


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


def cutoff_row(cutoff: Cutoff | None) -> dict[str, Any] | None:
    """A cutoff with what it rests on; None is unknown."""
    if cutoff is None:
        return None
    return {"cutoff": cutoff.text, "basis": cutoff.basis.value, "source": cutoff.source}


def model_row(model: ModelScore) -> dict[str, Any]:
    """One model's figures, with what they rest on."""
    info, grader, standing, rates = model.run.run.info, model.run.grader, model.standing, model.rates
    return {
        "model": model.label,
        "cases": {"origin": info.cases.origin, "name": info.cases.name, "digest": info.cases.digest},
        "template": info.template.model_dump(mode="json"),
        "engine": info.engine,
        "parameters": info.parameters,
        "cutoff": cutoff_row(model.cutoff),
        "grader": None
        if grader is None
        else {
            "engine": grader.engine,
            "model": grader.model,
            "answered_by": list(grader.answered_by),
            "mode": grader.mode,
            "prompt": grader.prompt,
            "judge": grader.judge,
        },
        "notes": list(model.run.notes),
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
            "shares": rates.shares,
        },
        "axis_errors": [
            {"axis": a.axis, "n": a.n, "errors": a.errors, "rate": a.rate, "ci_low": a.low, "ci_high": a.high}
            for a in model.axes
        ],
        "slices": [{"kind": s.kind, "value": s.value, **estimate_row(s.estimate)} for s in model.slices],
    }


def scores_json(table: ScoreTable) -> dict[str, Any]:
    """`scores.json`: the whole table but the cases."""
    return {
        "format": "medlive-scores",
        "format_version": 1,
        "metric": table.metric.value,
        "bootstrap": {"draws": table.draws, "seed": table.seed, "level": 0.95},
        "scored_on": table.basis.value,
        "common_cases": table.common,
        "coverage": [
            {"model": c.label, "cases": c.cases, "scored": c.scored, "lacking": list(c.missing)}
            for c in table.coverage
        ],
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


def score_rows(table: ScoreTable, kind: str | None = None) -> list[dict[str, Any]]:
    """A row for each model and slice, the overall score under slice "overall" and errors by axis under "errors by
    axis", whose mean is the rate; of one kind of slice alone where `kind` names it.

    `few` marks what is over fewer than 30 cases and no result; of errors by axis, whose n are criteria, None.
    """
    rows: list[dict[str, Any]] = []
    for model in table.models:
        grader = model.run.grader.model if model.run.grader else None
        head = {
            "model": model.label,
            "metric": table.metric.value,
            "cases": model.run.run.info.cases.name,
            "grader": grader,
        }
        sliced = [("overall", "", model.overall), *((s.kind, s.value, s.estimate) for s in model.slices)]
        for name, value, estimate in sliced:
            figures = estimate_row(estimate)
            rows.append(head | {"slice": name, "value": value} | {c: figures[c] for c in _FIGURES})
        for axis in model.axes:
            figures = {"n": axis.n, "mean": axis.rate, "ci_low": axis.low, "ci_high": axis.high}
            blank: dict[str, Any] = dict.fromkeys(_FIGURES)
            rows.append(head | {"slice": "errors by axis", "value": axis.axis} | blank | figures)
    return rows if kind is None else [row for row in rows if row["slice"] == kind]


def scores_csv(table: ScoreTable, kind: str | None = None) -> str:
    """`scores.csv`: `score_rows`, with commas; a text that a spreadsheet takes for a formula begins with "'"."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["model", "metric", "cases", "grader", "slice", "value", *_FIGURES])
    for row in score_rows(table, kind):
        writer.writerow(["" if x is None else _plain(x) if isinstance(x, str) else x for x in row.values()])
    return out.getvalue()


def _plain(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def scores_parquet(table: ScoreTable, kind: str | None = None) -> bytes:
    """`scores.parquet`: `score_rows` with types, and what they rest on as the file's metadata `medlive`.

    Raises MissingExtra without pyarrow.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as exc:
        raise MissingExtra("parquet needs pyarrow, which is not installed", hint="pip install pyarrow") from exc
    texts = ("model", "metric", "cases", "grader", "slice", "value")
    whole = ("n", "bounds_over")
    fields: list[tuple[str, Any]] = [(name, pa.string()) for name in texts]
    fields += [(n, pa.bool_() if n == "few" else pa.int64() if n in whole else pa.float64()) for n in _FIGURES]
    about = {
        "metric": table.metric.value,
        "bootstrap": {"draws": table.draws, "seed": table.seed, "level": 0.95},
        "scored_on": table.basis.value,
        "warnings": list(table.warnings),
    }
    schema = pa.schema(fields, metadata={b"medlive": json.dumps(about).encode()})
    rows = [{k: _sound(v) for k, v in row.items()} for row in score_rows(table, kind)]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
    return sink.getvalue()


def _sound(value: Any) -> Any:
    """A text that UTF-8 can hold: a lone surrogate, as a model's name may have, becomes its escape."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value


WRITERS: Final[Mapping[str, Callable[[ScoreTable, str | None], bytes]]] = {
    "tsv": lambda table, kind: month_table(table).tsv().encode("utf-8", "backslashreplace"),
    "json": lambda table, kind: _json(scores_json(table)),
    "csv": lambda table, kind: scores_csv(table, kind).encode("utf-8", "backslashreplace"),
    "parquet": scores_parquet,
}
"""Format → the bytes of a table in it, of one kind of slice where the format has rows."""


def _json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, or leave what was there. Raises BadInput when it cannot be written."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(data)
        os.replace(partial, path)
    except OSError as exc:
        raise BadInput(f"{path} cannot be written: {exc.strerror or exc}") from exc


def mean_row(mean: Mean | None) -> dict[str, Any] | None:
    """A mean with its interval and n."""
    if mean is None:
        return None
    return {"n": mean.n, "mean": mean.mean, "ci_low": mean.low, "ci_high": mean.high}


def drop_row(drop: Drop | None) -> dict[str, Any] | None:
    """A drop with both sides."""
    if drop is None:
        return None
    return {
        "n_pre": drop.n_pre,
        "n_post": drop.n_post,
        "pre": drop.pre,
        "post": drop.post,
        "drop": drop.difference,
        "ci_low": drop.low,
        "ci_high": drop.high,
        "p": drop.p,
        "p_exact": drop.exact,
    }


def _effect_row(effect: Effect | None) -> dict[str, Any] | None:
    if effect is None:
        return None
    return {
        "effect": effect.effect,
        "ci_low": effect.low,
        "ci_high": effect.high,
        "n_pre": effect.n_pre,
        "n_post": effect.n_post,
        "models": effect.models,
    }


def contamination_json(table: ContaminationTable) -> dict[str, Any]:
    """`contamination.json`: every estimate of every model (docs/contamination.md names each)."""
    return {
        "format": "medlive-contamination",
        "format_version": 1,
        "metric": table.metric.value,
        "bootstrap": {"draws": table.draws, "seed": table.seed, "level": 0.95},
        "permutations": table.permutations,
        "registry": Path(table.registry).name,
        "warnings": list(table.warnings),
        "pooled_effect_of_having_seen": _effect_row(table.pooled),
        "models": [_contamination_row(model) for model in table.models],
        "raw_against_rewritten": [
            {"model": a.model, "raw": a.raw, "rewritten": a.rewritten, "drop_of_difference": drop_row(a.drop)}
            for a in table.arms
        ],
    }


def _contamination_row(model: ModelContamination) -> dict[str, Any]:
    paper, placebo = model.paper, model.placebo
    return {
        "model": model.label,
        "cutoff": cutoff_row(model.cutoff),
        "scored": model.scored,
        "undated": model.undated,
        "few": model.few,
        "drop": drop_row(model.drop),
        "p_holm": model.p_holm,
        "post_against_full_set_as_in_the_paper": None
        if paper is None
        else {
            "full": mean_row(paper.full),
            "post": mean_row(paper.post),
            "difference": paper.difference,
            "ci_low": paper.low,
            "ci_high": paper.high,
        },
        "difference_in_differences": _effect_row(model.did),
        "held_against": list(model.did_against),
        "placebo": None
        if placebo is None
        else {
            "dates": len(placebo.drops),
            "at_least_as_large": placebo.at_least,
            "drops": [
                {
                    "last_day_before": date.fromordinal(p.day).isoformat(),
                    "among": "seen" if p.side == 0 else "unseen",
                    "n_before": p.n_pre,
                    "n_after": p.n_post,
                    "drop": p.difference,
                }
                for p in placebo.drops
            ],
        },
        "adjusted": [
            {
                "by": mix.by,
                **{
                    k: v
                    for k, v in asdict(mix.adjusted).items()
                    if k not in ("strata", "difference", "low", "high")
                },
                "drop": mix.adjusted.difference,
                "ci_low": mix.adjusted.low,
                "ci_high": mix.adjusted.high,
                "strata": [
                    {"stratum": name, "n_pre": a, "n_post": b}
                    for name, (a, b) in zip(mix.strata, mix.adjusted.strata, strict=True)
                ],
            }
            for mix in model.mixes
        ],
        "newer_than_the_model": None
        if model.newer is None or model.newer_than is None
        else {"than": model.newer_than.isoformat(), **(mean_row(model.newer) or {})},
        "notes": list(model.notes),
    }


def arms_rows(arms: Iterable[BookArm]) -> list[dict[str, Any]]:
    """Open book against closed, a row for each pair of runs."""
    return [
        {
            "model": arm.model,
            "closed": arm.closed,
            "closed_template": arm.closed_template,
            "open": arm.open,
            "open_template": arm.open_template,
            "cutoff": cutoff_row(arm.cutoff),
            "fresh_only": arm.fresh,
            "baseline": mean_row(arm.baseline),
            "closed_book": mean_row(arm.closed_score),
            "open_book": mean_row(arm.open_score),
            "n": arm.n,
            "difference": arm.difference,
            "ci_low": arm.low,
            "ci_high": arm.high,
            "p": arm.p,
            "p_holm": arm.p_holm,
            "few": arm.few,
        }
        for arm in arms
    ]
