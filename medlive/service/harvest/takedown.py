"""Take a thread down (`take_down`): erase its rows and every raw page that shows it, and block its return."""

import asyncio
import html
import json
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from medlive.config import Settings
from medlive.db.harvest.fetches import fetches_in, list_archives
from medlive.db.session import Database, advisory_lock
from medlive.db.tables.intake import ArchiveRow, FetchRow
from medlive.db.threads.takedowns import (
    erase_thread,
    frozen_with,
    lift_takedown,
    traces_of,
)
from medlive.db.threads.threads import load_threads, revisions_of
from medlive.errors import CheckFailed, MedliveError, UsageError
from medlive.instance.paths import archive_path
from medlive.service.release.freeze import remove_unfrozen
from medlive.service.release.withdraw import (
    check_person_name,
    check_reason,
    record_takedown,
    write_errata,
)
from medlive.sources.archive import ArchiveDamaged, pages
from medlive.sources.harvest import parse_with
from medlive.sources.registry import build_site, known_sites
from medlive.sources.source import Site
from medlive.threads.model import Thread
from medlive.threads.prepare import normalised, prepared

from .harvest import find_source
from .raw_files import clear_unnamed, seal_archives, sweep

_MIN_TITLE_BYTES = 30
"""A shorter title may belong to other threads too, and is not searched for in pages."""


@dataclass
class TakedownResult:
    """The result of a takedown."""

    # Table or kind of page → how many were erased
    counts: Counter[str] = field(default_factory=Counter)
    files: int = 0  # Files of raw pages that were rewritten or removed
    frozen: list[tuple[str, str]] = field(default_factory=list)
    """(snapshot version, case id) of what frozen snapshots still contain."""
    # Files that may still contain bytes of the thread
    damaged: list[ArchiveDamaged] = field(default_factory=list)


async def take_down(
    database: Database,
    settings: Settings,
    source: str,
    thread_id: str,
    reason: str,
    *,
    by: str | None = None,
    dry_run: bool = False,
) -> TakedownResult:
    """Erase a thread permanently, or block one that was never harvested.

    A case in frozen snapshots is withdrawn, and their errata are rewritten without the reason. Repeating it
    finishes what a kill interrupted. `dry_run` counts without changing anything. Raises UsageError for an unknown
    source and an invalid reason, name or id, CheckFailed while the source is harvested or the thread curated.
    """
    reason, by = check_reason(reason), check_person_name(by)
    if not 1 <= len(thread_id) <= 500:
        raise UsageError("a thread id must have 1 to 500 characters")
    done = TakedownResult()
    folder = archive_path(settings)
    async with advisory_lock(database, f"harvest {source}") as acquired:
        if not acquired:
            raise CheckFailed(
                f"{source} is being harvested",
                hint="stop the harvest and try again; the next harvest resumes where it stopped",
            )
        async with database.begin() as session:
            if await find_source(session, source) is None:
                raise UsageError(f"unknown source {source}")
            pattern = _pattern(*await traces_of(session, source, thread_id))
            revisions = await revisions_of(session, source, thread_id)
            texts = _texts((await load_threads(session, revisions)).values())
        if not dry_run:
            # What was never committed may be a page of the thread.
            try:
                await seal_archives(database, folder, source)
            except ArchiveDamaged as error:
                done.damaged.append(error)
        own = settings.sources.get(source, {})
        site = build_site(source, own) if source in known_sites() else None
        showing, damaged = await _find_showing_fetches(
            database, folder, source, thread_id, site, pattern
        )
        done.damaged += damaged
        async with database.begin() as session:
            done.counts += await erase_thread(
                session,
                source,
                thread_id,
                reason,
                texts=texts,
                showing=showing,
                by=by,
            )
            done.frozen = await frozen_with(session, source, thread_id)
            await record_takedown(session, [case_id for _, case_id in done.frozen])
            if dry_run:
                await session.rollback()
        done.counts = +done.counts
        if dry_run:
            return done
        if done.counts["snapshot_members"]:
            # Selected for a freeze that was cut off, and perhaps built already
            with suppress(CheckFailed):  # A folder of another freeze
                await remove_unfrozen(database, settings)
        # Verdicts that runs of earlier versions shared: they quote answers to cases.
        await asyncio.to_thread(
            shutil.rmtree, settings.home / "cache" / "grades", ignore_errors=True
        )
        done.files, damaged = await sweep(database, folder, source)
        done.damaged += damaged
        await clear_unnamed(database, folder, source)
    if done.frozen:
        await write_errata(database, settings)
    return done


