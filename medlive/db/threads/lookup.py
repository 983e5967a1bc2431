"""Threads found by what people know of them: source and id, or a case that was made from one."""

from sqlalchemy import select

from medlive.db.session import Session
from medlive.db.tables.intake import ThreadRevisionRow, ThreadRow
from medlive.db.tables.release import CaseRow


async def revisions_of(session: Session, source: str, thread_id: str) -> list[int]:
    """The thread's revisions, oldest first; empty for no such thread."""
    query = (
        select(ThreadRevisionRow.id)
        .join(ThreadRow, ThreadRow.id == ThreadRevisionRow.thread_id)
        .where(ThreadRow.source == source, ThreadRow.thread_id == thread_id)
    )
    return list(await session.scalars(query.order_by(ThreadRevisionRow.revision)))


async def thread_of_case(session: Session, case_id: str) -> tuple[str, str]:
    """Source and thread id of an existing case."""
    query = select(ThreadRow.source, ThreadRow.thread_id).join(CaseRow, CaseRow.thread_id == ThreadRow.id)
    source, thread_id = (await session.execute(query.where(CaseRow.id == case_id))).one()
    return source, thread_id


async def thread_row(session: Session, thread_pk: int) -> ThreadRow:
    """The row of an existing thread: when it was first and last seen, and whether it is gone."""
    return await session.get_one(ThreadRow, thread_pk)
