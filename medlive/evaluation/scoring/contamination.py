"""How much better models score on cases they may have seen (`contamination`), or with evidence (`score_arms`).

A side is the cases up to a model's cutoff (`PRE`) or after it (`POST`); an arm is a way to ask a model: closed book,
open book, or raw, in the threads' own words. Source: docs/contamination.md.
"""

import calendar
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import product

import numpy as np

from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.runs.folder import RunInfo
from medlive.llm.registry import Cutoff, Registry
from medlive.statistics.bootstrap import bootstrap_means
from medlive.statistics.comparison import Comparison, compare, holm_of_known
from medlive.statistics.contamination import (
    POST,
    PRE,
    Adjusted,
    Drop,
    Effect,
    Sides,
    adjusted_drop,
    drop,
    permutation_p,
    placebos,
    seen_effect,
    terciles,
)
from medlive.statistics.estimate import Estimate, mean_estimate, percentile_interval
from medlive.statistics.intervals import Floats, known_means
from medlive.statistics.items import easiness

from .estimates import FEW, ScoreGrid, sides_of
from .fresh import PERMUTATIONS
from .score import ScoreTable


@dataclass(frozen=True)
class PaperFigure:
    """The source paper's figure: cases after the cutoff against *all* cases."""

    full: Estimate
    post: Estimate
    difference: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class ModelContamination:
    """One run's figures; None wherever its model's cutoff is unknown or a side is empty."""

    label: str
    cutoff: Cutoff | None
    scored: int
    notes: tuple[str, ...]
    drop: Drop | None = None
    p_holm: float | None = None
    """The drop's p by Holm's correction over the models that have one; None where a side is too small."""
    paper: PaperFigure | None = None
    did: Effect | None = None
    """Difference in differences: its gain on cases that it may have seen, over models that cannot have seen them."""
    did_against: tuple[str, ...] = ()
    """The labels of these models."""
    placebos: tuple[float, ...] | None = None
    """Drops at dates that are not the cutoff: they show drift, not memory."""
    mixes: Mapping[str, Adjusted] = field(default_factory=dict)
    """By "specialty", "source" and "difficulty": the drop if cases after the cutoff had the mix of those before."""

    @property
    def few(self) -> bool:
        """Whether a side is too small to be read as a result."""
        return self.drop is None or min(self.drop.n_pre, self.drop.n_post) < FEW

    @property
    def placebos_as_large(self) -> int:
        """How many placebo drops are no smaller than the drop at the cutoff."""
        own = self.drop.difference if self.drop else None
        if own is None:
            return 0
        return sum(placebo >= own for placebo in self.placebos or ())


@dataclass(frozen=True)
class ArmDrop:
    """One model asked in the thread's own words and in the rewritten case's: does rewriting hide memory?"""

    model: str
    raw: str
    rewritten: str
    drop: Drop
    """Of (raw - rewritten) by case: positive where the thread's own words help more on what may have been seen."""


@dataclass(frozen=True)
class ContaminationTable:
    """Every model's figures, in the score table's order."""

    scores: ScoreTable
    models: tuple[ModelContamination, ...]
    arms: tuple[ArmDrop, ...]


