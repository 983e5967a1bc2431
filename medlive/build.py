"""The version of this program, and the commit that it was built from."""

import re
from functools import cache
from pathlib import Path

from medlive import __version__

COMMIT = "COMMIT"
"""The file beside the package in which a build (an image, a wheel) names its commit."""

_DIGITS = 12
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MOST_LINKS = 5


@cache
def code_version() -> str:
    """Return the version, and where it is known the commit: `0.1.0+g0123456789ab`.

    Changes that are not committed do not show.
    """
    return version_at(Path(__file__).parent)


def version_at(package: Path) -> str:
    """Return the same for a package that lies there: in a git checkout, or as a build wrote it."""
    commit = _checked_out(package.parent / ".git") or _hash(_text(package / COMMIT))
    return __version__ if commit is None else f"{__version__}+g{commit[:_DIGITS]}"


def _checked_out(git: Path) -> str | None:
    """Return the commit of a checkout by its `.git`, a folder or a worktree's file; None if there is none."""
    own = git
    if pointer := _text(git).removeprefix("gitdir:").strip():
        own = git.parent / pointer
    common = own
    if shared := _text(own / "commondir"):
        common = own / shared
    # HEAD names a branch, and a branch may be a symbolic name for another.
    revision = _text(own / "HEAD")
    for _ in range(_MOST_LINKS):
        if not revision.startswith("ref:"):
            break
        name = revision.removeprefix("ref:").strip()
        revision = _text(own / name) or _text(common / name)
        packed = "" if revision else _text(common / "packed-refs")
        for line in packed.splitlines():
            commit, _, ref = line.partition(" ")
            if ref == name:
                revision = commit
                break
    return _hash(revision)


def _hash(text: str) -> str | None:
    return text if _HASH.fullmatch(text) else None


def _text(path: Path) -> str:
    """Return what a file holds, without white space around it; nothing where it cannot be read."""
    try:
        return path.read_text("utf-8", "replace").strip()
    except (OSError, ValueError):
        return ""
