"""What follows a freeze: the snapshot is verified, published to the configured target, and announced."""

import asyncio
from pathlib import Path
from typing import Any

from medlive.config import PublishSection, Settings
from medlive.db.release.snapshots import find_snapshot, load_fixed
from medlive.db.session import Database
from medlive.db.tables.release import SnapshotRow
from medlive.errors import BadInput, UsageError
from medlive.instance.paths import snapshot_folder, snapshots_path
from medlive.integrity.signing import PublicKey
from medlive.publishing.publish import Published, Target, prepare_release, publish
from medlive.publishing.s3 import S3Target
from medlive.publishing.target import FolderTarget
from medlive.service.watch.notify import write_message
from medlive.snapshot.describe.feed import safe_base
from medlive.snapshot.model import version_of
from medlive.snapshot.verify.steps import verify_snapshot


def find_folder(settings: Settings, version_or_path: str | None) -> Path:
    """The folder to publish; None for the newest one here. Raises BadInput when there is none."""
    if version_or_path is not None:
        folder = snapshot_folder(settings, version_or_path)
        if not folder.is_dir():
            raise BadInput(f"{folder} does not exist")
        return folder
    home = snapshots_path(settings)
    folders = [path for path in home.glob("*") if version_of(path.name)]
    if not folders:
        raise BadInput(
            f"no frozen snapshot in {home}", hint="run medlive snapshot freeze"
        )
    return max(folders)


def publish_snapshot(
    section: PublishSection,
    folder: Path,
    public_key: PublicKey | None,
) -> Published:
    """Verify the folder and publish it.

    Raises what `prepare_release`, `publish` and the targets raise, and UsageError for a missing or invalid target.
    """
    at, base_url = section.at, section.base_url
    if at is None:
        raise UsageError(
            "no publishing target is set",
            hint="give --at, or set `at` under [publish] in medlive.toml",
        )
    if base_url is not None and not safe_base(base_url):
        raise UsageError(
            f"{base_url!r} is not a public address", hint="expected https://host/path"
        )
    prepared = prepare_release(folder, public_key)
    if section.to == "huggingface":
        from medlive.publishing.huggingface import HubRepository

        repository = HubRepository(at, endpoint_url=section.endpoint_url)
        return repository.publish(prepared)
    target: Target
    if section.to == "s3":
        target = S3Target(at, endpoint_url=section.endpoint_url)
    elif "://" not in at:
        target = FolderTarget(Path(at).expanduser())
    else:
        raise UsageError(
            f"{at!r} is not a folder",
            hint="give --to s3 or --to huggingface for a remote target",
        )
    return publish(prepared, target, base_url)


async def verify_week(
    database: Database, settings: Settings, week: str
) -> dict[str, Any]:
    """Verify the week's folder, every step; "problem" names the steps that fail."""
    report = await asyncio.to_thread(verify_snapshot, snapshot_folder(settings, week))
    counts: dict[str, Any] = {"steps": len(report.steps)}
    if not report.ok:
        counts["problem"] = report.summary()
    return counts


async def publish_week(
    database: Database, settings: Settings, week: str
) -> dict[str, Any]:
    """Publish the week to the configured place; a week that its gates mark unpublishable is withheld.

    Raises what `publish_snapshot` raises.
    """
    info = await _load_frozen(database, week)
    if not info.publishable:
        return {"withheld": list(info.why_not or ())}
    done = await asyncio.to_thread(
        publish_snapshot,
        settings.publish,
        snapshot_folder(settings, week),
        None,
    )
    return {
        "where": done.where,
        "sent": len(done.sent),
        "already": len(done.already),
        "signed": done.signed,
    }


async def announce_week(
    database: Database, settings: Settings, week: str
) -> dict[str, Any]:
    """Write messages about the release, or why it was withheld; the scheduler sends them until they are taken."""
    info = await _load_frozen(database, week)
    if info.publishable:
        text = f"{week} is published: {info.cases} cases, {info.criteria} criteria, at {settings.publish.at}"
    else:
        text = f"{week} is frozen and withheld\n" + "\n".join(info.why_not or ())
    async with database.begin() as session:
        fixed = await load_fixed(session, week)
        if fixed and fixed.partial:
            text += f"\npartial: {fixed.partial.in_short}"
        places = await write_message(session, settings.notify, "released", week, text)
        return {"messages": places}


async def _load_frozen(database: Database, week: str) -> SnapshotRow:
    """The week's snapshot. Raises BadInput unless it is frozen."""
    info = await database.ask(find_snapshot, week)
    if info is None or info.frozen_at is None:
        raise BadInput(f"{week} is not frozen")
    return info
