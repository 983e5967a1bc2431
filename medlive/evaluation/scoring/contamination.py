"""Contamination: how much a model scores better on cases that it may have seen (docs/contamination.md)."""

import calendar
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date

import numpy as np

from medlive.evaluation.model import EvaluationCase, cluster_numbers
from medlive.evaluation.runs.folder import RAW, RunInfo
from medlive.evaluation.scoring.estimates import FEW
from medlive.evaluation.scoring.fresh import PERMUTATIONS, sides_of
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.refusals import Objection
from medlive.evaluation.scoring.score import (
    ScoreTable,
    score_matrix,
)
from medlive.llm.registry import Cutoff, Registry
from medlive.statistics.bootstrap import (
    Floats,
    Resampling,
    bootstrap_means,
    holm_of_known,
    interval,
)
from medlive.statistics.contamination import (
    POST,
    PRE,
    Adjusted,
    Drop,
    Effect,
    Mean,
    Placebo,
    Sides,
    adjusted_drop,
    drop,
    mean_of,
    placebos,
    seen_effect,
    terciles,
)


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """The source paper's figure: cases after the cutoff against *all* cases."""

    full: Mean
    post: Mean
    difference: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Mix:
    """The drop after one way of making both sides alike."""

    by: str
    """"specialty", "source", "difficulty", or "all three"."""
    adjusted: Adjusted
    strata: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlaceboTable:
    """Drops at dates that are not the cutoff."""

    drops: tuple[Placebo, ...]
    at_least: int
    """How many are no smaller than the drop at the cutoff."""


@dataclass(frozen=True, slots=True)
class ModelContamination:
    """One run's figures; None wherever its model's cutoff is unknown or a side is empty."""

    label: str
    cutoff: Cutoff | None
    scored: int
    notes: tuple[str, ...]
    undated: int = 0
    """Of those scored, cases without a date: on neither side."""
    drop: Drop | None = None
    p_holm: float | None = None
    """The drop's p, corrected for the number of models that have one; None where a side is too small to tell."""
    paper: PaperFigure | None = None
    did: Effect | None = None
    """Its advantage on cases that it may have seen, over models that cannot have seen them."""
    did_against: tuple[str, ...] = ()
    placebo: PlaceboTable | None = None
    mixes: tuple[Mix, ...] = ()

    @property
    def few(self) -> bool:
        """Whether a side is too small to be read as a result."""
        return self.drop is None or min(self.drop.n_pre, self.drop.n_post) < FEW


@dataclass(frozen=True, slots=True)
class ArmDrop:
    """One model asked in the thread's own words and in the rewritten case's: does rewriting hide memory?"""

    model: str
    raw: str
    rewritten: str
    drop: Drop
    """Of (raw - rewritten) by case: positive where the thread's own words help more on what may have been seen."""


@dataclass(frozen=True, slots=True)
class ContaminationTable:
    """Every model's figures, in the score table's order."""

    metric: Metric
    draws: int
    seed: int
    permutations: int
    models: tuple[ModelContamination, ...]
    pooled: Effect | None
    """One effect of having seen a case, over the closed-book runs of rewritten cases of all models with a known
    cutoff."""
    arms: tuple[ArmDrop, ...]
    registry: str
    warnings: tuple[str, ...]
    overridden: tuple[Objection, ...] = ()
    """What was overridden to show the figures."""


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """One run of the table."""

    label: str
    info: RunInfo
    cutoff: Cutoff | None
    values: Floats
    """By case; NaN where it has no score."""
    sides: Sides
    """By case, of this model's cutoff."""

    def on(self, *sides: int) -> Floats:
        """The scores on these sides; NaN on others."""
        return np.where(np.isin(self.sides, sides), self.values, np.nan)

    def is_asked_as(self, other: "_Run") -> bool:
        """Whether both were asked in the same words, with evidence or without."""
        return (self.info.raw, self.info.open_book) == (
            other.info.raw,
            other.info.open_book,
        )


