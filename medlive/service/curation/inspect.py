"""Show every decision about a thread or case, with its evidence, as JSON (`inspect_thread`, `inspect_case`)."""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from medlive.config import Settings
from medlive.db.curation.cases import (
    case_of_thread,
    criteria_of,
    find_case,
)
from medlive.db.curation.curations import list_curations, load_curation
from medlive.db.curation.funnel import filter_results_of
from medlive.db.curation.parking import find_parked
from medlive.db.curation.proofs import load_proof, unproved_since
from medlive.db.curation.reviews import overrules_of, reviews_of
from medlive.db.harvest.fetches import kept_pages
from medlive.db.mapping import Record, as_dict
from medlive.db.release.snapshots import thread_revisions_of
from medlive.db.session import Session
from medlive.db.tables.decisions import CurationRow
from medlive.db.tables.intake import TakedownRow, ThreadRow
from medlive.db.threads.takedowns import find_takedown
from medlive.db.threads.threads import (
    count_identifiers,
    load_excerpt,
    load_thread,
    load_threads,
    revisions_of,
    thread_of_case,
)
from medlive.deidentify.detect import redact
from medlive.errors import MedliveError, UsageError
from medlive.rubric.model import Criterion
from medlive.service.database import open_database
from medlive.text.normalise import dominant_language, normalise
from medlive.threads.model import Thread
from medlive.threads.prepare import deidentified_beginning, prepared


class ThreadTakenDown(MedliveError):
    """The thread was taken down."""

    def __init__(self, takedown: TakedownRow) -> None:
        """Keeps when and why it was taken down."""
        self.taken_down_at, self.reason = takedown.taken_down_at, takedown.reason
        super().__init__(
            f"{takedown.source}/{takedown.thread_id} was taken down on"
            f" {takedown.taken_down_at:%Y-%m-%d %H:%M} UTC: {takedown.reason}"
        )


async def inspect_case(
    session: Session,
    case_id: str,
    *,
    decision: int | None = None,
    first: int | None = None,
) -> dict[str, Any]:
    """`inspect_thread` of the thread a case was made from. Raises UsageError for an unknown id."""
    await find_case(session, case_id)
    thread = await thread_of_case(session, case_id)
    return await inspect_thread(session, *thread, decision=decision, first=first)


async def inspect_thread(
    session: Session,
    source: str,
    thread_id: str,
    *,
    decision: int | None = None,
    first: int | None = None,
) -> dict[str, Any]:
    """The thread (without identifiers), its filter verdicts, a curation and its case, as JSON values.

    Args:
        session: The database.
        source: The thread's source.
        thread_id: Its id there.
        decision: The number of a curation among "decisions"; None for the latest.
        first: The first of the messages that a page shows (`_excerpt_as_json`); None for all, however long they are.

    Raises:
        UsageError: when there is no such thread or decision.
        ThreadTakenDown: when it was erased.
    """
    if takedown := await find_takedown(session, source, thread_id):
        raise ThreadTakenDown(takedown)
    revision = await latest_revision(session, source, thread_id)
    # Without identifiers: the part that a page shows, or all
    if first is not None:
        excerpt = await load_excerpt(session, revision, first)
        thread_pk = excerpt.thread_pk
        texts = await asyncio.to_thread(_excerpt_as_json, excerpt)
    else:
        stored = await load_thread(session, revision)
        thread_pk, (shown, _) = stored.thread_pk, prepared(stored.thread)
        texts = {"url": shown.url, **shown.content()}
    row = await session.get_one(ThreadRow, thread_pk)
    origin = {
        "first_seen_at": row.first_seen_at.isoformat(),
        "last_seen_at": row.last_seen_at.isoformat(),
        "gone_at": row.gone_at and row.gone_at.isoformat(),
        "pages": list(map(asdict, await kept_pages(session, source, thread_id))),
        "identifiers": await count_identifiers(session, revision),
    }
    overruled = list(map(as_dict, await overrules_of(session, revision)))
    filtered = await filter_results_of(session, revision)
    filter_reason = filtered[0].reason if filtered else None
    if any(entry["curation_id"] is None for entry in overruled):
        filter_reason = None
    decisions = await list_curations(session, revision)
    decided = next((d for d in decisions if decision in (None, d.id)), None)
    if decided is None and decision is not None:
        raise UsageError(f"{source}/{thread_id} has no decision {decision}")
    of_case = await _case_as_json(session, thread_pk)
    parked = await find_parked(session, revision)
    return {
        "thread": {"source": source, "thread_id": thread_id, **texts},
        "origin": origin,
        "filters": [v for result in filtered for v in result.verdicts],
        # Why the latest chain rejected it, where nobody has overruled that
        "filter_reason": filter_reason,
        "overruled": overruled,
        **await _decided_as_json(session, decided, of_case),
        "decisions": list(map(_decision, decisions)),
        "parked": parked
        and {"since": parked.since.isoformat(), "libraries": parked.libraries},
        **of_case,
    }


