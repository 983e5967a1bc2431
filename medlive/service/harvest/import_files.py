"""Import thread files: valid lines are stored in batches, invalid ones with their line number and reason."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from medlive.db.runs import finish_import, save_problems, start_import
from medlive.db.session import Database, Session
from medlive.db.threads.takedowns import TAKEN_DOWN, keep_out
from medlive.db.threads.threads import save_identifiers, save_threads
from medlive.errors import BadInput, MedliveError
from medlive.sources.files import ImportedThread, ImportProblem, Note, read_threads
from medlive.threads.model import Thread
from medlive.threads.prepare import thread_identifiers

BATCH = 500


@dataclass(slots=True)
class ImportResult:
    """The result of importing one file."""

    file: Path
    counts: Counter[str] = field(default_factory=Counter)
    """"new", "revised", "unchanged", "taken_down", "problems", and how often each note was made."""
    problems: list[ImportProblem] = field(default_factory=list)


async def import_file(
    database: Database,
    path: Path,
    *,
    assume_posted_at: datetime | None,
    handle_key: bytes,
    tick: Callable[[int], None] = lambda _: None,
) -> ImportResult:
    """Import a JSON Lines file. Raises BadInput when the file cannot be read."""
    if not await asyncio.to_thread(path.is_file):
        raise BadInput(f"{path} is not a file")
    done = ImportResult(path)
    async with database.begin() as session:
        run = await start_import(session, str(path), assumed_posted_at=assume_posted_at)
    try:
        batch: list[ImportedThread] = []
        for item in read_threads(path, assume_posted_at=assume_posted_at, handle_key=handle_key):
            if isinstance(item, ImportProblem):
                done.problems.append(item)
                done.counts["problems"] += 1
                continue
            batch.append(item)
            if len(batch) >= BATCH:
                await _save(database, run, batch, done)
                tick(sum(done.counts[k] for k in ("new", "revised", "unchanged")))
                batch = []
        await _save(database, run, batch, done)
    except MedliveError as exc:
        async with database.begin() as session:
            await finish_import(session, run, done.counts, problem=exc.message)
        raise
    async with database.begin() as session:
        await save_problems(session, run, str(path), done.problems)
        await finish_import(session, run, done.counts)
    return done


async def _save(database: Database, run: int, batch: Sequence[ImportedThread], done: ImportResult) -> None:
    threads, assumed = [i.thread for i in batch], [Note.DATE_ASSUMED in i.notes for i in batch]
    async with database.begin() as session:
        done.counts += await store_threads(session, threads, assumed_posted_at=assumed, import_run_id=run)
    done.counts.update(note.value for item in batch for note in item.notes)


async def store_threads(
    session: Session,
    threads: Sequence[Thread],
    *,
    fetch_ids: Sequence[int | None] | None = None,
    assumed_posted_at: Sequence[bool] | None = None,
    import_run_id: int | None = None,
) -> Counter[str]:
    """Save threads with their identifiers, without those that were taken down; the counts by status."""
    if not threads:
        return Counter()
    erased = await keep_out(session, threads)
    kept = [n for n, thread in enumerate(threads) if (thread.source, thread.thread_id) not in erased]
    chosen = [threads[n] for n in kept]
    fetched = [fetch_ids[n] for n in kept] if fetch_ids else None
    assumed = [assumed_posted_at[n] for n in kept] if assumed_posted_at else None
    saved = await save_threads(
        session, chosen, fetch_ids=fetched, assumed_posted_at=assumed, import_run_id=import_run_id
    )
    found = [
        () if one.status == "unchanged" else thread_identifiers(thread)
        for one, thread in zip(saved, chosen, strict=True)
    ]
    await save_identifiers(session, saved, found)
    return Counter([one.status for one in saved] + [TAKEN_DOWN] * (len(threads) - len(kept)))
