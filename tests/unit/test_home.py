"""A home that an earlier version left open is closed to other users."""

import os
import stat
from pathlib import Path

from medlive.home import close_home


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_what_others_could_read_is_closed_once_and_links_are_not_followed(
    tmp_path: Path,
) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    outside.mkdir(mode=0o755)
    for folder in (home, home / "archive", home / "postgresql", home / "keys"):
        folder.mkdir()
        folder.chmod(0o755)
    (home / "keys").chmod(0o700)
    (home / "evidence").mkdir()
    (home / "evidence").chmod(0o2775)  # a volume that Kubernetes gave to a group
    (home / "handle.key").touch()
    (home / "handle.key").chmod(0o640)
    (home / "snapshots").symlink_to(outside)
    closed, left = close_home(home)
    assert ({path.name for path in closed}, left) == (
        {"home", "archive", "evidence", "postgresql", "handle.key"},
        [],
    )
    # root's embedded server is another user
    passable = 0o711 if os.geteuid() == 0 else 0o700
    assert {
        path.name: mode_of(path)
        for path in (home, *home.iterdir())
        if not path.is_symlink()
    } == {
        "home": passable,
        "archive": 0o700,
        "evidence": 0o2770,
        "keys": 0o700,
        "postgresql": passable,
        "handle.key": 0o600,
    }
    assert mode_of(outside) == 0o755
    assert close_home(home) == ([], [])
    assert close_home(tmp_path / "missing") == ([], [])
