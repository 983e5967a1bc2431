"""Calls with their replies, claims with their evidence, harvests, pages, jobs, snapshots and errata, as listed."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    DateTime,
    Integer,
    Text,
    case,
    cast,
    column,
    func,
    select,
    table,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import JSONB

from medlive.curation.model import Alignment
from medlive.db.audit.listing import Listing, contains
from medlive.db.audit.threads import CASES, THREADS, cited_words
from medlive.db.tables.audit import ThreadStandingRow
from medlive.db.tables.decisions import (
    AgentCallRow,
    ClaimEvidenceRow,
    ClaimVerdictRow,
    ReplyRow,
)
from medlive.db.tables.intake import FetchRow, HarvestRunRow, ThreadRow
from medlive.db.tables.release import SnapshotRow, WithdrawalRow

_S = ThreadStandingRow


def _text(column: Any) -> Any:
    """An enum's column as what is stored, so that any value may be asked for."""
    return type_coerce(column, Text)


def _columns(table: Any, row: type[Any]) -> dict[str, Any]:
    return {field.name: getattr(table, field.name) for field in fields(row)}


def _week(moment: Any) -> Any:
    return func.to_char(moment.op("AT TIME ZONE")("UTC"), 'IYYY."W"IW')


@dataclass(frozen=True, slots=True)
class CallItem:
    """A call of an agent, with its reply where there is one."""

    curation_id: int
    position: int
    source: str
    thread_id: str
    task: str
    engine: str
    model: str
    attempt: int
    outcome: str
    problem: str
    replayed: bool
    prompt_digest: str
    request_digest: str
    reply: str | None  # Untouched; None: there is none
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    latency_ms: float | None
    decided_at: datetime


CALLS = Listing(
    row=CallItem,
    query=select()
    .select_from(AgentCallRow)
    .join(_S, _S.curation_id == AgentCallRow.curation_id)
    .join(ThreadRow, ThreadRow.id == _S.thread_id)
    .outerjoin(ReplyRow, ReplyRow.request_digest == AgentCallRow.reply_digest),
    columns={
        name: getattr(AgentCallRow, name)
        for name in (
            "curation_id",
            "position",
            "task",
            "engine",
            "model",
            "attempt",
            "problem",
            "replayed",
            "prompt_digest",
            "request_digest",
        )
    }
    | {
        name: getattr(ReplyRow, name)
        for name in ("input_tokens", "output_tokens", "cost_usd", "latency_ms")
    }
    | {
        "source": _S.source,
        "thread_id": ThreadRow.thread_id,
        "outcome": _text(AgentCallRow.outcome),
        "reply": ReplyRow.text,
        "decided_at": _S.changed_at,
    },
    facets={
        "task": AgentCallRow.task,
        "outcome": _text(AgentCallRow.outcome),
        "engine": AgentCallRow.engine,
        "model": AgentCallRow.model,
        "source": _S.source,
        "language": _S.language,
        "week": _S.week,
    },
    sorts={"decided": _S.changed_at},
    key=(AgentCallRow.curation_id, AgentCallRow.position),
    moment=_S.changed_at,
    words=_S.words,
)


@dataclass(frozen=True, slots=True)
class ClaimItem:
    """A claim with its verdict and the words of the passages that it cites."""

    curation_id: int
    element_id: str
    source: str
    thread_id: str
    claim: str
    verdict: str
    reason: str
    subject: str  # Whether any passage is on its subject: found or not found
    second: str
    second_reason: str | None
    evidence: tuple[str, ...]  # "<passage>: <its words>"
    outcome: str
    decided_at: datetime


_C = ClaimVerdictRow
_SECOND = case(
    (_C.second_false_by_passage.is_(None), ""),
    (_C.verdict == Alignment.CONTRADICTED, "confirmed"),
    else_="not confirmed",
)
_SUBJECT = case((_C.on_subject.is_(True), "found"), else_="not found")

CLAIMS = Listing(
    row=ClaimItem,
    query=select()
    .select_from(_C)
    .join(_S, _S.curation_id == _C.curation_id)
    .join(ThreadRow, ThreadRow.id == _S.thread_id),
    columns={
        name: getattr(_C, name)
        for name in ("curation_id", "element_id", "claim", "reason", "second_reason")
    }
    | {
        "source": _S.source,
        "thread_id": ThreadRow.thread_id,
        "verdict": _text(_C.verdict),
        "second": _SECOND,
        "subject": _SUBJECT,
        "outcome": _S.outcome,
        "decided_at": _S.changed_at,
        "evidence": cited_words(
            ClaimEvidenceRow.curation_id == _C.curation_id,
            ClaimEvidenceRow.element_id == _C.element_id,
        ),
    },
    facets={
        "verdict": _text(_C.verdict),
        "second": _SECOND,
        "subject": _SUBJECT,
        "outcome": _S.outcome,
        "source": _S.source,
        "language": _S.language,
        "week": _S.week,
    },
    sorts={"decided": _S.changed_at},
    key=(_C.curation_id, _C.element_id),
    moment=_S.changed_at,
    words=_S.words,
)


@dataclass(frozen=True, slots=True)
class RunItem:
    """A harvest of a source in a week."""

    id: int
    source: str
    iso_week: str
    outcome: str
    starts: int
    started_at: datetime
    finished_at: datetime | None
    counts: dict[str, Any]
    problem: str | None


