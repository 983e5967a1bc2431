"""A home in a folder of its own, for benchmarks that fill a database."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from medlive.db import embedded


@contextmanager
def throwaway_home() -> Iterator[Path]:
    """A new home; in the end its server is stopped and all of it is removed."""
    home = Path(tempfile.mkdtemp(prefix="medlive-bench-"))
    home.chmod(0o755)  # root's server runs as another user, who must get in
    try:
        yield home
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)
