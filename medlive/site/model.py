"""What the site shows (`Content`), as its pages take it, and all weeks on one scale (`shared_scales`): models of the
boards that one grader graded with one template.

The hard cases of each week are chosen by other models than the one that is scored, and fixed for good (docs/scale.md):
the file `hard.json` lies beside the snapshots and is part of the site.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean

import numpy as np
from pydantic import TypeAdapter, ValidationError

from medlive.errors import BadInput
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.scoring.ability import AbilityTable, abilities
from medlive.evaluation.scoring.estimates import rows_by
from medlive.evaluation.scoring.metrics import CaseScore
from medlive.evaluation.scoring.score import ModelScore, ScoreTable
from medlive.evidence.passage import Passage
from medlive.integrity.digest import canonical_json
from medlive.integrity.log import write_whole, writing
from medlive.snapshot.describe.feed import Release
from medlive.snapshot.errata import Errata
from medlive.snapshot.model import SnapshotCase
from medlive.statistics.comparison import Standing
from medlive.statistics.contamination import Drop
from medlive.statistics.items import LEAST_MODELS, hardest
from medlive.statistics.scale import Ability

WITHHELD = (
    "people check a grader's verdicts on its answers without seeing them; "
    "it is shown again when their study is closed"
)
"""Why a bundle is left out."""


@dataclass(frozen=True)
class HardWeek:
    """One week's hard cases: a third of its cases."""

    cases: tuple[str, ...]
    """The hard cases for every model that had no part in the choice."""
    by_others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Model that had a part in the choice → its hard cases, which all other models chose."""

    def cases_for(self, model: str) -> tuple[str, ...]:
        """The cases on which a model is scored."""
        return self.by_others.get(model, self.cases)


HardWeeks = dict[str, dict[str, HardWeek]]
"""Title of a scale → week → its hard cases."""


@dataclass(frozen=True)
class Week(Release):
    """One snapshot, and what it changed."""

    changed: Mapping[str, int]
    """added, revised, withdrawn, held → how many cases; without what the snapshot's ledgers do not say."""


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """A model on one board."""

    slug: str  # Its name in addresses
    score: ModelScore
    standing: Standing | None
    """Its place among the others, on cases after every known cutoff; None: not ranked."""
    drop: Drop | None
    """Its drop past its cutoff, if significant after Holm's correction."""
    worst: tuple[CaseScore, ...]
    """Its lowest scores, the lowest first."""
    tokens: tuple[float, float] | None
    """The tokens of prompts and of answers; None where the bundle does not say."""
    trust: str  # What its bundle's signature proves

    @property
    def name(self) -> str:
        """As the run names it."""
        return self.score.label

    @property
    def cutoff(self) -> str | None:
        """The last day whose texts it may have seen, `YYYY-MM-DD`; None: unknown."""
        cutoff = self.score.cutoff
        return None if cutoff is None else cutoff.day.isoformat()


@dataclass(frozen=True, kw_only=True)
class BoardEntry:
    """Models on the same cases, with the same template and grader."""

    slug: str
    title: str
    """What tells this board from the others."""
    conditions: str
    """Grader, template, snippets and their index, each with digits of its digest: boards that share them and the metric
    are put on one scale."""
    table: ScoreTable
    models: tuple[ModelEntry, ...]
    """The best first."""
    cases: tuple[EvaluationCase, ...]
    notes: tuple[str, ...]

    @property
    def entered(self) -> list[ModelEntry]:
        """The models in the order in which their bundles were given."""
        by_name = {model.name: model for model in self.models}
        return [by_name[label] for label in self.table.labels]

    @property
    def not_publishable(self) -> tuple[str, ...]:
        """Reasons; empty where it may be published."""
        return tuple(objection.why for objection in self.table.overridden)


@dataclass(frozen=True, kw_only=True)
class Content:
    """Everything that the site shows."""

    weeks: Sequence[Week] = ()
    """The newest first."""
    cases: Mapping[str, SnapshotCase] = field(default_factory=dict)
    """By id, the latest revision, without what was withdrawn."""
    boards: Sequence[BoardEntry] = ()
    left_out: Sequence[tuple[str, str]] = ()
    """Files that are not shown, and why."""
    passages: Mapping[str, Passage] = field(default_factory=dict)
    """By id, the passages in the evidence index that criteria are based on; their titles are shown."""
    errata: Errata = field(default_factory=Errata)
    hard: HardWeeks = field(default_factory=dict)
    """The hard cases of weeks for which they were chosen before."""
    not_publishable: Sequence[str] = ()
    """Reasons to say on every page; empty: all of it is publishable."""

    @property
    def models(self) -> set[str]:
        """The names of all models."""
        return {model.name for board in self.boards for model in board.models}

    @property
    def withheld(self) -> bool:
        """Whether a bundle is left out while people check its verdicts blind."""
        return any(why == WITHHELD for _, why in self.left_out)

    @property
    def newest(self) -> str:
        """The newest snapshot's version, or an example."""
        return self.weeks[0].manifest.version if self.weeks else "2026.W47"


