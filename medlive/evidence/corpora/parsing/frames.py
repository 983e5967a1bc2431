"""The records of a PubMed file, cut out of its bytes one at a time, in bounded memory.

Each record stands alone: damage costs the record it falls in, and reading goes on at the next.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from gzip import BadGzipFile, GzipFile
from io import BufferedIOBase

from medlive.guard.bounds import ARCHIVE_BYTES, PUBMED_RECORD_BYTES

from .xml import UnsafeXml

BLOCK = 1 << 20  # Bytes read at once

_TOKEN = re.compile(rb"<(/?)(PubmedArticle|PubmedBookArticle|DeleteCitation)(?=[\s>/])")
_OPENING = re.compile(rb"<(?:PubmedArticle|PubmedBookArticle|DeleteCitation)(?=[\s>/])")
_LONGEST_TOKEN = 32  # Bytes; the end of a block may cut a tag
_HEAD = 4096  # Bytes in which a document type is looked for
_DOCTYPE = re.compile(
    rb"<!DOCTYPE\s+[\w:.-]+(?:\s+(?:PUBLIC\s+(?:\"[^\"]*\"|'[^']*')|SYSTEM)\s*(?:\"[^\"]*\"|'[^']*'))?\s*>"
)
_END = b"</PubmedArticleSet"


@dataclass(frozen=True)
class Frame:
    """One record as it stands in the file, or the place where one was lost."""

    kind: str  # The element's name; empty for damage
    line: int  # Of its first byte, from 1
    data: bytes
    damage: str = ""


def frames(stream: BufferedIOBase) -> Iterator[Frame]:
    """The file's records in order, and a frame without a kind for each place of damage.

    Raises UnsafeXml before the first record for a document type with declarations of its own (an entity there
    could mean anything), and where a gzip contradicts itself: then any of what came before may be wrong.
    """
    data, cause = _next_block(stream)
    while len(data) < _HEAD and (block := _next_block(stream)[0]):
        data += block
    _check_head(data)
    line, ended, final = 1, False, not data
    while True:
        ended = ended or _END in data
        counted = 0
        for kind, start, stop, damage in _records(data, final):
            line += data.count(b"\n", counted, start)
            counted = start
            if kind or damage:
                yield Frame(kind, line, data[start:stop] if kind else b"", damage)
        if final:
            break
        block, cause = _next_block(stream)
        data, final = data[counted:] + block, not block
    if not (cause or ended):
        cause = "the file ends without </PubmedArticleSet>, records may be missing"
    if cause:
        yield Frame("", line, b"", cause)


def _next_block(stream: BufferedIOBase) -> tuple[bytes, str]:
    """Return a block; none at the end, with the cause if the file goes on."""
    if isinstance(stream, GzipFile) and stream.tell() > ARCHIVE_BYTES:
        return b"", f"the gzip unpacks to more than {ARCHIVE_BYTES} bytes"
    try:
        return stream.read1(BLOCK), ""
    except EOFError:
        return b"", "the gzip ends too early"
    except (BadGzipFile, zlib.error) as exc:
        cause = f"the gzip is damaged ({exc}), none of its text can be trusted; fetch it again"
        raise UnsafeXml(cause) from exc
    except OSError as exc:
        return b"", f"the file cannot be read any further: {exc.strerror or exc}"


def _check_head(data: bytes) -> None:
    """Raise UnsafeXml for a document type with declarations of its own."""
    first = _OPENING.search(data)
    place = data.find(b"<!DOCTYPE", 0, first.start() if first else None)
    if place >= 0 and not _DOCTYPE.match(data, place):
        raise UnsafeXml(
            "a document type declaration with content of its own is not accepted"
        )


def _records(
    data: bytes,
    final: bool,
) -> Iterator[tuple[str, int, int, str]]:
    """(kind, start, end, damage) of each record or damage; the last item, with neither, says where to read on."""
    at = 0
    while token := _TOKEN.search(data, at):
        start, name = token.start(), token[2].decode()
        if token[1]:
            at = token.end()
            yield "", start, at, f"a {name} whose beginning is damaged"
            continue
        end = data.find(b"</" + token[2] + b">", token.end())
        nested = _OPENING.search(
            data,
            token.end(),
            end if end >= 0 else len(data),
        )
        if end >= 0 and not nested:
            at = end + len(name) + 3
            yield name, start, at, ""
        elif nested or final or len(data) - start > PUBMED_RECORD_BYTES:
            at = nested.start() if nested else token.end()
            limit = f"within {PUBMED_RECORD_BYTES} bytes"
            yield "", start, at, f"a {name} without its end {limit}"
        else:
            yield "", start, start, ""
            return
    at = max(at, len(data) - _LONGEST_TOKEN)
    yield "", at, at, ""
