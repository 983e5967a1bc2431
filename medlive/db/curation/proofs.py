"""Proofs of rubrics: stored with the decision they belong to, loaded for its reviewers, and counted for the status."""

from datetime import datetime
from typing import Any

from medlive.db.mapping import read, row_of
from medlive.db.session import Session
from medlive.db.tables.examinations import RubricProbeRow, RubricProofRow
from medlive.rubric.proof import Figures, GradedProbe, Proof


async def save_proof(
    session: Session, curation_id: int, proof: Proof, *, revision: int = 0
) -> None:
    """Store the proof of a curation (`revision` 0) or of a revision of its case, unless one is stored already."""
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
    """The latest proof of a curation or of its case's revisions; None if none was made."""
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
    """The first revision of a case behind the last one with a proved rubric; None if the latest one's is proved."""
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
    """Figures on the proofs of decisions begun from `since` to before `until`.

    passed and failed (how many); of those that passed ceiling, floor and separation (means; None without any) and
    ordinary (the scores of the ordinary answers); and one_model: the models that alone wrote a rubric, wrote the
    answers that prove it, and graded these answers.
    """
    [proofs] = await session.records(_MADE, since=since, until=until)
    return vars(proofs)
