"""The embedded server: started once, shared, killed, started again, by root and by others."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

import psycopg
import pytest

from medlive.db import embedded
from medlive.errors import DatabaseUnavailable, MissingExtra
from medlive.guard.child_environment import SYSTEM
from medlive.integrity.paths import walk

START = "import sys, pathlib; from medlive.db import embedded; print(embedded.start(pathlib.Path(sys.argv[1])))"


def folders() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="medlive-home-"))
    folder.chmod(0o755)
    yield folder
    embedded.stop(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """One cluster for the tests that may share it."""
    yield from folders()


@pytest.fixture
def empty_home() -> Iterator[Path]:
    yield from folders()


def running(home: Path) -> embedded.EmbeddedServer:
    server = embedded.status(home)
    assert server is not None
    return server


def query(url: str, sql: str) -> object:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        cursor = connection.execute(sql)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def test_a_server_starts_answers_is_reused_and_stops(home: Path) -> None:
    embedded.stop(home)
    assert embedded.status(home) is None
    assert embedded.stop(home) is False
    url = embedded.start(home)
    first = running(home)
    assert first.url == url
    assert query(url, "SELECT current_database()") == "medlive"
    assert query(url, "SHOW listen_addresses") == ""
    assert embedded.start(home) == url
    assert running(home).pid == first.pid
    assert (first.data.stat().st_mode & 0o077) == 0
    with ThreadPoolExecutor() as pool:
        assert sorted(pool.map(embedded.stop, [home] * 4)) == [False] * 3 + [True]
    assert embedded.status(home) is None


@pytest.mark.thorough
def test_the_server_knows_no_variable_but_those_that_are_named(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs on as another user, and shows what it was started with to whoever is that user."""
    secrets = (
        "MEDLIVE_SIGNING_KEY",
        "OIDC_CLIENT_SECRET",
        "OPENAI_API_KEY",
        "MEDLIVE_NOTIFY__SMTP_PASSWORD",
    )
    for name in secrets:
        monkeypatch.setenv(name, "a secret that no child needs")
    url = embedded.start(empty_home)
    postmaster = running(empty_home).pid
    made_on_the_way = {
        "PG_GRANDPARENT_PID",
        "PGDATA",
        "PGLOCALEDIR",
        "PGSYSCONFDIR",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    }
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        backend = connection.info.backend_pid
        for pid in (postmaster, backend):
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"a secret" not in environment
            names = {
                entry.partition(b"=")[0].decode()
                for entry in environment.split(b"\0")
                if b"=" in entry
            }
            assert names <= {*SYSTEM, "LC_ALL", *made_on_the_way}, pid
    assert b"PATH=" in Path(f"/proc/{postmaster}/environ").read_bytes(), (
        "the environment can be read here"
    )


@pytest.mark.thorough
def test_two_processes_that_start_at_once_share_one_server(empty_home: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", START, str(empty_home)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    urls = {process.communicate(timeout=60)[0] for process in started}
    assert [process.returncode for process in started] == [0, 0, 0]
    assert len(urls) == 1
    assert embedded.status(empty_home) is not None


def test_the_server_outlives_a_kill_of_the_process_that_started_it(home: Path) -> None:
    script = START + "; sys.stdout.flush(); import time; time.sleep(20)"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(home)], stdout=subprocess.PIPE, text=True
    ) as starter:
        url = starter.stdout.readline().strip()
        pid = running(home).pid
        query(url, "CREATE TABLE kept AS SELECT 41 + 1 AS n")
        starter.kill()
    assert embedded.start(home) == url
    assert running(home).pid == pid
    assert query(url, "SELECT n FROM kept") == 42


def test_a_killed_server_is_started_again_with_its_data(home: Path) -> None:
    url = embedded.start(home)
    query(url, "CREATE TABLE kept_too AS SELECT 42 AS n")
    pid = running(home).pid
    os.kill(pid, signal.SIGKILL)
    assert embedded.start(home) == url
    assert running(home).pid != pid
    assert query(url, "SELECT n FROM kept_too") == 42


def test_a_pid_file_whose_number_went_to_another_process_is_no_server(
    home: Path,
) -> None:
    embedded.start(home)
    data = running(home).data
    lines = (data / "postmaster.pid").read_text().splitlines()
    embedded.stop(home)
    lines[0] = str(os.getpid())
    (data / "postmaster.pid").write_text("\n".join(lines) + "\n")
    assert embedded.status(home) is None
    assert query(embedded.start(home), "SELECT 1") == 1


@pytest.mark.thorough
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv"
)
def test_root_without_ptrace_finds_its_server(home: Path) -> None:
    """As in a container of Docker's default capabilities."""
    limited = [
        "setpriv",
        "--bounding-set",
        "-sys_ptrace",
        "--inh-caps",
        "-sys_ptrace",
        sys.executable,
    ]
    embedded.stop(home)
    url = subprocess.check_output([*limited, "-c", START, str(home)], text=True).strip()
    pid = running(home).pid
    assert (
        subprocess.check_output([*limited, "-c", START, str(home)], text=True).strip()
        == url
    )
    assert running(home).pid == pid


