"""Takes a thread down: its rows, its raw pages and every page that shows it, and keeps it from coming back."""

import asyncio
import html
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from medlive.config import Settings
from medlive.db.harvest.archives import Archive, list_archives
from medlive.db.harvest.harvests import list_sources
from medlive.db.harvest.raw_files import KeptFetch, fetches_in
from medlive.db.session import Database, advisory_lock
from medlive.db.steps import STALLED_AFTER_S
from medlive.db.threads.erasure import Traces, erase_thread, frozen_with, traces_of
from medlive.db.threads.lookup import revisions_of
from medlive.db.threads.threads import load_threads
from medlive.errors import CheckFailed, MedliveError, UsageError
from medlive.service.harvest.ledger import seal_archives
from medlive.service.harvest.raw_files import clear_removed, sweep
from medlive.service.paths import archive_path
from medlive.service.release.withdraw import record_takedown, write_errata
from medlive.sources.archive.warc import ArchiveDamaged, ArchivedPage, pages
from medlive.sources.harvest import parse_with
from medlive.sources.ledger import PageKind
from medlive.sources.registry import SITES, build_site
from medlive.sources.source import Page, Site
from medlive.threads.model import Thread
from medlive.threads.prepare import deidentified, normalised, thread_language

_TELLING_BYTES = 30
"""A title shorter than this may be that of other threads too, and is not looked for in pages."""


@dataclass(slots=True)
class TakenDown:
    """What a takedown did."""

    source: str
    thread_id: str
    counts: Counter[str] = field(default_factory=Counter)
    """Table or kind of page → how many were erased."""
    frozen: list[tuple[str, str]] = field(default_factory=list)
    """(snapshot's version, case id) of what frozen snapshots still hold."""
    files: int = 0
    """Files of raw pages that were rewritten or removed."""
    damaged: list[ArchiveDamaged] = field(default_factory=list)
    """Files that may still hold bytes of the thread."""


class _DryRun(Exception):
    """Undoes a transaction that was only to be looked at."""


async def take_down(
    database: Database, settings: Settings, source: str, thread_id: str, reason: str, *, dry_run: bool = False
) -> TakenDown:
    """Erase a thread for good; one that was never met is kept out from now on.

    `dry_run` counts and changes nothing. Doing it again finishes what a kill left. Raises UsageError for a
    source that is not known or a reason that is empty or longer than 2,000 characters, and CheckFailed while
    the source is being harvested or the thread curated: what comes in meanwhile would not be found. A case that
    frozen snapshots hold is withdrawn, and the errata beside them are written anew, without the reason.
    """
    reason = reason.strip()
    if not 1 <= len(reason) <= 2000:
        raise UsageError("a takedown needs a reason of 1 to 2,000 characters")
    if not 1 <= len(thread_id) <= 500:
        raise UsageError("a thread's id has 1 to 500 characters")
    done = TakenDown(source, thread_id)
    folder = archive_path(settings)
    async with advisory_lock(database, f"harvest {source}") as alone:
        if not alone:
            raise CheckFailed(
                f"{source} is being harvested at this moment",
                hint="stop the harvest and try again; it is taken up where it stood",
            )
        async with database.begin() as session:
            if source not in {known.name for known in await list_sources(session)}:
                raise UsageError(f"there is no source {source}")
        if not dry_run:
            await _seal(database, folder, source, done)
        async with database.begin() as session:
            traces = await traces_of(session, source, thread_id)
            revisions = await revisions_of(session, source, thread_id)
            texts = _texts((await load_threads(session, revisions)).values())
        site = build_site(source, settings.sources.get(source, {})) if source in SITES else None
        showing = await _showing(database, folder, site, source, thread_id, traces, done)
        try:
            async with database.begin() as session:
                done.counts += await erase_thread(
                    session,
                    source,
                    thread_id,
                    reason,
                    texts=texts,
                    showing=showing,
                    alive_s=STALLED_AFTER_S,
                )
                done.frozen = await frozen_with(session, source, thread_id)
                await record_takedown(session, (case_id for _, case_id in done.frozen))
                if dry_run:
                    raise _DryRun
        except _DryRun:
            return done
        done.files, damaged = await sweep(database, folder, source)
        done.damaged += damaged
        await clear_removed(database, folder, source)
    if done.frozen:
        await write_errata(database, settings)
    return done


