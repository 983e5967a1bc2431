"""A restored backup is ours or refused, whatever a stranger did to the folder, and nothing of theirs runs."""

import asyncio
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr
from sqlalchemy import make_url

from medlive.config import BackupSection, Settings
from medlive.db import embedded
from medlive.db.backups import SCRATCH_NOTE, count_rows
from medlive.db.session import Database, advisory_lock
from medlive.db.threads.threads import ensure_sources
from medlive.errors import (
    BadInput,
    CheckFailed,
    DatabaseForbidden,
    MedliveError,
    UsageError,
)
from medlive.integrity.folder import SIGNATURE, SUMS, sums_text
from medlive.integrity.paths import walk
from medlive.integrity.signing import generate
from medlive.service.backup.contents import (
    ABOUT,
    DUMP,
    TAKEDOWNS,
    digest_of,
    plain_files,
    public_keys,
    seal,
    secret_key,
)
from medlive.service.backup.make import back_up_week, make_backup
from medlive.service.backup.restore import (
    TrialImpossible,
    check_backup,
    restore_backup,
    try_backup,
)
from medlive.service.database import handle_key, open_database
from medlive.service.harvest.takedown import allow_return, take_down
from tests.support.server import PRISTINE, named, own_database, plain

Alter = Callable[[Path], None]


def settings_of(home: Path, url: str) -> Settings:
    return Settings(home=home, database_url=SecretStr(url))


@pytest.fixture(scope="module")
def empty(server: str) -> Iterator[str]:
    """A database without tables; what is refused leaves it so."""
    with psycopg.connect(
        plain(named(server, "postgres")), autocommit=True
    ) as connection:
        connection.execute("CREATE DATABASE nothing")
        try:
            yield named(server, "nothing")
        finally:
            connection.execute("DROP DATABASE nothing WITH (FORCE)")


