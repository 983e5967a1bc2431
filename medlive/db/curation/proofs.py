"""Proofs of rubrics: stored with the decision they belong to, and loaded for who reviews it."""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.mapping import insert_rows, read, row_of
from medlive.db.tables.decisions import CurationRow
from medlive.db.tables.examinations import RubricProbeRow, RubricProofRow
from medlive.db.tables.release import CaseRevisionRow
from medlive.rubric.proof import Figures, GradedProbe, Proof

PROVING: Final = ("rubric", "prober", "grader")
"""The roles that a proof's independence depends on."""


async def save_proof(
    session: AsyncSession, curation_id: int, proof: Proof, *, revision: int = 0
) -> None:
    """Store the proof of a curation, or of a revision of its case, unless that has one: it is made once."""
    if await session.get(RubricProofRow, (curation_id, revision)) is not None:
        return
    key = {"curation_id": curation_id, "revision": revision}
    values = row_of(RubricProofRow, proof, **key)
    values |= row_of(RubricProofRow, proof.figures)
    await insert_rows(session, RubricProofRow, [values])
    rows = []
    for place, probe in enumerate(proof.probes, start=1):
        score = float(probe.score(proof.criteria))
        rows.append(row_of(RubricProbeRow, probe, **key, position=place, score=score))
    await insert_rows(session, RubricProbeRow, rows)


async def load_proof(session: AsyncSession, curation_id: int) -> Proof | None:
    """The latest proof of a curation and of its case's revisions; None where none was made."""
    proofs = RubricProofRow
    latest = select(proofs).where(proofs.curation_id == curation_id)
    row = await session.scalar(latest.order_by(proofs.revision.desc()).limit(1))
    if row is None:
        return None
    probes = RubricProbeRow
    query = select(probes).where(
        probes.curation_id == curation_id, probes.revision == row.revision
    )
    graded = []
    for probe in await session.scalars(query.order_by(probes.position)):
        graded.append(read(GradedProbe, probe))
    return read(Proof, row, figures=read(Figures, row), probes=tuple(graded))


async def unproved_since(session: AsyncSession, case_id: str) -> int | None:
    """The revision since which a case's rubric is not proved; None where the latest one is."""
    row = CaseRevisionRow
    is_proved = row.ceiling.is_not(None)
    query = select(func.max(row.revision), func.max(row.revision).filter(is_proved))
    counted = await session.execute(query.where(row.case_id == case_id))
    latest, proved = counted.one()
    return None if proved == latest else (proved or 0) + 1


async def proofs_made(
    session: AsyncSession, since: datetime, until: datetime
) -> dict[str, Any]:
    """The proofs of the decisions that began in a time: how many passed and failed; of those that passed the mean
    ceiling, floor and separation (None without one) and the scores of the ordinary answers; and one_model, the models
    that wrote a rubric, wrote the answers that prove it, and graded these."""
    proof, made = RubricProofRow, CurationRow
    of_time = (made.started_at >= since) & (made.started_at < until)
    of_time &= proof.revision == 0
    passed = proof.passed.is_(True)
    query = select(
        func.count().filter(passed).label("passed"),
        func.count().filter(~passed).label("failed"),
        func.avg(proof.ceiling).filter(passed).label("ceiling"),
        func.avg(proof.floor).filter(passed).label("floor"),
        func.avg(proof.separation).filter(passed).label("separation"),
    )
    query = query.join(made, made.id == proof.curation_id).where(of_time)
    counted = (await session.execute(query)).mappings().one()
    scores = select(proof.ordinary).join(made, made.id == proof.curation_id)
    scores = scores.where(of_time, passed, proof.ordinary.is_not(None))
    roles = [made.engines[role]["model"].astext for role in PROVING]
    same = and_(*(roles[0] == role for role in roles[1:]))
    models = select(roles[0]).join(proof, proof.curation_id == made.id)
    models = models.where(of_time, same).distinct().order_by(roles[0])
    return {
        **counted,
        "ordinary": list(await session.scalars(scores)),
        "one_model": list(await session.scalars(models)),
    }
