"""What follows a freeze each week: the snapshot is verified, published where that is wanted, and announced."""

import asyncio
from typing import Any

from medlive.config import Settings
from medlive.db.release.snapshots import find_snapshot, load_fixed
from medlive.db.session import Database
from medlive.db.tables.release import SnapshotRow
from medlive.errors import BadInput
from medlive.instance.paths import snapshot_folder
from medlive.service.release.publish import publish_snapshot
from medlive.service.watch.notify import write_message
from medlive.snapshot.verify.run import verify_snapshot


async def verify_week(
    database: Database, settings: Settings, week: str
) -> dict[str, Any]:
    """Verify the week's folder, every step; "problem" names the steps that fail."""
    report = await asyncio.to_thread(verify_snapshot, snapshot_folder(settings, week))
    return {"steps": len(report.steps)} | (
        {} if report.ok else {"problem": report.summary()}
    )


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
        dry_run=False,
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
        if fixed is not None and fixed.partial is not None:
            text += f"\npartial: {fixed.partial.in_short}"
        return {
            "messages": await write_message(
                session,
                settings.notify,
                "released",
                week,
                text,
            )
        }


async def _load_frozen(database: Database, week: str) -> SnapshotRow:
    async with database.begin() as session:
        info = await find_snapshot(session, week)
    if info is None or info.frozen_at is None:
        raise BadInput(f"{week} is not frozen")
    return info
