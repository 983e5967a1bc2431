"""A score table as plain data: JSON for machines, CSV, TSV and Parquet for spreadsheets and data frames."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any, Final

from medlive.evaluation.asking.registry import Cutoff
from medlive.evaluation.log import writing
from medlive.evaluation.runs import folder
from medlive.evaluation.scoring.companions import CORE
from medlive.evaluation.scoring.contamination import (
    BookArm,
    ContaminationTable,
    Mix,
    ModelContamination,
    PlaceboTable,
)
from medlive.evaluation.scoring.estimates import Slice
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.score import (
    Estimate,
    ModelScore,
    ScoreTable,
    month_table,
)
from medlive.snapshot.parquet import require

_FIGURES: Final = (
    "n",
    "mean",
    "ci_low",
    "ci_high",
    "least",
    "most",
    "bounds_over",
    "few",
)


def _row(value: object | None, names: str) -> dict[str, Any] | None:
    """The attributes of a value in the order of `names`, one with `=` under another name; None of None."""
    if value is None:
        return None
    pairs = (name.split("=") for name in names.split())
    return {pair[0]: getattr(value, pair[-1]) for pair in pairs}


def _rows(values: Iterable[object], names: str) -> list[dict[str, Any] | None]:
    return [_row(value, names) for value in values]


_INTERVAL: Final = "ci_low=low ci_high=high"
_MEAN: Final = f"n mean {_INTERVAL}"
_ESTIMATE: Final = f"{_MEAN} least most bounds_over=of few why"
_DROP: Final = f"n_pre n_post pre post drop=difference {_INTERVAL} p p_exact=exact"
_EFFECT: Final = f"effect {_INTERVAL} n_pre n_post models"
_COMPARISON: Final = f"first second n difference {_INTERVAL} p p_holm why"
_STANDING: Final = "group rank_best rank_worst"
_AXIS: Final = f"axis n errors rate {_INTERVAL}"
_AGREEMENT: Final = "over n pearson spearman"
_LENGTH: Final = "figure n pearson spearman partial"
_RATES: Final = "cases criteria ungraded partly_graded unanswered truncated refused unscorable shares"


def estimate_row(estimate: Estimate) -> dict[str, Any]:
    """A mean with everything that belongs to it."""
    return _row(estimate, _ESTIMATE) or {}


def cutoff_row(cutoff: Cutoff | None) -> dict[str, Any] | None:
    """A cutoff with what it rests on; None is unknown."""
    if cutoff is None:
        return None
    return {"cutoff": cutoff.text, "basis": cutoff.basis.value, "source": cutoff.source}


def model_row(model: ModelScore) -> dict[str, Any]:
    """One model's figures, with what they rest on."""
    info, standing = model.run.run.info, model.standing
    grader = _row(model.run.grader, "engine model answered_by mode prompt judge")
    return {
        "model": model.label,
        "cases": _row(info.cases, "origin name digest"),
        "template": info.template.model_dump(mode="json"),
        "engine": info.engine,
        "parameters": info.parameters,
        "cutoff": cutoff_row(model.cutoff),
        "grader": grader,
        "notes": list(model.run.notes),
        "overall": estimate_row(model.overall),
        "complete": estimate_row(model.companions.complete),
        "paper": estimate_row(model.companions.paper),
        "core": estimate_row(model.companions.core),
        "characters": model.companions.characters,
        "group": standing.group if standing else None,
        "rank_best": standing.rank_best if standing else None,
        "rank_worst": standing.rank_worst if standing else None,
        "rates": _row(model.rates, _RATES),
        "axis_errors": _rows(model.axes, _AXIS),
        "slices": [
            {"kind": s.kind, "value": s.value, **estimate_row(s.estimate)}
            for s in model.slices
        ],
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
        "coverage": _rows(table.coverage, "model=label cases scored lacking=missing"),
        "warnings": list(table.warnings),
        "overridden": _rows(table.overridden, "allow why"),
        "errata": errata_row(table),
        "advice_only": table.beside.advice_only,
        "complete_and_paper": _rows(table.beside.agreement, _AGREEMENT),
        "length": _rows(table.beside.lengths, _LENGTH),
        "models": [model_row(model) for model in table.models],
        "comparisons": _rows(table.comparisons, _COMPARISON),
        "window": {
            "since": _iso(table.window.since),
            "until": _iso(table.window.until),
        },
        "after_every_cutoff": fresh_row(table),
        "drops": {
            label: _row(drop, _DROP.replace(" p ", " p_holm=p "))
            for label, drop in table.drops.items()
        },
    }


