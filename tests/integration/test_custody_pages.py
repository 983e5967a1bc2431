"""Raw pages after the harvest: read again, exported, and removed when their time is over."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from medlive.config import ArchiveSection, Settings
from medlive.db.session import Database, advisory_lock
from medlive.guard.bounds import MESSAGE_CHARS
from medlive.instance.paths import archive_path
from medlive.service.harvest import raw_files as custody
from medlive.service.harvest.harvest import harvest_source
from medlive.service.harvest.raw_files import apply_retention
from medlive.service.harvest.reparse import ReparseResult, reparse_source
from medlive.sources.fetching.fetch import Fetcher
from medlive.sources.registry import build_site
from medlive.sources.sites.sdn import Sdn
from medlive.sources.source import LayoutError, Page
from medlive.threads.model import Thread
from tests.support.custody import harvest, samples, settings_of
from tests.support.forum import BOARD, Forum, serve_forum, thread


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    """This test's instance."""
    return settings_of(database_url, tmp_path / "home")


async def rows(database: Database, sql: str, **values: Any) -> list[Any]:
    async with database.begin() as session:
        return [tuple(row) for row in await session.execute(text(sql), values)]


async def change(database: Database, sql: str, **values: Any) -> None:
    async with database.begin() as session:
        await session.execute(text(sql), values)


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


# --- read again ------------------------------------------------------------------------------------------

GOOD = Sdn.parse_thread


def _broken(site: Sdn, read: Sequence[Page], anonymise: Any) -> Thread:
    """A parser that knows no thread 5001, fails on 5002 and sees no date in 5003."""
    from dataclasses import replace

    found = GOOD(site, read, anonymise)
    if found.thread_id == "5001":
        raise LayoutError(read[0].url, "posts")
    if found.thread_id == "5002":
        raise ValueError("a fault")
    return replace(found, posted_at=None) if found.thread_id == "5003" else found


