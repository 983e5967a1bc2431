"""Decisions about threads: stored whole, part by part, and loaded as they were."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from sqlalchemy import exists, func, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.curation.model import (
    AdviceFault,
    Call,
    CaseText,
    Citation,
    ClaimVerdict,
    ControllerCheck,
    CrossExamination,
    CrossQuestion,
    Curation,
    Element,
    FaultyAdvice,
    Hold,
    Outcome,
    Reason,
    Requirement,
    SecondCheck,
    SecondReading,
    Thresholds,
)
from medlive.db.mapping import insert_rows, is_one_of, read, row_of
from medlive.db.tables.base import Base
from medlive.db.tables.decisions import (
    AgentCallRow,
    ClaimEvidenceRow,
    ClaimVerdictRow,
    ControllerCheckRow,
    CrossExaminationRow,
    CrossQuestionRow,
    CurationRow,
    ElementRow,
    EvidenceIndexRow,
    FilterResultRow,
    HoldRow,
    PassageRow,
    ReplyRow,
    RequirementRow,
    SecondReadingRow,
)
from medlive.db.tables.intake import ThreadRevisionRow
from medlive.db.threads.threads import is_latest
from medlive.digest import digest_json
from medlive.errors import MedliveError
from medlive.evidence.passage import Hit, IndexIdentity, Passage, SideHit
from medlive.evidence.passage import Side as EvidenceSide
from medlive.llm.ask import CallOutcome

_More = Callable[[Any], dict[str, Any]]
"""What a row needs besides the fields of its part."""
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
    values = row_of(
        row,
        curation,
        revision_id=revision_pk,
        pipeline_digest=pipeline_digest,
        attempt=1 if latest is None else latest.attempt + 1,
        threshold_sufficiency=curation.thresholds.sufficiency,
        threshold_alignment=curation.thresholds.alignment,
        index_digest=curation.index.index_digest if curation.index else None,
        started_at=started_at,
        finished_at=finished_at,
    )
    if curation.text is not None:
        values |= asdict(curation.text)
    inserted = await session.execute(insert(row).values(values).returning(row.id))
    curation_id: int = inserted.scalar_one()
    await _save_parts(session, curation_id, curation)
    return curation_id


async def latest_curation(session: AsyncSession, revision_pk: int) -> CurationRow | None:
    """The latest decision about a thread's revision."""
    query = select(CurationRow).where(CurationRow.revision_id == revision_pk)
    row: CurationRow | None = await session.scalar(query.order_by(CurationRow.id.desc()).limit(1))
    return row


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
        used = await session.get_one(EvidenceIndexRow, found.index_digest)
        index = read(IndexIdentity, used, index_digest=used.digest)
    reading = await session.get(SecondReadingRow, curation_id)
    return read(
        Curation,
        found,
        thresholds=Thresholds(found.threshold_sufficiency, found.threshold_alignment),
        elements=tuple(
            read(Element, e, id=e.element_id, status=e.standing)
            for e in await _parts(session, ElementRow, curation_id)
        ),
        requirements=tuple(read(Requirement, r) for r in await _parts(session, RequirementRow, curation_id)),
        claims=await _load_claims(session, curation_id),
        index=index,
        checks=tuple(
            read(ControllerCheck, c, check=c.check_name)
            for c in await _parts(session, ControllerCheckRow, curation_id)
        ),
        text=None if found.narrative is None else read(CaseText, found),
        cross_examination=await _load_cross_examination(session, curation_id),
        second_reading=None if reading is None else read(SecondReading, reading, wrong=_wrong(reading)),
        holds=tuple(read(Hold, h) for h in await _parts(session, HoldRow, curation_id)),
        calls=tuple(read(Call, c) for c in await _parts(session, AgentCallRow, curation_id)),
    )


async def _check_replies(session: AsyncSession, calls: Sequence[Call]) -> None:
    wanted = {digest for call in calls if (digest := _reply_digest(call)) is not None}
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
    statement = upsert(EvidenceIndexRow).values(row_of(EvidenceIndexRow, index, digest=index.index_digest))
    await session.execute(statement.on_conflict_do_nothing())


