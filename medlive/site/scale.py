"""All weeks of the site on one scale: models of the boards that one grader graded with one template."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from medlive.evaluation.scoring.ability import AbilityTable, ModelWeek, abilities
from medlive.evaluation.scoring.metrics import CaseScore
from medlive.site.model import BoardEntry
from medlive.statistics.bootstrap import Standing


@dataclass(frozen=True, slots=True)
class SharedScale:
    """Models over several boards."""

    title: str
    boards: int
    table: AbilityTable

    def standing(self, model: str) -> Standing | None:
        """A model's place; None off the scale."""
        places = (place for place in self.table.scale.standings if place.name == model)
        return next(places, None)

    def hard(self, model: str) -> float | None:
        """A model's mean on the third of its cases that the other models found hardest."""
        return next(row.mean for row in self.table.hard if row.model == model)

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


def shared_scales(boards: Iterable[BoardEntry]) -> list[SharedScale]:
    """One scale for each grader and template; boards come the newest snapshot first."""
    alike: dict[tuple[str, ...], list[BoardEntry]] = {}
    for board in boards:
        alike.setdefault(_terms(board), []).append(board)
    return [
        _shared(" · ".join(filter(None, terms)), group)
        for terms, group in alike.items()
    ]


def _terms(board: BoardEntry) -> tuple[str, ...]:
    run = board.models[0].score.run
    grader, info = run.grader, run.run.info
    by = "nobody" if grader is None else f"{grader.model} ({grader.mode} mode)"
    snippets = ""
    if info.evidence is not None:
        snippets = f"{info.evidence.top_k} snippets a question"
    return board.table.metric.value, f"graded by {by}", info.template.name, snippets


def _shared(title: str, boards: Sequence[BoardEntry]) -> SharedScale:
    scored: dict[str, dict[str, CaseScore]] = {}
    for board in boards:
        for model in board.models:
            own = scored.setdefault(model.name, {})
            # A case that several snapshots hold counts once, as the newest has it.
            for case in model.score.cases:
                own.setdefault(case.case.case_id, case)
    names = sorted(scored)
    table = abilities(names, [list(scored[name].values()) for name in names])
    return SharedScale(title, len(boards), table)
