"""A real browser."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import wait_until

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


@contextmanager
def running_chromium() -> Iterator[str]:
    """The address at which Playwright connects to a Chromium that lives as long as this; skips as `chromium` does."""
    pytest.importorskip(
        "playwright", reason="playwright is not installed: no browser is driven"
    )
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: no page is looked at")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--no-first-run",
            "--hide-scrollbars",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-popup-blocking",
            "--force-color-profile=srgb",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            port = Path(profile, "DevToolsActivePort")
            wait_until(lambda: port.exists() and "\n" in port.read_text())
            yield f"http://127.0.0.1:{port.read_text().splitlines()[0]}"
        finally:
            process.terminate()
            process.wait()
