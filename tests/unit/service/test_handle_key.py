"""The key that handles are hashed with is made once, whole, and never taken empty."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from medlive.config import Settings
from medlive.errors import ConfigError
from medlive.service.database import handle_key


def test_all_who_ask_at_once_get_one_whole_key(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    with ThreadPoolExecutor(16) as pool:
        keys = set(pool.map(lambda _: handle_key(settings), range(64)))
    assert [len(key) for key in keys] == [64]
    (path,) = settings.home.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_without_a_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "handle.key").write_bytes(b"")
    (tmp_path / "handle.key").chmod(0o600)
    with pytest.raises(ConfigError):
        handle_key(Settings(home=tmp_path))


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    handle_key(settings)
    for mode in (0o640, 0o604, 0o660):
        (tmp_path / "handle.key").chmod(mode)
        with pytest.raises(ConfigError):
            handle_key(settings)
