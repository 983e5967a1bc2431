"""The public site's files: written into a folder, or given out by a server that makes them again after a change."""

import logging
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

from medlive.errors import MedliveError, UsageError
from medlive.integrity.log import writing
from medlive.publishing.target import PUBLIC_FILE, PUBLIC_FOLDER
from medlive.snapshot.errata import ERRATA, PUBLIC_ERRATA

from .pages import site_files
from .read import Inputs, read_content

MARK = "assets/site.css"
"""A folder with this file is a site, and a new site may replace it."""


def write_site(
    files: Mapping[str, bytes],
    out: Path,
) -> None:
    """Write files by name into a folder, replacing an earlier site.

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
        with tempfile.TemporaryDirectory(
            prefix=f".{out.name}-", dir=out.parent
        ) as made:
            fresh = Path(made) / out.name
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


_log = logging.getLogger(__name__)
# Further entries of the navigation: address and text
_LINKS = (("/snapshots", "Snapshots"),)


@dataclass
class LiveSite:
    """The site in memory, for a server: made again when its inputs change."""

    inputs: Inputs
    _lock: Lock = field(default_factory=Lock)
    _state: object = None  # what `_files` were made from
    _files: Mapping[str, bytes] | None = None

    def files(
        self,
        given_out: Mapping[str, str],
        checked: frozenset[str],
    ) -> Mapping[str, bytes] | None:
        """The files by name; None where they cannot be made, and the log says why.

        Args:
            given_out: Version → digest of the snapshots that are shown.
            checked: Items whose verdicts are kept back while people check them blind.
        """
        folder = self.inputs.snapshots
        public_errata = folder / PUBLIC_ERRATA
        read = [public_errata, folder / ERRATA, self.inputs.hard_file]
        if self.inputs.bundles is not None:
            read += sorted(self.inputs.bundles.glob("*"))
        stamps = {}
        for path in read:
            with suppress(OSError):
                status = path.stat()
                stamps[path.name] = status.st_size, status.st_mtime_ns
        state = checked, dict(given_out), stamps
        with self._lock:
            if state == self._state:
                return self._files
            # If making them fails, no files of an earlier state are given out.
            self._state, self._files = None, None
            # The public errata name no hidden snapshot; None: all errata are read.
            use_all = self.inputs.allow_not_publishable or not public_errata.is_file()
            inputs = replace(
                self.inputs,
                errata=None if use_all else public_errata,
                checked=checked,
                versions=frozenset(given_out),
            )
            try:
                content = read_content(inputs)
                self._files = site_files(
                    content,
                    links=_LINKS,
                    downloads="/",
                )
            except MedliveError as exc:
                _log.error("the public site cannot be made: %s", exc.message)
            self._state = state
            return self._files
