"""Cross-examinations: stored with the decision they belong to, and loaded as they were."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.curation.model import CrossExamination, CrossQuestion
from medlive.db.bulk import insert_rows
from medlive.db.tables import CrossExaminationRow, CrossQuestionRow

_SCORES = ("coverage", "conformity", "conformity_strict", "consistency", "conciseness", "summary", "stability")


async def save_cross_examination(session: AsyncSession, curation_id: int, found: CrossExamination) -> None:
    """Store the scores and every question with its answers."""
    scores = {name: getattr(found, name) for name in _SCORES}
    await insert_rows(session, CrossExaminationRow, [{"curation_id": curation_id, **scores}])
    rows = [
        {
            "curation_id": curation_id,
            "position": position,
            "made_from": asked.made_from,
            "question": asked.question,
            "own_answer": asked.own,
            "other_answer": asked.other,
        }
        for position, asked in enumerate(found.questions, start=1)
    ]
    await insert_rows(session, CrossQuestionRow, rows)


async def load_cross_examination(session: AsyncSession, curation_id: int) -> CrossExamination | None:
    """The cross-examination of a decision; None when there was none."""
    row = await session.get(CrossExaminationRow, curation_id)
    if row is None:
        return None
    asked = CrossQuestionRow
    query = select(asked).where(asked.curation_id == curation_id).order_by(asked.position)
    questions = tuple(
        CrossQuestion(q.made_from, q.question, q.own_answer, q.other_answer) for q in await session.scalars(query)
    )
    return CrossExamination(questions, **{name: getattr(row, name) for name in _SCORES})
