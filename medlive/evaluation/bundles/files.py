"""The files of a bundle: names, canonical form, writing them, and reading untrusted ones into memory.

Every document and row has one spelling; another one is a fault. Reading follows no link and writes nothing.
"""

import io
import json
import os
import shutil
import stat
import struct
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from medlive.bounds import BUNDLE_BYTES, BUNDLE_DOCUMENT_BYTES
from medlive.digest import canonical_json, digest_bytes
from medlive.errors import BadInput, UsageError, first_fault
from medlive.evaluation.bundles.public import is_count
from medlive.evaluation.grading.questions import Finding
from medlive.evaluation.log import writing
from medlive.evaluation.model import Answer, Grade
from medlive.evaluation.runs.folder import GRADES, RESPONSES
from medlive.evaluation.runs.templates import EVIDENCE
from medlive.integrity.checks import Faults
from medlive.integrity.folder import SIGNATURE, SUMS, TooLong, list_files, read_small
from medlive.printable import printable

BUNDLE: Final = "bundle.json"
RUN: Final = "run.json"
CASES: Final = "cases.json"
SCORES: Final = "scores.json"
ALWAYS: Final = (BUNDLE, CASES, RUN, SCORES)
ANSWERS: Final = (GRADES, RESPONSES)
"""Also in a bundle, unless it was made without answers."""
EVIDENCE_FILE: Final = EVIDENCE
"""Also in the bundle of an open-book run with answers."""
PROTOCOLS: Final = "protocols.json"
FINDINGS: Final = "findings.jsonl"
OF_PROTOCOLS: Final = frozenset({PROTOCOLS, FINDINGS})
"""Both also in a bundle with the results of protocols."""
DIGITS: Final = 6
"""Decimal places of results, few enough to be equal on all machines."""
CANARY: Final = "canary"
"""The key of the snapshot's canary, in `bundle.json` and in every row of answers and verdicts."""
_KNOWN: Final = frozenset(
    {*ALWAYS, *ANSWERS, EVIDENCE_FILE, *OF_PROTOCOLS, SUMS, SIGNATURE}
)
_ONLY: Final = "only the files of a bundle"
_FRAME: Final = 10_000
"""The most bytes that an archive adds to its files."""
_MOST_USAGE: Final = 40
_DAMAGED: Final = (
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
Row = TypeVar("Row", Answer, Grade, Finding)


def encode_document(value: Any) -> bytes:
    """Encode a document in canonical form. Raises ValueError for NaN and infinity."""
    text = (
        json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False)
        + "\n"
    )
    return text.encode("utf-8", "backslashreplace")


def encode_row(row: Mapping[str, Any]) -> bytes:
    """Encode a row of a log in canonical form. Raises ValueError and TypeError as `canonical_json`."""
    return canonical_json(row).encode("utf-8", "backslashreplace") + b"\n"


def encode_rows(rows: Iterable[Answer | Grade | Finding], canary: str | None) -> bytes:
    """Encode a log, with the snapshot's canary in each row, so that a copy of the log alone can be recognised."""
    mark = {} if canary is None else {CANARY: canary}
    return b"".join(encode_row(row.row() | mark) for row in rows)


def checksums(files: Mapping[str, bytes]) -> bytes:
    """`SHA256SUMS` of the files, sorted by name."""
    lines = [
        f"{digest_bytes(files[name]).removeprefix('sha256:')}  {name}\n"
        for name in sorted(files)
    ]
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
            entry.create_system = 3  # Unix
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
    if (size := sum(map(len, files.values()))) > BUNDLE_BYTES - _FRAME:
        raise UsageError(
            f"the bundle has {size} bytes, more than {BUNDLE_BYTES}",
            hint="--without-answers leaves the rows out",
        )
    if out.exists() or out.is_symlink():
        found, faults = read_bundle(out)
        if faults.count or found != files:
            raise UsageError(
                f"{out} already exists and is not this bundle",
                hint="choose another --out",
            )
        return
    partial = out.with_name(f".{out.name}.partial")
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.suffix.lower() == ".zip":
            partial.write_bytes(archive(files))
        else:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            for name, data in files.items():
                (partial / name).write_bytes(data)
        os.replace(partial, out)


def read_bundle(path: Path) -> tuple[dict[str, bytes], Faults]:
    """Read the files of the bundle at `path`, and the faults of its packaging.

    Raises BadInput if `path` is neither an archive nor a folder.
    """
    faults = Faults()
    if path.is_dir() or path.is_symlink():
        return _read_folder(path, faults), faults
    try:
        data = read_small(path, BUNDLE_BYTES)
    except (OSError, TooLong) as exc:
        raise BadInput(f"{path} cannot be read as a bundle: {exc}") from exc
    return _read_archive(data, faults), faults


