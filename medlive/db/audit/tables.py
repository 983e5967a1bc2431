"""The lists behind the audit pages, each a `Listing`: threads, cases, engine calls with replies, claims with evidence,
harvest runs and fetched pages. `LISTINGS` names them; the CLI reads `THREADS` and `CASES` too."""

from typing import Any

from sqlalchemy import ARRAY, Text, case, cast, exists, func, literal_column, select
from sqlalchemy.dialects.postgresql import aggregate_order_by

from medlive.curation.model import Alignment
from medlive.db.tables.decisions import (
    AgentCallRow,
    ClaimEvidenceRow,
    ClaimVerdictRow,
    CurationRow,
    PassageRow,
    ReplyRow,
)
from medlive.db.tables.intake import (
    FetchRow,
    HarvestRunRow,
    ThreadRevisionRow,
    ThreadRow,
)
from medlive.db.tables.release import CaseRevisionRow, CaseRow
from medlive.db.tables.work import ThreadStandingRow
from medlive.guard.bounds import TITLE_CHARS_SHOWN

from .listing import Listing, contains

_S = ThreadStandingRow
FACETS = (
    "source",
    "language",
    "stage",
    "outcome",
    "reason",
    "engine",
    "specialty",
    "status",
    "week",
)
"""Columns of `thread_standings` by which threads and cases are filtered and counted."""


def cited_words(*which: Any, label: Any = "") -> Any:
    """SQL for an array of "label passage-id: quoted words", a line for each quoted passage; empty for none.

    `which` are the conditions that select rows of `claim_evidence`; `label` is SQL too.
    """
    words = func.coalesce(
        ClaimEvidenceRow.second_quote,
        ClaimEvidenceRow.harm_quote,
        ClaimEvidenceRow.quote,
    )
    line = func.concat(label, PassageRow.id, ": ", words)
    cited = select(
        func.array_agg(
            aggregate_order_by(
                line, ClaimEvidenceRow.element_id, ClaimEvidenceRow.position
            )
        )
    )
    cited = cited.join_from(
        ClaimEvidenceRow, PassageRow, PassageRow.key == ClaimEvidenceRow.passage_key
    )
    lines = cited.where(words.is_not(None), *which).scalar_subquery()
    return func.coalesce(lines, cast([], ARRAY(Text)))


# The claim of a row of `claim_evidence` is contradicted.
_CONTRADICTED = exists().where(
    ClaimVerdictRow.curation_id == ClaimEvidenceRow.curation_id,
    ClaimVerdictRow.element_id == ClaimEvidenceRow.element_id,
    ClaimVerdictRow.verdict == Alignment.CONTRADICTED,
)
_SHARED: dict[str, Any] = {
    "facets": FACETS,
    "sorts": {"changed": _S.changed_at, "posted": _S.posted_at},
    "key": (_S.thread_id,),
}
_HAS_CASE = _S.status != literal_column("''")  # Spelt as in the partial indexes

# Each list: the columns shown; the row classes in which they are looked up by name, the first match counts; then as
# `Listing` says. `evidence` of a thread has the passages that contradict its advice.
THREADS = Listing(
    (
        "source",
        "thread_id",
        "title",
        "language",
        "stage",
        "outcome",
        "reason",
        "detail",
        "evidence",
        "engine",
        "case_id",
        "week",
        "changed_at",
        "posted_at",
    ),
    _S,
    joined=select()
    .select_from(_S)
    .join(ThreadRow, ThreadRow.id == _S.thread_id)
    .join(ThreadRevisionRow, ThreadRevisionRow.id == _S.revision_id)
    .outerjoin(CurationRow, CurationRow.id == _S.curation_id),
    columns={
        "thread_id": ThreadRow.thread_id,
        "title": func.left(ThreadRevisionRow.title, TITLE_CHARS_SHOWN),
        "detail": func.coalesce(CurationRow.detail, ""),
        "evidence": cited_words(
            ClaimEvidenceRow.curation_id == _S.curation_id,
            _CONTRADICTED,
            label=func.concat(ClaimEvidenceRow.element_id, ": "),
        ),
    },
    table=select().select_from(_S),
    **_SHARED,
)
CASES = Listing(
    (
        "case_id",
        "revision",
        "status",
        "status_reason",
        "source",
        "language",
        "specialty",
        "theme",
        "query",
        "engine",
        "publishable",
        "week",
        "changed_at",
        "posted_at",
    ),
    _S,
    CaseRevisionRow,
    CaseRow,
    joined=select()
    .select_from(_S)
    .join(CaseRow, CaseRow.id == _S.case_id)
    .join(
        CaseRevisionRow,
        (CaseRevisionRow.case_id == _S.case_id)
        & (CaseRevisionRow.revision == _S.case_revision),
    )
    .where(_HAS_CASE),
    table=select().select_from(_S).where(_HAS_CASE),
    **_SHARED,
)


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
)


RUNS = Listing(
    HarvestRunRow.__table__.columns.keys(),
    HarvestRunRow,
    facets=("source", "outcome"),
    sorts={"started": HarvestRunRow.started_at},
    key=(HarvestRunRow.id,),
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
    facets=("source", "kind", "run_id", "status"),
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
"""Every list, by its name in the address `/audit/NAME`."""
