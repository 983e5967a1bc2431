"""Fixing a snapshot in one transaction: which case revisions are in it or kept out, what changed since its parent.

Before it `unchecked` and `save_verdicts` see that the release gates have read every case. Then come `judge`,
`never_shown`, `add_members` and `keep_changes`. `judge` reads everything that a release decides about into the
temporary table `judged`; the others use it and rows that never change. Gates on what the database knows of a case are
SQL (`_REASONS`): a case passes if none gives a reason. The rows stay in the database: of what grows with the release,
only the ids of cases to be newly held out pass through this process.
"""

from collections.abc import Iterable, Mapping, Sequence

from psycopg.types.json import Json

from medlive.db.session import Session
from medlive.db.tables.release import SnapshotMemberRow
from medlive.db.threads.takedowns import TAKEN_DOWN, no_takedown
from medlive.snapshot.gates import Gate, GateHit

from .withdrawals import lost_since, reasons_for, redacted_since

_JUDGED = """
    SELECT c.id AS case_id, c.status, c.status_reason, before.held_since, before.salt, before.commitment,
        before.first_release, before.case_id IS NOT NULL AND before.first_release IS NULL AS is_held,
        CASE WHEN before.first_release IS NOT NULL THEN before.revision END AS from_revision,
        CASE WHEN before.case_id IS NOT NULL AND before.first_release IS NULL THEN before.revision
            ELSE (SELECT max(r.revision) FROM case_revisions AS r WHERE r.case_id = c.id) END AS revision
    FROM cases AS c LEFT JOIN snapshot_members AS before ON before.version = :parent AND before.case_id = c.id
    WHERE c.status = 'ready' OR before.case_id IS NOT NULL
"""
"""Every case that a release decides about: the ready cases and the parent's, at their latest revision; a case that the
parent holds out at the revision that was committed to."""

_UNCHECKED = f"""
    FROM ({_JUDGED}) AS judged WHERE status = 'ready' AND revision IS NOT NULL AND NOT EXISTS (
        SELECT FROM case_gates AS g
        WHERE g.case_id = judged.case_id AND g.revision = judged.revision AND g.gates_digest = :digest
    )
"""
_COUNT = f"SELECT count(*) {_UNCHECKED}"


_REASONS = (
    (
        "is_late",
        Gate.ROW,
        "'posted after its first release ' || coalesce(released, :version)",
    ),
    (
        "is_outdated",
        Gate.WITHDRAWN,
        "'a criterion was withdrawn from the revision that was held out'",
    ),
    (
        "is_redacted",
        Gate.WITHDRAWN,
        "'identifiers were removed since from the revision that was held out'",
    ),
    (
        "disputes > 0",
        Gate.DISPUTE,
        "CASE disputes WHEN 1 THEN 'a dispute is' ELSE disputes || ' disputes are' END || ' open'",
    ),
    (
        "unproven > 0",
        Gate.EVIDENCE,
        "CASE unproven WHEN 1 THEN 'a supported verdict' ELSE unproven || ' supported verdicts' END"
        " || ' without stored evidence'",
    ),
    (
        "NOT index_known",
        Gate.EVIDENCE,
        "'the evidence index it was judged by is not recorded'",
    ),
    (
        ":hold_unproved AND is_unproved",
        Gate.RUBRIC,
        "'its rubric is not proved'",
    ),
    (
        ":publishable_only AND NOT publishable",
        Gate.ENGINE,
        "coalesce(nullif(unpublishable_reason, ''), 'not publishable')",
    ),
)
"""Gates on what the database knows of a case: the condition that keeps it out, the gate, and SQL for the detail."""
# Every reason that keeps a case out, as [[gate, detail], …]: what gates found in its content comes first.
_ALL_REASONS = "coalesce(hits, '[]'::jsonb)" + "".join(
    f" || CASE WHEN {condition} THEN jsonb_build_array(jsonb_build_array('{gate.value}', {detail}))"
    " ELSE '[]'::jsonb END"
    for condition, gate, detail in _REASONS
)


