"""Parse one page of a community and report its fields, without storing anything."""

from collections.abc import Mapping
from typing import Any

from medlive.config import Settings
from medlive.deidentify.detect import keyed_handle
from medlive.service.database import handle_key
from medlive.service.harvest.settings import fetch_settings
from medlive.sources.fetching.fetch import Fetcher
from medlive.sources.fetching.page import FetchPolicy
from medlive.sources.registry import build_site
from medlive.sources.source import Page, allowed_hosts


async def check_page(
    settings: Settings, source: str, overrides: Mapping[str, Any], url: str, body: bytes | None
) -> dict[str, Any]:
    """`thread` as in the import format and `fields` (name → value or how many messages have it).

    `body` is a saved page's bytes; None fetches the page. Raises LayoutError, NotAThread, and what fetching
    raises.
    """
    site = build_site(source, overrides)
    key = handle_key(settings)
    if body is None:
        policy = FetchPolicy(
            allowed_hosts=allowed_hosts(site, site.settings.base_url),
            min_interval_s=site.settings.min_interval_s,
            stop_statuses=site.settings.stop_statuses,
        )
        async with Fetcher(fetch_settings(settings)) as fetcher:
            fetched = await fetcher.fetch(url, policy)
        page = Page(fetched.url, fetched.body, fetched.content_type, fetched.status)
    else:
        page = Page(url, body, "text/html")
    thread = site.parse_thread([page], lambda handle: keyed_handle(handle, key))
    messages = thread.content()["messages"]
    total = len(messages)
    return {
        "thread": {
            "source": thread.source,
            "thread_id": thread.thread_id,
            "url": thread.url,
            "language": thread.language,
            **thread.content(),
        },
        "fields": {
            "thread_id": thread.thread_id,
            "title": thread.title,
            "language": thread.language,
            "tags": list(thread.tags),
            "posted_at": thread.posted_at.isoformat() if thread.posted_at else None,
            "messages": total,
            "with text": f"{sum(bool(m['text']) for m in messages)} of {total}",
            "with a date": f"{sum(m['posted_at'] is not None for m in messages)} of {total}",
            "with media": f"{sum(bool(m['media']) for m in messages)} of {total}",
            "patients'": sum(m["role"] == "patient" for m in messages),
            "physicians', verified": sum(m["role"] == "physician" and m["verified"] for m in messages),
            "next page": site.next_page(page),
        },
    }
