"""The manifest: what a snapshot holds, how it was made, and the digest of each of its files."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from statistics import median
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from medlive.guard.printable import printable
from medlive.integrity.folder import SUMS
from medlive.integrity.log import some

from .model import (
    FORMAT_VERSION,
    OLDEST_FORMAT,
    PROOF_FIELDS,
    TABLES,
    Column,
    Name,
    Shape,
    SnapshotCase,
    Table,
    known_part,
    shape_of,
)

Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Version = Annotated[str, StringConstraints(pattern=r"^[0-9]{4}\.W[0-9]{2}$")]
Guid = Annotated[
    str,
    StringConstraints(
        pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
    ),
]
EnumerationValue = Annotated[str, StringConstraints(min_length=1, max_length=100)]
KeyId = Annotated[str, StringConstraints(pattern=r"^[0-9A-F]{16}$")]
Count = Annotated[int, Field(ge=0)]


FORMATS = f"a manifest of format {OLDEST_FORMAT} to {FORMAT_VERSION}"


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


def optional(default: Any) -> Any:
    """A field that is not written where it has its default."""
    return Field(default=default, exclude_if=lambda value: value == default)


class FileEntry(_Frozen):
    """One file: `rows` is None where a file has no rows."""

    size: Count
    sha256: Hex
    rows: Count | None = None


class EngineUse(_Frozen):
    """Which engine and model did a role's work."""

    role: str
    engine: str  # "rules" or "openai"
    model: str


class EvidenceUse(_Frozen):
    """The evidence that verdicts are based on."""

    retriever: str
    index_digest: str
    corpora: dict[str, str]  # Corpus name → corpus digest
    passages: Count


class Provenance(_Frozen):
    """How the cases were made: code, engines, prompts, evidence, thresholds."""

    code_version: str
    engines: tuple[EngineUse, ...]
    prompts: dict[str, Digest]  # Task name → prompt digest
    # One entry for each index that a case of this snapshot was judged by
    evidence: tuple[EvidenceUse, ...]
    thresholds: dict[str, bool | int | float | str]


Share = Annotated[float, Field(ge=0, le=1)]


class ProofMeans(_Frozen):
    """How the rubrics measure: means over the cases whose rubric is proved; None where none is."""

    cases: Count = 0  # With a proved rubric
    ceiling: Share | None = None  # The long excellent answer's score
    floor: Share | None = None  # The higher score of the vague and wrong answers
    separation: Share | None = None  # The lower excellent score, less the floor


EASY = 0.9
"""The score at which an answer passes a rubric."""
LITTLE_HEADROOM = 0.75
"""The median of the ordinary answers' scores above which models can hardly be told apart."""


class Headroom(_Frozen):
    """How much score is left above an ordinary answer: correct, but without what an expert would not miss."""

    cases: Count = 0  # With such an answer in their proof
    ordinary: Share | None = None  # The median of its scores
    easy: Share | None = None  # The share of cases that it passes at 90 %

    @property
    def is_little(self) -> bool:
        """Whether ordinary answers score too high for models to be told apart."""
        return self.ordinary is not None and self.ordinary > LITTLE_HEADROOM

    @property
    def words(self) -> str:
        """The figures in a sentence; empty if there are none."""
        if self.ordinary is None or self.easy is None:
            return ""
        return (
            f"an ordinary answer (correct, and lacking what an expert would not miss) scores {self.ordinary:.2f} in the"
            f" median of {self.cases} cases, and passes {self.easy:.0%} of them at {EASY:.0%}"
        )


def headroom_of(scores: Mapping[float, int]) -> Headroom:
    """The headroom of cases from how often their ordinary answers have each score."""
    cases = sum(scores.values())
    if not cases:
        return Headroom()
    easy = sum(count for score, count in scores.items() if score >= EASY)
    ordinary = median(Counter(scores).elements())
    return Headroom(
        cases=cases, ordinary=round(ordinary, 4), easy=round(easy / cases, 4)
    )


