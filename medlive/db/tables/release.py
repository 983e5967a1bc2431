"""Tables of what goes out: cases and their rubrics, snapshots, evaluation runs, and the program's own runs."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    SmallInteger,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from medlive.db.tables.base import Base, enum_column, is_digest, now_column, one_of
from medlive.db.tables.intake import RUN_ENDS, RunOutcome
from medlive.rubric.model import SPECIALTIES, UNKNOWN_SPECIALTY, Axis, Theme

_WEEK = r"^\d{4}\.W(0[1-9]|[1-4]\d|5[0-3])$"


class CaseStatus(StrEnum):
    """Whether a case may enter the next snapshot."""

    READY = "ready"
    HELD = "held"
    """Waits for a person."""
    REJECTED = "rejected"
    """A person rejected it while it was held."""
    WITHDRAWN = "withdrawn"


class SnapshotState(StrEnum):
    """Whether a snapshot may still change."""

    BUILDING = "building"
    FROZEN = "frozen"


class CaseRow(Base):
    """A benchmark case, whatever its wording is at present."""

    __tablename__ = "cases"
    __table_args__ = (
        one_of("status", CaseStatus),
        CheckConstraint("id ~ '^ml-[0-9a-f]{12,}$'", name="id_form"),
        CheckConstraint("(status = 'ready') = (status_reason IS NULL)", name="status_has_reason"),
        {"comment": "Cases made from threads"},
    )

    id: Mapped[str] = mapped_column(primary_key=True, comment="A keyed hash that tells nothing of the thread")
    thread_id: Mapped[int] = mapped_column(ForeignKey("threads.id"), unique=True, comment="The thread")
    status: Mapped[CaseStatus] = enum_column(CaseStatus, comment="ready, held, rejected or withdrawn")
    status_reason: Mapped[str | None] = mapped_column(comment="Why it is not ready; NULL when ready")
    created_at: Mapped[datetime] = now_column("When the case was first made")


class CaseRevisionRow(Base):
    """A case's content as it once was."""

    __tablename__ = "case_revisions"
    __table_args__ = (
        one_of("theme", Theme),
        one_of("specialty", (*SPECIALTIES, UNKNOWN_SPECIALTY)),
        one_of("language", ("en", "zh")),
        is_digest("content_digest"),
        CheckConstraint("revision >= 1", name="revision_positive"),
        CheckConstraint("narrative <> '' AND query <> '' AND advice <> ''", name="text_not_empty"),
        CheckConstraint("publishable = (unpublishable_reason IS NULL)", name="unpublishable_has_reason"),
        Index(None, "curation_id"),
        {"comment": "The content of cases, one row for each state; rows are never changed"},
    )

    case_id: Mapped[str] = mapped_column(ForeignKey("cases.id"), primary_key=True, comment="The case")
    revision: Mapped[int] = mapped_column(primary_key=True, comment="Its place among the revisions, from 1")
    curation_id: Mapped[int] = mapped_column(ForeignKey("curations.id"), comment="The decision it came from")
    language: Mapped[str] = mapped_column(comment="en or zh")
    source: Mapped[str] = mapped_column(ForeignKey("sources.name"), comment="The community")
    posted_at: Mapped[datetime] = mapped_column(comment="When the thread was opened")
    specialty: Mapped[str] = mapped_column(comment="One of the closed list, or unknown")
    theme: Mapped[Theme] = enum_column(Theme, comment="What the case chiefly tests")
    narrative: Mapped[str] = mapped_column(comment="N")
    query: Mapped[str] = mapped_column(comment="Q")
    advice: Mapped[str] = mapped_column(comment="A")
    publishable: Mapped[bool] = mapped_column(comment="Whether it may be released")
    unpublishable_reason: Mapped[str | None] = mapped_column(comment="Why not; NULL when it may")
    no_negative: Mapped[str] = mapped_column(comment="Why no criterion costs points; empty where one does")
    content_digest: Mapped[str] = mapped_column(comment="The digest of the texts and of the criteria")
    created_at: Mapped[datetime] = now_column("When this content was made")