@dataclass(frozen=True, eq=False)
class _Run:
    """One run of the score table, as its contamination is computed."""

    label: str
    info: RunInfo
    cutoff: Cutoff | None
    values: Floats
    """(cases): the run's scores, NaN where it has none."""
    sides: Sides
    """(cases): the side of this model's cutoff."""
    grid: ScoreGrid
    """The cases, and how they are drawn."""

    def on(self, *sides: int) -> Floats:
        """The scores on these sides; NaN on others."""
        return np.where(
            np.isin(self.sides, sides),
            self.values,
            np.nan,
        )

    def figures(
        self,
        runs: Sequence["_Run"],
    ) -> ModelContamination:
        """The run's figures; `runs` are all of the table, to compare it with."""
        cutoff = self.cutoff
        scored = int((~np.isnan(self.values)).sum())
        if cutoff is None:
            return ModelContamination(
                label=self.label,
                cutoff=None,
                scored=scored,
                notes=("the cutoff is unknown: no drop is computed",),
            )
        figures = drop(
            self.values,
            self.sides,
            **self.grid.how,
        )
        notes = []
        if cutoff.basis == "released":
            notes.append(
                f"the cutoff is undisclosed: split by the release date, {cutoff.text}"
            )
        if min(figures.n_pre, figures.n_post) >= FEW:
            p = permutation_p(
                self.values,
                self.sides,
                PERMUTATIONS,
                **self.grid.how,
            )
            figures = replace(figures, p=p)
        else:
            notes.append(
                f"fewer than {FEW} cases on a side: no interval and no p-value is computed"
            )
        undated = scored - figures.n_pre - figures.n_post
        if undated:
            notes.append(f"{undated} cases without a date are on neither side")
        controls = list(self.controls(runs))
        if not controls:
            notes.append(
                "no other model has an earlier cutoff: no comparison of the drop"
            )
        has_both_sides = figures.difference is not None
        return ModelContamination(
            label=self.label,
            cutoff=cutoff,
            scored=scored,
            notes=tuple(notes),
            drop=figures,
            paper=self.paper_figure(),
            did=self.effect(controls) if controls else None,
            did_against=tuple(control.label for control in controls),
            placebos=self.placebo_drops(cutoff) if has_both_sides else None,
            mixes=self.mixes(runs) if has_both_sides else {},
        )

    def paper_figure(self) -> PaperFigure:
        """Cases after the cutoff against all."""
        columns = np.stack(
            [self.values, self.on(POST)],
            axis=1,
        )
        full, post = (mean_estimate(values, **self.grid.how) for values in columns.T)
        difference = low = high = None
        if full.value is not None and post.value is not None:
            difference = full.value - post.value
        if full.low is not None and post.low is not None:
            drawn = bootstrap_means(columns, **self.grid.how)
            low, high = percentile_interval(drawn[:, 0] - drawn[:, 1])
        return PaperFigure(full, post, difference, low, high)

    def controls(self, runs: Sequence["_Run"]) -> Iterator["_Run"]:
        """The runs of other models with an earlier cutoff, asked in the same words, with evidence or without."""
        own = self.info
        for other in runs:
            info = other.info
            is_alike = (info.raw, info.open_book) == (own.raw, own.open_book)
            if not is_alike or info.model == own.model:
                continue
            if self.cutoff and other.cutoff and other.cutoff.day < self.cutoff.day:
                yield other

    def placebo_drops(self, cutoff: Cutoff) -> tuple[float, ...]:
        """The drops at the ends of other months, among the cases of one side alone."""
        days = []
        ends = set()
        for case in self.grid.cases:
            day = _day(case)
            days.append(day.toordinal() if day else 0)
            if day:
                ends.add(_month_end(day))
        ends.discard(_month_end(cutoff.day))
        drops = placebos(
            self.values,
            self.sides,
            np.array(days),
            sorted(ends),
            least=FEW,
        )
        return tuple(drops)

    def mixes(self, runs: Sequence["_Run"]) -> dict[str, Adjusted]:
        """See `ModelContamination.mixes`."""
        strata = {
            "specialty": [case.specialty or "unknown" for case in self.grid.cases],
            "source": [case.source or "unknown" for case in self.grid.cases],
        }
        difficulty = self.difficulty(runs)
        if difficulty is not None:
            strata["difficulty"] = difficulty
        mixes = {}
        for kind, names in strata.items():
            mixes[kind] = adjusted_drop(
                self.values,
                self.sides,
                names,
                **self.grid.how,
            )
        return mixes

    def difficulty(self, runs: Sequence["_Run"]) -> list[str] | None:
        """Each case's third by difficulty: how the other models did on it, each against its own mean; "" if none did.

        None where no other model was scored: a model's own score is no measure of a case.
        """
        others = []
        for other in runs:
            if other.info.model != self.info.model:
                others.append(other.values)
        rest = np.array(others).reshape(len(others), len(self.grid.cases)).T
        if np.isnan(rest).all():
            return None
        ease = easiness(rest, known_means(rest))
        thirds = terciles(np.where(np.isnan(self.values), np.nan, ease))
        names = ("hard", "middling", "easy", "")
        return [names[third] for third in thirds]

    def effect(self, controls: Sequence["_Run"]) -> Effect | None:
        """The effect of having seen a case: by this run's dated scores, and the controls' after their own cutoffs."""
        cells = [self.on(PRE, POST)]
        cells += [control.on(POST) for control in controls]
        seen = [run.sides == PRE for run in (self, *controls)]
        return seen_effect(
            np.stack(cells, axis=1),
            np.stack(seen, axis=1),
            **self.grid.how,
        )

    def arms(self, runs: Sequence["_Run"]) -> Iterator[ArmDrop]:
        """A run in the threads' own words against each other run of its model that was asked the same way."""
        if not (self.info.raw and self.cutoff):
            return
        own = self.info
        for other in runs:
            info = other.info
            is_twin = (info.model, info.template) == (own.model, own.template)
            if is_twin and not info.raw and info.open_book is own.open_book:
                yield ArmDrop(
                    model=own.model,
                    raw=self.label,
                    rewritten=other.label,
                    drop=drop(self.values - other.values, self.sides, **self.grid.how),
                )


