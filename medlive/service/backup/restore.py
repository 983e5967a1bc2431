"""Check a backup, and restore it: into an empty instance (`restore_backup`) or into a scratch database (`try_backup`).

All is checked before anything of it is run. A backup whose digests are right may still fail: the dump was cut short
before it was signed, a program of PostgreSQL is missing, the server is older. Only a trial restore shows that.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from medlive.config import Settings
from medlive.db.audit.health import data_directory
from medlive.db.backups import (
    count_rows,
    database_size,
    list_takedowns,
    scratch_database,
    server_version,
)
from medlive.db.release.snapshots import list_snapshots
from medlive.db.schema.migrate import upgrade
from medlive.db.session import Database, advisory_lock
from medlive.db.threads.threads import ensure_sources
from medlive.errors import (
    BadInput,
    CheckFailed,
    MedliveError,
    UsageError,
    describe,
    first_fault,
)
from medlive.instance.paths import archive_path, snapshots_path
from medlive.integrity.folder import SIGNATURE, SUMS
from medlive.integrity.log import writing
from medlive.integrity.signing import PublicKey
from medlive.service.database import database_url, open_database
from medlive.service.harvest.takedown import take_down
from medlive.snapshot.model import folder_name

from .contents import (
    ABOUT,
    BARE,
    DUMP,
    KEY,
    TAKEDOWNS,
    WHOLE,
    About,
    Takedown,
    check_seal,
    copy_file,
    digest_of,
    make_private_folder,
    parse_sums,
    plain_files,
    read_whole,
    run_program,
)

_PRIVATE = ".restore-"  # Begins the names of folders for copies of dumps


def check_backup(
    folder: Path, keys: Sequence[PublicKey] | None
) -> tuple[About, dict[str, str]]:
    """Check a backup: its signature, then that it holds the named files and nothing else, then every digest.

    Args:
        folder: The backup.
        keys: The keys of which one must have signed it; None to ask for no signature.

    Returns:
        What it says of itself, and the SHA-256 of each file.

    Raises:
        CheckFailed: if none of these keys signed it.
        BadInput: if it holds a link or a special file, or is not as its SHA256SUMS says.
    """
    digests = _digests_of(folder, keys)
    wrong = (plain_files(folder) - {SUMS, SIGNATURE}) ^ digests.keys()
    for name in digests.keys() - wrong:
        try:
            if digest_of(folder, name) != digests[name]:
                wrong.add(name)
        except OSError as exc:
            raise BadInput(
                f"{folder}: {name} cannot be read: {exc.strerror or exc}"
            ) from exc
    if wrong:
        raise BadInput(
            f"{folder}: {min(wrong)} is not as {SUMS} says",
            hint="restore another backup",
        )
    try:
        about = About.model_validate_json(read_whole(folder, ABOUT))
    except ValidationError as exc:
        raise BadInput(
            f"{folder} is not a backup: {ABOUT}: {first_fault(exc)}"
        ) from exc
    return about, digests


def _digests_of(
    folder: Path,
    keys: Sequence[PublicKey] | None,
) -> dict[str, str]:
    """File → its SHA-256, signed by one of the keys; None asks for no signature."""
    if keys is None:
        return parse_sums(read_whole(folder, SUMS))
    return check_seal(folder, keys)[1]


@asynccontextmanager
async def private_dump(
    settings: Settings, folder: Path, digest: str
) -> AsyncIterator[str]:
    """Yield the path of a copy of the dump that nobody else can write, checked again; it is deleted afterwards.

    Raises BadInput if the dump is not what was checked.
    """
    make_private_folder(settings.home)
    with tempfile.TemporaryDirectory(prefix=_PRIVATE, dir=settings.home) as private:
        place = Path(private)
        await asyncio.to_thread(_copy, folder, DUMP, place, DUMP, digest)
        yield str(place / DUMP)


async def restore_backup(
    settings: Settings, folder: Path, keys: Sequence[PublicKey] | None
) -> dict[str, Any]:
    """Restore a backup into this empty instance; what was in it, and what was taken down again.

    Takedowns that another signed backup beside this one lists are applied, so that a thread that was erased since does
    not come back; not those of an earlier backup that were lifted before this one was written.

    Args:
        settings: The settings of the instance.
        folder: The backup.
        keys: The keys of which one must have signed it; None to ask for no signature. Its dump is SQL, which runs
            with the rights of the database's user: without a signature whoever wrote the folder runs it.

    Raises:
        CheckFailed: if none of these keys signed it; nothing has been changed.
        BadInput: if it is damaged, or holds a link or a special file; nothing has been changed. Also if a file
            changes meanwhile.
        UsageError: for an instance that is in use.
        DatabaseUnavailable: without the database.
    """
    about, digests = check_backup(folder, keys)
    places = _empty_places(settings, digests)
    url = database_url(settings)
    async with aclosing(Database.connect(url)) as database, database.begin() as session:
        if await count_rows(session):
            raise UsageError(
                "this instance is in use: its database has tables",
                hint="name an empty one",
            )
        version = await server_version(session)
    async with private_dump(settings, folder, digests[DUMP]) as dump:
        await run_program(settings, "pg_restore", version, *WHOLE, dump)
    for name, digest in sorted(digests.items()):
        top, _, below = name.partition("/")
        if below:
            make_private_folder(places[top])
            _copy(folder, name, places[top], below, digest)
    upgrade(url)
    again, skipped = list[str](), list[str]()
    async with open_database(settings) as database:
        erased = await database.ask(list_takedowns)
        lifted = await database.ask(list_takedowns, lifted=True)
        for written_at, takedown in _other_takedowns(folder, keys, skipped):
            thread = (takedown.source, takedown.thread_id)
            was_lifted = thread in lifted and written_at < about.created_at
            if thread not in erased and not was_lifted:
                # The source may have been harvested since this backup for the first time.
                await database.ask(ensure_sources, [takedown.source], "file")
                await take_down(database, settings, *thread, takedown.reason)
                erased[thread] = takedown.reason
                again.append("/".join(thread))
    done = {"taken_down": again, "skipped": skipped}
    return about.model_dump(mode="json") | done


def _empty_places(settings: Settings, names: Iterable[str]) -> dict[str, Path]:
    """Return a backup's folder → where its files go. Raises UsageError when there are files already.

    A copy of the database alone, as an upgrade makes it, belongs to the files that are there.
    """
    places = {
        "archive": archive_path(settings),
        "snapshots": snapshots_path(settings),
        "keys": settings.home,
    }
    if not any("/" in name for name in names):
        return places
    used = [*places["archive"].glob("*"), *places["snapshots"].glob("*")]
    for path in settings.home.glob("*.key"):
        # The key of backups may be there already: the next ones are signed as the last were.
        if path.name != KEY:
            used.append(path)
    if used:
        raise UsageError(
            f"this instance is in use: {used[0]} exists",
            hint="restore into a new MEDLIVE_HOME",
        )
    return places


def _copy(
    folder: Path,
    name: str,
    place: Path,
    new_name: str,
    digest: str,
) -> None:
    """Copy a file of the backup. Raises BadInput if it is not what was checked."""
    with writing(place):
        copied = copy_file(folder, name, place, new_name)
    if copied != digest:
        raise BadInput(
            f"{folder}: {name} changed while it was being restored",
            hint="find out who writes there; empty this instance, and restore a copy that nobody else can write",
        )


def _other_takedowns(
    folder: Path, keys: Sequence[PublicKey] | None, skipped: list[str]
) -> Iterator[tuple[datetime, Takedown]]:
    """Yield the takedowns of every backup beside this one, each with when that was written.

    Backups whose takedowns cannot be read or verified are named in `skipped`.
    """
    for place in sorted(folder.absolute().parent.iterdir()):
        if place.is_symlink() or not os.path.lexists(place / TAKEDOWNS):
            continue
        try:
            digests = _digests_of(place, keys)
            for name in (TAKEDOWNS, ABOUT):
                if digest_of(place, name) != digests.get(name):
                    raise BadInput(f"{place}: {name} is not as {SUMS} says")
            about = About.model_validate_json(read_whole(place, ABOUT))
            for line in read_whole(place, TAKEDOWNS).splitlines():
                yield about.created_at, Takedown.model_validate_json(line)
        except (MedliveError, ValidationError, OSError) as exc:
            skipped.append(f"takedowns of {place}: {describe(exc)}")


_SIZE_FACTOR = 2
"""A restore takes this many times the database's size: tables and indexes, and the log of writing them."""


