"""Writing a backup, and the weekly ones.

The folder holds `database.dump` (pg_dump's own format), `archive/`, `snapshots/`, `keys/`, `takedowns.jsonl`,
`backup.json`, `SHA256SUMS` and its signature. The database is dumped first, in one transaction: files only grow,
so that those copied later hold all that its rows point to. Evidence is not in it, which is built from its corpora,
nor is the key that signs it.
"""

import asyncio
import logging
import os
import shutil
import tempfile
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

from medlive import __version__
from medlive.clock import now
from medlive.config import Settings
from medlive.db.backups import (
    count_rows,
    export_snapshot,
    list_takedowns,
    server_version,
)
from medlive.db.harvest.archives import list_archives
from medlive.db.release.snapshots import list_snapshots
from medlive.db.schema.revisions import head
from medlive.db.session import Database
from medlive.db.tables.release import SnapshotState
from medlive.errors import (
    CheckFailed,
    DatabaseUnavailable,
    MedliveError,
    UsageError,
    describe,
)
from medlive.instance.paths import archive_path, snapshots_path
from medlive.integrity.folder import sync
from medlive.integrity.log import writing
from medlive.integrity.paths import PRIVATE_FILE, path_below
from medlive.integrity.signing import PublicKey, SecretKey
from medlive.service.backup.contents import (
    ABOUT,
    DUMP,
    SUMS,
    TAKEDOWNS,
    About,
    Takedown,
    TrialOutcome,
    copy_file,
    digest_of,
    format_sums,
    plain_files,
)
from medlive.service.backup.programs import BARE, run_program
from medlive.service.backup.seal import check_seal, key_path, seal, secret_key
from medlive.service.backup.trial import TrialImpossible, try_backup
from medlive.service.database import database_url, open_database
from medlive.snapshot.identity import folder_name
from medlive.snapshot.model import VERSION

_log: Final = logging.getLogger(__name__)


async def make_backup(settings: Settings, out: Path) -> dict[str, Any]:
    """Write a signed backup into the new folder `out`; what is in it. Other processes may go on working.

    Raises:
        UsageError: for a folder that exists, and for a key that cannot be used.
        CheckFailed: when raw pages were removed meanwhile (run it again).
        BadInput: when something that is to be copied is a link or a special file.
        DatabaseUnavailable: without the database.
        ServiceUnavailable: where pg_dump fails.
        DiskFull: when no space is left.
    """
    async with open_database(settings) as database:
        about = await _write(
            settings,
            database,
            out,
            head(),
            files=True,
        )
    return about.model_dump(mode="json") | {
        "folder": str(out),
        "public_key": secret_key(settings).public.line(),
    }


async def copy_database(settings: Settings, revision: str, out: Path) -> None:
    """Write a signed copy of the database alone, whatever version its schema is of, into the new folder `out`.

    Args:
        settings: The settings.
        revision: The schema's revision.
        out: The folder.

    Raises:
        UsageError: for a folder that exists, and for a key that cannot be used.
        DatabaseUnavailable: without the database.
        ServiceUnavailable: where pg_dump fails.
        DiskFull: when no space is left.
    """
    async with aclosing(Database.connect(database_url(settings))) as database:
        await _write(
            settings,
            database,
            out,
            revision,
            files=False,
        )


async def _write(
    settings: Settings, database: Database, out: Path, revision: str, *, files: bool
) -> About:
    """Write a signed copy of the database, and of the files that its rows point to; what is in it."""
    key = secret_key(settings)
    draft = _begin(out)
    archives: dict[str, int] = {}
    frozen: list[str] = []
    erased: dict[tuple[str, str], str] = {}
    try:
        async with database.begin() as session:
            same = f"--snapshot={await export_snapshot(session)}"
            rows = await count_rows(session)
            if files:
                archives = {a.path: a.bytes for a in await list_archives(session)}
                erased = await list_takedowns(session)
                for snapshot in await list_snapshots(session):
                    if snapshot.state is SnapshotState.FROZEN:
                        frozen.append(snapshot.version)
            dump = ("--format=custom", *BARE, f"--file={draft / DUMP}", same)
            await run_program(settings, "pg_dump", await server_version(session), *dump)
        about = About(
            created_at=now(),
            medlive=__version__,
            schema_revision=revision,
            rows=rows,
            archives=archives,
            snapshots=frozen,
        )
        with writing(draft):
            if files:
                await asyncio.to_thread(
                    _copy_files,
                    settings,
                    draft,
                    about,
                    erased,
                )
            await asyncio.to_thread(
                _seal,
                draft,
                out,
                about,
                key,
            )
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return about


async def back_up_week(
    database: Database, settings: Settings, week: str
) -> dict[str, Any]:
    """Write the week's backup into the configured folder, try to restore it, and remove all but the latest weeks.

    Only backups that this instance signed under their week's name count; whatever else lies there stays. Nothing
    is removed where the latest does not come back.

    Raises:
        CheckFailed: if something else has the week's name.
        UsageError: if no folder is configured.
        MedliveError: whatever `make_backup` raises.
    """
    folder, keep = settings.backup.folder, settings.backup.keep
    if folder is None:
        raise UsageError(
            "no folder for backups is configured",
            hint="[backup] folder in config/medlive.toml",
        )
    key = secret_key(settings).public
    counts: dict[str, Any] = {}
    if not await asyncio.to_thread(_is_written, folder / week, key):
        about = await make_backup(settings, folder / week)
        counts = {
            "rows": sum(about["rows"].values()),
            "archives": len(about["archives"]),
        }
        counts["snapshots"] = len(about["snapshots"])
    counts |= await _try_week(settings, folder / week, key)
    if counts["check"] == TrialOutcome.FAILED:
        return counts
    surplus = (await asyncio.to_thread(_own_weeks, folder, key))[:-keep]
    for old in surplus:
        await asyncio.to_thread(shutil.rmtree, old)
    return counts | {"removed": len(surplus)}


