"""Decisions about threads (curations): stored with all their parts, loaded as they were, and which threads need one.

A thread's *revision* is decided by a *pipeline*: engines, prompts, evidence and settings, known by a digest.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

from sqlalchemy.orm import DeclarativeBase

from medlive.curation import model
from medlive.db.mapping import read, row_of
from medlive.db.session import Session
from medlive.db.tables import decisions as tables
from medlive.db.tables import examinations
from medlive.db.tables.base import Base
from medlive.errors import MedliveError
from medlive.evidence.passage import Hit, IndexIdentity, Passage
from medlive.integrity.digest import digest_json
from medlive.llm.ask import CallOutcome

T = TypeVar("T")
_Rows = list[dict[str, Any]]
_PARTS: Mapping[str, tuple[type[Any], type[Any]]] = {
    "elements": (model.Element, tables.ElementRow),
    "requirements": (model.Requirement, tables.RequirementRow),
    "checks": (model.ControllerCheck, tables.ControllerCheckRow),
    "holds": (model.Hold, examinations.HoldRow),
    "calls": (model.Call, tables.AgentCallRow),
}
"""Field of `Curation` that is a tuple → the class of its items, and their table."""
_UNANSWERED = (CallOutcome.UNAVAILABLE, CallOutcome.OVER_BUDGET)
_OWN = "WHERE curation_id = :curation ORDER BY position"
_EVIDENCE = """
    SELECT * FROM claim_evidence JOIN passages ON key = passage_key WHERE curation_id = :curation ORDER BY position
"""


async def save_curation(
    session: Session,
    revision_pk: int,
    pipeline_digest: str,
    curation: model.Curation,
    *,
    started_at: datetime,
    finished_at: datetime,
) -> int:
    """Store a decision with all its parts; return its number.

    A pipeline decides a revision once: if another process has decided it in the meantime, nothing is stored and that
    decision's number is returned. After a failed attempt it is stored as the next attempt.
    """
    await lock_revision(session, revision_pk)
    latest = await session.first(
        tables.CurationRow,
        "WHERE revision_id = :revision AND pipeline_digest = :pipeline ORDER BY attempt DESC LIMIT 1",
        revision=revision_pk,
        pipeline=pipeline_digest,
    )
    if latest is not None and latest.outcome is not model.Outcome.FAILED:
        return latest.id
    if (index := curation.index) is not None:
        used = row_of(tables.EvidenceIndexRow, index)
        await session.insert_rows(tables.EvidenceIndexRow, [used], skip_known=True)
    values = row_of(
        tables.CurationRow,
        curation,
        revision_id=revision_pk,
        pipeline_digest=pipeline_digest,
        attempt=1 if latest is None else latest.attempt + 1,
        threshold_sufficiency=curation.thresholds.sufficiency,
        threshold_alignment=curation.thresholds.alignment,
        index_digest=index.index_digest if index else None,
        started_at=started_at,
        finished_at=finished_at,
    )
    texts = {} if curation.text is None else asdict(curation.text)
    curation_id = (await session.insert(tables.CurationRow(**values | texts))).id
    await _save_parts(session, curation_id, curation)
    return curation_id


async def latest_curation(
    session: Session, revision_pk: int
) -> tables.CurationRow | None:
    """The latest decision about a thread's revision; None if there is none."""
    return next(iter(await list_curations(session, revision_pk)), None)


async def list_curations(
    session: Session, revision_pk: int
) -> list[tables.CurationRow]:
    """Every decision about a thread's revision, the latest first."""
    return await session.rows(
        tables.CurationRow,
        "WHERE revision_id = :revision ORDER BY id DESC",
        revision=revision_pk,
    )


async def lock_revision(session: Session, revision_pk: int) -> None:
    """Lock a revision until the transaction ends, so that one process at a time stores a decision about it."""
    await session.run(
        "SELECT id FROM thread_revisions WHERE id = :id FOR UPDATE", id=revision_pk
    )


async def is_decided(session: Session, revision_pk: int, pipeline_digest: str) -> bool:
    """Whether this pipeline has decided a revision, or the thread has a later revision, which is decided instead."""
    query = f"""
        SELECT NOT {_IS_LATEST} OR EXISTS (
            SELECT FROM curations WHERE revision_id = r.id AND pipeline_digest = :pipeline AND outcome <> 'failed'
        ) FROM thread_revisions AS r WHERE r.id = :revision
    """
    values = {"revision": revision_pk, "pipeline": pipeline_digest}
    return bool(await session.value(query, **values))