# A case that is held out stays at an older revision, which may still have a criterion that was withdrawn or a name that
# was redacted (`is_outdated`, `is_redacted`).
# The parent knows most first releases; that of a case that it left out is looked up. `+ 7` from a week's Monday is
# the day after its Sunday, as `gates.row_hits` allows for time zones.
_JUDGE = f"""
    INSERT INTO judged
    SELECT case_id, status, revision, status_reason, held_since, salt, commitment, is_held, from_revision, released,
        hits IS NOT NULL, reasons, status = 'ready' AND hits IS NOT NULL AND reasons = '[]'::jsonb
    FROM (SELECT known.*, {_ALL_REASONS} AS reasons FROM (
        SELECT
            j.case_id, j.status, j.status_reason, j.revision, j.held_since, j.salt,
            j.commitment, j.is_held, j.from_revision, j.released, r.publishable, r.unpublishable_reason,
            r.ceiling IS NULL AS is_unproved,
            i.digest IS NOT NULL AS index_known, coalesce(u.claims, 0) AS unproven,
            coalesce(d.disputes, 0) AS disputes,
            (r.posted_at AT TIME ZONE 'UTC')::date
                > to_date(coalesce(j.released, :version), 'IYYY."W"IW') + 7 AS is_late,
            j.is_held AND {lost_since("j.case_id", "r.revision")} AS is_outdated,
            j.is_held AND {redacted_since("j.case_id", "r.revision")} AS is_redacted,
            g.hits
        FROM (
            SELECT named.*, coalesce(first_release, (
                SELECT min(m.first_release) FROM snapshot_members AS m
                JOIN snapshots AS s ON s.version = m.version AND s.state = 'frozen'
                WHERE m.case_id = named.case_id
            )) AS released
            FROM ({_JUDGED}) AS named
        ) AS j
        JOIN case_revisions AS r ON r.case_id = j.case_id AND r.revision = j.revision
        JOIN curations AS made ON made.id = r.curation_id
        LEFT JOIN evidence_indexes AS i ON i.digest = made.index_digest
        LEFT JOIN case_gates AS g
            ON g.case_id = r.case_id AND g.revision = r.revision AND g.gates_digest = :digest
        LEFT JOIN (
            SELECT case_id, count(*) AS disputes FROM disputes WHERE closed_at IS NULL GROUP BY case_id
        ) AS d ON d.case_id = j.case_id
        LEFT JOIN (
            SELECT v.curation_id, count(*) AS claims FROM claim_verdicts AS v
            WHERE v.verdict = 'supported' AND NOT EXISTS (
                SELECT FROM claim_evidence AS c
                WHERE c.curation_id = v.curation_id AND c.element_id = v.element_id AND c.cited_as IS NOT NULL
            )
            GROUP BY v.curation_id
        ) AS u ON u.curation_id = r.curation_id
    ) AS known) AS explained
"""
_UNREAD = "SELECT count(*) FROM judged WHERE status = 'ready' AND NOT is_read"
_RUBRIC = """
    SELECT array_agg(ROW (c.criterion_id, c.position, c.criterion, c.axis, c.points, c.origin, c.source, c.tier,
        c.asked)::text ORDER BY c.position)
    FROM criteria AS c WHERE c.case_id = {0}.case_id AND c.revision = {0}.revision
"""
_TEXTS = (
    "language",
    "source",
    "posted_at",
    "specialty",
    "theme",
    "difficulty",
    "dialogue_register",
    "narrative",
    "query",
    "asked",
    "advice",
)
_DIFFERING = (
    "concat_ws(', ', "
    + "".join(f"CASE WHEN a.{name} <> b.{name} THEN '{name}' END, " for name in _TEXTS)
    + "CASE WHEN (a.ceiling, a.floor, a.separation, a.ordinary) IS DISTINCT FROM"
    " (b.ceiling, b.floor, b.separation, b.ordinary) THEN 'proof' END, "
    + "CASE WHEN a.overruled IS DISTINCT FROM b.overruled THEN 'overruled' END, "
    + f"CASE WHEN ({_RUBRIC.format('a')}) IS DISTINCT FROM ({_RUBRIC.format('b')}) THEN 'criteria' END)"
)
# The public reason why a case is gone. The words of a person who holds a case, or of an engine that decided again, may
# quote the thread and are not published. A withdrawal's reason may be of a criterion alone: it does not say why the
# whole case is held, rejected or kept out.
_GONE = f"""
    CASE
        WHEN j.status = 'held' THEN 'held back until a person has looked at it'
        WHEN j.status = 'rejected' THEN 'rejected in review'
        WHEN given.reason IS NOT NULL AND (j.status = 'withdrawn' OR j.is_held) THEN given.reason
        WHEN j.status = 'withdrawn' THEN
            CASE j.status_reason WHEN '{TAKEN_DOWN}' THEN 'taken down' ELSE j.status_reason END
        ELSE 'kept out: ' || (
            SELECT k.detail FROM snapshot_kept_out AS k
            WHERE k.version = :version AND k.case_id = j.case_id AND k.position = 1
        )
    END
"""
_GIVEN = "json_each_text(CAST(:reasons AS json)) AS given (case_id, reason)"
_CHANGES = (
    """
    INSERT INTO snapshot_changes (version, case_id, kind, reason, to_revision)
    SELECT :version, m.case_id, 'added', CASE
        WHEN m.held_since IS NOT NULL THEN 'held out since ' || m.held_since || ', shown now'
        WHEN m.first_release < :version THEN 'in the release again'
        ELSE 'new in this release'
    END, m.revision
    FROM snapshot_members AS m JOIN judged AS j USING (case_id)
    WHERE m.version = :version AND m.first_release IS NOT NULL AND j.from_revision IS NULL
    """,
    f"""
    INSERT INTO snapshot_changes (version, case_id, kind, reason, from_revision, to_revision)
    SELECT :version, m.case_id, 'revised', coalesce(
        given.reason, 'changed: ' || nullif({_DIFFERING}, ''), 'made anew with the same content'
    ), j.from_revision, m.revision
    FROM snapshot_members AS m JOIN judged AS j USING (case_id) LEFT JOIN {_GIVEN} USING (case_id)
    JOIN case_revisions AS a ON a.case_id = m.case_id AND a.revision = j.from_revision
    JOIN case_revisions AS b ON b.case_id = m.case_id AND b.revision = m.revision
    WHERE m.version = :version AND m.revision <> j.from_revision
    """,
    f"""
    INSERT INTO snapshot_changes (version, case_id, kind, reason, from_revision)
    SELECT :version, j.case_id, 'withdrawn', {_GONE}, j.from_revision
    FROM judged AS j LEFT JOIN {_GIVEN} USING (case_id) WHERE NOT j.passes AND j.from_revision IS NOT NULL
    """,
    f"""
    INSERT INTO snapshot_changes (version, case_id, kind, reason, held_since, commitment)
    SELECT :version, j.case_id, 'dropped', {_GONE}, j.held_since, j.commitment
    FROM judged AS j LEFT JOIN {_GIVEN} USING (case_id) WHERE NOT j.passes AND j.is_held
    """,
)


