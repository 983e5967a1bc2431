"""Write a backup (`make_backup`), the weekly ones (`back_up_week`), and the copy before an `upgrade_database`.

The folder holds `database.dump` (pg_dump's own format), `archive/`, `snapshots/`, `keys/`, `takedowns.jsonl`,
`backup.json`, `SHA256SUMS` and its signature. The database is dumped first, in one transaction: files only grow, so
that the files copied later hold all that its rows point to. A backup has neither the evidence, which is built again
from its corpora, nor the key that signs backups.
"""

import asyncio
import logging
import os
import shutil
import tempfile
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from medlive import __version__
from medlive.clock import now
from medlive.config import Settings
from medlive.db.backups import (
    count_rows,
    export_snapshot,
    list_takedowns,
    server_version,
)
from medlive.db.harvest.fetches import list_archives
from medlive.db.release.snapshots import list_snapshots
from medlive.db.schema.migrate import head, read_plan
from medlive.db.schema.migrate import upgrade as migrate
from medlive.db.session import Database
from medlive.errors import (
    CheckFailed,
    DatabaseForbidden,
    DatabaseUnavailable,
    MedliveError,
    UsageError,
    describe,
)
from medlive.instance.paths import archive_path, snapshots_path
from medlive.integrity.folder import SUMS, sums_text, sync
from medlive.integrity.log import writing
from medlive.integrity.paths import PRIVATE_FILE, path_below
from medlive.integrity.signing import PublicKey, SecretKey
from medlive.service.database import database_url, open_database
from medlive.snapshot.model import VERSION, folder_name

from .contents import (
    ABOUT,
    BARE,
    DUMP,
    TAKEDOWNS,
    About,
    Takedown,
    check_seal,
    copy_file,
    digest_of,
    key_path,
    make_private_folder,
    plain_files,
    run_program,
    seal,
    secret_key,
)
from .restore import TrialImpossible, try_backup

_log = logging.getLogger(__name__)


async def make_backup(settings: Settings, out: Path) -> dict[str, Any]:
    """Write a signed backup into the new folder `out`; return what is in it. Other processes may go on working.

    Raises:
        UsageError: for a folder that exists, and for a key that cannot be used.
        CheckFailed: when raw pages were removed meanwhile (run it again).
        BadInput: when something that is to be copied is a link or a special file.
        DatabaseUnavailable: without the database.
        ServiceUnavailable: where pg_dump fails.
        DiskFull: when no space is left.
    """
    async with open_database(settings) as database:
        about = await _write(settings, database, out, head(), files=True)
    return about.model_dump(mode="json") | {
        "folder": str(out),
        "public_key": secret_key(settings).public.line(),
    }


async def _write(
    settings: Settings, database: Database, out: Path, revision: str, *, files: bool
) -> About:
    """Write a signed copy of the database and, with `files`, of the files that its rows point to; what is in it."""
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
                    if snapshot.state == "frozen":
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
                await asyncio.to_thread(_copy_files, settings, draft, about, erased)
            await asyncio.to_thread(_seal, draft, out, about, key)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return about


async def upgrade_database(settings: Settings, *, copy: bool) -> dict[str, Any]:
    """Bring the schema to this version, after a copy of a database that is in use.

    Args:
        settings: The settings.
        copy: Whether to make the copy.

    Returns:
        "was" and "head", the revisions before (None: the database was empty) and after; "migrations", how many
        were applied; "copy", its folder or None.

    Raises:
        ConfigError: where the database is newer than this program.
        DatabaseUnavailable: without the database, or while another process holds a lock.
        DiskFull: where the copy has no room; nothing was upgraded.
        ServiceUnavailable: where pg_dump fails; nothing was upgraded.
    """
    url = database_url(settings)
    plan = await asyncio.to_thread(read_plan, url)
    out = None
    if plan.migrations and plan.revision and copy:
        name = f"{plan.revision}-{now():%Y%m%dT%H%M%SZ}"
        out = settings.home / "upgrades" / name
        make_private_folder(out.parent)
        async with aclosing(Database.connect(url)) as database:
            await _write(settings, database, out, plan.revision, files=False)
    await asyncio.to_thread(migrate, url)
    return {
        "was": plan.revision,
        "head": plan.head,
        "migrations": len(plan.migrations),
        "copy": out,
    }


