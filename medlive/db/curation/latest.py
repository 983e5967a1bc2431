"""What was decided last about a thread: filter verdicts, curation and case, as rows."""

from collections.abc import Sequence

from sqlalchemy import select

from medlive.db.session import Session
from medlive.db.tables.decisions import CurationRow, FilterVerdictRow
from medlive.db.tables.release import CaseRevisionRow, CaseRow


async def filter_verdicts_of(session: Session, revision: int) -> Sequence[FilterVerdictRow]:
    """Every rule's verdict about a thread's revision, chain by chain, in the rules' order."""
    query = select(FilterVerdictRow).where(FilterVerdictRow.revision_id == revision)
    return (await session.scalars(query.order_by(FilterVerdictRow.chain_digest, FilterVerdictRow.position))).all()


async def latest_curation(session: Session, revision: int) -> CurationRow | None:
    """The latest decision about a thread's revision."""
    query = select(CurationRow).where(CurationRow.revision_id == revision)
    row: CurationRow | None = await session.scalar(query.order_by(CurationRow.id.desc()).limit(1))
    return row


async def case_of_thread(session: Session, thread_pk: int) -> tuple[CaseRow, CaseRevisionRow] | None:
    """A thread's case with its newest revision; None without a case or without a revision of it."""
    query = (
        select(CaseRow, CaseRevisionRow)
        .join(CaseRevisionRow, CaseRevisionRow.case_id == CaseRow.id)
        .where(CaseRow.thread_id == thread_pk)
        .order_by(CaseRevisionRow.revision.desc())
        .limit(1)
    )
    found = (await session.execute(query)).first()
    return None if found is None else (found[0], found[1])
