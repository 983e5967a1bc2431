"""Read an untrusted bundle into memory, without following links or writing anything.

Every document and row has one spelling; another one is a fault.
"""

import io
import json
import os
import stat
import struct
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from medlive.errors import BadInput
from medlive.evaluation.bundles.files import (
    ALWAYS,
    ANSWERS,
    CANARY,
    EVIDENCE_FILE,
    MOST_BUNDLE,
    archive,
    encode_document,
    encode_row,
)
from medlive.evaluation.bundles.public import is_count
from medlive.evaluation.model import Answer, Grade
from medlive.integrity.checks import Faults
from medlive.integrity.folder import (
    SIGNATURE,
    SUMS,
    TooLong,
    list_files,
    open_inside,
    printable,
    read_all,
    read_small,
)

MOST_DOCUMENT: Final = 16 * 1024 * 1024
"""The most bytes of a document or a row, which take up to fifty times as much memory when parsed."""
KNOWN: Final = frozenset({*ALWAYS, *ANSWERS, EVIDENCE_FILE, SUMS, SIGNATURE})
_NOTHING: Final = "only the files of a bundle"
Shape = TypeVar("Shape", bound=BaseModel)
Row = TypeVar("Row", Answer, Grade)
_MOST_USAGE: Final = 40
_MOST_ENTRIES: Final = 1_000
_DAMAGED: Final = (
    zipfile.BadZipFile, zipfile.LargeZipFile, struct.error, RuntimeError, EOFError, ValueError, OverflowError,
    OSError,
)  # fmt: skip
"""What zipfile raises for files that are not archives, are damaged, or need a password."""


def read_bundle(path: Path) -> tuple[dict[str, bytes], Faults]:
    """Read the files of the bundle at `path`, and the faults of its packaging.

    Raises BadInput if `path` is neither an archive nor a folder.
    """
    faults = Faults()
    if path.is_dir() or path.is_symlink():
        return _folder(path, faults), faults
    try:
        data = read_small(path, MOST_BUNDLE)
    except (OSError, TooLong) as exc:
        raise BadInput(f"{path} cannot be read as a bundle: {exc}") from exc
    return _archive(data, faults), faults


def _folder(root: Path, faults: Faults) -> dict[str, bytes]:
    listing = list_files(root)
    for fault in listing.faults:
        faults.append(fault)
    for name in sorted(listing.files - KNOWN):
        faults.add(name, _NOTHING, "a file")
    files: dict[str, bytes] = {}
    left = MOST_BUNDLE
    for name in sorted(listing.files & KNOWN):
        try:
            with open_inside(root, name) as handle:
                files[name] = read_all(handle, name, left)
            left -= len(files[name])
        except TooLong:
            faults.add(name, f"at most {MOST_BUNDLE} bytes in all", "more")
        except OSError as exc:
            faults.add(name, "a readable file", exc.strerror or str(exc)[:200])
    # The listing has files only: report empty folders too.
    for entry in _folders(root):
        faults.add(printable(entry), _NOTHING, "a folder")
    return files


def _folders(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))[:5]
    except OSError:  # named by the listing already
        return []


def _archive(data: bytes, faults: Faults) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            entries = packed.infolist()
            if len(entries) > _MOST_ENTRIES:
                faults.add(".", f"at most {_MOST_ENTRIES} entries", str(len(entries)))
                return {}
            for name, times in Counter(entry.filename for entry in entries).items():
                if times > 1:
                    faults.add(printable(name)[:200], "one entry with that name", str(times))
            for entry in entries:
                name = printable(entry.filename)[:200]
                if entry.filename not in KNOWN:
                    faults.add(name, _NOTHING, _kind(entry))
                elif stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
                    faults.add(name, "a regular file", _kind(entry))
                elif entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
                    faults.add(name, "an uncompressed file", "a compressed one")
                elif entry.flag_bits & 1:
                    faults.add(name, "an unencrypted file", "an encrypted one")
                elif entry.filename not in files and entry.file_size <= len(data):
                    files[entry.filename] = packed.read(entry)
    except _DAMAGED as exc:
        faults.add(".", "a complete zip archive", str(exc)[:200] or type(exc).__name__)
        return files
    if not faults.count and archive(files) != data:
        faults.add(".", "an archive in the form that medlive writes", "the same files in another form")
    return files