async def back_up_week(
    database: Database, settings: Settings, week: str
) -> dict[str, Any]:
    """Write the week's backup into the configured folder, try to restore it, and remove all but the latest weeks.

    Only backups that this instance signed under their week's name count; whatever else lies there stays. Nothing
    is removed where the week's backup fails its trial. "check" says how the trial ended: passed, failed, impossible
    or off.

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
    key, out = secret_key(settings).public, folder / week
    counts: dict[str, Any] = {}
    await asyncio.to_thread(_remove_drafts, folder)
    if not await asyncio.to_thread(os.path.lexists, out):
        about = await make_backup(settings, out)
        counts["rows"] = sum(about["rows"].values())
    elif not await asyncio.to_thread(_is_own, out, key):
        raise CheckFailed(
            f"{out} is not a backup that this instance wrote for that week",
            hint="find out who put it there, and move it away",
        )
    counts["check"] = "off"
    if settings.backup.check:
        try:
            await try_backup(settings, out, [key])
            counts["check"] = "passed"
        except DatabaseUnavailable:
            raise
        except (TrialImpossible, DatabaseForbidden) as error:
            counts |= {"check": "impossible", "why": error.whole}
        except MedliveError as error:
            problem = f"the restore check failed: {describe(error)}"
            return counts | {"check": "failed", "problem": problem}
    surplus = (await asyncio.to_thread(_own_weeks, folder, key))[:-keep]
    for old in surplus:
        await asyncio.to_thread(shutil.rmtree, old)
    return counts | {"removed": len(surplus)}


def _remove_drafts(folder: Path) -> None:
    """Remove unfinished weekly backups that a kill or a power cut left: they hold patients' words and fill the disk."""
    for draft in folder.glob(".*-*"):
        week, _, _ = draft.name[1:].rpartition("-")
        if VERSION.fullmatch(week) and draft.is_dir() and not draft.is_symlink():
            shutil.rmtree(draft, ignore_errors=True)


def _own_weeks(folder: Path, key: PublicKey) -> list[Path]:
    """Return the weekly backups that this instance signed, the oldest first; name others in the log."""
    weeks = []
    for path in sorted(folder.iterdir()):
        if not VERSION.fullmatch(path.name) or not os.path.lexists(path / SUMS):
            continue
        if _is_own(path, key):
            weeks.append(path)
        else:
            _log.warning(
                "not signed by this instance under that name, and left: %s", path
            )
    return weeks


def _is_own(folder: Path, key: PublicKey) -> bool:
    """Whether this instance signed the backup under the name of its folder."""
    try:
        return not folder.is_symlink() and check_seal(folder, [key])[0] == folder.name
    except MedliveError:
        return False


def _begin(out: Path) -> Path:
    """Make a folder beside `out`, which nobody else may read; it becomes `out` when it is complete."""
    if os.path.lexists(out):
        raise UsageError(f"{out} exists", hint="name a new folder")
    parent = out.absolute().parent
    with writing(out):
        parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=parent))
        (draft / DUMP).touch(PRIVATE_FILE)
    return draft


def _seal(draft: Path, out: Path, about: About, key: SecretKey) -> None:
    """Write `backup.json` and SHA256SUMS, sign them, and rename the draft to `out`."""
    (draft / ABOUT).write_text(about.model_dump_json(indent=1), encoding="utf-8")
    digests = {name: digest_of(draft, name) for name in plain_files(draft)}
    (draft / SUMS).write_text(sums_text(digests), encoding="utf-8")
    seal(draft, out.name, about.created_at.isoformat(), key)
    for name in ("", *digests, SUMS):
        sync(draft / name)
    draft.rename(out)


def _copy_files(
    settings: Settings, draft: Path, about: About, erased: dict[tuple[str, str], str]
) -> None:
    """Copy the files that the dump's rows point to, and list the takedowns (`erased`).

    Raises CheckFailed if a file of raw pages is shorter than its rows say.
    """
    short = []
    for name, size in about.archives.items():
        copy = draft / "archive" / name
        _copy(archive_path(settings), name, draft, f"archive/{name}")
        if not copy.exists() or copy.stat().st_size < size:
            short.append(name)
    if short:
        raise CheckFailed(
            f"raw pages are missing or were removed meanwhile: {', '.join(short)}",
            hint="run it again; if it says so again, `medlive source check`",
        )
    # Frozen snapshots, where they are there, and what lies beside them
    place, names = snapshots_path(settings), list[str]()
    for version in about.snapshots:
        folder = path_below(place, folder_name(version))
        if folder.is_dir():
            names += [f"{folder.name}/{name}" for name in plain_files(folder)]
    names += [path.name for path in place.glob("[!.]*") if not path.is_dir()]
    for name in names:
        _copy(place, name, draft, f"snapshots/{name}")
    for path in settings.home.glob("*.key"):
        # Whoever reads a backup must not sign another.
        if path.absolute() != key_path(settings).absolute():
            _copy(settings.home, path.name, draft, f"keys/{path.name}")
    with (draft / TAKEDOWNS).open("w", encoding="utf-8") as lines:
        for (source, thread_id), reason in erased.items():
            takedown = Takedown(source=source, thread_id=thread_id, reason=reason)
            lines.write(takedown.model_dump_json() + "\n")


def _copy(source: Path, name: str, draft: Path, target: str) -> None:
    """Copy a file, if it is there."""
    with suppress(FileNotFoundError):
        copy_file(source, name, draft, target)
