"""What people decide: approve or reject a case, drop an element, overrule a rejection, dispute, resolve."""

from medlive.curation.chain import curate_without_element
from medlive.curation.model import Curation, Outcome, Reason
from medlive.db.curation.cases import (
    apply_review,
    find_case,
    lock_case,
    set_status,
)
from medlive.db.curation.curations import (
    latest_curation,
    list_curations,
    load_curation,
    lock_revision,
)
from medlive.db.curation.funnel import filter_results_of
from medlive.db.curation.reviews import (
    add_overrule,
    add_review,
    close_dispute,
    in_force,
    open_dispute,
    overrules_of,
)
from medlive.db.mapping import Record
from medlive.db.session import Database, Session
from medlive.db.tables.decisions import CurationRow, OverruleRow
from medlive.db.tables.release import CaseStatus, DisputeRow, ReviewAction, ReviewRow
from medlive.db.threads.threads import load_thread, thread_of_case
from medlive.errors import CheckFailed, EndpointUnavailable, UsageError
from medlive.integrity.digest import digest_json
from medlive.service.release.withdraw import (
    check_person_name,
    check_public_reason,
    check_reason,
    find_criterion,
)
from medlive.service.wiring import Pipeline
from medlive.service.work.jobs import defer_revisions

from .curate import (
    complete_in,
    read_thread,
    save_decision,
)
from .editing import lock_latest
from .inspect import latest_revision

_INDISPENSABLE = frozenset(
    {
        "empty_thread",
        "posted_unknown",
        "language",
        "no_verified_reply",
        Reason.NO_QUERY,
        Reason.NO_NARRATIVE,
        Reason.NO_ADVICE,
    }
)
"""Reasons that nobody overrules: the thread lacks what a case is made of."""
_OVERRULABLE = (Outcome.REJECTED, Outcome.PARKED)  # What a person can overrule


async def decide_case(
    database: Database,
    case_id: str,
    action: ReviewAction,
    reason: str,
    *,
    of: int | None = None,
    by: str | None = None,
) -> ReviewRow:
    """Approve a held or rejected case for the next freeze, or reject a held or ready one until it changes.

    Raises UsageError, and CheckFailed for a case in another status, one with a later revision than `of`, which the
    person saw, or an approval where evidence has vetoed the thread since.
    """
    reason, by = check_reason(reason), check_person_name(by)
    async with database.begin() as session:
        is_approval = action is ReviewAction.APPROVE
        status, case = await lock_latest(session, case_id, of)
        if status is not (CaseStatus.REJECTED if is_approval else CaseStatus.READY):
            _check_held(case_id, status)
        if is_approval:
            await _check_no_veto(session, case_id)
        review = ReviewRow(
            case_id=case_id,
            revision=case.revision,
            action=action,
            reason=reason,
            decided_by=by,
        )
        await add_review(session, review)
        await apply_review(session, case_id, action, reason)
        return review


async def _check_no_veto(session: Session, case_id: str) -> None:
    """Raise CheckFailed where the latest decision about a case's thread is a confirmed veto, still to be overruled."""
    thread = await thread_of_case(session, case_id)
    revision = await latest_revision(session, *thread)
    for decided in await list_curations(session, revision):
        if decided.outcome is Outcome.FAILED:
            continue
        if decided.reason == Reason.CONTRADICTED:
            raise CheckFailed(
                f"the thread of {case_id} was curated again, and evidence contradicts its advice",
                hint=f"medlive review overrule {'/'.join(thread)} is for that",
            )
        return


def _check_held(case_id: str, status: CaseStatus) -> None:
    """Raise CheckFailed unless the case is held."""
    if status is not CaseStatus.HELD:
        raise CheckFailed(
            f"case {case_id} is {status.value}, not held",
            hint="medlive review list shows the held cases",
        )


async def drop_element(
    pipeline: Pipeline,
    case_id: str,
    element_id: str,
    reason: str,
    *,
    by: str | None = None,
) -> Curation:
    """Rewrite a held case without one of its advice elements, and store it with the person's decision.

    The case is ready when nothing else holds it. Nothing is changed when an error is raised: UsageError if the
    case cannot do without the element, CheckFailed if it is not held, changes meanwhile, was vetoed since, or is
    rejected without it, EndpointUnavailable without usable replies.
    """
    reason, by = check_reason(reason), check_person_name(by)
    async with pipeline.database.begin() as session:
        status, case = await lock_latest(session, case_id)
        _check_held(case_id, status)
        await _check_no_veto(session, case_id)
        decided = await load_curation(session, case.curation_id)
        made = await session.get_one(CurationRow, case.curation_id)
        stored = await load_thread(session, made.revision_id)
        held_else = await _find_other_hold(session, case_id, stored)
    reading = read_thread(stored)
    curation = await curate_without_element(
        decided,
        element_id,
        reading.thread,
        reading.language,
        pipeline.respondents,
        pipeline.curation,
    )
    if curation.outcome is Outcome.REJECTED:
        raise CheckFailed(
            f"without {element_id} the case is rejected: {curation.reason}: {curation.detail}",
            hint="reject the case, or edit it",
        )
    completed = await complete_in(pipeline, curation, reading)
    curation, rubric, _ = completed
    if rubric is None or curation.text is None:
        raise EndpointUnavailable(f"the case could not be rewritten: {curation.detail}")
    dropped = sorted(e.id for e in curation.elements if e.status.value == "dropped")
    async with pipeline.database.begin() as session:
        status, _ = await lock_latest(session, case_id, case.revision)
        _check_held(case_id, status)
        review = ReviewRow(
            case_id=case_id,
            revision=case.revision,
            action=ReviewAction.DROP_ELEMENT,
            element_id=element_id,
            reason=reason,
            decided_by=by,
        )
        await add_review(session, review)
        digest = digest_json([pipeline.digest, "without", dropped])
        await save_decision(session, pipeline, reading, completed, digest)
        status = await lock_case(session, case_id)
        if status is CaseStatus.READY and held_else is not None:
            await set_status(session, case_id, CaseStatus.HELD, held_else)
    return curation


