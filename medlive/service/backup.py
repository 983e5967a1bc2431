"""Backups: the database, the raw pages, the frozen snapshots and this instance's keys as one folder, and back.

The folder holds `database.dump` (pg_dump's own format), `archive/`, `snapshots/`, `keys/`, `takedowns.jsonl`,
`backup.json` and `SHA256SUMS`. The database is dumped first, in one transaction: files only grow, so that those
copied later hold all that its rows point to. Evidence is not in it; it is built from its corpora.
"""

import asyncio
import errno
import json
import os
import shutil
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from medlive import __version__
from medlive.child_environment import LIBPQ, child_environment
from medlive.clock import now
from medlive.config import Settings
from medlive.db.backups import count_rows, export_snapshot, list_takedowns, server_version
from medlive.db.embedded import find_program
from medlive.db.harvest.archives import list_archives
from medlive.db.migrate import head
from medlive.db.release.snapshots import list_snapshots
from medlive.db.session import Database, parse_url
from medlive.db.tables.release import SnapshotState
from medlive.errors import BadInput, CheckFailed, DiskFull, ServiceUnavailable, UsageError
from medlive.integrity.folder import sha256, sync, writing_to
from medlive.service.database import database_url, open_database
from medlive.service.harvest.takedown import take_down
from medlive.service.paths import archive_path, snapshots_path
from medlive.snapshot.identity import folder_name
from medlive.snapshot.model import VERSION

DUMP: Final = "database.dump"
SUMS: Final = "SHA256SUMS"
TAKEDOWNS: Final = "takedowns.jsonl"
_BARE: Final = ("--no-owner", "--no-acl")
"""Rights belong to the server; `medlive db roles` gives them anew."""


async def make_backup(settings: Settings, out: Path) -> dict[str, Any]:
    """Write a backup into the new folder `out`; what is in it. Other processes may go on working.

    Raises UsageError for a folder that exists, CheckFailed when raw pages were removed meanwhile (run it again),
    DatabaseUnavailable, ServiceUnavailable where pg_dump fails, and DiskFull.
    """
    draft = _begin(out)
    try:
        async with open_database(settings) as database, database.begin() as session:
            same = f"--snapshot={await export_snapshot(session)}"
            frozen = [s.version for s in await list_snapshots(session) if s.state is SnapshotState.FROZEN]
            kept = await list_archives(session)
            down = await list_takedowns(session)
            rows = await count_rows(session)
            dump = ("--format=custom", *_BARE, f"--file={draft / DUMP}", same)
            await _run_program(settings, "pg_dump", await server_version(session), *dump)
        about = {
            "format": 1, "created_at": now().isoformat(), "medlive": __version__, "schema": head(),
            "rows": rows, "archives": {a.path: a.bytes for a in kept}, "snapshots": frozen,
        }  # fmt: skip
        takedowns = [{"source": s, "thread_id": t, "reason": r} for s, t, r in down]
        await asyncio.to_thread(_finish, settings, draft, out, about, takedowns)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return about | {"folder": str(out)}


async def back_up_week(database: Database, settings: Settings, week: str) -> dict[str, Any]:
    """Write the week's backup into the configured folder, and remove all but the latest of its weeks.

    Raises what `make_backup` raises.
    """
    folder, keep = settings.backup.folder, settings.backup.keep
    if folder is None:
        raise UsageError("no folder for backups is configured", hint="[backup] folder in config/medlive.toml")
    counts: dict[str, Any] = {}
    if not (folder / week).exists():
        about = await make_backup(settings, folder / week)
        counts = {"rows": sum(about["rows"].values()), "archives": len(about["archives"])}
        counts["snapshots"] = len(about["snapshots"])
    weeks = (path for path in folder.iterdir() if VERSION.fullmatch(path.name) and (path / SUMS).is_file())
    surplus = sorted(weeks)[:-keep]
    for old in surplus:
        await asyncio.to_thread(shutil.rmtree, old)
    return counts | {"removed": len(surplus)}


