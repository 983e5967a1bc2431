"""`medlive snapshot freeze` before a week's time, and without a key."""

from datetime import timedelta
from pathlib import Path

import pytest

from medlive.__main__ import run
from medlive.clock import iso_week, now


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--week", iso_week(now() + timedelta(days=8))], "has not come"),
        (["--require-signature"], "no key is set"),
    ],
)
def test_nothing_is_frozen_by_mistake(
    options: list[str],
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path))
    for name in ("MEDLIVE_SIGNING_KEY", "MEDLIVE_SIGNING_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert run(["snapshot", "freeze", *options]) == 2
    assert shown in capsys.readouterr().err