def _read_folder(root: Path, faults: Faults) -> dict[str, bytes]:
    listing = list_files(root)
    for fault in listing.faults:
        faults.append(fault)
    files: dict[str, bytes] = {}
    for name in sorted(listing.files):
        if name not in _KNOWN:
            faults.add(name, _ONLY, "a file")
            continue
        try:
            files[name] = read_small(
                root / name, BUNDLE_BYTES - sum(map(len, files.values()))
            )
        except TooLong:
            faults.add(name, f"at most {BUNDLE_BYTES} bytes in all", "more")
        except OSError as exc:
            faults.add(name, "a readable file", exc.strerror or str(exc)[:200])
    return files


def _read_archive(data: bytes, faults: Faults) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            if len(packed.infolist()) > len(_KNOWN):
                faults.add(".", _ONLY, f"{len(packed.infolist())} entries")
                return files
            for entry in packed.infolist():
                if entry.filename not in _KNOWN:
                    faults.add(printable(entry.filename)[:200], _ONLY, "another name")
                elif entry.filename in files:
                    faults.add(entry.filename, "one entry with that name", "more")
                elif entry.compress_type != zipfile.ZIP_STORED:
                    faults.add(entry.filename, "a plain file", "a compressed one")
                elif entry.file_size <= len(data):
                    files[entry.filename] = packed.read(entry)
    except _DAMAGED as exc:
        faults.add(".", "a complete zip archive", str(exc)[:200] or type(exc).__name__)
        return files
    if not faults.count and archive(files) != data:
        faults.add(
            ".",
            "an archive in the form that medlive writes",
            "the same files in another form",
        )
    return files


def parse_model(
    data: bytes, name: str, shape: type[Shape], out: Faults
) -> Shape | None:
    """Parse a canonical document with that schema; reports a fault and returns None otherwise.

    Fields with a default may be missing, as older versions did not have them.
    """
    value = parse_document(data, name, out)
    if value is None:
        return None
    try:
        found = shape.model_validate_json(json.dumps(value))
    except ValidationError as exc:
        out.add(name, "its schema", first_fault(exc)[:250])
        return None
    if encode_document(found.model_dump(mode="json", exclude_unset=True)) != data:
        out.add(name, "every field in canonical form", "another form")
        return None
    return found


def parse_document(data: bytes, name: str, out: Faults) -> dict[str, Any] | None:
    """Parse a canonical JSON object; reports a fault and returns None otherwise."""
    if len(data) > BUNDLE_DOCUMENT_BYTES:
        out.add(name, f"at most {BUNDLE_DOCUMENT_BYTES} bytes", str(len(data)))
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


def rows(
    data: bytes, name: str, kind: type[Row], canary: str | None, out: Faults
) -> list[Row] | None:
    """Parse the rows of a log, each canonical and with the canary; reports faults and returns None otherwise."""
    if data and not data.endswith(b"\n"):
        out.add(name, "a line end after the last line", "none, it was cut off")
        return None
    before, found = out.count, list[Row]()
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            found.append(_row(line, kind, canary))
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            out.add(
                f"{name}:{number}",
                f"a row of {kind.__name__}",
                printable(str(exc))[:200],
            )
    return found if out.count == before else None


def _row(line: bytes, kind: type[Row], canary: str | None) -> Row:
    if len(line) > BUNDLE_DOCUMENT_BYTES:
        raise ValueError(f"the row has more than {BUNDLE_DOCUMENT_BYTES} bytes")
    row = json.loads(line.decode("utf-8"))
    if not isinstance(row, dict):
        raise ValueError("expected an object")
    usage = row["usage"]
    if (
        not isinstance(usage, dict)
        or len(usage) > _MOST_USAGE
        or not all(map(is_count, usage.values()))
    ):
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


def rounded(value: Any) -> Any:
    """The value with its numbers at `DIGITS` places."""
    if isinstance(value, float):
        return round(value, DIGITS) + 0.0  # turns -0.0 into 0.0
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    return (
        [rounded(item) for item in value] if isinstance(value, list | tuple) else value
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
            if key in want and key in got:
                found += differences(want[key], got[key], where)
            else:
                found.append(
                    (
                        where[:100],
                        *(("a field", "none") if key in want else ("none", "a field")),
                    )
                )
        return found
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        pairs = enumerate(zip(want, got, strict=True))
        return [
            one for i, (a, b) in pairs for one in differences(a, b, f"{place}[{i}]")
        ]
    if type(want) is type(got) and want == got:
        return []
    return [(place[:100], repr(want)[:120], repr(got)[:120])]
