"""Reports of made runs, with what a hostile forum would write in them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.scoring.graded import (
    GradedRun,
    load_graded,
)
from medlive.evaluation.scoring.refusals import EVERYTHING
from medlive.evaluation.scoring.score import (
    ScoreTable,
    score_runs,
)
from medlive.llm.registry import EMPTY, Registry
from tests.support.runs import made_cases, made_run

EVIL = (
    '<script>alert(1)</script></script><img src=x onerror=alert(2)> & "quoted" \x00\x07 \ud800 مرحبا \u202e'
    "</main> ]]> <!-- </style>"
)


def hostile(place: int, case: EvaluationCase) -> EvaluationCase:
    criteria = tuple(
        replace(c, criterion=f"{c.criterion} {EVIL}") for c in case.criteria
    )
    return replace(
        case,
        narrative=f"{case.narrative} {EVIL}",
        advice=EVIL,
        source=EVIL,
        criteria=criteria,
    )


def table_of(
    root: Path,
    models: int = 2,
    n: int = 12,
    *,
    change: Callable[[int, EvaluationCase], EvaluationCase] | None = None,
    edit: Callable[[GradedRun], GradedRun] = lambda run: run,
    registry: Registry = EMPTY,
    **more: Any,
) -> ScoreTable:
    cases = made_cases(n, months=6, change=change)
    paths = [
        made_run(cases, root / f"run{k}", f"=model<b>{k}", 0.6 - 0.1 * k, **more)
        for k in range(models)
    ]
    graded = [edit(load_graded(path)) for path in paths]
    return score_runs(graded, draws=50, registry=registry, allow=EVERYTHING)