class Counts(_Frozen):
    """How many cases and criteria there are, and by value: criteria by axis, origin and tier, cases by the others."""

    cases: Count
    criteria: Count
    by_language: dict[str, Count]
    by_source: dict[str, Count]
    by_theme: dict[str, Count]
    by_specialty: dict[str, Count]
    by_difficulty: dict[str, Count]
    by_dialogue_register: dict[str, Count]
    by_axis: dict[str, Count]
    by_origin: dict[str, Count] = optional({})
    """Empty, and not written, in format 2."""
    by_tier: dict[str, Count] = optional({})
    """Not written where no criterion has a tier."""
    by_month: dict[str, Count]
    by_first_release: dict[str, Count]
    # Number of criteria → how many cases have that number
    criteria_per_case: dict[str, Count]
    proof: ProofMeans = optional(ProofMeans())
    """Not written where no rubric is proved."""
    headroom: Headroom = optional(Headroom())
    """Not written where no proof has an ordinary answer."""
    overruled: Count = optional(0)
    """Cases whose confirmed veto people overruled; not written where there is none."""
    held: Count  # Held-out cases, of which the snapshot holds commitments only; in no other count


class Tally:
    """Counts cases as the manifest states them."""

    def __init__(self, shape: Shape) -> None:
        """Count for a manifest of this shape."""
        names = [column.name for column in shape.columns["criteria"]]
        self._of_criteria = [name for name in _OF_CRITERIA if name in names]
        self.cases = self.criteria = self._proved = self._overruled = 0
        self._proof = defaultdict[str, Fraction](Fraction)
        self._ordinary = Counter[float]()
        self._by = {
            name: Counter[str]() for name in Counts.model_fields if name not in _NUMBERS
        }

    def add(self, case: SnapshotCase) -> None:
        """Count a case and its criteria."""
        self.cases += 1
        self.criteria += len(case.criteria)
        for name in _FIELDS:
            self._by[f"by_{name}"][getattr(case, name)] += 1
        self._by["by_month"][case.posted_at.isoformat()[:7]] += 1
        for name in self._of_criteria:
            values = [getattr(c, name) for c in case.criteria]
            self._by[f"by_{name}"].update(filter(None, values))
        self._by["criteria_per_case"][str(len(case.criteria))] += 1
        if case.ordinary is not None:
            self._ordinary[_share(case.ordinary)] += 1
        self._overruled += case.overruled is not None
        figures = [getattr(case, name) for name in PROOF_FIELDS]
        if None not in figures:
            self._proved += 1
            for name, figure in zip(PROOF_FIELDS, figures, strict=True):
                self._proof[name] += Fraction(_share(figure))

    def rows(self, name: str) -> int | None:
        """Return how many rows a file of the snapshot has; None for a file without rows."""
        if name == "livemedbench.json" or name.startswith("data/cases."):
            return self.cases
        return self.criteria if name.startswith("data/criteria.") else None

    def counts(self, held_out: int) -> Counts:
        """Return the counts, with the number of held-out cases."""
        by = {name: dict(sorted(counter.items())) for name, counter in self._by.items()}
        proof: dict[str, float] = {"cases": self._proved}
        for name, total in self._proof.items():
            # The sums are exact, so that the order of the cases does not matter.
            proof[name] = round(float(total / self._proved), 4)
        return Counts.model_validate(
            {
                "cases": self.cases,
                "criteria": self.criteria,
                "held": held_out,
                "proof": proof,
                "headroom": headroom_of(self._ordinary),
                "overruled": self._overruled,
                **by,
            }
        )


def _share(figure: float) -> float:
    """The figure of a proof; one beyond [0, 1], which only a forged row has, as the nearer end."""
    return min(max(figure, 0.0), 1.0)


# Fields of cases, and below of criteria, that are counted by value; then the counts that are not by value
_FIELDS = (
    "language",
    "source",
    "theme",
    "specialty",
    "difficulty",
    "dialogue_register",
    "first_release",
)
_OF_CRITERIA = ("axis", "origin", "tier")
_NUMBERS = ("cases", "criteria", "held", "proof", "headroom", "overruled")


class Ancestor(_Frozen):
    """A snapshot by its version, such as one that another continues."""

    version: Version
    digest: Digest  # Of its SHA256SUMS: the identity of its whole folder