def contamination(
    table: ScoreTable, registry: Registry, *, permutations: int = PERMUTATIONS
) -> ContaminationTable:
    """The contamination analyses of a score table's models, with its metric, draws and seed."""
    study = _Study(table, registry)
    models = [study.model(run, permutations) for run in study.runs]
    p_values = [None if model.drop is None else model.drop.p for model in models]
    corrected = []
    for model, p in zip(models, holm_of_known(p_values), strict=True):
        corrected.append(replace(model, p_holm=p))
    warnings = list(table.warnings)
    unknown = [model.label for model in models if model.cutoff is None]
    if unknown:
        warnings.append(
            f"{', '.join(unknown)}: cutoff unknown ({registry.origin} has none): no drop is computed"
        )
    return ContaminationTable(
        metric=table.metric,
        draws=table.draws,
        seed=table.seed,
        permutations=permutations,
        models=tuple(corrected),
        pooled=study.pooled(),
        arms=tuple(study.arms()),
        registry=registry.origin,
        warnings=tuple(warnings),
        overridden=table.overridden,
    )


class _Study:
    """The cases and runs of a table, each case on its side of each model's cutoff."""

    def __init__(self, table: ScoreTable, registry: Registry) -> None:
        self._cases, values = score_matrix(table)
        self._resampling: Resampling = {
            "draws": table.draws,
            "seed": table.seed,
            "clusters": cluster_numbers(self._cases),
        }
        self.runs: list[_Run] = []
        for model, column in zip(table.models, values.T, strict=True):
            info = model.run.run.info
            cutoff = registry.cutoff(info.model)
            sides = sides_of(cutoff, self._cases)
            self.runs.append(_Run(model.label, info, cutoff, column, sides))

    def model(self, run: _Run, permutations: int) -> ModelContamination:
        """A run's figures."""
        scored = ~np.isnan(run.values)
        figures = ModelContamination(
            label=run.label,
            cutoff=run.cutoff,
            scored=int(scored.sum()),
            notes=("the cutoff is unknown",),
        )
        if run.cutoff is None:
            return figures
        sizes = [int((scored & (run.sides == side)).sum()) for side in (PRE, POST)]
        enough = min(sizes) >= FEW
        undated = figures.scored - sum(sizes)
        own_drop = drop(
            run.values,
            run.sides,
            permutations=permutations if enough else 0,
            **self._resampling,
        )
        controls = self._controls(run)
        notes = []
        if run.cutoff.basis == "released":
            notes.append(
                f"the cutoff is undisclosed: split by the release date, {run.cutoff.text}"
            )
        if not enough:
            notes.append(
                f"fewer than {FEW} cases on a side: no interval and no p-value is computed"
            )
        if undated:
            notes.append(f"{undated} cases without a date are on neither side")
        if not controls:
            notes.append(
                "no other model has an earlier cutoff: no comparison of the drop"
            )
        figures = replace(
            figures,
            undated=undated,
            drop=own_drop,
            paper=self._paper(run),
            did=self._beyond(run, controls) if controls else None,
            did_against=tuple(control.label for control in controls),
            notes=tuple(notes),
        )
        if own_drop.difference is None:
            return figures
        placebo = self._placebo(run, run.cutoff, own_drop.difference)
        return replace(figures, placebo=placebo, mixes=tuple(self._mixes(run)))

    def _paper(self, run: _Run) -> PaperFigure:
        columns = np.stack([run.values, run.on(POST)], axis=1)
        drawn = bootstrap_means(columns, **self._resampling)
        means = []
        for values, means_drawn in zip(columns.T, drawn.T, strict=True):
            means.append(mean_of(values, means_drawn, self._resampling["clusters"]))
        full, post = means
        if full.mean is None or post.mean is None:
            return PaperFigure(full, post, None, None, None)
        low = high = None
        if full.low is not None and post.low is not None:
            low, high = interval(drawn[:, 0] - drawn[:, 1]) or (None, None)
        return PaperFigure(full, post, full.mean - post.mean, low, high)

    def _controls(self, run: _Run) -> list[_Run]:
        """The runs of other models with an earlier cutoff, asked the same way."""
        controls = []
        for other in self.runs:
            if run.cutoff is None or other.cutoff is None:
                continue
            is_earlier = other.cutoff.day < run.cutoff.day
            is_other = other.info.model != run.info.model
            if is_earlier and is_other and run.is_asked_as(other):
                controls.append(other)
        return controls

    def _beyond(self, run: _Run, controls: Sequence[_Run]) -> Effect | None:
        """The run's own cells, and of the controls those that they cannot have seen."""
        columns = [run.on(PRE, POST)]
        columns += [control.on(POST) for control in controls]
        cells = np.stack(columns, axis=1)
        seen = np.zeros(cells.shape, dtype=np.bool_)
        seen[:, 0] = run.sides == PRE
        return seen_effect(cells, seen, **self._resampling)

    def pooled(self) -> Effect | None:
        """One effect over all models whose cutoff is known, asked closed-book with the rewritten cases; of several
        such runs of a model the first counts."""
        first: dict[str, _Run] = {}
        for run in self.runs:
            if run.cutoff and not run.info.raw and not run.info.open_book:
                first.setdefault(run.info.model, run)
        if not first:
            return None
        cells = np.stack([run.on(PRE, POST) for run in first.values()], axis=1)
        seen = np.stack([run.sides == PRE for run in first.values()], axis=1)
        return seen_effect(cells, seen, **self._resampling)

    def _placebo(self, run: _Run, cutoff: Cutoff, own_drop: float) -> PlaceboTable:
        days, months = [], set[int]()
        for case in self._cases:
            day = _day(case)
            days.append(0 if day is None else day.toordinal())
            if day is not None:
                months.add(_month_end(day).toordinal())
        dates = sorted(months - {_month_end(cutoff.day).toordinal()})
        drops = placebos(run.values, run.sides, np.array(days), dates, least=FEW)
        at_least = sum(placebo.difference >= own_drop for placebo in drops)
        return PlaceboTable(tuple(drops), at_least)

    def _mixes(self, run: _Run) -> Iterator[Mix]:
        ways = {
            "specialty": [case.specialty or "unknown" for case in self._cases],
            "source": [case.source or "unknown" for case in self._cases],
        }
        difficulty = self._difficulty(run)
        if difficulty is not None:
            all_three = []
            for specialty, source, third in zip(
                *ways.values(), difficulty, strict=True
            ):
                # A case that no other model was scored on has no difficulty, and no stratum.
                crossed = " · ".join([specialty, source, third])
                all_three.append(crossed if third else "")
            ways |= {"difficulty": difficulty, "all three": all_three}
        for by, names in ways.items():
            strata = sorted(set(names) - {""})
            codes = np.searchsorted(strata, names)
            codes[np.array(names) == ""] = -1
            adjusted = adjusted_drop(
                run.values, run.sides, codes, len(strata), **self._resampling
            )
            yield Mix(by, adjusted, tuple(strata))

    def _difficulty(self, run: _Run) -> list[str] | None:
        """Each case's third by how the other models did on it, each against its own mean; "" where none was asked.

        None where no other model was scored: a model's own score is no measure of a case.
        """
        others = []
        for other in self.runs:
            if other.info.model != run.info.model:
                others.append(other.values)
        rest = np.array(others).reshape(len(others), len(self._cases)).T
        known = ~np.isnan(rest)
        if not known.any():
            return None
        level = np.nansum(rest, axis=0) / np.maximum(known.sum(axis=0), 1)
        count = known.sum(axis=1)
        above = np.where(known, rest - level, 0.0).sum(axis=1)
        asked = (count > 0) & ~np.isnan(run.values)
        ease = np.where(asked, above / np.maximum(count, 1), np.nan)
        names = np.array(["hard", "middling", "easy", ""])
        return [str(name) for name in names[terciles(ease)]]

    def arms(self) -> Iterator[ArmDrop]:
        """Every run in the threads' own words against each other run of its model that was asked the same way."""
        for raw in self.runs:
            if not raw.info.raw or raw.cutoff is None:
                continue
            for other in self.runs:
                if _is_rewritten_twin(raw.info, other.info):
                    gap = raw.values - other.values
                    figures = drop(gap, raw.sides, **self._resampling)
                    yield ArmDrop(raw.info.model, raw.label, other.label, figures)


def _is_rewritten_twin(raw: RunInfo, other: RunInfo) -> bool:
    """Whether a run asked the rewritten cases as another asked the threads' own words."""
    # Runs from before arms were named have a template with that name.
    same_template = raw.template.name == RAW or raw.template == other.template
    same_book = other.open_book is raw.open_book
    return other.model == raw.model and not other.raw and same_book and same_template


def _day(case: EvaluationCase) -> date | None:
    for text in (case.post_time[:10], f"{case.month}-01"):
        with suppress(ValueError):
            return date.fromisoformat(text)
    return None


def _month_end(day: date) -> date:
    return day.replace(day=calendar.monthrange(day.year, day.month)[1])
