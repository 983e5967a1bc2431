"""All weeks of the site on one scale: models of the boards that one grader graded with one template."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from medlive.evaluation.scoring.ability import AbilityTable, ModelWeek, abilities
from medlive.evaluation.scoring.metrics import CaseScore
from medlive.site.hard import HardWeek, HardWeeks, may_choose
from medlive.site.model import BoardEntry
from medlive.statistics.bootstrap import Standing
from medlive.statistics.items import hardest
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
    hard: Mapping[str, HardWeek]
    """Week → its hard cases."""

    def ability(self, model: str) -> Ability:
        """What a model would score on all cases of all weeks."""
        return next(a for a in self.table.scale.abilities if a.name == model)

    def standing(self, model: str) -> Standing | None:
        """A model's place; None off the scale."""
        places = (place for place in self.table.scale.standings if place.name == model)
        return next(places, None)

    def hard_scores(self, model: str) -> list[float]:
        """A model's scores on the hard cases of the weeks that it answered."""
        own = self.scores[model]
        asked = (case for week in self.hard.values() for case in week.of(model))
        return [own[case] for case in asked if case in own]

    def hard_mean(self, model: str) -> float | None:
        """Their mean; None where it answered none."""
        scores = self.hard_scores(model)
        return fmean(scores) if scores else None

    @property
    def axis(self) -> list[tuple[str, list[ModelWeek | None]]]:
        """Each model with what it did in each week; None where it has no score."""
        rows = []
        for ability in self.table.scale.abilities:
            own = []
            for week in self.table.weeks:
                places = {place.model: place for place in week.models}
                own.append(places.get(ability.name))
            rows.append((ability.name, own))
        return rows


def shared_scales(
    boards: Iterable[BoardEntry], fixed: HardWeeks | None = None
) -> list[SharedScale]:
    """One scale for each grader and template.

    Args:
        boards: The newest snapshot first.
        fixed: The hard cases of weeks for which they were chosen before; those of further weeks are chosen now.
    """
    alike: dict[tuple[str, ...], list[BoardEntry]] = {}
    for board in boards:
        alike.setdefault(_terms(board), []).append(board)
    scales = []
    for terms, group in alike.items():
        title = " · ".join(filter(None, terms))
        scales.append(_shared(title, group, (fixed or {}).get(title, {})))
    return scales


def hard_weeks(scales: Iterable[SharedScale], fixed: HardWeeks) -> HardWeeks:
    """What is fixed from now on: what was, and the weeks that were chosen now."""
    return {**fixed, **{shared.title: shared.hard for shared in scales if shared.hard}}


def _terms(board: BoardEntry) -> tuple[str, ...]:
    run = board.models[0].score.run
    grader, info = run.grader, run.run.info
    by = "nobody" if grader is None else f"{grader.model} ({grader.mode} mode)"
    snippets = ""
    if info.evidence is not None:
        snippets = f"{info.evidence.top_k} snippets a question"
    return board.table.metric.value, f"graded by {by}", info.template.name, snippets


def _shared(
    title: str, boards: Sequence[BoardEntry], fixed: Mapping[str, HardWeek]
) -> SharedScale:
    scored: dict[str, dict[str, CaseScore]] = {}
    for board in boards:
        for model in board.models:
            own = scored.setdefault(model.name, {})
            # A case that several snapshots hold counts once, as the newest has it.
            for case in model.score.cases:
                own.setdefault(case.case.case_id, case)
    names = sorted(scored)
    table = abilities(names, [list(scored[name].values()) for name in names])
    scores = {}
    for name in names:
        own_scores = {}
        for case_id, case in scored[name].items():
            if case.score is not None:
                own_scores[case_id] = case.score
        scores[name] = own_scores
    return SharedScale(
        title=title,
        boards=tuple(board.slug for board in boards),
        table=table,
        scores=scores,
        hard={**_chosen(table, scores), **fixed},
    )


def _chosen(
    table: AbilityTable, scores: Mapping[str, Mapping[str, float]]
) -> dict[str, HardWeek]:
    """The hard cases of each week that enough models answered."""
    on_scale = {a.name: a.value for a in table.scale.abilities if a.value is not None}
    weeks: dict[str, list[str]] = {}
    for item in table.cases:
        if week := item.case.first_release:
            weeks.setdefault(week, []).append(item.case.case_id)
    chosen = {}
    for week, cases in weeks.items():
        models = [
            name for name in on_scale if not scores[name].keys().isdisjoint(cases)
        ]
        if not may_choose(models):
            continue
        values = [[scores[name].get(case, np.nan) for name in models] for case in cases]
        own, levels = np.array(values), np.array([on_scale[name] for name in models])
        by_others = {}
        for column, name in enumerate(models):
            others = np.delete(own, column, axis=1), np.delete(levels, column)
            by_others[name] = tuple(cases[place] for place in hardest(*others))
        everybody = tuple(cases[place] for place in hardest(own, levels))
        chosen[week] = HardWeek(everybody, by_others)
    return chosen
