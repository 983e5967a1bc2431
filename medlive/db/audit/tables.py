"""Calls with their replies, claims with their evidence, harvests and pages, as listed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    Text,
    case,
    cast,
    func,
    select,
)

from medlive.curation.model import Alignment
from medlive.db.audit.listing import Listing, contains, define_listing, has_words
from medlive.db.audit.threads import CASES, THREADS, cited_words
from medlive.db.tables.audit import ThreadStandingRow
from medlive.db.tables.decisions import (
    AgentCallRow,
    ClaimEvidenceRow,
    ClaimVerdictRow,
    ReplyRow,
)
from medlive.db.tables.intake import FetchRow, HarvestRunRow, ThreadRow

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
    search=has_words(_S.words),
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
    search=has_words(_S.words),
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


LISTINGS: Final[Mapping[str, Listing[Any]]] = {
    "threads": THREADS,
    "cases": CASES,
    "calls": CALLS,
    "claims": CLAIMS,
    "runs": RUNS,
    "pages": PAGES,
}
"""Every table that is listed."""
