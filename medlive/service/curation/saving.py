"""What becomes of a thread's case when the thread was curated: its status, and which criteria it keeps."""

from dataclasses import replace
from datetime import UTC

from medlive.db.curation.cases import (
    CaseContent,
    SavedCase,
    add_revision,
    apply_review,
    find_review,
    latest_case,
    lock_thread_case,
    set_status,
)
from medlive.db.mapping import Record
from medlive.db.release.withdrawals import (
    too_thin,
    withdrawn_criteria,
    without_criteria,
)
from medlive.db.session import Session
from medlive.db.tables.release import CaseStatus, ReviewAction

_VERDICTS = (ReviewAction.APPROVE, ReviewAction.REJECT)
_EDITED = "curated anew since a person edited it"


async def save_case(
    session: Session,
    content: CaseContent,
    *,
    thread_pk: int,
    key: bytes,
    held: str | None = None,
) -> SavedCase:
    """Save the case that a thread made, as a new revision unless its content is the latest one's.

    A person's decision about the very same content stands, and a case that a person rejected waits again when its
    content changes. A withdrawn case stays withdrawn, and criteria that were withdrawn from it are left out of the
    rubric; when too few are left, the case is held with its latest revision as it was. What a person has edited is
    held when it is replaced.

    Args:
        session: The transaction in which the decision about the thread is stored.
        content: What the case says.
        thread_pk: The thread's row.
        key: The instance's own, for the case's id.
        held: Why the case waits for a person; None makes it ready.
    """
    content = replace(content, posted_at=content.posted_at.astimezone(UTC))
    status = CaseStatus.READY if held is None else CaseStatus.HELD
    case = await lock_thread_case(session, thread_pk, key, status, held)
    if (case.status, case.status_reason) != (status, held):
        await set_status(session, case.id, status, held)
    withdrawn = await withdrawn_criteria(session, case.id)
    kept = without_criteria(content.rubric, withdrawn)
    if len(kept.criteria) < len(content.rubric.criteria):
        unchanged = await _hold_if_thin(session, case.id, too_thin(kept))
        if unchanged is not None:
            return unchanged
    content = replace(content, rubric=kept)
    saved = await add_revision(session, case.id, content)
    if saved.status != "new":
        await _respect_people(session, case, saved, held)
    return saved


async def _hold_if_thin(
    session: Session, case_id: str, thin: str | None
) -> SavedCase | None:
    """Hold a case of whose rubric too little is left; None where enough is, or nothing was saved before."""
    latest = None if thin is None else await latest_case(session, case_id)
    if latest is None:
        return None
    reason = f"without its withdrawn criteria the rubric has {thin}"
    await set_status(session, case_id, CaseStatus.HELD, reason)
    return SavedCase(case_id, latest.revision, "unchanged")


async def _respect_people(
    session: Session, case: Record, saved: SavedCase, held: str | None
) -> None:
    """Let what people decided about the case stand, or ask them again where its content changed."""
    case_id = case.id
    review = await find_review(session, case_id, saved.revision, _VERDICTS)
    if review is not None:
        await apply_review(session, case_id, review.action, review.reason)
        return
    if case.status is CaseStatus.REJECTED and held is None:
        reason = f"{case.status_reason}; its content has changed since"
        await set_status(session, case_id, CaseStatus.HELD, reason)
        return
    if saved.status != "revised":
        return
    edits = (ReviewAction.EDIT,)
    if await find_review(session, case_id, saved.revision - 1, edits) is not None:
        await set_status(session, case_id, CaseStatus.HELD, held or _EDITED)
