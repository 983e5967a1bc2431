"""Check the audit log's chain of digests against the heads of the log that frozen snapshots state."""

import asyncio
from pathlib import Path

from pydantic import ValidationError

from medlive.config import Settings
from medlive.db.audit_log import LogCheck, verify_log
from medlive.db.release.snapshots import list_log_heads
from medlive.db.session import Database
from medlive.errors import BadInput
from medlive.instance.paths import snapshots_path
from medlive.integrity.folder import TooLong, read_small
from medlive.snapshot.manifest import AuditLogHead, Manifest
from medlive.snapshot.model import folder_name


async def verify_audit_log(
    database: Database,
    settings: Settings,
    *,
    head: str | None = None,
    snapshots: Path | None = None,
) -> tuple[LogCheck, int]:
    """Check the audit log's chain, and its anchors: the heads that snapshots state, in the database and in manifests.

    Args:
        database: The log's database.
        settings: The instance's settings.
        head: A digest that the log must hold.
        snapshots: A folder of snapshot folders; None for this instance's own.

    Returns:
        What the check found, and the number of anchors that it compared.

    Raises:
        BadInput: If a manifest in the folder cannot be read.
    """
    anchors = await asyncio.to_thread(
        read_anchors, snapshots or snapshots_path(settings)
    )
    async with database.begin() as session:
        for version, stated in (await list_log_heads(session)).items():
            anchors[f"snapshot {version} in the database"] = stated
        return await verify_log(session, head=head, anchors=anchors), len(anchors)


def read_anchors(folder: Path) -> dict[str, AuditLogHead]:
    """Read the audit log's head from the manifest of each snapshot in a folder (which need not exist).

    Raises BadInput for a manifest that cannot be read.
    """
    anchors = {}
    for place in sorted(folder.glob(folder_name("*"))):
        try:
            manifest = Manifest.model_validate_json(read_small(place / "manifest.json"))
        except (OSError, TooLong, ValidationError, BadInput) as exc:
            raise BadInput(
                f"{place.name}/manifest.json cannot be read: {type(exc).__name__}",
                hint="medlive snapshot verify says what is wrong with the folder",
            ) from exc
        if manifest.audit_log:
            anchors[f"{place.name}/manifest.json"] = manifest.audit_log
    return anchors
