"""A snapshot's rows read in the order of its files, one case in memory at a time.

The writer of a folder is synchronous and asks for rows as it goes, so these are read over a connection of their
own by the thread that writes. What is read is one state of the database, however long it takes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any, LiteralString

import psycopg
from psycopg.rows import DictRow, dict_row
from sqlalchemy import URL

from medlive.db.session import CONNECT_ARGUMENTS, unavailable
from medlive.integrity.digest import canonical_json
from medlive.snapshot.freeze import Entries
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion

# What is sorted are ids alone; each one's texts are then looked up as it is asked for. (A sort or a hash of the
# texts would read the whole release first. OFFSET 0 and LATERAL leave the database no other way.)
_TEXTS: LiteralString = """
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
_SHOWN: LiteralString = f"""
    SELECT m.case_id, m.revision, m.first_release, r.* FROM (
        SELECT case_id, revision, first_release FROM snapshot_members
        WHERE version = %(version)s AND first_release IS NOT NULL ORDER BY case_id COLLATE "C" OFFSET 0
    ) AS m {_TEXTS}
"""
_ASKED: LiteralString = f"""
    SELECT m.case_id, m.revision, to_char(r.posted_at, 'IYYY".W"IW') AS first_release, r.*
    FROM unnest(%(case_ids)s::text[], %(revisions)s::int[]) AS m (case_id, revision) {_TEXTS}
"""
_CHANGES: LiteralString = (
    "SELECT case_id, reason, from_revision, to_revision FROM snapshot_changes"
    ' WHERE version = %(version)s AND kind = %(kind)s ORDER BY case_id COLLATE "C"'
)
_HOLDOUTS: Mapping[str, LiteralString] = {
    "held": (
        "SELECT commitment, held_since FROM snapshot_members"
        ' WHERE version = %(version)s AND first_release IS NULL ORDER BY commitment COLLATE "C"'
    ),
    "revealed": (
        "SELECT case_id, commitment, held_since, salt FROM snapshot_members WHERE version = %(version)s"
        ' AND first_release IS NOT NULL AND held_since IS NOT NULL ORDER BY case_id COLLATE "C"'
    ),
    "dropped": (
        "SELECT commitment, held_since, reason FROM snapshot_changes"
        " WHERE version = %(version)s AND kind = 'dropped' ORDER BY commitment COLLATE \"C\""
    ),
}


class Interrupted(Exception):
    """A reader was asked to stop."""


class SnapshotReader(Entries):
    """One state of the database: the rows of a snapshot, and of case revisions."""

    def __init__(
        self, connection: psycopg.Connection[DictRow], stop: Event, version: str
    ) -> None:
        """Use `read_snapshots`."""
        self._connection, self._stop = connection, stop
        self._version = {"version": version}

    def cases(self) -> Iterator[SnapshotCase]:
        """The cases that the snapshot shows with their criteria, by case id."""
        return map(_case, self._stream(_SHOWN, self._version))

    def revisions(self, asked: Sequence[tuple[str, int]]) -> Iterator[SnapshotCase]:
        """Case revisions by (case id, revision), in any order; the week of its posting stands for each release."""
        names = {"case_ids": [i for i, _ in asked], "revisions": [r for _, r in asked]}
        return map(_case, self._stream(_ASKED, names))

    def section(self, name: str) -> Iterator[Mapping[str, Any]]:
        """The entries of a section of a ledger, by its key."""
        query = _HOLDOUTS.get(name, _CHANGES)
        return self._stream(query, self._version | {"kind": name})

    def _stream(
        self, query: LiteralString, values: Mapping[str, Any]
    ) -> Iterator[DictRow]:
        """The rows of a query, 500 in memory at a time."""
        # Named by its moment: an iterator that was left half-way does not stand in the way of the next.
        with self._connection.cursor(name=f"c{id(values)}") as cursor:
            cursor.itersize = 500
            for row in cursor.execute(query, values):
                if self._stop.is_set():
                    raise Interrupted
                yield row


@contextmanager
def read_snapshots(
    url: URL, stop: Event | None = None, *, version: str = ""
) -> Iterator[SnapshotReader]:
    """A reader of the database's present state and of the snapshot `version`, for one thread.

    Raises DatabaseUnavailable. The reader raises Interrupted at the next row once `stop` is set.
    """
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        with psycopg.Connection.connect(
            plain, row_factory=dict_row, **CONNECT_ARGUMENTS
        ) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            connection.execute(
                "SET LOCAL jit = off"
            )  # it compiles for seconds what is looked up row by row
            yield SnapshotReader(connection, stop or Event(), version)
    except psycopg.OperationalError as error:
        raise unavailable(url, error) from error


def _case(row: DictRow) -> SnapshotCase:
    criteria = tuple(SnapshotCriterion(**own) for own in row.pop("criteria") or ())
    parts = row.pop("asked")
    asked = canonical_json(parts) if parts else ""
    return SnapshotCase(**row, asked=asked, criteria=criteria)
