"""Survey a corpus while reading it: its digest, and which of its passages to keep.

The result does not depend on the order of the files. A few short hashes of each passage are kept in a temporary
SQLite file, so that memory grows by only one byte per passage.
"""

import hashlib
import sqlite3
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from medlive.evidence.passage import Passage

REPEATED_IN = 20
"""A later piece of a section whose text appears under this many titles is the publisher's boilerplate. (A first
piece is kept: "inherited in an autosomal recessive pattern" answers its title.)"""

_KEPT, _MARKED, _DROPPED = 0, 1, 2
"""A marked passage is kept with a hash of its text appended to its id."""
_BATCH = 1000
_AMBIGUOUS = "SELECT id FROM passage GROUP BY id HAVING COUNT(DISTINCT content) > 1"
_REPEATED = """
    SELECT ordinal FROM (
        SELECT ordinal, ROW_NUMBER() OVER (PARTITION BY content ORDER BY id, line, ordinal) AS place FROM passage
    ) WHERE place > 1
"""
_BOILERPLATE = """
    SELECT ordinal FROM passage WHERE later IN (
        SELECT later FROM passage WHERE later IS NOT NULL GROUP BY later HAVING COUNT(DISTINCT title) >= ?
    )
"""


class Survey:
    """Takes every passage of a corpus once, then decides which to keep."""

    def __init__(self, place: Path) -> None:
        """`place` is the scratch file."""
        place.unlink(missing_ok=True)
        self._database = sqlite3.connect(place, isolation_level=None)
        self._database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE passage (ordinal INTEGER PRIMARY KEY, line BLOB, id TEXT, content BLOB, later BLOB,"
            " title BLOB)"
        )
        self._rows: list[tuple[int, bytes, str, bytes, bytes | None, bytes]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, passage: Passage) -> None:
        """Add a passage; only before the first result is read."""
        # Without the corpus's name: the same files under another name have the same digest.
        unnamed = passage.id.split(":", 1)[1]
        fields = (
            unnamed,
            passage.title,
            passage.section,
            passage.text,
            passage.language,
            str(passage.published or ""),
            passage.url,
            passage.licence,
        )
        # Fields contain no NUL: the readers remove control characters.
        line = hashlib.sha256("\0".join(fields).encode()).digest()
        later = None if passage.id.endswith(".1") else _hash(passage.text)
        hashes = _content(passage), later, _hash(passage.title)
        self._rows.append((self._count, line, passage.id, *hashes))
        self._count += 1
        if len(self._rows) == _BATCH:
            self._store()

    @cached_property
    def digest(self) -> str:
        """The digest of all passages, whatever their order."""
        self._store()
        whole = hashlib.sha256()
        for (line,) in self._database.execute("SELECT line FROM passage ORDER BY line"):
            whole.update(line)
        return f"sha256:{whole.hexdigest()}"

    @cached_property
    def ambiguous_ids(self) -> list[str]:
        """The ids that the source gave to different texts."""
        self._store()
        return [identity for (identity,) in self._database.execute(_AMBIGUOUS)]

    def kept(self, ordinal: int, passage: Passage) -> Passage | None:
        """Return the passage to store, or None for a repetition or the publisher's boilerplate.

        Of passages with equal title, section and text the one with the smallest id is kept. An id that the source
        gave to different texts gets a hash of its text appended. `ordinal` is the number of passages that were
        added before it.
        """
        fate = self._fates[ordinal]
        if fate == _DROPPED:
            return None
        if fate == _MARKED:
            return replace(passage, id=f"{passage.id}~{_content(passage).hex()[:8]}")
        return passage

    @cached_property
    def _fates(self) -> bytearray:
        self._store()
        fates = bytearray(self._count)
        marked = self._database.execute(
            f"SELECT ordinal FROM passage WHERE id IN ({_AMBIGUOUS})"
        )
        for (ordinal,) in marked:
            fates[ordinal] = _MARKED
        for query, values in ((_REPEATED, ()), (_BOILERPLATE, (REPEATED_IN,))):
            for (ordinal,) in self._database.execute(query, values):
                fates[ordinal] = _DROPPED
        return fates

    def _store(self) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(
            "INSERT INTO passage VALUES (?, ?, ?, ?, ?, ?)", self._rows
        )
        self._database.execute("COMMIT")
        self._rows.clear()


def _content(passage: Passage) -> bytes:
    return _hash(f"{passage.title}\0{passage.section}\0{passage.text}")


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
