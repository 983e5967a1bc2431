"""The published table of LiveMedBench's raw files, by medlive's own figures."""

from collections.abc import Mapping, Sequence
from typing import Any

from medlive.evaluation.scoring.published import (
    case_figures,
    month_table,
)


def published_table(
    benchmark: Sequence[Any], gradings: Mapping[str, Sequence[Mapping[str, Any]]]
) -> str:
    """The table of raw benchmark entries and, by model, raw grading entries."""
    figures = {
        model: case_figures(benchmark, entries) for model, entries in gradings.items()
    }
    return month_table(
        {model: [figure[1:] for figure in found] for model, found in figures.items()}
    )