def _iso(day: date | None) -> str | None:
    return day.isoformat() if day else None


def fresh_row(table: ScoreTable) -> dict[str, Any] | None:
    """The ranking on what was posted after every cutoff; None where no cutoff is known."""
    if (fresh := table.fresh) is None:
        return None
    models = [
        {
            "model": m.label,
            "overall": estimate_row(m.overall),
            **(_row(m.standing, _STANDING) or {}),
        }
        for m in fresh.models
    ]
    about = _row(fresh, "set_by unknown common_cases=common") or {}
    return {
        "after": _iso(fresh.after),
        **about,
        "models": models,
        "comparisons": _rows(fresh.comparisons, _COMPARISON),
    }


def errata_row(table: ScoreTable) -> dict[str, Any] | None:
    """What was done about errata and what they concern of each model's run; None when nobody looked."""
    if table.errata is None:
        return None
    runs = [
        {"model": label, **run.row()}
        for label, run in zip(table.labels, table.errata.runs, strict=True)
    ]
    return {"mode": table.errata.mode.value, "runs": runs}


def beside_rows(table: ScoreTable, model: ModelScore) -> list[tuple[str, Estimate]]:
    """What stands beside a model's headline score: the other of complete and paper where they differ, the core."""
    own = model.companions
    by_metric = {Metric.COMPLETE: own.complete, Metric.PAPER: own.paper}
    rows = [(metric.value, by_metric[metric]) for metric in table.companion_metrics]
    return [*rows, (CORE, own.core)]


def score_rows(table: ScoreTable, kind: str | None = None) -> list[dict[str, Any]]:
    """A row for each model and slice; of one kind of slice alone where `kind` names it.

    The overall score has the slice "overall", what stands beside it "complete" and "paper" (where they differ) and
    "core"; errors by axis have "errors by axis", and their mean is the rate.

    `few` marks what is over fewer than 30 cases and no result; of errors by axis, whose n are criteria, None.
    """
    rows: list[dict[str, Any]] = []
    for model in table.models:
        head = {
            "model": model.label,
            "metric": table.metric.value,
            "cases": model.run.run.info.cases.name,
            "grader": model.run.grader.model if model.run.grader else None,
        }
        slices = [Slice("overall", "", model.overall)]
        slices += [Slice(name, "", one) for name, one in beside_rows(table, model)]
        slices += model.slices
        for one in slices:
            figures = estimate_row(one.estimate)
            about = head | {"slice": one.kind, "value": one.value}
            rows.append(about | {name: figures[name] for name in _FIGURES})
        for axis in model.axes:
            row: dict[str, Any] = head | {"slice": "errors by axis", "value": axis.axis}
            row |= dict.fromkeys(_FIGURES)
            row |= {"n": axis.n, "mean": axis.rate}
            rows.append(row | {"ci_low": axis.low, "ci_high": axis.high})
    return rows if kind is None else [row for row in rows if row["slice"] == kind]


def scores_csv(table: ScoreTable, kind: str | None = None) -> str:
    """`scores.csv`: `score_rows`, with commas; a text that a spreadsheet takes for a formula begins with "'"."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["model", "metric", "cases", "grader", "slice", "value", *_FIGURES])
    for row in score_rows(table, kind):
        writer.writerow(map(_plain, row.values()))
    return out.getvalue()


def _plain(value: object) -> object:
    """A value as a cell; a text so that no spreadsheet takes it for a formula."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return "" if value is None else value


def scores_parquet(table: ScoreTable, kind: str | None = None) -> bytes:
    """`scores.parquet`: `score_rows` with types, and what they rest on as the file's metadata `medlive`.

    Raises MissingExtra without pyarrow.
    """
    require()
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ("model", "metric", "cases", "grader", "slice", "value")
    whole = ("n", "bounds_over")
    fields: list[tuple[str, Any]] = [(name, pa.string()) for name in texts]
    fields += [
        (n, pa.bool_() if n == "few" else pa.int64() if n in whole else pa.float64())
        for n in _FIGURES
    ]
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
    return (
        value.encode("utf-8", "backslashreplace").decode("utf-8")
        if isinstance(value, str)
        else value
    )


