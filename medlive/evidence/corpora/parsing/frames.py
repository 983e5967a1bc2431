"""The records of a PubMed file, cut out of its bytes one at a time, in bounded memory.

Each record stands alone: damage costs the record it falls in, and reading goes on at the next.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

BLOCK = 1 << 20
MAX_UNPACKED = 16 * 1024 * 1024 * 1024
MAX_RECORD = 8 * 1024 * 1024
"""An article of five thousand authors has about two million bytes."""
MAX_COMMENT = 64 * 1024
MAX_HEAD = 64 * 1024
"""Where a file's document type must have ended."""

_START = rb"<(PubmedArticle|PubmedBookArticle|DeleteCitation)(?=[\s>/])"
_TOKEN = re.compile(_START + rb"|</(PubmedArticle|PubmedBookArticle|DeleteCitation)\s*>|<!--")
_NESTED = re.compile(_START)
_LONGEST_TOKEN = 32
_DOCTYPE = re.compile(
    rb"<!DOCTYPE\s+[\w:.-]+(?:\s+(?:PUBLIC\s+(?:\"[^\"]*\"|'[^']*')|SYSTEM)\s*(?:\"[^\"]*\"|'[^']*'))?\s*>"
)
_END = b"</PubmedArticleSet"


class Unreadable(ValueError):
    """A whole file that must not be read, with the cause."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One record as it stands in the file, or the place where one was lost."""

    kind: str
    """The element's name; empty for damage."""
    line: int
    """Of its first byte, from 1."""
    data: bytes
    damage: str = ""


def inflated(stream: IO[bytes]) -> Iterator[bytes]:
    """A file's bytes in blocks, unpacked when it is a gzip.

    Raises EOFError where a gzip ends too early or goes on too long, and Unreadable where its content contradicts
    itself: then any of what came before may be wrong.
    """
    first = stream.read(BLOCK)
    if not first.startswith(b"\x1f\x8b"):
        while first:
            yield first
            first = stream.read(BLOCK)
        return
    engine = zlib.decompressobj(31)
    data = first
    size = 0
    while True:
        try:
            block = engine.decompress(data, BLOCK)
        except zlib.error as exc:
            cause = f"the gzip is damaged ({exc}), none of its text can be trusted; fetch it again"
            raise Unreadable(cause) from exc
        if block:
            yield block
            size += len(block)
            if size > MAX_UNPACKED:
                raise EOFError(f"the gzip unpacks to more than {MAX_UNPACKED} bytes")
        data = engine.unconsumed_tail
        if engine.eof:
            data = engine.unused_data.lstrip(b"\0") or stream.read(BLOCK).lstrip(b"\0")
            if not data:
                return
            engine = zlib.decompressobj(31)
        elif not data and len(block) < BLOCK and not (data := stream.read(BLOCK)):
            raise EOFError("the gzip ends too early")


def frames(blocks: Iterator[bytes]) -> Iterator[Frame]:
    """The file's records in order, and a frame without a kind for each place of damage.

    Raises Unreadable before the first record for a document type with declarations of its own (an entity
    there could mean anything), and wherever `blocks` does.
    """
    cutter = _Cutter(blocks)
    cutter.check_head()
    while (frame := cutter.next()) is not None:
        yield frame


class _Cutter:
    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._data = b""
        self._at = 0
        self._line = 1
        self._counted = 0
        self._tail = b""
        self._ended = False
        self._open = True
        self._cut = ""
        self._found = False
        self._reported = False

    def check_head(self) -> None:
        while len(self._data) < MAX_HEAD and self._more():
            pass
        head = self._data[:MAX_HEAD]
        first = _NESTED.search(head)
        head = head[: first.start()] if first else head
        place = head.find(b"<!DOCTYPE")
        if place >= 0 and not _DOCTYPE.match(head, place):
            raise Unreadable("a document type declaration with content of its own is not accepted")

    def next(self) -> Frame | None:
        while True:
            token = _TOKEN.search(self._data, self._at)
            if token is None:
                self._at = max(self._at, len(self._data) - _LONGEST_TOKEN)
                if not self._more():
                    return self._last()
                continue
            if token[0] == b"<!--":
                self._skip_comment(token.start())
                continue
            self._found = True
            if token[1] is None:
                self._at = token.end()
                return self._damage(token.start(), f"a {token[2].decode()} whose beginning is damaged")
            return self._record(token.start(), token[1])

    def _record(self, start: int, name: bytes) -> Frame:
        closing = b"</" + name + b">"
        after = start + len(name) + 1
        searched = after
        while (end := self._data.find(closing, searched)) < 0:
            nested = self._nested(searched, len(self._data))
            if nested is not None:
                self._at = nested
                return self._damage(start, f"a {name.decode()} without its end")
            searched = max(after, len(self._data) - _LONGEST_TOKEN)
            self._at = start
            if len(self._data) - start > MAX_RECORD or not self._more():
                # What follows its first tag is looked through for records that are whole.
                self._at = after
                if self._open:
                    return self._damage(start, f"longer than {MAX_RECORD} bytes")
                self._reported = True
                return self._damage(start, self._cut or "the file ends before it does")
            after, searched, start = after - start, searched - start, 0
        nested = self._nested(after, end)
        if nested is not None:
            self._at = nested
            return self._damage(start, f"a {name.decode()} without its end")
        self._at = end + len(closing)
        return Frame(name.decode(), self._line_of(start), self._data[start : self._at])

    def _nested(self, start: int, end: int) -> int | None:
        """Where another record begins in a stretch of the data."""
        for opening in (b"<PubmedArticle", b"<PubmedBookArticle", b"<DeleteCitation"):
            place = self._data.find(opening, start, end)
            if place >= 0:
                # Rare, and then perhaps only the beginning of another name.
                found = _NESTED.search(self._data, start, end)
                return None if found is None else found.start()
        return None

    def _skip_comment(self, start: int) -> None:
        while (end := self._data.find(b"-->", start + 4)) < 0:
            if len(self._data) - start > MAX_COMMENT:
                break
            self._at = start
            if not self._more():
                break
            start = 0
        self._at = start + 4 if end < 0 else end + 3

    def _last(self) -> Frame | None:
        """The end: damage when the file does not say that it ends here."""
        if self._reported:
            return None
        self._reported = True
        if self._cut:
            return self._damage(len(self._data), self._cut)
        if not self._ended:
            cause = "the file ends without </PubmedArticleSet>, records may be missing"
            return self._damage(len(self._data), cause if self._found else "no PubMed record in it")
        return None

    def _more(self) -> bool:
        """One more block, what was read before the present place dropped; false at the end."""
        if not self._open:
            return False
        try:
            block = next(self._blocks, None)
        except EOFError as exc:
            block, self._cut = None, str(exc)
        except OSError as exc:
            block, self._cut = None, f"the file cannot be read any further: {exc.strerror or exc}"
        if block is None:
            self._open = False
            return False
        self._line_of(self._at)
        self._data = self._data[self._at :] + block
        self._counted -= self._at
        self._at = 0
        self._ended = self._ended or _END in block or _END in self._tail + block[:_LONGEST_TOKEN]
        self._tail = (self._tail + block)[-_LONGEST_TOKEN:]
        return True

    def _line_of(self, place: int) -> int:
        self._line += self._data.count(b"\n", self._counted, place)
        self._counted = max(self._counted, place)
        return self._line

    def _damage(self, start: int, cause: str) -> Frame:
        return Frame("", self._line_of(start), b"", cause)