class CriterionRow(Base):
    """A rubric criterion of a case revision."""

    __tablename__ = "criteria"
    __table_args__ = (
        ForeignKeyConstraint(["case_id", "revision"], ["case_revisions.case_id", "case_revisions.revision"]),
        UniqueConstraint("case_id", "revision", "position"),
        one_of("axis", Axis),
        CheckConstraint("points BETWEEN -10 AND 10 AND points <> 0", name="points_range"),
        CheckConstraint("criterion <> ''", name="criterion_not_empty"),
        {"comment": "The weighted criteria of case revisions; rows are never changed"},
    )

    case_id: Mapped[str] = mapped_column(primary_key=True, comment="The case")
    revision: Mapped[int] = mapped_column(primary_key=True, comment="The case's revision")
    criterion_id: Mapped[str] = mapped_column(primary_key=True, comment="c1, c2, … within the case revision")
    position: Mapped[int] = mapped_column(SmallInteger, comment="Its place in the rubric")
    criterion: Mapped[str] = mapped_column(comment="What is met or not met")
    axis: Mapped[Axis] = enum_column(Axis, comment="What it measures")
    points: Mapped[int] = mapped_column(SmallInteger, comment="Its weight; the sign is the polarity")
    advice_id: Mapped[str] = mapped_column(comment="The advice element it came from")
    fact: Mapped[str | None] = mapped_column(
        comment="The fact of that element that it asks for; NULL: written before facts were listed"
    )


class SnapshotRow(Base):
    """A weekly release."""

    __tablename__ = "snapshots"
    __table_args__ = (
        one_of("state", SnapshotState),
        is_digest("manifest_digest"),
        CheckConstraint(f"version ~ '{_WEEK}'", name="version_form"),
        CheckConstraint("parent < version", name="parent_is_earlier"),
        CheckConstraint(
            "(state = 'frozen') = (num_nonnulls(frozen_at, manifest, manifest_digest, cases, criteria, "
            "publishable, why_not, path) = 8)",
            name="frozen_is_whole",
        ),
        CheckConstraint("cases >= 0 AND criteria >= 0", name="counts_not_negative"),
        CheckConstraint("publishable = (jsonb_array_length(why_not) = 0)", name="unpublishable_has_reason"),
        is_digest("sums_digest"),
        CheckConstraint(
            "(state = 'frozen' OR sums_digest IS NULL) AND (sums_digest IS NOT NULL OR signature IS NULL)",
            name="identity_when_frozen",
        ),
        {"comment": "Snapshots; a frozen one and its members cannot be changed or deleted"},
    )

    version: Mapped[str] = mapped_column(primary_key=True, comment="The ISO week, YYYY.WNN")
    parent: Mapped[str | None] = mapped_column(
        ForeignKey("snapshots.version"), comment="The snapshot before; NULL for the first"
    )
    state: Mapped[SnapshotState] = enum_column(SnapshotState, comment="building or frozen")
    created_at: Mapped[datetime] = now_column("When it was begun")
    frozen_at: Mapped[datetime | None] = mapped_column(comment="When it was frozen")
    manifest: Mapped[dict[str, Any] | None] = mapped_column(comment="The manifest as written")
    manifest_digest: Mapped[str | None] = mapped_column(comment="The digest of manifest.json's bytes")
    cases: Mapped[int | None] = mapped_column(comment="How many cases it holds")
    criteria: Mapped[int | None] = mapped_column(comment="How many criteria it holds")
    publishable: Mapped[bool | None] = mapped_column(comment="Whether it may be released")
    why_not: Mapped[list[Any] | None] = mapped_column(comment="The reasons why it may not; empty when it may")
    path: Mapped[str | None] = mapped_column(comment="Where its folder was written")
    meta: Mapped[dict[str, Any] | None] = mapped_column(
        comment="What it says of itself, as it was fixed with its members; NULL: frozen before format 2"
    )
    sums_digest: Mapped[str | None] = mapped_column(
        comment="The digest of SHA256SUMS: the folder's identity; NULL: frozen before format 2"
    )
    signature: Mapped[str | None] = mapped_column(comment="The text of SHA256SUMS.minisig; NULL: unsigned")