_IS_LATEST = """NOT EXISTS (
    SELECT FROM thread_revisions AS later WHERE later.thread_id = r.thread_id AND later.revision > r.revision
)"""
_COUNTED = "reason NOT IN ('endpoint_unavailable', 'budget_spent')"
"""SQL: failures that count against a thread. An endpoint that is away or a spent budget says nothing about it."""
_FAILED = f"""
    SELECT r.id FROM thread_revisions AS r JOIN curations ON revision_id = r.id WHERE {_IS_LATEST}
    GROUP BY r.id
    HAVING coalesce(
            bool_and(outcome = 'failed') FILTER (WHERE pipeline_digest = :pipeline), bool_and(outcome = 'failed')
        )
        AND (CAST(:most AS int) IS NULL OR count(*) FILTER (
            WHERE pipeline_digest = :pipeline AND {_COUNTED}
        ) < :most)
    ORDER BY r.id
"""


async def untried_revisions(
    session: Session, chain_digest: str, pipeline_digest: str | None = None
) -> list[int]:
    """The threads' latest revisions that passed this filter chain and that this pipeline (None: any pipeline) has not
    tried, oldest first."""
    return await session.column(
        f"""
        SELECT r.id FROM thread_revisions AS r JOIN filter_results AS result ON result.revision_id = r.id
        WHERE chain_digest = :chain AND passed AND {_IS_LATEST} AND NOT EXISTS (
            SELECT FROM curations WHERE curations.revision_id = r.id
                AND (CAST(:pipeline AS text) IS NULL OR pipeline_digest = :pipeline)
        )
        ORDER BY r.id
        """,
        chain=chain_digest,
        pipeline=pipeline_digest,
    )


async def failed_revisions(
    session: Session, pipeline_digest: str, *, max_attempts: int | None = None
) -> list[int]:
    """The threads' latest revisions whose every attempt by this pipeline failed, or, if it has not tried them, every
    attempt by any pipeline; oldest first.

    Only revisions with fewer than `max_attempts` failures by this pipeline that count (None: any number): an endpoint
    that is away, or a spent budget, says nothing about a thread.
    """
    return await session.column(_FAILED, pipeline=pipeline_digest, most=max_attempts)


async def count_failures(
    session: Session, revision_pk: int, pipeline_digest: str
) -> int:
    """How many of this pipeline's attempts at a revision failed for a reason that counts against the thread."""
    query = f"""
        SELECT count(*) FROM curations WHERE revision_id = :revision AND pipeline_digest = :pipeline
            AND outcome = 'failed' AND {_COUNTED}
    """
    return int(
        await session.value(query, revision=revision_pk, pipeline=pipeline_digest)
    )


async def load_curation(session: Session, curation_id: int) -> model.Curation:
    """A decision as it was stored. Raises MedliveError when there is none of that number."""
    row = await session.get(tables.CurationRow, curation_id)
    if row is None:
        raise MedliveError(f"there is no curation {curation_id}")
    optional = ("index", "text", "cross_examination", "second_reading")
    parts: dict[str, Any] = dict.fromkeys(optional)
    for name, (kind, table) in _PARTS.items():
        parts[name] = await _parts(session, curation_id, kind, table)
    if row.index_digest is not None:
        used = await session.get_one(tables.EvidenceIndexRow, row.index_digest)
        parts["index"] = read(IndexIdentity, used)
    if row.narrative is not None:
        parts["text"] = read(model.CaseText, row)
    asked = await session.get(examinations.CrossExaminationRow, curation_id)
    if asked is not None:
        questions = await _parts(
            session, curation_id, model.CrossQuestion, examinations.CrossQuestionRow
        )
        examination = read(model.CrossExamination, asked, questions=questions)
        parts["cross_examination"] = examination
    reading = await session.get(examinations.SecondReadingRow, curation_id)
    if reading is not None:
        parts["second_reading"] = read(model.SecondReading, reading)
    return read(
        model.Curation,
        row,
        thresholds=model.Thresholds(row.threshold_sufficiency, row.threshold_alignment),
        claims=await _load_claims(session, curation_id),
        **parts,
    )


async def _parts(
    session: Session, curation_id: int, kind: type[T], table: Any
) -> tuple[T, ...]:
    """A curation's parts of a kind in their order."""
    rows = await session.rows(table, _OWN, curation=curation_id)
    return tuple(read(kind, row) for row in rows)


