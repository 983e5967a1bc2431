"""The files of a bundle: names, canonical form, and writing them to an archive or a folder."""

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
"""Also in a bundle, unless it was made without answers."""
EVIDENCE_FILE: Final = EVIDENCE
"""Also in the bundle of an open-book run with answers."""
CANARY: Final = "canary"
"""The key of the snapshot's canary, in `bundle.json` and in every row of answers and verdicts."""
_UNIX: Final = 3
_FRAME: Final = 10_000
"""The most bytes that an archive adds to its files."""
MOST_BUNDLE: Final = 2**29
"""The most bytes of a bundle, which is held in memory several times."""


def encode_document(value: Any) -> bytes:
    """Encode a document in canonical form. Raises ValueError for NaN and infinity."""
    text = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


def encode_row(row: Mapping[str, Any]) -> bytes:
    """Encode a row of a log in canonical form. Raises ValueError and TypeError as `canonical_json`."""
    return canonical_json(row).encode("utf-8", "backslashreplace") + b"\n"


def row_with_canary(row: Answer | Grade, canary: str | None) -> dict[str, Any]:
    """A row with the snapshot's canary, so that a copy of the log alone can be recognised."""
    return row.row() | ({} if canary is None else {CANARY: canary})


def checksums(files: Mapping[str, bytes]) -> bytes:
    """`SHA256SUMS` of the files, sorted by name."""
    lines = [f"{digest_bytes(files[name]).removeprefix('sha256:')}  {name}\n" for name in sorted(files)]
    return "".join(lines).encode("ascii")


def trusted_comment(bundle_json: bytes) -> str:
    """The trusted comment of the signature: without a time, so that it is reproducible."""
    return f"medlive-bundle {digest_bytes(bundle_json)}"


def archive(files: Mapping[str, bytes]) -> bytes:
    """Pack files in the only zip form that `verify-bundle` accepts: sorted, uncompressed, without times.

    Compressors differ between machines, and an uncompressed archive cannot expand beyond its size.
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
    """Write a bundle atomically, as an archive if `out` ends in .zip, else as a folder.

    Does nothing if `out` is already the same bundle.

    Raises:
        UsageError: If `out` is something else, or the bundle is larger than `verify-bundle` accepts.
        BadInput: If `out` cannot be written.
    """
    if (size := sum(map(len, files.values()))) > MOST_BUNDLE - _FRAME:
        raise UsageError(
            f"the bundle has {size} bytes, more than {MOST_BUNDLE}", hint="--without-answers leaves the rows out"
        )
    zipped = out.suffix.lower() == ".zip"
    partial = out.with_name(f".{out.name}.partial")
    try:
        if out.exists() or out.is_symlink():
            if _is_same(files, out, zipped=zipped):
                return
            raise UsageError(f"{out} already exists and is not this bundle", hint="choose another --out")
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


def _is_same(files: Mapping[str, bytes], out: Path, *, zipped: bool) -> bool:
    if zipped:
        return out.is_file() and out.read_bytes() == archive(files)
    if not out.is_dir() or {entry.name for entry in out.iterdir()} != set(files):
        return False
    return all((out / name).is_file() and (out / name).read_bytes() == data for name, data in files.items())
