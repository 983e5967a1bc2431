"""All weeks of the site on one scale: models of the boards that one grader graded with one template."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from medlive.evaluation.scoring.ability import AbilityTable, abilities
from medlive.evaluation.scoring.metrics import CaseScore
from medlive.site.hard import HardWeek, HardWeeks
from medlive.site.model import BoardEntry
from medlive.statistics.bootstrap import Standing
from medlive.statistics.items import LEAST_MODELS, hardest
from medlive.statistics.scale import Ability


@dataclass(frozen=True, slots=True)
class SharedScale:
    """Models over several boards."""

    title: str
    boards: tuple[str, ...]
    """Their slugs."""
    table: AbilityTable
    scores: Mapping[str, Mapping[str, float]]
    """Model → case id → score."""
    hard: dict[str, HardWeek]
    """Week → its hard cases."""

    @property
    def abilities(self) -> dict[str, Ability]:
        """Model → what it would score on all cases of all weeks."""
        return {ability.name: ability for ability in self.table.scale.abilities}

    @property
    def standings(self) -> dict[str, Standing]:
        """Model → its place; without those off the scale."""
        return {standing.name: standing for standing in self.table.scale.standings}

    def hard_mean(self, model: str) -> float | None:
        """A model's mean on the hard cases of the weeks that it answered; None where it answered none."""
        own_scores = self.scores[model]
        hard_scores = []
        for week in self.hard.values():
            for case in week.cases_for(model):
                if case in own_scores:
                    hard_scores.append(own_scores[case])
        return fmean(hard_scores) if hard_scores else None


def shared_scales(
    boards: Iterable[BoardEntry],
    fixed: HardWeeks | None = None,
) -> list[SharedScale]:
    """One scale for each grader and template.

    Args:
        boards: The newest snapshot first.
        fixed: The hard cases of weeks for which they were chosen before; those of further weeks are chosen now.
    """
    by_title: dict[str, list[BoardEntry]] = {}
    for board in boards:
        title = f"{board.table.metric.value} · {board.conditions}"
        by_title.setdefault(title, []).append(board)
    scales = []
    for title, group in by_title.items():
        scored = _scored(group)
        names = sorted(scored)
        table = abilities(
            names,
            [list(scored[name].values()) for name in names],
        )
        scores: dict[str, dict[str, float]] = {name: {} for name in names}
        for name in names:
            for case_id, case in scored[name].items():
                if case.score is not None:
                    scores[name][case_id] = case.score
        shared = SharedScale(
            title=title,
            boards=tuple(board.slug for board in group),
            table=table,
            scores=scores,
            hard=choose_hard(table, scores) | (fixed or {}).get(title, {}),
        )
        scales.append(shared)
    return scales


def _scored(boards: Sequence[BoardEntry]) -> dict[str, dict[str, CaseScore]]:
    """Model → case id → score. A case that several snapshots hold counts once, as the newest has it."""
    scored: dict[str, dict[str, CaseScore]] = {}
    for board in boards:
        for model in board.models:
            own = scored.setdefault(model.name, {})
            for case in model.score.cases:
                own.setdefault(case.case_id, case)
    return scored


def hard_weeks(scales: Iterable[SharedScale], fixed: HardWeeks) -> HardWeeks:
    """What is fixed from now on: what was, and the weeks that were chosen now."""
    weeks = dict(fixed)
    for shared in scales:
        if shared.hard:
            weeks[shared.title] = shared.hard
    return weeks


def choose_hard(
    table: AbilityTable,
    scores: Mapping[str, Mapping[str, float]],
) -> dict[str, HardWeek]:
    """The hard cases of each week that enough models answered: `LEAST_MODELS` beside the one that is left out."""
    on_scale = {}
    for ability in table.scale.abilities:
        if ability.value is not None:
            on_scale[ability.name] = ability.value
    weeks: dict[str, list[str]] = {}
    for item in table.cases:
        if week := item.case.first_release:
            weeks.setdefault(week, []).append(item.case.case_id)
    chosen = {}
    for week, cases in weeks.items():
        models = [name for name in on_scale if scores[name].keys() & set(cases)]
        if len(models) <= LEAST_MODELS:
            continue
        ids = np.array(cases)
        levels = np.array([on_scale[name] for name in models])
        values = np.empty((len(cases), len(models)))
        for column, name in zip(values.T, models, strict=True):
            column[:] = [scores[name].get(case, np.nan) for case in cases]
        by_others = {}
        for place, name in enumerate(models):
            others = np.delete(values, place, axis=1)
            hard = hardest(others, np.delete(levels, place))
            by_others[name] = tuple(ids[hard].tolist())
        everybody = tuple(ids[hardest(values, levels)].tolist())
        chosen[week] = HardWeek(everybody, by_others)
    return chosen
