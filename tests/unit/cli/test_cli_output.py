"""What commands say while they work."""

import io
import time

import pytest
from rich.console import Console

from medlive.cli import output


def test_a_log_gets_a_line_now_and_then_and_one_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(output, "stderr", Console(file=said, highlight=False))
    with output.progress("criteria") as tick:
        tick(1, 9)
        monkeypatch.setattr(output, "_A_MINUTE", 0.0)
        time.sleep(0.001)
        tick(5, 9)
        tick(6)
    assert said.getvalue().splitlines() == ["criteria: 5 of 9", "criteria: 6", "criteria: 6"]
