"""Decisions about threads: stored whole, part by part, and loaded as they were."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from sqlalchemy import exists, func, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.curation.model import (
    Call,
    CaseText,
    Citation,
    ClaimVerdict,
    ControllerCheck,
    Curation,
    Element,
    Hold,
    Outcome,
    Reason,
    Requirement,
    SecondCheck,
    SecondReading,
    Thresholds,
    Wrong,
    WrongAdvice,
)
from medlive.db.bulk import insert_rows, is_one_of
from medlive.db.curation.cross_examinations import load_cross_examination, save_cross_examination
from medlive.db.tables import (
    AgentCallRow,
    Base,
    ClaimEvidenceRow,
    ClaimVerdictRow,
    ControllerCheckRow,
    CurationRow,
    ElementRow,
    EvidenceIndexRow,
    FilterResultRow,
    HoldRow,
    PassageRow,
    ReplyRow,
    RequirementRow,
    SecondReadingRow,
    ThreadRevisionRow,
)
from medlive.db.threads.threads import is_latest
from medlive.digest import digest_json
from medlive.errors import MedliveError
from medlive.evidence.passage import Hit, IndexIdentity, Passage, SideHit
from medlive.evidence.passage import Side as EvidenceSide
from medlive.llm.ask import CallOutcome

_UNANSWERED = (CallOutcome.UNAVAILABLE, CallOutcome.OVER_BUDGET)


async def save_curation(
    session: AsyncSession,
    revision_pk: int,
    pipeline_digest: str,
    curation: Curation,
    *,
    started_at: datetime,
    finished_at: datetime,
) -> int:
    """Store a decision with every part of it; its number.

    A revision is decided once under a pipeline: when another process has decided it in the meantime, nothing is
    stored and that decision's number is returned. After a failure comes the next attempt. Raises MedliveError
    when an answered call's reply is not in the reply store: nobody could look it up.
    """
    await lock_revision(session, revision_pk)
    row = CurationRow
    latest = (
        await session.execute(
            select(row.id, row.attempt, row.outcome)
            .where(row.revision_id == revision_pk, row.pipeline_digest == pipeline_digest)
            .order_by(row.attempt.desc())
            .limit(1)
        )
    ).first()
    if latest is not None and latest.outcome is not Outcome.FAILED:
        decided: int = latest.id
        return decided
    await _check_replies(session, curation.calls)
    await _save_index(session, curation.index)
    text = curation.text
    inserted = await session.execute(
        insert(row)
        .values(
            revision_id=revision_pk,
            pipeline_digest=pipeline_digest,
            attempt=1 if latest is None else latest.attempt + 1,
            outcome=curation.outcome,
            stage=curation.stage,
            reason=curation.reason,
            detail=curation.detail,
            threshold_sufficiency=curation.thresholds.sufficiency,
            threshold_alignment=curation.thresholds.alignment,
            query_category=curation.query_category,
            s_cc=curation.s_cc,
            s_inf=curation.s_inf,
            s_align=curation.s_align,
            index_digest=curation.index.index_digest if curation.index else None,
            narrative=text.narrative if text else None,
            query=text.query if text else None,
            advice=text.advice if text else None,
            engines=dict(curation.engines),
            started_at=started_at,
            finished_at=finished_at,
        )
        .returning(row.id)
    )
    curation_id: int = inserted.scalar_one()
    await _save_parts(session, curation_id, curation)
    return curation_id


async def revision_of(session: AsyncSession, curation_id: int) -> int:
    """The number of the thread revision that a curation is about. Raises MedliveError for no curation."""
    found: int | None = await session.scalar(select(CurationRow.revision_id).where(CurationRow.id == curation_id))
    if found is None:
        raise MedliveError(f"there is no curation {curation_id}")
    return found


async def lock_revision(session: AsyncSession, revision_pk: int) -> None:
    """Wait for whoever decides the same revision at this moment, and let others wait until the session ends."""
    await session.execute(
        select(ThreadRevisionRow.id).where(ThreadRevisionRow.id == revision_pk).with_for_update()
    )


async def latest_outcome(session: AsyncSession, revision_pk: int, pipeline_digest: str) -> Outcome | None:
    """The outcome of the latest attempt; None when there was none."""
    row = CurationRow
    outcome: Outcome | None = await session.scalar(
        select(row.outcome)
        .where(row.revision_id == revision_pk, row.pipeline_digest == pipeline_digest)
        .order_by(row.attempt.desc())
        .limit(1)
    )
    return outcome


async def untried_revisions(
    session: AsyncSession, chain_digest: str, pipeline_digest: str | None = None
) -> list[int]:
    """The latest revisions that passed this filter chain and that this pipeline (None: any) has not tried,
    oldest first."""
    tried = exists().where(CurationRow.revision_id == ThreadRevisionRow.id)
    if pipeline_digest is not None:
        tried = tried.where(CurationRow.pipeline_digest == pipeline_digest)
    query = (
        select(ThreadRevisionRow.id)
        .join(FilterResultRow, FilterResultRow.revision_id == ThreadRevisionRow.id)
        .where(FilterResultRow.chain_digest == chain_digest, FilterResultRow.passed, is_latest(), ~tried)
        .order_by(ThreadRevisionRow.id)
    )
    return list(await session.scalars(query))


async def failed_revisions(
    session: AsyncSession, pipeline_digest: str, *, max_attempts: int | None = None
) -> list[int]:
    """The latest revisions whose every attempt under this pipeline failed, or under every other where this one
    has not tried them; oldest first.

    Only those with fewer than `max_attempts` attempts under this pipeline that got a reply (None: however many):
    an endpoint that is away, or a budget that is spent, says nothing about a thread.
    """
    row = CurationRow
    failed, here = func.bool_and(row.outcome == Outcome.FAILED), row.pipeline_digest == pipeline_digest
    query = (
        select(row.revision_id)
        .join(ThreadRevisionRow, ThreadRevisionRow.id == row.revision_id)
        .where(is_latest())
        .group_by(row.revision_id)
        .having(func.coalesce(failed.filter(here), failed))
        .order_by(row.revision_id)
    )
    if max_attempts is not None:
        replied = row.reason.not_in((Reason.ENDPOINT_UNAVAILABLE, Reason.BUDGET_SPENT))
        query = query.having(func.count().filter(here, replied) < max_attempts)
    return list(await session.scalars(query))


async def load_curation(session: AsyncSession, curation_id: int) -> Curation:
    """A decision as it was stored. Raises MedliveError when there is none of that number."""
    found = await session.get(CurationRow, curation_id)
    if found is None:
        raise MedliveError(f"there is no curation {curation_id}")
    index = None
    if found.index_digest is not None:
        i = await session.get_one(EvidenceIndexRow, found.index_digest)
        index = IndexIdentity(i.retriever, i.digest, dict(i.corpora), i.passages, i.dense)
    text = None
    if found.narrative is not None and found.query is not None and found.advice is not None:
        text = CaseText(found.narrative, found.query, found.advice)
    return Curation(
        outcome=found.outcome,
        stage=found.stage,
        reason=found.reason,
        detail=found.detail,
        thresholds=Thresholds(found.threshold_sufficiency, found.threshold_alignment),
        elements=tuple(
            Element(e.element_id, e.side, e.kind, e.message_id, e.quote, e.statement, e.standing)
            for e in await _parts(session, ElementRow, curation_id)
        ),
        query_category=found.query_category,
        s_cc=found.s_cc,
        s_inf=found.s_inf,
        s_align=found.s_align,
        requirements=tuple(
            Requirement(r.requirement, r.present, tuple(r.element_ids), r.prudent)
            for r in await _parts(session, RequirementRow, curation_id)
        ),
        claims=await _load_claims(session, curation_id),
        index=index,
        checks=tuple(
            ControllerCheck(c.check_name, c.subject, c.passed, c.detail, c.round)
            for c in await _parts(session, ControllerCheckRow, curation_id)
        ),
        text=text,
        cross_examination=await load_cross_examination(session, curation_id),
        second_reading=await _load_reading(session, curation_id),
        holds=tuple(
            Hold(h.reason, h.detail, tuple(h.elements)) for h in await _parts(session, HoldRow, curation_id)
        ),
        calls=tuple(
            Call(
                c.task, c.prompt_digest, c.engine, c.model, c.request_digest, c.attempt, c.outcome,
                c.problem, c.replayed,
            )
            for c in await _parts(session, AgentCallRow, curation_id)
        ),
        engines=found.engines,
    )  # fmt: skip


async def _check_replies(session: AsyncSession, calls: Sequence[Call]) -> None:
    wanted = {c.request_digest for c in calls if c.outcome not in _UNANSWERED}
    if not wanted:
        return
    query = select(ReplyRow.request_digest).where(is_one_of(ReplyRow.request_digest, wanted))
    missing = wanted - set(await session.scalars(query))
    if missing:
        raise MedliveError(
            f"{len(missing)} replies that a decision rests on are not stored, among them {min(missing)}"
        )


async def _save_index(session: AsyncSession, index: IndexIdentity | None) -> None:
    if index is None:
        return
    statement = upsert(EvidenceIndexRow).values(
        digest=index.index_digest,
        retriever=index.retriever,
        corpora=dict(index.corpora),
        passages=index.passages,
        dense=None if index.dense is None else dict(index.dense),
    )
    await session.execute(statement.on_conflict_do_nothing())


async def _save_parts(session: AsyncSession, curation_id: int, curation: Curation) -> None:
    """One statement for each kind of part that there is."""
    passages: dict[str, dict[str, Any]] = {}
    claims: list[dict[str, Any]] = []
    evidence: list[dict[str, Any]] = []
    for position, claim in enumerate(curation.claims, start=1):
        claims.append(
            {
                "curation_id": curation_id,
                "element_id": claim.element_id,
                "position": position,
                "verdict": claim.verdict,
                "value": Decimal(str(claim.verdict.value_of)),
                "claim": claim.claim,
                "queries": list(claim.queries),
                "flag": claim.flag,
                "cited": len(claim.citations),
                "reason": claim.reason,
                "second_goes_against": claim.second.goes_against if claim.second else None,
                "second_reason": claim.second.reason if claim.second else None,
            }
        )
        evidence += _evidence_rows(curation_id, claim, passages)
    calls = [
        {
            "curation_id": curation_id,
            "position": position,
            "task": call.task,
            "prompt_digest": call.prompt_digest,
            "engine": call.engine,
            "model": call.model,
            "request_digest": call.request_digest,
            "reply_digest": None if call.outcome in _UNANSWERED else call.request_digest,
            "attempt": call.attempt,
            "outcome": call.outcome,
            "problem": call.problem,
            "replayed": call.replayed,
        }
        for position, call in enumerate(curation.calls, start=1)
    ]
    elements = [
        {
            "curation_id": curation_id,
            "element_id": element.id,
            "position": position,
            "side": element.side,
            "kind": element.kind,
            "message_id": element.message_id,
            "quote": element.quote,
            "statement": element.statement,
            "standing": element.standing,
        }
        for position, element in enumerate(curation.elements, start=1)
    ]
    requirements = [
        {
            "curation_id": curation_id,
            "position": position,
            "requirement": item.requirement,
            "present": item.present,
            "element_ids": list(item.element_ids),
            "prudent": item.prudent,
        }
        for position, item in enumerate(curation.requirements, start=1)
    ]
    checks = [
        {
            "curation_id": curation_id,
            "position": position,
            "check_name": check.check,
            "subject": check.subject,
            "round": check.round,
            "passed": check.passed,
            "detail": check.detail,
        }
        for position, check in enumerate(curation.checks, start=1)
    ]
    holds = [
        {
            "curation_id": curation_id,
            "position": position,
            "reason": hold.reason,
            "detail": hold.detail,
            "elements": list(hold.elements),
        }
        for position, hold in enumerate(curation.holds, start=1)
    ]
    parts: tuple[tuple[type[Base], list[dict[str, Any]]], ...] = (
        (ElementRow, elements),
        (RequirementRow, requirements),
        (ClaimVerdictRow, claims),
        (ControllerCheckRow, checks),
        (SecondReadingRow, _reading_rows(curation_id, curation.second_reading)),
        (HoldRow, holds),
        (AgentCallRow, calls),
    )
    for table, rows in parts:
        await insert_rows(session, table, rows)
    if curation.cross_examination is not None:
        await save_cross_examination(session, curation_id, curation.cross_examination)
    if passages:
        known = set(await session.scalars(select(PassageRow.key).where(is_one_of(PassageRow.key, passages))))
        # In one order for everybody, so that two processes never wait for each other crosswise.
        new = [passages[key] for key in sorted(passages.keys() - known)]
        await insert_rows(session, PassageRow, new, skip_known=True)
        await insert_rows(session, ClaimEvidenceRow, evidence)


def _reading_rows(curation_id: int, reading: SecondReading | None) -> list[dict[str, Any]]:
    if reading is None:
        return []
    return [
        {
            "curation_id": curation_id,
            "asked": reading.asked,
            "clinical": reading.clinical,
            "enough": reading.enough,
            "answered": reading.answered,
            "understandable": reading.understandable,
            "wrong": [asdict(w) for w in reading.wrong],
            "danger": reading.danger,
            "reason": reading.reason,
            "engine": dict(reading.engine),
        }
    ]


async def _load_reading(session: AsyncSession, curation_id: int) -> SecondReading | None:
    row = await session.get(SecondReadingRow, curation_id)
    if row is None:
        return None
    return SecondReading(
        row.asked,
        row.clinical,
        row.enough,
        row.answered,
        row.understandable,
        tuple(WrongAdvice(w["element_id"], Wrong(w["kind"]), w["reason"]) for w in row.wrong),
        row.danger,
        row.reason,
        row.engine,
    )


def _evidence_rows(
    curation_id: int, claim: ClaimVerdict, passages: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """The rows of a claim's hits; their passages are added to `passages`.

    Raises MedliveError when the claim cites a passage that was not retrieved for it.
    """
    places = {cited.passage_id: (place, cited.quote) for place, cited in enumerate(claim.citations, start=1)}
    seconds = {cited.passage_id: cited.quote for cited in claim.second.citations} if claim.second else {}
    rows = []
    for position, hit in enumerate(claim.hits, start=1):
        values = _passage_row(hit.passage)
        key = values["key"]
        passages[key] = values
        place, quote = places.pop(hit.passage.id, (None, None))
        rows.append(
            {
                "curation_id": curation_id,
                "element_id": claim.element_id,
                "position": position,
                "passage_key": key,
                "rank": hit.rank,
                "score": hit.score,
                "cited_as": place,
                "quote": quote,
                "second_quote": seconds.pop(hit.passage.id, None),
                "sides": [
                    {"side": s.side.value, "phrase": s.phrase, "rank": s.rank, "score": s.score} for s in hit.sides
                ],
            }
        )
    if strangers := sorted(places.keys() | seconds.keys()):
        raise MedliveError(
            f"claim {claim.element_id} cites passages that were not retrieved: " + ", ".join(strangers)
        )
    return rows


@lru_cache(maxsize=8192)
def _passage_row(passage: Passage) -> dict[str, Any]:
    """The row of a passage, whose key is made from all of it; kept, because claims share passages."""
    values = {
        "digest": passage.digest,
        "passage_id": passage.id,
        "corpus": passage.corpus,
        "title": passage.title,
        "section": passage.section,
        "text": passage.text,
        "language": passage.language,
        "published": passage.published,
        "url": passage.url,
        "licence": passage.licence,
    }
    return {"key": digest_json({**values, "published": str(values["published"])}), **values}


async def _parts(session: AsyncSession, table: Any, curation_id: int) -> Sequence[Any]:
    query = select(table).where(table.curation_id == curation_id).order_by(table.position)
    return (await session.scalars(query)).all()


async def _load_claims(session: AsyncSession, curation_id: int) -> tuple[ClaimVerdict, ...]:
    evidence = ClaimEvidenceRow
    query = (
        select(evidence, PassageRow)
        .join(PassageRow, PassageRow.key == evidence.passage_key)
        .where(evidence.curation_id == curation_id)
        .order_by(evidence.element_id, evidence.position)
    )
    hits: dict[str, list[Hit]] = {}
    cited: dict[str, list[tuple[int, Citation]]] = {}
    seconds: dict[str, list[Citation]] = {}
    for row, p in await session.execute(query):
        passage = Passage(
            p.passage_id, p.corpus, p.title, p.section, p.text, p.language, p.published, p.url, p.licence
        )
        sides = tuple(SideHit(EvidenceSide(s["side"]), s["rank"], s["score"], s["phrase"]) for s in row.sides)
        hits.setdefault(row.element_id, []).append(Hit(passage, row.score, row.rank, sides))
        if row.cited_as is not None and row.quote is not None:
            cited.setdefault(row.element_id, []).append((row.cited_as, Citation(p.passage_id, row.quote)))
        if row.second_quote is not None:
            seconds.setdefault(row.element_id, []).append(Citation(p.passage_id, row.second_quote))
    return tuple(
        ClaimVerdict(
            element_id=claim.element_id,
            claim=claim.claim,
            queries=tuple(claim.queries),
            verdict=claim.verdict,
            hits=tuple(hits.get(claim.element_id, ())),
            citations=tuple(c for _, c in sorted(cited.get(claim.element_id, ()), key=lambda found: found[0])),
            reason=claim.reason,
            second=None
            if claim.second_goes_against is None
            else SecondCheck(
                claim.second_goes_against, tuple(seconds.get(claim.element_id, ())), claim.second_reason
            ),
            flag=claim.flag,
        )
        for claim in await _parts(session, ClaimVerdictRow, curation_id)
    )