WRITERS: Final[Mapping[str, Callable[[ScoreTable, str | None], bytes]]] = {
    "tsv": lambda table, kind: (
        month_table(table).tsv().encode("utf-8", "backslashreplace")
    ),
    "json": lambda table, kind: json_bytes(scores_json(table)),
    "csv": lambda table, kind: scores_csv(table, kind).encode(
        "utf-8", "backslashreplace"
    ),
    "parquet": scores_parquet,
}
"""Format → the bytes of a table in it, of one kind of slice where the format has rows."""


def json_bytes(value: Any) -> bytes:
    """A value as an indented JSON file."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, or leave what was there. Raises BadInput, DiskFull."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder.write_whole(path, data)


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
        "pooled_effect_of_having_seen": _row(table.pooled, _EFFECT),
        "models": [_contamination_row(model) for model in table.models],
        "raw_against_rewritten": [
            {
                "model": a.model,
                "raw": a.raw,
                "rewritten": a.rewritten,
                "drop_of_difference": _row(a.drop, _DROP),
            }
            for a in table.arms
        ],
    }


def _contamination_row(model: ModelContamination) -> dict[str, Any]:
    paper, placebo = model.paper, model.placebo
    newer = None
    if model.newer is not None and model.newer_than is not None:
        than = {"than": model.newer_than.isoformat()}
        newer = than | (_row(model.newer, _MEAN) or {})
    against_full_set = None
    if paper is not None:
        against_full_set = {
            "full": _row(paper.full, _MEAN),
            "post": _row(paper.post, _MEAN),
            **(_row(paper, f"difference {_INTERVAL}") or {}),
        }
    return {
        "model": model.label,
        "cutoff": cutoff_row(model.cutoff),
        **(_row(model, "scored undated few") or {}),
        "drop": _row(model.drop, _DROP),
        "p_holm": model.p_holm,
        "post_against_full_set_as_in_the_paper": against_full_set,
        "difference_in_differences": _row(model.did, _EFFECT),
        "held_against": list(model.did_against),
        "placebo": None if placebo is None else _placebo_row(placebo),
        "adjusted": [_mix_row(mix) for mix in model.mixes],
        "newer_than_the_model": newer,
        "notes": list(model.notes),
    }


def _placebo_row(placebo: PlaceboTable) -> dict[str, Any]:
    drops = []
    for drop in placebo.drops:
        about = {
            "last_day_before": date.fromordinal(drop.day).isoformat(),
            "among": "seen" if drop.side == 0 else "unseen",
        }
        counts = _row(drop, "n_before=n_pre n_after=n_post drop=difference")
        drops.append(about | (counts or {}))
    return {
        "dates": len(placebo.drops),
        "at_least_as_large": placebo.at_least,
        "drops": drops,
    }


def _mix_row(mix: Mix) -> dict[str, Any]:
    row = {"by": mix.by, **asdict(mix.adjusted)}
    strata = []
    for name, (before, after) in zip(mix.strata, row.pop("strata"), strict=True):
        strata.append({"stratum": name, "n_pre": before, "n_post": after})
    row["drop"] = row.pop("difference")
    row["ci_low"], row["ci_high"] = row.pop("low"), row.pop("high")
    return row | {"strata": strata}


def arms_rows(arms: Iterable[BookArm]) -> list[dict[str, Any]]:
    """Open book against closed, a row for each pair of runs."""
    first, last = (
        "model closed closed_template open open_template",
        f"n difference {_INTERVAL} p p_holm few",
    )
    return [
        {
            **(_row(arm, first) or {}),
            "cutoff": cutoff_row(arm.cutoff),
            "fresh_only": arm.fresh,
            "baseline": _row(arm.baseline, _MEAN),
            "closed_book": _row(arm.closed_score, _MEAN),
            "open_book": _row(arm.open_score, _MEAN),
            **(_row(arm, last) or {}),
        }
        for arm in arms
    ]