async def _find_other_hold(
    session: Session, case_id: str, stored: Record
) -> str | None:
    """Why a case is held besides its curation's own holds, such as a rejection of the thread since; None: it is not."""
    thread = stored.thread
    latest = await latest_revision(session, thread.source, thread.thread_id)
    for row in await list_curations(session, latest):
        if row.outcome in _OVERRULABLE:
            return f"curated again: {row.reason}: {row.detail}"[:1000]
        if row.outcome is not Outcome.FAILED:
            break
    reason = (await find_case(session, case_id)).status_reason
    for row in await list_curations(session, stored.revision_pk):
        if row.outcome is Outcome.HELD and row.detail == reason:
            return None
    return reason


async def overrule_rejection(
    database: Database,
    source: str,
    thread_id: str,
    reason: str,
    *,
    by: str | None = None,
    people: int = 2,
) -> tuple[OverruleRow, bool]:
    """Let a rejected or parked thread go on from there, and queue it; what follows may reject it again.

    Returns the entry, and whether enough people agree.

    A thread whose contradiction the second check confirmed is queued only when this many `people` have overruled it.
    Their reasons are published with the case. Raises UsageError for an unknown thread, without a name where
    several have to agree, and for a reason that cannot be published, and CheckFailed for a thread that is not
    rejected, that waits already, that the same person overruled, or that lacks what a case is made of.
    """
    reason, by = check_reason(reason), check_person_name(by)
    async with database.begin() as session:
        name = f"{source}/{thread_id}"
        revision = await latest_revision(session, source, thread_id)
        await lock_revision(session, revision)
        curation_id, rejected_for = await _find_rejection(session, revision, name, by)
        if rejected_for in _INDISPENSABLE:
            raise CheckFailed(
                f"{name} was rejected for {rejected_for}: it lacks what a case is made of"
            )
        is_veto = rejected_for == Reason.CONTRADICTED
        needed = people if is_veto else 1
        if is_veto:
            reason = check_public_reason(reason)
        if needed > 1 and by is None:
            raise UsageError(
                "a confirmed veto is overruled by two people: --by says who you are",
                hint="[curation] veto_people = 1 is for an installation of one person",
            )
        done = OverruleRow(
            revision_id=revision,
            curation_id=curation_id,
            overruled=rejected_for,
            reason=reason,
            decided_by=by,
            people=needed,
        )
        await add_overrule(session, name, done)
        agreed = done in in_force(await overrules_of(session, revision))
        if agreed:
            await defer_revisions(session, [revision])
    return done, agreed


async def _find_rejection(
    session: Session, revision: int, name: str, by: str | None
) -> tuple[int | None, str]:
    """The decision that rejected or parked a revision (None: the filters), and its reason.

    Raises CheckFailed where there is none, or where it is overruled.
    """
    overrules = await overrules_of(session, revision)
    number: int | None = None
    reason: str | None = None
    state = "waiting"
    if decided := await latest_curation(session, revision):
        state = decided.outcome.value
        if decided.outcome in _OVERRULABLE:
            number, reason = decided.id, decided.reason
    elif filtered := await filter_results_of(session, revision):
        reason = filtered[0].reason
    if reason is None:
        hint = "medlive review approve takes a held case" if state == "held" else None
        raise CheckFailed(f"{name} is {state}, not rejected", hint=hint)
    if number in [entry.curation_id for entry in in_force(overrules)]:
        raise CheckFailed(
            f"{name} was overruled already",
            hint="the next `medlive curate` continues it",
        )
    if any((o.curation_id, o.decided_by) == (number, by) for o in overrules):
        raise CheckFailed(f"{name} was overruled by {by}: a second person has to agree")
    return number, str(reason)


async def dispute_case(
    database: Database,
    case_id: str,
    reason: str,
    *,
    criterion_id: str | None = None,
    by: str | None = None,
) -> DisputeRow:
    """Dispute a case or a criterion (`c3` or `<case id>-c3`), which keeps it out of snapshots until resolved.

    The reason is not published. Raises UsageError for an unknown id, or a reason that is empty or longer than
    2,000 characters.
    """
    reason, by = check_reason(reason), check_person_name(by)
    async with database.begin() as session:
        await lock_case(session, case_id)
        number = None
        if criterion_id is not None:
            number = (await find_criterion(session, case_id, criterion_id))[1].id
        dispute = DisputeRow(
            case_id=case_id, criterion_id=number, reason=reason, opened_by=by
        )
        return await open_dispute(session, dispute)


async def resolve_dispute(
    database: Database, number: int, resolution: str, *, by: str | None = None
) -> DisputeRow:
    """Close a dispute. Raises UsageError for an unknown dispute, CheckFailed for a closed one."""
    resolution, by = check_reason(resolution), check_person_name(by)
    return await database.ask(close_dispute, number, resolution, closed_by=by)
