"""Write the site into a folder."""

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from medlive.errors import UsageError
from medlive.publishing.target import PUBLIC_FILE, PUBLIC_FOLDER
from medlive.site.pages import SiteFile

MARK: Final = "assets/site.css"
"""The file by which a folder is known as a site, which a new one may replace."""


def write_site(files: Iterable[SiteFile], out: Path) -> int:
    """Write the files into a folder, replacing a site that lies there; return their size in bytes.

    The folder is complete or not there: it is written beside its place and then renamed. A web server of another
    user may read it, whatever the umask.

    Raises:
        UsageError: If `out` holds something that is not a site.
    """
    if out.exists() and not _may_be_replaced(out):
        raise UsageError(
            f"{out} is something other than a site",
            hint="choose a new or empty folder",
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    size = 0
    try:
        for file in files:
            path = fresh / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
            path.chmod(PUBLIC_FILE)
            size += len(file.data)
        for folder in (fresh, *fresh.rglob("*/")):
            folder.chmod(PUBLIC_FOLDER)
        if out.exists():
            shutil.rmtree(out)
        fresh.rename(out)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return size


def _may_be_replaced(out: Path) -> bool:
    """Whether something is an empty folder or a site."""
    return out.is_dir() and ((out / MARK).is_file() or not any(out.iterdir()))