async def _save_parts(
    session: Session, curation_id: int, curation: model.Curation
) -> None:
    """Insert the rows of a curation's parts, and passages that are not stored yet."""

    def rows(table: type[Base], parts: Sequence[Any]) -> _Rows:
        made = []
        for place, part in enumerate(parts, start=1):
            made.append(row_of(table, part, curation_id=curation_id, position=place))
        return made

    passages: dict[str, dict[str, Any]] = {}
    parts: dict[type[DeclarativeBase], _Rows] = {tables.PassageRow: []}
    for name, (_, table) in _PARTS.items():
        parts[table] = rows(table, getattr(curation, name))
    for row, call in zip(parts[tables.AgentCallRow], curation.calls, strict=True):
        answered = call.outcome not in _UNANSWERED
        row["reply_digest"] = call.request_digest if answered else None
    claims = rows(tables.ClaimVerdictRow, curation.claims)
    parts[tables.ClaimVerdictRow], parts[tables.ClaimEvidenceRow] = claims, []
    for row, claim in zip(claims, curation.claims, strict=True):
        second = claim.second
        row |= {
            "value": Decimal(str(claim.verdict.value_of)),
            "cited": len(claim.citations),
            "second_false_by_passage": second and second.false_by_passage,
            "second_could_hurt": second and second.could_hurt,
            "second_reason": second and second.reason,
        }
        parts[tables.ClaimEvidenceRow] += _evidence_rows(curation_id, claim, passages)
    # Sorted, so that two processes never wait for each other's rows crosswise.
    parts[tables.PassageRow] = [passages[key] for key in sorted(passages)]
    asked = curation.cross_examination
    for table, part in (
        (examinations.SecondReadingRow, curation.second_reading),
        (examinations.CrossExaminationRow, asked),
    ):
        if part is not None:
            parts[table] = [row_of(table, part, curation_id=curation_id)]
    questions = asked.questions if asked else ()
    parts[examinations.CrossQuestionRow] = rows(
        examinations.CrossQuestionRow, questions
    )
    for table, new in parts.items():
        known = table is tables.PassageRow
        await session.insert_rows(table, new, skip_known=known)


def _evidence_rows(
    curation_id: int, claim: model.ClaimVerdict, passages: dict[str, dict[str, Any]]
) -> _Rows:
    """The rows of a claim's hits; their passages are added to `passages`.

    Raises MedliveError when the claim cites a passage that was not retrieved for it.
    """
    uncited = dict.fromkeys(("quote", "cited_as", "second_quote", "harm_quote"))
    # Passage → what is quoted of it, for its first hit
    cited: dict[str, dict[str, Any]] = defaultdict(uncited.copy)
    for place, citation in enumerate(claim.citations, start=1):
        cited[citation.passage_id] |= {"quote": citation.quote, "cited_as": place}
    if claim.second is not None:
        for citation in claim.second.citations:
            cited[citation.passage_id]["second_quote"] = citation.quote
        for citation in claim.second.harm_citations:
            cited[citation.passage_id]["harm_quote"] = citation.quote
    rows = []
    for position, hit in enumerate(claim.hits, start=1):
        values = row_of(tables.PassageRow, hit.passage, digest=hit.passage.digest)
        key = digest_json(values | {"published": str(values["published"])})
        passages[key] = {"key": key, **values}
        row = row_of(
            tables.ClaimEvidenceRow,
            hit,
            curation_id=curation_id,
            element_id=claim.element_id,
            position=position,
            passage_key=key,
            **cited.pop(hit.passage.id, uncited),
        )
        rows.append(row)
    if cited:
        raise MedliveError(
            f"claim {claim.element_id} cites a passage that was not retrieved: {', '.join(cited)}"
        )
    return rows


async def _load_claims(
    session: Session, curation_id: int
) -> tuple[model.ClaimVerdict, ...]:
    """A curation's claims with their verdicts, retrieved passages and citations."""
    by_element: dict[str, list[Any]] = defaultdict(list)
    for row in await session.run(_EVIDENCE, curation=curation_id):
        by_element[row.element_id].append(row)
    claims = []
    for claim in await session.rows(tables.ClaimVerdictRow, _OWN, curation=curation_id):
        met = by_element[claim.element_id]
        hits = []
        for row in met:
            passage = read(Passage, row, id=row.passage_id)
            hits.append(read(Hit, row, passage=passage))
        second = None
        if claim.second_false_by_passage is not None:
            second = model.SecondCheck(
                false_by_passage=claim.second_false_by_passage,
                could_hurt=bool(claim.second_could_hurt),
                citations=_citations(met, "second_quote"),
                harm_citations=_citations(met, "harm_quote"),
                reason=claim.second_reason or "",
            )
        cited = sorted(met, key=lambda row: row.cited_as or 0)
        more = {"citations": _citations(cited, "quote"), "second": second}
        claims.append(read(model.ClaimVerdict, claim, hits=tuple(hits), **more))
    return tuple(claims)


def _citations(
    evidence: Sequence[Any],
    column: str,
) -> tuple[model.Citation, ...]:
    """The quotes in one column of the evidence rows, in their order."""
    citations = []
    for row in evidence:
        if (quote := getattr(row, column)) is not None:
            citations.append(model.Citation(row.passage_id, quote))
    return tuple(citations)
