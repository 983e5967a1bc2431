"""`medlive backup` and `restore`: everything that cannot be made again, as one folder, and back."""

from pathlib import Path
from typing import Annotated

from typer import Option

from medlive.cli.options import read_settings
from medlive.cli.output import Result, wait_for
from medlive.errors import UsageError
from medlive.service.backup.contents import public_keys
from medlive.service.backup.make import make_backup
from medlive.service.backup.restore import check_backup, restore_backup, try_backup


def backup(
    out: Path,
) -> Result:
    """Write the database, raw pages, snapshots and keys into a folder; other processes may go on.

    It holds keys and patients' words: keep it where only you can read it. Evidence, the signing key and the key
    that signs backups are not in it. Keep the public key that is shown elsewhere: a restore asks for it.

    Args:
        out: The folder to write; it must not exist.
    """
    done = wait_for(make_backup(read_settings(), out))
    rows = sum(done["rows"].values())
    text = f"{out}: {rows} rows, {len(done['archives'])} files of pages, {len(done['snapshots'])} snapshots"
    signed = f"signed; keep its public key for a restore: {done['public_key']}"
    return Result(done, notes=[text, signed])


def restore(
    folder: Path,
    public_key: Annotated[list[str] | None, Option(metavar="KEY")] = None,
    unverified: bool = False,
    check: bool = False,
    scratch: bool = False,
) -> Result:
    """Restore a backup into this instance, which must be empty, after checking its signature and every digest.

    Without --public-key this instance's own `backup.key` must have signed it. Threads that were taken down since,
    as a later backup beside this one says, are taken down again.

    Args:
        folder: The backup.
        public_key: A key, or its file, that may have signed it; more than once for several.
        unverified: Ask for no signature: whoever wrote the folder runs SQL of theirs.
        check: Only check it: nothing is restored.
        scratch: With --check: restore it into a scratch database too, compare, and drop that.
    """
    if unverified and public_key:
        raise UsageError(
            "--unverified asks for no signature, --public-key for one",
            hint="give one of the two",
        )
    if scratch and not check:
        raise UsageError(
            "--scratch is part of a check", hint="--check --scratch, or neither"
        )
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", hint="name a backup's folder")
    settings = read_settings()
    keys = None if unverified else public_keys(settings, public_key or ())
    if check:
        if scratch:
            about = wait_for(try_backup(settings, folder, keys))
        else:
            about, _ = check_backup(folder, keys)
        text = f"the backup of {about.created_at.isoformat()} is whole"
        if not unverified:
            text += " and signed"
        if scratch:
            text += f", and its {sum(about.rows.values())} rows come back"
        return Result(about.model_dump(mode="json"), notes=[text])
    done = wait_for(restore_backup(settings, folder, keys))
    notes = [f"taken down again: {name}" for name in done["taken_down"]]
    notes += [f"not applied: {reason}" for reason in done["skipped"]]
    text = f"restored the backup of {done['created_at']}: {sum(done['rows'].values())} rows"
    return Result(done, notes=[text, *notes])
