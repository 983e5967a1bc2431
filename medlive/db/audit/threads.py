"""Threads and cases, by where they stand."""

from typing import Any

from sqlalchemy import ARRAY, Text, cast, exists, func, literal_column, select
from sqlalchemy.dialects.postgresql import aggregate_order_by

from medlive.curation.model import Alignment
from medlive.db.audit.listing import Listing, has_words
from medlive.db.tables.audit import ThreadStandingRow
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


def cited_words(*which: Any, label: Any = "") -> Any:
    """The passages that some claims' verdicts quote, each with its words, as an array; empty for none."""
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
    "search": has_words,
}
_HAS_CASE = _S.status != literal_column("''")  # Spelt as in the partial indexes

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
            _AGAINST,
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
