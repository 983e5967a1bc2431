"""A snapshot's rows read in the order of its files, one case in memory at a time.

The writer of a folder is synchronous and asks for rows as it goes, so these are read over a connection of their
own by the thread that writes. What is read is one state of the database, however long it takes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from typing import Any, Final, LiteralString

import psycopg
from sqlalchemy import URL

from medlive.db.mapping import from_stored, load_json
from medlive.db.session import CONNECT_ARGUMENTS, unavailable
from medlive.snapshot.diff import Change, ChangeKind
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion

_BATCH: Final = 500
"""Rows that travel at once."""

# What is sorted are ids alone; each one's texts are then looked up as it is asked for. (A sort or a hash of the
# texts would read the whole release first. OFFSET 0 and LATERAL leave the database no other way.)
_TEXTS: Final[LiteralString] = """
    CROSS JOIN LATERAL (
        SELECT r.language, r.source, (r.posted_at AT TIME ZONE 'UTC')::date AS posted_on, r.specialty, r.theme,
            r.narrative, r.query, r.advice, (
                SELECT json_agg(
                    json_build_array(c.criterion_id, c.position, c.criterion, c.axis, c.points) ORDER BY c.position
                )::text
                FROM criteria AS c WHERE c.case_id = r.case_id AND c.revision = r.revision
            ) AS criteria
        FROM case_revisions AS r WHERE r.case_id = m.case_id AND r.revision = m.revision OFFSET 0
    ) AS r
"""
_SHOWN: Final[LiteralString] = f"""
    SELECT m.case_id, m.revision, m.first_release, r.* FROM (
        SELECT case_id, revision, first_release FROM snapshot_members
        WHERE version = %(version)s AND first_release IS NOT NULL ORDER BY case_id COLLATE "C" OFFSET 0
    ) AS m {_TEXTS}
"""
_ASKED: Final[LiteralString] = f"""
    SELECT m.case_id, m.revision, to_char(r.posted_on, 'IYYY".W"IW'), r.*
    FROM unnest(%(case_ids)s::text[], %(revisions)s::int[]) AS m (case_id, revision) {_TEXTS}
"""
_CHANGES: Final[LiteralString] = (
    "SELECT case_id, reason, from_revision, to_revision FROM snapshot_changes"
    ' WHERE version = %(version)s AND kind = %(kind)s ORDER BY case_id COLLATE "C"'
)
_HOLDOUTS: Final[Mapping[str, tuple[tuple[str, ...], LiteralString]]] = {
    "held": (
        ("commitment", "held_since"),
        "SELECT commitment, held_since FROM snapshot_members"
        ' WHERE version = %(version)s AND first_release IS NULL ORDER BY commitment COLLATE "C"',
    ),
    "revealed": (
        ("case_id", "commitment", "held_since", "salt"),
        "SELECT case_id, commitment, held_since, salt FROM snapshot_members WHERE version = %(version)s"
        ' AND first_release IS NOT NULL AND held_since IS NOT NULL ORDER BY case_id COLLATE "C"',
    ),
    "dropped": (
        ("commitment", "held_since", "reason"),
        "SELECT commitment, held_since, reason FROM snapshot_changes"
        " WHERE version = %(version)s AND kind = 'dropped' ORDER BY commitment COLLATE \"C\"",
    ),
}


class SnapshotReader:
    """One state of the database: the rows of a snapshot, and of case revisions."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        """Use `read_snapshots`."""
        self._connection = connection

    def cases(self, version: str) -> Iterator[SnapshotCase]:
        """The cases that a snapshot shows with their criteria, by case id."""
        return map(_case, self._flow(_SHOWN, {"version": version}))

    def revisions(self, asked: Sequence[tuple[str, int]]) -> Iterator[SnapshotCase]:
        """Case revisions by (case id, revision), in any order; the week of its posting stands for each release."""
        names = {"case_ids": [i for i, _ in asked], "revisions": [r for _, r in asked]}
        return map(_case, self._flow(_ASKED, names))

    def entries(self, version: str) -> "StoredEntries":
        """What a snapshot's ledgers list."""
        return StoredEntries(self, version)

    def _flow(self, query: LiteralString, values: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        # Named by its moment: an iterator that was left half-way does not stand in the way of the next.
        with self._connection.cursor(name=f"c{id(values)}") as cursor, ThreadPoolExecutor(1) as ahead:
            cursor.execute(query, values)
            # The database looks up the next rows while these are being written.
            fetched = ahead.submit(cursor.fetchmany, _BATCH)
            while rows := fetched.result():
                fetched = ahead.submit(cursor.fetchmany, _BATCH)
                yield from rows


class StoredEntries:
    """The entries of a snapshot's ledgers, read anew each time they are asked for."""

    def __init__(self, reader: SnapshotReader, version: str) -> None:
        """Use `SnapshotReader.entries`."""
        self._reader, self._version = reader, version

    def changes(self, kind: ChangeKind) -> Iterator[Change]:
        """The cases that changed in this way since the parent, by case id."""
        rows = self._reader._flow(_CHANGES, {"version": self._version, "kind": kind.value})
        return (
            Change(kind, case_id, from_stored(reason), before, after) for case_id, reason, before, after in rows
        )

    def holdouts(self, section: str) -> Iterator[Mapping[str, Any]]:
        """The entries of a section of `holdouts.json`, by its key."""
        names, query = _HOLDOUTS[section]
        for row in self._reader._flow(query, {"version": self._version}):
            entry = dict(zip(names, row, strict=True))
            yield entry | {"reason": from_stored(entry["reason"])} if "reason" in entry else entry


@contextmanager
def read_snapshots(url: URL) -> Iterator[SnapshotReader]:
    """A reader of the database's present state, for one thread. Raises DatabaseUnavailable."""
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        with psycopg.connect(plain, **CONNECT_ARGUMENTS) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            connection.execute("SET LOCAL jit = off")  # it compiles for seconds what is looked up row by row
            yield SnapshotReader(connection)
    except psycopg.OperationalError as error:
        raise unavailable(url, error) from error


def _case(row: tuple[Any, ...]) -> SnapshotCase:
    case_id: str = row[0]
    revision: int = row[1]
    posted: date = row[5]
    criteria: Iterable[Any] = load_json(row[11]) if row[11] else ()
    return SnapshotCase(
        case_id,
        revision,
        row[2],
        row[3],
        row[4],
        posted,
        row[6],
        row[7],
        from_stored(row[8]),
        from_stored(row[9]),
        from_stored(row[10]),
        tuple(
            SnapshotCriterion(f"{case_id}-{number}", case_id, revision, position, text, axis, points)
            for number, position, text, axis, points in criteria
        ),
    )
