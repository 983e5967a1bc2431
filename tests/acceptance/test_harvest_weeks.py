"""Week after week against a forum that changes: nothing twice, nothing lost, drift noticed, kills survived."""

import asyncio
import os
import random
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from medlive.clock import iso_week, week_bounds
from medlive.integrity.digest import digest_bytes
from tests.support.forum import BOARD, Forum, serve_forum, thread
from tests.support.instance import Done, Instance
from tests.support.waiting import until

NewInstance = Callable[..., Instance]
THREADS = 14


@pytest.fixture
async def forum() -> AsyncIterator[Forum]:
    """A forum of some threads, one of them of three pages."""
    forum = Forum()
    forum.add(*(thread(n, posts=9 if n == 4 else 2 + n % 3) for n in range(THREADS)))
    async with serve_forum(forum):
        yield forum


@pytest.fixture
def instance(new_instance: NewInstance, forum: Forum) -> Instance:
    """An instance that harvests the forum."""
    return new_instance(
        MEDLIVE_HARVEST__ALLOW_LOOPBACK="true",
        MEDLIVE_HARVEST__BACKOFF_S="0.01",
        MEDLIVE_SOURCES__SDN__BASE_URL=forum.url,
        MEDLIVE_SOURCES__SDN__BOARDS=f'["{BOARD}"]',
        MEDLIVE_SOURCES__SDN__MIN_INTERVAL_S="0",
    )


async def _do(instance: Instance, *arguments: str, status: int | None = 0) -> Done:
    return await asyncio.to_thread(instance.here, *arguments, status=status)


async def _harvest(instance: Instance, *arguments: str, status: int | None = 0) -> Any:
    (told,) = (
        await _do(instance, "harvest", "sdn", *arguments, "--json", status=status)
    ).json
    return told


def _a_week_passes(instance: Instance) -> None:
    """Every run so far was a week earlier than it says."""
    for (week,) in instance.rows("SELECT iso_week FROM harvest_runs ORDER BY iso_week"):
        monday, _ = week_bounds(week)
        before = iso_week(monday - timedelta(days=7))
        instance.change(
            "UPDATE harvest_runs SET iso_week = %s WHERE iso_week = %s", (before, week)
        )


def _threads(instance: Instance) -> dict[str, tuple[int, int]]:
    """Thread → (revisions, messages of the latest)."""
    return {
        name: (revisions, messages)
        for name, revisions, messages in instance.rows(
            "SELECT t.thread_id, count(*), max(jsonb_array_length(r.messages))"
            " FROM threads t JOIN thread_revisions r ON r.thread_id = t.id GROUP BY 1"
        )
    }


def _archived(instance: Instance) -> Counter[str]:
    """Digest of each archived body → how often, read by warcio from the files alone."""
    found: Counter[str] = Counter()
    for path in sorted((instance.home / "archive").rglob("*.warc.gz")):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                if record.rec_type == "response":
                    found[digest_bytes(record.content_stream().read())] += 1
    return found


async def test_a_week_is_harvested_once_and_the_next_ones_ask_only_for_changes_and_notice_them(
    forum: Forum, instance: Instance
) -> None:
    first = await _harvest(instance)
    assert first["counts"]["new"] == THREADS
    assert not first["problems"]
    asked = len(forum.asked)
    again = await _harvest(instance)
    assert again["already_done"]
    plan = (await _do(instance, "harvest", "sdn", "--dry-run", "--json")).json
    assert plan[0]["lists"][0].startswith(forum.url)
    assert len(forum.asked) == asked
    assert _archived(instance).keys() == forum.sent.keys()
    assert _threads(instance)["5004"] == (1, 9)

    _a_week_passes(instance)
    told = await _harvest(instance)
    assert told["counts"].get("new", 0) + told["counts"].get("revised", 0) == 0
    asked, same = told["counts"]["conditional"], told["counts"]["not_modified"]
    assert asked == same == forum.not_modified > 0
    assert all(revisions == 1 for revisions, _ in _threads(instance).values())

    _a_week_passes(instance)
    old = forum.threads
    edited, replied, gone = old["5011"], old["5012"], old["5013"]
    messages = edited.messages
    forum.add(
        edited.model_copy(
            update={
                "messages": (
                    messages[0],
                    messages[1].model_copy(update={"text": "Edited."}),
                )
            }
        )
    )
    later = thread(12, posts=len(replied.messages) + 2)
    forum.add(later)
    del forum.threads[gone.thread_id]
    told = await _harvest(instance)
    assert told["counts"]["revised"] == 2
    assert told["counts"]["gone"] == 1
    threads = _threads(instance)
    assert threads["5011"][0] == 2
    assert threads["5012"] == (2, len(later.messages))
    assert instance.rows("SELECT thread_id FROM threads WHERE gone_at IS NOT NULL") == [
        ("5013",)
    ]
    _a_week_passes(instance)
    forum.add(gone)
    await _harvest(instance)
    assert (
        instance.rows("SELECT thread_id FROM threads WHERE gone_at IS NOT NULL") == []
    )
    assert _threads(instance)["5013"][0] == 1


