"""Conversions by which any text and JSON can be stored in PostgreSQL and read back unchanged: `ADAPTERS`.

PostgreSQL's text and jsonb refuse NUL and lone surrogates. Both occur in what communities and engines send, and digests
are made of the text as it came. So each such character is stored as U+10FFFD (a private character), its number in
hexadecimal and a semicolon, and U+10FFFD itself likewise.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg.types.string import StrDumperUnknown, TextLoader

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


@cache
def field_names(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass or a NamedTuple. Raises TypeError for another class."""
    named: tuple[str, ...] = getattr(kind, "_fields", ())
    return named or tuple(field.name for field in fields(kind))


def _plain(value: Any) -> Any:
    """A value that JSON lacks as one that it has; PostgreSQL reads decimals and dates from text without loss."""
    if is_dataclass(value):
        names = field_names(type(value))  # type: ignore[arg-type]
        return {name: getattr(value, name) for name in names}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a value of JSON")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain)


def dump_json(value: Any) -> str:
    """JSON for a jsonb column. Raises ValueError for NaN and infinities."""
    dumped = _ENCODER.encode(value)
    # json writes NUL as `\u0000`, but the text may also have had these six characters; walking decides.
    if "\\u0000" in dumped or (not dumped.isascii() and _UNSTORABLE.search(dumped)):
        dumped = _ENCODER.encode(_walk(json.loads(dumped), to_stored))
    return dumped


def load_json(stored: str | bytes) -> Any:
    """The value that `dump_json` was given (tuples as lists)."""
    dumped = stored if isinstance(stored, str) else stored.decode()
    value = json.loads(dumped)
    return _walk(value, from_stored) if _MARK in dumped else value


def _walk(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every string in it changed, keys too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_walk(k, change): _walk(v, change) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(v, change) for v in value]
    return value


class _TextDumper(StrDumperUnknown):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(to_stored(obj))


class _TextLoader(TextLoader):
    def load(self, data: Buffer) -> str:
        return from_stored(str(data, "utf-8"))


ADAPTERS = AdaptersMap(psycopg.adapters)
ADAPTERS.register_dumper(str, _TextDumper)
for _type in ("text", "varchar"):
    ADAPTERS.register_loader(_type, _TextLoader)
set_json_dumps(dump_json, ADAPTERS)
set_json_loads(load_json, ADAPTERS)
