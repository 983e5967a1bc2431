"""The threads behind a snapshot's cases, for whoever harvested them."""

from collections.abc import Iterable

from medlive.config import Settings
from medlive.db.release.snapshots import thread_revisions_of
from medlive.db.threads.threads import load_threads
from medlive.service.database import open_database
from medlive.threads.model import Thread
from medlive.threads.prepare import deidentified, normalised, thread_language


async def threads_of_cases(
    settings: Settings, version: str, case_ids: Iterable[str]
) -> dict[str, Thread]:
    """Case id → its thread, normalised and de-identified as the agents saw it; without those that are not here.

    Raises DatabaseUnavailable.
    """
    async with open_database(settings) as database, database.begin() as session:
        revisions = await thread_revisions_of(session, version, case_ids)
        stored = await load_threads(session, sorted(set(revisions.values())))
    threads = {}
    for case_id, revision in revisions.items():
        if revision in stored:
            plain = normalised(stored[revision])
            threads[case_id] = deidentified(plain, thread_language(plain))
    return threads
