"""Calls with their replies, claims with their evidence, harvests and pages, as listed."""

from sqlalchemy import (
    Text,
    case,
    cast,
    func,
    select,
)

from medlive.curation.model import Alignment
from medlive.db.audit.listing import Listing, contains, has_words
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


CALLS = Listing(
    (
        "curation_id",
        "position",
        "source",
        "thread_id",
        "task",
        "engine",
        "model",
        "attempt",
        "outcome",
        "problem",
        "replayed",
        "prompt_digest",
        "request_digest",
        "reply",
        "input_tokens",
        "output_tokens",
        "cost_usd",
        "latency_ms",
        "decided_at",
    ),
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
    search=has_words,
)


_C = ClaimVerdictRow
CLAIMS = Listing(
    (
        "curation_id",
        "element_id",
        "source",
        "thread_id",
        "claim",
        "verdict",
        "reason",
        "subject",
        "second",
        "second_reason",
        "evidence",
        "outcome",
        "decided_at",
    ),
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
    search=has_words,
)


RUNS = Listing(
    HarvestRunRow.__table__.columns.keys(),
    HarvestRunRow,
    facets=("source", "outcome"),
    sorts={"started": HarvestRunRow.started_at},
    key=(HarvestRunRow.id,),
    moment=HarvestRunRow.started_at,
    search=contains(HarvestRunRow.problem),
)


PAGES = Listing(
    (
        "id",
        "run_id",
        "source",
        "kind",
        "thread_id",
        "page_number",
        "url",
        "status",
        "fetched_at",
        "elapsed_ms",
        "error",
    ),
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


LISTINGS = {
    "threads": THREADS,
    "cases": CASES,
    "calls": CALLS,
    "claims": CLAIMS,
    "runs": RUNS,
    "pages": PAGES,
}
"""Every table that is listed."""
