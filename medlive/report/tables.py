"""A score table as plain data: JSON for machines, CSV, TSV and Parquet for spreadsheets and data frames."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import date
from typing import Any

from medlive.evaluation.scoring.ability import abilities_of
from medlive.evaluation.scoring.companions import CORE, RATES
from medlive.evaluation.scoring.contamination import (
    BookArm,
    ContaminationTable,
    ModelContamination,
)
from medlive.evaluation.scoring.estimates import ScoreEstimate, Slices, axis_rows
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.score import ModelScore, ScoreTable
from medlive.llm.registry import Cutoff
from medlive.statistics.comparison import Standing
from medlive.statistics.estimate import Estimate

from .html import utf8

Row = dict[str, Any]
"""A row of a file."""
_COLUMNS = (
    "model",
    "metric",
    "cases",
    "grader",
    "slice",
    "value",
    "n",
    "mean",
    "low",
    "high",
    "least",
    "most",
    "of",
    "few",
    "overridden",
)
"""The columns of `scores.csv`."""


def _row(
    value: Any,
    **names: str,
) -> Any:
    """The fields of a dataclass, renamed by `names` (old name → new); None for None."""
    if value is None:
        return None
    row = {}
    for name, part in asdict(value).items():
        own = getattr(value, name, None)
        if isinstance(own, Estimate):
            part = estimate_row(own)
        row[names.get(name, name)] = part
    return row


def _rows(
    values: Iterable[Any],
    **names: str,
) -> list[Row]:
    return [_row(value, **names) for value in values]


def estimate_row(estimate: Estimate) -> Row:
    """A mean with its n and interval, and what else a score's estimate has."""
    if isinstance(estimate, ScoreEstimate):
        return {**estimate.row(), "few": estimate.few}
    return {
        "n": estimate.n,
        "mean": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
    }


def cutoff_row(cutoff: Cutoff | None) -> Row | None:
    """A cutoff with its basis and source; None is unknown."""
    if cutoff is None:
        return None
    return {"cutoff": cutoff.text, "basis": cutoff.basis, "source": cutoff.source}


def _head(
    kind: str,
    table: ScoreTable,
) -> Row:
    """The fields with which a file of figures begins."""
    return {
        "format": f"medlive-{kind}",
        "format_version": 2,
        "metric": table.metric.value,
        "bootstrap": {
            "draws": table.draws,
            "seed": table.seed,
            "level": 0.95,
        },
        "warnings": list(table.warnings),
        "overridden": [objection._asdict() for objection in table.overridden],
    }


def model_row(model: ModelScore) -> Row:
    """One model's figures, with how its run was made and graded."""
    info = model.run.info
    controls = model.harm.controls
    axis_errors = []
    for row in axis_rows(model.axes):
        axis_errors.append(row | {"rate": model.axes[row["axis"]].value})
    slices = []
    for kind, values in model.slices.items():
        for value, estimate in values.items():
            about = {"kind": kind, "value": value}
            slices.append(about | estimate_row(estimate))
    return {
        "model": model.label,
        "cases": info.cases.model_dump(include={"origin", "name", "digest"}),
        "template": info.template.model_dump(mode="json"),
        "engine": info.engine,
        "parameters": info.parameters,
        "cutoff": cutoff_row(model.cutoff),
        "grader": _row(model.run.grader),
        "notes": list(model.run.notes),
        "overall": estimate_row(model.overall),
        **_row(model.companions),
        "harm": _row(model.harm) | {"controls": controls and controls.as_json()},
        **_place(model.standing),
        "rates": _row(model.rates),
        "axis_errors": axis_errors,
        "slices": slices,
    }


def _place(standing: Standing | None) -> Row:
    """A model's tie group and ranks; None for a model that is not ranked."""
    names = ("group", "rank_best", "rank_worst")
    return {name: getattr(standing, name, None) for name in names}


def scores_json(table: ScoreTable) -> Row:
    """`scores.json`: the whole table without the cases."""
    window = table.window
    drops = {}
    for label, drop in table.drops.items():
        drops[label] = _row(
            drop,
            difference="drop",
            p="p_holm",
        )
    return _head("scores", table) | {
        "scored_on": table.basis,
        "common_cases": table.common,
        "coverage": _rows(table.coverage, label="model", missing="lacking"),
        "errata": errata_row(table),
        "advice_only": table.advice_only,
        "length": _rows(table.lengths),
        "models": list(map(model_row, table.models)),
        "comparisons": _rows(table.comparisons),
        "one_scale": scale_row(table),
        "window": {"since": _iso(window.since), "until": _iso(window.until)},
        "after_every_cutoff": fresh_row(table),
        "drops": drops,
    }


def scale_row(table: ScoreTable) -> Row:
    """The models on one scale (docs/scale.md): abilities and weeks."""
    abilities = abilities_of(table)
    return {
        "why": abilities.scale.why,
        "abilities": _rows(abilities.scale.abilities),
        "standings": _rows(abilities.scale.standings.values()),
        "weeks": _rows(abilities.weeks),
        "cases": len(abilities.cases),
        "silent": abilities.silent,
    }


def _iso(day: date | None) -> str | None:
    return day.isoformat() if day else None


