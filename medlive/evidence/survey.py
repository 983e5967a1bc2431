"""What one reading of a corpus showed: its digest, and which of its passages are worth keeping.

The decisions rest on the whole corpus and not on the order of its files: the same passages are kept, under
the same ids, however they are shuffled.
"""

import hashlib
from collections import Counter
from dataclasses import replace

from medlive.digest import digest_bytes
from medlive.evidence.passage import Passage

REPEATED_IN = 20
"""A later piece of a section whose text stands under this many titles is the publisher's, not the page's.
(A first piece is kept: "inherited in an autosomal recessive pattern" is the statement its title asks for.)"""


class Survey:
    """Fed every passage of one corpus once; then tells which to keep."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._content_of: dict[str, bytes] = {}
        self._ambiguous: set[str] = set()
        self._smallest: dict[bytes, str] = {}
        self._titles_of_text: Counter[bytes] = Counter()
        self._seen_under: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, passage: Passage) -> None:
        """Take note of a passage."""
        content = _content(passage)
        # The corpus's name is no content: the same files under another name have the same digest.
        unnamed = passage.id.split(":", 1)[1]
        fields = (unnamed, passage.title, passage.section, passage.text, passage.language)
        dated = "" if passage.published is None else passage.published.isoformat()
        # No field holds a NUL: the readers take control characters out.
        line = "\0".join((*fields, dated, passage.url, passage.licence))
        self._lines.append(hashlib.sha256(line.encode()).digest())
        if self._content_of.setdefault(passage.id, content) != content:
            self._ambiguous.add(passage.id)
        self._smallest[content] = min(self._smallest.get(content, passage.id), passage.id)
        if _is_later_piece(passage):
            text = _hash(passage.text)
            under = _hash(f"{passage.title}\0{passage.text}")
            if under not in self._seen_under:
                self._seen_under.add(under)
                self._titles_of_text[text] += 1

    @property
    def digest(self) -> str:
        """The digest of everything the reading gave, whatever its order."""
        return digest_bytes(b"".join(sorted(self._lines)))

    @property
    def ambiguous_ids(self) -> list[str]:
        """Ids that the source gave to different texts, sorted."""
        return sorted(self._ambiguous)

    def kept(self, passage: Passage) -> Passage | None:
        """The passage as it is to be stored, or None when it is a repetition or the publisher's boilerplate.

        Of passages with one title, section and text the one with the smallest id is kept; an id that the
        source gave to different texts gets a mark of its text.
        """
        content = _content(passage)
        if self._smallest[content] != passage.id:
            return None
        if _is_later_piece(passage) and self._titles_of_text[_hash(passage.text)] >= REPEATED_IN:
            return None
        if passage.id in self._ambiguous:
            return replace(passage, id=f"{passage.id}~{content.hex()[:8]}")
        return passage


def _is_later_piece(passage: Passage) -> bool:
    return not passage.id.endswith(".1")


def _content(passage: Passage) -> bytes:
    return _hash(f"{passage.title}\0{passage.section}\0{passage.text}")


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
