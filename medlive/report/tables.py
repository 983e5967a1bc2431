"""A score table as plain data: JSON for machines, CSV, TSV and Parquet for spreadsheets and data frames."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from medlive.evaluation.runs import folder
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
from medlive.integrity.log import writing
from medlive.llm.registry import Cutoff
from medlive.report.html import utf8
from medlive.statistics.bootstrap import Estimate, Standing

Row = dict[str, Any]
"""A row of a file."""
_NAMES = {
    "low": "ci_low",
    "high": "ci_high",
    "of": "bounds_over",
}
"""Field of a dataclass → its name in the files."""
_FIGURES = (
    "n",
    "mean",
    "ci_low",
    "ci_high",
    "least",
    "most",
    "bounds_over",
    "few",
)


def _row(
    value: Any,
    **names: str,
) -> Any:
    """The fields of a dataclass, or of a row, under the names of the files; `names` are further ones. None stays."""
    if value is None:
        return None
    parts = value if isinstance(value, Mapping) else asdict(value)
    names = _NAMES | names
    row = {}
    for name, part in parts.items():
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
    """A mean with everything that belongs to it."""
    if isinstance(estimate, ScoreEstimate):
        return {**_row(estimate.row()), "few": estimate.few}
    return {
        "n": estimate.n,
        "mean": estimate.value,
        "ci_low": estimate.low,
        "ci_high": estimate.high,
    }


def cutoff_row(cutoff: Cutoff | None) -> Row | None:
    """A cutoff with what it rests on; None is unknown."""
    if cutoff is None:
        return None
    return {"cutoff": cutoff.text, "basis": cutoff.basis, "source": cutoff.source}


def _head(
    kind: str,
    table: ScoreTable,
) -> Row:
    """How a file of figures begins."""
    return {
        "format": f"medlive-{kind}",
        "format_version": 1,
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
    """One model's figures, with what they rest on."""
    info = model.run.info
    controls = model.harm.controls
    axis_errors = []
    for row in axis_rows(model.axes):
        axis_errors.append(_row(row) | {"rate": model.axes[row["axis"]].value})
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
        "rates": {**_row(model.rates), "shares": model.rates.shares},
        "axis_errors": axis_errors,
        "slices": slices,
    }


def _place(standing: Standing | None) -> Row:
    names = ("group", "rank_best", "rank_worst")
    return {name: getattr(standing, name, None) for name in names}


def scores_json(table: ScoreTable) -> Row:
    """`scores.json`: the whole table but the cases."""
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
    """The models on one scale (docs/scale.md): abilities, weeks, and suspects."""
    abilities = abilities_of(table)
    suspects = []
    for item in abilities.suspects:
        assert item.criterion is not None
        about = {"case_id": item.case.case_id, "criterion_id": item.criterion.id}
        suspects.append(about | _row(item.figures))
    return {
        "why": abilities.scale.why,
        "abilities": _rows(abilities.scale.abilities),
        "standings": _rows(abilities.scale.standings.values()),
        "weeks": _rows(abilities.weeks),
        "cases": len(abilities.cases),
        "silent": abilities.silent,
        "suspects": suspects,
    }


def _iso(day: date | None) -> str | None:
    return day.isoformat() if day else None


def fresh_row(table: ScoreTable) -> Row | None:
    """The ranking on what was posted after every cutoff; None where no cutoff is known."""
    if (fresh := table.fresh) is None:
        return None
    models = []
    for model in fresh.models:
        row: Row = {"model": model.label, "overall": estimate_row(model.overall)}
        if model.standing is not None:
            row |= _place(model.standing)
        models.append(row)
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
        criteria = []
        for case_id, criterion_id in run.criteria:
            criteria.append({"case_id": case_id, "criterion_id": criterion_id})
        row = _row(
            run,
            path="file",
            key="checked_with",
            cases="withdrawn_cases",
            criteria="withdrawn_criteria",
            emptied="cases_left_without_positive_criterion",
            unclear="cases_with_unclear_criteria",
        )
        # The file by name and digest: its path is private.
        file = run.path and run.path.name
        about = {"model": label, "file": file, "withdrawn_criteria": criteria}
        runs.append(row | about)
    return {"mode": table.errata.mode.value, "runs": runs}


def beside_rows(
    table: ScoreTable,
    model: ModelScore,
) -> list[tuple[str, ScoreEstimate]]:
    """What stands beside a model's headline score: the other of complete and paper where they differ, the core."""
    own = model.companions
    by_metric = {Metric.COMPLETE: own.complete, Metric.PAPER: own.paper}
    rows = [(metric.value, by_metric[metric]) for metric in table.companion_metrics]
    return [*rows, (CORE, own.core)]


