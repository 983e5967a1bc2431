"""Opens and closes disputes about cases."""

from medlive.db.disputes import Dispute, close_dispute, open_dispute
from medlive.db.session import Database
from medlive.errors import UsageError
from medlive.service.withdrawing import find_criterion, lock_case, person

_MOST_TEXT = 2_000


async def dispute_case(
    database: Database, case_id: str, reason: str, *, criterion_id: str | None = None, by: str | None = None
) -> Dispute:
    """Dispute a case, or a criterion of it (`c3` or `<case id>-c3`): no snapshot takes it until it is resolved.

    The reason is not published. Raises UsageError for an unknown id, with those that are near, and for a reason
    that is empty or longer than 2,000 characters.
    """
    reason, by = _text(reason, "a reason"), person(by)
    async with database.begin() as session:
        await lock_case(session, case_id)
        number = None
        if criterion_id is not None:
            number = (await find_criterion(session, case_id, criterion_id))[1].id
        return await open_dispute(session, case_id, reason, criterion_id=number, opened_by=by)


async def resolve_dispute(database: Database, number: int, resolution: str, *, by: str | None = None) -> Dispute:
    """Close a dispute with what came of it. Raises UsageError for no dispute, CheckFailed for a closed one."""
    resolution, by = _text(resolution, "a resolution"), person(by)
    async with database.begin() as session:
        return await close_dispute(session, number, resolution, closed_by=by)


def _text(text: str, what: str) -> str:
    text = text.strip()
    if not 1 <= len(text) <= _MOST_TEXT:
        raise UsageError(f"a dispute needs {what} of 1 to {_MOST_TEXT:,} characters")
    return text
