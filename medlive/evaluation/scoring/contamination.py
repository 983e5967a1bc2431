"""Contamination: how much a model scores better on cases that it may have seen (docs/contamination.md).

Open-book runs are compared with closed-book runs on what neither can have seen.
"""

import calendar
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np

from medlive.evaluation.model import EvaluationCase, cluster_numbers
from medlive.evaluation.runs.folder import RAW
from medlive.evaluation.scoring.estimates import FEW
from medlive.evaluation.scoring.fresh import PERMUTATIONS, sides_of
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.refusals import Objection
from medlive.evaluation.scoring.score import ScoreTable, score_matrix
from medlive.llm.registry import EMPTY, Basis, Cutoff, Registry
from medlive.statistics.bootstrap import (
    Comparison,
    Floats,
    bootstrap_means,
    compare,
    holm_of_known,
    interval,
)
from medlive.statistics.contamination import (
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


def contamination(
    table: ScoreTable, registry: Registry, *, permutations: int = PERMUTATIONS
) -> ContaminationTable:
    """The contamination analyses of a score table's models, with its metric, draws and seed."""
    study = _Study(table, registry, permutations)
    by_model = [study.model(place) for place in range(len(table.models))]
    corrected = holm_of_known(
        None if model.drop is None else model.drop.p for model in by_model
    )
    by_model = [
        replace(model, p_holm=p) for model, p in zip(by_model, corrected, strict=True)
    ]
    unknown = [undated.label for undated in by_model if undated.cutoff is None]
    warnings = list(table.warnings)
    if unknown:
        warnings.append(
            f"{', '.join(unknown)}: cutoff unknown ({registry.origin} has none): no drop is computed"
        )
    return ContaminationTable(
        metric=table.metric,
        draws=table.draws,
        seed=table.seed,
        permutations=permutations,
        models=tuple(by_model),
        pooled=study.pooled(),
        arms=tuple(study.arms()),
        registry=registry.origin,
        warnings=tuple(warnings),
        overridden=table.overridden,
    )


class _Study:
    """The cases, models and sides of a table."""

    def __init__(
        self, table: ScoreTable, registry: Registry, permutations: int
    ) -> None:
        self._permutations = permutations
        self._labels = [model.label for model in table.models]
        self._infos = [model.run.run.info for model in table.models]
        self._cases, self._values = score_matrix(table)
        clusters = cluster_numbers(self._cases)
        self._how: dict[str, Any] = {
            "draws": table.draws,
            "seed": table.seed,
            "clusters": clusters,
        }
        self._cutoffs = [registry.cutoff(info.model) for info in self._infos]
        self._sides = np.stack(
            [sides_of(cutoff, self._cases) for cutoff in self._cutoffs], axis=1
        )
        days: list[int] = []
        months: set[int] = set()
        for case in self._cases:
            day = _day(case)
            days.append(0 if day is None else day.toordinal())
            if day is not None:
                months.add(_month_end(day).toordinal())
        self._days = np.array(days, dtype=np.int_)
        self._months = sorted(months)

    def model(self, column: int) -> ModelContamination:
        label, cutoff = self._labels[column], self._cutoffs[column]
        values, sides = self._values[:, column], self._sides[:, column]
        scored = ~np.isnan(values)
        if cutoff is None:
            return ModelContamination(
                label=label,
                cutoff=None,
                scored=int(scored.sum()),
                notes=("the cutoff is unknown",),
            )
        sizes = [int((scored & (sides == side)).sum()) for side in (0, 1)]
        enough = min(sizes) >= FEW
        permutations = self._permutations if enough else 0
        own_drop = drop(values, sides, permutations=permutations, **self._how)
        undated = int((scored & (sides < 0)).sum())
        effect, against = self._did(column)
        notes = []
        if cutoff.basis is Basis.RELEASED:
            notes.append(
                f"the cutoff is undisclosed: split by the release date, {cutoff.text}"
            )
        if not enough:
            notes.append(
                f"fewer than {FEW} cases on a side: no interval and no p-value is computed"
            )
        if undated:
            notes.append(f"{undated} cases without a date are on neither side")
        if not against:
            notes.append(
                "no other model has an earlier cutoff: no comparison of the drop"
            )
        return ModelContamination(
            label=label,
            cutoff=cutoff,
            scored=int(scored.sum()),
            undated=undated,
            drop=own_drop,
            paper=self._paper(values, sides),
            did=effect,
            did_against=against,
            placebo=self._placebo(values, sides, cutoff, own_drop),
            mixes=tuple(self._mixes(column)) if own_drop.difference is not None else (),
            notes=tuple(notes),
        )

    def _paper(self, values: Floats, sides: Sides) -> PaperFigure:
        both = np.stack([values, np.where(sides == 1, values, np.nan)], axis=1)
        drawn = bootstrap_means(both, **self._how)
        full, post = (
            mean_of(both[:, k], drawn[:, k], self._how["clusters"]) for k in (0, 1)
        )
        if full.mean is None or post.mean is None:
            return PaperFigure(full, post, None, None, None)
        low = high = None
        if full.low is not None and post.low is not None:
            low, high = interval(drawn[:, 0] - drawn[:, 1]) or (None, None)
        return PaperFigure(full, post, full.mean - post.mean, low, high)

    def _did(self, column: int) -> tuple[Effect | None, tuple[str, ...]]:
        """The model's own cells, and of models with an earlier cutoff, asked the same way, those that they cannot
        have seen."""
        others = self._with_earlier_cutoff(column)
        if not others:
            return None, ()
        own = np.where(self._sides[:, column] >= 0, self._values[:, column], np.nan)
        rest = np.where(self._sides[:, others] == 1, self._values[:, others], np.nan)
        cells = np.concatenate([own[:, None], rest], axis=1)
        seen = np.zeros(cells.shape, dtype=np.bool_)
        seen[:, 0] = self._sides[:, column] == 0
        effect = seen_effect(cells, seen, **self._how)
        return effect, tuple(self._labels[place] for place in others)

    def _with_earlier_cutoff(self, column: int) -> list[int]:
        """The runs of other models with an earlier cutoff, asked the same way."""
        info, cutoff = self._infos[column], self._cutoffs[column]
        others = []
        for place, other in enumerate(self._infos):
            own = self._cutoffs[place]
            if own is None or cutoff is None or own.day >= cutoff.day:
                continue
            alike = (other.raw, other.open_book) == (info.raw, info.open_book)
            if alike and other.model != info.model:
                others.append(place)
        return others

    def pooled(self) -> Effect | None:
        """One effect over all models whose cutoff is known, asked closed-book with the rewritten cases; of several
        such runs of a model the first counts."""
        first: dict[str, int] = {}
        for place, info in enumerate(self._infos):
            if self._cutoffs[place] is not None and not info.raw and not info.open_book:
                first.setdefault(info.model, place)
        columns = list(first.values())
        cells = np.where(self._sides[:, columns] >= 0, self._values[:, columns], np.nan)
        return seen_effect(cells, self._sides[:, columns] == 0, **self._how)

    def _placebo(
        self, values: Floats, sides: Sides, cutoff: Cutoff, own_drop: Drop
    ) -> PlaceboTable | None:
        if own_drop.difference is None:
            return None
        own = _month_end(cutoff.day).toordinal()
        dates = [day for day in self._months if day != own]
        drops = placebos(values, sides, self._days, dates, least=FEW)
        return PlaceboTable(
            tuple(drops), sum(p.difference >= own_drop.difference for p in drops)
        )

    def _mixes(self, column: int) -> Iterator[Mix]:
        ways = {
            "specialty": [case.specialty or "unknown" for case in self._cases],
            "source": [case.source or "unknown" for case in self._cases],
        }
        if (difficulty := self._difficulty(column)) is not None:
            ways["difficulty"] = difficulty
            all_three = []
            for of_case in zip(*ways.values(), strict=True):
                # A case that no other model was scored on has no difficulty, and no stratum.
                all_three.append(" · ".join(of_case) if of_case[2] else "")
            ways["all three"] = all_three
        values, sides = self._values[:, column], self._sides[:, column]
        for by, names in ways.items():
            strata = sorted(set(names) - {""})
            codes = np.searchsorted(strata, names)
            codes[np.array(names) == ""] = -1
            adjusted = adjusted_drop(values, sides, codes, len(strata), **self._how)
            yield Mix(by, adjusted, tuple(strata))

    def _difficulty(self, column: int) -> list[str] | None:
        """Each case's third by how the other models did on it, each against its own mean; "" where none was asked.

        None where no other model was scored: a model's own score is no measure of a case.
        """
        own = self._infos[column].model
        others = [i for i, info in enumerate(self._infos) if info.model != own]
        rest = self._values[:, others]
        known = ~np.isnan(rest)
        if not known.any():
            return None
        level = np.nansum(rest, axis=0) / np.maximum(known.sum(axis=0), 1)
        n = known.sum(axis=1)
        ease = np.where(known, rest - level, 0.0).sum(axis=1) / np.maximum(n, 1)
        asked = (n > 0) & ~np.isnan(self._values[:, column])
        names = np.array(["hard", "middling", "easy", ""])
        return list(map(str, names[terciles(np.where(asked, ease, np.nan))]))

    def arms(self) -> Iterator[ArmDrop]:
        """Every run in the threads' own words against each other run of its model that was asked the same way."""
        for raw, info in enumerate(self._infos):
            if not info.raw or self._cutoffs[raw] is None:
                continue
            for other, other_info in enumerate(self._infos):
                # Runs from before arms were named have a template with that name.
                same_template = (
                    info.template.name == RAW or info.template == other_info.template
                )
                if (
                    other_info.model == info.model
                    and not other_info.raw
                    and other_info.open_book is info.open_book
                    and same_template
                ):
                    gap = self._values[:, raw] - self._values[:, other]
                    figures = drop(gap, self._sides[:, raw], **self._how)
                    yield ArmDrop(
                        info.model, self._labels[raw], self._labels[other], figures
                    )


def _day(case: EvaluationCase) -> date | None:
    for text in (case.post_time[:10], f"{case.month}-01"):
        with suppress(ValueError):
            return date.fromisoformat(text)
    return None


def _month_end(day: date) -> date:
    return day.replace(day=calendar.monthrange(day.year, day.month)[1])


@dataclass(frozen=True, slots=True)
class BookArm:
    """One model with and without evidence."""

    model: str
    pair: Comparison
    """The open run against the closed, on the cases that both are scored on: those after the cutoff, where it is
    known."""
    closed_template: str
    open_template: str
    cutoff: Cutoff | None
    baseline: Mean
    """Closed book on all of its cases."""
    closed_score: Mean
    open_score: Mean
    p: float | None
    """The pair's; None with fewer than 30 cases."""
    p_holm: float | None = None
    """Corrected for the number of arms that have one."""

    @property
    def few(self) -> bool:
        """Whether n is too small to be read as a result."""
        return self.pair.n < FEW


def score_arms(table: ScoreTable, registry: Registry = EMPTY) -> tuple[BookArm, ...]:
    """Every open-book run of the table against each closed-book run of its model, in the table's order.

    A run in the threads' own words is compared with no other kind: it was asked another text.
    """
    infos = [model.run.run.info for model in table.models]
    arms = []
    for opened, info in enumerate(infos):
        if not info.open_book:
            continue
        cutoff = registry.cutoff(info.model)
        for closed, other in enumerate(infos):
            alike = (other.model, other.raw) == (info.model, info.raw)
            if alike and not other.open_book:
                arms.append(_arm(table, opened, closed, cutoff))
    corrected = holm_of_known(arm.p for arm in arms)
    return tuple(replace(arm, p_holm=p) for arm, p in zip(arms, corrected, strict=True))


def _arm(table: ScoreTable, opened: int, closed: int, cutoff: Cutoff | None) -> BookArm:
    cases, scores = score_matrix(table)
    columns = (scores[:, closed], scores[:, opened])
    both = ((sides_of(cutoff, cases) == 1) | (cutoff is None)) & ~np.isnan(
        columns[0] + columns[1]
    )
    first, second = (np.where(both, column, np.nan) for column in columns)
    how: dict[str, Any] = {
        "draws": table.draws,
        "seed": table.seed,
        "clusters": cluster_numbers(cases),
    }
    of_open, of_closed = table.models[opened], table.models[closed]
    labels = [of_open.label, of_closed.label]
    (pair,) = compare(labels, np.stack([second, first], axis=1), **how)
    return BookArm(
        model=of_open.run.run.info.model,
        pair=pair,
        closed_template=of_closed.run.run.info.template.name,
        open_template=of_open.run.run.info.template.name,
        cutoff=cutoff,
        baseline=_mean(columns[0], table, how),
        closed_score=_mean(first, table, how),
        open_score=_mean(second, table, how),
        p=pair.p if pair.n >= FEW else None,
    )


def _mean(values: Floats, table: ScoreTable, how: Mapping[str, Any]) -> Mean:
    drawn = bootstrap_means(values[:, None], **how)[:, 0]
    estimate = mean_of(values, drawn, how["clusters"])
    if table.metric.clips_cases or estimate.mean is None:
        return estimate
    ends = (
        None if x is None else min(1.0, max(0.0, x))
        for x in (estimate.mean, estimate.low, estimate.high)
    )
    return Mean(estimate.n, *ends)
