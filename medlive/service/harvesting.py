"""Harvests communities: each page and thread is stored as it comes, under one run per source and ISO week."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from medlive.clock import iso_week, now
from medlive.config import Settings
from medlive.db.harvests import (
    finish_harvest,
    known_threads,
    list_sources,
    mark_read,
    save_harvest_problem,
    save_page,
    start_harvest,
)
from medlive.db.session import Database
from medlive.db.threads import save_thread
from medlive.errors import ConfigError, MedliveError, UsageError
from medlive.service.database import handle_key
from medlive.sources.fetch import Fetcher
from medlive.sources.fetched import FetchSettings
from medlive.sources.harvest import (
    FetchedPage,
    HarvestedThread,
    HarvestProblem,
    HarvestSkipped,
    PageKind,
    harvest,
)
from medlive.sources.registry import SITES, build_site
from medlive.threads.deidentify import keyed_handle


@dataclass(slots=True)
class Harvested:
    """What a harvest of one source did."""

    source: str
    counts: Counter[str] = field(default_factory=Counter)
    """"pages", "new", "revised", "unchanged", and each skip's and problem's name."""
    problems: list[HarvestProblem] = field(default_factory=list)
    failed: str | None = None
    """Why the source was given up; None when it was read to its end."""
    quarantined: str | None = None
    """Why it was not asked at all."""


def fetch_settings(settings: Settings) -> FetchSettings:
    """The fetcher's settings. Raises ConfigError."""
    try:
        return FetchSettings.model_validate(settings.harvest)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"harvest.{'.'.join(map(str, first['loc']))}: {first['msg']}") from exc


def chosen(settings: Settings, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Source → its configured settings, for those named or for all. Raises UsageError for an unknown name."""
    for name in names:
        if name not in SITES:
            raise UsageError(f"no source is named {name!r}", hint=f"known sources: {', '.join(SITES)}")
    return {name: settings.sources.get(name, {}) for name in names or SITES}


async def harvest_source(
    database: Database,
    settings: Settings,
    source: str,
    overrides: Mapping[str, Any],
    *,
    since: datetime | None = None,
    limit: int | None = None,
    tick: Callable[[int], None] = lambda _: None,
) -> Harvested:
    """Harvest one source; what came of it. A page or thread that fails is a problem, not the end."""
    done = Harvested(source)
    site = build_site(source, overrides)
    key = handle_key(settings)
    async with database.begin() as session:
        info = next((s for s in await list_sources(session) if s.name == source), None)
        if info is not None and info.quarantine_reason is not None:
            done.quarantined = info.quarantine_reason
            return done
        run = await start_harvest(session, source, iso_week(now()))
        known = await known_threads(session, source)
    first_fetch: dict[str, int] = {}
    page_number: Counter[str | None] = Counter()
    try:
        async with Fetcher(fetch_settings(settings)) as fetcher:
            events = harvest(
                site,
                site.settings.base_url,
                fetcher,
                anonymise=lambda handle: keyed_handle(handle, key),
                since=since,
                limit=limit,
                known=known.get,
            )
            async for event in events:
                async with database.begin() as session:
                    if isinstance(event, FetchedPage):
                        page_number[event.thread_id] += 1
                        fetch = await save_page(
                            session, run, source, event, page_number=page_number[event.thread_id]
                        )
                        done.counts["pages"] += 1
                        if event.kind is PageKind.THREAD and event.thread_id is not None:
                            first_fetch.setdefault(event.thread_id, fetch)
                    elif isinstance(event, HarvestedThread):
                        fetch_id = first_fetch.get(event.thread.thread_id)
                        saved = await save_thread(session, event.thread, fetch_id=fetch_id)
                        if fetch_id is not None:
                            await mark_read(session, fetch_id, len(event.pages))
                        done.counts[saved.status] += 1
                        tick(sum(done.counts[s] for s in ("new", "revised", "unchanged")))
                    elif isinstance(event, HarvestSkipped):
                        done.counts[event.reason.value] += 1
                    else:
                        await save_harvest_problem(session, run, source, event)
                        done.counts[event.kind.value] += 1
                        done.problems.append(event)
                        if event.ends_source:
                            done.failed = event.message
    except MedliveError as exc:
        done.failed = exc.message
        async with database.begin() as session:
            await finish_harvest(session, run, done.counts, problem=exc.message)
        raise
    if not done.counts["pages"] and done.problems:
        done.failed = done.problems[0].message
    async with database.begin() as session:
        await finish_harvest(session, run, done.counts, problem=done.failed)
    return done