class SnapshotMemberRow(Base):
    """A case revision in a snapshot."""

    __tablename__ = "snapshot_members"
    __table_args__ = (
        ForeignKeyConstraint(["case_id", "revision"], ["case_revisions.case_id", "case_revisions.revision"]),
        CheckConstraint("first_release <= version", name="released_before"),
        CheckConstraint("num_nonnulls(held_since, salt, commitment) IN (0, 3)", name="held_whole"),
        CheckConstraint("first_release IS NOT NULL OR held_since IS NOT NULL", name="held_or_shown"),
        CheckConstraint(
            "held_since IS NULL OR first_release IS NULL OR (first_release = version AND held_since < version)",
            name="revealed_after",
        ),
        CheckConstraint("held_since <= version", name="held_before"),
        CheckConstraint("salt ~ '^[0-9a-f]{64}$'", name="salt_form"),
        is_digest("commitment"),
        Index(None, "case_id"),
        {"comment": "The case revisions of snapshots"},
    )

    version: Mapped[str] = mapped_column(ForeignKey("snapshots.version"), primary_key=True, comment="The snapshot")
    case_id: Mapped[str] = mapped_column(primary_key=True, comment="The case")
    revision: Mapped[int] = mapped_column(comment="The case's revision")
    first_release: Mapped[str | None] = mapped_column(
        ForeignKey("snapshots.version"), comment="The first snapshot that shows the case; NULL: it is held out"
    )
    held_since: Mapped[str | None] = mapped_column(
        ForeignKey("snapshots.version"),
        comment="The snapshot that it was first held out of; NULL: it is shown, and not for the first time",
    )
    salt: Mapped[str | None] = mapped_column(
        comment="What keeps its commitment from being guessed back, 64 hexadecimal digits"
    )
    commitment: Mapped[str | None] = mapped_column(comment="The digest that stands for it while it is held out")


class SnapshotChangeRow(Base):
    """What became of a case since the parent of a snapshot."""

    __tablename__ = "snapshot_changes"
    __table_args__ = (
        CheckConstraint("kind IN ('added', 'revised', 'withdrawn', 'dropped')", name="kind_known"),
        CheckConstraint("reason <> ''", name="reason_not_empty"),
        CheckConstraint(
            "(from_revision IS NOT NULL) = (kind IN ('revised', 'withdrawn'))"
            " AND (to_revision IS NOT NULL) = (kind IN ('added', 'revised'))",
            name="revisions_of_kind",
        ),
        CheckConstraint(
            "num_nonnulls(held_since, commitment) = CASE kind WHEN 'dropped' THEN 2 ELSE 0 END",
            name="dropped_was_held",
        ),
        {"comment": "What changed since the parent, as snapshots publish it"},
    )

    version: Mapped[str] = mapped_column(ForeignKey("snapshots.version"), primary_key=True, comment="The snapshot")
    case_id: Mapped[str] = mapped_column(primary_key=True, comment="The case")
    kind: Mapped[str] = mapped_column(comment="added, revised, withdrawn, or dropped while held out")
    reason: Mapped[str] = mapped_column(comment="Why, as it is published")
    from_revision: Mapped[int | None] = mapped_column(comment="The revision in the parent; NULL: none was shown")
    to_revision: Mapped[int | None] = mapped_column(comment="The revision in this one; NULL: none is shown")
    held_since: Mapped[str | None] = mapped_column(
        comment="Since when a dropped case was held out; NULL: it was not"
    )
    commitment: Mapped[str | None] = mapped_column(comment="What stood for a dropped case; NULL: it was shown")