async def latest_revision(session: Session, source: str, thread_id: str) -> int:
    """The number of a thread's latest revision. Raises UsageError for an unknown thread."""
    revisions = await revisions_of(session, source, thread_id)
    if not revisions:
        raise UsageError(
            f"unknown thread {source}/{thread_id}",
            hint="`medlive thread list` shows the threads",
        )
    return revisions[-1]


async def _decided_as_json(
    session: Session, decided: CurationRow | None, of_case: dict[str, Any]
) -> dict[str, Any]:
    """The decided curation with its proof; None values where there is none."""
    if decided is None:
        return {"curation": None, "proof": None, "decided": None}
    curation = await load_curation(session, decided.id)
    proof, shown = await load_proof(session, decided.id), None
    if proof:
        # Each answer with its score, and by criterion which answers meet it
        shown = asdict(proof) | {"criteria": list(map(_criterion, proof.criteria))}
        for probe, own in zip(shown["probes"], proof.probes, strict=True):
            probe["score"] = float(own.score(proof.criteria))
        # Whether the proof is of the case's present rubric; one that passed has given its figures to a revision.
        case = of_case["case"]
        is_same = shown["criteria"] == of_case["criteria"] and not proof.passed
        shown["applies"] = not case or case["unproved_since"] is None or is_same
    return {
        "curation": asdict(curation),
        "proof": shown,
        "decided": _decision(decided),
    }


def _excerpt_as_json(excerpt: Record) -> dict[str, Any]:
    """An excerpt of a thread in the shape of the whole, each message with its place and its whole length."""
    language = dominant_language(normalise(excerpt.opening))
    shown = []
    for part in excerpt.messages:
        message, text = part.message, part.message.text
        text = deidentified_beginning(text, part.after, language)
        shown.append(replace(message, text=text))
    title = redact(normalise(excerpt.thread.title), language)
    content = replace(excerpt.thread, title=title, messages=tuple(shown)).content()
    for entry, part in zip(content["messages"], excerpt.messages, strict=True):
        entry |= {"place": part.place, "length": part.length}
    return {"url": excerpt.thread.url, **content, "total": excerpt.total}


def _criterion(criterion: Criterion) -> dict[str, Any]:
    """A criterion with its tier."""
    return asdict(criterion) | {"tier": criterion.tier}


def _decision(row: CurationRow) -> dict[str, Any]:
    """A curation in short, as a line of "decisions"."""
    return {
        "number": row.id,
        "at": row.started_at.isoformat(),
        "outcome": row.outcome.value,
        "stage": row.stage,
        "reason": row.reason and row.reason.value,
        "attempt": row.attempt,
        "pipeline": row.pipeline_digest,
    }


async def _case_as_json(session: Session, thread_pk: int) -> dict[str, Any]:
    """A thread's case with its criteria and reviews; None and empty lists where it has none."""
    status, case = await case_of_thread(session, thread_pk) or (None, None)
    if case is None or status is None:
        return {"case": None, "criteria": [], "reviews": []}
    case_id = case.case_id
    state = {
        "status": status.status.value,
        "status_reason": status.status_reason,
        "unproved_since": await unproved_since(session, case_id),
    }
    criteria = await criteria_of(session, case_id, case.revision)
    return {
        "case": as_dict(case) | state,
        "criteria": list(map(_criterion, criteria)),
        "reviews": list(map(as_dict, await reviews_of(session, case_id))),
    }


async def threads_of_cases(
    settings: Settings, version: str, case_ids: Iterable[str]
) -> dict[str, Thread]:
    """Case id → its thread, normalised and de-identified as the agents saw it; without those that are not here.

    Raises DatabaseUnavailable.
    """
    async with open_database(settings) as database, database.begin() as session:
        revisions = await thread_revisions_of(session, version, case_ids)
        stored = await load_threads(session, sorted(set(revisions.values())))
    threads = {}
    for case_id, revision in revisions.items():
        if revision in stored:
            threads[case_id], _ = prepared(stored[revision])
    return threads