class TrialImpossible(UsageError):
    """A backup cannot be restored into a scratch database of this server."""


async def try_backup(
    settings: Settings, folder: Path, keys: Sequence[PublicKey] | None
) -> About:
    """Check a backup's files, restore its dump into a scratch database, compare the rows, and drop the database.

    Returns what the backup says of itself.

    Args:
        settings: The settings of the instance; the scratch database is made beside its own, which stays as it is.
        folder: The backup.
        keys: The keys of which one must have signed it; None to ask for no signature.

    Raises:
        CheckFailed: if none of these keys signed it, or what came back is not what it says.
        BadInput: if it is damaged.
        DatabaseForbidden: if this user may not create databases.
        TrialImpossible: if there is no room for another, or a backup is being tried.
        ServiceUnavailable: if pg_restore fails.
        DatabaseUnavailable: without the server.
    """
    about, digests = await asyncio.to_thread(check_backup, folder, keys)
    async with (
        aclosing(Database.connect(database_url(settings))) as database,
        advisory_lock(database, "restore check") as is_alone,
    ):
        if not is_alone:
            raise TrialImpossible(
                "another backup is being tried", hint="wait for its end"
            )
        for left in settings.home.glob(f"{_PRIVATE}*"):  # by a kill
            await asyncio.to_thread(shutil.rmtree, left, ignore_errors=True)
        async with database.begin() as session:
            place = await data_directory(session)
            needed = _SIZE_FACTOR * await database_size(session)
            version = await server_version(session)
        # A server's folder on another machine is not seen.
        if place is not None and await asyncio.to_thread(os.path.isdir, place):
            free = shutil.disk_usage(place).free - settings.watch.disk_free_gb * 1e9
            if free < needed:
                raise TrialImpossible(
                    f"{max(free, 0) / 1e9:.1f} GB are free for the scratch database,"
                    f" which may take {needed / 1e9:.1f}",
                    hint=f"make room at {place}; or `medlive restore FOLDER --check --scratch` on another machine",
                )
        async with (
            scratch_database(database) as url,
            private_dump(settings, folder, digests[DUMP]) as dump,
        ):
            scratch = settings.model_copy(update={"database_url": SecretStr(url)})
            await run_program(
                scratch, "pg_restore", version, "--exit-on-error", *BARE, dump
            )
            async with (
                aclosing(Database.connect(url)) as restored,
                restored.begin() as session,
            ):
                rows = await count_rows(session)
                snapshots = await list_snapshots(session)
    for snapshot in snapshots:
        digest = digests.get(f"snapshots/{folder_name(snapshot.version)}/{SUMS}")
        is_there = snapshot.state == "frozen" and digest is not None
        if is_there and snapshot.sums_digest != f"sha256:{digest}":
            raise CheckFailed(
                f"{folder} does not come back as it was written: snapshot {snapshot.version} has other files"
            )
    for table in sorted(about.rows.keys() | rows.keys()):
        expected, got = about.rows.get(table), rows.get(table)
        if got != expected:
            raise CheckFailed(
                f"{folder} does not come back as it was written: table {table}: expected {expected} rows, got {got}"
            )
    return about