class SnapshotKeptOutRow(Base):
    """A reason why a ready case is not in a snapshot."""

    __tablename__ = "snapshot_kept_out"
    __table_args__ = (
        CheckConstraint("position >= 1", name="position_positive"),
        {"comment": "Ready cases that the gates kept out of snapshots"},
    )

    version: Mapped[str] = mapped_column(ForeignKey("snapshots.version"), primary_key=True, comment="The snapshot")
    case_id: Mapped[str] = mapped_column(primary_key=True, comment="A case that was ready")
    position: Mapped[int] = mapped_column(SmallInteger, primary_key=True, comment="The reason's place, from 1")
    gate: Mapped[str] = mapped_column(comment="The gate that kept it out")
    detail: Mapped[str] = mapped_column(comment="Why; never the words it was found in")


class CaseGatesRow(Base):
    """What the release gates found in a case revision."""

    __tablename__ = "case_gates"
    __table_args__ = (
        ForeignKeyConstraint(
            ["case_id", "revision"], ["case_revisions.case_id", "case_revisions.revision"], ondelete="CASCADE"
        ),
        is_digest("gates_digest"),
        CheckConstraint("jsonb_typeof(hits) = 'array'", name="hits_listed"),
        {"comment": "What the release gates found in case revisions, so that none is read twice by them"},
    )

    case_id: Mapped[str] = mapped_column(primary_key=True, comment="The case")
    revision: Mapped[int] = mapped_column(primary_key=True, comment="The case's revision")
    gates_digest: Mapped[str] = mapped_column(
        primary_key=True, comment="What decided: the gates' code and libraries"
    )
    hits: Mapped[list[Any]] = mapped_column(comment="[[gate, detail]]; empty: nothing keeps it out")
    checked_at: Mapped[datetime] = now_column("When it was checked")


class EvaluationRunRow(Base):
    """A model's evaluation, as its run folder tells it."""

    __tablename__ = "evaluation_runs"
    __table_args__ = (
        is_digest("run_digest"),
        {"comment": "Evaluations that were recorded; the run folder is the log"},
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="The record's number")
    run_digest: Mapped[str] = mapped_column(unique=True, comment="The digest of the run")
    snapshot_version: Mapped[str] = mapped_column(comment="The snapshot evaluated on, ours or another's")
    model: Mapped[str] = mapped_column(comment="The model evaluated")
    grader: Mapped[str] = mapped_column(comment="The grader")
    path: Mapped[str] = mapped_column(comment="The run folder")
    scores: Mapped[dict[str, Any]] = mapped_column(comment="The scores with their metric's name")
    created_at: Mapped[datetime] = now_column("When it was recorded")


class PipelineRunRow(Base):
    """One command that changed something."""

    __tablename__ = "pipeline_runs"
    __table_args__ = (
        one_of("outcome", RunOutcome),
        CheckConstraint(f"iso_week ~ '{_WEEK}'", name="iso_week_form"),
        CheckConstraint(RUN_ENDS, name="ends_when_not_running"),
        {"comment": "The program's own runs: which code with which settings did what"},
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="The run's number")
    command: Mapped[str] = mapped_column(comment="The command")
    iso_week: Mapped[str | None] = mapped_column(comment="The ISO week it worked for; NULL: none")
    code_version: Mapped[str] = mapped_column(comment="medlive's version")
    settings: Mapped[dict[str, Any]] = mapped_column(comment="The effective settings, without secrets")
    started_at: Mapped[datetime] = now_column("When it began")
    finished_at: Mapped[datetime | None] = mapped_column(comment="When it ended; NULL while it runs")
    outcome: Mapped[RunOutcome] = enum_column(RunOutcome, comment="running, done or failed")
    counts: Mapped[dict[str, Any]] = mapped_column(server_default="{}", comment="What happened")


class ComponentRow(Base):
    """How far a library's own tables have been brought."""

    __tablename__ = "components"
    __table_args__ = ({"comment": "Libraries that keep tables here, and how far their schema has come"},)

    name: Mapped[str] = mapped_column(primary_key=True, comment="The library")
    migration: Mapped[str] = mapped_column(comment="The last of its migrations that is applied")
