"""The frontier: every thread that a list showed, and what became of it in the run that listed it last.

A list makes a thread `waiting` (or `skipped`, with a reason), and reading it makes it `read`, `not_modified`, `gone`,
`skipped` or `failed`. Threads that wait, or failed for a reason that another day may mend, are read when a harvest of
the source is begun or resumed next. A run that is repeated begins with its threads `known`; a thread that stays `known`
was on no list any more. Pages with fetch numbers above `after_fetch` belong to the present reading.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Any

from psycopg.types.json import Json

from medlive.db.mapping import as_dict, read, row_of
from medlive.db.session import Session
from medlive.db.tables.intake import FrontierRow, FrontierState
from medlive.db.threads.takedowns import taken_down_ids
from medlive.guard.bounds import THREAD_ID_CHARS
from medlive.sources.ledger import KnownThread
from medlive.sources.source import ListEntry

MAX_ATTEMPTS = 5
"""After failing this often in a row a thread is read only when a list shows it again."""
RETRIED = (
    "fetch",
    "incomplete",
    "blocked",
    "robots",
)
"""Reasons of failures that another day may mend. Other failures are the parser's: once it is mended, the kept pages are
parsed again."""
_RETRY = {"retried": list(RETRIED), "attempts": MAX_ATTEMPTS}
_OPEN = (FrontierState.WAITING, FrontierState.KNOWN)  # Not dealt with in this run


_LIST = """
    INSERT INTO frontier AS f (source, thread_id, run_id, first_run_id, list_key, url, posted_at, active_at,
    state, reason, attempts, after_fetch)
    SELECT :source, thread_id, :run_id, :run_id, :list_key, url, posted_at, active_at, state, reason, 0,
    (SELECT coalesce(max(id), 0) FROM fetches)
    FROM json_to_recordset(CAST(:rows AS json)) AS r (thread_id text, url text, posted_at timestamptz,
    active_at timestamptz, state text, reason text) WHERE char_length(thread_id) BETWEEN 1 AND :most
    ON CONFLICT (source, thread_id) DO UPDATE SET run_id = excluded.run_id, url = excluded.url,
    list_key = excluded.list_key,
    posted_at = coalesce(excluded.posted_at, f.posted_at),
    active_at = coalesce(excluded.active_at, f.active_at),
    state = excluded.state, reason = excluded.reason, attempts = 0, after_fetch = excluded.after_fetch,
    changed_at = now()
"""
_SETTLE = """
    UPDATE frontier f SET state = r.state, reason = r.reason, run_id = :run_id, changed_at = now(),
    attempts = CASE WHEN r.state = 'failed' THEN f.attempts + 1 ELSE 0 END,
    etag = CASE WHEN r.state = 'read' THEN r.etag ELSE f.etag END,
    last_modified = CASE WHEN r.state = 'read' THEN r.last_modified ELSE f.last_modified END,
    page_count = coalesce(r.page_count, f.page_count), fields = coalesce(r.fields, f.fields),
    posted_at = coalesce(r.posted_at, f.posted_at)
    FROM json_to_recordset(CAST(:rows AS json)) AS r (thread_id text, state text, reason text, etag text,
    last_modified text, page_count int, posted_at timestamptz, fields jsonb)
    WHERE f.source = :source AND f.thread_id = r.thread_id
"""
# A new reading begins: its pages are those fetched from now on, unless this run began the reading already.
_TAKE = """
    UPDATE frontier SET state = 'waiting', reason = NULL, changed_at = now(), run_id = :run_id, after_fetch =
    CASE WHEN run_id = :run_id AND state = 'waiting' THEN after_fetch
    ELSE (SELECT coalesce(max(id), 0) FROM fetches) END
    WHERE source = :source AND {which} RETURNING thread_id, url, posted_at, active_at, attempts