@pytest.mark.thorough
async def test_a_field_that_collapses_quarantines_the_source_and_says_which_and_when(
    forum: Forum, instance: Instance
) -> None:
    for week in range(4):
        forum.add(*(thread(100 * (week + 1) + n) for n in range(12)))
        if week == 3:
            forum.change = lambda path, page: re.sub(r"Attending Physician", "", page)
        told = await _harvest(instance, status=1 if week == 3 else 0)
        if week < 3:
            _a_week_passes(instance)
    assert "verified reply" in told["quarantined"]
    assert told["iso_week"] in told["quarantined"]
    pages = instance.one("SELECT count(*) FROM fetches WHERE archive_id IS NOT NULL")
    assert pages == sum(_archived(instance).values())
    for command in (("source", "check"), ("source", "check", "sdn"), ("status",)):
        done = await _do(instance, *command, status=1)
        assert re.search(r"verified reply: 0 over \d+ threads", done.err), command
        assert told["iso_week"] in done.err
    asked = len(forum.asked)
    assert (await _harvest(instance, status=1))["quarantined"]
    assert len(forum.asked) == asked, "a quarantined source is not asked"
    await _do(instance, "source", "lift", "sdn", "--accept")
    await _do(instance, "source", "check", status=1)  # the failed run still stands
    told = await _harvest(instance)
    assert not told["quarantined"]
    said = (await _do(instance, "source", "check")).err
    never = ["dxy", "icliniq", "medlive"]
    assert [line for line in said.splitlines() if "never" in line] == [
        f"never harvested: {name}" for name in never
    ]
    done = await _do(instance, "source", "lift", "dxy", status=2)
    assert "never harvested" in done.err


async def test_pages_of_another_layout_quarantine_the_source_with_their_bytes_kept(
    forum: Forum, instance: Instance
) -> None:
    forum.change = lambda path, page: (
        page.replace("message--post", "m-p") if "/threads/" in path else page
    )
    told = await _harvest(instance, status=1)
    assert told["counts"]["layout"] == 5
    assert "stopped fitting" in told["quarantined"]
    assert _archived(instance).keys() == forum.sent.keys()
    assert _threads(instance) == {}
    forum.change = lambda path, page: page
    await _do(instance, "source", "lift", "sdn")
    told = await _harvest(instance)
    assert told["counts"]["new"] == THREADS - 5, (
        "the five that were read in vain wait for `source reparse`"
    )


async def test_a_week_that_is_broken_off_is_open_and_the_next_start_goes_on(
    forum: Forum, instance: Instance
) -> None:
    (instance.home / "archive").write_text("no folder")
    done = await _do(instance, "harvest", "sdn", status=3)
    assert "cannot write pages" in done.err
    assert instance.one("SELECT outcome FROM harvest_runs") == "failed"
    (instance.home / "archive").unlink()
    forum.asked.clear()

    told = await _harvest(instance, "--limit", "3")
    assert told["limited"]
    assert len(_threads(instance)) == 3
    assert instance.one("SELECT outcome FROM harvest_runs") == "partial"

    forum.statuses[f"/forums/{BOARD}/page-2"] = 404
    told = await _harvest(instance, status=1)
    assert "404" in told["failed"]
    assert 3 < len(_threads(instance)) < THREADS
    forum.statuses.clear()
    once, forum.asked = Counter(forum.asked), []
    await _harvest(instance)
    assert len(_threads(instance)) == THREADS
    assert instance.one("SELECT outcome FROM harvest_runs") == "done"
    assert f"/forums/{BOARD}/" not in forum.asked, "the list goes on where it stood"
    once.update(forum.asked)
    assert max(times for path, times in once.items() if "/threads/" in path) == 1


async def test_a_list_whose_page_is_no_more_is_read_from_its_beginning(
    forum: Forum, instance: Instance
) -> None:
    forum.statuses[f"/forums/{BOARD}/page-2"] = 404
    await _harvest(instance, status=1)
    await _harvest(instance, status=1)
    assert instance.one("SELECT outcome FROM harvest_runs") == "failed", (
        "the list still names the page"
    )
    for one in list(forum.threads)[:-3]:
        del forum.threads[one]  # one page is left
    told = await _harvest(instance)
    assert len([p for p in told["problems"] if "/page-2?" in p["url"]]) == 1
    assert instance.one("SELECT outcome FROM harvest_runs") == "done"


async def _asked(forum: Forum, times: int, process: "subprocess.Popen[str]") -> None:
    """Wait until the forum was asked so often, or the harvest has ended."""
    await until(lambda: len(forum.asked) >= times or process.poll() is not None)


