"""A real browser."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = (
    shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
)


@contextmanager
def chromium() -> Iterator[Any]:
    """Chromium; skips where there is none (`apt-get install chromium`) or no Playwright to drive it."""
    sync_api = pytest.importorskip(
        "playwright.sync_api",
        reason="playwright is not installed: no browser is driven",
    )
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: no page is looked at")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield launched
        launched.close()
