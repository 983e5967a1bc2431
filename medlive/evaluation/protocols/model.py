"""The base of protocols (`Protocol`, `SampledProtocol`), and their results as tables (`Results`, `Table`).

A protocol makes typed questions about cases and answers; `grading.questions` asks them. What is missing never counts as
a figure: without an answer a case is unanswered, without a usable reply a question is ungraded, and without any case
that counts a model is NA (None).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from medlive.evaluation.grading.questions import JudgeReplies, Question, Source
from medlive.evaluation.model import Answer, EvaluationCase, cluster_array
from medlive.evaluation.scoring.graded import GradedRun
from medlive.statistics.estimate import mean_estimate
from medlive.statistics.intervals import Floats

Cell = str | int | float | None
"""None: NA, or not defined."""
Rows = list[list[Cell]]
Records = list[dict[str, Cell]]
"""Rows, each column → cell."""
Figures = dict[str, float | None]
"""Model → a protocol's one figure, higher being better; None: NA."""


Material = Sequence[GradedRun]
"""The runs that a protocol works on, in the order given."""


def cases_of(material: Material) -> Iterator[EvaluationCase]:
    """The cases of all runs."""
    return chain.from_iterable(run.cases for run in material)


@dataclass(frozen=True)
class Table:
    """Figures to be printed, drawn and stored."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    """What a reader must know to read it: the source of the formula, what None stands for."""

    @classmethod
    def of_rows(
        cls,
        title: str,
        rows: Records,
        note: str = "",
    ) -> Self:
        """A table of rows that all have the same columns."""
        columns = list(rows[0]) if rows else []
        return cls(
            title,
            columns,
            [list(row.values()) for row in rows],
            note,
        )


def format_cell(cell: Cell) -> str:
    """A cell as people read it."""
    if isinstance(cell, float):
        return f"{cell:z.3f}" if abs(cell) < 10 else f"{cell:.1f}"
    return "NA" if cell is None else str(cell)


@dataclass(frozen=True)
class Results:
    """A protocol's results on some runs."""

    tables: Sequence[Table]
    figures: Mapping[str, float | None]
    """As `Figures`; a protocol that never has NA may give floats alone."""
    notes: Sequence[str] = ()


class Protocol(BaseModel, ABC):
    """A method of evaluation. The fields of the class are the method's options, described and checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ClassVar[str]
    about: ClassVar[str]
    """One line: what it finds out, and the paper."""
    figure: ClassVar[str]
    """What the one figure is, with its unit."""
    asks: ClassVar[bool] = True
    """Whether it puts questions to a judge of its own."""

    @classmethod
    def fits(cls, material: Material) -> bool:
        """Whether a portfolio applies the protocol to these runs; by default never, so that a user has to name it."""
        return False

    def questions(
        self,
        material: Material,
        replies: JudgeReplies,
    ) -> Iterable[Question]:
        """All questions that can be asked, given the replies on record; called again after each stage of asking.

        A question that builds on earlier replies is among them once these are there.
        """
        for run in material:
            for case, answer in run.answered():
                yield from self.questions_about(case, answer, replies)

    def questions_about(
        self,
        case: EvaluationCase,
        answer: Answer,
        replies: JudgeReplies,
    ) -> Iterable[Question]:
        """The questions about one answer, for a protocol that asks about each alone."""
        return ()

    def work(
        self,
        material: Material,
        out: Path,
    ) -> tuple[Source, Path]:
        """For `ask_questions` and `plan_questions`: what is asked, and the log in the folder `out`."""
        return partial(self.questions, material), out / f"{self.name}.jsonl"

    @abstractmethod
    def results(
        self,
        material: Material,
        replies: JudgeReplies,
    ) -> Results:
        """The tables. Raises UsageError for material that the protocol cannot work on."""


class SampledProtocol(Protocol):
    """A protocol whose figures have intervals by bootstrap."""

    draws: int = Field(
        default=1000,
        ge=1,
        description="draws of the bootstrap",
    )
    seed: int = Field(
        default=0,
        ge=0,
        description="where the draws begin",
    )

    def interval(
        self,
        values: Sequence[float],
        cases: Sequence[EvaluationCase],
    ) -> tuple[float | None, float | None]:
        """The 95 % interval of a mean over cases, clusters drawn whole; None where too few count to have one.

        `values` has one for each case, 0 to 1.
        """
        estimate = mean_estimate(
            np.array(values, dtype=np.float64),
            draws=self.draws,
            seed=self.seed,
            clusters=cluster_array(cases),
        )
        return estimate.low, estimate.high


def mean(values: Sequence[float] | Floats) -> float | None:
    """The mean; None without values."""
    return float(np.mean(values)) if len(values) else None


def whole_mean(values: Sequence[float | None]) -> float | None:
    """The mean; None where a value is missing."""
    known = [value for value in values if value is not None]
    return mean(known) if len(known) == len(values) else None


def is_planted(case: EvaluationCase) -> bool:
    """Whether a case asks a model to find a planted error (`planted.plant`), even if none was planted."""
    return any(tag.startswith("error:") for tag in case.tags)


def has_reference(material: Material) -> bool:
    """Whether most cases of every run have a physician's advice, and no case asks for a planted error."""
    for run in material:
        with_advice = sum(bool(case.advice.strip()) for case in run.cases)
        if 2 * with_advice <= len(run.cases):
            return False
    return not any(map(is_planted, cases_of(material)))