RUNS = Listing(
    row=RunItem,
    query=select().select_from(HarvestRunRow),
    columns=_columns(HarvestRunRow, RunItem)
    | {"outcome": _text(HarvestRunRow.outcome)},
    facets={
        "source": HarvestRunRow.source,
        "outcome": _text(HarvestRunRow.outcome),
        "week": _week(HarvestRunRow.started_at),
    },
    sorts={"started": HarvestRunRow.started_at},
    key=(HarvestRunRow.id,),
    moment=HarvestRunRow.started_at,
    search=contains(HarvestRunRow.problem),
)


@dataclass(frozen=True, slots=True)
class PageItem:
    """A page that was asked for."""

    id: int
    run_id: int
    source: str
    kind: str
    thread_id: str | None
    page_number: int
    url: str
    status: int | None
    fetched_at: datetime
    elapsed_ms: int | None
    error: str | None


PAGES = Listing(
    row=PageItem,
    query=select().select_from(FetchRow),
    columns=_columns(FetchRow, PageItem) | {"kind": _text(FetchRow.kind)},
    facets={
        "source": FetchRow.source,
        "kind": _text(FetchRow.kind),
        "run": cast(FetchRow.run_id, Text),
        "status": func.coalesce(cast(FetchRow.status, Text), ""),
        "week": _week(FetchRow.fetched_at),
    },
    sorts={"fetched": FetchRow.id},
    key=(),
    moment=FetchRow.fetched_at,
    search=contains(FetchRow.url, FetchRow.error),
)


@dataclass(frozen=True, slots=True)
class JobItem:
    """A job of the queue."""

    id: int
    queue: str
    task: str
    status: str
    attempts: int
    args: dict[str, Any]
    queued_at: datetime


_J = table(
    "procrastinate_jobs",
    column("id", BigInteger),
    column("queue_name", Text),
    column("task_name", Text),
    column("status", Text),
    column("attempts", Integer),
    column("args", JSONB),
)
_EVENT = table(
    "procrastinate_events",
    column("job_id", BigInteger),
    column("at", DateTime(timezone=True)),
)
_QUEUED = (
    select(func.min(_EVENT.c.at, type_=DateTime(timezone=True)))
    .where(_EVENT.c.job_id == _J.c.id)
    .scalar_subquery()
)

JOBS = Listing(
    row=JobItem,
    query=select().select_from(_J),
    columns={
        "id": _J.c.id,
        "queue": _J.c.queue_name,
        "task": _J.c.task_name,
        "status": cast(_J.c.status, Text),
        "attempts": _J.c.attempts,
        "args": _J.c.args,
        "queued_at": _QUEUED,
    },
    facets={
        "status": cast(_J.c.status, Text),
        "queue": _J.c.queue_name,
        "task": _J.c.task_name,
        "week": _week(_QUEUED),
    },
    sorts={"queued": _J.c.id},
    key=(),
    moment=_QUEUED,
    search=contains(cast(_J.c.args, Text)),
)


@dataclass(frozen=True, slots=True)
class SnapshotItem:
    """A snapshot."""

    version: str
    parent: str | None
    state: str
    created_at: datetime
    frozen_at: datetime | None
    cases: int | None
    criteria: int | None
    publishable: bool | None
    why_not: list[Any] | None


SNAPSHOTS = Listing(
    row=SnapshotItem,
    query=select().select_from(SnapshotRow),
    columns=_columns(SnapshotRow, SnapshotItem) | {"state": _text(SnapshotRow.state)},
    facets={
        "state": _text(SnapshotRow.state),
        "publishable": func.coalesce(cast(SnapshotRow.publishable, Text), ""),
        "week": _week(SnapshotRow.created_at),
    },
    sorts={"version": SnapshotRow.version},
    key=(),
    moment=SnapshotRow.created_at,
    search=contains(SnapshotRow.version, cast(SnapshotRow.why_not, Text)),
)


@dataclass(frozen=True, slots=True)
class ErratumItem:
    """A case, or a criterion of one, that was withdrawn."""

    id: int
    case_id: str
    criterion_id: str | None
    revision: int
    new_revision: int | None
    kind: str
    reason: str
    withdrawn_by: str | None
    withdrawn_at: datetime


_WHOLE = case((WithdrawalRow.criterion_id.is_(None), "case"), else_="criterion")
ERRATA = Listing(
    row=ErratumItem,
    query=select().select_from(WithdrawalRow),
    columns=_columns(WithdrawalRow, ErratumItem) | {"kind": _text(WithdrawalRow.kind)},
    facets={
        "kind": _text(WithdrawalRow.kind),
        "whole": _WHOLE,
        "week": _week(WithdrawalRow.withdrawn_at),
    },
    sorts={"withdrawn": WithdrawalRow.id},
    key=(),
    moment=WithdrawalRow.withdrawn_at,
    search=contains(WithdrawalRow.case_id, WithdrawalRow.reason),
)

LISTINGS: Final[Mapping[str, Listing[Any]]] = {
    "threads": THREADS,
    "cases": CASES,
    "calls": CALLS,
    "claims": CLAIMS,
    "runs": RUNS,
    "pages": PAGES,
    "jobs": JOBS,
    "snapshots": SNAPSHOTS,
    "errata": ERRATA,
}
"""Every table that is listed."""
