"""Rows of snapshots: begun, frozen, looked up; the counts and the provenance of their cases."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from medlive.clock import now
from medlive.db.mapping import Record, read
from medlive.db.session import Session, read_clock
from medlive.db.tables.release import (
    SnapshotKeptOutRow,
    SnapshotRow,
)
from medlive.errors import CheckFailed, UsageError
from medlive.snapshot.gates import GateHit
from medlive.snapshot.manifest import (
    AuditLogHead,
    EngineUse,
    EvidenceUse,
    Provenance,
    Stated,
)


class MembersGone(CheckFailed):
    """Cases left the snapshot after it was fixed and before it was frozen."""


class Numbers(BaseModel):
    """How many cases a snapshot has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cases: int  # Shown
    criteria: int  # Of the cases that are shown
    held: int  # Held out
    revealed: int = 0  # Held out by the parent, shown now
    dropped: int = 0  # Held out by the parent, no longer in it


class FixedMeta(Stated, extra="forbid"):
    """What a snapshot states about itself besides its rows, fixed in one transaction with them."""

    numbers: Numbers
    hold_out: float  # The share that was asked for
    gates_digest: str
    standing: tuple[int, int, int, int, int] | None = None
    """How many of the week's threads were queued, decided, held, failed and waiting; None: the snapshot is from before
    they were counted."""


_MADE = """
    SELECT r.case_id, r.language, r.curation_id, m.first_release FROM snapshot_members AS m
    JOIN case_revisions AS r ON r.case_id = m.case_id AND r.revision = m.revision WHERE m.version = :version
"""
_SHOWN = f"SELECT curation_id FROM ({_MADE}) AS made WHERE first_release IS NOT NULL"
_PROMPTS = f"""
    SELECT DISTINCT task AS name, prompt_digest AS value FROM agent_calls WHERE curation_id IN ({_SHOWN}) ORDER BY 1, 2
"""
_THRESHOLDS = f"""
    SELECT DISTINCT used.name, used.value, threshold_sufficiency, threshold_alignment FROM curations
    CROSS JOIN LATERAL (VALUES ('sufficiency', threshold_sufficiency), ('alignment', threshold_alignment))
        AS used (name, value)
    WHERE curations.id IN ({_SHOWN}) ORDER BY threshold_sufficiency, threshold_alignment
"""


async def begin_snapshot(session: Session, version: str) -> SnapshotRow:
    """Insert a snapshot to be built, without members; its parent is the latest frozen one.

    Snapshots that were begun and never frozen are dropped, of any version. Raises UsageError if this version or a later
    one is frozen.
    """
    latest = await latest_frozen(session)
    if latest is not None and latest.version >= version:
        ended = "is frozen" if latest.version == version else "can no longer be made"
        raise UsageError(f"snapshot {latest.version} is frozen, so {version} {ended}")
    for statement in _DROP_BEGUN:
        await session.run(statement)
    made = SnapshotRow(version=version, state="building")
    if latest is not None:
        made.parent = latest.version
        # Whatever the clock says: no verifier believes a snapshot that is older than its parent.
        made.created_at = max(await read_clock(session), latest.created_at)
    return await session.insert(made)


_BEGUN = "IN (SELECT version FROM snapshots WHERE state = 'building')"
_DROP_BEGUN = (
    f"UPDATE week_threads SET frozen_in = NULL WHERE frozen_in {_BEGUN}",
    f"DELETE FROM snapshot_members WHERE version {_BEGUN}",
    f"DELETE FROM snapshot_changes WHERE version {_BEGUN}",
    f"DELETE FROM snapshot_kept_out WHERE version {_BEGUN}",
    "DELETE FROM snapshots WHERE state = 'building'",
)


async def load_fixed(session: Session, version: str) -> FixedMeta | None:
    """What a snapshot was fixed with; None if it does not exist, is not fixed yet, or is from before format 2."""
    meta = await session.value(
        "SELECT meta FROM snapshots WHERE version = :version", version=version
    )
    return None if meta is None else FixedMeta.model_validate(meta)


async def freeze_snapshot(session: Session, built: SnapshotRow) -> SnapshotRow:
    """Freeze a snapshot with its present members: from now on the database refuses every change of it.

    `built` has its version, manifest, the digests of the manifest and of SHA256SUMS, signature, path, and whether it is
    publishable with the reasons why not. Raises MembersGone if the manifest's counts are not the members', and
    UsageError if the snapshot was not begun or is frozen.
    """
    # A transaction that removes a member keeps the snapshot's row locked until it ends.
    row = await session.get(
        SnapshotRow, built.version, with_for_update=True, populate_existing=True
    )
    if row is None or row.state != "building":
        raise UsageError(
            f"snapshot {built.version} is frozen already, or was not begun"
        )
    numbers = await count_members(session, built.version)
    counts = (built.manifest or {}).get("counts", {})
    listed = (counts.get("cases"), counts.get("criteria"), counts.get("held", 0))
    if listed != (numbers.cases, numbers.criteria, numbers.held):
        raise MembersGone(
            f"the manifest counts {listed[0]} cases and {listed[1]} criteria, "
            f"snapshot {built.version} has {numbers.cases} and {numbers.criteria}"
        )
    built.cases, built.criteria = numbers.cases, numbers.criteria
    built.state, built.frozen_at = "frozen", now()
    row = await session.merge(built)
    await session.flush()
    return row