def _kill(process: "subprocess.Popen[str]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.thorough
async def test_killed_again_and_again_it_ends_as_if_it_never_had_been(
    forum: Forum, instance: Instance, new_instance: NewInstance
) -> None:
    forum.delay_s = 0.05
    pages = 2 + THREADS + 2  # two list pages, and two more of the long thread
    chance = random.Random(7)
    kills = 0
    for _ in range(4):
        process = instance.start("harvest", "sdn", "--json")
        await _asked(forum, len(forum.asked) + chance.randint(1, 6), process)
        await asyncio.sleep(chance.random() * 0.1)
        if process.poll() is None:
            kills += 1
        _kill(process)
    assert kills >= 3
    told = await _harvest(instance)
    assert not told["problems"]
    assert told["counts"]["new"] > 0, "the kills came before its end"
    assert (
        instance.one("SELECT (counts ->> 'new')::int FROM harvest_runs") == THREADS
    ), "kills cost no count"
    calm = replace(new_instance(), settings=instance.settings)
    shutil.copy(instance.home / "handle.key", calm.home)
    asked = Counter(forum.asked)
    await _harvest(calm)
    assert _threads(instance) == _threads(calm)
    same = "SELECT t.thread_id, r.digest FROM threads t JOIN thread_revisions r ON r.thread_id = t.id ORDER BY 1"
    assert instance.rows(same) == calm.rows(same)
    # Each kill loses at most what its two tasks, the lists' and the threads', had in flight.
    assert sum(asked.values()) - pages <= 2 * kills, asked
    assert instance.one("SELECT count(*) FROM archives WHERE sealed_at IS NULL") == 0
    # The files hold just what the rows name: what a kill left behind them was cut off.
    named = Counter(
        d
        for (d,) in instance.rows(
            "SELECT body_digest FROM fetches WHERE archive_id IS NOT NULL"
        )
    )
    assert _archived(instance) == named
    sizes = {
        Path(p).name: size
        for p, size in instance.rows("SELECT path, bytes FROM archives")
    }
    on_disk = {
        p.name: p.stat().st_size for p in (instance.home / "archive").rglob("*.warc.gz")
    }
    # A kill between a file and its row leaves the file, without a page (see above), to retention.
    assert sizes.items() <= on_disk.items()


@pytest.mark.thorough
async def test_a_harvest_whose_lock_was_lost_writes_nothing_beside_the_next_one(
    forum: Forum, instance: Instance
) -> None:
    # The first one waits for its first page while its lock goes and another begins and ends.
    gate = forum.gate = asyncio.Event()
    process = instance.start("harvest", "sdn", "--json")
    await _asked(forum, 1, process)
    forum.gate = None
    instance.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
    )
    told = await _harvest(instance)
    assert not told["failed"]
    gate.set()
    done = await asyncio.to_thread(instance.finish, process)
    assert done.status == 1
    assert "another process has taken this harvest over" in done.err
    assert instance.one("SELECT outcome FROM harvest_runs") == "done"
    assert instance.one("SELECT (counts ->> 'new')::int FROM harvest_runs") == THREADS
    named = Counter(
        d
        for (d,) in instance.rows(
            "SELECT body_digest FROM fetches WHERE archive_id IS NOT NULL"
        )
    )
    assert not named - _archived(instance)


async def test_a_source_that_breaks_down_hides_nothing_of_the_others(
    forum: Forum, instance: Instance
) -> None:
    (instance.home / "archive").mkdir()
    (instance.home / "archive" / "dxy").write_text("no folder")
    settings = {
        **instance.settings,
        "MEDLIVE_SOURCES__DXY__BASE_URL": forum.url.replace("127.0.0.1", "localhost"),
        "MEDLIVE_SOURCES__DXY__BOARDS": '["neike"]',
        "MEDLIVE_SOURCES__DXY__MIN_INTERVAL_S": "0",
    }
    forum.other["/questions/neike"] = "<html><body>no list</body></html>"
    done = await _do(
        replace(instance, settings=settings),
        "harvest",
        "sdn",
        "dxy",
        "--json",
        status=3,
    )
    told = {one["source"]: one for one in done.json}
    assert told["sdn"]["counts"]["new"] == THREADS
    assert "cannot write pages" in told["dxy"]["failed"]
    assert "cannot write pages" in done.err


async def test_a_week_that_has_not_come_is_no_limit(instance: Instance) -> None:
    done = await _do(instance, "harvest", "sdn", "--since", "2999-01-01", status=2)
    assert "lies ahead" in done.err


@pytest.mark.thorough
async def test_two_harvests_of_one_source_do_not_run_at_once(
    forum: Forum, instance: Instance
) -> None:
    forum.gate = asyncio.Event()
    process = instance.start("harvest", "sdn", "--json")
    await _asked(forum, 1, process)
    told = await _harvest(instance, status=1)
    assert "another process" in told["failed"]
    forum.gate.set()
    done = await asyncio.to_thread(instance.finish, process)
    assert done.status == 0
    assert max(Counter(forum.asked).values()) == 1
