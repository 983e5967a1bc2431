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
FILES, PROMPTS = HERE / "files.txt", HERE / "prompts.txt"


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


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_snapshot_run_and_bundle_keep_their_bytes(tmp_path: Path) -> None:
    assert list(files(tmp_path)) == lines(FILES)


def test_prompts_keep_their_words() -> None:
    assert list(prompts()) == lines(PROMPTS)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        FILES.write_text(
            "".join(f"{line}\n" for line in files(Path(folder))), encoding="utf-8"
        )
    PROMPTS.write_text("".join(f"{line}\n" for line in prompts()), encoding="utf-8")
