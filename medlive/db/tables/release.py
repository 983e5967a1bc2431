"""Tables of what goes out: cases, rubrics, reviews, disputes, withdrawals, snapshots and runs of commands."""

from enum import StrEnum
from typing import Any, Literal

from sqlalchemy import (
    ForeignKey,
    Index,
    SmallInteger,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped

from medlive.rubric.model import (
    SPECIALTIES,
    UNKNOWN_SPECIALTY,
    Axis,
    Difficulty,
    Origin,
    Register,
    Theme,
)
from medlive.snapshot.model import WithdrawalKind

from .base import (
    WEEK_FORM,
    Base,
    Digest,
    checks,
    column,
    flag_column,
    float_column,
    integer_column,
    integer_key,
    key_column,
    list_column,
    moment_column,
    now_column,
    number_column,
    object_column,
    one_of,
    optional_flag,
    optional_float,
    optional_integer,
    optional_moment,
    optional_object,
    optional_text,
    refers_to,
    text_column,
    text_key,
)
from .intake import RUN_ENDS, RunOutcome


class CaseStatus(StrEnum):
    """Whether a case may enter the next snapshot."""

    READY = "ready"
    HELD = "held"  # Waits for a person
    REJECTED = "rejected"  # A person rejected it while it was held
    WITHDRAWN = "withdrawn"


SnapshotState = Literal["building", "frozen"]
"""Whether a snapshot may still change."""


class CaseRow(Base):
    """Cases made from threads."""

    __tablename__ = "cases"
    __table_args__ = checks(
        id_form="id ~ '^ml-[0-9a-f]{12,}$'",
        status_has_reason="(status = 'ready') = (status_reason IS NULL)",
    )
    id = text_key("A keyed hash that tells nothing of the thread")
    thread_id = integer_column("The thread", ForeignKey("threads.id"), unique=True)
    status: Mapped[CaseStatus] = column("ready, held, rejected or withdrawn")
    status_reason = optional_text("Why it is not ready; NULL when ready")
    created_at = now_column("When the case was first made")


class CaseRevisionRow(Base):
    """The content of cases, one row for each state; rows are never changed."""

    __tablename__ = "case_revisions"
    __table_args__ = checks(
        one_of("specialty", (*SPECIALTIES, UNKNOWN_SPECIALTY)),
        one_of("language", ("en", "zh")),
        Index(None, "curation_id"),
        revision_positive="revision >= 1",
        ceiling_range="ceiling BETWEEN 0 AND 1",
        floor_range="floor BETWEEN 0 AND 1",
        separation_range="separation BETWEEN 0 AND 1",
        ordinary_range="ordinary BETWEEN 0 AND 1",
        proof_whole="num_nonnulls(ceiling, floor, separation) IN (0, 3)",
        text_not_empty="narrative <> '' AND query <> '' AND advice <> ''",
        unpublishable_has_reason="publishable = (unpublishable_reason IS NULL)",
    )
    case_id = text_key("The case", ForeignKey("cases.id"))
    revision = integer_key("Its place among the revisions, from 1")
    curation_id = integer_column(
        "The decision it came from", ForeignKey("curations.id")
    )
    language = text_column("en or zh")
    source = text_column("The community", ForeignKey("sources.name"))
    posted_at = moment_column("When the thread was opened")
    specialty = text_column("One of the closed list, or unknown")
    theme: Mapped[Theme] = column("What the case chiefly tests")
    narrative = text_column("N")
    query = text_column("Q")
    advice = text_column("A")
    publishable = flag_column("Whether it may be released")
    unpublishable_reason = optional_text("Why not; NULL when it may")
    no_negative = text_column("Why no criterion costs points; empty where one does")
    difficulty: Mapped[Difficulty] = column(
        "low, medium, high or unknown", server_default="unknown"
    )
    dialogue_register: Mapped[Register] = column(
        "Whom it is written for: lay, professional or unknown", server_default="unknown"
    )
    omitted = list_column(
        "What no criterion asks for, each with the step that left it out and its reason",
        server_default="[]",
    )
    asked = list_column(
        "What the query expressly asks: [{id, text}]", server_default="[]"
    )
    conflicts = list_column(
        "Criteria that contradict the advice or one another: [{criterion, other, detail, advice_id}]",
        server_default="[]",
    )
    completion = optional_object(
        "What became of points that the advice lacks; NULL: the rubric was not made complete"
    )
    content_digest: Mapped[Digest] = column(
        "The digest of the texts and of the criteria"
    )
    ceiling = optional_float("The score of the long good answer; NULL: not proved")
    floor = optional_float("The higher score of the bad answers; NULL: not proved")
    separation = optional_float(
        "The lower score of the good answers, less the floor; NULL: not proved"
    )
    ordinary = optional_float(
        "The score of the ordinary answer; NULL: not proved, or without one"
    )
    overruled = optional_text("Why people overruled a confirmed veto; NULL: none was")
    created_at = now_column("When this content was made")


_KEY = ("case_revisions", "case_id", "revision")  # For `refers_to` a case's revision


class CriterionRow(Base):
    """The weighted criteria of case revisions; rows are never changed."""

    __tablename__ = "criteria"
    __table_args__ = checks(
        refers_to(*_KEY),
        UniqueConstraint("case_id", "revision", "position"),
        points_range="points >= -10 AND points <= 10 AND points <> 0",
        criterion_not_empty="criterion <> ''",
        advice_has_element="(origin = 'advice') = (advice_id IS NOT NULL)",
        origin_has_source="(origin = 'advice') = (source = '')",
    )
    case_id = text_key("The case")
    revision = integer_key("The case's revision")
    criterion_id = text_key("c1, c2, … within the case revision")
    position = integer_column("Its place in the rubric", type_=SmallInteger)
    criterion = text_column("What is met or not met")
    axis: Mapped[Axis] = column("What it measures")
    points = integer_column("Its weight; the sign is the polarity", type_=SmallInteger)
    advice_id = optional_text(
        "The advice element it came from; NULL: it came from no advice"
    )
    fact = optional_text(
        "The fact that it asks for; NULL: written before facts were listed"
    )
    origin: Mapped[Origin] = column(
        "What it rests on: advice, evidence or consensus", server_default="advice"
    )
    source = text_column(
        "For evidence the passage, for consensus the models that named it, else empty",
        server_default="",
    )
    tier = text_column(
        "decisive or further; empty where it was made before tiers", server_default=""
    )
    asked = text_column(
        "The part of the query that it answers directly; empty for none",
        server_default="",
    )
    likely = text_column(
        "Of a penalty: the mistake it was drawn from, or why answers commit it; else empty",
        server_default="",
    )


class SnapshotRow(Base):
    """Snapshots; a frozen one and its members cannot be changed or deleted."""

    __tablename__ = "snapshots"
    __table_args__ = checks(
        version_form=f"version ~ '{WEEK_FORM}'",
        parent_is_earlier="parent < version",
        frozen_is_whole="(state = 'frozen') = (num_nonnulls(frozen_at, manifest, manifest_digest, cases, criteria, "
        "publishable, why_not, path) = 8)",
        counts_not_negative="cases >= 0 AND criteria >= 0",
        unpublishable_has_reason="publishable = (jsonb_array_length(why_not) = 0)",
        identity_when_frozen="(state = 'frozen' OR sums_digest IS NULL)"
        " AND (sums_digest IS NOT NULL OR signature IS NULL)",
    )
    version = text_key("The ISO week, YYYY.WNN")
    parent = optional_text(
        "The snapshot before; NULL for the first", ForeignKey("snapshots.version")
    )
    state: Mapped[SnapshotState] = column("building or frozen")
    created_at = now_column("When it was begun")
    frozen_at = optional_moment("When it was frozen")
    manifest = optional_object("The manifest as written", deferred=True)
    manifest_digest: Mapped[Digest | None] = column(
        "The digest of manifest.json's bytes"
    )
    cases = optional_integer("How many cases it holds")
    criteria = optional_integer("How many criteria it holds")
    publishable = optional_flag("Whether it may be released")
    why_not: Mapped[list[Any] | None] = column(
        "The reasons why it may not; empty when it may"
    )
    path = optional_text("Where its folder was written")
    meta = optional_object(
        "What it says of itself, as it was fixed with its members; NULL: frozen before format 2",
        deferred=True,
    )
    sums_digest: Mapped[Digest | None] = column(
        "The digest of SHA256SUMS: the folder's identity; NULL: frozen before format 2"
    )
    signature = optional_text("The text of SHA256SUMS.minisig; NULL: unsigned")


def snapshot_key() -> Mapped[str]:
    """The first column of the primary key of a snapshot's parts."""
    return key_column("The snapshot", ForeignKey("snapshots.version"))


class SnapshotMemberRow(Base):
    """The case revisions of snapshots."""

    __tablename__ = "snapshot_members"
    __table_args__ = checks(
        refers_to(*_KEY),
        Index(None, "case_id"),
        released_before="first_release <= version",
        held_whole="num_nonnulls(held_since, salt, commitment) IN (0, 3)",
        held_or_shown="first_release IS NOT NULL OR held_since IS NOT NULL",
        revealed_after="held_since IS NULL OR first_release IS NULL"
        " OR (first_release = version AND held_since < version)",
        held_before="held_since <= version",
        salt_form="salt ~ '^[0-9a-f]{64}$'",
    )
    version = snapshot_key()
    case_id = text_key("The case")
    revision = integer_column("The case's revision")
    first_release = optional_text(
        "The first snapshot that shows the case; NULL: it is held out",
        ForeignKey("snapshots.version"),
    )
    held_since = optional_text(
        "The snapshot that it was first held out of; NULL: it is shown, and not for the first time",
        ForeignKey("snapshots.version"),
    )
    salt = optional_text(
        "What keeps its commitment from being guessed back, 64 hexadecimal digits"
    )
    commitment: Mapped[Digest | None] = column(
        "The digest that stands for it while it is held out"
    )


class SnapshotChangeRow(Base):
    """What changed since the parent, as snapshots publish it."""

    __tablename__ = "snapshot_changes"
    __table_args__ = checks(
        kind_known="kind IN ('added', 'revised', 'withdrawn', 'dropped')",
        reason_not_empty="reason <> ''",
        revisions_of_kind="(from_revision IS NOT NULL) = (kind IN ('revised', 'withdrawn'))"
        " AND (to_revision IS NOT NULL) = (kind IN ('added', 'revised'))",
        dropped_was_held="num_nonnulls(held_since, commitment) = CASE kind WHEN 'dropped' THEN 2 ELSE 0 END",
    )
    version = snapshot_key()
    case_id = text_key("The case")
    kind = text_column("added, revised, withdrawn, or dropped while held out")
    reason = text_column("Why, as it is published")
    from_revision = optional_integer("The revision in the parent; NULL: none was shown")
    to_revision = optional_integer("The revision in this one; NULL: none is shown")
    held_since = optional_text(
        "Since when a dropped case was held out; NULL: it was not"
    )
    commitment = optional_text("What stood for a dropped case; NULL: it was shown")


class SnapshotKeptOutRow(Base):
    """Ready cases that the gates kept out of snapshots."""

    __tablename__ = "snapshot_kept_out"
    __table_args__ = checks(position_positive="position >= 1")
    version = snapshot_key()
    case_id = text_key("A case that was ready")
    position = integer_key("The reason's place, from 1", type_=SmallInteger)
    gate = text_column("The gate that kept it out")
    detail = text_column("Why; never the words it was found in")


class CaseGatesRow(Base):
    """What the release gates found in case revisions, so that none is read twice by them."""

    __tablename__ = "case_gates"
    __table_args__ = checks(
        refers_to(*_KEY, ondelete="CASCADE"),
        hits_listed="jsonb_typeof(hits) = 'array'",
    )
    case_id = text_key("The case")
    revision = integer_key("The case's revision")
    gates_digest: Mapped[Digest] = key_column(
        "What decided: the gates' code and libraries"
    )
    hits = list_column("[[gate, detail]]; empty: nothing keeps it out")
    checked_at = now_column("When it was checked")


class EvaluationRunRow(Base):
    """Evaluations that were recorded; the run folder is the log."""

    __tablename__ = "evaluation_runs"

    id = number_column("The record's number")
    run_digest: Mapped[Digest] = column("The digest of the run", unique=True)
    snapshot_version = text_column("The snapshot evaluated on, ours or another's")
    model = text_column("The model evaluated")
    grader = text_column("The grader")
    path = text_column("The run folder")
    scores = object_column("The scores with their metric's name")
    """`metric`, and `overall` with `mean`, `low`, `high` (shares from 0 to 1, or None) and `n` cases."""
    created_at = now_column("When it was recorded")


class PipelineRunRow(Base):
    """The program's own runs: which code with which settings did what."""

    __tablename__ = "pipeline_runs"
    __table_args__ = checks(
        iso_week_form=f"iso_week ~ '{WEEK_FORM}'", ends_when_not_running=RUN_ENDS
    )
    id = number_column("The run's number")
    command = text_column("The command")
    week = optional_text("The ISO week it worked for; NULL: none", "iso_week")
    code_version = text_column("medlive's version")
    settings = object_column("The effective settings, without secrets")
    started_at = now_column("When it began")
    finished_at = optional_moment("When it ended; NULL while it runs")
    outcome: Mapped[RunOutcome] = column("running, done, partial or failed")
    counts = object_column("What happened", server_default="{}")
    log = list_column(
        "The last lines that it logged, without secrets", server_default="[]"
    )
    failed = partial = False  # No columns: `recorded_run` sets the outcome by them


class CircuitRow(Base):
    """Models at endpoints that are not asked for a while, since they failed too often."""

    __tablename__ = "circuits"
    key = text_key("The digest of address, key and model")
    endpoint = text_column("Host, port and model")
    cause = text_column("What was wrong last")
    of_replies = flag_column("Whether replies came and could not be used")
    opened_at = moment_column("Since when nothing is asked")
    retry_at = moment_column("When one call is let through")
    backoff_s = float_column("Seconds between such calls")


class ComponentRow(Base):
    """Libraries that keep tables here, and how far their schema has come."""

    __tablename__ = "components"
    name = text_key("The library")
    migration = text_column("The last of its migrations that is applied")


class ReviewAction(StrEnum):
    """What a person does with a case."""

    APPROVE = "approve"
    REJECT = "reject"
    DROP_ELEMENT = "drop_element"
    EDIT = "edit"


class ReviewRow(Base):
    """What people decided about cases; rows are never changed."""

    __tablename__ = "reviews"
    __table_args__ = checks(
        refers_to(*_KEY),
        Index(None, "case_id", "revision"),
        element_is_named="(action = 'drop_element') = (element_id IS NOT NULL)",
        reason_length="char_length(reason) BETWEEN 1 AND 2000",
    )
    number = number_column("The decision's number", "id")
    case_id = text_column("The case")
    revision = integer_column("The revision that was looked at, or that an edit made")
    action: Mapped[ReviewAction] = column("approve, reject, drop_element or edit")
    element_id = optional_text("The advice element that was dropped; NULL: none")
    reason = text_column("Why")
    decided_by = optional_text("Who; NULL: not said")
    decided_at = now_column("When")


class IdentifierScanRow(Base):
    """Which case revisions were looked through for identifiers; rows are never changed."""

    __tablename__ = "identifier_scans"
    __table_args__ = (refers_to(*_KEY),)
    case_id = text_key("The case", ForeignKey("cases.id"))
    revision = integer_key("Its revision")
    scanner: Mapped[Digest] = key_column("The instructions and the engine that looked")
    found = integer_column("How many identifiers were found")
    scanned_at = now_column("When")


class WithdrawalRow(Base):
    """Withdrawn cases and criteria; rows are never changed."""

    __tablename__ = "withdrawals"
    __table_args__ = checks(
        Index(None, "case_id"),
        revisions_in_order="revision >= 1 AND new_revision > revision",
        criterion_is_whole="(criterion_id IS NULL) = (criterion_digest IS NULL)"
        " AND (criterion_id IS NOT NULL OR new_revision IS NULL)",
        reason_length="char_length(reason) BETWEEN 1 AND 500",
    )
    number = number_column("The withdrawal's number", "id")
    case_id = text_column("The case", ForeignKey("cases.id"))
    revision = integer_column("The case's revision that it was withdrawn from")
    criterion_id = optional_text(
        "The criterion's id within that revision; NULL: the whole case"
    )
    criterion_digest: Mapped[Digest | None] = column(
        "The digest of the criterion's folded text, by which it is known in other revisions"
    )
    new_revision = optional_integer(
        "The revision without the criterion that this made; NULL: none was needed"
    )
    kind: Mapped[WithdrawalKind] = column("erratum, takedown or privacy")
    reason = text_column("Why, in words for the public")
    withdrawn_by = optional_text("Who withdrew it; NULL: unknown")
    withdrawn_at = now_column("When it was withdrawn")


class ReinstatementRow(Base):
    """Withdrawals that were undone, who and why stands in the audit log; rows are never changed."""

    __tablename__ = "reinstatements"
    withdrawal_id = integer_key("The withdrawal", ForeignKey("withdrawals.id"))
    case_id = text_column("Its case", ForeignKey("cases.id"))
    reinstated_at = now_column("When it was undone")


class DisputeRow(Base):
    """Disputes; a case with an open one stays out of the next snapshot."""

    __tablename__ = "disputes"
    __table_args__ = checks(
        Index(None, "case_id", postgresql_where="closed_at IS NULL"),
        reason_length="char_length(reason) BETWEEN 1 AND 2000",
        resolution_length="char_length(resolution) BETWEEN 1 AND 2000",
        closed_is_whole="(closed_at IS NULL) = (resolution IS NULL)"
        " AND (closed_at IS NOT NULL OR closed_by IS NULL)",
    )
    number = number_column("The dispute's number", "id")
    case_id = text_column("The case", ForeignKey("cases.id"))
    criterion_id = optional_text(
        "The criterion's id within its case; NULL: the whole case"
    )
    reason = text_column("What is objected to; not published")
    opened_by = optional_text("Who opened it; NULL: unknown")
    opened_at = now_column("When it was opened")
    closed_at = optional_moment("When it was closed; NULL: it is open")
    closed_by = optional_text("Who closed it; NULL: unknown, or it is open")
    resolution = optional_text("What came of it; NULL: it is open")