async def _seal(database: Database, folder: Path, source: str, done: TakenDown) -> None:
    """Cut off what was never committed: it may be a page of the thread."""
    try:
        await seal_archives(database, folder, source)
    except ArchiveDamaged as error:
        done.damaged.append(error)


async def _showing(
    database: Database,
    folder: Path,
    site: Site | None,
    source: str,
    thread_id: str,
    traces: Traces,
    done: TakenDown,
) -> list[int]:
    """The fetches of pages, other than the thread's own, that show it: lists, and threads that link to it."""
    wanted = _pattern(traces)
    found: list[int] = []
    async with database.begin() as session:
        archives = await list_archives(session, source=source)
    for archive in archives:
        async with database.begin() as session:
            kept = await fetches_in(session, archive.archive_id)
        try:
            found += await asyncio.to_thread(_shown, folder, archive, kept, site, thread_id, wanted)
        except ArchiveDamaged as error:
            done.damaged.append(error)
    return found


def _shown(
    folder: Path,
    archive: Archive,
    kept: Collection[KeptFetch],
    site: Site | None,
    thread_id: str,
    wanted: re.Pattern[bytes] | None,
) -> list[int]:
    found = []
    fetches = {fetch.place: fetch for fetch in kept}
    for place, archived in pages(folder / archive.path, archive.bytes):
        fetch = fetches.get(place)
        if fetch is None or fetch.thread_id == thread_id:
            continue
        linked = wanted is not None and wanted.search(archived.body)
        is_list = fetch.kind is PageKind.LISTING
        if linked or (is_list and site is not None and _lists(site, archived, thread_id)):
            found.append(fetch.fetch_id)
    return found


def _lists(site: Site, archived: ArchivedPage, thread_id: str) -> bool:
    """Whether a list page shows the thread; by its id between other characters where no layout fits."""
    page = Page(
        archived.url, archived.body, archived.headers.get("content-type", ""), archived.status, archived.form
    )
    try:
        return any(
            entry.thread_id == thread_id for entry in parse_with(page.url, site.parse_listing, page).entries
        )
    except MedliveError:
        bounded = rb"(?<![0-9A-Za-z])" + re.escape(thread_id.encode()) + rb"(?![0-9A-Za-z])"
        return re.search(bounded, archived.body) is not None


def _pattern(traces: Traces) -> re.Pattern[bytes] | None:
    """What a page has in its bytes that shows the thread: its address below the host, or its title."""
    words: set[bytes] = set()
    for url in traces.urls:
        try:
            parts = urlsplit(url)
        except ValueError:
            continue
        below = (parts.path.rstrip("/") + (f"?{parts.query}" if parts.query else "")).lstrip("/")
        if len(below) >= 8:
            words |= {w + rb"(?![0-9A-Za-z_-])" for w in map(re.escape, _spellings({below, unquote(below)}))}
    titles = {title.strip() for title in traces.titles}
    telling = {title for title in titles if len(title.encode("utf-8", "replace")) >= _TELLING_BYTES}
    words |= {re.escape(w) for w in _spellings(telling)}
    return re.compile(b"|".join(sorted(words, reverse=True))) if words else None


def _spellings(texts: Iterable[str]) -> set[bytes]:
    """Texts as pages may hold them: in markup, in scripts, in the encodings of Chinese pages."""
    spelt = {spelling for text in texts for spelling in (text, html.escape(text, quote=False), html.escape(text))}
    spelt |= {text.replace("&#x27;", decimal) for text in spelt for decimal in ("&#039;", "&#39;")}
    spelt |= {json.dumps(text)[1:-1] for text in texts}
    return {
        text.encode(encoding, "surrogatepass" if encoding == "utf-8" else "replace")
        for text in spelt
        for encoding in ("utf-8", "gb18030")
    }


def _texts(threads: Iterable[Thread]) -> set[str]:
    """A thread's messages and title, raw and as engines saw them."""
    texts: set[str] = set()
    for raw in threads:
        clean = normalised(raw)
        for thread in (raw, clean, deidentified(clean, thread_language(clean))):
            texts |= {thread.title, *(message.text for message in thread.messages)}
    return texts
