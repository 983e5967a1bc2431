"""Calls with their replies, claims with their evidence, harvests, pages, jobs, snapshots and errata, as listed."""

from collections.abc import Mapping
from dataclasses import dataclass
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
)
from sqlalchemy.dialects.postgresql import JSONB

from medlive.curation.model import Alignment
from medlive.db.audit.listing import Listing, contains, define_listing
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


CALLS = define_listing(
    CallItem,
    AgentCallRow,
    ReplyRow,
    _S,
    joined=select()
    .select_from(AgentCallRow)
    .join(_S, _S.curation_id == AgentCallRow.curation_id)
    .join(ThreadRow, ThreadRow.id == _S.thread_id)
    .outerjoin(ReplyRow, ReplyRow.request_digest == AgentCallRow.reply_digest),
    columns={
        "thread_id": ThreadRow.thread_id,
        "reply": ReplyRow.text,
        "decided_at": _S.changed_at,
    },
    facets=("task", "outcome", "engine", "model", "source", "language", "week"),
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
CLAIMS = define_listing(
    ClaimItem,
    _C,
    _S,
    joined=select()
    .select_from(_C)
    .join(_S, _S.curation_id == _C.curation_id)
    .join(ThreadRow, ThreadRow.id == _S.thread_id),
    columns={
        "thread_id": ThreadRow.thread_id,
        "second": case(
            (_C.second_false_by_passage.is_(None), ""),
            (_C.verdict == Alignment.CONTRADICTED, "confirmed"),
            else_="not confirmed",
        ),
        "subject": case((_C.on_subject.is_(True), "found"), else_="not found"),
        "decided_at": _S.changed_at,
        "evidence": cited_words(
            ClaimEvidenceRow.curation_id == _C.curation_id,
            ClaimEvidenceRow.element_id == _C.element_id,
        ),
    },
    facets=("verdict", "second", "subject", "outcome", "source", "language", "week"),
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


RUNS = define_listing(
    RunItem,
    HarvestRunRow,
    facets=("source", "outcome"),
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


PAGES = define_listing(
    PageItem,
    FetchRow,
    facets=("source", "kind"),
    further={
        "run": cast(FetchRow.run_id, Text),
        "status": func.coalesce(cast(FetchRow.status, Text), ""),
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

JOBS = define_listing(
    JobItem,
    _J.c,
    columns={
        "queue": _J.c.queue_name,
        "task": _J.c.task_name,
        "status": cast(_J.c.status, Text),
        "queued_at": _QUEUED,
    },
    joined=select().select_from(_J),
    facets=("status", "queue", "task"),
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


SNAPSHOTS = define_listing(
    SnapshotItem,
    SnapshotRow,
    facets=("state",),
    further={"publishable": func.coalesce(cast(SnapshotRow.publishable, Text), "")},
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


ERRATA = define_listing(
    ErratumItem,
    WithdrawalRow,
    facets=("kind",),
    further={
        "whole": case((WithdrawalRow.criterion_id.is_(None), "case"), else_="criterion")
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
