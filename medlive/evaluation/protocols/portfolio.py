"""Several protocols side by side: ranks with NA, how alike they rank models, and the gaps between them.

A model that could not be run on a task is NA there and in every figure that needs it, never last (seed 004 §3,
figures 2, 4 and 7; docs/method.md §5).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from medlive.evaluation.grading.questions import QuestionsAsked
from medlive.evaluation.protocols.model import Cell, Protocol, Results, Side, Table
from medlive.statistics.correlation import spearman

PORTFOLIO: Final = "portfolio.json"
Figures = Mapping[str, Mapping[str, float | None]]
"""Task → model → its figure, higher being better; None, or absent: NA."""


class Questions(BaseModel):
    """What became of a protocol's questions."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    judge: str
    asked: int
    answered: int
    ungraded: dict[str, int]
    """Why, and how many."""
    calls: int
    cached: int


class TaskResults(BaseModel):
    """What a protocol found on one set of cases."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    format: Literal["medlive-protocol"] = "medlive-protocol"
    format_version: Literal[1] = 1
    task: str
    protocol: str
    about: str
    options: dict[str, Any]
    figure: str
    figures: dict[str, float | None]
    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    questions: Questions | None
    """None: it asks no judge."""

    @classmethod
    def of(
        cls,
        task: str,
        protocol: Protocol,
        results: Results,
        done: QuestionsAsked | None = None,
    ) -> Self:
        """The results of a protocol, with what asking came to."""
        asked = (
            None
            if done is None
            else Questions(
                judge=done.judge,
                asked=done.questions,
                answered=done.settled,
                ungraded=dict(done.reasons),
                calls=done.calls,
                cached=done.cached,
            )
        )
        return cls(
            task=task,
            protocol=protocol.name,
            about=protocol.about,
            options=protocol.model_dump(mode="json"),
            figure=protocol.figure,
            figures=dict(results.figures),
            tables=tuple(results.tables),
            notes=(*results.notes, *(done.notes if done else ())),
            questions=asked,
        )


class Portfolio(BaseModel):
    """`portfolio.json`: every task, and what they come to together."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    format: Literal["medlive-portfolio"] = "medlive-portfolio"
    format_version: Literal[1] = 1
    tasks: tuple[TaskResults, ...]
    tables: tuple[Table, Table, Table, Table]
    """Figures, ranks, Spearman's rho of tasks, gaps."""

    @property
    def models(self) -> list[str]:
        """All models, in the order given."""
        return [str(row[0]) for row in self.tables[0].rows]


def ranks(
    figures: Mapping[str, float | None], models: Sequence[str]
) -> list[float | None]:
    """Each model's rank, 1 for the best; equals share the mean of their ranks."""
    known = {
        model: value for model in models if (value := figures.get(model)) is not None
    }
    return [
        None
        if model not in known
        else sum(other > known[model] for other in known.values())
        + (sum(other == known[model] for other in known.values()) + 1) / 2
        for model in models
    ]


def portfolio(
    figures: Figures, sides: Mapping[str, Side | None]
) -> tuple[Table, Table, Table, Table]:
    """The tables: figures, ranks, Spearman's rho of tasks, and the gaps between sides."""
    models = list(dict.fromkeys(model for of in figures.values() for model in of))
    tasks = list(figures)
    by_task = {task: ranks(figures[task], models) for task in tasks}
    values: list[list[Cell]] = [
        [model, *(figures[task].get(model) for task in tasks)] for model in models
    ]
    ranked: list[list[Cell]] = []
    for place, model in enumerate(models):
        mine = [by_task[task][place] for task in tasks]
        whole = [rank for rank in mine if rank is not None]
        ranked.append(
            [model, *mine, float(np.mean(whole)) if len(whole) == len(tasks) else None]
        )
    ranked.sort(key=lambda row: (row[-1] is None, row[-1] or 0.0))
    note = "1 is best. NA: the model was not run there. The mean is of all tasks, and NA where one is."
    return (
        Table(
            "Figures by task",
            ["model", *tasks],
            values,
            "Each task's own figure; higher is better. NA: not run.",
        ),
        Table("Ranks", ["model", *tasks, "mean"], ranked, note),
        _alike(figures, models),
        _gaps(figures, sides, models),
    )


def _alike(figures: Figures, models: Sequence[str]) -> Table:
    columns = {
        task: np.array([_nan(of.get(model)) for model in models])
        for task, of in figures.items()
    }
    rows: list[list[Cell]] = [
        [one, *(spearman(columns[one], columns[other]) for other in columns)]
        for one in columns
    ]
    note = "Over the models that both tasks have; NA: fewer than three, or all equal."
    return Table(
        "How alike tasks rank models (Spearman)", ["task", *columns], rows, note
    )


def _gaps(
    figures: Figures, sides: Mapping[str, Side | None], models: Sequence[str]
) -> Table:
    """Knowledge against execution, passive against active safety, by model."""

    def mean(model: str, side: Side) -> float | None:
        found = [
            figures[task].get(model) for task in figures if sides.get(task) is side
        ]
        known = [value for value in found if value is not None]
        return float(np.mean(known)) if known and len(known) == len(found) else None

    rows: list[list[Cell]] = []
    for model in models:
        of = {side: mean(model, side) for side in Side}
        pairs = ((Side.KNOWLEDGE, Side.EXECUTION), (Side.PASSIVE, Side.ACTIVE))
        gaps = [
            None if (a := of[x]) is None or (b := of[y]) is None else a - b
            for x, y in pairs
        ]
        rows.append([model, *of.values(), *gaps])
    titles = ["model", *Side, "knowledge - execution", "passive - active"]
    note = "Means of the tasks of each side, 0 to 1; a gap above 0: knows or declines more than it does or notices."
    return Table("Gaps", titles, rows, note)


def _nan(value: float | None) -> float:
    return np.nan if value is None else value
