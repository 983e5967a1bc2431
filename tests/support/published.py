"""The published table of LiveMedBench's raw files, by medlive's own figures."""

from collections.abc import Mapping, Sequence
from typing import Any

from medlive.evaluation.scoring.published import (
    MonthTable,
    case_figures,
    table_of_figures,
)


def published_table(
    benchmark: Sequence[Any], gradings: Mapping[str, Sequence[Mapping[str, Any]]]
) -> MonthTable:
    """The table of raw benchmark entries and, by model, raw grading entries."""
    figures = {
        model: case_figures(benchmark, entries) for model, entries in gradings.items()
    }
    return table_of_figures(
        {model: [figure[1:] for figure in found] for model, found in figures.items()}
    )