async def unchecked(
    session: Session, parent: str | None, digest: str, *, after: str, most: int
) -> list[tuple[str, int]]:
    """The next (case id, revision) that a release after `parent` decides about and that the gates of this digest have
    not read: at most `most`, behind the case id `after`."""
    missing = await session.run(
        f"SELECT case_id, revision {_UNCHECKED} AND case_id > :after ORDER BY case_id LIMIT :most",
        parent=parent,
        digest=digest,
        after=after,
        most=most,
    )
    return [(case_id, revision) for case_id, revision in missing]


async def count_unchecked(session: Session, parent: str | None, digest: str) -> int:
    """How many (case id, revision) `unchecked` would give in all."""
    return await session.value(_COUNT, parent=parent, digest=digest) or 0


async def save_verdicts(
    session: Session,
    digest: str,
    verdicts: Iterable[tuple[str, int, Sequence[GateHit]]],
) -> None:
    """Store what the gates of this digest found in (case id, revision).

    A result that another process has stored stays; a result on a case that was taken down meanwhile is dropped.
    """
    rows = []
    for case_id, revision, hits in verdicts:
        row = {"case_id": case_id, "revision": revision, "gates_digest": digest}
        rows.append(row | {"hits": [[hit.gate, hit.detail] for hit in hits]})
    await no_takedown(session)
    await session.run(
        """
        INSERT INTO case_gates (case_id, revision, gates_digest, hits)
        SELECT case_id, revision, v.gates_digest, v.hits
        FROM json_populate_recordset(NULL::case_gates, CAST(:rows AS json)) AS v
        JOIN case_revisions USING (case_id, revision) ON CONFLICT DO NOTHING
        """,
        rows=Json(rows),
    )


