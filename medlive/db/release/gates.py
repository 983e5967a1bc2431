"""What the release gates found in case revisions: kept, so that the same gates read none twice."""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.mapping import dump_json
from medlive.db.threads.takedowns import no_takedown
from medlive.snapshot.gates import GateHit

JUDGED: Final = """
    SELECT c.id AS case_id, c.status, c.status_reason, before.held_since, before.salt, before.commitment,
        before.first_release, before.case_id IS NOT NULL AND before.first_release IS NULL AS is_held,
        CASE WHEN before.first_release IS NOT NULL THEN before.revision END AS from_revision,
        CASE WHEN before.case_id IS NOT NULL AND before.first_release IS NULL THEN before.revision
            ELSE (SELECT max(r.revision) FROM case_revisions AS r WHERE r.case_id = c.id) END AS revision
    FROM cases AS c LEFT JOIN snapshot_members AS before ON before.version = :parent AND before.case_id = c.id
    WHERE c.status = 'ready' OR before.case_id IS NOT NULL
"""
"""Every case that a release decides about: what is ready, at its latest revision, and what the parent holds; a
case that is held out there at the revision that was committed to."""

_UNCHECKED = f"""
    FROM ({JUDGED}) AS judged WHERE status = 'ready' AND revision IS NOT NULL AND NOT EXISTS (
        SELECT FROM case_gates AS g
        WHERE g.case_id = judged.case_id AND g.revision = judged.revision AND g.gates_digest = :digest
    )
"""
_MISSING = text(f"SELECT case_id, revision {_UNCHECKED} AND case_id > :after ORDER BY case_id LIMIT :most")
_COUNT = text(f"SELECT count(*) {_UNCHECKED}")
_SAVE = text(
    "INSERT INTO case_gates (case_id, revision, gates_digest, hits)"
    " SELECT case_id, revision, v.gates_digest, v.hits"
    " FROM json_populate_recordset(NULL::case_gates, CAST(:rows AS json)) AS v"
    " JOIN case_revisions USING (case_id, revision) ON CONFLICT DO NOTHING"
)


async def unchecked(
    session: AsyncSession, parent: str | None, digest: str, *, after: str, most: int
) -> list[tuple[str, int]]:
    """At most so many (case id, revision) behind a case id that a release after `parent` decides about and that
    these gates have not read."""
    values = {"parent": parent, "digest": digest, "after": after, "most": most}
    return [(case_id, revision) for case_id, revision in await session.execute(_MISSING, values)]


async def count_unchecked(session: AsyncSession, parent: str | None, digest: str) -> int:
    """How many there are of them."""
    return await session.scalar(_COUNT, {"parent": parent, "digest": digest}) or 0


async def save_verdicts(
    session: AsyncSession, digest: str, verdicts: Iterable[tuple[str, int, Sequence[GateHit]]]
) -> None:
    """Keep what these gates found in (case id, revision); one that another process kept first stands, and one of a
    case that was taken down meanwhile is let go."""
    rows = [
        {
            "case_id": case_id,
            "revision": revision,
            "gates_digest": digest,
            "hits": [[hit.gate.value, hit.detail] for hit in hits],
        }
        for case_id, revision, hits in verdicts
    ]
    await no_takedown(session)
    await session.execute(_SAVE, {"rows": dump_json(rows)})