@pytest.mark.thorough
def test_a_killed_initdb_leaves_nothing_that_hinders(empty_home: Path) -> None:
    half = empty_home / "postgresql" / "data.new"
    half.mkdir(parents=True)
    for folder in (empty_home / "postgresql", half):
        folder.chmod(0o755)
    (half / "PG_VERSION").write_text("18\n")
    assert query(embedded.start(empty_home), "SELECT 1") == 1


@pytest.mark.thorough
def test_long_and_odd_paths_get_a_short_socket(empty_home: Path) -> None:
    deep = empty_home / ("it's a long " + "x" * 90) / "中文"
    try:
        url = embedded.start(deep)
        assert query(url, "SELECT 1") == 1
        sockets = Path(unquote(url.rpartition("host=")[2]))
        assert sockets.parent == Path("/tmp")
        assert (sockets.stat().st_mode & 0o777) == 0o700
    finally:
        embedded.stop(deep)
    sockets.rmdir()


def test_a_home_that_cannot_be_made_is_told(empty_home: Path) -> None:
    (empty_home / "file").write_text("")
    with pytest.raises(DatabaseUnavailable) as caught:
        embedded.start(empty_home / "file" / "home")
    assert caught.value.hint
    assert "file" in caught.value.message


def test_without_the_wheel_the_extra_is_named(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_WHEEL", "a_wheel_that_is_not_there")
    with pytest.raises(MissingExtra) as caught:
        embedded.start(empty_home)
    assert "medlive[service]" in (caught.value.hint or "")


@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_normal_user_has_a_server_of_their_own(empty_home: Path) -> None:
    if any(
        not folder.stat().st_mode & 0o001
        for folder in Path(sys.prefix).resolve().parents
    ):
        pytest.skip("the environment lies where no other user can read it")
    # Everything is imported before the change of user: the interpreter may lie where others cannot read.
    script = f"""
import os, sys, psycopg, psutil, encodings.idna, pathlib
from medlive.db import embedded
os.setgroups([]); os.setgid(65534); os.setuid(65534)
home = pathlib.Path({str(empty_home / "nobodys")!r})
url = embedded.start(home)
with psycopg.connect(url.replace("+psycopg", "")) as c:
    assert c.execute("SELECT 1").fetchone() == (1,)
assert (home / "postgresql" / "data").stat().st_uid == 65534
print(embedded.stop(home))
"""
    empty_home.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "True", done.stderr


def test_a_server_is_dumped_and_restored_by_the_oldest_program_that_knows_it() -> None:
    found = [
        embedded.find_program("pg_restore", version).parts[-3]
        for version in (15, 16, 17, 18)
    ]
    assert found == ["pginstall", "pginstall", "pginstall18", "pginstall18"]


@pytest.mark.thorough
def test_a_home_with_its_server_shows_others_nothing(empty_home: Path) -> None:
    """As root the server's user passes through the home and its folder, and through nothing else."""
    (empty_home / "home").mkdir(mode=0o700)
    embedded.start(empty_home / "home")
    try:
        assert running(empty_home / "home").data.is_relative_to(empty_home)
        passable = {"": "0o711", "postgresql": "0o711"} if os.geteuid() == 0 else {}
        opened = {"": oct((empty_home / "home").stat().st_mode & 0o777)}
        for name, mode in walk(empty_home / "home"):
            if mode & 0o077 and not name.startswith("postgresql/binaries-"):
                opened[name] = oct(mode & 0o777)
        assert opened == passable | ({} if passable else {"": "0o700"})
    finally:
        embedded.stop(empty_home / "home")


@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
def test_root_opens_no_folder_for_its_server(empty_home: Path) -> None:
    closed = empty_home / "closed"
    closed.mkdir(mode=0o700)
    inside = closed / "home"
    url = embedded.start(inside)
    data = running(inside).data
    try:
        assert query(url, "SELECT 1") == 1
        assert (closed.stat().st_mode & 0o777) == 0o700
        assert data.is_relative_to("/var/lib/medlive")
        assert embedded.start(inside) == url
    finally:
        embedded.stop(inside)
        shutil.rmtree(data.parent)


def test_an_error_is_named_although_other_lines_follow(empty_home: Path) -> None:
    place = embedded._Place(empty_home, None)
    place.data.mkdir(parents=True)
    said = "initdb: error: could not write file: No space left on device"
    script = f"echo '{said}' >&2; echo 'initdb: removing contents' >&2; exit 1"
    with pytest.raises(DatabaseUnavailable, match="No space left"):
        embedded._run(place, "could not be created", ["/bin/sh", "-c", script])
    with pytest.raises(DatabaseUnavailable, match="exit status 1"):
        embedded._run(place, "could not be created", ["/bin/sh", "-c", "exit 1"])
    place.log.write_text("FATAL: could not write: No space left\n" + "LOG: down\n" * 2)
    assert "No space left" in embedded._start_error(place, "no").message
    (place.data / "PG_VERSION").write_text("")
    with pytest.raises(DatabaseUnavailable, match="made by PostgreSQL"):
        embedded._find_binaries(place)
