"""Threads parked for want of evidence: reject them in the end (`reject_expired`), list what they lack (`find_gaps`)."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from medlive.clock import now
from medlive.config import Settings
from medlive.curation.holds import reject_parked
from medlive.db.curation.curations import (
    load_curation,
    lock_revision,
    save_curation,
)
from medlive.db.curation.parking import (
    find_parked,
    list_parked,
    list_unanswered,
)
from medlive.db.mapping import Record
from medlive.db.session import Database
from medlive.filters.codebooks import Codebook, load_codebook
from medlive.integrity.digest import digest_json

_DRUGS = ("ICD-11:XM", "ICD-10:Z79")
"""Codes of medicaments, and of their long-term use."""
_PROCEDURES = "ICHI"  # The code book of procedures
_FUNCTIONS = "ICF"
"""Functions and parts of the body, which are no subject of an article by themselves."""
_PHRASES_SHOWN = 5  # Search phrases that a gap lists

Subject = tuple[str, str]
"""What a search phrase is about: disease, drug or procedure (other: a phrase without a known term); its name."""


@dataclass
class Gap:
    """A subject on which the library held nothing."""

    kind: str
    name: str
    threads: list[str] = field(default_factory=list)  # SOURCE/ID, parked longest first
    searched: list[str] = field(default_factory=list)  # Phrases that name it
    nearest: str | None = None  # The id of the nearest passage of the first claim
    nearest_title: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The gap as `medlive evidence gaps --json` prints it."""
        return asdict(self) | {"parked_threads": len(self.threads)}

    def add(self, claim: Record, phrase: str) -> None:
        """Count a claim's thread, and note the phrase and the nearest passage."""
        thread = f"{claim.source}/{claim.thread_id}"
        if thread not in self.threads:
            self.threads.append(thread)
        if phrase not in self.searched and len(self.searched) < _PHRASES_SHOWN:
            self.searched.append(phrase)
        if self.nearest is None:
            self.nearest, self.nearest_title = claim.passage_id, claim.title


async def reject_expired(database: Database, weeks: int) -> int:
    """Reject the threads that have been parked for `weeks`, as the paper would; how many.

    No engine is asked: the verdicts are those of the last search.
    """
    before = now() - timedelta(weeks=weeks)
    parked = await database.ask(list_parked)
    rejected = 0
    for thread in parked:
        if thread.since > before:
            continue
        async with database.begin() as session:
            await lock_revision(session, thread.revision_id)
            latest = await find_parked(session, thread.revision_id)
            if latest is None or latest.curation_id != thread.curation_id:
                continue  # decided again meanwhile
            moment = now()
            await save_curation(
                session,
                thread.revision_id,
                digest_json(["parked", thread.curation_id, weeks]),
                reject_parked(await load_curation(session, thread.curation_id), weeks),
                started_at=moment,
                finished_at=moment,
            )
            rejected += 1
    return rejected


async def find_gaps(database: Database, settings: Settings) -> list[Gap]:
    """Return the diseases, drugs and procedures that parked threads lack evidence on, most threads first."""
    return group_gaps(
        await database.ask(list_unanswered), load_codebook(settings.codebooks.paths)
    )


def group_gaps(claims: Iterable[Record], codebook: Codebook) -> list[Gap]:
    """Group claims by the code-book terms of their search phrases; a phrase without a term is a subject itself."""
    gaps: dict[Subject, Gap] = {}
    for claim in claims:
        for phrase in claim.queries:
            if phrase == claim.claim:
                continue  # The claim in its own words, which are no search phrase
            for subject in subjects_of(phrase, codebook):
                gap = gaps.setdefault(subject, Gap(*subject))
                gap.add(claim, phrase)
    return sorted(
        gaps.values(),
        key=lambda gap: (-len(gap.threads), gap.kind == "other", gap.kind, gap.name),
    )


def subjects_of(phrase: str, codebook: Codebook) -> list[Subject]:
    """Return the diseases, drugs and procedures of a search phrase; the phrase itself where it names none."""
    subjects: list[Subject] = []
    taken: list[tuple[int, int]] = []
    matches = codebook.matches(phrase)
    for match in sorted(matches, key=lambda m: (m.start - m.end, m.start)):
        # The longest that do not overlap
        if any(match.start < end and start < match.end for start, end in taken):
            continue
        taken.append((match.start, match.end))
        if match.code.startswith(_DRUGS):
            subjects.append(("drug", match.term))
        elif match.code.startswith(_PROCEDURES):
            subjects.append(("procedure", match.term))
        elif not match.code.startswith(_FUNCTIONS):
            subjects.append(("disease", match.term))
    return subjects or [("other", phrase.casefold())]
