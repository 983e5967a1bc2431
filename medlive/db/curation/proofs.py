"""Proofs of rubrics: stored with the decision they belong to, and loaded for who reviews it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

from pydantic import TypeAdapter
from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.mapping import insert_rows, read, row_of
from medlive.db.tables.decisions import (
    CurationRow,
    RubricProbeRow,
    RubricProofRow,
)
from medlive.db.tables.release import CaseRevisionRow
from medlive.harm.model import HarmReading
from medlive.rubric.model import Criterion
from medlive.rubric.proof import (
    Figures,
    GradedProbe,
    ProbeVerdict,
    Proof,
    ProofFinding,
)

PROVING: Final = ("rubric", "prober", "grader")
"""The roles that a proof's independence depends on."""
_CRITERIA: Final = TypeAdapter(tuple[Criterion, ...])
_FINDINGS: Final = TypeAdapter(tuple[ProofFinding, ...])
_VERDICTS: Final = TypeAdapter(Mapping[str, ProbeVerdict])
_HARM: Final = TypeAdapter(HarmReading | None)


async def save_proof(
    session: AsyncSession, curation_id: int, proof: Proof, *, revision: int = 0
) -> None:
    """Store the proof of a curation, or of a revision of its case, unless that has one: it is made once."""
    if await session.get(RubricProofRow, (curation_id, revision)) is not None:
        return
    values = row_of(
        RubricProofRow,
        proof,
        curation_id=curation_id,
        revision=revision,
        criteria=_CRITERIA.dump_python(proof.criteria, mode="json"),
        findings=_FINDINGS.dump_python(proof.findings, mode="json"),
        **asdict(proof.figures),
    )
    await insert_rows(session, RubricProofRow, [values])
    rows = []
    for place, probe in enumerate(proof.probes, start=1):
        row = row_of(
            RubricProbeRow,
            probe,
            curation_id=curation_id,
            revision=revision,
            position=place,
            score=float(probe.score(proof.criteria)),
            verdicts=_VERDICTS.dump_python(probe.verdicts),
            harm=_HARM.dump_python(probe.harm, mode="json"),
        )
        rows.append(row)
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
    probes_of = []
    for probe in await session.scalars(query.order_by(probes.position)):
        verdicts = _VERDICTS.validate_python(probe.verdicts)
        harm = _HARM.validate_python(probe.harm)
        probes_of.append(read(GradedProbe, probe, verdicts=verdicts, harm=harm))
    return read(
        Proof,
        row,
        figures=read(Figures, row),
        probes=tuple(probes_of),
        criteria=_CRITERIA.validate_python(row.criteria),
        findings=_FINDINGS.validate_python(row.findings),
    )


async def unproved_since(session: AsyncSession, case_id: str) -> int | None:
    """The revision since which a case's rubric is not proved; None where the latest one is."""
    row = CaseRevisionRow
    is_proved = row.ceiling.is_not(None)
    query = select(func.max(row.revision), func.max(row.revision).filter(is_proved))
    counted = await session.execute(query.where(row.case_id == case_id))
    latest, proved = counted.one()
    return None if proved == latest else (proved or 0) + 1


@dataclass(frozen=True, slots=True)
class ProofsMade:
    """The proofs of the decisions of a time; the means are of those that passed, None without one."""

    passed: int
    failed: int
    ceiling: float | None
    floor: float | None
    separation: float | None
    ordinary: tuple[float, ...]
    """The scores of the ordinary answers of those that passed."""
    one_model: tuple[str, ...]
    """The models that wrote a rubric, wrote the answers that prove it, and graded these."""


async def proofs_made(
    session: AsyncSession, since: datetime, until: datetime
) -> ProofsMade:
    """The proofs of the decisions that began in a time."""
    proof, made = RubricProofRow, CurationRow
    of_time = (made.started_at >= since) & (made.started_at < until)
    of_time &= proof.revision == 0
    passed = proof.passed.is_(True)
    figures = (proof.ceiling, proof.floor, proof.separation)
    means = [func.avg(figure).filter(passed) for figure in figures]
    query = select(func.count().filter(passed), func.count().filter(~passed), *means)
    counted = await session.execute(
        query.join(made, made.id == proof.curation_id).where(of_time)
    )
    count, failed, ceiling, floor, separation = counted.one()
    scores = select(proof.ordinary).join(made, made.id == proof.curation_id)
    ordinary = await session.scalars(scores.where(of_time, passed))
    roles = [made.engines[role]["model"].astext for role in PROVING]
    same = and_(*(roles[0] == role for role in roles[1:]))
    models = select(roles[0]).join(proof, proof.curation_id == made.id)
    models = models.where(of_time, same).distinct().order_by(roles[0])
    return ProofsMade(
        passed=count,
        failed=failed,
        ceiling=ceiling,
        floor=floor,
        separation=separation,
        ordinary=tuple(score for score in ordinary if score is not None),
        one_model=tuple(await session.scalars(models)),
    )