class Signing(_Frozen):
    """The key that signs SHA256SUMS, in minisign's format."""

    algorithm: Literal["minisign-ed25519-blake2b"] = "minisign-ed25519-blake2b"
    key_id: KeyId
    public_key: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{56}$")]
    """The second line of the public key's file."""


class AuditLogHead(_Frozen):
    """The state of the audit log when the cases were selected: it shows later whether entries were cut off."""

    entries: Count
    head: Digest | None  # The last entry's digest; None: there was no entry


class Partial(_Frozen):
    """How far a week was that was frozen before all threads that were queued for it were decided."""

    decided: Count
    queued: Count
    because: Annotated[str, StringConstraints(min_length=1, max_length=1000)]

    @property
    def in_short(self) -> str:
        """Such as "16 of 45, because 29 wait (not begun 29)"."""
        return f"{self.decided} of {self.queued}, because {self.because}"


class WeekCost(_Frozen):
    """What engines cost in the snapshot's week until it was frozen, as `medlive cost --week` counts it."""

    replies: Count
    input_tokens: Count
    output_tokens: Count
    estimated: Count  # Replies whose tokens and price are an upper bound
    unpriced: Count  # Replies whose price is unknown
    usd: Annotated[float, Field(ge=0)] | None  # None: a reply's price is unknown


class Stated(_Frozen):
    """What a snapshot states besides rows, version and time: base of `SnapshotMeta` and the database's `FixedMeta`."""

    # Every ancestor, the oldest first; the last is the parent
    lineage: tuple[Ancestor, ...] = ()
    # None: the release was made without a key, and nothing proves where it came from
    signing: Signing | None = None
    provenance: Provenance
    # Why it may not be published (see `gates.release_faults`); empty exactly when it may
    why_not: tuple[str, ...] = ()
    audit_log: AuditLogHead | None = optional(None)
    """None, and not written: frozen before it was noted, or not from a database."""
    partial: Partial | None = optional(None)
    """None, and not written: all threads queued for the week were decided, or it is older than this field."""
    cost: WeekCost | None = optional(None)
    """None, and not written: not frozen from a database, or older than this field."""


class SnapshotMeta(Stated):
    """What `write_snapshot` states besides the rows it is given; the same values give the same bytes."""

    version: Version
    created_at: AwareDatetime


class _Format(_Frozen):
    """A manifest's format, checked before its other fields, so that a later format is reported first."""

    format: Literal["medlive-snapshot"] = "medlive-snapshot"
    format_version: int = FORMAT_VERSION
    """2: criteria have no origin, all come from the advice. From 4 on what a reader does not know is accepted."""

    @field_validator("format_version")
    @classmethod
    def _known_format(cls, number: int) -> int:
        if not OLDEST_FORMAT <= number <= FORMAT_VERSION:
            raise ValueError(
                f"this medlive reads formats {OLDEST_FORMAT} to {FORMAT_VERSION}, not {number}: a later one needs a "
                "later medlive"
            )
        return number