async def _save_parts(session: AsyncSession, curation_id: int, curation: Curation) -> None:
    """One statement for each kind of part that there is."""

    async def add(table: type[Base], parts: Sequence[Any], more: _More = lambda part: {}) -> None:
        places = enumerate(parts, start=1)
        rows = [row_of(table, p, curation_id=curation_id, position=k, **more(p)) for k, p in places]
        await insert_rows(session, table, rows)

    await add(ElementRow, curation.elements, lambda e: {"element_id": e.id, "standing": e.status})
    await add(RequirementRow, curation.requirements)
    await add(ClaimVerdictRow, curation.claims, _verdict)
    await add(ControllerCheckRow, curation.checks, lambda c: {"check_name": c.check})
    await add(HoldRow, curation.holds)
    await add(AgentCallRow, curation.calls, lambda c: {"reply_digest": _reply_digest(c)})
    if (reading := curation.second_reading) is not None:
        row = row_of(SecondReadingRow, reading, curation_id=curation_id, wrong=[asdict(w) for w in reading.wrong])
        await insert_rows(session, SecondReadingRow, [row])
    if (asked := curation.cross_examination) is not None:
        row = row_of(CrossExaminationRow, asked, curation_id=curation_id)
        await insert_rows(session, CrossExaminationRow, [row])
        await add(CrossQuestionRow, asked.questions, lambda q: {"own_answer": q.own, "other_answer": q.other})
    passages: dict[str, dict[str, Any]] = {}
    evidence = [row for claim in curation.claims for row in _evidence_rows(curation_id, claim, passages)]
    if passages:
        known = set(await session.scalars(select(PassageRow.key).where(is_one_of(PassageRow.key, passages))))
        # In one order for everybody, so that two processes never wait for each other crosswise.
        new = [passages[key] for key in sorted(passages.keys() - known)]
        await insert_rows(session, PassageRow, new, skip_known=True)
        await insert_rows(session, ClaimEvidenceRow, evidence)


def _verdict(claim: ClaimVerdict) -> dict[str, Any]:
    return {
        "value": Decimal(str(claim.verdict.value_of)),
        "cited": len(claim.citations),
        "second_goes_against": claim.second.goes_against if claim.second else None,
        "second_reason": claim.second.reason if claim.second else None,
    }


def _reply_digest(call: Call) -> str | None:
    """The reply that answered a call; None for a call without an answer."""
    return None if call.outcome in _UNANSWERED else call.request_digest


def _wrong(reading: SecondReadingRow) -> tuple[FaultyAdvice, ...]:
    return tuple(FaultyAdvice(w["element_id"], AdviceFault(w["kind"]), w["reason"]) for w in reading.wrong)


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
        more = {
            "curation_id": curation_id,
            "element_id": claim.element_id,
            "position": position,
            "passage_key": key,
        }
        more |= {"cited_as": place, "quote": quote, "second_quote": seconds.pop(hit.passage.id, None)}
        rows.append(row_of(ClaimEvidenceRow, hit, sides=[asdict(s) for s in hit.sides], **more))
    if strangers := sorted(places.keys() | seconds.keys()):
        raise MedliveError(
            f"claim {claim.element_id} cites passages that were not retrieved: " + ", ".join(strangers)
        )
    return rows


@lru_cache(maxsize=8192)
def _passage_row(passage: Passage) -> dict[str, Any]:
    """The row of a passage, whose key is made from all of it; kept, because claims share passages."""
    values = row_of(PassageRow, passage, digest=passage.digest, passage_id=passage.id)
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
        sides = tuple(SideHit(EvidenceSide(s["side"]), s["rank"], s["score"], s["phrase"]) for s in row.sides)
        hit = read(Hit, row, passage=read(Passage, p, id=p.passage_id), sides=sides)
        hits.setdefault(row.element_id, []).append(hit)
        if row.cited_as is not None and row.quote is not None:
            cited.setdefault(row.element_id, []).append((row.cited_as, Citation(p.passage_id, row.quote)))
        if row.second_quote is not None:
            seconds.setdefault(row.element_id, []).append(Citation(p.passage_id, row.second_quote))
    return tuple(
        read(
            ClaimVerdict,
            claim,
            hits=tuple(hits.get(claim.element_id, ())),
            citations=tuple(c for _, c in sorted(cited.get(claim.element_id, ()), key=lambda found: found[0])),
            second=None
            if claim.second_goes_against is None
            else SecondCheck(
                claim.second_goes_against, tuple(seconds.get(claim.element_id, ())), claim.second_reason
            ),
        )
        for claim in await _parts(session, ClaimVerdictRow, curation_id)
    )


async def _load_cross_examination(session: AsyncSession, curation_id: int) -> CrossExamination | None:
    row = await session.get(CrossExaminationRow, curation_id)
    if row is None:
        return None
    asked = await _parts(session, CrossQuestionRow, curation_id)
    questions = tuple(read(CrossQuestion, q, own=q.own_answer, other=q.other_answer) for q in asked)
    return read(CrossExamination, row, questions=questions)