def _kind(entry: zipfile.ZipInfo) -> str:
    if entry.is_dir():
        return "a folder"
    return "a symbolic link" if stat.S_ISLNK(entry.external_attr >> 16) else "a file"


def parse_model(data: bytes, name: str, shape: type[Shape], out: Faults) -> Shape | None:
    """Parse a canonical document with that schema; reports a fault and returns None otherwise.

    Fields with a default may be missing, as older versions did not have them.
    """
    value = parse_document(data, name, out)
    if value is None:
        return None
    try:
        found = shape.model_validate_json(json.dumps(value))
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        out.add(name, "its schema", f"{'.'.join(str(p) for p in first['loc'])[:100]}: {first['msg'][:150]}")
        return None
    if encode_document(found.model_dump(mode="json", exclude_unset=True)) != data:
        out.add(name, "every field in canonical form", "another form")
        return None
    return found


def parse_document(data: bytes, name: str, out: Faults) -> dict[str, Any] | None:
    """Parse a canonical JSON object; reports a fault and returns None otherwise."""
    if len(data) > MOST_DOCUMENT:
        out.add(name, f"at most {MOST_DOCUMENT} bytes", str(len(data)))
        return None
    try:
        value = json.loads(data.decode("utf-8"))
        if not isinstance(value, dict):
            out.add(name, "a JSON object", type(value).__name__)
            return None
        if encode_document(value) != data:
            out.add(name, "a document in canonical form", "another form")
            return None
    except (ValueError, RecursionError) as exc:
        out.add(name, "a JSON document", str(exc)[:200])
        return None
    return value


def rows(data: bytes, name: str, kind: type[Row], canary: str | None, out: Faults) -> list[Row] | None:
    """Parse the rows of a log, each canonical and with the canary; reports faults and returns None otherwise."""
    if data and not data.endswith(b"\n"):
        out.add(name, "a line end after the last line", "none, it was cut off")
        return None
    before, found = out.count, list[Row]()
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            found.append(_row(line, kind, canary))
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            out.add(f"{name}:{number}", f"a row of {kind.__name__}", printable(str(exc))[:200])
    return found if out.count == before else None


def _row(line: bytes, kind: type[Row], canary: str | None) -> Row:
    if len(line) > MOST_DOCUMENT:
        raise ValueError(f"the row has more than {MOST_DOCUMENT} bytes")
    row = json.loads(line.decode("utf-8"))
    if not isinstance(row, dict):
        raise ValueError("expected an object")
    usage = row["usage"]
    if not isinstance(usage, dict) or len(usage) > _MOST_USAGE or not all(map(is_count, usage.values())):
        raise ValueError("usage must be an object of numbers")
    if encode_row(row) != line + b"\n":
        raise ValueError("not in canonical form")
    if row.pop(CANARY, None) != canary:
        raise ValueError(f"expected the canary {canary}")
    one = kind.from_row(row)
    # Rows of older versions may lack fields with defaults; unknown fields are a fault.
    if {field: value for field, value in one.row().items() if field in row} != row:
        raise ValueError("unknown fields or invalid values")
    return one


def is_list_of_pairs(value: Any) -> bool:
    """Whether a value is a list of pairs of texts."""
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair) for pair in value
    )


def through_json(value: Any) -> Any:
    """The value as it is read back from JSON."""
    return json.loads(encode_document(value))


def differences(want: Any, got: Any, place: str = "") -> list[tuple[str, str, str]]:
    """The differences of two documents, as (place, expected, found)."""
    if isinstance(want, dict) and isinstance(got, dict):
        found = []
        for key in sorted(want.keys() | got.keys()):
            where = f"{place}.{key}" if place else key
            if key not in want or key not in got:
                found.append(
                    (where[:100], "a field" if key in want else "none", "none" if key in want else "a field")
                )
            else:
                found += differences(want[key], got[key], where)
        return found
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        pairs = enumerate(zip(want, got, strict=True))
        return [one for i, (a, b) in pairs for one in differences(a, b, f"{place}[{i}]")]
    if type(want) is type(got) and want == got:
        return []
    return [(place[:100], repr(want)[:120], repr(got)[:120])]