class Manifest(SnapshotMeta, _Format):
    """The content of `manifest.json`."""

    # Required here: a field that a file lacks must not be read as "none".
    lineage: tuple[Ancestor, ...]
    signing: Signing | None
    why_not: tuple[str, ...]
    parent: Version | None
    parent_digest: Digest | None  # Of the parent's SHA256SUMS
    publishable: bool
    counts: Counts
    writers: dict[str, str]
    """Format → the library and version that wrote it, for files that are derived and not canonical."""
    warnings: tuple[str, ...] = optional(())
    """What a reader of scores should know; empty, and not written, where there is nothing."""
    canary: Guid  # A text that holds this GUID was copied from the snapshot
    # Every file of the folder but this one, SHA256SUMS and its signature
    files: dict[str, FileEntry]
    columns: dict[Table, tuple[Column, ...]] = optional({})
    """The columns of `data/cases` and `data/criteria`, in order; not written before format 4."""
    enumerations: dict[Name, tuple[EnumerationValue, ...]] = optional({})
    """Column → every value that it may have; not written before format 4."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Check that an old format has no unknown field, and that a new one has the known columns unchanged."""
        if self.format_version < 4:
            if names := [*unknown_fields(self), *self.columns, *self.enumerations]:
                raise ValueError(f"unknown fields {', '.join(names)[:200]}")
            return self
        # A known column keeps its meaning, and those of before exist.
        for table in TABLES:
            columns = self.columns.get(table, ())
            stated = {column.name: column for column in columns}
            if len(stated) < len(columns):
                raise ValueError(f"columns of {table} are named twice")
            for known in shape_of().columns[table]:
                column = stated.get(known.name)
                if column is None and not known.optional:
                    raise ValueError(f"columns of {table} lack {known.name}")
                if column is not None and known_part(column) != known_part(known):
                    expected = f"expected {known_part(known)}"
                    raise ValueError(f"column {known.name} of {table}: {expected}")
        return self

    @property
    def shape(self) -> Shape:
        """The snapshot's columns and enumerations."""
        if self.format_version < 4:
            return shape_of(self.format_version)
        return Shape(self.columns, self.enumerations)

    @property
    def unknown(self) -> tuple[str, ...]:
        """What it names and this medlive does not know, one description each."""
        fields = [f"field {name!r} of manifest.json" for name in unknown_fields(self)]
        return (*self.shape.unknown_names(), *fields)

    @property
    def newer(self) -> str:
        """What it has that this medlive does not know, in a sentence; empty if there is nothing."""
        return unknown_note(self.unknown)

    @property
    def ancestry(self) -> dict[str, str]:
        """The digests of its ancestors, by version."""
        return {ancestor.version: ancestor.digest for ancestor in self.lineage}

    @property
    def line(self) -> tuple[str, ...]:
        """The versions of its ancestors, the oldest first, and its own."""
        return (*(ancestor.version for ancestor in self.lineage), self.version)

    @property
    def trusted_comment(self) -> str:
        """What the signature vouches for beside SHA256SUMS; made of the manifest, not of a clock."""
        seconds = int(self.created_at.timestamp())
        return f"timestamp:{seconds}\tfile:{SUMS}\tversion:{self.version}\tcanary:{self.canary}"

    def text(self) -> str:
        """The manifest as its file holds it: JSON, two spaces, keys in order, one line end."""
        return pretty_json(self.model_dump(mode="json"))


def unknown_fields(value: object, place: str = "") -> Iterator[str]:
    """Yield the names of fields that a model or what it contains has beyond its own, such as `counts.by_tier`."""
    if isinstance(value, BaseModel):
        for name in value.model_extra or {}:
            yield f"{place}{name}"
        for name in type(value).model_fields:
            yield from unknown_fields(getattr(value, name), f"{place}{name}.")
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from unknown_fields(part, f"{place}{name}.")
    elif isinstance(value, tuple):
        for part in value:
            yield from unknown_fields(part, place)


def unknown_note(names: Sequence[str]) -> str:
    """Say that a snapshot holds what this medlive does not know; empty where it does not."""
    if not names:
        return ""
    shown = some([printable(name)[:100] for name in names], _NAMES_SHOWN)
    return f"it is newer than this medlive, which does not know: {shown}"


_NAMES_SHOWN = 12


def warnings_of(provenance: Provenance) -> tuple[str, ...]:
    """Return what the provenance warns of: rubrics that one model wrote, tried and graded."""
    models: dict[str, set[str]] = {"rubric": set(), "prober": set(), "grader": set()}
    for engine in provenance.engines:
        models.get(engine.role, set()).add(engine.model)
    common = models["rubric"] & models["prober"] & models["grader"]
    return tuple(
        f"{model} wrote rubrics, wrote the answers that prove them, and graded these:"
        " such a proof finds less"
        for model in sorted(common)
    )


def moment_text(moment: datetime) -> str:
    """A moment as `2026-11-21T02:40:31Z`, whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def pretty_json(value: object) -> str:
    """JSON for people: two spaces, keys sorted, UTF-8 kept, a line end."""
    return (
        json.dumps(value, ensure_ascii=False, sort_keys=True, indent=2, allow_nan=False)
        + "\n"
    )
