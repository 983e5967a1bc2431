"""`medlive backup` and `restore`: everything that cannot be made again, as one folder, and back."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, say, wait_for
from medlive.config import load_settings


def backup(
    out: Annotated[Path, Argument(help="The folder to write; it must not exist.")], as_json: JsonOption = False
) -> None:
    """Write the database, raw pages, snapshots and keys into a folder; other processes may go on.

    It holds keys and patients' words: keep it where only you can read it. Evidence and the signing key are not in
    it.
    """
    from medlive.service.backup import make_backup

    done = wait_for(make_backup(load_settings().settings, out))
    rows = sum(done["rows"].values())
    text = f"{out}: {rows} rows, {len(done['archives'])} files of pages, {len(done['snapshots'])} snapshots"
    print_result(done, as_json, lambda: say(text))


def restore(folder: Annotated[Path, Argument(help="The backup.")], as_json: JsonOption = False) -> None:
    """Restore a backup into this instance, which must be empty, after checking every file's digest.

    Threads that were taken down since, as a later backup beside this one says, are taken down again.
    """
    from medlive.service.backup import restore_backup

    done = wait_for(restore_backup(load_settings().settings, folder))
    again = [f"taken down again: {name}" for name in done["taken_down"]]
    text = f"restored the backup of {done['created_at']}: {sum(done['rows'].values())} rows"
    print_result(done, as_json, lambda: say(text), notes=again)
