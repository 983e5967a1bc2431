"""The snapshot's rows: a frozen case and its criteria, as every file of a snapshot spells them; and what a snapshot is
known by: its version, its folder's name, its canary and what its signature says.

A case does not name its snapshot: `stamped` adds the canary of the snapshot to its rows.

The shape of a snapshot is the columns of its tables and the values of its enumerations. From format 4 on the manifest
states both. A reader accepts columns and values that the manifest names and it does not know, and says so; only a
changed meaning needs another format number.
"""

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from enum import StrEnum
from functools import cache, cached_property
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, JsonValue, StringConstraints

from medlive.integrity.digest import canonical_json, digest_bytes
from medlive.rubric.model import (
    SPECIALTIES,
    UNKNOWN_SPECIALTY,
    Axis,
    Criterion,
    Difficulty,
    Origin,
    Register,
    Theme,
    Tier,
    known_axis,
)

VERSION = re.compile(r"(?P<year>[0-9]{4})\.W(?P<week>[0-9]{2})")
"""A snapshot's version: an ISO week, `2026.W47`."""

CASE_ID = re.compile(r"[^\s/\\\x00-\x1f\x7f]{1,200}")
"""What an id may be: no space, slash or control character, since ids become file names and anchors."""


class WithdrawalKind(StrEnum):
    """Why something was withdrawn."""

    ERRATUM = "erratum"  # It is wrong
    TAKEDOWN = "takedown"  # Its author or the law required it
    PRIVACY = "privacy"  # It identifies a person


def week_end(version: str) -> date | None:
    """The Sunday of a version's ISO week, or None where the text names no week."""
    match = VERSION.fullmatch(version)
    if match is None:
        return None
    try:
        return date.fromisocalendar(
            int(match["year"]),
            int(match["week"]),
            7,
        )
    except ValueError:
        return None


def folder_name(version: str) -> str:
    """The name of a version's folder."""
    return f"medlive-{version}"


def version_of(name: str) -> str | None:
    """The version whose folder has this name; None where it is not a snapshot's."""
    version = name.removeprefix(folder_name(""))
    return version if version != name and week_end(version) else None


_CANARY_SPACE = uuid.UUID("5c6b1f0e-7d3a-4c5e-9a41-6d65646c6976")


@cache
def canary_of(version: str) -> str:
    """The canary GUID of a version: fixed, so that anybody can look for it."""
    return str(uuid.uuid5(_CANARY_SPACE, version))


@dataclass(frozen=True, slots=True)
class SnapshotCriterion:
    """One criterion of a frozen case."""

    criterion_id: str  # Unique in the snapshot
    case_id: str
    revision: int
    position: int  # From 1, in the order of the rubric
    criterion: str
    axis: str  # One of `medlive.rubric.model.Axis`
    points: int  # In [-10, 10], never 0
    origin: str = "advice"  # One of `medlive.rubric.model.Origin`
    source: str = ""
    """For `evidence` the passage's id, for `consensus` the models that named it, else empty."""
    tier: str = (
        ""  # One of `medlive.rubric.model.Tier`; empty where it was made before tiers
    )
    asked: str = ""
    """The id of the part of the query that it answers directly; empty for none."""
    further: Mapping[str, Any] = field(
        default_factory=dict,
        hash=False,
    )
    """Columns that this medlive does not know, where they have a value of their own."""

    def written(self) -> Criterion:
        """The criterion as its rubric had it. Raises BadInput for an axis that only a later version has."""
        return Criterion(
            id=self.criterion_id,
            position=self.position,
            criterion=self.criterion,
            axis=known_axis(self.axis),
            points=self.points,
            advice_id=None,
            asked=self.asked,
        )

    def row(self) -> dict[str, Any]:
        """The criterion as a row of `data/criteria.jsonl`, without the canary."""
        return {**_known(self, "criteria"), **self.further}


