"""Ledgers: JSON with one entry a line, so that lists as long as a snapshot are written and read with flat memory.

`changes.json` and `holdouts.json` are such files. Their spelling is fixed to the byte: what reads otherwise is a
fault, even where it is JSON of the same value.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from medlive.digest import canonical_json
from medlive.integrity.folder import lines

CHANGES: Final = "changes.json"
CHANGE_SECTIONS: Final = {"added": "case_id", "revised": "case_id", "withdrawn": "case_id"}
"""Section → the key by which its entries stand in order, each once."""

HOLDOUTS: Final = "holdouts.json"
HOLDOUT_SECTIONS: Final = {"held": "commitment", "revealed": "case_id", "dropped": "commitment"}
"""The same of held-out cases: committed to, shown now with their proof, withdrawn without having been shown."""


class LedgerFault(Exception):
    """A ledger is not spelled as one: at which line, and what was expected there."""

    def __init__(self, line: int, expected: str, got: str) -> None:
        self.line, self.expected, self.got = line, expected, got
        super().__init__(f"line {line}: expected {expected}, got {got}")


class Sink(Protocol):
    """What takes bytes."""

    def write(self, data: bytes, /) -> int:
        """All of them."""
        ...


def write_ledger(
    out: Sink, head: Mapping[str, Any], sections: Iterable[tuple[str, Iterable[Mapping[str, Any]]]]
) -> dict[str, int]:
    """Write a ledger; how many entries each section has. The entries come in their order."""
    out.write(canonical_json(dict(head))[:-1].encode("utf-8") + b"\n")
    counts: dict[str, int] = {}
    for name, entries in sections:
        out.write(f",{canonical_json(name)}:[\n".encode())
        number = 0
        for number, entry in enumerate(entries, start=1):
            out.write((b"," if number > 1 else b"") + canonical_json(dict(entry)).encode("utf-8") + b"\n")
        counts[name] = number
        out.write(b"]\n")
    out.write(b"}\n")
    return counts


def read_ledger(path: Path, sections: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A ledger's head, under the name "", and then each entry under the name of its section.

    `sections`: the sections in their order, each with the key that orders its entries. Raises LedgerFault at the
    first line that is not as `write_ledger` spells it or stands out of order, TooLong, or OSError.
    """
    reader = _Reader(lines(path))
    yield "", reader.head()
    for name, key in sections.items():
        reader.exactly(f",{canonical_json(name)}:[\n".encode(), f"the section {name}")
        before: str | None = None
        while (entry := reader.entry(first=before is None)) is not None:
            here = entry.get(key)
            if not isinstance(here, str) or (before is not None and here <= before):
                raise LedgerFault(reader.number, f"entries in the order of {key}", repr(here)[:100])
            before = here
            yield name, entry
    reader.exactly(b"}\n", "the end")
    reader.exactly(b"", "nothing more")


class _Reader:
    def __init__(self, source: Iterator[bytes]) -> None:
        self._source = source
        self.number = 0

    def _next(self) -> bytes:
        self.number += 1
        return next(self._source, b"")

    def exactly(self, data: bytes, what: str) -> None:
        if (got := self._next()) != data:
            raise LedgerFault(self.number, what, _shown(got))

    def head(self) -> dict[str, Any]:
        got = self._next()
        return self._object(got, got.removesuffix(b"\n") + b"}", b"%s\n", cut=1)

    def entry(self, *, first: bool) -> dict[str, Any] | None:
        got = self._next()
        if got == b"]\n":
            return None
        prefix = b"" if first else b","
        if not got.startswith(prefix):
            raise LedgerFault(self.number, "an entry after a comma, or the section's end", _shown(got))
        return self._object(got, got[len(prefix) :], prefix + b"%s\n", cut=0)

    def _object(self, got: bytes, text: bytes, form: bytes, *, cut: int) -> dict[str, Any]:
        """The object in a line, if that line is the one spelling of it."""
        try:
            value = json.loads(text.decode("utf-8"))
            spelled = canonical_json(value).encode("utf-8") if isinstance(value, dict) else None
        except (ValueError, RecursionError) as exc:
            raise LedgerFault(self.number, "a JSON object", f"{type(exc).__name__}: {str(exc)[:100]}") from exc
        if spelled is None or got != form % spelled[: len(spelled) - cut]:
            raise LedgerFault(self.number, "one JSON object in its canonical spelling", _shown(got))
        return dict(value)


def _shown(data: bytes) -> str:
    return repr(data[:80]) if data else "the end of the file"
