"""The configured sources: their adapters, their health, a check of one page.

`medlive status` imports this module, so it imports little.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from medlive.clock import now
from medlive.config import Settings
from medlive.db.harvest.harvests import latest_measures, list_sources
from medlive.db.runs import load_history
from medlive.db.session import Database
from medlive.db.tables.intake import RunOutcome
from medlive.errors import ConfigError, UsageError
from medlive.instance.loading import validate_section
from medlive.sources.fetching.policy import FetchSettings
from medlive.sources.registry import build_site, known_sites
from medlive.sources.source import Page, Site

STALE_AFTER = timedelta(days=8)
"""A week, and a day for a harvest that takes long or is retried."""


def fetch_settings(settings: Settings) -> FetchSettings:
    """The fetcher's settings. Raises ConfigError."""
    return validate_section(FetchSettings, "harvest", settings.harvest)


def select_sources(settings: Settings, names: Sequence[str]) -> dict[str, Site]:
    """Source → its adapter as configured, for those named or for all that are enabled.

    Raises UsageError for an unknown name, ConfigError for configured sources and settings that do not exist.
    """
    sites = known_sites()
    known = f"known sources: {', '.join(sites)}"
    for name in names:
        if name not in sites:
            raise UsageError(f"unknown source {name!r}", hint=known)
    for name in settings.sources:
        if name not in sites:
            raise ConfigError(f"[sources.{name}]: unknown source", hint=known)
    built = {name: build_site(name, settings.sources.get(name)) for name in sites}
    if names:
        return {name: built[name] for name in names}
    return {name: site for name, site in built.items() if site.settings.enabled}


async def source_health(
    database: Database,
    source: str | None,
) -> list[dict[str, Any]]:
    """Every harvested source, or the one named, as `source check` prints it. Raises UsageError for one never harvested.

    "last_done_at" is when a harvest last succeeded, None if never; "week" the ISO week of "figures", None without
    any; "faults" what a maintainer must look at, one sentence each.
    """
    sources = []
    async with database.begin() as session:
        history = (await load_history(session)).harvests
        for info in await list_sources(session):
            if info.name not in history or source not in (None, info.name):
                continue
            times = history[info.name]
            week, figures = await latest_measures(session, info.name) or (None, [])
            problem = times.latest.counts.get("problem")
            done, faults = times.done_at, []
            if info.quarantined_at:
                since = f"{info.quarantined_at:%Y-%m-%d %H:%M} UTC"
                faults.append(f"quarantined since {since}: {info.quarantine_reason}")
            elif info.last_outcome == RunOutcome.FAILED:
                faults.append(f"its harvest of {info.last_run} failed: {problem}")
            if now() - (done or times.first_at) > STALE_AFTER:
                when = "never" if done is None else f"{done:%Y-%m-%d}"
                faults.append(f"stale: last harvested to its end {when}")
            health = {
                "info": info,
                "last_done_at": done,
                "week": week,
                "figures": figures,
                "faults": faults,
            }
            sources.append(health)
    if source is not None and not sources:
        raise UsageError(
            f"{source} was never harvested",
            hint=f"run `medlive harvest {source}`, or check one page with --url",
        )
    return sources


async def check_page(
    settings: Settings, source: str, url: str, body: bytes | None
) -> dict[str, Any]:
    """Parse a thread's first or only page; return "thread" as in the import format, and "fields" (name → value).

    `body` is a saved page's bytes; None fetches the page. Nothing is stored.
    Raises UsageError, LayoutError, NotAThread, and what fetching raises.
    """
    from medlive.deidentify.detect import keyed_handle
    from medlive.service.database import handle_key
    from medlive.sources.fetching.fetch import Fetcher

    site = select_sources(settings, [source])[source]
    key = handle_key(settings)
    if body is None:
        async with Fetcher(fetch_settings(settings)) as fetcher:
            page: Page = await fetcher.fetch(url, site)
    else:
        page = Page(url, body)
    thread = site.parse_thread([page], lambda handle: keyed_handle(handle, key))
    content = thread.content()
    messages = content["messages"]
    fields: dict[str, Any] = {}
    for name in ("thread_id", "language", "title", "tags", "posted_at"):
        fields[name] = content.get(name, getattr(thread, name))
    fields["messages"] = len(messages)
    fields["next page"] = site.next_page(page)
    identity = {
        name: getattr(thread, name)
        for name in ("source", "thread_id", "url", "language")
    }
    return {"thread": identity | content, "fields": fields}
