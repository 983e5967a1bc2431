"""MinHash bands of accepted threads, by which the filters find near-duplicates: `save_bands`, `find_candidates`.

A band is known by its key, a hash. A row says that some accepted revision of a thread has the band. Rows are only
added: filter results say which revision counts, so that filter chains share the bands, and a band that an edited thread
has lost costs one comparison. A look-up reads a bounded number of rows, however many threads there are.
"""

from collections.abc import Sequence

from medlive.db.mapping import Record, int_array
from medlive.db.session import Session

NEWEST = 64
"""At most this many rows of a band are read, its newest threads. A band that more threads share is boilerplate and
tells little, and a thread that repeats a text shares its other bands too."""
CANDIDATES = 32
"""A text is compared with at most this many threads: those that share the most and the rarest bands with it."""
_LOCK = 0x6D656464  # "medd": one number for every filter run of this database

# Arrays: the statement's text is the same for any number of rows.
_SAVE = """
    INSERT INTO bands (key, thread_id)
    SELECT * FROM unnest(CAST(:keys AS bigint[]), CAST(:threads AS int[])) ON CONFLICT DO NOTHING
"""
# `result.passed` is read as a value: with EXISTS the planner may read every filter result first.
_CANDIDATES = """
    WITH met AS MATERIALIZED (
        SELECT asked.place, found.thread_id, 1.0 / count(*) OVER (PARTITION BY asked.place, asked.key) AS weight
        FROM unnest(CAST(:places AS int[]), CAST(:keys AS bigint[])) AS asked (place, key)
        CROSS JOIN LATERAL (
            SELECT thread_id FROM bands WHERE bands.key = asked.key ORDER BY thread_id DESC LIMIT :newest
        ) AS found
    ), member AS MATERIALIZED (
        SELECT met.thread_id, latest.id AS revision_id
        FROM (SELECT DISTINCT thread_id FROM met) AS met
        CROSS JOIN LATERAL (
            SELECT revision.id FROM thread_revisions AS revision
            WHERE revision.thread_id = met.thread_id AND (
                SELECT result.passed FROM filter_results AS result
                WHERE result.revision_id = revision.id AND result.chain_digest = :chain
            )
            ORDER BY revision.revision DESC LIMIT 1
        ) AS latest
    ), ranked AS (
        SELECT thread_id, member.revision_id,
            row_number() OVER (PARTITION BY place ORDER BY sum(weight) DESC, thread_id) AS rank
        FROM met JOIN member USING (thread_id)
        GROUP BY place, thread_id, member.revision_id
    )
    SELECT DISTINCT thread_id AS thread_pk, revision_id AS revision_pk FROM ranked WHERE rank <= :candidates
    """


async def take_turn(session: Session) -> None:
    """Wait until no other transaction judges duplicates, and keep others out until this one ends.

    Two filter runs at once could each accept one thread of a pair. Call it before reading which threads wait, so that
    the other run's verdicts are seen.
    """
    await session.run("SELECT pg_advisory_xact_lock(:lock)", lock=_LOCK)


async def save_bands(
    session: Session, bands: Sequence[tuple[int, Sequence[int]]]
) -> None:
    """Add the bands of accepted texts: pairs of thread's number and keys. Rows that exist stay."""
    rows = sorted({(key, thread_pk) for thread_pk, keys in bands for key in keys})
    if rows:
        keys, threads = map(int_array, zip(*rows, strict=True))
        await session.run(_SAVE, keys=keys, threads=threads)


async def find_candidates(
    session: Session, chain_digest: str, texts: Sequence[Sequence[int]]
) -> Sequence[Record]:
    """The threads that any of these texts may repeat, at most CANDIDATES a text.

    Each text is given by its keys. Each thread has thread_pk, and revision_pk (its latest revision that this filter
    chain accepted).
    """
    rows = [(place, key) for place, keys in enumerate(texts) for key in keys]
    if not rows:
        return []
    places, keys = zip(*rows, strict=True)
    # Thousands of index look-ups look dear enough to the planner to compile the statement, which takes longer.
    await session.run("SET LOCAL jit = off")
    return await session.records(
        _CANDIDATES,
        places=int_array(places),
        keys=int_array(keys),
        chain=chain_digest,
        newest=NEWEST,
        candidates=CANDIDATES,
    )


async def begin_scheme(session: Session, scheme: str) -> bool:
    """Note that bands are made by this scheme; return whether the caller must add the bands of all accepted threads.

    If so, the bands of another scheme, which are of no use any more, are removed. Add the new bands in this
    transaction: once it ends, they count as complete. Call `take_turn` first.
    """
    finished = "SELECT finished_at FROM band_schemes WHERE scheme = :scheme"
    if await session.value(finished, scheme=scheme):
        return False
    await session.run("TRUNCATE bands")
    await session.run("DELETE FROM band_schemes")
    await session.run(
        "INSERT INTO band_schemes (scheme, finished_at) VALUES (:scheme, now())",
        scheme=scheme,
    )
    return True


async def accepted_revisions(
    session: Session, *, after: int, limit: int
) -> Sequence[Record]:
    """The next `limit` revisions, numbered above `after`, that any filter chain accepted, oldest first: thread_pk and
    revision_pk."""
    return await session.records(
        """
        SELECT thread_id AS thread_pk, r.id AS revision_pk FROM thread_revisions AS r WHERE r.id > :after AND EXISTS
        (SELECT FROM filter_results WHERE revision_id = r.id AND passed) ORDER BY r.id LIMIT :most
        """,
        after=after,
        most=limit,
    )
