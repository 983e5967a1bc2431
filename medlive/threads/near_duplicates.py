"""Find exact and near duplicates of texts, across sources and earlier cases.

A sketch of a text is the digest of its folded text, its shingles, and the keys of its MinHash bands. Texts that
share a band are compared exactly.
"""

import re
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from medlive.integrity.digest import digest_json, digest_text
from medlive.text.normalise import fold

from .model import Thread

_WORD = re.compile(rb"[a-z0-9]+(?:'[a-z]+)?")
_HAN = re.compile(r"[\u3400-\u9fff]+")
_NOT_TEXT = re.compile(r"[\W_]+")
BANDS = 20
_ROWS = 5
"""20 bands of 5 rows: a pair of similarity 0.8 meets in a band with probability 0.9996, one of 0.5 with 0.47 (and
is then refused by the exact comparison), one of 0.2 with 0.006."""
_SEED = 1
_LONGEST = 200_000
"""Characters of a text that shingles are taken from; the digest covers all of it."""
# Multipliers that mix the bits of hashes
_MIX = tuple(
    map(
        np.uint64,
        (
            0x9E3779B97F4A7C15,
            0xC2B2AE3D27D4EB4F,
            0x165667B19E3779F9,
            0xD6E8FEB86659FD93,
            0xFF51AFD7ED558CCD,
        ),
    )
)
# Texts whose bands are part of the name of the `scheme`
_SAMPLES = (
    "My knee has hurt since Monday; it is swollen, warm, and I cannot bend it. Should I rest it or see a doctor?",
    "我母亲六十五岁，高血压十年，最近一周头晕乏力，早上血压一百六十，请问要做哪些检查？",
)

Shingles = NDArray[np.uint64]


class Match(NamedTuple):
    """An earlier text that a text duplicates."""

    key: str
    similarity: float  # Exact Jaccard similarity of the shingle sets, 0 to 1
    exact: bool  # Whether the folded texts are equal


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """The features of a text that are compared."""

    digest: str  # The digest of the folded text
    shingles: Shingles  # Sorted, distinct; empty for a text without words
    bands: tuple[int, ...]
    """Signed 64-bit keys: one of the whole folded text, then one a band; none for a text without shingles.

    Texts that share a key may be near. The first key is there because boilerplate may be in every band of a text.
    """


def shingles(text: str) -> Shingles:
    """The sorted 64-bit hashes of a text's shingles: 3-grams of words, or 4-grams of characters in Chinese.

    A text shorter than one shingle is one shingle; an empty text has none.
    """
    folded = fold(text)[:_LONGEST]
    raw = folded.encode("utf-8", "replace")
    words = _WORD.findall(raw)
    han = sum(map(len, _HAN.findall(folded))) if len(raw) > len(folded) else 0
    if han > 2 * len(words):
        letters = _NOT_TEXT.sub("", folded).encode("utf-32-le", "replace")
        units = np.frombuffer(letters, dtype="<u4").astype(np.uint64)
        size = 4
    else:
        words = words or _NOT_TEXT.sub(" ", folded).encode("utf-8", "replace").split()
        units = np.array(list(map(zlib.crc32, words)), dtype=np.uint64)
        size = 3
    size = min(size, units.size)
    count = units.size - size + 1 if size else 0
    mixed = np.zeros(count, dtype=np.uint64)
    for place in range(size):
        mixed = (mixed ^ (units[place : place + count] * _MIX[place])) * _MIX[0]
        mixed ^= mixed >> np.uint64(29)
    return np.unique(mixed)


def sketches(texts: Sequence[str]) -> list[Sketch]:
    """Sketch each text; the result is the same on every machine with the same `scheme`."""
    grams = list(map(shingles, texts))
    made = []
    for text, text_grams, bands in zip(texts, grams, _bands(grams), strict=True):
        digest = digest_text(fold(text))
        # The key of a whole text: the first 64 bits of its digest.
        key = int.from_bytes(
            bytes.fromhex(digest.removeprefix("sha256:")[:16]), signed=True
        )
        made.append(Sketch(digest, text_grams, (key, *bands) if bands else ()))
    return made


