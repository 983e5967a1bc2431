"""Put models that answered different cases on one scale (`abilities`), and link a new week with it (`plan_link`).

The scale says how easy each week was, and how well each case and criterion separates models (docs/scale.md).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from medlive.errors import UsageError
from medlive.evaluation.model import (
    EvaluationCase,
    EvaluationCriterion,
)
from medlive.statistics.bootstrap import Draws
from medlive.statistics.intervals import Floats, known_means
from medlive.statistics.items import Item, analyse_items
from medlive.statistics.planning import Anchor, kept_cases_needed, rank_anchors
from medlive.statistics.scale import Scale, scale

from .estimates import ScoreGrid, rows_by
from .metrics import Metric, Scored
from .score import ScoreTable

NO_WEEK = "unknown"


@dataclass(frozen=True)
class ModelWeek:
    """One model in one week: what it scored, and what the scale expects of it there."""

    model: str
    n: int
    score: float
    expected: float
    low: float
    high: float
    """`low` and `high`: the 95 % interval of the mean score if the model is as able as over all weeks."""

    @property
    def beyond(self) -> bool:
        """Whether the score is outside the interval: then the model changed, and not the week."""
        return not self.low <= self.score <= self.high


@dataclass(frozen=True)
class ScaleWeek:
    """The cases of one release, named by `first_release`."""

    name: str
    cases: int
    easiness: float | None
    """The mean score that the scale expects of all its models; None: no model on the scale answered any case."""
    models: tuple[ModelWeek, ...]


@dataclass(frozen=True)
class CaseItem:
    """A case, or one criterion of it, with its item analysis: how well it separates models."""

    case: EvaluationCase
    criterion: EvaluationCriterion | None
    figures: Item


@dataclass(frozen=True)
class AbilityTable:
    """Models on one scale, and the cases that put them there."""

    scale: Scale
    scores: Floats
    """(cases x models) in [0, 1], NaN where a model has none; cases in the order of `cases`."""
    good: Floats
    """(criteria x models): 1 for a criterion met or a penalty not met, else 0; NaN for no verdict."""
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
    return abilities(table.scored, draws=table.draws, seed=table.seed)


def plan_link(
    scores: ScoreTable,
    *,
    cases: int,
    models: int,
    error: float,
) -> tuple[list[Anchor], int | None]:
    """Which models, or how many old cases, would put a new week on the scale of a score table (docs/scale.md).

    Args:
        scores: The table of the weeks before.
        cases: How many cases the new week has.
        models: New models that will answer it.
        error: Wanted standard error of the week's difficulty, on the scale of scores from 0 to 1.

    Returns:
        Models to ask again, the most informative first; and, if none is asked again, how many old cases to ask the new
        week's models too: None where no number is enough.

    Raises:
        UsageError: If the models are on no scale.
    """
    table = abilities_of(scores)
    if table.scale.why:
        raise UsageError(
            table.scale.why, hint="name graded runs of models with common cases"
        )
    kept = kept_cases_needed(
        table.scale,
        table.scores,
        cases,
        models=models,
        error=error,
    )
    return rank_anchors(table.scale, table.scores, cases), kept


def abilities(
    scored: Scored,
    **how: Unpack[Draws],
) -> AbilityTable:
    """Put models on one scale by their scores of cases.

    Args:
        scored: Each model's cases; a score of None counts as no answer.
        how: How cases are drawn.
    """
    grid = ScoreGrid(scored, Metric.COMPLETE, **how)
    cases = grid.cases
    scores = np.clip(grid.score, 0.0, 1.0)
    on_scale = scale(grid.labels, scores, **grid.how)
    values = np.array(
        [a.value for a in on_scale.abilities],
        dtype=np.float64,
    )
    levels = np.where(
        np.isnan(values),
        known_means(scores),
        values,
    )
    case_items = []
    for case, figures in zip(cases, analyse_items(scores, levels), strict=True):
        case_items.append(CaseItem(case, None, figures))
    criteria = [(case, criterion) for case in cases for criterion in case.criteria]
    good = _good_verdicts(criteria, scored)
    points = [abs(criterion.points) for _, criterion in criteria]
    shares = np.array(points, dtype=np.float64)
    shares /= max(shares.sum(), 1.0)
    criterion_items = []
    about = analyse_items(good, levels, shares)
    for (case, criterion), figures in zip(criteria, about, strict=True):
        criterion_items.append(CaseItem(case, criterion, figures))
    return AbilityTable(
        scale=on_scale,
        scores=scores,
        good=good,
        weeks=tuple(_weeks(cases, scores, on_scale)),
        cases=tuple(case_items),
        criteria=tuple(criterion_items),
    )


def suspects_of(
    scores: ScoreTable,
) -> Iterator[tuple[CaseItem, list[str], list[str]]]:
    """Each suspect criterion, the clearest first, with the models that did well by it and those that did not.

    A model does well that met the criterion, or kept clear of a penalty; the best models come first.
    """
    table = abilities_of(scores)
    levels = [-(ability.value or 0.0) for ability in table.scale.abilities]
    order = np.argsort(levels, kind="stable")
    labels = np.array(list(scores.scored))[order]
    rows = dict(zip(map(id, table.criteria), table.good[:, order], strict=True))
    for item in table.suspects:
        verdicts = rows[id(item)]
        yield item, labels[verdicts == 1].tolist(), labels[verdicts == 0].tolist()


def _good_verdicts(
    criteria: Sequence[tuple[EvaluationCase, EvaluationCriterion]],
    scored: Scored,
) -> Floats:
    """`AbilityTable.good`: verdicts are matched by the criterion's text too.

    In another run's form of a case the same id may be another criterion's.
    """
    good = np.full(
        (len(criteria), len(scored)),
        np.nan,
    )
    for column, own in enumerate(scored.values()):
        verdicts = {}
        for score in own:
            for criterion in score.case.criteria:
                key = score.case_id, criterion.id, criterion.criterion
                verdicts[key] = score.met.get(criterion.id)
        for row, (case, criterion) in enumerate(criteria):
            met = verdicts.get((case.case_id, criterion.id, criterion.criterion))
            if met is not None:
                good[row, column] = met == (criterion.points > 0)
    return good


def _weeks(
    cases: Sequence[EvaluationCase],
    scores: Floats,
    on_scale: Scale,
) -> Iterator[ScaleWeek]:
    """The weeks of the cases, in order of name; models on the scale that have a score there."""
    for name, rows in rows_by(case.first_release or NO_WEEK for case in cases).items():
        models = []
        for column, ability in enumerate(on_scale.abilities):
            answered = rows[~np.isnan(scores[rows, column])]
            n = len(answered)
            expected = on_scale.expected[answered, column]
            if not n or np.isnan(expected).any():
                continue
            mean = float(expected.mean())
            variance = float(on_scale.variance[answered, column].sum())
            error = 1.96 * variance**0.5 / n
            model = ModelWeek(
                model=ability.name,
                n=n,
                score=float(scores[answered, column].mean()),
                expected=mean,
                low=mean - error,
                high=mean + error,
            )
            models.append(model)
        of_all = on_scale.expected[rows]
        yield ScaleWeek(
            name=name,
            cases=len(rows),
            easiness=None if np.isnan(of_all).all() else float(np.nanmean(of_all)),
            models=tuple(models),
        )
