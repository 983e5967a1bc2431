"""Publish a frozen snapshot to the target that the command or the configuration names."""

from pathlib import Path

from medlive.config import PublishSection, Settings
from medlive.errors import BadInput, UsageError
from medlive.instance.paths import snapshot_folder, snapshots_path
from medlive.integrity.signing import PublicKey
from medlive.publishing.publish import Published, prepare_release, publish
from medlive.publishing.target import FolderTarget, Target
from medlive.snapshot.describe.feed import Place, safe_base
from medlive.snapshot.identity import folder_name
from medlive.snapshot.model import week_end


def find_snapshot(settings: Settings, version_or_path: str | None) -> Path:
    """The folder to publish; None for the newest frozen one. Raises BadInput when there is none."""
    if version_or_path is not None:
        folder = snapshot_folder(settings, version_or_path)
        if not folder.is_dir():
            raise BadInput(f"{folder} does not exist")
        return folder
    home = snapshots_path(settings)
    prefix = folder_name("")
    versions = []
    for entry in home.glob(f"{prefix}*"):
        version = entry.name.removeprefix(prefix)
        if week_end(version) is not None:
            versions.append(version)
    if not versions:
        raise BadInput(
            f"no frozen snapshot in {home}", hint="run medlive snapshot freeze"
        )
    return home / folder_name(max(versions))


def publish_snapshot(
    section: PublishSection,
    folder: Path,
    public_key: PublicKey | None,
    *,
    dry_run: bool,
) -> Published:
    """Verify the folder and publish it.

    Raises what `prepare_release`, `publish` and the targets raise, and UsageError for a missing or invalid target.
    """
    to, at, base_url = section.to, section.at, section.base_url
    endpoint_url = section.endpoint_url
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
    if to == "huggingface":
        from medlive.publishing.targets.huggingface import HubRepository

        repository = HubRepository(at, endpoint_url=endpoint_url)
        return repository.publish(prepared, dry_run=dry_run)
    place = Place(base_url)
    target: Target
    if to == "s3":
        from medlive.publishing.targets.s3 import S3Target

        target = S3Target(at, endpoint_url=endpoint_url)
    elif "://" not in at:
        target = FolderTarget(Path(at).expanduser())
    else:
        raise UsageError(
            f"{at!r} is not a folder",
            hint="give --to s3 or --to huggingface for a remote target",
        )
    return publish(prepared, target, place, dry_run=dry_run)