def fresh_row(table: ScoreTable) -> Row | None:
    """The ranking on what was posted after every cutoff; None where no cutoff is known."""
    if (fresh := table.fresh) is None:
        return None
    models = []
    for model in fresh.models:
        row = {"model": model.label, "overall": estimate_row(model.overall)}
        models.append(row | _place(model.standing))
    return {
        "after": _iso(fresh.after),
        "set_by": list(fresh.set_by),
        "unknown": list(fresh.unknown),
        "common_cases": fresh.common,
        "models": models,
        "comparisons": _rows(fresh.comparisons),
    }


def errata_row(table: ScoreTable) -> Row | None:
    """What was done about errata and what they concern of each model's run; None when nobody looked."""
    if table.errata is None:
        return None
    runs = []
    for label, run in zip(table.labels, table.errata.runs, strict=True):
        # The file by name and digest: its path is private.
        file = run.path and run.path.name
        runs.append(_row(run, path="file") | {"model": label, "file": file})
    return {"mode": table.errata.mode.value, "runs": runs}


def beside_rows(
    table: ScoreTable,
    model: ModelScore,
) -> list[tuple[str, ScoreEstimate]]:
    """The scores shown beside a model's headline score: complete or paper where they differ from it, and the core."""
    own = model.companions
    by_metric = {Metric.COMPLETE: own.complete, Metric.PAPER: own.paper}
    rows = [(metric.value, by_metric[metric]) for metric in table.companion_metrics]
    return [*rows, (CORE, own.core)]


def score_rows(table: ScoreTable) -> list[Row]:
    """A row for each model and slice.

    The overall score has the slice "overall", the scores beside it "complete" and "paper" (where they differ) and
    "core", the shares of answers with harm "severe harm", "harm", "severe omission" and "omission"; errors by axis have
    "errors by axis", and their mean is the rate.

    `few` marks a figure over fewer than 30 cases, which is no result; errors by axis, whose n are criteria, have none.
    """
    rows: list[Row] = []
    for model in table.models:
        head = {
            "model": model.label,
            "metric": table.metric.value,
            "cases": model.run.info.cases.name,
            "grader": model.run.grader.model if model.run.grader else None,
        }
        slices: Slices = {"overall": {"": model.overall}}
        for name, estimate in beside_rows(table, model):
            slices[name] = {"": estimate}
        for name, title in RATES.items():
            rate = getattr(model.harm, name)
            if rate.n:
                slices[title] = {"": rate}
        slices |= model.slices
        for own_kind, values in slices.items():
            for value, estimate in values.items():
                about = head | {"slice": own_kind, "value": value}
                rows.append(about | estimate_row(estimate))
        for axis, errors in model.axes.items():
            about = head | {"slice": "errors by axis", "value": axis}
            rows.append(about | estimate_row(errors))
    return rows


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a text begins with that a spreadsheet takes for a formula."""


def scores_csv(table: ScoreTable) -> str:
    """`scores.csv`: `score_rows`, with a column of what was overridden to show them.

    A "'" is put before a text that begins as in `_FORMULA`.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    overrides = dict.fromkeys(override.allow for override in table.overridden)
    for row in score_rows(table):
        for name, value in row.items():
            if isinstance(value, str) and value.startswith(_FORMULA):
                row[name] = f"'{value}"
        writer.writerow(row | {"overridden": " ".join(overrides)})
    return out.getvalue()


WRITERS: Mapping[str, Callable[[ScoreTable], bytes]] = {
    "tsv": lambda table: utf8(table.tsv()),
    "json": lambda table: json_bytes(scores_json(table)),
    "csv": lambda table: utf8(scores_csv(table)),
}
"""Format → the bytes of a table in it."""


def json_bytes(value: Any) -> bytes:
    """A value as an indented JSON file."""
    text = json.dumps(
        value,
        ensure_ascii=False,
        indent=2,
        allow_nan=False,
    )
    return utf8(f"{text}\n")


def contamination_json(table: ContaminationTable) -> Row:
    """`contamination.json`: every estimate of every model (docs/contamination.md names each)."""
    arms = []
    for arm in table.arms:
        row = _row(arm, drop="drop_of_difference")
        arms.append(row | {"drop_of_difference": _row(arm.drop, difference="drop")})
    return _head("contamination", table.scores) | {
        "models": list(map(_contamination_row, table.models)),
        "raw_against_rewritten": arms,
    }


def _contamination_row(model: ModelContamination) -> Row:
    adjusted = []
    for by, mix in model.mixes.items():
        row = _row(mix, difference="drop")
        del row["p"]
        adjusted.append({"by": by, **row})
    placebo: Row | None = None
    if model.placebos is not None:
        placebo = {
            "dates": len(model.placebos),
            "at_least_as_large": model.placebos_as_large,
        }
    return {
        "model": model.label,
        "cutoff": cutoff_row(model.cutoff),
        "scored": model.scored,
        "few": model.few,
        "drop": _row(model.drop, difference="drop"),
        "p_holm": model.p_holm,
        "post_against_full_set_as_in_the_paper": _row(model.paper),
        "difference_in_differences": _row(model.did),
        "held_against": list(model.did_against),
        "placebo": placebo,
        "adjusted": adjusted,
        "notes": list(model.notes),
    }


def arms_rows(arms: Iterable[BookArm]) -> list[Row]:
    """Open book against closed, a row for each pair of runs: `first` is the open book, `second` the closed one."""
    rows = []
    for arm in arms:
        about = {"cutoff": cutoff_row(arm.cutoff), "few": arm.few}
        rows.append(_row(arm) | about)
    return rows
