"""Takedowns: `erase_thread` removes a thread's words, author and address from all tables; a row in `takedowns` stays.

Triggers let immutable rows be erased only for this thread and in this transaction (docs/builders/decisions/0006). What
a frozen snapshot holds stays, and with it emptied rows of the decision and the revision that it came from.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

from psycopg.types.json import Json
from sqlalchemy import func

from medlive.db.audit_log import erase_reasons, record
from medlive.db.harvest.fetches import mark_unswept
from medlive.db.jobs import STALLED_AFTER_S
from medlive.db.session import Session
from medlive.db.tables.intake import TakedownRow
from medlive.db.tables.people import Act
from medlive.errors import CheckFailed
from medlive.threads.model import Thread

from .bands import take_turn

TAKEN_DOWN = "taken_down"
"""The reason why a thread is passed over, and a case kept out."""
_LOCK = 0x6D656474  # "medt": one number for every takedown of this database

_TELLING = 30
"""A text with at least this many bytes of UTF-8 is not in two texts by accident."""
_WITHHELD = "(taken down)"  # Put in place of erased text

_REVISIONS = "SELECT id FROM thread_revisions WHERE thread_id = :pk"
_CURATIONS = f"SELECT id FROM curations WHERE revision_id IN ({_REVISIONS})"
_CASES = "SELECT id FROM cases WHERE thread_id = :pk"
_NOT_FROZEN = """
    NOT EXISTS (SELECT FROM snapshot_members AS member JOIN snapshots USING (version) WHERE state = 'frozen'
    AND member.case_id = {0}.case_id AND member.revision = {0}.revision)
