"""Canonical JSON and the digests made from it; every digest names its algorithm (`sha256:…`)."""

import hashlib
import json
from pathlib import Path
from typing import Any

_CANONICAL = json.JSONEncoder(
    ensure_ascii=False,
    sort_keys=True,
    separators=(",", ":"),
    allow_nan=False,
)


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: keys sorted, no spaces, UTF-8 kept, NaN and Infinity refused.

    Raises ValueError for a number that JSON cannot hold, and TypeError for another value that it cannot.
    """
    return _CANONICAL.encode(value)


def digest_bytes(data: bytes) -> str:
    """The digest of bytes: `sha256:` and 64 hexadecimal digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def digest_text(text: str) -> str:
    """The digest of a text's UTF-8 bytes; a lone surrogate counts as the three bytes that would encode it."""
    return digest_bytes(text.encode("utf-8", "surrogatepass"))


def digest_json(value: Any) -> str:
    """The digest of a value's canonical JSON."""
    return digest_text(canonical_json(value))


def digest_file(path: Path) -> str:
    """The digest of a file's bytes, read in blocks."""
    with path.open("rb") as handle:
        return "sha256:" + hashlib.file_digest(handle, "sha256").hexdigest()