"""
_IS_LEFT_OVER = (
    "(state = 'waiting' OR (state = 'failed' AND reason = ANY (:retried) AND attempts < :attempts"
    # A thread for which the host blocks us would otherwise end this run each time that it is resumed.
    " AND (reason <> 'blocked' OR attempts < 2 OR run_id <> :run_id)))"
)
_LEFT_OVER = _TAKE.format(which=_IS_LEFT_OVER)
_NOT_LISTED = _TAKE.format(
    which="((run_id <> :run_id AND state IN ('read', 'not_modified')) OR state = 'known')"
    # A list that this run did not read (a board that was left out of the settings) misses nothing.
    " AND EXISTS (SELECT FROM list_cursors c WHERE c.run_id = :run_id AND c.list_key = frontier.list_key"
    " AND c.finished_at IS NOT NULL)"
    # A list is read down to what earlier runs saw, less the overlap; to its very end if no run had read it.
    " AND coalesce(active_at, posted_at, (SELECT started_at FROM harvest_runs WHERE id = first_run_id))"
    " >= coalesce((SELECT CASE WHEN active_at IS NULL THEN max(c.finished_at) ELSE max(c.newest_at) END"
    " FROM list_cursors c JOIN harvest_runs h ON h.id = c.run_id"
    " WHERE c.list_key = frontier.list_key AND h.source = :source AND c.run_id <> :run_id"
    " AND c.finished_at IS NOT NULL) - CAST(:overlap AS interval), '-infinity')"
)


async def save_listed(
    session: Session,
    source: str,
    run_id: int,
    list_key: str,
    entries: Sequence[ListEntry],
    skipped: Mapping[str, tuple[str, str]] | None = None,
) -> None:
    """Save the threads of a list page: `entries` wait to be read, `skipped` (id → address, reason) are passed over.

    Threads whose id cannot be stored are left out. A thread that is in both waits to be read.
    """
    rows: dict[str, dict[str, Any]] = {}
    for thread_id, (url, reason) in (skipped or {}).items():
        row = {"thread_id": thread_id, "url": url, "state": FrontierState.SKIPPED}
        rows[thread_id] = row | {"reason": reason}
    for entry in entries:
        rows[entry.thread_id] = row_of(
            FrontierRow,
            entry,
            active_at=entry.last_post_at or entry.posted_at,
            state=FrontierState.WAITING,
        )
    if rows:
        await session.run(
            _LIST,
            source=source,
            run_id=run_id,
            list_key=list_key,
            most=THREAD_ID_CHARS,
            rows=Json(list(rows.values())),
        )


async def settle(
    session: Session, source: str, run_id: int, settled: Sequence[FrontierRow]
) -> None:
    """Save the results of reading threads: each row has the thread's id and state, and what else is known now."""
    if settled:
        rows = Json(list(map(as_dict, settled)))
        await session.run(_SETTLE, source=source, run_id=run_id, rows=rows)


async def look_up(
    session: Session, source: str, run_id: int, thread_ids: Sequence[str]
) -> dict[str, KnownThread]:
    """Thread id → what is known of the thread; unknown threads are left out."""
    entries = await session.rows(
        FrontierRow,
        "WHERE source = :source AND thread_id = ANY (:ids)",
        source=source,
        ids=list(thread_ids),
    )
    known = {}
    for entry in entries:
        known[entry.thread_id] = read(
            KnownThread,
            entry,
            handled=entry.run_id == run_id and entry.state not in _OPEN,
            met_by=entry.first_run_id,
            taken_down=False,
        )
    for thread_id in await taken_down_ids(session, source, thread_ids):
        known[thread_id] = KnownThread(taken_down=True)
    return known


async def take_left_over(session: Session, source: str, run_id: int) -> list[ListEntry]:
    """Take into this run the source's threads that still wait, or whose failure another attempt may mend.

    Threads that failed least come first: one for which the host blocks us must not keep the others waiting.
    """
    rows = await session.run(_LEFT_OVER, source=source, run_id=run_id, **_RETRY)
    return list(map(_entry, sorted(rows, key=attrgetter("attempts"))))


async def take_not_listed(
    session: Session, source: str, run_id: int, overlap: timedelta
) -> list[ListEntry]:
    """Take into this run the threads read before that a list of this run should have shown and did not.

    A list is read down to the latest activity of earlier runs less `overlap`. If lists show no dates, it should have
    shown threads opened (or first met, if their page does not say when) up to `overlap` before the list was last read
    to its end.
    """
    rows = await session.run(_NOT_LISTED, source=source, run_id=run_id, overlap=overlap)
    return list(map(_entry, rows))


async def reading_began(session: Session, source: str, thread_id: str) -> int:
    """The newest fetch when a waiting thread was listed; the pages of its reading have higher numbers."""
    entry = await session.get(FrontierRow, (source, thread_id), populate_existing=True)
    return 0 if entry is None else entry.after_fetch


async def unsettle(session: Session, run_id: int) -> None:
    """Make a run's threads `known`, as the run is repeated; threads to be tried again stay `failed`, as the lists may
    not show them."""
    await session.run(
        """
        UPDATE frontier SET state = 'known', reason = NULL WHERE run_id = :run
        AND NOT (state = 'failed' AND reason = ANY (:retried) AND attempts < :attempts)
        """,
        run=run_id,
        **_RETRY,
    )


def _entry(entry: Any) -> ListEntry:
    return ListEntry(entry.url, entry.thread_id, entry.posted_at, entry.active_at)
