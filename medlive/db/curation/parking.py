"""Parked threads: since when they are, which are due for another search, and which claims lack evidence.

A thread is parked if the library held no passage on the subject of its claims: it is neither kept nor rejected, and
evidence is searched for again in each later library (an index, by its digest). In the SQL `last` is its latest
decision, `spell` the unbroken row of parkings up to it.
"""

from collections.abc import Sequence

from medlive.db.mapping import Record
from medlive.db.session import Session

# A thread whose latest search failed is still parked: a failure is no decision. A thread whose parking a person
# overruled is curated again anyway, and left out.
_PARKED = """
    SELECT thread.source, thread.thread_id, concat(thread.source, '/', thread.thread_id) AS name, standing.revision_id,
        last.id AS curation_id, spell.since, spell.libraries
    FROM thread_standings AS standing
    JOIN threads AS thread ON thread.id = standing.thread_id
    JOIN LATERAL (
        SELECT id, outcome FROM curations
        WHERE revision_id = standing.revision_id AND outcome <> 'failed'
        ORDER BY id DESC LIMIT 1
    ) AS last ON last.outcome = 'parked'
    CROSS JOIN LATERAL (
        SELECT min(finished_at) AS since, count(DISTINCT index_digest) AS libraries
        FROM curations
        WHERE revision_id = standing.revision_id AND outcome = 'parked'
            AND id > coalesce((
                SELECT max(id) FROM curations AS other
                WHERE other.revision_id = standing.revision_id
                    AND other.outcome NOT IN ('parked', 'failed')
            ), 0)
    ) AS spell
    WHERE standing.outcome IN ('parked', 'failed')
        AND NOT EXISTS (SELECT FROM overrules WHERE overrules.curation_id = last.id)
"""
_ONE = f"SELECT * FROM ({_PARKED}) AS parked WHERE revision_id = :revision"
# Due are threads that neither this pipeline nor another one with this library has decided. Threads that failed in this
# pipeline are left to its retries.
_DUE = f"""
    SELECT revision_id FROM ({_PARKED}) AS parked
    WHERE NOT EXISTS (
        SELECT FROM curations AS tried WHERE tried.revision_id = parked.revision_id
            AND (tried.pipeline_digest = :pipeline
                OR tried.outcome <> 'failed' AND tried.index_digest = :library)
    )
    ORDER BY revision_id
"""
_UNANSWERED = f"""
    SELECT parked.source, parked.thread_id, claim.element_id, claim.claim, claim.queries,
        passage.passage_id, passage.title
    FROM ({_PARKED}) AS parked
    JOIN claim_verdicts AS claim
        ON claim.curation_id = parked.curation_id AND NOT claim.on_subject
    LEFT JOIN LATERAL (
        SELECT found.passage_id, found.title
        FROM claim_evidence AS hit JOIN passages AS found ON found.key = hit.passage_key
        WHERE hit.curation_id = claim.curation_id AND hit.element_id = claim.element_id
        ORDER BY found.passage_id IS NOT DISTINCT FROM claim.nearest DESC, hit.position
        LIMIT 1
    ) AS passage ON true
    ORDER BY parked.since, parked.curation_id, claim.position
"""


async def count_parked(session: Session) -> Record:
    """Return threads (how many are parked) and since (when the first of them was parked; None: there is none)."""
    [count] = await session.records(
        f"SELECT count(*) AS threads, min(since) AS since FROM ({_PARKED}) AS parked"
    )
    return count


async def list_parked(session: Session) -> Sequence[Record]:
    """Return the parked threads, the one that has waited longest first.

    Each has source, thread_id, name (SOURCE/ID), revision_id, curation_id (the latest decision that parked it), since
    (when it was first parked in an unbroken row) and libraries (how many were searched since).
    """
    return await session.records(
        f"SELECT * FROM ({_PARKED}) AS parked ORDER BY since, curation_id"
    )


async def find_parked(session: Session, revision_id: int) -> Record | None:
    """Return what `list_parked` knows of a thread revision; None if it is not parked."""
    return next(iter(await session.records(_ONE, revision=revision_id)), None)


async def list_due(
    session: Session, *, library: str, pipeline_digest: str
) -> Sequence[int]:
    """Return the parked thread revisions that were not searched in a library yet.

    Args:
        session: The database.
        library: The digest of the index and of the services that are asked.
        pipeline_digest: The pipeline that would search; threads that failed in it are left to its retries.
    """
    return await session.column(_DUE, library=library, pipeline=pipeline_digest)


async def list_unanswered(session: Session) -> Sequence[Record]:
    """Return the claims of parked threads for which no passage on their subject was found.

    Each has source, thread_id, element_id, claim, queries (what was searched for), and passage_id and title of the
    nearest passage (None: nothing was found).
    """
    return await session.records(_UNANSWERED)
