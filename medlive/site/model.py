"""What the site shows, as its pages take it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.scoring.metrics import CaseScore
from medlive.evaluation.scoring.score import ModelScore, ScoreTable
from medlive.evidence.passage import Passage
from medlive.snapshot.describe.feed import Release
from medlive.snapshot.errata import Errata
from medlive.snapshot.manifest import Manifest, unknown_note
from medlive.snapshot.model import SnapshotCase
from medlive.statistics.bootstrap import Standing
from medlive.statistics.contamination import Drop

WITHHELD: Final = (
    "people check a grader's verdicts on its answers without seeing them; "
    "it is shown again when their study is closed"
)
"""Why a bundle is left out."""


@dataclass(frozen=True, slots=True)
class HardWeek:
    """One week's hard cases: a third of its cases."""

    cases: tuple[str, ...]
    """For every model that had no part in the choice."""
    by_others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each model that had: as all the others chose."""

    def cases_for(self, model: str) -> tuple[str, ...]:
        """The cases on which a model is scored."""
        return self.by_others.get(model, self.cases)


HardWeeks = dict[str, dict[str, HardWeek]]
"""Title of a scale → week → its hard cases."""


@dataclass(frozen=True, slots=True)
class Week:
    """One snapshot, and what it changed."""

    manifest: Manifest
    digest: str
    """Of SHA256SUMS."""
    changed: Mapping[str, int]
    """added, revised, withdrawn, held → how many cases; without what the snapshot's ledgers do not say."""
    release: Release | None = None
    """For the feed; None leaves the week out of it."""

    @property
    def newer(self) -> str:
        """What it holds and this medlive does not know, in words; empty where there is nothing."""
        return unknown_note(self.manifest.unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model on one board."""

    slug: str
    score: ModelScore
    standing: Standing | None
    """Among the others, on what none of them can have seen; None: not ranked."""
    drop: Drop | None
    """Past its cutoff, where significant after Holm's correction."""
    worst: tuple[CaseScore, ...]
    """The lowest first."""
    tokens: tuple[int, int] | None
    """Of prompts and answers; None where the bundle does not say."""
    trust: str

    @property
    def name(self) -> str:
        """As the run names it."""
        return self.score.label

    @property
    def cutoff(self) -> str | None:
        """The last day whose texts it may have seen, `YYYY-MM-DD`; None: unknown."""
        cutoff = self.score.cutoff
        return None if cutoff is None else cutoff.day.isoformat()


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """By id, those that criteria rest on and the evidence index holds; a text that may not be shown is empty."""
    errata: Errata = field(default_factory=Errata)
    hard: HardWeeks = field(default_factory=dict)
    """Of weeks whose hard cases were chosen before."""
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
