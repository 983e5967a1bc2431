"""Decisions about threads: stored whole, part by part, and loaded as they were."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

from sqlalchemy import exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase

from medlive.curation import model
from medlive.db.mapping import add_row, insert_parts, insert_rows, read, row_of
from medlive.db.tables import decisions as tables
from medlive.db.tables.base import Base
from medlive.db.tables.intake import ThreadRevisionRow
from medlive.db.threads.threads import is_latest
from medlive.digest import digest_json
from medlive.errors import MedliveError
from medlive.evidence.passage import Hit, IndexIdentity, Passage, SideHit
from medlive.evidence.passage import Side as EvidenceSide
from medlive.llm.ask import CallOutcome

T = TypeVar("T")
_More = Callable[[Any], dict[str, Any]]
"""What a row needs besides the fields of its part."""
_UNANSWERED = (CallOutcome.UNAVAILABLE, CallOutcome.OVER_BUDGET)


async def save_curation(
    session: AsyncSession,
    revision_pk: int,
    pipeline_digest: str,
    curation: model.Curation,
    *,
    started_at: datetime,
    finished_at: datetime,
) -> int:
    """Store a decision with every part of it; its number.

    A revision is decided once under a pipeline: when another process has decided it in the meantime, nothing is
    stored and that decision's number is returned. After a failure comes the next attempt.
    """
    await lock_revision(session, revision_pk)
    row = tables.CurationRow
    attempts = select(row).where(
        row.revision_id == revision_pk, row.pipeline_digest == pipeline_digest
    )
    latest = await session.scalar(attempts.order_by(row.attempt.desc()).limit(1))
    if latest is not None and latest.outcome is not model.Outcome.FAILED:
        return latest.id
    if (index := curation.index) is not None:
        used = row_of(tables.EvidenceIndexRow, index, digest=index.index_digest)
        await insert_rows(session, tables.EvidenceIndexRow, [used], skip_known=True)
    values = row_of(
        row,
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
    curation_id = (await add_row(session, row(**values | texts))).id
    await _save_parts(session, curation_id, curation)
    return curation_id


async def latest_curation(
    session: AsyncSession, revision_pk: int
) -> tables.CurationRow | None:
    """The latest decision about a thread's revision."""
    query = select(tables.CurationRow).where(
        tables.CurationRow.revision_id == revision_pk
    )
    row: tables.CurationRow | None = await session.scalar(
        query.order_by(tables.CurationRow.id.desc()).limit(1)
    )
    return row


async def list_curations(
    session: AsyncSession, revision_pk: int
) -> list[tables.CurationRow]:
    """Every decision about a thread's revision, the latest first."""
    query = select(tables.CurationRow).where(
        tables.CurationRow.revision_id == revision_pk
    )
    return list(await session.scalars(query.order_by(tables.CurationRow.id.desc())))


async def revision_of(session: AsyncSession, curation_id: int) -> int:
    """The number of the thread revision that an existing curation is about."""
    return (await session.get_one(tables.CurationRow, curation_id)).revision_id


async def lock_revision(session: AsyncSession, revision_pk: int) -> None:
    """Wait for whoever decides the same revision at this moment, and let others wait until the session ends."""
    await session.execute(
        select(ThreadRevisionRow.id)
        .where(ThreadRevisionRow.id == revision_pk)
        .with_for_update()
    )


async def latest_outcome(
    session: AsyncSession, revision_pk: int, pipeline_digest: str
) -> model.Outcome | None:
    """The outcome of the latest attempt; None when there was none."""
    row = tables.CurationRow
    query = select(row.outcome).where(
        row.revision_id == revision_pk, row.pipeline_digest == pipeline_digest
    )
    outcome: model.Outcome | None = await session.scalar(
        query.order_by(row.attempt.desc()).limit(1)
    )
    return outcome