@pytest.fixture(scope="module")
def made(server: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """An instance with a snapshot's folder, its keys and a backup of its own, `backups/2026.W40`."""
    home = tmp_path_factory.mktemp("made")
    settings = settings_of(home, named(server, PRISTINE))
    handle_key(settings)
    (home / "snapshots").mkdir()
    (home / "snapshots" / "errata.json").write_text("{}")
    asyncio.run(make_backup(settings, home / "backups" / "2026.W40"))
    return settings


@pytest.fixture
def backup(made: Settings, tmp_path: Path) -> Path:
    """A copy of the backup that may be altered."""
    return shutil.copytree(
        made.home / "backups" / "2026.W40", tmp_path / "backups" / "2026.W40"
    )


def mend(folder: Path) -> None:
    """Make every digest fit again, as a stranger can."""
    names = {name for name, mode in walk(folder) if stat.S_ISREG(mode)}
    names -= {SUMS, SIGNATURE}
    (folder / SUMS).write_text(
        sums_text({name: digest_of(folder, name) for name in names})
    )


def flip_a_byte(folder: Path) -> None:
    data = bytearray((folder / DUMP).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / DUMP).write_bytes(data)


def add_a_file(folder: Path) -> None:
    (folder / "snapshots" / "more.json").write_text("{}")


def remove_a_file(folder: Path) -> None:
    (folder / "snapshots" / "errata.json").unlink()


def link_below_snapshots(folder: Path) -> None:
    (folder / "snapshots" / "link").symlink_to("/etc/passwd")


def link_a_folder(folder: Path) -> None:
    (folder / "snapshots" / "link").symlink_to("/etc", target_is_directory=True)


def put_a_pipe(folder: Path) -> None:
    (folder / "snapshots" / "errata.json").unlink()
    os.mkfifo(folder / "snapshots" / "errata.json")


def name_another_place(folder: Path) -> None:
    (folder / SUMS).write_text(
        (folder / SUMS).read_text() + f"{'0' * 64}  snapshots/../../out.json\n"
    )


def add_a_key_of_theirs(folder: Path) -> None:
    (folder / "keys" / "web.key").write_text("0" * 64)


ALTERED: dict[str, tuple[Alter, bool]] = {
    "a changed byte": (flip_a_byte, False),
    "a changed byte, digests mended": (flip_a_byte, True),
    "a file more": (add_a_file, False),
    "a file more, digests mended": (add_a_file, True),
    "a file less": (remove_a_file, False),
    "a file less, digests mended": (remove_a_file, True),
    "a link": (link_below_snapshots, False),
    "a link to a folder": (link_a_folder, False),
    "a pipe": (put_a_pipe, False),
    "a name that leads out": (name_another_place, False),
    "a key, digests mended": (add_a_key_of_theirs, True),
    "no signature": (lambda folder: (folder / SIGNATURE).unlink(), False),
}


async def refused(
    settings: Settings, folder: Path, *, unverified: bool = False
) -> MedliveError:
    """Restore into an empty instance, and see that it is refused before anything is there."""
    keys = None if unverified else public_keys(settings, ())
    with pytest.raises((BadInput, CheckFailed)) as caught:
        await restore_backup(settings, folder, keys)
    database = Database.connect(settings.database_url.get_secret_value())
    async with database.begin() as session:
        assert await count_rows(session) == {}
    await database.aclose()
    assert {path.name for path in settings.home.iterdir()} <= {"backup.key"}
    return caught.value


@pytest.fixture
def new(made: Settings, empty: str, tmp_path: Path) -> Settings:
    """An empty instance that has the key of the first one."""
    (tmp_path / "new").mkdir()
    shutil.copy2(made.home / "backup.key", tmp_path / "new")
    return settings_of(tmp_path / "new", empty)


@pytest.mark.parametrize("what", ALTERED)
async def test_an_altered_backup_is_refused_before_anything_runs(
    new: Settings, backup: Path, what: str
) -> None:
    alter, mended = ALTERED[what]
    alter(backup)
    if mended:
        mend(backup)
    await refused(new, backup)


@pytest.mark.parametrize(
    "what", ["a link", "a link to a folder", "a pipe", "a name that leads out"]
)
async def test_links_and_special_files_are_refused_unverified_too(
    new: Settings, backup: Path, what: str
) -> None:
    ALTERED[what][0](backup)
    await refused(new, backup, unverified=True)


async def test_sql_of_a_stranger_is_never_run(
    new: Settings, server: str, backup: Path, tmp_path: Path
) -> None:
    """An index whose function starts a program: PostgreSQL calls it while the index is restored."""
    proof = Path("/tmp") / f"medlive-restored-{os.getpid()}"
    with own_database(server) as url:
        with psycopg.connect(plain(url), autocommit=True) as connection:
            start = f"COPY (SELECT 1) TO PROGRAM 'cat > {proof}'"
            for name, kind, body in (
                ("start_program", "VOLATILE", f"BEGIN {start}; RETURN 1; END"),
                ("indexed", "IMMUTABLE", "BEGIN RETURN public.start_program(n); END"),
            ):
                connection.execute(
                    f"CREATE FUNCTION public.{name}(n int) RETURNS int LANGUAGE plpgsql {kind} AS '{{}}'".format(
                        body.replace("'", "''")
                    )
                )
            connection.execute("CREATE TABLE bait AS SELECT 1 AS n")
            connection.execute("CREATE INDEX ON bait (indexed(n))")
            proof.unlink()
        program = embedded.find_program("pg_dump", 18)
        command: list[str | Path] = [
            program,
            "--format=custom",
            f"--file={backup / DUMP}",
            plain(url),
        ]
        await asyncio.to_thread(subprocess.check_call, command)
    mend(backup)
    error = await refused(new, backup)
    assert "was not written by this instance" in error.message
    assert not proof.exists()


async def test_a_backup_of_another_instance_is_refused(
    new: Settings, made: Settings, backup: Path
) -> None:
    secret, _ = generate()
    (new.home / "backup.key").write_text(secret)
    error = await refused(new, backup)
    assert "expected a signature of key" in error.message
    # Whoever knows its public key may restore it.
    [key] = public_keys(made, ())
    assert check_backup(backup, public_keys(new, [key.line()]))[0].rows
    (new.home / "backup.key").unlink()
    with pytest.raises(UsageError):
        public_keys(new, ())


async def test_a_backup_is_restored_for_its_owner_alone(
    made: Settings, server: str, backup: Path, tmp_path: Path
) -> None:
    """Unsigned, for people who know; and what a stranger put beside it erases nothing."""
    (backup / SIGNATURE).unlink()
    foreign = backup.with_name("2026.W41")
    foreign.mkdir()
    (foreign / TAKEDOWNS).write_text(
        '{"source": "sdn", "thread_id": "1", "reason": "because"}\n'
    )
    with psycopg.connect(
        plain(named(server, "postgres")), autocommit=True
    ) as connection:
        connection.execute("CREATE DATABASE restored")
    settings = settings_of(tmp_path / "home", named(server, "restored"))
    done = await restore_backup(settings, backup, None)
    assert (done["taken_down"], len(done["skipped"])) == ([], 1)
    assert "2026.W41" in done["skipped"][0]
    with psycopg.connect(
        plain(named(server, "postgres")), autocommit=True
    ) as connection:
        connection.execute("DROP DATABASE restored WITH (FORCE)")
    assert handle_key(settings) == handle_key(made)
    assert {name: oct(mode & 0o777) for name, mode in walk(settings.home)} == {
        "handle.key": "0o600",
        "snapshots": "0o700",
        "snapshots/errata.json": "0o600",
    }


@pytest.mark.thorough
async def test_takedowns_of_other_backups_are_applied_unless_they_were_lifted_before(
    server: str, tmp_path: Path
) -> None:
    folder, restored = tmp_path / "backups", list[list[str]]()
    with own_database(server) as url:
        settings = settings_of(tmp_path / "home", url)
        handle_key(settings)
        await make_backup(settings, folder / "1")
        async with open_database(settings) as database:
            await database.ask(ensure_sources, ["late"], "file")
            for thread_id in ("1", "2"):
                await take_down(database, settings, "late", thread_id, "Asked for.")
            await make_backup(settings, folder / "2")
            await allow_return(database, "late", "2", "Asked for again.")
        await make_backup(settings, folder / "3")
        keys = public_keys(settings, ())
    for name in ("1", "3"):
        database_name = f"takedowns_{name}"
        with psycopg.connect(
            plain(named(server, "postgres")), autocommit=True
        ) as connection:
            connection.execute(f"CREATE DATABASE {database_name}")
            try:
                new = settings_of(tmp_path / name, named(server, database_name))
                done = await restore_backup(new, folder / name, keys)
                restored.append(done["taken_down"])
            finally:
                connection.execute(f"DROP DATABASE {database_name} WITH (FORCE)")
    # The first knows nothing of the source, and the third that one may come back.
    assert restored == [["late/1", "late/2"], []]


async def test_the_key_that_signs_is_in_no_backup(made: Settings, backup: Path) -> None:
    secret = (made.home / "backup.key").read_text().splitlines()[1]
    assert plain_files(backup) >= {"keys/handle.key", SIGNATURE}
    for name in plain_files(backup):
        assert secret.encode() not in (backup / name).read_bytes(), name
    assert (made.home / "backup.key").stat().st_mode & 0o077 == 0


async def test_a_link_is_not_copied_into_a_backup(
    made: Settings, tmp_path: Path
) -> None:
    link = made.home / "snapshots" / "other.json"
    link.symlink_to("/etc/passwd")
    try:
        with pytest.raises(BadInput, match="link"):
            await make_backup(made, tmp_path / "backup")
    finally:
        link.unlink()
    assert plain_files(tmp_path) == set()


async def test_what_a_stranger_puts_among_the_weeks_removes_no_backup(
    made: Settings, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Later weeks of theirs, an old backup of ours under another name, a folder of this week's name."""
    folder = tmp_path / "weekly"
    settings = made.model_copy(update={"backup": BackupSection(folder=folder, keep=1)})
    shutil.copytree(made.home / "backups" / "2026.W40", folder / "2026.W40")
    shutil.copytree(folder / "2026.W40", folder / "2030.W01")  # ours, by another name
    (folder / "2031.W01").mkdir()
    (folder / "2031.W01" / SUMS).write_text("")
    (folder / "2032.W01").symlink_to(folder / "2026.W40")
    (folder / "2026.W42").mkdir()
    async with open_database(settings) as database:
        done = await back_up_week(database, settings, "2026.W41")
        assert done["removed"] == 1
        with pytest.raises(CheckFailed):
            await back_up_week(database, settings, "2026.W42")
    left = {path.name for path in folder.iterdir()}
    assert left == {"2026.W41", "2026.W42", "2030.W01", "2031.W01", "2032.W01"}
    assert {name for name in left if name in caplog.text} >= {
        "2030.W01",
        "2031.W01",
        "2032.W01",
    }


def databases(server: str) -> set[str]:
    with psycopg.connect(plain(named(server, "postgres"))) as connection:
        return {
            name for (name,) in connection.execute("SELECT datname FROM pg_database")
        }


async def test_what_a_kill_left_of_earlier_backups_is_removed_by_the_next(
    made: Settings, tmp_path: Path
) -> None:
    """A draft is as large as a backup, and holds patients' words."""
    folder = tmp_path / "weekly"
    settings = made.model_copy(update={"backup": BackupSection(folder=folder)})
    left = [folder / ".2026.W40-ab_cd1x2", folder / ".2026.W41-zyxw8765"]
    stays = folder / ".somebody-elses"
    copied = made.home / ".restore-abcdefgh"
    for place in (*left, stays, copied):
        place.mkdir(parents=True)
        (place / DUMP).write_text("words")
    async with open_database(settings) as database:
        assert (await back_up_week(database, settings, "2026.W41"))["check"] == "passed"
    assert {path.name for path in folder.iterdir()} == {"2026.W41", stays.name}
    assert not copied.exists()


def cut_the_dump(folder: Path) -> None:
    os.truncate(folder / DUMP, (folder / DUMP).stat().st_size // 2)


def count_a_row_more(folder: Path) -> None:
    about = json.loads((folder / ABOUT).read_text())
    about["rows"]["sources"] += 1
    (folder / ABOUT).write_text(json.dumps(about))


async def test_a_backup_is_tried_in_a_scratch_database_that_is_dropped(
    made: Settings, server: str, backup: Path
) -> None:
    before = databases(server)
    about = await try_backup(made, backup, public_keys(made, ()))
    assert len(about.rows) > 20
    assert databases(server) == before
    assert not list(made.home.glob(".trial-*"))


@pytest.mark.parametrize("alter", [cut_the_dump, count_a_row_more])
async def test_a_signed_backup_that_does_not_come_back_fails_its_week_and_removes_nothing(
    made: Settings, server: str, backup: Path, alter: Alter
) -> None:
    folder = backup.parent
    settings = made.model_copy(update={"backup": BackupSection(folder=folder, keep=1)})
    latest = shutil.copytree(backup, folder / "2026.W41")
    alter(latest)
    mend(latest)
    seal(latest, latest.name, "2026-10-11T23:00:00+00:00", secret_key(made))
    before = databases(server)
    async with open_database(settings) as database:
        done = await back_up_week(database, settings, "2026.W41")
    assert done["check"] == "failed"
    assert "the restore check failed" in done["problem"]
    assert "removed" not in done
    assert {entry.name for entry in os.scandir(folder)} == {"2026.W40", "2026.W41"}
    assert databases(server) == before
    switched_off = settings.model_copy(
        update={"backup": BackupSection(folder=folder, keep=1, check=False)}
    )
    async with open_database(settings) as database:
        assert await back_up_week(database, switched_off, "2026.W41") == {
            "check": "off",
            "removed": 1,
        }


async def test_a_trial_that_is_impossible_is_said_so(
    made: Settings, server: str, backup: Path
) -> None:
    url = plain(named(server, PRISTINE))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE creates_nothing LOGIN")
        few = make_url(named(server, PRISTINE)).set(username="creates_nothing")
        settings = made.model_copy(
            update={
                "database_url": SecretStr(few.render_as_string(hide_password=False))
            }
        )
        try:
            with pytest.raises(DatabaseForbidden, match="creates_nothing") as caught:
                await try_backup(settings, backup, public_keys(made, ()))
        finally:
            connection.execute("DROP ROLE creates_nothing")
    assert "ALTER ROLE creates_nothing CREATEDB" in (caught.value.hint or "")
    # Nor two at a time, nor where another database has no room.
    async with (
        open_database(made) as database,
        advisory_lock(database, "restore check"),
    ):
        with pytest.raises(TrialImpossible):
            await try_backup(made, backup, public_keys(made, ()))
    watch = made.watch.model_copy(update={"disk_free_gb": 1e9})
    with pytest.raises(TrialImpossible):
        await try_backup(
            made.model_copy(update={"watch": watch}), backup, public_keys(made, ())
        )


async def test_a_database_of_somebody_else_is_never_dropped_and_one_left_by_a_kill_is(
    made: Settings, server: str, backup: Path
) -> None:
    name = f"{PRISTINE}_restore_check"
    with psycopg.connect(
        plain(named(server, "postgres")), autocommit=True
    ) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        with pytest.raises(CheckFailed):
            await try_backup(made, backup, public_keys(made, ()))
        assert name in databases(server)
        connection.execute(f"COMMENT ON DATABASE {name} IS '{SCRATCH_NOTE}'")
        await try_backup(made, backup, public_keys(made, ()))
        assert name not in databases(server)