@dataclass(frozen=True, slots=True)
class SnapshotCase:
    """One revision of a case, frozen with its rubric."""

    case_id: str
    revision: int
    first_release: str  # The version that first held this case
    language: str  # "en" or "zh"
    source: str
    posted_at: date  # The day, in UTC: an hour would only help to find the thread
    specialty: str
    theme: str
    narrative: str
    query: str
    advice: str
    # In the order of their positions
    criteria: tuple[SnapshotCriterion, ...] = field(default=())
    difficulty: str = "unknown"  # One of `medlive.rubric.model.Difficulty`
    dialogue_register: str = "unknown"  # One of `medlive.rubric.model.Register`
    # Of the rubric's proof (`medlive.rubric.proof.Figures`), each from 0 to 1; None where it was not proved.
    ceiling: float | None = None
    floor: float | None = None
    separation: float | None = None
    ordinary: float | None = None  # None: not proved, or before there were such answers
    asked: str = ""
    """What the query expressly asks, as JSON: [{"id": …, "text": …}]; empty where it was made before that."""
    overruled: str | None = None  # Why people overruled a confirmed veto
    further: Mapping[str, Any] = field(
        default_factory=dict,
        hash=False,
    )
    """Columns that this medlive does not know, where they have a value of their own."""

    def row(self) -> dict[str, Any]:
        """The case as a row of `data/cases.jsonl`, its criteria and the canary left out."""
        day = self.posted_at.isoformat()
        return {**_known(self, "cases"), "posted_at": day, **self.further}


Table = Literal["cases", "criteria"]
TABLES: tuple[Table, ...] = ("cases", "criteria")


def _columns(kind: type) -> dict[str, str]:
    """A row's columns: the fields of its class but for those that hold other rows or columns, and the canary."""
    columns: dict[str, str] = {}
    for column in fields(kind):
        if column.name not in ("criteria", "further"):
            columns[column.name] = _JSON_TYPES.get(column.type, "string")
    return {**columns, "canary": "string"}


_JSON_TYPES: Mapping[Any, str] = {int: "integer", float | None: "number"}
"""Type of a field → that of its JSON value; all others are strings."""
FIELDS: Mapping[Table, Mapping[str, str]] = {
    "cases": _columns(SnapshotCase),
    "criteria": _columns(SnapshotCriterion),
}
"""Table → its columns, in order, with the type of their JSON value as a manifest names it."""


def _known(row: SnapshotCase | SnapshotCriterion, table: Table) -> dict[str, Any]:
    """A row's columns of this version, without the canary."""
    return {name: getattr(row, name) for name in FIELDS[table] if name != "canary"}


PROOF_FIELDS = ("ceiling", "floor", "separation")
"""The figures of every proof: all three of a case are null, or none."""

CRITERION_CONTENT = tuple(
    name for name in FIELDS["criteria"] if name not in ("case_id", "revision", "canary")
)
"""The columns of a criterion that its case does not have."""

OPTIONAL: Mapping[Table, Mapping[str, str | None]] = {
    "cases": {
        **dict.fromkeys((*PROOF_FIELDS, "ordinary", "overruled")),
        "asked": "",
    },
    "criteria": {"origin": "advice", "source": "", "tier": "", "asked": ""},
}
"""Table → the columns that a snapshot may lack, with the value that its rows then have. Every new column is listed
here: an older commitment to a held-out case remains valid while the column has that value."""


def case_from_rows(
    row: Mapping[str, Any],
    criteria: Sequence[Mapping[str, Any]],
    unknown: Mapping[Table, Mapping[str, Any]],
) -> SnapshotCase:
    """Return the case of valid rows.

    Args:
        row: The case's row.
        criteria: The rows of its criteria.
        unknown: Table → the columns that this medlive does not know, with their defaults.

    Raises:
        ValueError: If a date is invalid.
    """
    rubric = []
    for criterion in sorted(criteria, key=lambda c: int(c["position"])):
        rubric.append(SnapshotCriterion(**_arguments(criterion, unknown["criteria"])))
    case = _arguments(row, unknown["cases"])
    case["posted_at"] = date.fromisoformat(row["posted_at"])
    return SnapshotCase(
        **case,
        criteria=tuple(rubric),
    )


