"""A thread's erasure from the tables: everything that holds its words, its author or its address.

What may not change lets go of these rows alone, and in this transaction alone (docs/decisions/0006). What a frozen
snapshot holds stays, and with it empty rows of the decision and the revision that it came from.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.harvest.archives import mark_unswept
from medlive.db.mapping import dump_json, load_json, to_stored
from medlive.db.tables.intake import TakedownRow
from medlive.db.threads.bands import take_turn
from medlive.db.threads.takedowns import TAKEN_DOWN, take_down_alone
from medlive.errors import CheckFailed

_TELLING: Final = 30
"""Bytes of UTF-8 from which on words that two texts share are no accident."""
_WITHHELD: Final = "(taken down)"

_REVISIONS = "SELECT id FROM thread_revisions WHERE thread_id = :pk"
_CURATIONS = f"SELECT id FROM curations WHERE revision_id IN ({_REVISIONS})"
_CASES = "SELECT id FROM cases WHERE thread_id = :pk"
_NOT_FROZEN = (
    "NOT EXISTS (SELECT FROM snapshot_members AS member JOIN snapshots USING (version) WHERE state = 'frozen'"
    " AND member.case_id = {0}.case_id AND member.revision = {0}.revision)"
)
# Table → the statements that erase a thread from it, children before parents. `:pk` is the thread's number.
_ERASURES: Final[tuple[tuple[str, str], ...]] = (
    (
        "snapshot_members",
        f"DELETE FROM snapshot_members WHERE case_id IN ({_CASES})"
        " AND version IN (SELECT version FROM snapshots WHERE state <> 'frozen')",
    ),
    ("reviews", f"DELETE FROM reviews WHERE case_id IN ({_CASES}) AND {_NOT_FROZEN.format('reviews')}"),
    (
        "reviews_emptied",
        f"UPDATE reviews SET reason = '{_WITHHELD}', decided_by = NULL WHERE case_id IN ({_CASES})",
    ),
    (
        "identifier_scans",
        f"DELETE FROM identifier_scans WHERE case_id IN ({_CASES}) AND {_NOT_FROZEN.format('identifier_scans')}",
    ),
    ("criteria", f"DELETE FROM criteria WHERE case_id IN ({_CASES}) AND {_NOT_FROZEN.format('criteria')}"),
    (
        "case_revisions",
        f"DELETE FROM case_revisions WHERE case_id IN ({_CASES}) AND {_NOT_FROZEN.format('case_revisions')}",
    ),
    ("disputes", f"DELETE FROM disputes WHERE case_id IN ({_CASES})"),
    (
        "withdrawals",
        f"DELETE FROM withdrawals WHERE case_id IN ({_CASES})"
        " AND NOT EXISTS (SELECT FROM case_revisions WHERE case_id = withdrawals.case_id)",
    ),
    (
        "cases",
        "DELETE FROM cases WHERE thread_id = :pk"
        " AND NOT EXISTS (SELECT FROM case_revisions WHERE case_id = cases.id)",
    ),
    (
        "cases_withdrawn",
        f"UPDATE cases SET status = 'withdrawn', status_reason = '{TAKEN_DOWN}' WHERE thread_id = :pk",
    ),
    ("claim_evidence", f"DELETE FROM claim_evidence WHERE curation_id IN ({_CURATIONS})"),
    ("claim_verdicts", f"DELETE FROM claim_verdicts WHERE curation_id IN ({_CURATIONS})"),
    ("requirements", f"DELETE FROM requirements WHERE curation_id IN ({_CURATIONS})"),
    ("controller_checks", f"DELETE FROM controller_checks WHERE curation_id IN ({_CURATIONS})"),
    ("holds", f"DELETE FROM holds WHERE curation_id IN ({_CURATIONS})"),
    ("second_readings", f"DELETE FROM second_readings WHERE curation_id IN ({_CURATIONS})"),
    ("cross_questions", f"DELETE FROM cross_questions WHERE curation_id IN ({_CURATIONS})"),
    ("cross_examinations", f"DELETE FROM cross_examinations WHERE curation_id IN ({_CURATIONS})"),
    ("elements", f"DELETE FROM elements WHERE curation_id IN ({_CURATIONS})"),
    ("agent_calls", f"DELETE FROM agent_calls WHERE curation_id IN ({_CURATIONS})"),
    (
        "curations",
        f"DELETE FROM curations WHERE revision_id IN ({_REVISIONS})"
        " AND NOT EXISTS (SELECT FROM case_revisions WHERE curation_id = curations.id)",
    ),
    (
        "curations_emptied",
        "UPDATE curations SET detail = '', narrative = '', query = '', advice = ''"
        f" WHERE revision_id IN ({_REVISIONS})",
    ),
    ("filter_verdicts", f"DELETE FROM filter_verdicts WHERE revision_id IN ({_REVISIONS})"),
    ("filter_results", f"DELETE FROM filter_results WHERE revision_id IN ({_REVISIONS})"),
    ("identifiers", f"DELETE FROM identifiers WHERE revision_id IN ({_REVISIONS})"),
    (
        "thread_revisions",
        "DELETE FROM thread_revisions WHERE thread_id = :pk"
        " AND NOT EXISTS (SELECT FROM curations WHERE revision_id = thread_revisions.id)",
    ),
    (
        "thread_revisions_emptied",
        "UPDATE thread_revisions SET title = '', tags = '{}', messages = '[]', fetch_id = NULL,"
        " import_run_id = NULL WHERE thread_id = :pk",
    ),
    ("bands", "DELETE FROM bands WHERE thread_id = :pk"),
    (
        "threads",
        "DELETE FROM threads WHERE id = :pk AND NOT EXISTS (SELECT FROM thread_revisions WHERE thread_id = :pk)",
    ),
    ("threads_emptied", "UPDATE threads SET url = '' WHERE id = :pk"),
)
# What is found by the thread's name, whether or not it ever became a thread here.
_BY_NAME: Final[tuple[tuple[str, str], ...]] = (
    ("fetches", "DELETE FROM fetches WHERE source = :source AND thread_id = :thread_id"),
    ("frontier", "DELETE FROM frontier WHERE source = :source AND thread_id = :thread_id"),
    (
        "import_problems",
        f"UPDATE import_problems SET excerpt = '{_WITHHELD}', detail = '{_WITHHELD}'"
        " WHERE position(:quoted_id in excerpt) > 0 AND position(:quoted_source in excerpt) > 0",
    ),
)
_URLS = text(
    "SELECT url FROM threads WHERE source = :source AND thread_id = :thread_id UNION"
    " SELECT url FROM frontier WHERE source = :source AND thread_id = :thread_id UNION"
    " SELECT url FROM fetches WHERE source = :source AND thread_id = :thread_id"
)
_TITLES = text(
    "SELECT DISTINCT title FROM thread_revisions JOIN threads ON threads.id = thread_revisions.thread_id"
    " WHERE threads.source = :source AND threads.thread_id = :thread_id"
)
# Messages of a run or a quarantine name the page they are about.
_MENTIONS = (
    (
        "harvest_runs",
        text(
            "UPDATE harvest_runs SET problem = replace(problem, :url, :withheld)"
            " WHERE position(:url in problem) > 0"
        ),
    ),
    (
        "sources",
        text(
            "UPDATE sources SET quarantine_reason = replace(quarantine_reason, :url, :withheld)"
            " WHERE position(:url in quarantine_reason) > 0"
        ),
    ),
    (
        "fetches_mentioning",
        text("UPDATE fetches SET error = replace(error, :url, :withheld) WHERE position(:url in error) > 0"),
    ),
)
_FORGET_PLACES = text(
    "UPDATE fetches SET archive_id = NULL, archive_offset = NULL, archive_length = NULL WHERE id = ANY (:ids)"
)
_OWN_ARCHIVES = text(
    "SELECT DISTINCT archive_id FROM fetches WHERE archive_id IS NOT NULL"
    " AND ((source = :source AND thread_id = :thread_id) OR id = ANY (:ids))"
)
_OWN_REPLIES = text(
    "SELECT DISTINCT reply_digest FROM agent_calls"
    f" WHERE reply_digest IS NOT NULL AND curation_id IN ({_CURATIONS})"
)
_LOOSE_REPLIES = text(
    "SELECT request_digest, task, inputs, text FROM replies AS reply"
    " WHERE NOT EXISTS (SELECT FROM agent_calls WHERE reply_digest = reply.request_digest)"
)
_ERASE_REPLIES = text(
    "DELETE FROM replies AS reply WHERE request_digest = ANY (:digests)"
    " AND NOT EXISTS (SELECT FROM agent_calls WHERE reply_digest = reply.request_digest)"
)
_JOBS = (
    "DELETE FROM procrastinate_jobs WHERE status = 'todo'"
    f" AND CAST(args ->> 'revision' AS bigint) IN ({_REVISIONS})"
)
_UNDER_WAY = text(
    "SELECT EXISTS (SELECT FROM procrastinate_jobs AS job JOIN procrastinate_workers AS worker"
    " ON worker.id = job.worker_id WHERE job.status = 'doing'"
    " AND worker.last_heartbeat > now() - make_interval(secs => :alive_s)"
    f" AND CAST(job.args ->> 'revision' AS bigint) IN ({_REVISIONS}))"
)
_FROZEN = text(
    "SELECT member.version, member.case_id FROM snapshot_members AS member JOIN snapshots USING (version)"
    " JOIN cases ON cases.id = member.case_id JOIN threads ON threads.id = cases.thread_id"
    " WHERE snapshots.state = 'frozen' AND threads.source = :source AND threads.thread_id = :thread_id"
    " AND member.first_release IS NOT NULL ORDER BY member.version"
)


@dataclass(frozen=True, slots=True)
class Traces:
    """What a thread is known by in pages of its source."""

    urls: frozenset[str]
    titles: frozenset[str]


async def traces_of(session: AsyncSession, source: str, thread_id: str) -> Traces:
    """The addresses and titles that a thread has had here; both empty when nothing is known of it."""
    named = {"source": source, "thread_id": to_stored(thread_id)}
    urls = frozenset(url for url in await session.scalars(_URLS, named) if url)
    return Traces(urls, frozenset(title for title in await session.scalars(_TITLES, named) if title))


async def frozen_with(session: AsyncSession, source: str, thread_id: str) -> list[tuple[str, str]]:
    """(snapshot's version, case id) of every frozen snapshot that shows a case of the thread."""
    named = {"source": source, "thread_id": to_stored(thread_id)}
    return [(version, case_id) for version, case_id in await session.execute(_FROZEN, named)]


async def erase_thread(
    session: AsyncSession,
    source: str,
    thread_id: str,
    reason: str,
    *,
    texts: Collection[str] = (),
    showing: Sequence[int] = (),
    alive_s: float = 10.0,
) -> Counter[str]:
    """Erase a thread and leave its takedown; table → rows, `replies_shared` those kept for other threads.

    `texts`: its messages, raw and as engines saw them, by which replies are found that no decision rests on yet;
    `showing`: fetches of other pages that show it, whose bytes go as well. The files that hold any of its bytes
    are marked unswept. Doing it again is harmless. Raises CheckFailed while a living worker (its heartbeat is not
    older than `alive_s`) curates the thread: what it stores next would not be found.
    """
    # Neither filters nor imports have its rows in hand meanwhile.
    await take_turn(session)
    await take_down_alone(session)
    named = {"source": source, "thread_id": to_stored(thread_id)}
    pk = await session.scalar(
        text("SELECT id FROM threads WHERE source = :source AND thread_id = :thread_id FOR UPDATE"), named
    )
    # Whoever stores a decision about a revision has locked it.
    await session.execute(text(f"{_REVISIONS} FOR UPDATE"), {"pk": pk})
    # First no worker can take it up any more, then none has it.
    counts: Counter[str] = Counter(jobs=await _rows(session, _JOBS, {"pk": pk}))
    if await session.scalar(_UNDER_WAY, {"pk": pk, "alive_s": alive_s}):
        raise CheckFailed(
            f"{source}/{thread_id} is being curated at this moment",
            hint="try again when the worker is done with it",
        )
    statement = upsert(TakedownRow).values(source=source, thread_id=thread_id, reason=reason)
    await session.execute(
        # Written again, so that this transaction may erase; the first reason and moment stay.
        statement.on_conflict_do_update(
            index_elements=["source", "thread_id"], set_={"counts": TakedownRow.counts}
        )
    )
    traces = await traces_of(session, source, thread_id)
    ids = list(showing)
    archives = list(await session.scalars(_OWN_ARCHIVES, {**named, "ids": ids}))
    digests = set(await session.scalars(_OWN_REPLIES, {"pk": pk}))
    digests |= await _loose_replies(session, texts)
    if pk is not None:
        for table, sql in _ERASURES:
            counts[table] += await _rows(session, sql, {"pk": pk})
        counts["replies"] += await _rows(session, _ERASE_REPLIES, {"digests": sorted(digests)})
        counts["replies_shared"] += len(digests) - counts["replies"]
    quoted = {"quoted_id": dump_json(to_stored(thread_id)), "quoted_source": dump_json(source)}
    for table, sql in _BY_NAME:
        counts[table] += await _rows(session, sql, {**named, **quoted})
    counts["pages_showing_it"] += await _rows(session, _FORGET_PLACES, {"ids": ids})
    for url in sorted(traces.urls):
        for table, mention in _MENTIONS:
            counts[table] += await _rows(session, mention, {"url": url, "withheld": _WITHHELD})
    await mark_unswept(session, archives)
    counts["archives"] += len(archives)
    counts = Counter({name: n for name, n in sorted(counts.items()) if n})
    row = await session.get_one(TakedownRow, (source, thread_id), populate_existing=True)
    row.counts = dict(Counter(row.counts) + counts)
    await session.flush()
    return counts


async def _rows(session: AsyncSession, statement: Any, values: dict[str, Any]) -> int:
    sql = text(statement) if isinstance(statement, str) else statement
    wanted = {name: value for name, value in values.items() if name in sql.compile().params}
    found: int = (await session.execute(sql, wanted)).rowcount  # type: ignore[attr-defined]
    return found


async def _loose_replies(session: AsyncSession, texts: Collection[str]) -> set[str]:
    """Replies that no decision rests on and whose request was made of these texts: of an attempt that was cut
    off. What the Screener made of the texts is asked about in later requests, so it is looked for as well."""
    if not texts:
        return set()
    loose: list[tuple[str, str, list[str], str]] = []
    stream = await session.stream(_LOOSE_REPLIES, execution_options={"yield_per": 100})
    async for digest, task, inputs, reply in stream:
        loose.append((digest, task, _telling(load_json(inputs) if isinstance(inputs, str) else inputs), reply))
    found: set[str] = set()
    looked_for = _telling(list(texts))
    while looked_for:
        met = [reply for reply in loose if reply[0] not in found and _shares(reply[2], looked_for)]
        found |= {digest for digest, *_ in met}
        looked_for = _telling([_parsed(reply) for _, task, _, reply in met if task.startswith("screener")])
    return found


def _telling(value: Any) -> list[str]:
    return [leaf for leaf in _leaves(value) if _tells(leaf)]


def _shares(leaves: Iterable[str], texts: Sequence[str]) -> bool:
    return any(leaf in one or one in leaf for leaf in leaves for one in texts)


def _tells(words: str) -> bool:
    return len(words.encode("utf-8", "replace")) >= _TELLING


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for below in value.values():
            yield from _leaves(below)
    elif isinstance(value, list):
        for below in value:
            yield from _leaves(below)


def _parsed(reply: str) -> Any:
    try:
        return load_json(reply)
    except JSONDecodeError:
        return reply
