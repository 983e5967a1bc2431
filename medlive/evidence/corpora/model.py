"""What a reader gives: documents; what a corpus gives: passages, and an account of what was left out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from medlive.evidence.corpora.parsing.chunk import Document, passages_of
from medlive.evidence.passage import Passage

COUNTED = (
    "documents",
    "boilerplate",
    "empty",
    "superseded",
    "retracted",
    "questioned",
)
"""What a `ReadLog` counts besides problems, and a manifest keeps."""
MAX_PROBLEMS_KEPT = 1000
"""Problems kept with their names; further ones are only counted: a ruined archive must not fill memory."""


@dataclass(slots=True)
class ReadLog:
    """The account of one reading of a corpus; every member ends in one of its counts or in a passage."""

    # The first `MAX_PROBLEMS_KEPT` members that could not be read, each with the cause
    problems: list[tuple[str, str]] = field(default_factory=list)
    problem_count: int = 0
    documents: int = 0  # Documents that gave at least one passage
    boilerplate: int = 0  # Pieces left out because they hold navigation, link lists or nothing readable
    empty: int = 0  # Documents that the source itself published without text
    # Records that a later version or file of the source replaced or deleted
    superseded: int = 0
    retracted: int = 0  # Documents that were retracted or withdrawn, and the notices that say so; none is evidence
    questioned: int = 0  # Documents under an expression of concern, and the notices that say so; none is evidence

    def problem(self, member: str, cause: str) -> None:
        """Count a problem, and keep it while there is room."""
        self.problem_count += 1
        if len(self.problems) < MAX_PROBLEMS_KEPT:
            self.problems.append((member[:300], cause[:300]))


@dataclass(frozen=True, slots=True)
class Reader:
    """A kind of corpus: how it is recognised and how its documents are read.

    `documents` yields in an order of its own; digests and search results do not depend on it. It reports what
    it cannot read to the log and raises BadInput only when nothing at all can be read.
    """

    kind: str
    about: str  # One line for people who choose a kind
    sniff: Callable[[Path], bool]
    documents: Callable[[Path, ReadLog], Iterator[Document]]
    licence: str  # The licence of the kind's published data; "unstated" where the kind does not settle it


class Fetched(BaseModel):
    """Where a corpus was fetched from, when, and as what; every file of it is in its folder's `fetched.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str
    fetched_at: datetime | None  # When the newest of its files was fetched
    files: int
    digest: str  # Of the files, as `fetched.json` in the corpus's folder lists them
    selection: str  # What was chosen of it, as JSON


@dataclass(frozen=True, slots=True)
class Corpus:
    """A named source of evidence on disk; reading it twice gives the same passages."""

    name: str  # Letters, digits, `-`, `_` and `.`; the first part of every passage id
    path: Path
    reader: Reader
    licence: str
    fetched: Fetched | None = None  # None for a corpus that a person put there

    def passages(self, log: ReadLog) -> Iterator[Passage]:
        """The corpus cut into passages; what is left out is counted in `log`."""
        for document in self.reader.documents(self.path, log):
            has_passage = False
            for passage in passages_of(
                document,
                corpus=self.name,
                licence=self.licence,
            ):
                if passage is None:
                    log.boilerplate += 1
                else:
                    has_passage = True
                    yield passage
            log.documents += has_passage
