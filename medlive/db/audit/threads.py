"""Threads and cases, by where they stand."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ARRAY, Text, cast, exists, func, literal_column, select
from sqlalchemy.dialects.postgresql import aggregate_order_by

from medlive.curation.model import Alignment
from medlive.db.audit.listing import define_listing, has_words
from medlive.db.tables.audit import ThreadStandingRow
from medlive.db.tables.base import AnyText
from medlive.db.tables.decisions import (
    ClaimEvidenceRow,
    ClaimVerdictRow,
    CurationRow,
    PassageRow,
)
from medlive.db.tables.intake import ThreadRevisionRow, ThreadRow
from medlive.db.tables.release import CaseRevisionRow, CaseRow
from medlive.guard.bounds import TITLE_CHARS_SHOWN

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


@dataclass(frozen=True, slots=True)
class ThreadItem:
    """A thread and where it stands. Its title and detail are as they came: redact them before they are shown."""

    source: str
    thread_id: str
    title: str
    language: str
    stage: str
    outcome: str
    reason: str
    detail: str  # The reason in words
    # What claims were contradicted by: "a2: <passage>: <its words>"
    evidence: tuple[str, ...]
    engine: str
    case_id: str | None
    week: str
    changed_at: datetime
    posted_at: datetime


@dataclass(frozen=True, slots=True)
class CaseItem:
    """A case's latest revision and where it stands."""

    case_id: str
    revision: int
    status: str
    status_reason: str | None
    source: str
    language: str
    specialty: str
    theme: str
    query: str
    engine: str
    publishable: bool
    week: str
    changed_at: datetime
    posted_at: datetime


def cited_words(*which: Any, label: Any = "") -> Any:
    """The passages that some claims' verdicts quote, each with its words, as an array; empty for none."""
    shown = ClaimEvidenceRow
    words = func.coalesce(shown.second_quote, shown.harm_quote, shown.quote)
    line = func.concat(label, PassageRow.id, ": ", words)
    cited = select(
        func.array_agg(aggregate_order_by(line, shown.element_id, shown.position))
    )
    cited = cited.join_from(shown, PassageRow, PassageRow.key == shown.passage_key)
    lines = cited.where(words.is_not(None), *which).scalar_subquery()
    return func.coalesce(lines, cast([], ARRAY(Text)), type_=ARRAY(AnyText))


_AGAINST = exists().where(
    ClaimVerdictRow.curation_id == ClaimEvidenceRow.curation_id,
    ClaimVerdictRow.element_id == ClaimEvidenceRow.element_id,
    ClaimVerdictRow.verdict == Alignment.CONTRADICTED,
)
_SHARED: dict[str, Any] = {
    "facets": FACETS,
    "sorts": {"changed": _S.changed_at, "posted": _S.posted_at},
    "key": (_S.thread_id,),
    "moment": _S.changed_at,
    "search": has_words(_S.words),
}
_HAS_CASE = _S.status != literal_column("''")  # Spelt as in the partial indexes

THREADS = define_listing(
    ThreadItem,
    _S,
    joined=select()
    .select_from(_S)
    .join(ThreadRow, ThreadRow.id == _S.thread_id)
    .join(ThreadRevisionRow, ThreadRevisionRow.id == _S.revision_id)
    .outerjoin(CurationRow, CurationRow.id == _S.curation_id),
    columns={
        "thread_id": ThreadRow.thread_id,
        "title": func.left(ThreadRevisionRow.title, TITLE_CHARS_SHOWN),
        "detail": func.coalesce(CurationRow.detail, "", type_=AnyText()),
        "evidence": cited_words(
            ClaimEvidenceRow.curation_id == _S.curation_id,
            _AGAINST,
            label=func.concat(ClaimEvidenceRow.element_id, ": "),
        ),
    },
    table=select().select_from(_S),
    **_SHARED,
)
CASES = define_listing(
    CaseItem,
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
