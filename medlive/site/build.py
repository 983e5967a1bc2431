"""Write the site into a folder."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from medlive.errors import UsageError
from medlive.integrity.log import writing
from medlive.publishing.target import PUBLIC_FILE, PUBLIC_FOLDER

MARK: Final = "assets/site.css"
"""The file by which a folder is known as a site, which a new one may replace."""


def write_site(
    files: Mapping[str, bytes],
    out: Path,
) -> None:
    """Write files by name into a folder, replacing a site that lies there.

    The folder is complete or not there: it is written beside its place and then renamed. A web server of another
    user may read it, whatever the umask.

    Raises:
        UsageError: If `out` holds something that is not a site.
        BadInput, DiskFull: If it cannot be written.
    """
    with writing(out):
        is_empty = out.is_dir() and not any(out.iterdir())
        if out.exists() and not is_empty and not (out / MARK).is_file():
            raise UsageError(
                f"{out} is something other than a site",
                hint="choose a new or empty folder",
            )
        out.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        try:
            for name, data in files.items():
                path = fresh / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                path.chmod(PUBLIC_FILE)
            for folder in (fresh, *fresh.rglob("*/")):
                folder.chmod(PUBLIC_FOLDER)
            if out.exists():
                shutil.rmtree(out)
            fresh.rename(out)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
