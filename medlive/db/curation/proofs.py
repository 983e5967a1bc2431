"""Proofs of rubrics: stored with the decision they belong to, and loaded for who reviews it."""

from datetime import datetime
from typing import Any

from medlive.db.mapping import read, row_of
from medlive.db.session import Session
from medlive.db.tables.examinations import RubricProbeRow, RubricProofRow
from medlive.rubric.proof import Figures, GradedProbe, Proof


async def save_proof(
    session: Session, curation_id: int, proof: Proof, *, revision: int = 0
) -> None:
    """Store the proof of a curation, or of a revision of its case, unless that has one: it is made once."""
    if await session.get(RubricProofRow, (curation_id, revision)) is not None:
        return
    key = {"curation_id": curation_id, "revision": revision}
    values = row_of(RubricProofRow, proof, **key)
    values |= row_of(RubricProofRow, proof.figures)
    await session.insert_rows(RubricProofRow, [values])
    rows = []
    for place, probe in enumerate(proof.probes, start=1):
        score = float(probe.score(proof.criteria))
        rows.append(row_of(RubricProbeRow, probe, **key, position=place, score=score))
    await session.insert_rows(RubricProbeRow, rows)


async def load_proof(session: Session, curation_id: int) -> Proof | None:
    """The latest proof of a curation and of its case's revisions; None where none was made."""
    row = await session.first(
        RubricProofRow,
        "WHERE curation_id = :id ORDER BY revision DESC LIMIT 1",
        id=curation_id,
    )
    if row is None:
        return None
    rows = await session.rows(
        RubricProbeRow,
        "WHERE curation_id = :id AND revision = :revision ORDER BY position",
        id=curation_id,
        revision=row.revision,
    )
    probes = tuple(read(GradedProbe, probe) for probe in rows)
    return read(Proof, row, figures=read(Figures, row), probes=probes)


async def unproved_since(session: Session, case_id: str) -> int | None:
    """The revision since which a case's rubric is not proved; None where the latest one is."""
    [row] = await session.records(
        """
        SELECT max(revision) FILTER (WHERE ceiling IS NOT NULL) AS proved, max(revision) AS latest
        FROM case_revisions WHERE case_id = :case_id
        """,
        case_id=case_id,
    )
    return None if row.proved == row.latest else (row.proved or 0) + 1


_MADE = """
    SELECT count(*) FILTER (WHERE passed) AS passed, count(*) FILTER (WHERE NOT passed) AS failed,
        avg(ceiling) FILTER (WHERE passed) AS ceiling, avg(floor) FILTER (WHERE passed) AS floor,
        avg(separation) FILTER (WHERE passed) AS separation,
        coalesce(array_agg(ordinary) FILTER (WHERE passed AND ordinary IS NOT NULL), '{}') AS ordinary,
        coalesce(array_agg(DISTINCT model ORDER BY model) FILTER (WHERE is_one_model), '{}') AS one_model
    FROM (
        SELECT proof.*, made.engines #>> '{rubric,model}' AS model,
            made.engines #> '{rubric,model}' = made.engines #> '{prober,model}'
                AND made.engines #> '{rubric,model}' = made.engines #> '{grader,model}' AS is_one_model
        FROM rubric_proofs AS proof JOIN curations AS made ON made.id = proof.curation_id
        WHERE started_at >= :since AND started_at < :until AND proof.revision = 0
    ) AS proofs
"""


async def proofs_made(
    session: Session, since: datetime, until: datetime
) -> dict[str, Any]:
    """The proofs of the decisions that began in a time: how many passed and failed; of those that passed the mean
    ceiling, floor and separation (None without one) and the scores of the ordinary answers; and one_model, the models
    that wrote a rubric, wrote the answers that prove it, and graded these."""
    [proofs] = await session.records(_MADE, since=since, until=until)
    return vars(proofs)
