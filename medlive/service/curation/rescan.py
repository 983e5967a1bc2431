"""Scan earlier cases for identifiers again when the scanner has changed."""

import asyncio
from dataclasses import dataclass

from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.model import Reason
from medlive.curation.second_reader import redact_texts
from medlive.db.curation.cases import add_revision, hold_case, latest_case
from medlive.db.release.cases import lock_case
from medlive.db.review.reviews import save_scan, unscanned_cases
from medlive.db.session import Database
from medlive.rubric.complete import texts_of, with_texts
from medlive.service.wiring import Pipeline


@dataclass(slots=True)
class RescanCounts:
    """The counts of a rescan."""

    cases: int = 0
    redacted: int = 0
    """Cases with a new revision without the identifiers found."""
    failed: int = 0
    """Cases without a usable reply, scanned again by the next run."""


async def rescan_cases(database: Database, pipeline: Pipeline, *, concurrency: int) -> RescanCounts:
    """Scan every ready case that the current scanner has not, and redact what it finds."""
    async with database.begin() as session:
        waiting = await unscanned_cases(session, pipeline.scanner)
    done = RescanCounts()
    slots = asyncio.Semaphore(concurrency)

    async def scan(case_id: str) -> None:
        async with slots:
            if pipeline.budget.stopped is not None:
                return
            await _scan(database, pipeline, case_id, done)

    await asyncio.gather(*(scan(case_id) for case_id in waiting))
    return done


async def _scan(database: Database, pipeline: Pipeline, case_id: str, done: RescanCounts) -> None:
    async with database.begin() as session:
        case = await latest_case(session, case_id)
    if case is None:
        return
    try:
        reader = Agent(pipeline.respondents["reader"], [])
        redacted = await redact_texts(case.language, texts_of(case.text, case.rubric), reader)
    except AgentFailure:
        done.failed += 1
        return
    text, rubric = with_texts(case.text, case.rubric, redacted)
    async with database.begin() as session:
        await lock_case(session, case_id)
        saved = await add_revision(
            session,
            case_id,
            curation_id=case.curation_id,
            language=case.language,
            source=case.source,
            posted_at=case.posted_at,
            rubric=rubric,
            text=text,
            publishable=case.publishable,
            unpublishable_reason=case.unpublishable_reason,
        )
        for revision in {case.revision, saved.revision}:
            await save_scan(session, case_id, revision, pipeline.scanner, found=len(redacted.found))
        if redacted.remaining:
            await hold_case(session, case_id, f"{Reason.IDENTIFIER.value}: {'; '.join(redacted.remaining)[:2000]}")
    done.cases += 1
    done.redacted += saved.revision != case.revision
