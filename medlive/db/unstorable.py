"""Text that PostgreSQL cannot hold, held all the same.

Its text and jsonb know neither NUL nor lone surrogates. Both occur in what communities and engines send, and
digests are made from the text as it came, so it must come back as it went. Each such character becomes a
private one (U+10FFFD), its number in hexadecimal and a semicolon, and that character itself likewise.
"""

import json
import re
from typing import Any

_MARK = "\U0010fffd"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff\U0010fffd]")
_STORED = re.compile("\U0010fffd([0-9a-f]{4,6});")


def to_stored(text: str) -> str:
    """The text as a column can hold it; nearly always the text itself."""
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSTORABLE.sub(lambda m: f"{_MARK}{ord(m[0]):04x};", text)


def from_stored(text: str) -> str:
    """The text as it came."""
    return _STORED.sub(lambda m: chr(int(m[1], 16)), text) if _MARK in text else text


def dump_json(value: Any) -> str:
    """JSON for a jsonb column. Raises ValueError for NaN and infinities."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    # json writes NUL as an escape, which may also stand for the six characters; walking decides.
    if "\\u0000" in text or (not text.isascii() and _UNSTORABLE.search(text)):
        text = json.dumps(_walk(value, to_stored), ensure_ascii=False, allow_nan=False)
    return text


def load_json(text: str | bytes) -> Any:
    """The value that `dump_json` was given (tuples as lists)."""
    if isinstance(text, bytes):
        text = text.decode()
    value = json.loads(text)
    return _walk(value, from_stored) if _MARK in text else value


def _walk(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_walk(k, change): _walk(v, change) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(v, change) for v in value]
    return value
