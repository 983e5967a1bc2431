"""The version of this program, and the commit that it was built from."""

import os
import re
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path

from . import __version__

COMMIT = "COMMIT"
"""The file beside the package in which a build (an image, a wheel) names its commit."""

_DIGITS = 12
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@cache
def code_version() -> str:
    """Return the version, and where it is known the commit: `0.1.0+g0123456789ab`.

    Changes that are not committed do not show.
    """
    return version_at(Path(__file__).parent)


def version_at(package: Path) -> str:
    """Return `code_version` for the package at a path, with the commit of its git checkout or from its file COMMIT."""
    commit = ""
    with suppress(OSError):
        if (package.parent / ".git").exists():
            # With --git-dir, Git neither checks who owns the folder nor looks in the folders above.
            words = ["git", "--git-dir=.git", "rev-parse", "HEAD"]
            ran = subprocess.run(
                words,
                cwd=package.parent,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                capture_output=True,
                text=True,
                check=False,
            )
            commit = ran.stdout.strip()
        else:
            commit = (package / COMMIT).read_text("utf-8").strip()
    return (
        f"{__version__}+g{commit[:_DIGITS]}" if _HASH.fullmatch(commit) else __version__
    )
