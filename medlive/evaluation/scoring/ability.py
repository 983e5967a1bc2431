"""Models that answered differing cases on one scale, with their weeks and what each case and criterion tells."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from medlive.errors import UsageError
from medlive.evaluation.model import (
    EvaluationCase,
    EvaluationCriterion,
    cluster_numbers,
)
from medlive.evaluation.scoring.estimates import cases_by_id, matrix
from medlive.evaluation.scoring.metrics import (
    CaseScore,
    Scored,
    Verdicts,
    shared_verdicts,
)
from medlive.evaluation.scoring.score import ScoreTable
from medlive.statistics.anchors import Anchor, kept_cases_needed, rank_anchors
from medlive.statistics.bootstrap import Floats
from medlive.statistics.items import Item, analyse_items
from medlive.statistics.scale import Scale, scale

NO_WEEK: Final = "unknown"


@dataclass(frozen=True, slots=True)
class ModelWeek:
    """One model in one week: what it scored, and what the scale expects of it there."""

    model: str
    week: str
    n: int
    score: float
    expected: float
    low: float
    high: float
    """The 95 % interval of a mean score where the model is as able as in the whole window."""

    @property
    def beyond(self) -> bool:
        """Whether the score is outside: the change is the model's and not the week's."""
        return not self.low <= self.score <= self.high


@dataclass(frozen=True, slots=True)
class ScaleWeek:
    """The cases of one release."""

    name: str
    cases: int
    easiness: float | None
    """The mean score that is expected of all models on the scale; None: no model on the scale answered any."""
    models: tuple[ModelWeek, ...]


@dataclass(frozen=True, slots=True)
class CaseItem:
    """A case, or one criterion of it, with what it tells of models."""

    case: EvaluationCase
    criterion: EvaluationCriterion | None
    figures: Item


@dataclass(frozen=True, slots=True)
class AbilityTable:
    """Models on one scale, and the cases that put them there."""

    scale: Scale
    weeks: tuple[ScaleWeek, ...]
    cases: tuple[CaseItem, ...]
    criteria: tuple[CaseItem, ...]

    @property
    def suspects(self) -> list[CaseItem]:
        """Criteria that better models miss more often than worse ones, the clearest first."""
        suspects = [item for item in self.criteria if item.figures.suspect]
        return sorted(
            suspects,
            key=lambda item: item.figures.p or 0.0,
        )

    @property
    def silent(self) -> int:
        """Cases on which no two models differ: they tell nothing."""
        return sum(
            item.figures.models > 1 and not item.figures.deciding for item in self.cases
        )


def abilities_of(table: ScoreTable) -> AbilityTable:
    """The models of a score table on one scale, in its order and with its draws."""
    return abilities(
        [model.label for model in table.models],
        [model.cases for model in table.models],
        draws=table.draws,
        seed=table.seed,
    )


def plan_link(
    table: ScoreTable,
    *,
    cases: int,
    models: int,
    error: float,
) -> tuple[list[Anchor], int | None]:
    """Say what links a new week with those of a score table (docs/scale.md).

    Args:
        table: Of the weeks before.
        cases: Of the new week.
        models: New models that will answer it.
        error: Wanted standard error of the week's difficulty, on the scale of scores from 0 to 1.

    Returns:
        Models to ask again, from the one that tells most down; and how many old cases to ask the new week's models
        too, if no model is asked again: None where no number is enough.

    Raises:
        UsageError: If the models are on no scale.
    """
    scores = np.clip(
        matrix([model.cases for model in table.models]),
        0.0,
        1.0,
    )
    on_scale = abilities_of(table).scale
    if on_scale.why:
        raise UsageError(
            on_scale.why, hint="name graded runs of models with common cases"
        )
    kept = kept_cases_needed(
        on_scale,
        scores,
        cases,
        models=models,
        error=error,
    )
    return rank_anchors(on_scale, scores, cases), kept


def abilities(
    labels: Sequence[str],
    scored: Scored,
    *,
    draws: int = 1000,
    seed: int = 0,
) -> AbilityTable:
    """Put models on one scale by their scores of cases.

    Args:
        labels: Models.
        scored: Each model's cases, no case twice; a score of None counts as no answer.
        draws: Bootstrap draws of threads.
        seed: Of the draws.
    """
    cases = list(cases_by_id(scored).values())
    scores = np.clip(matrix(scored), 0.0, 1.0)
    on_scale = scale(
        labels,
        scores,
        clusters=cluster_numbers(cases),
        draws=draws,
        seed=seed,
    )
    values = np.array(
        [a.value for a in on_scale.abilities],
        dtype=np.float64,
    )
    known = (~np.isnan(scores)).sum(axis=0)
    totals = np.nansum(scores, axis=0)
    means = np.where(
        known,
        totals / np.maximum(known, 1),
        np.nan,
    )
    levels = np.where(
        np.isnan(values),
        means,
        values,
    )
    case_items = []
    for case, figures in zip(cases, analyse_items(scores, levels), strict=True):
        case_items.append(CaseItem(case, None, figures))
    criteria, met = _criteria(cases, scored)
    points = np.array(
        [criterion.points for _, criterion in criteria],
        dtype=float,
    )
    shares = np.abs(points)
    shares /= max(shares.sum(), 1.0)
    criterion_items = []
    about = analyse_items(met, levels, shares)
    for (case, criterion), figures in zip(criteria, about, strict=True):
        criterion_items.append(CaseItem(case, criterion, figures))
    return AbilityTable(
        scale=on_scale,
        weeks=_weeks(labels, cases, scores, on_scale),
        cases=tuple(case_items),
        criteria=tuple(criterion_items),
    )


def suspects_of(
    table: ScoreTable,
) -> Iterator[tuple[CaseItem, list[str], list[str]]]:
    """The suspects of a score table, the clearest first, with the models that did well by each and those that did not.

    A model does well that met the criterion, or kept clear of a penalty; the best models come first.
    """
    on_scale = abilities_of(table)
    values = {a.name: a.value or 0.0 for a in on_scale.scale.abilities}
    order = sorted(
        table.models,
        key=lambda model: -values[model.label],
    )
    answered = {}
    for model in order:
        answered[model.label] = {case.case_id: case for case in model.cases}
    for item in on_scale.suspects:
        assert item.criterion is not None
        good: list[str] = []
        bad: list[str] = []
        for label, by_case in answered.items():
            verdicts = _verdicts(item.case, by_case.get(item.case.case_id))
            met = verdicts.get(item.criterion.id)
            if met is not None:
                is_good = met == (item.criterion.points > 0)
                (good if is_good else bad).append(label)
        yield item, good, bad


def _criteria(
    cases: Sequence[EvaluationCase],
    scored: Scored,
) -> tuple[list[tuple[EvaluationCase, EvaluationCriterion]], Floats]:
    """Every criterion with its case, and (criteria x models): 1 for met, for not met where that is good, else 0."""
    criteria = [(case, criterion) for case in cases for criterion in case.criteria]
    good = np.full(
        (len(criteria), len(scored)),
        np.nan,
    )
    for column, own in enumerate(scored):
        by_id = {case.case_id: case for case in own}
        row = 0
        for case in cases:
            verdicts = _verdicts(case, by_id.get(case.case_id))
            for criterion in case.criteria:
                met = verdicts.get(criterion.id)
                if met is not None:
                    good[row, column] = met == (criterion.points > 0)
                row += 1
    return criteria, good


def _verdicts(case: EvaluationCase, scored: CaseScore | None) -> Verdicts:
    """A model's verdicts on the criteria of a case."""
    if scored is None:
        return {}
    return shared_verdicts(case, scored.case, scored.met)


def _weeks(
    labels: Sequence[str],
    cases: Sequence[EvaluationCase],
    scores: Floats,
    on_scale: Scale,
) -> tuple[ScaleWeek, ...]:
    names = np.array([case.first_release or NO_WEEK for case in cases])
    weeks = []
    for name in np.unique(names):
        rows = np.flatnonzero(names == name)
        models = []
        for column, label in enumerate(labels):
            answered = rows[~np.isnan(scores[rows, column])]
            n = len(answered)
            expected = on_scale.expected[answered, column]
            if not n or np.isnan(expected).any():
                continue
            mean = float(expected.mean())
            variance = float(on_scale.variance[answered, column].sum())
            error = 1.96 * variance**0.5 / n
            model = ModelWeek(
                model=label,
                week=str(name),
                n=n,
                score=float(scores[answered, column].mean()),
                expected=mean,
                low=mean - error,
                high=mean + error,
            )
            models.append(model)
        of_all = on_scale.expected[rows]
        week = ScaleWeek(
            name=str(name),
            cases=len(rows),
            easiness=None if np.isnan(of_all).all() else float(np.nanmean(of_all)),
            models=tuple(models),
        )
        weeks.append(week)
    return tuple(weeks)