"""
_OF_CASE = f"DELETE FROM {{0}} WHERE case_id IN ({_CASES}) AND {_NOT_FROZEN}"
_OF_CURATION = f"DELETE FROM {{0}} WHERE curation_id IN ({_CURATIONS})"
_OF_REVISION = f"DELETE FROM {{0}} WHERE revision_id IN ({_REVISIONS})"
_PARTS = (
    "claim_evidence",
    "claim_verdicts",
    "requirements",
    "controller_checks",
    "holds",
    "second_readings",
    "rubric_probes",
    "rubric_proofs",
    "cross_questions",
    "cross_examinations",
    "elements",
    "agent_calls",
)
"""The tables of a curation's parts."""
# Table → the statement that erases a thread from it, children before parents, or that empties rows that have to stay
# (`…_emptied`, `cases_withdrawn`). `:pk` is the thread's number, NULL if it never became a thread here.
_ERASURES = {
    "snapshot_members": f"""
        DELETE FROM snapshot_members WHERE case_id IN ({_CASES})
        AND version IN (SELECT version FROM snapshots WHERE state <> 'frozen')
    """,
    "study_ratings": f"""
        DELETE FROM study_ratings WHERE (study, item) IN
        (SELECT study, item FROM study_items WHERE case_id IN ({_CASES}))
    """,
    "study_items": f"DELETE FROM study_items WHERE case_id IN ({_CASES})",
    "reviews": _OF_CASE,
    "reviews_emptied": f"UPDATE reviews SET reason = '{_WITHHELD}', decided_by = NULL WHERE case_id IN ({_CASES})",
    "identifier_scans": _OF_CASE,
    "criteria": _OF_CASE,
    "case_revisions": _OF_CASE,
    "disputes": f"DELETE FROM disputes WHERE case_id IN ({_CASES})",
    "reinstatements": f"""
        DELETE FROM reinstatements WHERE case_id IN ({_CASES})
        AND NOT EXISTS (SELECT FROM case_revisions WHERE case_id = reinstatements.case_id)
    """,
    "withdrawals": f"""
        DELETE FROM withdrawals WHERE case_id IN ({_CASES})
        AND NOT EXISTS (SELECT FROM case_revisions WHERE case_id = withdrawals.case_id)
    """,
    "cases": """
        DELETE FROM cases WHERE thread_id = :pk
        AND NOT EXISTS (SELECT FROM case_revisions WHERE case_id = cases.id)
    """,
    "cases_withdrawn": f"""
        UPDATE cases SET status = 'withdrawn', status_reason = '{TAKEN_DOWN}'
        WHERE thread_id = :pk
    """,
    **dict.fromkeys(_PARTS, _OF_CURATION),
    "overrules": _OF_REVISION,
    "curations": f"""
        DELETE FROM curations WHERE revision_id IN ({_REVISIONS})
        AND NOT EXISTS (SELECT FROM case_revisions WHERE curation_id = curations.id)
    """,
    "curations_emptied": f"""
        UPDATE curations SET detail = '', narrative = '', query = '', advice = ''
        WHERE revision_id IN ({_REVISIONS})
    """,
    "filter_results": _OF_REVISION,
    "identifiers": _OF_REVISION,
    "week_threads": _OF_REVISION,
    "thread_revisions": """
        DELETE FROM thread_revisions WHERE thread_id = :pk
        AND NOT EXISTS (SELECT FROM curations WHERE revision_id = thread_revisions.id)
    """,
    "thread_revisions_emptied": """
        UPDATE thread_revisions SET title = '', tags = '{{}}', messages = '[]',
        fetch_id = NULL, import_run_id = NULL WHERE thread_id = :pk
    """,
    "bands": "DELETE FROM bands WHERE thread_id = :pk",
    "threads": """
        DELETE FROM threads WHERE id = :pk
        AND NOT EXISTS (SELECT FROM thread_revisions WHERE thread_id = :pk)
    """,
    "threads_emptied": "UPDATE threads SET url = '' WHERE id = :pk",
    # After the calls that refer to them.
    "replies": """
        DELETE FROM replies AS reply WHERE request_digest = ANY (:digests)
        AND NOT EXISTS (SELECT FROM agent_calls WHERE reply_digest = reply.request_digest)
    """,
    # Found by the thread's source and id, whether or not it ever became a thread here.
    "fetches": "DELETE FROM fetches WHERE source = :source AND thread_id = :thread_id",
    "frontier": "DELETE FROM frontier WHERE source = :source AND thread_id = :thread_id",
    "pages_showing_it": """
        UPDATE fetches SET archive_id = NULL, archive_offset = NULL, archive_length = NULL WHERE id = ANY (:ids)
    """,
}
_MENTION = (
    "UPDATE {0} SET {1} = replace({1}, :url, :withheld) WHERE position(:url in {1}) > 0"
)
# Problems of runs and quarantines name the page they are about, and other rows repeat them: the address is replaced.
_MENTIONS = {
    "harvest_runs": _MENTION.format("harvest_runs", "problem"),
    "sources": _MENTION.format("sources", "quarantine_reason"),
    "fetches_mentioning": _MENTION.format("fetches", "error"),
    "job_failures": _MENTION.format("job_failures", "reason"),
    "open_problems": _MENTION.format("open_problems", "text"),
    "outbox": """
        UPDATE outbox SET message = CAST(replace(CAST(message AS text), :in_json, :withheld) AS jsonb)
        WHERE position(:in_json in CAST(message AS text)) > 0
    """,
    "pipeline_runs": """
        UPDATE pipeline_runs SET counts = CAST(replace(CAST(counts AS text), :in_json, :withheld) AS jsonb),
            log = CAST(replace(CAST(log AS text), :in_json, :withheld) AS jsonb)
        WHERE position(:in_json in concat(counts, log)) > 0
    """,
}
_OWN_REPLIES = f"""
    SELECT DISTINCT reply_digest FROM agent_calls
    WHERE reply_digest IS NOT NULL AND curation_id IN ({_CURATIONS})
"""
# A job's `revision` is a thread's, or with `case_id` the case's.
_OF_THREAD = f"""
    CASE WHEN args ->> 'case_id' IS NULL THEN CAST(args ->> 'revision' AS bigint) IN ({_REVISIONS})
    ELSE args ->> 'case_id' IN ({_CASES}) END
"""
_JOBS = f"DELETE FROM procrastinate_jobs WHERE status = 'todo' AND {_OF_THREAD}"
# A known takedown is written again, so that triggers let this transaction erase; the first reason and moment stay.
_TAKE_DOWN = """
    INSERT INTO takedowns AS known (source, thread_id, reason) VALUES (:source, :thread_id, :reason)
    ON CONFLICT (source, thread_id) DO UPDATE SET counts = known.counts, lifted_at = NULL
"""
_UNDER_WAY = f"""
    SELECT EXISTS (SELECT FROM procrastinate_jobs AS job JOIN procrastinate_workers AS worker
    ON worker.id = job.worker_id WHERE job.status = 'doing'
    AND worker.last_heartbeat > now() - make_interval(secs => :alive_s)
    AND {_OF_THREAD})
"""


async def find_takedown(
    session: Session, source: str, thread_id: str
) -> TakedownRow | None:
    """The row of a thread's takedown; None if it was not taken down, or may come back."""
    row = await session.get(TakedownRow, (source, thread_id))
    return row if row is not None and row.lifted_at is None else None