def _arguments(
    row: Mapping[str, Any],
    unknown: Mapping[str, Any],
) -> dict[str, Any]:
    """A row without the canary, its unknown columns apart under `further`."""
    own = dict(row)
    own.pop("canary", None)
    further = {}
    for name, default in unknown.items():
        if (value := own.pop(name, default)) != default:
            further[name] = value
    return own | {"further": further}


def stamped(
    row: Mapping[str, Any], canary: str, columns: Iterable[str]
) -> dict[str, Any]:
    """Return these columns of a case's or a criterion's row, with the canary of its snapshot."""
    whole = {**row, "canary": canary}
    return {name: whole[name] for name in columns}


def commitment(case: SnapshotCase, salt: str) -> str:
    """Return the commitment to a held-out case: `sha256:` over its salt and its canonical record.

    `salt` is 64 lower hexadecimal digits. The first release is left out, since a held-out case has none yet. Later
    columns that have the value of earlier formats are left out too: a commitment made before them still holds.
    """
    record = _without_defaults(case.row(), OPTIONAL["cases"])
    del record["first_release"]
    record["criteria"] = [
        _without_defaults(criterion.row(), OPTIONAL["criteria"])
        for criterion in case.criteria
    ]
    return digest_bytes(salt.encode("ascii") + canonical_json(record).encode("utf-8"))


def _without_defaults(
    row: Mapping[str, Any], defaults: Mapping[str, str | None]
) -> dict[str, Any]:
    """The columns that have another value than their default."""
    own = {}
    for name, value in row.items():
        if (name, value) not in defaults.items():
            own[name] = value
    return own


LIVEMEDBENCH_END = b"\n]\n"
"""The bytes that close `livemedbench.json`."""


def livemedbench_piece(
    number: int,
    row: Mapping[str, Any],
    criteria: Sequence[Mapping[str, Any]],
) -> bytes:
    """Return the bytes that the case at this place, from 0, adds to `livemedbench.json`, from its stamped row.

    Only criteria of origin `advice` are in it: they are what LiveMedBench calls a rubric.
    """
    rubric = []
    for c in criteria:
        if c.get("origin", "advice") == "advice":
            item = {
                "criterion": c["criterion"],
                "points": c["points"],
                "axe": c["axis"],
            }
            rubric.append(item)
    record = {
        "canary": row["canary"],
        "case_id": row["case_id"],
        "post_time": f"{row['posted_at']}T00:00:00",
        "narrative": row["narrative"],
        "core_request": row["query"],
        "doctor_advice": row["advice"],
        "rubric_items": rubric,
    }
    before = b",\n" if number else b"[\n"
    return before + canonical_json(record).encode("utf-8")


def line(row: Mapping[str, Any]) -> bytes:
    """Return a row as one line of canonical JSON Lines. Raises ValueError for text that UTF-8 cannot encode."""
    return canonical_json(dict(row)).encode("utf-8") + b"\n"


# --- the shape of a snapshot

FORMAT_VERSION = 4
"""The format that is written. A new column or value needs no new format: see `OPTIONAL` and `ENUMERATIONS`."""

OLDEST_FORMAT = 2

JsonType = type[str] | type[int] | type[float]
TYPES: Mapping[str, JsonType] = {"string": str, "integer": int, "number": float}
"""The types of columns as a manifest names them. `posted_at` is a string in JSON and a date in parquet."""

