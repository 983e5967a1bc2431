"""What measurements share: the line under a title, with date and commit, and the interval of a mean."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from medlive.clock import now
from medlive.statistics.bootstrap import bootstrap_means
from medlive.statistics.estimate import percentile_interval


def mean_and_interval(values: Sequence[float]) -> dict[str, float]:
    """The mean over queries and its 95 % interval, by the bootstrap over queries (1,000 draws, seed 0)."""
    column = np.array(values, dtype=np.float64)[:, None]
    ends = percentile_interval(bootstrap_means(column)[:, 0])
    low, high = np.array(ends, dtype=np.float64).tolist()
    return {"mean": float(column.mean()), "low": low, "high": high}


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