HARD = "hard.json"
_FILE = TypeAdapter(HardWeeks)


def load_hard(path: Path) -> HardWeeks:
    """The hard cases of each week, read from a file; empty if there is no file. Raises BadInput if it is damaged."""
    if not path.is_file():
        return {}
    try:
        return _FILE.validate_json(path.read_bytes())
    except (OSError, ValidationError) as exc:
        raise BadInput(
            f"{path} cannot be read as a file of hard cases",
            hint="fetch it again from the site (data/hard.json); without it they would be chosen again",
        ) from exc


def hard_bytes(weeks: HardWeeks) -> bytes:
    """The bytes of `hard.json` for these weeks; the same weeks make the same bytes."""
    return canonical_json(_FILE.dump_python(weeks, mode="json")).encode("utf-8")


def fix_hard(path: Path, data: bytes) -> None:
    """Write what `hard_bytes` made, unless the file has it or it holds no week. Raises BadInput, DiskFull."""
    with writing(path):
        if data != b"{}" and not (path.is_file() and path.read_bytes() == data):
            write_whole(path, data)


@dataclass(frozen=True)
class SharedScale:
    """Models of several boards on one scale."""

    title: str
    boards: tuple[str, ...]
    """The boards' slugs."""
    table: AbilityTable
    hard: dict[str, HardWeek]
    """Week → its hard cases."""

    @property
    def abilities(self) -> dict[str, Ability]:
        """Model → what it would score on all cases of all weeks."""
        return {ability.name: ability for ability in self.table.scale.abilities}

    def hard_mean(self, model: str) -> float | None:
        """A model's mean on the hard cases of the weeks that it answered; None where it answered none."""
        column = list(self.abilities).index(model)
        hard = set(chain(*(week.cases_for(model) for week in self.hard.values())))
        rows = [item.case.case_id in hard for item in self.table.cases]
        scores = self.table.scores[rows, column]
        known = scores[~np.isnan(scores)].tolist()
        return fmean(known) if known else None


def shared_scales(
    boards: Iterable[BoardEntry],
    fixed: HardWeeks | None = None,
) -> list[SharedScale]:
    """One scale for the boards that share metric, grader, template and snippets.

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
        # A case that several snapshots hold counts once, as the newest has it.
        by_name: dict[str, dict[str, CaseScore]] = {}
        for board in group:
            for model in board.models:
                own = by_name.setdefault(model.name, {})
                for case in model.score.cases:
                    own.setdefault(case.case_id, case)
        table = abilities(
            {name: list(by_name[name].values()) for name in sorted(by_name)}
        )
        shared = SharedScale(
            title=title,
            boards=tuple(board.slug for board in group),
            table=table,
            hard=choose_hard(table) | (fixed or {}).get(title, {}),
        )
        scales.append(shared)
    return scales


def hard_weeks(scales: Iterable[SharedScale], fixed: HardWeeks) -> HardWeeks:
    """The hard cases that are fixed from now on: `fixed`, and those of weeks that were chosen now."""
    weeks = dict(fixed)
    for shared in scales:
        if shared.hard:
            weeks[shared.title] = shared.hard
    return weeks


def choose_hard(table: AbilityTable) -> dict[str, HardWeek]:
    """The hard cases of each week that enough models answered: `LEAST_MODELS` beside the one that is left out."""
    names = [ability.name for ability in table.scale.abilities]
    abilities = [ability.value for ability in table.scale.abilities]
    levels = np.array(abilities, dtype=np.float64)
    chosen = {}
    for week, rows in rows_by(
        item.case.first_release or None for item in table.cases
    ).items():
        answered = (~np.isnan(table.scores[rows])).any(axis=0)
        models = np.flatnonzero(answered & ~np.isnan(levels))
        if len(models) <= LEAST_MODELS:
            continue
        # In rows, so that the order of a sum does not depend on who is left out.
        scores = np.ascontiguousarray(table.scores[np.ix_(rows, models)])
        own_levels = levels[models]
        ids = np.array([table.cases[row].case.case_id for row in rows])
        by_others = {}
        for place, model in enumerate(models):
            others = np.delete(scores, place, axis=1)
            hard = hardest(others, np.delete(own_levels, place))
            by_others[names[model]] = tuple(ids[hard].tolist())
        everybody = hardest(scores, own_levels)
        chosen[week] = HardWeek(tuple(ids[everybody].tolist()), by_others)
    return chosen
