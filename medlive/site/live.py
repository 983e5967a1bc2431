"""The public site's files as a server gives them out: made again where what they are made of has changed."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Final

from medlive.errors import MedliveError
from medlive.site.pages import site_files
from medlive.site.read import Inputs, read_content
from medlive.snapshot.errata import ERRATA, PUBLIC_ERRATA

_log: Final = logging.getLogger(__name__)
_LINKS: Final = (("/snapshots", "Snapshots"), ("/errata", "Errata"), ("/api", "API"))


@dataclass(slots=True)
class LiveSite:
    """The files as they were last made."""

    inputs: Inputs
    _lock: Lock = field(default_factory=Lock)
    _state: object = None
    _files: Mapping[str, bytes] | None = None

    def files(
        self, given_out: Mapping[str, str], checked: frozenset[str]
    ) -> Mapping[str, bytes] | None:
        """The files by name; None where they cannot be made, and the log says why.

        Args:
            given_out: Version → digest of the snapshots that are shown.
            checked: Items whose verdicts are kept back while people check them blind.
        """
        bundles = self.inputs.bundles
        read = [self._public_errata, self.inputs.snapshots / ERRATA]
        read += [self.inputs.hard_file, *sorted(bundles.glob("*") if bundles else ())]
        state = checked, dict(given_out), [_stamp(path) for path in read]
        with self._lock:
            if state != self._state:
                self._files = self._make(frozenset(given_out), checked)
                self._state = state
            return self._files

    @property
    def _public_errata(self) -> Path:
        """Errata that name no hidden snapshot."""
        return self.inputs.snapshots / PUBLIC_ERRATA

    def _make(
        self, versions: frozenset[str], checked: frozenset[str]
    ) -> Mapping[str, bytes] | None:
        errata = self._public_errata
        hidden_too = self.inputs.allow_not_publishable or not errata.is_file()
        inputs = replace(
            self.inputs,
            errata=None if hidden_too else errata,
            checked=checked,
            versions=versions,
        )
        try:
            content = read_content(inputs)
        except MedliveError as exc:
            _log.error("the public site cannot be made: %s", exc.message)
            return None
        files = site_files(content, links=_LINKS, downloads="/")
        return {file.name: file.data for file in files}


def _stamp(path: Path) -> tuple[str, int, int]:
    try:
        status = path.stat()
    except OSError:
        return path.name, 0, 0
    return path.name, status.st_size, status.st_mtime_ns
