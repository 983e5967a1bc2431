"""What the sample communities show is what the sites' adapters read: nothing lost, added or misattributed."""

from datetime import timedelta

import pytest

from medlive.demo.communities import serve_communities
from medlive.demo.samples import SITES, SampleThread, load_sample_threads
from medlive.sources.fetching.fetch import Fetcher
from medlive.sources.fetching.policy import FetchSettings
from medlive.sources.harvest import harvest
from medlive.sources.ledger import (
    HarvestedThread,
    HarvestProblem,
    HarvestSkipped,
    KnownThread,
)
from medlive.sources.registry import build_site
from medlive.threads.model import Thread
from tests.support.ledger import MemoryLedger

pytestmark = pytest.mark.thorough  # the demo itself is a test of `make test`
THREADS = load_sample_threads()


def _same(read: Thread, sample: SampleThread) -> None:
    assert read.source == sample.site
    assert read.title == sample.title
    assert read.tags == sample.tags
    if sample.posted_at is None:
        assert read.posted_at is None
    else:
        # Medlive and DXY show minutes or seconds, iCliniq a day, kept as its midnight.
        assert read.posted_at is not None
        assert abs(read.posted_at - sample.posted_at) < timedelta(minutes=1)
    assert [m.text for m in read.messages] == [m.text for m in sample.messages]
    assert [m.author for m in read.messages] == [
        f"hash of {m.author}" for m in sample.messages
    ]
    assert [(m.role, m.verified) for m in read.messages] == [
        (m.role, m.verified) for m in sample.messages
    ]
    assert [m.media for m in read.messages] == [m.media for m in sample.messages]
    for seen, shown in zip(read.messages, sample.messages, strict=True):
        assert (seen.posted_at is None) == (shown.posted_at is None)


@pytest.mark.parametrize("site", SITES)
async def test_the_adapter_reads_what_the_community_shows(site: str) -> None:
    samples = {t.thread_id: t for t in THREADS if t.site == site}
    harvested: dict[str, HarvestedThread] = {}
    async with (
        serve_communities(THREADS) as communities,
        Fetcher(FetchSettings(allow_loopback=True)) as fetcher,
    ):
        base = communities[site].base_url
        boards = () if site == "icliniq" else communities[site].boards
        adapter = build_site(
            site, {"base_url": base, "boards": boards, "min_interval_s": 0}
        )

        ledger = MemoryLedger()
        end = await harvest(
            adapter,
            fetcher.fetch,
            ledger,
            anonymise=lambda handle: f"hash of {handle}",
        )
        assert end == "complete"
        for event in ledger.events:
            assert not isinstance(event, HarvestProblem), event
            if isinstance(event, HarvestedThread):
                harvested[event.thread.thread_id] = event
        assert harvested.keys() == samples.keys()
        for thread_id, event in harvested.items():
            _same(event.thread, samples[thread_id])

        known = {
            event.entry.thread_id: KnownThread(
                event.headers.get("etag"),
                event.headers.get("last-modified"),
                event.page_count,
            )
            for event in harvested.values()
        }
        again = MemoryLedger(known=known)
        await harvest(adapter, fetcher.fetch, again, anonymise=str)
        unchanged = {
            e.thread_id
            for e in again.events
            if isinstance(e, HarvestSkipped) and e.reason == "not_modified"
        }
        short = {thread_id for thread_id, e in harvested.items() if e.page_count == 1}
        assert unchanged == short
