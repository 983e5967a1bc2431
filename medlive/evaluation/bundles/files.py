"""The files of a bundle: their names, their one spelling, and how they are put into an archive or a folder."""

import io
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from medlive.digest import canonical_json, digest_bytes
from medlive.errors import BadInput, UsageError
from medlive.evaluation.model import Answer, Grade
from medlive.evaluation.runs.evidence import EVIDENCE
from medlive.evaluation.runs.folder import GRADES, RESPONSES

BUNDLE: Final = "bundle.json"
RUN: Final = "run.json"
CASES: Final = "cases.json"
SCORES: Final = "scores.json"
ALWAYS: Final = (BUNDLE, CASES, RUN, SCORES)
ANSWERS: Final = (GRADES, RESPONSES)
"""What is in a bundle besides, unless it was made without."""
BOOK: Final = EVIDENCE
"""What is in that of an open-book run with its answers."""
CANARY: Final = "canary"
"""The key of the snapshot's canary, in `bundle.json` and in every row of answers and verdicts."""
_UNIX: Final = 3
_FRAME: Final = 10_000
"""Bytes that an archive has around its files, at most."""
MOST_BUNDLE: Final = 2**29
"""Bytes of a bundle: it is read into memory whole, several times over."""


def pretty(value: Any) -> bytes:
    """A document in its one spelling. Raises ValueError for a number that JSON cannot hold."""
    text = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


def spelt(row: Mapping[str, Any]) -> bytes:
    """A row of a log in its one spelling. Raises ValueError and TypeError as `canonical_json`."""
    return canonical_json(row).encode("utf-8", "backslashreplace") + b"\n"


def published_row(row: Answer | Grade, canary: str | None) -> dict[str, Any]:
    """A row as a bundle holds it: with the snapshot's canary, so that a copy of the log alone can be known."""
    return row.row() | ({} if canary is None else {CANARY: canary})


def sums_of(files: Mapping[str, bytes]) -> bytes:
    """`SHA256SUMS` of files, in the order of their names."""
    lines = [f"{digest_bytes(files[name]).removeprefix('sha256:')}  {name}\n" for name in sorted(files)]
    return "".join(lines).encode("ascii")


def trusted_comment(bundle_json: bytes) -> str:
    """What the signature says of what it signs: no clock, so that it can be made again."""
    return f"medlive-bundle {digest_bytes(bundle_json)}"


def archive(files: Mapping[str, bytes]) -> bytes:
    """A zip archive of files in the one spelling that `verify-bundle` takes: sorted, stored as they are, no time.

    Not compressed, since compressors differ between machines, and so that an archive holds no more than its size.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as packed:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name)
            entry.create_system = _UNIX
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            packed.writestr(entry, files[name])
    return out.getvalue()


def write_bundle(files: Mapping[str, bytes], out: Path) -> None:
    """Write a bundle as an archive where `out` ends in .zip, else as a folder; whole, or not at all.

    The same bundle may be there already. Raises UsageError when something else is, or for a bundle of more bytes
    than `verify-bundle` reads, BadInput when `out` cannot be written.
    """
    if (size := sum(map(len, files.values()))) > MOST_BUNDLE - _FRAME:
        raise UsageError(
            f"the bundle has {size} bytes, more than {MOST_BUNDLE}", hint="--without-answers leaves the rows out"
        )
    zipped = out.suffix.lower() == ".zip"
    partial = out.with_name(f".{out.name}.partial")
    try:
        if out.exists() or out.is_symlink():
            if _is_there(files, out, zipped=zipped):
                return
            raise UsageError(f"{out} is there and is another bundle, or none", hint="give another --out")
        out.parent.mkdir(parents=True, exist_ok=True)
        if zipped:
            partial.write_bytes(archive(files))
        else:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            for name, data in files.items():
                (partial / name).write_bytes(data)
        os.replace(partial, out)
    except OSError as exc:
        raise BadInput(f"{out} cannot be written: {exc.strerror or exc}") from exc


def _is_there(files: Mapping[str, bytes], out: Path, *, zipped: bool) -> bool:
    if zipped:
        return out.is_file() and out.read_bytes() == archive(files)
    if not out.is_dir() or {entry.name for entry in out.iterdir()} != set(files):
        return False
    return all((out / name).is_file() and (out / name).read_bytes() == data for name, data in files.items())