def contamination(
    table: ScoreTable,
    registry: Registry,
) -> ContaminationTable:
    """The contamination analyses of a score table's models, with its metric, draws and seed."""
    grid = table.grid
    runs = []
    for model, column in zip(table.models, grid.score.T, strict=True):
        info = model.run.info
        cutoff = registry.cutoff(info.model)
        sides = sides_of(cutoff, grid.cases)
        runs.append(_Run(model.label, info, cutoff, column, sides, grid))
    models = [run.figures(runs) for run in runs]
    arms: list[ArmDrop] = []
    for run in runs:
        arms += run.arms(runs)
    p_values = [model.drop.p if model.drop else None for model in models]
    corrected = []
    for figures, p in zip(models, holm_of_known(p_values), strict=True):
        corrected.append(replace(figures, p_holm=p))
    return ContaminationTable(
        scores=table,
        models=tuple(corrected),
        arms=tuple(arms),
    )


def _day(case: EvaluationCase) -> date | None:
    """The day of posting where it can be read, else the month's first."""
    for text in (case.post_time[:10], f"{case.month}-01"):
        with suppress(ValueError):
            return date.fromisoformat(text)
    return None


def _month_end(day: date) -> int:
    """The proleptic Gregorian ordinal of the month's last day."""
    last = calendar.monthrange(day.year, day.month)[1]
    return day.replace(day=last).toordinal()


@dataclass(frozen=True)
class BookArm:
    """One model with and without evidence."""

    model: str
    pair: Comparison
    """The open run against the closed, on the cases that both are scored on: those after the cutoff, where it is
    known."""
    cutoff: Cutoff | None
    baseline: Estimate
    """The closed book's score on all of its cases; the two below are on those of `pair`."""
    closed_score: Estimate
    open_score: Estimate
    p: float | None
    """The p of `pair`; None with fewer than 30 cases."""
    p_holm: float | None = None
    """`p` by Holm's correction over the arms that have one."""

    @property
    def few(self) -> bool:
        """Whether n is too small to be read as a result."""
        return self.pair.n < FEW


def score_arms(table: ScoreTable) -> tuple[BookArm, ...]:
    """Every open-book run of the table against each closed-book run of its model, in the table's order.

    A run in the threads' own words is compared with no other kind: it was asked another text.
    """
    grid = table.grid
    columns = dict(zip(grid.labels, grid.score.T, strict=True))

    def mean(values: Floats) -> Estimate:
        estimate = mean_estimate(values, **grid.how)
        return estimate if table.metric.clips_cases else estimate.clipped()

    arms = []
    for opened, closed in product(table.models, repeat=2):
        info, other = opened.run.info, closed.run.info
        alike = (other.model, other.raw) == (info.model, info.raw)
        if not (info.open_book and alike) or other.open_book:
            continue
        labels = [opened.label, closed.label]
        pair_scores = np.array([columns[label] for label in labels])
        both = ~np.isnan(pair_scores).any(axis=0)
        if opened.cutoff is not None:
            both &= sides_of(opened.cutoff, grid.cases) == POST
        pair_scores = np.where(both, pair_scores, np.nan)
        (pair,) = compare(labels, pair_scores.T, **grid.how)
        arm = BookArm(
            model=info.model,
            pair=pair,
            cutoff=opened.cutoff,
            baseline=mean(columns[closed.label]),
            closed_score=mean(pair_scores[1]),
            open_score=mean(pair_scores[0]),
            p=pair.p if pair.n >= FEW else None,
        )
        arms.append(arm)
    corrected = holm_of_known(arm.p for arm in arms)
    return tuple(replace(arm, p_holm=p) for arm, p in zip(arms, corrected, strict=True))
