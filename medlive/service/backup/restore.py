"""Restoring a backup into an empty instance: it is checked before anything of it is run."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from medlive.config import Settings
from medlive.db.backups import count_rows, list_takedowns, server_version
from medlive.db.schema.migrate import upgrade
from medlive.db.session import Database
from medlive.errors import BadInput, MedliveError, UsageError, describe, first_fault
from medlive.instance.paths import archive_path, snapshots_path
from medlive.integrity.log import writing
from medlive.integrity.paths import PRIVATE_FOLDER
from medlive.integrity.signing import PublicKey
from medlive.service.backup.contents import (
    ABOUT,
    DUMP,
    SIGNATURE,
    SUMS,
    TAKEDOWNS,
    About,
    Takedown,
    copy_file,
    digest_of,
    parse_sums,
    plain_files,
    read_whole,
)
from medlive.service.backup.programs import WHOLE, run_program
from medlive.service.backup.seal import KEY, check_seal
from medlive.service.database import database_url, open_database
from medlive.service.harvest.takedown import take_down


class Checked(NamedTuple):
    """A backup whose files are as its SHA256SUMS says."""

    about: About
    digests: dict[str, str]
    """File → its SHA-256."""


def check_backup(folder: Path, keys: Sequence[PublicKey] | None) -> Checked:
    """Check a backup: its signature, then that it holds the named files and nothing else, then every digest.

    Args:
        folder: The backup.
        keys: The keys of which one must have signed it; None to ask for no signature.

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
    return Checked(about, digests)


def _digests_of(folder: Path, keys: Sequence[PublicKey] | None) -> dict[str, str]:
    """File → its SHA-256, signed by one of the keys; None asks for no signature."""
    if keys is None:
        return parse_sums(read_whole(folder, SUMS))
    return check_seal(folder, keys)[1]


@asynccontextmanager
async def private_dump(
    settings: Settings, folder: Path, checked: Checked
) -> AsyncIterator[str]:
    """A copy of the dump that nobody else can write, and that is checked again: what is run while the block does.

    Raises BadInput if the dump is not what was checked.
    """
    with writing(settings.home):
        settings.home.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=settings.home) as private:
        place = Path(private)
        await asyncio.to_thread(_copy, folder, DUMP, place, DUMP, checked)
        yield str(place / DUMP)


async def restore_backup(
    settings: Settings, folder: Path, keys: Sequence[PublicKey] | None
) -> dict[str, Any]:
    """Restore a backup into this empty instance; what was in it, and what was taken down again.

    Takedowns that a backup beside this one lists are applied, where it is signed too: a thread that was erased
    since does not come back.

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
    checked = check_backup(folder, keys)
    places = _empty_places(settings, checked)
    url = database_url(settings)
    async with aclosing(Database.connect(url)) as database, database.begin() as session:
        if await count_rows(session):
            raise UsageError(
                "this instance is in use: its database has tables",
                hint="name an empty one",
            )
        version = await server_version(session)
    async with private_dump(settings, folder, checked) as dump:
        await run_program(settings, "pg_restore", version, *WHOLE, dump)
    for name in sorted(checked.digests):
        top, _, below = name.partition("/")
        if below:
            place = places[top]
            with writing(place):
                place.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            _copy(folder, name, place, below, checked)
    upgrade(url)
    again: list[str] = []
    skipped: list[str] = []
    async with open_database(settings) as database:
        async with database.begin() as session:
            erased = await list_takedowns(session)
        for takedown in _other_takedowns(folder, keys, skipped):
            thread = (takedown.source, takedown.thread_id)
            if thread not in erased:
                await take_down(database, settings, *thread, takedown.reason)
                erased[thread] = takedown.reason
                again.append("/".join(thread))
    about = checked.about.model_dump(mode="json")
    return about | {"taken_down": again, "skipped": skipped}


def _empty_places(settings: Settings, checked: Checked) -> dict[str, Path]:
    """Return a backup's folder → where its files go. Raises UsageError when there are files already.

    A copy of the database alone, as an upgrade makes it, belongs to the files that are there.
    """
    places = {
        "archive": archive_path(settings),
        "snapshots": snapshots_path(settings),
        "keys": settings.home,
    }
    if not any("/" in name for name in checked.digests):
        return places
    used: list[Path] = []
    for place in (places["archive"], places["snapshots"]):
        if place.is_dir() and any(place.iterdir()):
            used.append(place)
    for path in sorted(settings.home.glob("*.key")):
        # That of backups may be brought along: the next ones are signed as the last were.
        if path.name != KEY:
            used.append(path)
    if used:
        raise UsageError(
            f"this instance is in use: {used[0]} exists",
            hint="restore into a new MEDLIVE_HOME",
        )
    return places


def _copy(
    folder: Path, name: str, place: Path, new_name: str, checked: Checked
) -> None:
    """Copy a file of the backup. Raises BadInput if it is not what was checked."""
    with writing(place):
        copied = copy_file(folder, name, place, new_name)
    if copied != checked.digests[name]:
        raise BadInput(
            f"{folder}: {name} changed while it was being restored",
            hint="find out who writes there; empty this instance, and restore a copy that nobody else can write",
        )


def _other_takedowns(
    folder: Path, keys: Sequence[PublicKey] | None, skipped: list[str]
) -> Iterator[Takedown]:
    """Yield the takedowns of every backup beside this one; those that prove nothing are named in `skipped`."""
    for place in sorted(folder.absolute().parent.iterdir()):
        if place.is_symlink() or not os.path.lexists(place / TAKEDOWNS):
            continue
        try:
            if digest_of(place, TAKEDOWNS) != _digests_of(place, keys).get(TAKEDOWNS):
                raise BadInput(f"{place}: {TAKEDOWNS} is not as {SUMS} says")
            for line in read_whole(place, TAKEDOWNS).splitlines():
                yield Takedown.model_validate_json(line)
        except (MedliveError, ValidationError) as exc:
            skipped.append(f"takedowns of {place}: {describe(exc)}")