async def allow_return(
    database: Database,
    source: str,
    thread_id: str,
    reason: str,
    *,
    by: str | None = None,
) -> None:
    """Lift a takedown: a later harvest or import may bring the thread back, as if it were new.

    What was erased stays so. A case that frozen snapshots hold stays withdrawn until `reinstate`. Raises
    UsageError for an invalid reason, and CheckFailed for a thread that is not taken down.
    """
    reason, by = check_reason(reason), check_person_name(by)
    await database.ask(lift_takedown, source, thread_id, reason, by=by)


async def _find_showing_fetches(
    database: Database,
    folder: Path,
    source: str,
    thread_id: str,
    site: Site | None,
    pattern: re.Pattern[bytes] | None,
) -> tuple[list[int], list[ArchiveDamaged]]:
    """Find fetches of other pages that show the thread (lists, and threads that link to it); and damaged files."""
    word = re.escape(thread_id.encode())
    id_as_word = re.compile(rb"(?<![0-9A-Za-z])" + word + rb"(?![0-9A-Za-z])")

    def search(archive: ArchiveRow, kept: Collection[FetchRow]) -> list[int]:
        """The fetches of a file whose pages show the thread."""
        fetch_ids = []
        fetches = {fetch.place: fetch for fetch in kept if fetch.thread_id != thread_id}
        for place, page in pages(folder / archive.path, archive.bytes):
            if (fetch := fetches.get(place)) is None:
                continue
            # Also as text: a page may be in an encoding that none of the pattern's words are in.
            bodies = {page.body, page.text.encode("utf-8", "replace")}
            shows = bool(pattern and any(map(pattern.search, bodies)))
            if site and fetch.kind == "listing":
                try:
                    entries = parse_with(page.url, site.parse_listing, page).entries
                    shows |= thread_id in [entry.thread_id for entry in entries]
                except MedliveError:
                    # Where no layout fits: whether its id occurs as a word
                    shows |= any(map(id_as_word.search, bodies))
            if shows:
                fetch_ids.append(fetch.id)
        return fetch_ids

    fetch_ids: list[int] = []
    damaged: list[ArchiveDamaged] = []
    for archive in await database.ask(list_archives, source):
        kept = await database.ask(fetches_in, archive.id)
        try:
            fetch_ids += await asyncio.to_thread(search, archive, kept)
        except ArchiveDamaged as error:
            damaged.append(error)
    return fetch_ids, damaged


def _pattern(
    urls: set[str],
    titles: set[str],
) -> re.Pattern[bytes] | None:
    """Match the thread's address (below the host) or its title in a page's bytes."""
    words: set[bytes] = set()
    for url in urls:
        try:
            parts = urlsplit(url)
        except ValueError:
            continue
        query = f"?{parts.query}" if parts.query else ""
        address = (parts.path.rstrip("/") + query).lstrip("/")
        if len(address) >= 8:
            for word in _encodings({address, unquote(address)}):
                words.add(re.escape(word) + rb"(?![0-9A-Za-z_-])")
    for title in titles:
        title = title.strip()
        if len(title.encode("utf-8", "replace")) >= _MIN_TITLE_BYTES:
            words.update(map(re.escape, _encodings([title])))
    return re.compile(b"|".join(sorted(words, reverse=True))) if words else None


def _encodings(texts: Iterable[str]) -> set[bytes]:
    """Encode texts as pages may contain them: in markup, in scripts, in the encodings of Chinese pages."""
    spelt: set[str] = set()
    for text in texts:
        for spelling in (text, html.escape(text, quote=False), html.escape(text)):
            spelt.add(spelling)
            for decimal in ("&#039;", "&#39;"):
                spelt.add(spelling.replace("&#x27;", decimal))
        for in_json in (
            json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
        ):
            spelt |= {in_json, in_json.replace("/", "\\/")}  # As PHP writes it
    encoded = set()
    for text in spelt:
        encoded.add(text.encode("utf-8", "surrogatepass"))
        encoded.add(text.encode("gb18030", "replace"))
    return encoded


def _texts(threads: Iterable[Thread]) -> set[str]:
    """A thread's title and messages, raw, normalised and de-identified."""
    texts: set[str] = set()
    for raw in threads:
        for thread in (raw, normalised(raw), prepared(raw)[0]):
            texts |= {thread.title, *(message.text for message in thread.messages)}
    return texts
