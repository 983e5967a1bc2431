"""The line under a measurement's title: its date and the commit that was measured."""

import subprocess
from pathlib import Path

from medlive.clock import now


def measured_line() -> str:
    """Return "Measured on DATE at commit `HASH`."; "unknown" without a repository."""
    asked = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    commit = asked.stdout.strip() or "unknown"
    return f"Measured on {now():%Y-%m-%d} at commit `{commit}`."
