"""Secret keys of this instance in files of their own."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from medlive.integrity.paths import PRIVATE_FOLDER


def create_key_file(path: Path, text: str) -> bool:
    """Write a new file for its owner alone; return False where there is one already, which stays.

    It is linked when it is complete, so that neither a kill nor a second process sees half a key.
    """
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        with suppress(FileExistsError):
            os.link(draft, path)
            return True
        return False
    finally:
        os.unlink(draft)
