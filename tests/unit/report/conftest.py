"""Reports as the base install makes them: a figure takes a third of a second."""

import pytest


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matplotlib is not installed; test_report_figures.py is where it is."""
    monkeypatch.setattr("medlive.plot.find_spec", lambda name: None)