def _finish(
    settings: Settings, draft: Path, out: Path, about: dict[str, Any], takedowns: list[dict[str, str]]
) -> None:
    """Copy the files that the dump's rows point to, note what is in the backup, and give it its name."""
    with writing_to(draft):
        kept: dict[str, int] = about["archives"]
        _copy_files(settings, draft, [*kept], [folder_name(v) for v in about["snapshots"]])
        _write_lines(draft / TAKEDOWNS, takedowns)
        (draft / "backup.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
        short = [path for path, size in kept.items() if _size(draft / "archive" / path) < size]
        if short:
            raise CheckFailed(
                f"raw pages are missing or were removed meanwhile: {', '.join(short)}",
                hint="run it again; if it says so again, `medlive source check`",
            )
        sums = "".join(f"{sha256(draft / name)}  {name}\n" for name in _names(draft))
        (draft / SUMS).write_text(sums, encoding="utf-8")
        sync(*(draft / name for name in _names(draft)), draft)
        draft.rename(out)


async def restore_backup(settings: Settings, folder: Path) -> dict[str, Any]:
    """Restore a backup into this empty instance, and verify it; what was in it, and what was taken down again.

    Takedowns that a backup beside this one lists are applied: a thread that was erased since does not come back.
    Raises BadInput for a damaged backup, UsageError for an instance that is in use, and DatabaseUnavailable.
    """
    about = _check(folder)
    places = _empty_places(settings)
    url = database_url(settings)
    database = Database.connect(url)
    try:
        async with database.begin() as session:
            if await count_rows(session):
                raise UsageError("this instance is in use: its database has tables", hint="name an empty one")
            version = await server_version(session)
    finally:
        await database.aclose()
    whole = ("--exit-on-error", "--single-transaction")
    await _run_program(settings, "pg_restore", version, *whole, *_BARE, str(folder / DUMP))
    _put_back(folder, places)
    again: list[str] = []
    async with open_database(settings) as database:
        async with database.begin() as session:
            erased = {(source, thread_id) for source, thread_id, _ in await list_takedowns(session)}
        for one in _later_takedowns(folder):
            if (one["source"], one["thread_id"]) not in erased:
                await take_down(database, settings, one["source"], one["thread_id"], one["reason"])
                erased.add((one["source"], one["thread_id"]))
                again.append(f"{one['source']}/{one['thread_id']}")
    return about | {"taken_down": again}


def _begin(out: Path) -> Path:
    """A folder beside `out`, which nobody else may read; it becomes `out` when it is complete."""
    if os.path.lexists(out):
        raise UsageError(f"{out} exists", hint="name a new folder")
    with writing_to(out):
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.absolute().parent))


def _empty_places(settings: Settings) -> dict[str, Path]:
    """A backup's folder → where its files go. Raises UsageError when there are files already."""
    places = {"archive": archive_path(settings), "snapshots": snapshots_path(settings), "keys": settings.home}
    used = [p for n, p in places.items() if n != "keys" and p.is_dir() and any(p.iterdir())]
    if used := [*used, *sorted(settings.home.glob("*.key"))]:
        raise UsageError(f"this instance is in use: {used[0]} is there", hint="restore into a new MEDLIVE_HOME")
    return places


def _check(folder: Path) -> dict[str, Any]:
    """What a backup says of itself, when every file has the digest that SHA256SUMS gives."""
    try:
        sums = (folder / SUMS).read_text(encoding="utf-8").splitlines()
        listed = {line[66:]: line[:64] for line in sums}
        present = set(_names(folder)) - {SUMS}
        wrong = sorted(present ^ set(listed)) or [n for n in sorted(listed) if sha256(folder / n) != listed[n]]
        if wrong:
            raise BadInput(f"{folder}: {wrong[0]} is not as {SUMS} says", hint="restore another backup")
        about: dict[str, Any] = json.loads((folder / "backup.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise BadInput(f"{folder} is not a backup: {exc}") from exc
    return about


def _put_back(folder: Path, places: dict[str, Path]) -> None:
    for name, place in places.items():
        if (folder / name).is_dir():
            with writing_to(place):
                shutil.copytree(folder / name, place, dirs_exist_ok=True)


def _later_takedowns(folder: Path) -> Iterator[dict[str, str]]:
    for file in sorted(folder.absolute().parent.glob(f"*/{TAKEDOWNS}")):
        for line in file.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def _copy_files(settings: Settings, draft: Path, archives: list[str], snapshots: list[str]) -> None:
    place = snapshots_path(settings)
    wanted = [(archive_path(settings) / path, draft / "archive" / path) for path in archives]
    wanted += [(place / name, draft / "snapshots" / name) for name in snapshots]
    wanted += [(file, draft / "snapshots" / file.name) for file in place.glob("[!.]*") if file.is_file()]
    wanted += [(file, draft / "keys" / file.name) for file in settings.home.glob("*.key")]
    for source, target in wanted:
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        elif source.is_file():
            shutil.copy2(source, target)


async def _run_program(settings: Settings, name: str, server: int, *options: str) -> None:
    """Run one of PostgreSQL's programs on this instance's database, a server of this major version."""
    url = parse_url(database_url(settings)).set(drivername="postgresql")
    secret = {"PGPASSWORD": url.password} if url.password else {}
    shown = url.set(password=None).render_as_string(hide_password=False)
    command: list[str | Path] = [find_program(name, server), *options, f"--dbname={shown}"]
    running = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env=child_environment(*LIBPQ, values=secret)
    )
    try:
        _, said = await running.communicate()
    except asyncio.CancelledError:
        running.kill()
        raise
    if running.returncode:
        lines = said.decode(errors="replace").strip().splitlines() or ["no message"]
        reason = next((line for line in lines if "error:" in line), lines[-1])
        hint = "it needs the database's owner, and to restore a PostgreSQL as new as the backup's"
        if os.strerror(errno.ENOSPC) in reason:
            raise DiskFull(f"{name} failed: {reason}", hint="free some space and run this again")
        raise ServiceUnavailable(f"{name} failed: {reason}", hint=hint)


def _names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


def _write_lines(path: Path, values: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values), encoding="utf-8")