async def harvested(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Forum:
    """Four threads harvested while the parser was broken; the one that it reads has three pages."""
    forum = Forum()
    forum.add(
        *(thread(number, posts=9 if number == 4 else 3) for number in (1, 2, 3, 4))
    )
    async with serve_forum(forum):
        overrides = {"base_url": forum.url, "boards": (BOARD,), "min_interval_s": 0.0}
        with monkeypatch.context() as patched:
            patched.setattr(Sdn, "parse_thread", _broken)
            done = await harvest_source(
                database, settings, build_site("sdn", overrides)
            )
    assert (done.counts["new"], done.counts["layout"], done.counts["fault"]) == (
        2,
        1,
        1,
    )
    return forum


async def reparse(database: Database, settings: Settings) -> ReparseResult:
    return await reparse_source(database, settings, "sdn")


STATE = (
    "SELECT f.thread_id, f.state, f.page_count, f.etag IS NOT NULL, f.attempts,"
    " (SELECT count(*) FROM thread_revisions r JOIN threads t ON t.id = r.thread_id"
    "  WHERE t.thread_id = f.thread_id) FROM frontier f ORDER BY 1"
)


async def test_a_mended_parser_reads_what_was_kept_and_asks_nobody(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    forum = await harvested(database, settings, monkeypatch)
    asked = list(forum.asked)
    monkeypatch.setattr(
        Fetcher, "__init__", None
    )  # nothing here may even be ready to ask

    seen = "SELECT thread_id, last_seen_at FROM threads WHERE thread_id IN ('5003', '5004') ORDER BY 1"
    seen_before = await rows(database, seen)
    done = await reparse(database, settings)
    expected = {"unchanged": 1, "new": 2, "revised": 1}
    assert {end: done.counts[end] for end in expected} == expected
    assert done.counts["pages"] == 6
    assert await rows(database, seen) == seen_before, "nobody was asked"
    assert await rows(database, STATE) == [
        ("5001", "read", 1, True, 0, 1),
        ("5002", "read", 1, True, 0, 1),
        ("5003", "read", 1, True, 0, 2),
        ("5004", "read", 3, True, 0, 1),
    ]
    # Each revision names the first page it was read from.
    assert await rows(
        database,
        "SELECT t.thread_id, f.page_number, f.thread_id = t.thread_id FROM thread_revisions r"
        " JOIN threads t ON t.id = r.thread_id JOIN fetches f ON f.id = r.fetch_id ORDER BY r.id",
    ) == [
        ("5004", 1, True),
        ("5003", 1, True),
        ("5001", 1, True),
        ("5002", 1, True),
        ("5003", 1, True),
    ]
    again = await reparse(database, settings)
    assert again.counts["unchanged"] == 4
    assert forum.asked == asked


async def test_a_parser_that_got_worse_takes_nothing_away(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harvested(database, settings, monkeypatch)
    await reparse(database, settings)
    before = await rows(database, STATE)
    monkeypatch.setattr(Sdn, "parse_thread", _broken)
    worse = await reparse(database, settings)
    assert {
        e: worse.counts[e] for e in ("layout", "fault", "unchanged", "revised")
    } == {
        "layout": 1,
        "fault": 1,
        "unchanged": 1,
        "revised": 1,
    }
    assert {tuple(problem.split(": ")[:2]) for problem in worse.problems} == {
        ("sdn/5001", "layout"),
        ("sdn/5002", "fault"),
    }
    # 5003 is read without its date again: a third revision, beside the two that stay.
    revisions = {row[0]: row[-1] for row in before}
    assert {row[0]: row[-1] for row in await rows(database, STATE)} == {
        **revisions,
        "5003": 3,
    }
    assert [row[:-1] for row in await rows(database, STATE)] == [
        row[:-1] for row in before
    ]
    # And once the parser is mended, the good reading is the latest again.
    monkeypatch.undo()
    assert (await reparse(database, settings)).counts["revised"] == 1
    latest = (
        "SELECT posted_at IS NOT NULL FROM thread_revisions ORDER BY id DESC LIMIT 1"
    )
    assert await rows(database, latest) == [(True,)]


async def test_threads_without_whole_pages_are_told_and_the_others_read(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harvested(database, settings, monkeypatch)
    await change(
        database,
        "UPDATE fetches SET archive_id = NULL, archive_offset = NULL, archive_length = NULL"
        " WHERE thread_id = '5004' AND page_number = 2",
    )
    (path,) = files(archive_path(settings))
    [(offset, length)] = await rows(
        database,
        "SELECT archive_offset, archive_length FROM fetches WHERE thread_id = '5001' AND error IS NULL",
    )
    whole = path.read_bytes()
    middle = offset + length // 2
    path.write_bytes(
        whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    )
    done = await reparse(database, settings)
    assert {
        e: done.counts[e]
        for e in ("bytes_gone", "damaged", "new", "revised", "unchanged")
    } == {
        "bytes_gone": 1,
        "damaged": 1,
        "new": 1,
        "revised": 1,
        "unchanged": 0,
    }
    assert done.damaged == {path}
    path.write_bytes(whole)
    assert (await reparse(database, settings)).counts["new"] == 1
    # What waits to be read, and what was left out on purpose, stays as it is.
    await change(
        database,
        "UPDATE frontier SET state = 'skipped', reason = 'older_than_since' WHERE thread_id = '5003'",
    )
    await change(
        database,
        "UPDATE frontier SET state = 'waiting', after_fetch = 0 WHERE thread_id = '5002'",
    )
    await change(
        database, "UPDATE frontier SET state = 'gone' WHERE thread_id = '5001'"
    )
    left = await reparse(database, settings)
    assert (
        left.counts["waiting"],
        left.counts["unchanged"],
        left.counts["bytes_gone"],
    ) == (1, 2, 1)
    assert [state for _, state, *_ in await rows(database, STATE)] == [
        "gone",
        "waiting",
        "skipped",
        "read",
    ]
    async with advisory_lock(database, "harvest sdn"):
        assert (await reparse(database, settings)).busy


async def test_older_pages_that_another_address_led_to_are_not_the_thread_again(
    database: Database, settings: Settings
) -> None:
    forum = Forum()
    forum.add(*(thread(number) for number in (1, 2, 3)))
    merged = 'data-content-key="thread-5002"', "/cough-2.5002/"

    def merge(path: str, page: str) -> str:
        # The addresses of 5001 and 5003 lead to 5002.
        for number in (1, 3):
            own = f'data-content-key="thread-500{number}"'
            if own in page:
                page = page.replace(own, merged[0])
                page = page.replace(f"/cough-{number}.500{number}/", merged[1])
        return page

    async def week(iso_week: str) -> None:
        overrides = {"base_url": forum.url, "boards": (BOARD,), "min_interval_s": 0.0}
        site = build_site("sdn", overrides)
        await harvest_source(database, settings, site, week=iso_week)

    latest = "SELECT id, jsonb_array_length(messages) FROM thread_revisions ORDER BY id DESC LIMIT 1"
    async with serve_forum(forum):
        forum.change = merge
        await week("2026.W47")
        forum.threads = {"5002": thread(2, posts=4)}
        forum.statuses = {"/threads/cough-1.5001/": 503, "/threads/cough-3.5003/": 503}
        await week("2026.W48")
    before = await rows(database, latest)
    assert before[0][1] == 4
    done = await reparse(database, settings)
    assert done.counts["unchanged"] == 3
    assert await rows(database, latest) == before


async def test_a_message_that_a_harvest_refuses_is_not_stored_later(
    database: Database, settings: Settings
) -> None:
    long = thread(1)
    text = "cough " * (MESSAGE_CHARS // 6 + 1)
    opening = long.messages[0].model_copy(update={"text": text})
    forum = Forum()
    forum.add(long.model_copy(update={"messages": (opening, *long.messages[1:])}))
    async with serve_forum(forum):
        overrides = {"base_url": forum.url, "boards": (BOARD,), "min_interval_s": 0.0}
        done = await harvest_source(database, settings, build_site("sdn", overrides))
    assert done.counts["fault"] == 1
    again = await reparse(database, settings)
    assert again.counts == {"fault": 1, "pages": 1}


# --- retention -------------------------------------------------------------------------------------------


async def test_old_files_go_whole_and_threads_stay(
    database: Database, settings: Settings
) -> None:
    folder = archive_path(settings)
    week = settings.model_copy(update={"archive": ArchiveSection(keep_days=7)})
    await harvest(database, settings, samples("1402038", "1402075"))
    await harvest(database, settings, samples("1402038", "1402075"))
    old, young = files(folder)
    size = old.stat().st_size
    threads = await rows(database, "SELECT count(*) FROM thread_revisions")
    await change(
        database,
        "UPDATE archives SET created_at = now() - interval '8 days' WHERE id = 1",
    )
    assert not any((await apply_retention(database, settings)).values())
    async with advisory_lock(database, "harvest sdn"):
        assert (await apply_retention(database, week))["busy"] == 1
    assert files(folder) == [old, young]
    [(kept,)] = await rows(
        database, "SELECT count(*) FROM fetches WHERE archive_id = 1"
    )
    done = await apply_retention(database, week)
    assert (done["files"], done["bytes"], done["pages"]) == (1, size, kept)
    assert files(folder) == [young]
    assert await rows(
        database, "SELECT id, removed_at IS NOT NULL FROM archives ORDER BY 1"
    ) == [
        (1, True),
        (2, False),
    ]
    assert await rows(
        database, "SELECT count(*) FROM fetches WHERE archive_id = 1"
    ) == [(0,)]
    assert await rows(database, "SELECT count(*) FROM thread_revisions") == threads
    assert not any((await apply_retention(database, week)).values())


async def test_what_is_left_lying_is_cleared_and_what_is_not_ours_is_not(
    database: Database, settings: Settings
) -> None:
    folder = archive_path(settings)
    await harvest(database, settings, samples("1402038", "1402075"))
    (path,) = files(folder)
    # Its removal was noted, and then came the kill.
    await change(
        database,
        "UPDATE fetches SET archive_id = NULL, archive_offset = NULL, archive_length = NULL",
    )
    await change(database, "UPDATE archives SET removed_at = now()")
    stray, notes = (
        path.with_name("sdn-2025.W01-9.1.warc.gz"),
        path.with_name("notes.txt"),
    )
    for one in (stray, notes):
        one.write_bytes(b"x")
    done = await apply_retention(database, settings)
    assert done["strays"] == 2
    assert files(folder) == [notes]


def test_copies_are_numbered() -> None:
    assert (
        custody.next_name("sdn/sdn-2026.W47-1.2.warc.gz")
        == "sdn/sdn-2026.W47-1.2.r1.warc.gz"
    )
    assert (
        custody.next_name("sdn/sdn-2026.W47-1.2-3.r9.warc.gz")
        == "sdn/sdn-2026.W47-1.2-3.r10.warc.gz"
    )
    assert (
        custody.next_name("a.r.e/a.r.e-2026.W47-1.2.warc.gz")
        == "a.r.e/a.r.e-2026.W47-1.2.r1.warc.gz"
    )
