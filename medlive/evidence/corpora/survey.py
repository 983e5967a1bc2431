"""Survey a corpus while reading it: its digest, and which of its passages to keep.

The result does not depend on the order of the files. The passages lie in a temporary SQLite file, with a few short
hashes of each, so that memory holds none of them.
"""

import errno
import hashlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from medlive.evidence.passage import Passage
from medlive.evidence.store import from_line, to_line

REPEATED_IN = 20
"""A later piece of a section whose text appears under this many titles is the publisher's boilerplate. (A first
piece is kept: "inherited in an autosomal recessive pattern" answers its title.)"""

_INSERT = "INSERT INTO passage VALUES (?, ?, ?, ?, ?, ?, ?)"
_AMBIGUOUS = "SELECT id FROM passage GROUP BY id HAVING COUNT(DISTINCT content) > 1"
_KEPT = f"""
    SELECT row, content, id IN ({_AMBIGUOUS}) FROM passage WHERE ordinal NOT IN (
        SELECT ordinal FROM (
            SELECT ordinal, ROW_NUMBER() OVER (PARTITION BY content ORDER BY id, line, ordinal) AS place FROM passage
        ) WHERE place > 1
    ) AND (later IS NULL OR later NOT IN (
        SELECT later FROM passage WHERE later IS NOT NULL GROUP BY later HAVING COUNT(DISTINCT title) >= ?
    )) ORDER BY ordinal
"""


class Survey:
    """Takes every passage of a corpus once, then decides which to keep."""

    def __init__(self, place: Path) -> None:
        """`place` is the scratch file."""
        place.unlink(missing_ok=True)
        self._database = sqlite3.connect(place, isolation_level=None)
        # Digests: `line` of all fields; `content` of title, section and text; `title`; `later` of the text, NULL for
        # the first piece of a section. `row` is the passage itself.
        self._database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE passage (ordinal INTEGER PRIMARY KEY, line BLOB, id TEXT, content BLOB, later BLOB,"
            " title BLOB, row BLOB); BEGIN"
        )
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
        content = _hash(f"{passage.title}\0{passage.section}\0{passage.text}")
        row = (line, passage.id, content, later, _hash(passage.title), to_line(passage))
        try:
            self._database.execute(_INSERT, (self._count, *row))
        except sqlite3.OperationalError as exc:  # The file is nobody else's
            raise OSError(errno.ENOSPC, str(exc)) from exc
        self._count += 1

    @cached_property
    def digest(self) -> str:
        """The digest of all passages, whatever their order."""
        whole = hashlib.sha256()
        for (line,) in self._database.execute("SELECT line FROM passage ORDER BY line"):
            whole.update(line)
        return f"sha256:{whole.hexdigest()}"

    def kept(self) -> Iterator[Passage]:
        """Yield the passages to store, in the order in which they were added.

        Left out are repetitions and the publisher's boilerplate: of passages with equal title, section and text the
        one with the smallest id is kept. An id that the source gave to different texts gets a hash of its text
        appended.
        """
        rows = self._database.execute(_KEPT, (REPEATED_IN,))
        for row, content, is_ambiguous in rows:
            passage = from_line(row)
            mark = f"~{content.hex()[:8]}" if is_ambiguous else ""
            yield replace(passage, id=passage.id + mark)


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