async def find_snapshot(session: Session, version: str) -> SnapshotRow | None:
    """A snapshot's row; None if there is none."""
    return await session.get(SnapshotRow, version)


async def list_snapshots(session: Session) -> list[SnapshotRow]:
    """Every snapshot, newest first."""
    return await session.rows(SnapshotRow, "ORDER BY version DESC")


async def latest_frozen(session: Session) -> SnapshotRow | None:
    """The newest frozen snapshot; None when there is none."""
    latest = "WHERE state = 'frozen' ORDER BY version DESC LIMIT 1"
    return await session.first(SnapshotRow, latest)


async def list_log_heads(session: Session) -> dict[str, AuditLogHead]:
    """The head of the audit log that each frozen snapshot was fixed with, by version."""
    heads = await session.lookup("""
        SELECT version, meta -> 'audit_log' FROM snapshots
        WHERE state = 'frozen' AND meta -> 'audit_log' <> 'null' ORDER BY version
        """)
    return {week: AuditLogHead.model_validate(heads[week]) for week in heads}


async def load_kept_out(session: Session, version: str) -> list[GateHit]:
    """The reasons why ready cases are not in a snapshot, by case id."""
    hits = await session.rows(
        SnapshotKeptOutRow,
        "WHERE version = :version ORDER BY case_id, position",
        version=version,
    )
    return [read(GateHit, hit) for hit in hits]


async def held_weeks(session: Session, version: str | None) -> list[str]:
    """The snapshots since which a snapshot's held-out cases have been held out."""
    return await session.column(
        """
        SELECT DISTINCT held_since FROM snapshot_members
        WHERE version = :version AND first_release IS NULL AND held_since IS NOT NULL ORDER BY 1
        """,
        version=version,
    )


async def count_members(session: Session, version: str) -> Numbers:
    """Count a snapshot's present members."""
    [numbers] = await session.records(
        """
        SELECT count(*) FILTER (WHERE first_release IS NOT NULL) AS cases,
            count(*) FILTER (WHERE first_release IS NULL) AS held,
            count(*) FILTER (WHERE first_release IS NOT NULL AND held_since IS NOT NULL) AS revealed,
            coalesce(sum((SELECT count(*) FROM criteria AS c WHERE c.case_id = m.case_id AND c.revision = m.revision))
                FILTER (WHERE first_release IS NOT NULL), 0)::bigint AS criteria,
            (SELECT count(*) FROM snapshot_changes WHERE version = :version AND kind = 'dropped') AS dropped
        FROM snapshot_members AS m WHERE version = :version
        """,
        version=version,
    )
    return Numbers(**vars(numbers))


async def thread_revisions_of(
    session: Session, version: str, case_ids: Iterable[str]
) -> dict[str, int]:
    """Case id → the thread revision that its case was made from, for those of the cases that are in a snapshot."""
    return await session.lookup(
        f"""
        SELECT case_id, revision_id FROM ({_MADE}) AS made JOIN curations ON curations.id = curation_id
        WHERE case_id = ANY (CAST(:case_ids AS text[]))
        """,
        version=version,
        case_ids=list(case_ids),
    )


async def list_memberships(session: Session, case_id: str) -> Sequence[Record]:
    """The snapshots that hold a case, the newest first: version, revision, first_release (the first snapshot that
    shows it; None: it is held out), frozen_at."""
    return await session.records(
        """
        SELECT version, revision, first_release, frozen_at FROM snapshot_members JOIN snapshots USING (version)
        WHERE case_id = :case_id ORDER BY version DESC
        """,
        case_id=case_id,
    )


async def load_provenance(
    session: Session, version: str, *, code_version: str
) -> Provenance:
    """How the cases that a snapshot shows were made: every engine, prompt, index and threshold that took part.

    Where cases of several weeks differ, a prompt's or threshold's further values follow under `name#2` and on.
    """
    engines = await session.records(
        f"""
        SELECT DISTINCT role COLLATE "C" AS role, used ->> 'engine' COLLATE "C" AS engine,
            used ->> 'model' COLLATE "C" AS model
        FROM curations, jsonb_each(engines) AS each (role, used) WHERE curations.id IN ({_SHOWN}) ORDER BY 1, 2, 3
        """,
        version=version,
    )
    evidence = await session.records(
        f"""
        SELECT retriever, digest AS index_digest, corpora, passages FROM evidence_indexes
        WHERE digest IN (SELECT index_digest FROM curations WHERE curations.id IN ({_SHOWN})) ORDER BY digest
        """,
        version=version,
    )
    for row in evidence:
        row.corpora = dict(sorted(row.corpora.items()))
    return Provenance(
        code_version=code_version,
        engines=tuple(EngineUse(**vars(row)) for row in engines),
        prompts=_numbered(await session.run(_PROMPTS, version=version)),
        evidence=tuple(EvidenceUse(**vars(row)) for row in evidence),
        thresholds=_numbered(await session.run(_THRESHOLDS, version=version)),
    )


def _numbered(pairs: Iterable[Any]) -> dict[str, Any]:
    """Name → value; a name's further values under `name#2`, `name#3`."""
    values: dict[str, dict[Any, None]] = {}
    for name, value, *_ in pairs:
        values.setdefault(name, {})[value] = None
    numbered = {}
    for name, known in sorted(values.items()):
        for number, value in enumerate(known, start=1):
            numbered[name if number == 1 else f"{name}#{number}"] = value
    return numbered