async def _try_week(settings: Settings, folder: Path, key: PublicKey) -> dict[str, Any]:
    """Try to restore a week's backup; the counts that say how it went."""
    if not settings.backup.check:
        return {"check": TrialOutcome.OFF}
    try:
        trial = await try_backup(settings, folder, [key])
    except DatabaseUnavailable:
        raise
    except TrialImpossible as error:
        return {"check": TrialOutcome.IMPOSSIBLE, "why": describe(error)}
    except MedliveError as error:
        return {
            "check": TrialOutcome.FAILED,
            "problem": f"the restore check failed: {describe(error)}",
        }
    return {
        "check": TrialOutcome.PASSED,
        "restored_tables": trial.tables,
        "restored_rows": trial.rows,
    }


def _is_written(folder: Path, key: PublicKey) -> bool:
    """Return whether a week's backup exists. Raises CheckFailed if something else has its name."""
    if os.path.lexists(folder) and not _is_own(folder, key):
        raise CheckFailed(
            f"{folder} is not a backup that this instance wrote for that week",
            hint="find out who put it there, and move it away",
        )
    return os.path.lexists(folder)


def _own_weeks(folder: Path, key: PublicKey) -> list[Path]:
    """Return the weekly backups of this instance, the oldest first; others are named in the log."""
    weeks: list[Path] = []
    for path in sorted(folder.iterdir()):
        if not VERSION.fullmatch(path.name) or not os.path.lexists(path / SUMS):
            continue
        if _is_own(path, key):
            weeks.append(path)
        else:
            _log.warning(
                "%s is not a backup that this instance signed under that name: it stays",
                path,
            )
    return weeks


def _is_own(folder: Path, key: PublicKey) -> bool:
    try:
        return not folder.is_symlink() and check_seal(folder, [key]).name == folder.name
    except MedliveError:
        return False


def _begin(out: Path) -> Path:
    """Make a folder beside `out`, which nobody else may read; it becomes `out` when it is complete."""
    if os.path.lexists(out):
        raise UsageError(f"{out} exists", hint="name a new folder")
    with writing(out):
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        draft = Path(
            tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.absolute().parent)
        )
        (draft / DUMP).touch(PRIVATE_FILE)
    return draft


def _copy_files(
    settings: Settings, draft: Path, about: About, erased: dict[tuple[str, str], str]
) -> None:
    """Copy the files that the dump's rows point to, and list what must not come back."""
    _copy_archives(archive_path(settings), about.archives, draft)
    _copy_snapshots(snapshots_path(settings), about.snapshots, draft)
    _copy_keys(settings, draft)
    with (draft / TAKEDOWNS).open("w", encoding="utf-8") as lines:
        for (source, thread_id), reason in erased.items():
            takedown = Takedown(source=source, thread_id=thread_id, reason=reason)
            lines.write(takedown.model_dump_json() + "\n")


def _seal(draft: Path, out: Path, about: About, key: SecretKey) -> None:
    """Note what is in the draft, sign it, and give it its name."""
    (draft / ABOUT).write_text(about.model_dump_json(indent=1), encoding="utf-8")
    names = plain_files(draft)
    digests = {name: digest_of(draft, name) for name in names}
    (draft / SUMS).write_text(format_sums(digests), encoding="utf-8")
    seal(draft, out.name, about.created_at.isoformat(), key)
    for name in ("", *names, SUMS):
        sync(draft / name)
    draft.rename(out)


def _copy_archives(place: Path, archives: dict[str, int], draft: Path) -> None:
    """Copy files of raw pages. Raises CheckFailed if one is shorter than its rows say."""
    short: list[str] = []
    for name, size in archives.items():
        target = f"archive/{name}"
        if (
            not _copied(place, name, draft, target)
            or (draft / target).stat().st_size < size
        ):
            short.append(name)
    if short:
        raise CheckFailed(
            f"raw pages are missing or were removed meanwhile: {', '.join(short)}",
            hint="run it again; if it says so again, `medlive source check`",
        )


def _copy_snapshots(place: Path, versions: list[str], draft: Path) -> None:
    """Copy the folders of frozen snapshots, where they are there, and the files beside them."""
    names: list[str] = []
    for version in versions:
        folder = path_below(place, folder_name(version))
        if folder.is_dir():
            names += [f"{folder.name}/{name}" for name in plain_files(folder)]
    if place.is_dir():
        names += [path.name for path in place.glob("[!.]*") if not path.is_dir()]
    for name in names:
        _copied(place, name, draft, f"snapshots/{name}")


def _copy_keys(settings: Settings, draft: Path) -> None:
    """Copy this instance's keys but the one that signs backups: whoever reads a backup must not sign another."""
    for path in settings.home.glob("*.key"):
        if path.absolute() != key_path(settings).absolute():
            _copied(settings.home, path.name, draft, f"keys/{path.name}")


def _copied(source: Path, name: str, draft: Path, target: str) -> bool:
    """Copy a file; return whether it was there."""
    try:
        copy_file(source, name, draft, target)
    except FileNotFoundError:
        return False
    return True