async def judge(
    session: Session,
    version: str,
    parent: str | None,
    gates_digest: str,
    *,
    publishable_only: bool,
    hold_unproved: bool,
) -> int:
    """Decide about every case that is ready or in the parent: fill the table `judged` for the rest of the transaction.

    Returns how many ready cases the gates have still to read; then nothing else is done. With 0 the reasons why ready
    cases are not in the snapshot are stored.
    """
    await session.run("""
        CREATE TEMP TABLE judged (
            case_id text, status text, revision int, status_reason text, held_since text, salt text,
            commitment text, is_held boolean, from_revision int, first_release text,
            is_read boolean, reasons jsonb, passes boolean
        ) ON COMMIT DROP
        """)
    await session.run(
        _JUDGE,
        version=version,
        parent=parent,
        digest=gates_digest,
        publishable_only=publishable_only,
        hold_unproved=hold_unproved,
    )
    await session.run("ANALYZE judged")
    if unread := await session.value(_UNREAD):
        return int(unread)
    await session.run(
        """
        INSERT INTO snapshot_kept_out (version, case_id, position, gate, detail)
        SELECT :version, case_id, position, reason->>0, reason->>1
        FROM judged, jsonb_array_elements(reasons) WITH ORDINALITY AS each (reason, position)
        WHERE status = 'ready'
        """,
        version=version,
    )
    return 0


async def never_shown(session: Session) -> list[tuple[str, int]]:
    """(case id, revision) of the judged cases that pass, were never shown, and are not held out by the parent."""
    shown = await session.run("""
        SELECT case_id, revision FROM judged WHERE passes AND NOT is_held AND first_release IS NULL
        ORDER BY case_id COLLATE "C"
        """)
    return [(case_id, revision) for case_id, revision in shown]


async def add_members(
    session: Session,
    version: str,
    *,
    due: Sequence[str],
    held_out: Iterable[Mapping[str, object]],
) -> None:
    """Add the judged cases that pass to the snapshot, shown or held out.

    Args:
        session: The transaction of `judge`.
        version: The snapshot.
        due: A case held out since one of these snapshots is shown now.
        held_out: The cases to be newly held out: case_id, revision, and the salt and commitment that stand for each.
    """
    since = {"version": version, "held_since": version}
    await session.insert_rows(
        SnapshotMemberRow, [{**case, **since} for case in held_out]
    )
    await session.run(
        """
        INSERT INTO snapshot_members (version, case_id, revision, first_release, held_since, salt, commitment)
        SELECT :version, case_id, revision, CASE WHEN held_since = ANY (:due) THEN :version END, held_since, salt,
            commitment
        FROM judged WHERE passes AND is_held
        """,
        version=version,
        due=list(due),
    )
    await session.run(
        """
        INSERT INTO snapshot_members (version, case_id, revision, first_release)
        SELECT :version, case_id, revision, coalesce(first_release, :version) FROM judged AS j
        WHERE passes AND NOT is_held AND NOT EXISTS (
            SELECT FROM snapshot_members AS m WHERE m.version = :version AND m.case_id = j.case_id
        )
        """,
        version=version,
    )


async def keep_changes(session: Session, version: str, parent: str | None) -> None:
    """Store what changed since the parent, each change with its public reason: a withdrawal's, if one revised the case
    or took it out."""
    reasons = Json(await reasons_for(session, parent))
    for statement in _CHANGES:
        await session.run(statement, version=version, reasons=reasons)
