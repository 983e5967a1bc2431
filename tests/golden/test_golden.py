"""What may not change while the code is moved about: files that others hold, their keys, and prompts.

`python -m tests.golden.test_golden` writes the digests anew, for a change that is meant.
"""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import medlive
from tests.support.bundles import made_room

HERE = Path(__file__).parent
DIGESTS = HERE / "digests.txt"


def files(root: Path) -> Iterator[str]:
    """A line for each file of a snapshot, of a graded run on it and of its bundle; Parquet names its writer."""
    with ExitStack() as stack:
        # The commit is part of the version in runs and bundles, and other with each commit.
        for part in ("runs.folder", "bundles.bundle"):
            named = f"medlive.evaluation.{part}.code_version"
            stack.enter_context(patch(named, return_value=medlive.__version__))
        room = made_room(root)
    for path in sorted(root.rglob("*")):
        if (
            path.is_file()
            and path.suffix not in (".parquet", ".lock", ".zip")
            and path.name != "SHA256SUMS"
        ):
            yield f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(root).as_posix()}"
    for name, data in sorted(room.files.items()):
        yield f"{hashlib.sha256(data).hexdigest()}  bundle/{name}"


def prompts() -> Iterator[str]:
    """A line for each prompt, wherever its room is, and for the words that all of them begin with."""
    root = Path(medlive.__file__).parent
    for path in sorted(
        [*root.rglob("prompts/*.md"), *root.rglob("fence.md")],
        key=lambda found: found.name,
    ):
        yield f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}"


def digests(root: Path) -> list[str]:
    return [*files(root), *prompts()]


def test_files_keep_their_bytes_and_prompts_their_words(tmp_path: Path) -> None:
    assert digests(tmp_path) == DIGESTS.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        lines = "".join(f"{line}\n" for line in digests(Path(folder)))
    DIGESTS.write_text(lines, encoding="utf-8")
