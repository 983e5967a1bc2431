"""The commands for raw pages as a maintainer runs them: what they print and how they exit."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.support.forum import BOARD, Forum, serve_forum, thread
from tests.support.instance import Done, Instance

NewInstance = Callable[..., Instance]


async def test_pages_are_read_again_pruned_and_taken_down(
    new_instance: NewInstance,
) -> None:
    forum = Forum()
    forum.add(*(thread(number) for number in (1, 2, 3)))

    async def do(*arguments: str | Path, status: int = 0) -> Done:
        return await asyncio.to_thread(
            instance.here, *map(str, arguments), status=status
        )

    async with serve_forum(forum):
        instance = new_instance(
            MEDLIVE_HARVEST__ALLOW_LOOPBACK="true",
            MEDLIVE_SOURCES__SDN__BASE_URL=forum.url,
            MEDLIVE_SOURCES__SDN__BOARDS=f'["{BOARD}"]',
            MEDLIVE_SOURCES__SDN__MIN_INTERVAL_S="0",
        )
        await do("harvest", "sdn")
    (told,) = (await do("source", "reparse", "sdn", "--json")).json
    assert (told["counts"]["unchanged"], told["problems"]) == (3, [])
    await do("source", "reparse", "nowhere", status=2)

    cleaned = (await do("week", "run", "retention", "--json")).json
    assert (cleaned["outcome"], cleaned["counts"]["files"]) == ("done", 0)

    planned = (
        await do(
            "thread",
            "takedown",
            "sdn",
            "5001",
            "--reason",
            "asked",
            "--dry-run",
            "--json",
        )
    ).json
    assert (await do("thread", "show", "sdn/5001")).status == 0
    done = (
        await do(
            "thread", "takedown", "sdn", "5001", "--reason", "asked", "--yes", "--json"
        )
    ).json
    assert (done["counts"], done["frozen"], done["files"]) == (planned["counts"], [], 1)
    shown = await do("thread", "show", "sdn/5001", "--json", status=1)
    assert shown.json["taken_down"]["reason"] == "asked"
    assert "was taken down on" in shown.err
    await do("thread", "takedown", "nowhere", "1", "--reason", "asked", status=2)

    (path,) = (instance.home / "archive").rglob("*.warc.gz")
    path.write_bytes(path.read_bytes()[:-9])
    assert "damaged" in (await do("source", "reparse", "sdn", status=1)).err
    broken = await do(
        "thread", "takedown", "sdn", "5002", "--reason", "asked", "--yes", status=1
    )
    assert path.name in broken.err
    path.unlink()
    await do("week", "run", "retention")
    assert instance.one("SELECT count(*) FROM archives WHERE removed_at IS NULL") == 0
    (gone,) = (await do("source", "reparse", "sdn", "--json")).json
    assert gone["counts"] == {"bytes_gone": 1}
    runs = "SELECT command, outcome FROM pipeline_runs WHERE starts_with(command, 'source') ORDER BY id"
    assert instance.rows(runs) == [
        ("source reparse", "done"),
        ("source reparse", "failed"),
        ("source reparse", "done"),
    ]