async def lift_takedown(
    session: Session, source: str, thread_id: str, reason: str, *, by: str | None
) -> None:
    """Let a later harvest bring a thread back. Raises CheckFailed if the thread is not taken down."""
    await no_takedown(session)
    takedown = await find_takedown(session, source, thread_id)
    if takedown is None:
        raise CheckFailed(f"{source}/{thread_id} is not taken down")
    takedown.lifted_at = func.now()
    await session.flush()
    await record(
        session, Act.LIFT_TAKEDOWN, f"thread:{source}/{thread_id}", reason, by=by
    )


async def taken_down_ids(
    session: Session, source: str, thread_ids: Sequence[str]
) -> set[str]:
    """The ids, of these threads of a source, that were taken down and must not come back."""
    taken_down = await session.column(
        "SELECT thread_id FROM takedowns WHERE source = :source AND thread_id = ANY (:ids) AND lifted_at IS NULL",
        source=source,
        ids=list(thread_ids),
    )
    return set(taken_down)


async def keep_out(
    session: Session,
    threads: Iterable[Thread],
) -> set[tuple[str, str]]:
    """(source, thread id) of those of the threads that were taken down and must not be saved.

    Until the transaction ends no other thread can be taken down, so that every takedown is either seen here or sees
    what is saved now.
    """
    keys = [
        {"source": thread.source, "thread_id": thread.thread_id} for thread in threads
    ]
    await no_takedown(session)
    rows = await session.run(
        """
        SELECT source, thread_id FROM takedowns WHERE lifted_at IS NULL AND (source, thread_id) IN (
            SELECT source, thread_id FROM json_to_recordset(CAST(:keys AS json)) AS asked (source text, thread_id text)
        )
        """,
        keys=Json(keys),
    )
    return {(row.source, row.thread_id) for row in rows}


async def no_takedown(session: Session) -> None:
    """Wait for a takedown that is under way, and let none begin until the session's transaction ends."""
    await session.run("SELECT pg_advisory_xact_lock_shared(:lock)", lock=_LOCK)


async def traces_of(
    session: Session, source: str, thread_id: str
) -> tuple[set[str], set[str]]:
    """The addresses and the titles that a thread has had here, by which it is found in other pages of its source; both
    empty if nothing is known of it."""
    named = {"source": source, "thread_id": thread_id}
    urls = await session.column(
        """
        SELECT url FROM threads WHERE source = :source AND thread_id = :thread_id UNION
        SELECT url FROM frontier WHERE source = :source AND thread_id = :thread_id UNION
        SELECT url FROM fetches WHERE source = :source AND thread_id = :thread_id
        """,
        **named,
    )
    titles = await session.column(
        """
        SELECT DISTINCT title FROM thread_revisions JOIN threads ON threads.id = thread_revisions.thread_id
        WHERE threads.source = :source AND threads.thread_id = :thread_id
        """,
        **named,
    )
    return set(urls) - {""}, set(titles) - {""}


async def frozen_with(
    session: Session, source: str, thread_id: str
) -> list[tuple[str, str]]:
    """(snapshot's version, case id) of every frozen snapshot that shows a case of the thread."""
    rows = await session.records(
        """
        SELECT member.version, member.case_id FROM snapshot_members AS member JOIN snapshots USING (version)
        JOIN cases ON cases.id = member.case_id JOIN threads ON threads.id = cases.thread_id
        WHERE snapshots.state = 'frozen' AND threads.source = :source AND threads.thread_id = :thread_id
        AND member.first_release IS NOT NULL ORDER BY member.version
        """,
        source=source,
        thread_id=thread_id,
    )
    return [(row.version, row.case_id) for row in rows]


