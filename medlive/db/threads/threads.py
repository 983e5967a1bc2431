"""Threads and their revisions, saved as they come in and loaded; the places of identifiers in their raw text.

Here `thread_pk` is the number of a row in `threads`, `revision_pk` of one in `thread_revisions`; `thread_id` is the
source's own id.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from psycopg.types.json import Json

from medlive.db.mapping import Record, read, row_of
from medlive.db.session import Session
from medlive.db.tables.intake import (
    IdentifierRow,
    SourceKind,
    ThreadRevisionRow,
    ThreadRow,
)
from medlive.errors import BadInput, MedliveError
from medlive.guard.bounds import (
    MESSAGE_CHARS_SHOWN,
    MESSAGES_SHOWN,
    THREAD_ID_CHARS,
    TITLE_CHARS_SHOWN,
)
from medlive.threads.model import Message, Thread

if TYPE_CHECKING:
    # Its word lists take a tenth of a second, which `medlive status` need not wait for.
    from medlive.deidentify.identifiers import Identifier


class SavedThread(NamedTuple):
    """The rows of a thread that was saved."""

    thread_pk: int
    revision_pk: int
    """The revision with this content; for an import it may be an earlier one that had the same content."""
    status: Literal["new", "revised", "unchanged"]


# The rows are one parameter: writing out thousands of parameters took most of the time.
_UPSERT_THREADS = """
    INSERT INTO threads (source, thread_id, url)
    SELECT row ->> 0, row ->> 1, row ->> 2 FROM json_array_elements(CAST(:rows AS json)) AS given (row)
    ON CONFLICT (source, thread_id) DO UPDATE
    SET url = excluded.url,
    last_seen_at = greatest(CASE WHEN :is_seen THEN now() END, threads.last_seen_at)
    RETURNING id, source, thread_id
