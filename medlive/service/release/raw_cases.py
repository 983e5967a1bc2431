"""A snapshot's cases in their threads' own words, read from the database they were made in."""

from medlive.config import Settings
from medlive.db.release.threads import revisions_of
from medlive.db.threads.threads import load_threads
from medlive.errors import UsageError
from medlive.evaluation.cases.raw import in_own_words
from medlive.evaluation.model import CaseSet
from medlive.service.database import open_database
from medlive.threads.prepare import deidentified, normalised, thread_language


async def raw_cases(settings: Settings, cases: CaseSet) -> CaseSet:
    """`in_own_words` of a snapshot's cases, normalised and de-identified as the curating agents saw them.

    Raises UsageError for cases that are not from a snapshot of this database, and DatabaseUnavailable.
    """
    if cases.origin != "snapshot":
        raise UsageError("--raw needs a snapshot's folder or version as --cases, not a file")
    async with open_database(settings) as database, database.begin() as session:
        revisions = await revisions_of(session, cases.name, (case.case_id for case in cases.cases))
        threads = await load_threads(session, sorted(set(revisions.values())))
    ready = {}
    for revision, thread in threads.items():
        plain = normalised(thread)
        ready[revision] = deidentified(plain, thread_language(plain))
    return in_own_words(cases, {case_id: ready[pk] for case_id, pk in revisions.items() if pk in ready})