ENUMERATIONS: Mapping[str, tuple[str, ...]] = {
    "language": ("en", "zh"),
    "theme": tuple(Theme),
    "specialty": (*SPECIALTIES, UNKNOWN_SPECIALTY),
    "difficulty": tuple(Difficulty),
    "dialogue_register": tuple(Register),
    "axis": tuple(Axis),
    "origin": tuple(Origin),
    "tier": get_args(Tier),
}
"""Column → the values that it may have. New values and new enumerations are added here."""

_NEW_IN_FORMAT_3 = ("ceiling", "floor", "separation", "origin", "source")

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]


class Column(BaseModel):
    """A column as a manifest states it."""

    model_config = ConfigDict(
        extra="allow",
        frozen=True,
    )

    name: Name
    type: str  # One of `TYPES`; a column of another type is not compared with parquet
    optional: bool = False  # Whether a snapshot may lack it
    default: JsonValue = None  # The value of rows without it; with None it may be null

    @cached_property
    def nullable(self) -> bool:
        """Whether a row may hold null."""
        return self.optional and self.default is None

    @cached_property
    def kind(self) -> "JsonType | None":
        """The type of its JSON value; None where this medlive does not know the type."""
        return TYPES.get(self.type)


@dataclass(frozen=True)
class Shape:
    """The columns and enumerations of one snapshot."""

    columns: Mapping[Table, tuple[Column, ...]]  # By table, in order
    enumerations: Mapping[str, tuple[str, ...]]  # By column

    def absent(self, table: Table) -> list[Column]:
        """Return the known columns that this snapshot lacks; its rows have their defaults."""
        names = {column.name for column in self.columns[table]}
        return [c for c in shape_of().columns[table] if c.name not in names]

    @cached_property
    def unknown(self) -> dict[Table, dict[str, Any]]:
        """Table → the columns that this medlive does not know, with their defaults."""
        unknown: dict[Table, dict[str, Any]] = {table: {} for table in TABLES}
        for table in TABLES:
            for column in self.columns[table]:
                if column.name not in FIELDS[table]:
                    unknown[table][column.name] = column.default
        return unknown

    def unknown_names(self) -> Iterator[str]:
        """Yield what the snapshot may hold and this medlive does not know, in words."""
        for table, columns in self.unknown.items():
            for name in columns:
                yield f"column {name!r} of {table}"
        for name, values in self.enumerations.items():
            for value in values:
                if value not in ENUMERATIONS.get(name, ()):
                    yield f"{name} {value!r}"

    def row_fault(
        self,
        row: object,
        table: Table,
    ) -> str | None:
        """Return why a parsed JSON value is not a row of a table, or None if it is one."""
        if not isinstance(row, dict):
            return f"expected an object, got {type(row).__name__}"
        columns = self.columns[table]
        if wrong := row.keys() ^ {column.name for column in columns}:
            return f"missing or unknown fields {', '.join(sorted(wrong))}"
        for column in columns:
            value = row[column.name]
            if column.kind is None or (value is None and column.nullable):
                continue
            if type(value) is not column.kind:
                expected = column.kind.__name__
                got = type(value).__name__
                return f"{column.name}: expected {expected}, got {got}"
        return None


def shape_of(format_version: int = FORMAT_VERSION) -> Shape:
    """Return the shape that a format has in this medlive."""
    columns: dict[Table, tuple[Column, ...]] = {}
    for table, kinds in FIELDS.items():
        listed = []
        for name, kind in kinds.items():
            optional = name in OPTIONAL[table]
            # Formats 2 and 3 are closed.
            is_new = name not in _NEW_IN_FORMAT_3 or format_version < 3
            if optional and format_version < 4 and is_new:
                continue
            default = OPTIONAL[table].get(name)
            column = Column(name=name, type=kind, optional=optional, default=default)
            listed.append(column)
        columns[table] = tuple(listed)
    return Shape(columns, ENUMERATIONS)


def known_part(value: object) -> object:
    """Return a model's fields without what a later version adds to them; any other value as it is."""
    if isinstance(value, BaseModel):
        return value.model_dump(include=set(type(value).model_fields))
    return value