def score_rows(
    table: ScoreTable,
    kind: str | None = None,
) -> list[Row]:
    """A row for each model and slice; of one kind of slice alone where `kind` names it.

    The overall score has the slice "overall", what stands beside it "complete" and "paper" (where they differ) and
    "core", the shares of answers with harm "severe harm", "harm", "severe omission" and "omission"; errors by axis have
    "errors by axis", and their mean is the rate.

    `few` marks what is over fewer than 30 cases and no result; of errors by axis, whose n are criteria, None.
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
                figures = estimate_row(estimate)
                about = head | {"slice": own_kind, "value": value}
                rows.append(about | {name: figures[name] for name in _FIGURES})
        for axis, errors in model.axes.items():
            row: Row = head | {"slice": "errors by axis", "value": axis}
            rows.append(row | dict.fromkeys(_FIGURES) | estimate_row(errors))
    return [row for row in rows if kind in (None, row["slice"])]


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a text begins that a spreadsheet takes for a formula."""


def scores_csv(
    table: ScoreTable,
    kind: str | None = None,
) -> str:
    """`scores.csv`: `score_rows` with what was overridden to show them, and commas.

    A text of `_FORMULA` begins with "'".
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = ["model", "metric", "cases", "grader", "slice", "value", *_FIGURES]
    writer.writerow([*names, "overridden"])
    overrides = dict.fromkeys(override.allow for override in table.overridden)
    for row in score_rows(table, kind):
        cells = []
        for value in row.values():
            if isinstance(value, str) and value.startswith(_FORMULA):
                value = f"'{value}"
            cells.append(value)
        writer.writerow([*cells, " ".join(overrides)])
    return out.getvalue()


WRITERS: Mapping[str, Callable[[ScoreTable, str | None], bytes]] = {
    "tsv": lambda table, kind: utf8(table.tsv()),
    "json": lambda table, kind: json_bytes(scores_json(table)),
    "csv": lambda table, kind: utf8(scores_csv(table, kind)),
}
"""Format → the bytes of a table in it, of one kind of slice where the format has rows."""


def json_bytes(value: Any) -> bytes:
    """A value as an indented JSON file."""
    text = json.dumps(
        value,
        ensure_ascii=False,
        indent=2,
        allow_nan=False,
    )
    return utf8(f"{text}\n")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, or leave what was there. Raises BadInput, DiskFull."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder.write_whole(path, data)


def contamination_json(table: ContaminationTable) -> Row:
    """`contamination.json`: every estimate of every model (docs/contamination.md names each)."""
    arms = []
    for arm in table.arms:
        row = _row(arm, drop="drop_of_difference")
        arms.append(row | {"drop_of_difference": _row(arm.drop, difference="drop")})
    return _head("contamination", table.scores) | {
        "warnings": list(table.warnings),
        "permutations": table.permutations,
        "pooled_effect_of_having_seen": _row(table.pooled),
        "models": list(map(_contamination_row, table.models)),
        "raw_against_rewritten": arms,
    }


def _contamination_row(model: ModelContamination) -> Row:
    adjusted = []
    for by, mix in model.mixes.items():
        strata = []
        for name, (before, after) in mix.strata.items():
            strata.append({"stratum": name, "n_pre": before, "n_post": after})
        row = _row(mix, difference="drop")
        del row["p"]
        adjusted.append({"by": by, **row, "strata": strata})
    placebo: Row | None = None
    if model.placebos is not None:
        drops = []
        for drop in model.placebos:
            row = {
                "n_before": drop.n_pre,
                "n_after": drop.n_post,
                "drop": drop.difference,
                "last_day_before": date.fromordinal(drop.day).isoformat(),
                "among": "unseen" if drop.side else "seen",
            }
            drops.append(row)
        placebo = {
            "dates": len(model.placebos),
            "at_least_as_large": model.placebos_as_large,
            "drops": drops,
        }
    return {
        "model": model.label,
        "cutoff": cutoff_row(model.cutoff),
        "scored": model.scored,
        "undated": model.undated,
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
    """Open book against closed, a row for each pair of runs."""
    rows = []
    for arm in arms:
        row = _row(arm, closed_score="closed_book", open_score="open_book")
        del row["pair"]
        row |= {
            "closed": arm.pair.second,
            "open": arm.pair.first,
            "cutoff": cutoff_row(arm.cutoff),
            "fresh_only": arm.cutoff is not None,
            "n": arm.pair.n,
            "difference": arm.pair.difference,
            "ci_low": arm.pair.low,
            "ci_high": arm.pair.high,
            "few": arm.few,
        }
        rows.append(row)
    return rows
