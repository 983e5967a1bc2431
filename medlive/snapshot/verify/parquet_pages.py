"""The unpacked size of a parquet file's pages, read from their headers without unpacking them.

A parquet library allocates memory for a page as its header states, whatever the file's footer says, so a small
file may ask for any amount. Headers are Thrift's compact encoding (the parquet format's
`parquet.thrift`, structs PageHeader and DataPageHeader).
"""

import io
from typing import Final

MAX_HEADER: Final = 1024 * 1024
"""A page header is some tens of bytes, and the statistics in it a little more."""
_USUAL_HEADER: Final = 16 * 1024
_MAX_DEPTH: Final = 16

Fields = dict[int, "int | Fields"]
"""The numbers and structs of a struct, by field."""


class PageFault(Exception):
    """A page header cannot be read, lies outside its column, or is of a kind that medlive does not write."""


def unpacked_size(handle: io.FileIO, start: int, size: int, values: int) -> int:
    """Add up the unpacked sizes that the pages of a column chunk claim, with the dictionary.

    Args:
        handle: The file.
        start: Where the chunk begins.
        size: Its length in bytes, which its pages must fill.
        values: The most values it may have.

    Raises:
        PageFault: If a header is not valid, or uses an encoding other than plain and dictionary in version 1,
        since others let few bytes stand for many. OSError: If the file cannot be read.
    """
    at, end = start, start + size
    claimed = counted = 0
    while at < end:
        header, fields = _read_header(handle, at, end)
        unpacked, packed = fields.get(_UNPACKED), fields.get(_PACKED)
        if not isinstance(unpacked, int) or not isinstance(packed, int) or unpacked < 0 or packed < 0:
            raise PageFault("a page header states no sizes")
        kind, inner = fields.get(_KIND), fields.get(_DATA)
        if kind == _DATA_PAGE and isinstance(inner, dict):
            number, encoding = inner.get(1), inner.get(2)
            if not isinstance(number, int) or number < 1 or encoding not in _ENCODINGS:
                raise PageFault(f"a page holds {number} values in encoding {encoding}")
            counted += number
        elif kind != _DICTIONARY_PAGE or at != start:
            raise PageFault(f"a page of kind {kind} where none can be")
        claimed += unpacked
        at += header + packed
        if counted > values:
            raise PageFault(f"its pages hold {counted} values, at most {values} were expected")
    if at != end:
        raise PageFault("a page runs over the end of its column")
    return claimed


_KIND, _UNPACKED, _PACKED, _DATA = 1, 2, 3, 5
"""Fields of PageHeader."""
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_ENCODINGS: Final = frozenset({0, 2, 8})
"""PLAIN, and the two names of dictionary encoding."""


def _read_header(handle: io.FileIO, at: int, end: int) -> tuple[int, "Fields"]:
    """A header's length and fields."""
    for most in (_USUAL_HEADER, MAX_HEADER):
        handle.seek(at)
        header = _Header(handle.read(min(most, end - at)))
        try:
            fields = header.struct(0)
            return header.at, fields
        except PageFault:
            if most == MAX_HEADER or end - at <= _USUAL_HEADER:
                raise
    raise AssertionError("the last try returns or raises")


class _Header:
    """Reads Thrift's compact encoding."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise PageFault("a page header ends early")
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise PageFault("a page header holds a number that never ends")

    def _number(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _skip(self, size: int) -> None:
        if size > len(self._data) - self.at:
            raise PageFault("a page header ends early")
        self.at += size

    def struct(self, depth: int) -> Fields:
        """Return the numbers and structs of a struct, by field, and skip everything else."""
        if depth > _MAX_DEPTH:
            raise PageFault("a page header is nested too deep")
        found: Fields = {}
        field = 0
        while (head := self._byte()) != 0:
            kind = head & 0x0F
            field = field + (head >> 4) if head >> 4 else self._number()
            if kind in (4, 5, 6):
                found[field] = self._number()
            elif kind == 12:
                found[field] = self.struct(depth + 1)
            elif kind not in (1, 2):  # A truth is in the head itself.
                self._skip_field(kind, depth + 1)
        return found

    def _skip_field(self, kind: int, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise PageFault("a page header is nested too deep")
        if kind in (1, 2, 3):
            self._skip(1)
        elif kind in (4, 5, 6):
            self._number()
        elif kind == 7:
            self._skip(8)
        elif kind == 8:
            self._skip(self._varint())
        elif kind in (9, 10):
            head = self._byte()
            number = head >> 4 if head >> 4 != 15 else self._varint()
            # Each element takes a byte at least, so that the header's own length ends this loop.
            for _ in range(number):
                self._skip_field(head & 0x0F, depth + 1)
        elif kind == 12:
            self.struct(depth)
        else:
            raise PageFault(f"a page header holds a field of the kind {kind}")
