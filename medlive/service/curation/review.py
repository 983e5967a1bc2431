"""Review held and disputed cases: approve, reject, drop an element, dispute, resolve."""

from dataclasses import dataclass

from medlive.clock import now
from medlive.config import Settings
from medlive.curation.chain import curate_without_element
from medlive.curation.model import Curation, Outcome
from medlive.db.curation.cases import StoredCase, apply_review, save_case
from medlive.db.curation.curations import load_curation, revision_of, save_curation
from medlive.db.release.cases import lock_case
from medlive.db.review.disputes import Dispute, close_dispute, open_dispute
from medlive.db.review.reviews import Review, add_review, save_scan
from medlive.db.session import Database
from medlive.db.tables.release import CaseStatus, ReviewAction
from medlive.db.threads.threads import StoredThread, load_thread
from medlive.digest import digest_json
from medlive.errors import CheckFailed, EndpointUnavailable, UsageError
from medlive.rubric.complete import complete_case
from medlive.service.database import handle_key
from medlive.service.release.withdraw import check_person_name, find_criterion, load_latest_case
from medlive.service.wiring import Pipeline
from medlive.threads.prepare import deidentified, normalised, thread_language

_MOST_TEXT = 2_000


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A case with the thread and the decision behind it."""

    case: StoredCase
    status: CaseStatus
    curation: Curation
    thread: StoredThread


async def open_case(database: Database, case_id: str) -> CaseFile:
    """A case with the thread and the decision behind it. Raises UsageError for an unknown id."""
    async with database.begin() as session:
        status = await lock_case(session, case_id)
        case = await load_latest_case(session, case_id)
        curation = await load_curation(session, case.curation_id)
        thread = await load_thread(session, await revision_of(session, case.curation_id))
        return CaseFile(case, status, curation, thread)


async def approve_case(database: Database, case_id: str, reason: str, *, by: str | None = None) -> Review:
    """Let a held or rejected case enter the next freeze. Raises UsageError, and CheckFailed for any other."""
    return await _decide(database, case_id, ReviewAction.APPROVE, reason, by)


async def reject_case(database: Database, case_id: str, reason: str, *, by: str | None = None) -> Review:
    """Keep a held case out, until its content changes. Raises as `approve_case`."""
    return await _decide(database, case_id, ReviewAction.REJECT, reason, by)


async def _decide(database: Database, case_id: str, action: ReviewAction, reason: str, by: str | None) -> Review:
    reason, by = _text(reason, "a decision", "a reason"), check_person_name(by)
    async with database.begin() as session:
        status = await lock_case(session, case_id)
        open_to = {
            ReviewAction.APPROVE: (CaseStatus.HELD, CaseStatus.REJECTED),
            ReviewAction.REJECT: (CaseStatus.HELD,),
        }[action]
        if status not in open_to:
            raise CheckFailed(
                f"case {case_id} is {status.value}, not held", hint="medlive review list shows the held cases"
            )
        case = await load_latest_case(session, case_id)
        review = await add_review(session, case_id, case.revision, action, reason, decided_by=by)
        await apply_review(session, case_id, action, reason)
        return review


async def drop_element(
    database: Database,
    pipeline: Pipeline,
    settings: Settings,
    case_id: str,
    element_id: str,
    reason: str,
    *,
    by: str | None = None,
) -> Curation:
    """Rewrite a held case without one of its advice elements, and store it with the person's decision.

    The case is ready when nothing else holds it. Nothing is changed when an error is raised.

    Raises:
        UsageError: If the case cannot do without the element.
        CheckFailed: If the case is not held.
        EndpointUnavailable: If an engine gives no usable reply.
    """
    reason, by = _text(reason, "a decision", "a reason"), check_person_name(by)
    file = await open_case(database, case_id)
    if file.status is not CaseStatus.HELD:
        raise CheckFailed(
            f"case {case_id} is {file.status.value}, not held", hint="medlive review list shows the held cases"
        )
    started = now()
    raw = normalised(file.thread.thread)
    language = thread_language(raw)
    curation = await curate_without_element(
        file.curation, element_id, deidentified(raw, language), language, pipeline.respondents, pipeline.curation
    )
    done = None
    if curation.outcome is not Outcome.FAILED:
        done = await complete_case(curation, language, pipeline.respondents)
        curation = done.curation
    if done is None or done.rubric is None or curation.text is None:
        raise EndpointUnavailable(f"the case could not be rewritten: {curation.detail}")
    dropped = sorted(e.id for e in curation.elements if e.status.value == "dropped")
    digest = digest_json([pipeline.digest, "without", dropped])
    async with database.begin() as session:
        await lock_case(session, case_id)
        await add_review(
            session,
            case_id,
            file.case.revision,
            ReviewAction.DROP_ELEMENT,
            reason,
            element_id=element_id,
            decided_by=by,
        )
        curation_id = await save_curation(
            session, file.thread.revision_pk, digest, curation, started_at=started, finished_at=now()
        )
        saved = await save_case(
            session,
            thread_pk=file.thread.thread_pk,
            curation_id=curation_id,
            language=language,
            source=file.case.source,
            posted_at=file.case.posted_at,
            rubric=done.rubric,
            text=curation.text,
            key=handle_key(settings),
            publishable=curation.publishable,
            held=curation.detail if curation.outcome is Outcome.HELD else None,
        )
        await save_scan(session, case_id, saved.revision, pipeline.scanner, found=0)
    return curation


async def dispute_case(
    database: Database, case_id: str, reason: str, *, criterion_id: str | None = None, by: str | None = None
) -> Dispute:
    """Dispute a case or a criterion (`c3` or `<case id>-c3`), which keeps it out of snapshots until resolved.

    The reason is not published. Raises UsageError for an unknown id, or a reason that is empty or longer than
    2,000 characters.
    """
    reason, by = _text(reason, "a dispute", "a reason"), check_person_name(by)
    async with database.begin() as session:
        await lock_case(session, case_id)
        number = None
        if criterion_id is not None:
            number = (await find_criterion(session, case_id, criterion_id))[1].id
        return await open_dispute(session, case_id, reason, criterion_id=number, opened_by=by)


async def resolve_dispute(database: Database, number: int, resolution: str, *, by: str | None = None) -> Dispute:
    """Close a dispute. Raises UsageError for an unknown dispute, CheckFailed for a closed one."""
    resolution, by = _text(resolution, "a dispute", "a resolution"), check_person_name(by)
    async with database.begin() as session:
        return await close_dispute(session, number, resolution, closed_by=by)


def _text(text: str, subject: str, what: str) -> str:
    text = text.strip()
    if not 1 <= len(text) <= _MOST_TEXT:
        raise UsageError(f"{subject} needs {what} of 1 to {_MOST_TEXT:,} characters")
    return text
