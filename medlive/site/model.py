"""What the site shows, as its pages take it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from medlive.evidence.passage import Passage
from medlive.snapshot.describe.feed import Release
from medlive.snapshot.errata import Errata
from medlive.snapshot.manifest import WeekCost
from medlive.snapshot.model import SnapshotCase


@dataclass(frozen=True, slots=True)
class Week:
    """One snapshot, and what it changed."""

    version: str
    created: str
    cases: int
    criteria: int
    added: int | None
    revised: int | None
    withdrawn: int | None
    held_back: int | None
    """None where the snapshot's ledgers do not say."""
    cost: WeekCost | None
    """None where its manifest does not say."""
    publishable: bool
    why_not: tuple[str, ...]
    signed: bool
    digest: str
    """Of SHA256SUMS."""
    release: Release | None
    """For the feed; None leaves the week out of it."""
    files: tuple[tuple[str, int, str], ...]
    """Name, bytes and SHA-256 of each file."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean from 0 to 1 with its 95 % interval."""

    n: int
    mean: float | None
    low: float | None
    high: float | None
    why: str
    """Why there is no interval; "" where there is one, or no mean."""


@dataclass(frozen=True, slots=True)
class SliceFigure:
    """A model's figure on a part of the cases."""

    kind: str
    value: str
    figure: Figure
    few: bool


@dataclass(frozen=True, slots=True)
class AxisRate:
    """How often a model's criteria of one axis went wrong."""

    axis: str
    n: int
    rate: float | None
    low: float | None
    high: float | None
    why: str
    """Why there is no interval; "" where there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model on one board."""

    name: str
    slug: str
    cutoff: str | None
    """The last day whose texts it may have seen, `YYYY-MM-DD`; None: unknown."""
    overall: Figure
    paper: Figure
    drop: Figure | None
    """The mean up to its cutoff less that after it, where significant after Holm's correction."""
    group: int | None
    rank_best: int | None
    rank_worst: int | None
    slices: tuple[SliceFigure, ...]
    axes: tuple[AxisRate, ...]
    worst: tuple[tuple[str, float], ...]
    """Case ids and scores, the lowest first."""
    unanswered: int
    tokens: tuple[int, int] | None
    """Of prompts and answers; None where the bundle does not say."""
    trust: str
    answered: frozenset[str]
    verdicts: Mapping[str, Mapping[str, bool | None]]
    """Case id → criterion id → met."""


@dataclass(frozen=True, slots=True)
class BoardCriterion:
    """What scoring needs of a criterion."""

    id: str
    text: str
    points: float
    advice: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardCase:
    """What scoring and filtering need of a case."""

    id: str
    day: str | None
    language: str | None
    specialty: str | None
    theme: str | None
    difficulty: str | None
    cluster: str | None
    criteria: tuple[BoardCriterion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardEntry:
    """Models on the same cases, with the same template and grader."""

    slug: str
    snapshot: str
    template: str
    grader: str
    evidence: str
    draws: int
    seed: int
    models: tuple[ModelEntry, ...]
    """The best first."""
    entered: tuple[str, ...]
    """Names in the order in which the bundles were given."""
    cases: tuple[BoardCase, ...]
    ranked_after: str | None
    """The latest cutoff, after which the ranked cases were posted; None: no cutoff is known, and all are ranked."""
    notes: tuple[str, ...]
    not_publishable: tuple[str, ...]

    @property
    def title(self) -> str:
        """What tells this board from the others."""
        return f"{self.snapshot} · graded by {self.grader} · {self.template}{self.evidence}"


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
    not_publishable: Sequence[str] = ()
    """Reasons to say on every page; empty: all of it is publishable."""