"""


async def save_threads(
    session: Session,
    threads: Sequence[Thread],
    *,
    assumed_posted_at: Sequence[bool] | None = None,
    import_run_id: int | None = None,
    fetch_ids: Sequence[int | None] | None = None,
    is_seen: bool = True,
) -> list[SavedThread]:
    """Save threads in few statements; the results are in the threads' order.

    Fetched content (`fetch_ids` given) is the thread's present state: it makes a new revision unless the latest one has
    the same content. Imported content makes a new revision unless any revision has it, so that the same file imported
    twice adds nothing, even if it has several states of a thread. Dates are kept in UTC. Two processes that save the
    same thread take turns. Raises BadInput for a thread that `check_storable` refuses, before anything is saved.

    `assumed_posted_at` says of each thread whether its date was given for want of one; `is_seen` whether the source
    shows the threads now, or else only kept pages do.
    """
    if not threads:
        return []
    kept = []
    for thread in threads:
        check_storable(thread)
        # In UTC, so that one moment given in two zones is one content.
        messages = []
        for message in thread.messages:
            moment = message.posted_at and message.posted_at.astimezone(UTC)
            messages.append(replace(message, posted_at=moment))
        moment = thread.posted_at and thread.posted_at.astimezone(UTC)
        kept.append(replace(thread, posted_at=moment, messages=tuple(messages)))
    threads = kept
    if fetch_ids is None:
        # A harvest, which has fetches, has made its source's row already.
        await ensure_sources(session, {t.source for t in threads}, "file")
    urls = {(thread.source, thread.thread_id): thread.url for thread in threads}
    # Sorted, so that a second process waits for the first, and then sees what it added.
    rows = Json([(*name, urls[name]) for name in sorted(urls)])
    numbers = {}
    for pk, *name in await session.run(_UPSERT_THREADS, rows=rows, is_seen=is_seen):
        numbers[tuple(name)] = pk
    pks = [numbers[thread.source, thread.thread_id] for thread in threads]
    origins = zip(
        threads,
        fetch_ids or repeat(None, len(threads)),
        assumed_posted_at or repeat(False, len(threads)),
        strict=True,
    )
    return await _add_revisions(
        session, pks, origins, import_run_id, is_present=fetch_ids is not None
    )


async def _add_revisions(
    session: Session,
    pks: Sequence[int],
    origins: Iterable[tuple[Thread, int | None, bool | None]],
    import_run_id: int | None,
    *,
    is_present: bool,
) -> list[SavedThread]:
    """Add a revision for content that differs from the latest revision's (`is_present`), or else from every revision's.

    `pks` are the threads' rows; each of `origins` is a thread, its fetch, and whether its date is assumed.
    """
    # Thread → the digest of each of its revisions, by number
    known: dict[int, dict[int, str]] = {pk: {} for pk in pks}
    revision_pks = {}
    for pk, number, digest, revision_pk in await session.run(_REVISIONS, pks=pks):
        known[pk][number] = digest
        revision_pks[pk, number] = revision_pk
    rows = []
    plan: list[tuple[int, int, Literal["new", "revised", "unchanged"]]] = []
    for pk, (thread, fetch_id, is_assumed) in zip(pks, origins, strict=True):
        revisions, digest = known[pk], thread.digest
        last = max(revisions, default=0)
        compared = [last] if is_present else revisions
        same = [number for number in compared if revisions.get(number) == digest]
        if same:
            plan.append((pk, max(same), "unchanged"))
            continue
        number = last + 1
        revisions[number] = digest
        plan.append((pk, number, "new" if number == 1 else "revised"))
        values = row_of(
            ThreadRevisionRow,
            thread,
            thread_id=pk,
            revision=number,
            digest=digest,
            fetch_id=fetch_id,
            import_run_id=import_run_id,
            posted_at_assumed=bool(is_assumed and thread.posted_at),
            messages=[{"id": m.id, **m.content()} for m in thread.messages],
        )
        rows.append(values)
    names = ("thread_id", "revision", "id")
    for pk, number, revision_pk in await session.insert_rows(
        ThreadRevisionRow, rows, returning=names
    ):
        revision_pks[pk, number] = revision_pk
    return [
        SavedThread(pk, revision_pks[pk, number], status) for pk, number, status in plan
    ]


_REVISIONS = "SELECT thread_id, revision, digest, id FROM thread_revisions WHERE thread_id = ANY (:pks)"


def check_storable(thread: Thread) -> None:
    """Raise BadInput if a thread cannot be stored: its source is empty or longer than 200 characters, its id empty or
    longer than 500, or a date without a zone."""
    if not 1 <= len(thread.source) <= 200:
        raise BadInput(
            f"the source's name has {len(thread.source)} characters; 1 to 200 are allowed"
        )
    if not 1 <= len(thread.thread_id) <= THREAD_ID_CHARS:
        raise BadInput(
            f"the thread's id has {len(thread.thread_id)} characters; 1 to {THREAD_ID_CHARS} are allowed"
        )
    for moment in (thread.posted_at, *(m.posted_at for m in thread.messages)):
        if moment is not None and moment.tzinfo is None:
            raise BadInput(
                f"thread {thread.thread_id!r} has a date without a zone: {moment.isoformat()}"
            )


async def ensure_sources(
    session: Session, names: Iterable[str], kind: SourceKind
) -> None:
    """Insert rows of sources that are not known yet; a source known from imports that is now harvested becomes a
    site."""
    in_order = sorted(set(names))
    # A row that is there already is not locked: another import of the source need not wait for this one.
    new = """
        INSERT INTO sources (name, kind) SELECT name, :kind FROM unnest(CAST(:names AS text[])) AS name
        ON CONFLICT (name) DO NOTHING
    """
    await session.run(new, names=in_order, kind=kind)
    if kind == "site":
        await session.run(
            "UPDATE sources SET kind = 'site' WHERE name = ANY(:names) AND kind <> 'site'",
            names=in_order,
        )


async def mark_seen(
    session: Session, source: str, seen: Sequence[str], gone: Sequence[str]
) -> None:
    """Note that a source shows the threads `seen` now, and that the threads `gone` are gone, since now or as noted
    before."""
    await session.run(
        f"UPDATE threads SET gone_at = NULL, last_seen_at = greatest(now(), last_seen_at) {_AMONG}",
        source=source,
        ids=list(seen),
    )
    await session.run(
        f"UPDATE threads SET gone_at = coalesce(gone_at, now()) {_AMONG}",
        source=source,
        ids=list(gone),
    )


_AMONG = "WHERE source = :source AND thread_id = ANY (:ids)"


async def load_thread(session: Session, revision_pk: int) -> Record:
    """A thread as a revision has it. Raises MedliveError if there is no such revision.

    It has thread_pk, revision_pk, thread and posted_at_assumed (whether the thread's `posted_at` was given for want of
    a date).
    """
    for stored in await _stored(session, [revision_pk]):
        return stored
    raise MedliveError(f"there is no thread revision {revision_pk}")


async def load_threads(
    session: Session, revision_pks: Sequence[int]
) -> dict[int, Thread]:
    """Revision → the thread as the revision has it, for the revisions that exist."""
    return {s.revision_pk: s.thread for s in await _stored(session, revision_pks)}


async def pending_revisions(
    session: Session,
    *,
    chain_digest: str,
    after: int = 0,
    limit: int | None = None,
) -> Sequence[Record]:
    """The threads' latest revisions, numbered above `after`, that this filter chain has not judged, oldest first:
    thread_pk and revision_pk."""
    return await session.records(
        """
        SELECT thread_id AS thread_pk, id AS revision_pk FROM thread_revisions AS r
        WHERE id > :after AND NOT EXISTS (
            SELECT FROM thread_revisions AS later WHERE later.thread_id = r.thread_id AND later.revision > r.revision
        )
        AND NOT EXISTS (SELECT FROM filter_results WHERE revision_id = r.id AND chain_digest = :chain)
        ORDER BY id LIMIT :most
        """,
        after=after,
        chain=chain_digest,
        most=limit,
    )


async def revisions_of(session: Session, source: str, thread_id: str) -> list[int]:
    """The numbers of a thread's revisions, oldest first; empty if there is no such thread."""
    return await session.column(
        """
        SELECT r.id FROM thread_revisions AS r JOIN threads AS t ON t.id = r.thread_id
        WHERE source = :source AND t.thread_id = :thread_id ORDER BY revision
        """,
        source=source,
        thread_id=thread_id,
    )


