"""The archive of a bundle: its files' names and form, `write_bundle`, and `read_bundle` for untrusted ones.

Reading is into memory: it unpacks nothing, follows no link and writes nothing.
"""

import io
import json
import stat
import struct
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from medlive.errors import BadInput, UsageError
from medlive.evaluation.harm import READINGS
from medlive.evaluation.model import LogRow
from medlive.evaluation.runs.folder import GRADES, RESPONSES
from medlive.evaluation.runs.templates import EVIDENCE
from medlive.guard.bounds import BUNDLE_BYTES, BUNDLE_DOCUMENT_BYTES
from medlive.integrity.checks import Faults
from medlive.integrity.digest import digest_bytes
from medlive.integrity.folder import (
    SIGNATURE,
    SUMS,
    TooLong,
    read_small,
    sums_text,
)
from medlive.integrity.log import lines_of, write_whole, writing

BUNDLE = "bundle.json"
RUN = "run.json"
SCORES = "scores.json"
ALWAYS = frozenset({BUNDLE, GRADES, RESPONSES, RUN, SCORES, SUMS})
"""The files of every bundle; open-book runs have their evidence too, runs that were read for harm the
readings, signed ones a signature."""
_KNOWN = ALWAYS | {EVIDENCE, READINGS, SIGNATURE}
_ONLY = "only the files of a bundle, each as it is"
_DIGITS = 6
"""Decimal places of figures, few enough to be equal on all machines."""
_DAMAGED = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    struct.error,
    RuntimeError,
    EOFError,
    ValueError,
    OverflowError,
    OSError,
)
"""What zipfile raises for files that are not archives, are damaged, or need a password."""
Shape = TypeVar("Shape", bound=BaseModel)
Row = TypeVar("Row", bound=LogRow)


def encode_document(value: Any) -> bytes:
    """Encode a document in canonical form. Raises ValueError for NaN and infinity."""
    text = json.dumps(
        value,
        ensure_ascii=False,
        indent=1,
        sort_keys=True,
        allow_nan=False,
    )
    return text.encode("utf-8", "backslashreplace") + b"\n"


def encode_figures(figures: Mapping[str, Any]) -> bytes:
    """Encode figures in canonical form, with their numbers at `_DIGITS` places."""

    def rounded(number: str) -> float:
        return round(float(number), _DIGITS) + 0.0  # turns -0.0 into 0.0

    return encode_document(json.loads(json.dumps(figures), parse_float=rounded))


def encode_rows(rows: Iterable[LogRow], canary: str | None) -> bytes:
    """Encode a log, with the snapshot's canary in each row, so that a copy of the log alone can be recognised."""
    mark = {} if canary is None else {"canary": canary}
    return lines_of(row.row() | mark for row in rows)


def parse_document(data: bytes, shape: type[Shape]) -> Shape:
    """Parse a document. Raises ValueError if it is invalid."""
    _check_size(data)
    return shape.model_validate_json(data)


def parse_rows(
    data: bytes,
    name: str,
    kind: type[Row],
) -> list[Row]:
    """Parse a log of that name. Raises ValueError if a row is invalid."""
    rows = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            _check_size(line)
            rows.append(kind.from_row(json.loads(line)))
        except (ValueError, TypeError, RecursionError) as exc:
            raise ValueError(f"{name}:{number}: {exc}") from exc
    return rows


def _check_size(data: bytes) -> None:
    if len(data) > BUNDLE_DOCUMENT_BYTES:
        raise ValueError(f"more than {BUNDLE_DOCUMENT_BYTES} bytes")


def checksums(files: Mapping[str, bytes]) -> bytes:
    """`SHA256SUMS` of the files, sorted by name."""
    digests = {}
    for name, data in files.items():
        digests[name] = digest_bytes(data).removeprefix("sha256:")
    return sums_text(digests).encode("ascii")


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
            entry.create_system = 3  # Unix
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            packed.writestr(entry, files[name])
    return out.getvalue()


def write_bundle(files: Mapping[str, bytes], out: Path) -> None:
    """Write a bundle atomically.

    Raises:
        UsageError: If `out` is there and something else, or the bundle is larger than `verify-bundle` accepts.
        BadInput: If `out` cannot be written.
    """
    data = archive(files)
    if len(data) > BUNDLE_BYTES:
        raise UsageError(f"the bundle has {len(data)} bytes, more than {BUNDLE_BYTES}")
    with writing(out):
        is_same = not out.exists() or (out.is_file() and out.read_bytes() == data)
        if out.is_symlink() or not is_same:
            raise UsageError(
                f"{out} already exists and is not this bundle",
                hint="choose another --out",
            )
    write_whole(out, data)


def read_bundle(path: Path) -> tuple[dict[str, bytes], Faults]:
    """Read the files of the bundle at `path`, and the faults of its packaging.

    Raises BadInput if `path` is not a file that can be read.
    """
    files: dict[str, bytes] = {}
    faults = Faults()
    try:
        data = read_small(path, BUNDLE_BYTES)
    except (OSError, TooLong) as exc:
        raise BadInput(f"{path} cannot be read as a bundle: {exc}") from exc
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            if len(packed.infolist()) > len(_KNOWN):
                faults.add(".", _ONLY, f"{len(packed.infolist())} entries")
                return files, faults
            for entry in packed.infolist():
                is_plain = entry.compress_type == zipfile.ZIP_STORED
                if entry.filename not in _KNOWN or not is_plain:
                    faults.add(
                        entry.filename[:200], _ONLY, "another name or compressed"
                    )
                elif entry.file_size <= len(data):
                    files[entry.filename] = packed.read(entry)
    except _DAMAGED as exc:
        faults.add(
            ".",
            "a complete zip archive",
            str(exc)[:200] or type(exc).__name__,
        )
        return files, faults
    if not faults.count and archive(files) != data:
        what = "an archive in the form that medlive writes"
        faults.add(".", what, "the same files in another form")
    return files, faults