async def erase_thread(
    session: Session,
    source: str,
    thread_id: str,
    reason: str,
    *,
    texts: Collection[str] = (),
    showing: Sequence[int] = (),
    by: str | None = None,
) -> Counter[str]:
    """Erase a thread and leave its takedown; return table → rows erased, and `replies_shared`, kept for other threads.

    `texts` are its messages, raw and as engines saw them, by which replies are found that no decision refers to;
    `showing` are fetches of other pages that show it, whose bytes go as well. The archives with any of its bytes are
    marked unswept. Doing it again is harmless. Raises CheckFailed while a live worker (its heartbeat is not older than
    STALLED_AFTER_S) curates the thread: what it stores next would not be found.
    """
    # Until the transaction ends no filters run.
    await take_turn(session)
    # Nor are threads saved until then.
    await session.run("SELECT pg_advisory_xact_lock(:lock)", lock=_LOCK)
    named = {"source": source, "thread_id": thread_id}
    pk = await session.value(
        "SELECT id FROM threads WHERE source = :source AND thread_id = :thread_id FOR UPDATE",
        **named,
    )
    # A process that stores a decision about a revision has locked it.
    await session.run(f"{_REVISIONS} FOR UPDATE", pk=pk)
    # First remove its waiting jobs, so that no worker can begin one; then check that no worker is at one.
    counts: Counter[str] = Counter()
    await _erase(session, counts, {"jobs": _JOBS}, pk=pk)
    if await session.value(_UNDER_WAY, pk=pk, alive_s=STALLED_AFTER_S):
        raise CheckFailed(
            f"{source}/{thread_id} is being curated at this moment",
            hint="try again when the worker is done with it",
        )
    await session.run(_TAKE_DOWN, **named, reason=reason)
    urls, _ = await traces_of(session, source, thread_id)
    ids = list(showing)
    archives = await session.column(
        """
        SELECT DISTINCT archive_id FROM fetches WHERE archive_id IS NOT NULL
        AND ((source = :source AND thread_id = :thread_id) OR id = ANY (:ids))
        """,
        **named,
        ids=ids,
    )
    digests = set(await session.column(_OWN_REPLIES, pk=pk))
    # An edited case is proved and read again without a decision: replies are found by its texts.
    of_case = await session.column(
        f"""
        SELECT unnest(ARRAY[narrative, query, advice]) FROM case_revisions WHERE case_id IN ({_CASES})
        """,
        pk=pk,
    )
    digests |= await _loose_replies(session, [*texts, *of_case])
    subject, case_ids = (
        f"thread:{source}/{thread_id}",
        await session.column(_CASES, pk=pk),
    )
    erased = await erase_reasons(session, subject, case_ids)
    await _erase(
        session,
        counts,
        _ERASURES,
        **named,
        pk=pk,
        digests=list(digests),
        ids=ids,
    )
    counts["replies_shared"] += len(digests) - counts["replies"]
    # An imported thread's address may be any word, such as "null", which other texts have by chance.
    for url in sorted(url for url in urls if "://" in url):
        await _erase(
            session,
            counts,
            _MENTIONS,
            url=url,
            in_json=json.dumps(url, ensure_ascii=False)[1:-1],
            withheld=_WITHHELD,
        )
    await mark_unswept(session, archives)
    counts["archives"] += len(archives)
    counts = Counter(dict(sorted((+counts).items())))
    row = await session.get_one(
        TakedownRow, (source, thread_id), populate_existing=True
    )
    row.counts = dict(Counter(row.counts) + counts)
    await session.flush()
    await record(session, Act.TAKE_DOWN, subject, reason, by=by, erased=erased)
    return counts


async def _erase(
    session: Session,
    counts: Counter[str],
    statements: Mapping[str, str],
    **values: Any,
) -> None:
    """Run each statement, and add the number of its rows to `counts`."""
    for name, sql in statements.items():
        erased = await session.run(sql.format(name), **values)
        counts[name] += erased.rowcount  # type: ignore[attr-defined]


async def _loose_replies(session: Session, texts: Collection[str]) -> set[str]:
    """Digests of replies that no decision refers to and whose request was made of these texts, in an attempt that was
    broken off.

    Later requests ask about the Screener's reply to the texts, so that requests made of this reply count too.
    """
    if not texts:
        return set()
    rows = await session.run("""
        SELECT request_digest, task, inputs, text FROM replies AS reply
        WHERE NOT EXISTS (SELECT FROM agent_calls WHERE reply_digest = reply.request_digest)
        """)
    loose = {}
    for digest, task, inputs, reply in rows:
        loose[digest] = (task, _long_texts(inputs), reply)
    digests: set[str] = set()
    wanted = _long_texts(list(texts))
    while wanted:
        pairs = product(loose.items(), wanted)
        wanted = []
        for (digest, (task, own, reply)), other in pairs:
            is_met = any(text in other or other in text for text in own)
            if digest in digests or not is_met:
                continue
            digests.add(digest)
            if task.startswith("screener"):
                with suppress(json.JSONDecodeError):
                    reply = json.loads(reply)
                wanted += _long_texts(reply)
    return digests


def _long_texts(value: Any) -> list[str]:
    """The strings in a JSON value that are too long to be shared by accident."""
    if isinstance(value, str):
        return [value] if len(value.encode("utf-8", "replace")) >= _TELLING else []
    parts = value.values() if isinstance(value, dict) else value
    long_texts = []
    for part in parts if isinstance(value, dict | list) else ():
        long_texts += _long_texts(part)
    return long_texts
