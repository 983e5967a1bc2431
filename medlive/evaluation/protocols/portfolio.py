"""Several protocols side by side (`portfolio`): ranks with NA, and how alike the protocols rank models.

A model that could not be run on a task is NA there and in every figure that needs it, never last (seed 004 §3,
figures 2, 4 and 7; docs/method.md §5).
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from medlive.evaluation.grading.questions import QuestionsAsked
from medlive.evaluation.scoring.refusals import Objection
from medlive.statistics.correlation import spearman
from medlive.statistics.estimate import known_or_none
from medlive.statistics.intervals import Floats

from .model import (
    Figures,
    Protocol,
    Results,
    Rows,
    Table,
    whole_mean,
)

PORTFOLIO = "portfolio.json"


class TaskResults(BaseModel):
    """A protocol's results on one set of cases, as a file."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    format: Literal["medlive-protocol"] = "medlive-protocol"
    format_version: Literal[1] = 1
    task: str
    protocol: str
    about: str
    options: dict[str, Any]
    figure: str
    figures: Figures
    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    questions: dict[str, Any] | None
    """Counts of its questions: judge, asked, answered, ungraded (reason → number), calls; None: it asks no judge."""

    @classmethod
    def from_results(
        cls,
        task: str,
        protocol: Protocol,
        results: Results,
        done: QuestionsAsked | None = None,
    ) -> Self:
        """The results of a protocol; `done` says how asking its questions ended."""
        asked = None
        notes = tuple(results.notes)
        if done is not None:
            notes = (*notes, *done.notes)
            asked = {
                "judge": done.judge,
                "asked": done.questions,
                "answered": done.settled,
                "ungraded": dict(done.reasons),
                "calls": done.calls,
            }
        return cls(
            task=task,
            protocol=protocol.name,
            about=protocol.about,
            options=protocol.model_dump(mode="json"),
            figure=protocol.figure,
            figures=dict(results.figures),
            tables=tuple(results.tables),
            notes=notes,
            questions=asked,
        )


class Portfolio(BaseModel):
    """`portfolio.json`: every task's results, and the tables that compare them."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    format: Literal["medlive-portfolio"] = "medlive-portfolio"
    format_version: Literal[1] = 1
    tasks: tuple[TaskResults, ...]
    tables: tuple[Table, ...] = Field(min_length=3)
    """Figures, ranks, Spearman's rho of tasks; earlier versions' files have gaps too."""
    overridden: tuple[Objection, ...] = ()
    """What was overridden to show the figures."""


def ranks(
    figures: Figures,
    models: Sequence[str],
) -> list[float | None]:
    """Each model's rank, 1 for the best; equals share the mean of their ranks."""
    values = _compared(figures, models)
    better = (values > values[:, None]).sum(axis=1)
    equal = (values == values[:, None]).sum(axis=1)
    ranked = better + (equal + 1) / 2
    return list(map(known_or_none, np.where(np.isnan(values), np.nan, ranked)))


def _compared(
    figures: Figures,
    models: Sequence[str],
) -> Floats:
    """The figures, NaN for NA; rounded, so that the order of adding up makes no equal ones differ."""
    return np.array(list(map(figures.get, models)), dtype=np.float64).round(12)


def portfolio(figures: Mapping[str, Figures]) -> tuple[Table, Table, Table]:
    """Tables of the figures by task (absent: NA), the ranks, and Spearman's rho of each two tasks."""
    models = list(dict.fromkeys(chain.from_iterable(figures.values())))
    tasks = list(figures)
    by_task = [ranks(of_task, models) for of_task in figures.values()]
    values: Rows = []
    ranked: Rows = []
    for model, *own in zip(models, *by_task, strict=True):
        values.append([model, *(of_task.get(model) for of_task in figures.values())])
        ranked.append([model, *own, whole_mean(own)])
    ranked.sort(key=lambda row: (row[-1] is None, row[-1] or 0.0))
    columns = {task: _compared(own, models) for task, own in figures.items()}
    alike: Rows = []
    for task, column in columns.items():
        alike.append([task, *(spearman(column, other) for other in columns.values())])
    note = "1 is best. NA: the model was not run there. The mean is of all tasks, and NA where one is."
    about = "Each task's own figure; higher is better. NA: not run."
    both = "Over the models that both tasks have; NA: fewer than three, or all equal."
    return (
        Table("Figures by task", ["model", *tasks], values, about),
        Table("Ranks", ["model", *tasks, "mean"], ranked, note),
        Table("How alike tasks rank models (Spearman)", ["task", *tasks], alike, both),
    )
