"""A restore drill: what a backup under load holds comes back whole, and what was taken down since does not."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import make_url

from medlive.db import embedded
from medlive.db.jobs import Queue
from medlive.demo.samples import SampleThread
from medlive.errors import DatabaseForbidden
from medlive.instance.loading import read_settings
from medlive.service.backup.make import make_backup
from medlive.service.database import open_database
from medlive.service.schedule.scheduler import run_step
from medlive.service.schedule.steps import read_states
from tests.support.forum import BOARD, Forum, serve_forum, thread
from tests.support.instance import Done, Instance, write_lines
from tests.support.threads import as_import

NewInstance = Callable[..., Instance]
THREADS = 12


@pytest.fixture
async def forum() -> AsyncIterator[Forum]:
    """A slow forum, so that a harvest lasts."""
    forum = Forum(delay_s=0.15)
    forum.add(*(thread(n) for n in range(THREADS)))
    async with serve_forum(forum):
        yield forum


async def _do(
    instance: Instance, *arguments: str | Path, status: int | None = 0
) -> Done:
    return await asyncio.to_thread(instance.here, *arguments, status=status)


def _empty(home: Path, like: Instance) -> Instance:
    """A new instance with an embedded server of its own and the settings of another."""
    home.mkdir()
    home.parent.chmod(0o755)  # root's server runs as another user
    return Instance(home, embedded.start(home), like.settings)


def _bytes(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file()
    }


@pytest.mark.thorough
async def test_a_backup_under_load_is_restored_whole(
    new_instance: NewInstance, forum: Forum, samples: list[SampleThread], tmp_path: Path
) -> None:
    instance = new_instance(
        MEDLIVE_HARVEST__ALLOW_LOOPBACK="true",
        MEDLIVE_SOURCES__SDN__BASE_URL=forum.url,
        MEDLIVE_SOURCES__SDN__BOARDS=f'["{BOARD}"]',
        MEDLIVE_SOURCES__SDN__MIN_INTERVAL_S="0",
    )
    kept = [t for t in samples if t.expect.outcome == "kept"][:3]
    await _do(
        instance,
        "import",
        write_lines(instance.home / "threads.jsonl", map(as_import, kept)),
    )
    await _do(instance, "curate")
    frozen = (await _do(instance, "snapshot", "freeze", "--json")).json

    harvest = instance.start("harvest", "sdn")
    while len(forum.asked) < 6:
        assert harvest.poll() is None
        await asyncio.sleep(0.05)
    backup = tmp_path / "backups" / "first"
    made = (await _do(instance, "backup", backup, "--json")).json
    key = ("--public-key", made["public_key"])
    assert harvest.poll() is None, "the harvest goes on meanwhile"
    assert (await asyncio.to_thread(instance.finish, harvest)).status == 0
    assert made["rows"]["threads"] < instance.one("SELECT count(*) FROM threads")
    gone = kept[0]
    await _do(
        instance,
        "thread",
        "takedown",
        gone.source,
        gone.thread_id,
        "--reason",
        "asked to",
        "--yes",
        status=None,
    )
    await _do(instance, "backup", tmp_path / "backups" / "second")

    new = _empty(tmp_path / "new", instance)
    try:
        damaged = shutil.copytree(backup, tmp_path / "damaged" / "first")
        (damaged / "database.dump").write_bytes(
            (backup / "database.dump").read_bytes()[:-1]
        )
        assert (
            "nothing says which key"
            in (await _do(new, "restore", damaged, status=2)).err
        )
        assert "SHA256SUMS" in (await _do(new, "restore", damaged, *key, status=2)).err
        alone = shutil.copytree(backup, tmp_path / "alone" / "first")
        assert (
            "whole and signed"
            in (await _do(new, "restore", alone, *key, "--check")).err
        )
        assert (await _do(new, "restore", alone, *key, "--json")).json[
            "taken_down"
        ] == []
        for table, count in made["rows"].items():
            assert new.one(f'SELECT count(*) FROM "{table}"') == count, table
        folder = Path(frozen["path"])
        copied = new.home / "snapshots" / folder.name
        assert _bytes(copied) == _bytes(folder)
        assert (new.home / "handle.key").read_bytes() == (
            instance.home / "handle.key"
        ).read_bytes()
        shutil.rmtree(copied)
        await _do(new, "snapshot", "freeze", "--week", frozen["version"])
        assert _bytes(copied) == _bytes(folder)
        await _do(new, "db", "check")
        assert "in use" in (await _do(new, "restore", alone, *key, status=2)).err
        # What was half harvested goes on, and its pages are there.
        await _do(new, "harvest", "sdn")
        assert new.one("SELECT count(*) FROM threads") == len(kept) + THREADS
        (again,) = (await _do(new, "source", "reparse", "sdn", "--json")).json
        assert (again["damaged"], again["counts"]["unchanged"]) == ([], THREADS)
    finally:
        embedded.stop(new.home)

    new = _empty(tmp_path / "later", instance)
    try:
        restored = (await _do(new, "restore", backup, *key, "--json")).json
        assert restored["taken_down"] == [f"{gone.source}/{gone.thread_id}"]
        stored = json.dumps(
            new.rows("SELECT title, messages::text FROM thread_revisions"),
            ensure_ascii=False,
        )
        assert gone.title not in stored
    finally:
        embedded.stop(new.home)


@pytest.mark.thorough
async def test_a_week_is_backed_up_where_a_folder_is_named_and_the_oldest_goes(
    new_instance: NewInstance, tmp_path: Path
) -> None:
    instance, folder = new_instance(), tmp_path / "weekly"
    given = {"MEDLIVE_BACKUP__FOLDER": str(folder), "MEDLIVE_BACKUP__KEEP": "2"}
    settings = read_settings(instance.environment() | given)
    moment = datetime(2026, 11, 22, 23, 30, tzinfo=UTC)
    async with open_database(settings) as database:
        unset = await read_states(
            database, read_settings(instance.environment()), moment
        )
        assert "backup" not in {state.name for state in unset}
        # A week whose freeze has failed is backed up without it.
        instance.change(
            "INSERT INTO pipeline_runs (command, iso_week, code_version, settings, outcome, finished_at) "
            "VALUES ('scheduler freeze', '2026.W47', 'x', '{}', 'failed', '2026-11-22 18:01Z')"
        )
        [due] = [
            s
            for s in await read_states(database, settings, moment)
            if s.name == "backup"
        ]
        assert (due.week, due.status, due.queue) == (
            "2026.W47",
            "due",
            Queue.BACKUP,
        )
        folder.mkdir()
        (folder / "2026.W01").mkdir()  # not a backup: it stays
        for week in ("2026.W45", "2026.W46", "2026.W47", "2026.W47"):
            await run_step(database, settings, "backup", week)
        assert {path.name for path in folder.iterdir()} == {
            "2026.W01",
            "2026.W46",
            "2026.W47",
        }
        [done] = [
            s
            for s in await read_states(database, settings, moment)
            if s.name == "backup"
        ]
        assert done.status == "done"
        # Another than the owner cannot: the step has failed, in words.
        instance.change("CREATE ROLE reads_little LOGIN")
        few = (
            make_url(instance.url or "")
            .set(username="reads_little")
            .render_as_string(hide_password=False)
        )
        with pytest.raises(DatabaseForbidden):
            await make_backup(
                settings.model_copy(update={"database_url": SecretStr(few)}),
                folder / "other",
            )
    assert not list(folder.glob(".*"))
