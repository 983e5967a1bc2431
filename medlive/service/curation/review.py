"""Review held and disputed cases: approve, reject, drop an element, dispute, resolve."""

from medlive.clock import now
from medlive.curation.chain import curate_without_element
from medlive.curation.model import Curation, Outcome
from medlive.db.curation.cases import apply_review, lock_case
from medlive.db.curation.curations import load_curation, revision_of
from medlive.db.curation.reviews import Dispute, Review, add_review, close_dispute, open_dispute
from medlive.db.session import Database
from medlive.db.tables.release import CaseStatus, ReviewAction
from medlive.db.threads.threads import load_thread
from medlive.digest import digest_json
from medlive.errors import CheckFailed, EndpointUnavailable, UsageError
from medlive.rubric.write import complete_case
from medlive.service.curation.curate import save_decision
from medlive.service.release.withdraw import check_person_name, find_criterion, load_latest_case
from medlive.service.wiring import Pipeline
from medlive.threads.prepare import deidentified, normalised, thread_language

_MOST_TEXT = 2_000


async def decide_case(
    database: Database, case_id: str, action: ReviewAction, reason: str, *, by: str | None = None
) -> Review:
    """Approve a held or rejected case for the next freeze, or reject a held one until its content changes.

    Raises UsageError, and CheckFailed for a case in another status.
    """
    reason, by = _text(reason, "a decision", "a reason"), check_person_name(by)
    async with database.begin() as session:
        status = await lock_case(session, case_id)
        if not (status is CaseStatus.REJECTED and action is ReviewAction.APPROVE):
            _check_held(case_id, status)
        case = await load_latest_case(session, case_id)
        review = await add_review(session, case_id, case.revision, action, reason, decided_by=by)
        await apply_review(session, case_id, action, reason)
        return review


def _check_held(case_id: str, status: CaseStatus) -> None:
    if status is not CaseStatus.HELD:
        raise CheckFailed(
            f"case {case_id} is {status.value}, not held", hint="medlive review list shows the held cases"
        )


async def drop_element(
    pipeline: Pipeline, case_id: str, element_id: str, reason: str, *, by: str | None = None
) -> Curation:
    """Rewrite a held case without one of its advice elements, and store it with the person's decision.

    The case is ready when nothing else holds it. Nothing is changed when an error is raised: UsageError if the
    case cannot do without the element, CheckFailed if it is not held, EndpointUnavailable without usable replies.
    """
    reason, by = _text(reason, "a decision", "a reason"), check_person_name(by)
    async with pipeline.database.begin() as session:
        _check_held(case_id, await lock_case(session, case_id))
        case = await load_latest_case(session, case_id)
        decided = await load_curation(session, case.curation_id)
        stored = await load_thread(session, await revision_of(session, case.curation_id))
    started, rubric = now(), None
    raw = normalised(stored.thread)
    language = thread_language(raw)
    curation = await curate_without_element(
        decided, element_id, deidentified(raw, language), language, pipeline.respondents, pipeline.curation
    )
    if curation.outcome is not Outcome.FAILED:
        curation, rubric = await complete_case(curation, language, pipeline.respondents)
    if rubric is None or curation.text is None:
        raise EndpointUnavailable(f"the case could not be rewritten: {curation.detail}")
    dropped = sorted(e.id for e in curation.elements if e.status.value == "dropped")
    digest = digest_json([pipeline.digest, "without", dropped])
    action = ReviewAction.DROP_ELEMENT
    async with pipeline.database.begin() as session:
        await lock_case(session, case_id)
        await add_review(session, case_id, case.revision, action, reason, element_id=element_id, decided_by=by)
        await save_decision(session, pipeline, stored, language, curation, rubric, started=started, digest=digest)
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
