"""`medlive snapshot freeze` before a week's time, and without a key."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from medlive.__main__ import run
from medlive.cli.snapshot import release
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


def test_an_early_freeze_asks_at_a_terminal(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path))
    monday = datetime(2026, 11, 23, 0, 5, tzinfo=UTC)
    monkeypatch.setattr(release, "now", lambda: monday)
    person, terminal = os.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        os.write(person, b"n\n")
        assert run(["snapshot", "freeze"]) == 1
    os.close(person)
    shown = capsys.readouterr().err
    assert "2026.W48 is due on" in shown
    assert "nothing was changed" in shown
