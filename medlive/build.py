"""The version of this program, and the commit that it was built from."""

import os
import re
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from medlive import __version__

COMMIT: Final = "COMMIT"
"""The file beside the package in which a build (an image, a wheel) names its commit."""

_DIGITS: Final = 12
_HASH: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@cache
def code_version() -> str:
    """Return the version, and where it is known the commit: `0.1.0+g0123456789ab`.

    Changes that are not committed do not show.
    """
    return version_at(Path(__file__).parent)


def version_at(package: Path) -> str:
    """Return the same for a package that lies there: in a git checkout, or as a build wrote it."""
    commit = ""
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        if (package.parent / ".git").exists():
            # The checkout may belong to another user than this process's.
            git = ("git", "-c", "safe.directory=*", "-C", str(package.parent))
            commit = subprocess.check_output(
                [*git, "rev-parse", "HEAD"],
                text=True,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", "")},
            )
        else:
            commit = (package / COMMIT).read_text("utf-8")
    is_known = _HASH.fullmatch(commit.strip())
    return f"{__version__}+g{commit[:_DIGITS]}" if is_known else __version__