async def latest_fetches(
    session: Session, source: str, thread_ids: Sequence[str]
) -> dict[str, int]:
    """Thread id → the newest fetch from which a revision of the thread was read, for threads that were harvested."""
    return await session.lookup(
        f"""
        SELECT thread_id, (SELECT max(fetch_id) FROM thread_revisions WHERE thread_id = threads.id) FROM threads
        {_AMONG} AND EXISTS (SELECT FROM thread_revisions WHERE thread_id = threads.id AND fetch_id IS NOT NULL)
        """,
        source=source,
        ids=list(thread_ids),
    )


async def find_thread(session: Session, source: str, thread_id: str) -> int | None:
    """The number of a thread's row; None for no such thread."""
    pk: int | None = await session.value(
        "SELECT id FROM threads WHERE source = :source AND thread_id = :thread_id",
        source=source,
        thread_id=thread_id,
    )
    return pk


async def thread_of_case(session: Session, case_id: str) -> tuple[str, str]:
    """Source and thread id of an existing case."""
    [thread] = await session.rows(
        ThreadRow,
        "WHERE id = (SELECT thread_id FROM cases WHERE id = :case_id)",
        case_id=case_id,
    )
    return thread.source, thread.thread_id


async def save_identifiers(
    session: Session,
    saved: Sequence[SavedThread],
    identifiers_of: Sequence[Sequence[Sequence["Identifier"]]],
) -> int:
    """Store where the raw text of new and revised threads names people and places; return how many identifiers.

    `identifiers_of` has for each thread the identifiers of its title and then of each message. Only their places are
    stored, never their words.
    """
    rows = []
    done: set[int] = set()
    for thread, identifiers in zip(saved, identifiers_of, strict=True):
        if thread.status == "unchanged" or thread.revision_pk in done:
            continue
        done.add(thread.revision_pk)
        for number, of_text in enumerate(identifiers):
            for identifier in of_text:
                row = {
                    "revision_id": thread.revision_pk,
                    "message": number,
                    "start_at": identifier.start,
                    "end_at": identifier.end,
                    "kind": identifier.kind,
                }
                rows.append(row)
    await session.insert_rows(IdentifierRow, rows, skip_known=True)
    return len(rows)