def _bands(grams: Sequence[Shingles]) -> list[tuple[int, ...]]:
    """The keys of each text's MinHash bands; () for a text without shingles."""
    from rensa import RMinHash  # the extra `service`

    full = [g for g in grams if g.size]
    if not full:
        return [()] * len(grams)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(
        np.concatenate(full),
        list(accumulate((g.size for g in full), initial=0)),
        BANDS * _ROWS,
        _SEED,
    )
    minima = np.array(matrix.to_rows(), dtype=np.uint64).reshape(
        len(full),
        BANDS,
        _ROWS,
    )
    numbers = np.arange(BANDS, dtype=np.uint64) * _MIX[1]
    keys = np.broadcast_to(numbers, (len(full), BANDS))
    for row in range(_ROWS):
        keys = (keys ^ (minima[:, :, row] * _MIX[row])) * _MIX[0]
        keys ^= keys >> np.uint64(29)
    rows = iter(keys.view(np.int64).tolist())
    return [tuple(next(rows)) if g.size else () for g in grams]


@cache
def scheme() -> str:
    """Return the name of the way bands are computed; bands of two schemes cannot be compared.

    It contains a digest of the bands of two fixed texts, so that another result of a library is another scheme.
    """
    made = digest_json([list(s.bands) for s in sketches(_SAMPLES)])
    return f"minhash/{BANDS}x{_ROWS}/{made.removeprefix('sha256:')[:16]}"


def jaccard(first: Shingles, second: Shingles) -> float:
    """Return the share of common shingles, 0 to 1; 0 if either text has none."""
    if first.size == 0 or second.size == 0:
        return 0.0
    common = np.intersect1d(first, second, assume_unique=True).size
    return float(common / (first.size + second.size - common))


def patient_text(thread: Thread) -> str:
    """Return what is compared to find the same question in two threads: the patient's messages, each once."""
    texts = [m.text for m in thread.messages if m.role == "patient"]
    return "\n".join(dict.fromkeys(texts))


class DuplicateIndex:
    """Sketches in memory by key, to find which of them a new text duplicates.

    The result does not depend on the order of insertion: exact matches first, then the highest similarity, then
    the smallest key (of two the shorter).
    """

    def __init__(self, threshold: float = 0.8) -> None:
        """`threshold`: least Jaccard similarity of a near duplicate, above 0 and at most 1."""
        self._threshold = threshold
        self._sketches: dict[str, Sketch] = {}
        self._keys_of: dict[int, list[str]] = defaultdict(list)

    def add(self, key: str, sketch: Sketch) -> None:
        """Add a text's sketch, or replace the one of that key."""
        self._sketches[key] = sketch
        for band in sketch.bands:
            self._keys_of[band].append(key)

    def find(
        self,
        queried: Sketch,
        *,
        ignore: str | None = None,
    ) -> Match | None:
        """Return the text that this one duplicates, or None; `ignore` is the key of the text itself."""
        near: set[str] = set()
        for band in queried.bands:
            near.update(self._keys_of.get(band, ()))
        matches = []
        for key in near - {ignore}:
            known = self._sketches[key]
            # The sizes alone bound the similarity, and are cheap to compare.
            smaller, larger = sorted((queried.shingles.size, known.shingles.size))
            if smaller / larger < self._threshold:
                continue
            similarity = jaccard(queried.shingles, known.shingles)
            if similarity >= self._threshold:
                is_exact = known.digest == queried.digest
                matches.append(Match(key, similarity, is_exact))

        def rank(match: Match) -> tuple[bool, float, int, str]:
            # By length first: keys are numbers, and 9 comes before 10
            return not match.exact, -match.similarity, len(match.key), match.key

        return min(matches, key=rank, default=None)