async def untried_revisions(
    session: AsyncSession, chain_digest: str, pipeline_digest: str | None = None
) -> list[int]:
    """The latest revisions that passed this filter chain and that this pipeline (None: any) has not tried,
    oldest first."""
    attempt, result, revision = (
        tables.CurationRow,
        tables.FilterResultRow,
        ThreadRevisionRow,
    )
    tried = exists().where(attempt.revision_id == revision.id)
    if pipeline_digest is not None:
        tried = tried.where(attempt.pipeline_digest == pipeline_digest)
    query = (
        select(revision.id)
        .join(result, result.revision_id == revision.id)
        .where(result.chain_digest == chain_digest, result.passed, is_latest(), ~tried)
        .order_by(revision.id)
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
    row = tables.CurationRow
    failed, here = (
        func.bool_and(row.outcome == model.Outcome.FAILED),
        row.pipeline_digest == pipeline_digest,
    )
    query = (
        select(row.revision_id)
        .join(ThreadRevisionRow, ThreadRevisionRow.id == row.revision_id)
        .where(is_latest())
        .group_by(row.revision_id)
        .having(func.coalesce(failed.filter(here), failed))
        .order_by(row.revision_id)
    )
    if max_attempts is not None:
        replied = row.reason.not_in(
            (model.Reason.ENDPOINT_UNAVAILABLE, model.Reason.BUDGET_SPENT)
        )
        query = query.having(func.count().filter(here, replied) < max_attempts)
    return list(await session.scalars(query))


async def load_curation(session: AsyncSession, curation_id: int) -> model.Curation:
    """A decision as it was stored. Raises MedliveError when there is none of that number."""
    found = await session.get(tables.CurationRow, curation_id)
    if found is None:
        raise MedliveError(f"there is no curation {curation_id}")
    index = None
    if found.index_digest is not None:
        used = await session.get_one(tables.EvidenceIndexRow, found.index_digest)
        index = read(IndexIdentity, used, index_digest=used.digest)
    reading = await session.get(tables.SecondReadingRow, curation_id)
    wrong = [
        model.FaultyAdvice(w["element_id"], model.AdviceFault(w["kind"]), w["reason"])
        for w in (reading.wrong if reading is not None else ())
    ]
    asked = await session.get(tables.CrossExaminationRow, curation_id)
    questions = await _parts(
        session,
        curation_id,
        model.CrossQuestion,
        tables.CrossQuestionRow,
        own="own_answer",
        other="other_answer",
    )
    return read(
        model.Curation,
        found,
        thresholds=model.Thresholds(
            found.threshold_sufficiency, found.threshold_alignment
        ),
        overruled=tuple(model.Reason(reason) for reason in found.overruled),
        elements=await _parts(
            session,
            curation_id,
            model.Element,
            tables.ElementRow,
            id="element_id",
            status="standing",
        ),
        requirements=await _parts(
            session, curation_id, model.Requirement, tables.RequirementRow
        ),
        claims=await _load_claims(session, curation_id),
        index=index,
        checks=await _parts(
            session,
            curation_id,
            model.ControllerCheck,
            tables.ControllerCheckRow,
            check="check_name",
        ),
        text=None if found.narrative is None else read(model.CaseText, found),
        cross_examination=None
        if asked is None
        else read(model.CrossExamination, asked, questions=questions),
        second_reading=None
        if reading is None
        else read(model.SecondReading, reading, wrong=tuple(wrong)),
        holds=await _parts(session, curation_id, model.Hold, tables.HoldRow),
        calls=await _parts(session, curation_id, model.Call, tables.AgentCallRow),
    )


async def _parts(
    session: AsyncSession, curation_id: int, kind: type[T], table: Any, **columns: str
) -> tuple[T, ...]:
    """A curation's parts of a kind in their order; `columns`: those that are not named as the part's fields."""
    query = (
        select(table).where(table.curation_id == curation_id).order_by(table.position)
    )
    return tuple(
        read(
            kind,
            row,
            **{field: getattr(row, column) for field, column in columns.items()},
        )
        for row in await session.scalars(query)
    )


async def _save_parts(
    session: AsyncSession, curation_id: int, curation: model.Curation
) -> None:
    def rows(
        table: type[Base], parts: Sequence[Any], more: _More = lambda part: {}
    ) -> list[dict[str, Any]]:
        places = enumerate(parts, start=1)
        return [
            row_of(table, p, curation_id=curation_id, position=k, **more(p))
            for k, p in places
        ]

    passages: dict[str, dict[str, Any]] = {}
    evidence = [
        row
        for claim in curation.claims
        for row in _evidence_rows(curation_id, claim, passages)
    ]
    parts: dict[type[DeclarativeBase], list[dict[str, Any]]] = {
        # In one order for everybody, so that two processes never wait for each other crosswise.
        tables.PassageRow: [passages[key] for key in sorted(passages)],
        tables.ElementRow: rows(
            tables.ElementRow,
            curation.elements,
            lambda e: {"element_id": e.id, "standing": e.status},
        ),
        tables.RequirementRow: rows(tables.RequirementRow, curation.requirements),
        tables.ClaimVerdictRow: rows(tables.ClaimVerdictRow, curation.claims, _verdict),
        tables.ClaimEvidenceRow: evidence,
        tables.ControllerCheckRow: rows(
            tables.ControllerCheckRow,
            curation.checks,
            lambda c: {"check_name": c.check},
        ),
        tables.HoldRow: rows(tables.HoldRow, curation.holds),
        tables.AgentCallRow: rows(
            tables.AgentCallRow,
            curation.calls,
            lambda c: {"reply_digest": _reply_digest(c)},
        ),
    }
    if (reading := curation.second_reading) is not None:
        wrong = [asdict(w) for w in reading.wrong]
        row = row_of(
            tables.SecondReadingRow, reading, curation_id=curation_id, wrong=wrong
        )
        parts[tables.SecondReadingRow] = [row]
    if (asked := curation.cross_examination) is not None:
        parts[tables.CrossExaminationRow] = [
            row_of(tables.CrossExaminationRow, asked, curation_id=curation_id)
        ]
        parts[tables.CrossQuestionRow] = rows(
            tables.CrossQuestionRow,
            asked.questions,
            lambda q: {"own_answer": q.own, "other_answer": q.other},
        )
    await insert_parts(session, parts, known=[tables.PassageRow])


def _verdict(claim: model.ClaimVerdict) -> dict[str, Any]:
    second = claim.second
    return {
        "value": Decimal(str(claim.verdict.value_of)),
        "cited": len(claim.citations),
        "second_false_by_passage": second and second.false_by_passage,
        "second_could_hurt": second and second.could_hurt,
        "second_reason": second and second.reason,
    }


def _reply_digest(call: model.Call) -> str | None:
    """The reply that answered a call; None for a call without an answer."""
    return None if call.outcome in _UNANSWERED else call.request_digest


def _evidence_rows(
    curation_id: int, claim: model.ClaimVerdict, passages: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """The rows of a claim's hits; their passages are added to `passages`.

    Raises MedliveError when the claim cites a passage that was not retrieved for it.
    """
    places = {
        cited.passage_id: (place, cited.quote)
        for place, cited in enumerate(claim.citations, start=1)
    }
    second = claim.second
    seconds = {c.passage_id: c.quote for c in second.citations} if second else {}
    harms = {c.passage_id: c.quote for c in second.harm_citations} if second else {}
    rows = []
    for position, hit in enumerate(claim.hits, start=1):
        passage = _passage_row(hit.passage)
        passages[passage["key"]] = passage
        cited_as, quote = places.pop(hit.passage.id, (None, None))
        row = {
            "curation_id": curation_id,
            "element_id": claim.element_id,
            "position": position,
        }
        row |= {"passage_key": passage["key"], "cited_as": cited_as, "quote": quote}
        row |= {
            "second_quote": seconds.pop(hit.passage.id, None),
            "harm_quote": harms.pop(hit.passage.id, None),
            "sides": [asdict(s) for s in hit.sides],
        }
        rows.append(row_of(tables.ClaimEvidenceRow, hit, **row))
    if unknown := sorted(places.keys() | seconds.keys() | harms.keys()):
        raise MedliveError(
            f"claim {claim.element_id} cites passages that were not retrieved: "
            + ", ".join(unknown)
        )
    return rows


def _passage_row(passage: Passage) -> dict[str, Any]:
    """The row of a passage, whose key is made from all of it."""
    values = row_of(
        tables.PassageRow, passage, digest=passage.digest, passage_id=passage.id
    )
    return {
        "key": digest_json({**values, "published": str(values["published"])}),
        **values,
    }


async def _load_claims(
    session: AsyncSession, curation_id: int
) -> tuple[model.ClaimVerdict, ...]:
    evidence = tables.ClaimEvidenceRow
    query = (
        select(evidence, tables.PassageRow)
        .join(tables.PassageRow, tables.PassageRow.key == evidence.passage_key)
        .where(evidence.curation_id == curation_id)
        .order_by(evidence.element_id, evidence.position)
    )
    hits: dict[str, list[Hit]] = {}
    cited: dict[str, list[tuple[int, model.Citation]]] = {}
    seconds: dict[str, list[model.Citation]] = {}
    harms: dict[str, list[model.Citation]] = {}
    for row, p in await session.execute(query):
        sides = tuple(
            SideHit(EvidenceSide(s["side"]), s["rank"], s["score"], s["phrase"])
            for s in row.sides
        )
        hit = read(Hit, row, passage=read(Passage, p, id=p.passage_id), sides=sides)
        hits.setdefault(row.element_id, []).append(hit)
        if row.cited_as is not None and row.quote is not None:
            cited.setdefault(row.element_id, []).append(
                (row.cited_as, model.Citation(p.passage_id, row.quote))
            )
        if row.second_quote is not None:
            seconds.setdefault(row.element_id, []).append(
                model.Citation(p.passage_id, row.second_quote)
            )
        if row.harm_quote is not None:
            harms.setdefault(row.element_id, []).append(
                model.Citation(p.passage_id, row.harm_quote)
            )
    claims = []
    rows = select(tables.ClaimVerdictRow).where(
        tables.ClaimVerdictRow.curation_id == curation_id
    )
    for claim in await session.scalars(rows.order_by(tables.ClaimVerdictRow.position)):
        citations = sorted(cited.get(claim.element_id, ()), key=lambda found: found[0])
        second = None
        if claim.second_false_by_passage is not None:
            second = model.SecondCheck(
                false_by_passage=claim.second_false_by_passage,
                could_hurt=bool(claim.second_could_hurt),
                citations=tuple(seconds.get(claim.element_id, ())),
                harm_citations=tuple(harms.get(claim.element_id, ())),
                reason=claim.second_reason or "",
            )
        hits_of = tuple(hits.get(claim.element_id, ()))
        more = {
            "hits": hits_of,
            "citations": tuple(c for _, c in citations),
            "second": second,
        }
        claims.append(read(model.ClaimVerdict, claim, **more))
    return tuple(claims)