async def count_identifiers(session: Session, revision_pk: int) -> dict[str, int]:
    """Kind → how many identifiers of that kind the revision's raw text has."""
    return await session.lookup(
        "SELECT kind, count(*) FROM identifiers WHERE revision_id = :revision GROUP BY 1 ORDER BY 1",
        revision=revision_pk,
    )


async def _stored(session: Session, revision_pks: Sequence[int]) -> Sequence[Record]:
    """The revisions that exist, as `load_thread` returns one."""
    threads = await session.records(
        """
        SELECT r.id AS revision_pk, r.thread_id AS thread_pk, source, t.thread_id, url, title, language, tags,
            posted_at, posted_at_assumed, messages
        FROM thread_revisions AS r JOIN threads AS t ON t.id = r.thread_id WHERE r.id = ANY (:pks) ORDER BY r.id
        """,
        pks=list(revision_pks),
    )
    for row in threads:
        row.thread = read(
            Thread,
            row,
            messages=tuple(map(message_of, row.messages)),
        )
    return threads


def message_of(value: dict[str, Any]) -> Message:
    """The message that a row has as JSON. Raises ValueError for an unknown role."""
    moment = value["posted_at"]
    posted_at = datetime.fromisoformat(moment) if moment else None
    more = {"posted_at": posted_at, "media": tuple(value["media"])}
    return Message(**{**value, **more})


AROUND = 1_000
"""Characters read behind the shown beginning of a message, so that no identifier is cut in two."""
_OPENING = {"messages": 200, "chars": 40_000}
"""The beginning of a thread by which its language is decided: twice what `dominant_language` reads."""


_THREAD = """
    SELECT r.thread_id AS thread_pk, t.source, t.thread_id, t.url, left(r.title, :title) AS title, r.language, r.tags,
        r.posted_at, jsonb_array_length(r.messages) AS total, (
            SELECT left(string_agg(left(m ->> 'text', :chars), E'\\n' ORDER BY place), :chars)
            FROM jsonb_array_elements(r.messages) WITH ORDINALITY AS said(m, place) WHERE place <= :messages
        ) AS opening
    FROM thread_revisions AS r JOIN threads AS t ON t.id = r.thread_id WHERE r.id = :pk
"""


async def load_excerpt(session: Session, revision_pk: int, first: int) -> Record:
    """Load a page of a revision's messages, from number `first` (from 0) on; texts are cut in the database.

    It has thread_pk, thread (without messages), total (messages of the thread), opening (the beginning of the whole
    thread's text) and messages, each with place (its number in the thread, from 0), message (with the beginning of
    its text), after (the characters that follow, at most `AROUND`) and length (of the whole text).

    Raises MedliveError if there is no such revision.
    """
    excerpts = await session.records(
        _THREAD, pk=revision_pk, title=TITLE_CHARS_SHOWN, **_OPENING
    )
    if not excerpts:
        raise MedliveError(f"there is no thread revision {revision_pk}")
    [excerpt] = excerpts
    excerpt.thread = read(Thread, excerpt, messages=())
    excerpt.opening = f"{excerpt.title}\n{excerpt.opening or ''}"
    excerpt.messages = await session.records(
        """
        SELECT place - 1 AS place, m - 'text' AS about, char_length(m ->> 'text') AS length,
        left(m ->> 'text', :chars) AS text
        FROM thread_revisions, jsonb_array_elements(messages) WITH ORDINALITY AS said(m, place)
        WHERE id = :pk AND place > :first AND place <= :first + :count ORDER BY place
        """,
        pk=revision_pk,
        first=first,
        count=MESSAGES_SHOWN,
        chars=MESSAGE_CHARS_SHOWN + AROUND,
    )
    for part in excerpt.messages:
        part.after = part.text[MESSAGE_CHARS_SHOWN:]
        text = part.text[:MESSAGE_CHARS_SHOWN]
        part.message = message_of(part.about | {"text": text})
    return excerpt
