"""`read_snapshots`: a snapshot's rows in the order of its files, a few hundred in memory at a time.

The writer of a snapshot's folder is synchronous and takes rows as it goes, so the thread that writes reads them over a
connection of its own. All rows are from one state of the database, however long it takes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any

from sqlalchemy import URL, Connection, text

from medlive.db.schema.migrate import connect
from medlive.integrity.digest import canonical_json
from medlive.snapshot.contents import CHANGES, SECTIONS
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion

# Only ids are sorted; each case's texts are looked up when its row is taken. (A sort or a hash of the texts would read
# the whole release first. OFFSET 0 and LATERAL leave the database no other way.)
_TEXTS = """
    CROSS JOIN LATERAL (
        SELECT r.language, r.source, (r.posted_at AT TIME ZONE 'UTC')::date AS posted_at, r.specialty, r.theme,
            r.narrative, r.query, r.advice, r.difficulty, r.dialogue_register,
            r.ceiling, r.floor, r.separation, r.ordinary, r.asked, r.overruled, (
                SELECT json_agg(c ORDER BY c.position) FROM (
                    SELECT concat(case_id, '-', criterion_id) AS criterion_id, case_id, revision, position, criterion,
                        axis, points, origin, source, tier, asked
                    FROM criteria WHERE case_id = r.case_id AND revision = r.revision
                ) AS c
            ) AS criteria
        FROM case_revisions AS r WHERE r.case_id = m.case_id AND r.revision = m.revision OFFSET 0
    ) AS r
"""
_SHOWN = f"""
    SELECT m.case_id, m.revision, m.first_release, r.* FROM (
        SELECT case_id, revision, first_release FROM snapshot_members
        WHERE version = :version AND first_release IS NOT NULL ORDER BY case_id COLLATE "C" OFFSET 0
    ) AS m {_TEXTS}
"""
_ASKED = f"""
    SELECT m.case_id, m.revision, to_char(r.posted_at, 'IYYY".W"IW') AS first_release, r.*
    FROM unnest(CAST(:case_ids AS text[]), CAST(:revisions AS int[])) AS m (case_id, revision) {_TEXTS}
"""
_CHANGES = (
    "SELECT case_id, reason, from_revision, to_revision FROM snapshot_changes"
    ' WHERE version = :version AND kind = :kind ORDER BY case_id COLLATE "C"'
)
_HOLDOUTS = {
    "held": (
        "SELECT commitment, held_since FROM snapshot_members"
        ' WHERE version = :version AND first_release IS NULL ORDER BY commitment COLLATE "C"'
    ),
    "revealed": (
        "SELECT case_id, commitment, held_since, salt FROM snapshot_members WHERE version = :version"
        ' AND first_release IS NOT NULL AND held_since IS NOT NULL ORDER BY case_id COLLATE "C"'
    ),
    "dropped": (
        "SELECT commitment, held_since, reason FROM snapshot_changes"
        " WHERE version = :version AND kind = 'dropped' ORDER BY commitment COLLATE \"C\""
    ),
}


class Interrupted(Exception):
    """A reader was asked to stop. It is not an OSError, which a writer would take for its own."""


class SnapshotReader:
    """Reads the rows of a snapshot, and of case revisions, from one state of the database."""

    def __init__(self, connection: Connection, stop: Event, version: str) -> None:
        """Use `read_snapshots`."""
        self._connection, self._stop = connection, stop
        self._version = {"version": version}

    def cases(self) -> Iterator[SnapshotCase]:
        """The cases that the snapshot shows with their criteria, by case id."""
        return map(_case, self._stream(_SHOWN, self._version))

    def revisions(
        self,
        asked: Sequence[tuple[str, int]],
    ) -> Iterator[SnapshotCase]:
        """Case revisions by (case id, revision), in any order; `first_release` is the week in which each was posted."""
        names = {"case_ids": [i for i, _ in asked], "revisions": [r for _, r in asked]}
        return map(_case, self._stream(_ASKED, names))

    def section(self, name: str) -> Iterator[Mapping[str, Any]]:
        """The entries of a section of `changes.json` or `holdouts.json`, in the order of the section's key."""
        query = _CHANGES if name in SECTIONS[CHANGES] else _HOLDOUTS[name]
        return self._stream(query, self._version | {"kind": name})

    def _stream(
        self, query: str, values: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """The rows of a query, 500 in memory at a time."""
        with self._connection.execute(
            text(query), values, execution_options={"yield_per": 500}
        ) as rows:
            for row in rows.mappings():
                if self._stop.is_set():
                    raise Interrupted
                yield dict(row)


@contextmanager
def read_snapshots(
    url: URL, stop: Event | None = None, *, version: str = ""
) -> Iterator[SnapshotReader]:
    """A reader of the database's present state and of the snapshot `version`, for one thread.

    Raises DatabaseUnavailable. The reader raises Interrupted at the next row once `stop` is set.
    """
    with connect(url.render_as_string(hide_password=False)) as connection:
        connection.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        # Compiling the statement takes seconds and gains nothing: rows are looked up one by one.
        connection.execute(text("SET LOCAL jit = off"))
        yield SnapshotReader(connection, stop or Event(), version)


def _case(row: dict[str, Any]) -> SnapshotCase:
    criteria = tuple(SnapshotCriterion(**own) for own in row.pop("criteria") or ())
    parts = row.pop("asked")
    asked = canonical_json(parts) if parts else ""
    return SnapshotCase(**row, asked=asked, criteria=criteria)
