"""Exact and near duplicates of texts, across sources and against earlier cases."""

import re
import zlib
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from medlive.digest import digest_text
from medlive.threads.model import Role, Thread
from medlive.threads.normalise import fold

_WORD: Final = re.compile(rb"[a-z0-9]+(?:'[a-z]+)?")
_HAN: Final = re.compile(r"[\u3400-\u9fff]+")
_NOT_TEXT: Final = re.compile(r"[\W_]+")
_PERMUTATIONS: Final = 128
_BANDS: Final = 32
"""32 bands of 4 rows: a pair of similarity 0.8 meets in a band with probability above 0.9999, one of 0.5 with
0.87 (and is then refused by the exact check)."""
_LONGEST: Final = 200_000
"""Characters of a text that shingles are taken from; a longer text's exact digest still covers all of it."""
_MIX: Final = tuple(
    np.uint64(m) for m in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
)

Shingles = NDArray[np.uint64]


class Match(NamedTuple):
    """An earlier text that a text repeats."""

    key: str
    similarity: float
    """Exact Jaccard similarity of the shingle sets, 0 to 1."""
    exact: bool
    """Whether the folded texts are equal."""


def _combine(units: Shingles, size: int) -> Shingles:
    """The sorted distinct hashes of each run of `size` units; one shorter run where there are fewer."""
    if units.size == 0:
        return units
    count = max(1, units.size - size + 1)
    mixed = np.zeros(count, dtype=np.uint64)
    for place in range(min(size, units.size)):
        mixed = (mixed ^ (units[place : place + count] * _MIX[place])) * _MIX[0]
        mixed ^= mixed >> np.uint64(29)
    mixed.sort()
    keep = np.ones(count, dtype=bool)
    np.not_equal(mixed[1:], mixed[:-1], out=keep[1:])
    return mixed[keep]


def shingles(text: str) -> Shingles:
    """The sorted 64-bit hashes of a text's shingles: 3-grams of words, or 4-grams of characters in Chinese.

    A text shorter than one shingle is one shingle; an empty one has none.
    """
    return _of_folded(fold(text[:_LONGEST]))


def _of_folded(folded: str) -> Shingles:
    raw = folded.encode("utf-8", "replace")
    words = _WORD.findall(raw)
    if len(raw) > len(folded) and sum(map(len, _HAN.findall(folded))) > 2 * len(words):
        letters = _NOT_TEXT.sub("", folded)
        points = np.frombuffer(letters.encode("utf-32-le", "replace"), dtype="<u4").astype(np.uint64)
        return _combine(points, 4)
    words = words or _NOT_TEXT.sub(" ", folded).encode("utf-8", "replace").split()
    return _combine(np.array([zlib.crc32(w) for w in words], dtype=np.uint64), 3)


@lru_cache(maxsize=16)
def _folded(text: str) -> tuple[str, str]:
    """The text folded, and its exact digest."""
    folded = fold(text)
    return folded, digest_text(folded)


@lru_cache(maxsize=16)
def _prepared(folded: str) -> tuple[Shingles, Any]:
    """The shingles and their MinHash; kept, because a text is looked up and then added."""
    from rensa import RMinHash  # the extra `service`

    grams = _of_folded(folded[:_LONGEST])
    minhash = RMinHash(num_perm=_PERMUTATIONS, seed=1)
    raw = grams.tobytes()
    minhash.update([raw[i : i + 8] for i in range(0, len(raw), 8)])
    return grams, minhash


def jaccard(first: Shingles, second: Shingles) -> float:
    """The share of common shingles, 0 to 1; 0 where either has none."""
    if first.size == 0 or second.size == 0:
        return 0.0
    common = np.intersect1d(first, second, assume_unique=True).size
    return float(common / (first.size + second.size - common))


def patient_text(thread: Thread) -> str:
    """What makes two threads the same question: the patient's messages, an opening that is doubled taken once."""
    texts = [m.text for m in thread.messages if m.role is Role.PATIENT]
    return "\n".join(dict.fromkeys(texts))


class DuplicateIndex:
    """Texts by key, asked which of them a new text repeats.

    The answer depends on the texts held and not on the order they came in: an exact match before a near one,
    then the highest similarity, then the smallest key.
    """

    def __init__(self, threshold: float = 0.8) -> None:
        """`threshold`: least Jaccard similarity of a near duplicate, above 0 and at most 1."""
        if not 0 < threshold <= 1:
            raise ValueError("threshold must be above 0 and at most 1")
        from rensa import RMinHashLSH  # the extra `service`

        self._threshold = threshold
        self._lsh: Any = RMinHashLSH(threshold=threshold, num_perm=_PERMUTATIONS, num_bands=_BANDS)
        self._numbers: dict[str, int] = {}
        self._keys: list[str | None] = []
        self._shingles: list[Shingles] = []
        self._digests: dict[str, set[str]] = {}
        self._digest_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, key: str, text: str) -> None:
        """Hold the text under its key; a key that is held already gets the new text."""
        folded, digest = _folded(text)
        if self._digest_of.get(key) == digest:
            return
        if key in self._numbers:
            self._forget(key)
        grams, minhash = _prepared(folded)
        number = len(self._keys)
        self._numbers[key] = number
        self._keys.append(key)
        self._shingles.append(grams)
        self._digest_of[key] = digest
        if grams.size:
            self._digests.setdefault(digest, set()).add(key)
            self._lsh.insert(number, minhash)

    def _forget(self, key: str) -> None:
        number = self._numbers.pop(key)
        if self._shingles[number].size:
            self._lsh.remove(number)
        self._keys[number] = None
        self._shingles[number] = np.empty(0, dtype=np.uint64)
        digest = self._digest_of.pop(key)
        self._digests.get(digest, set()).discard(key)

    def find(self, text: str, *, ignore: str | None = None) -> Match | None:
        """The held text that this one repeats, or None; the key `ignore` (its own) does not count."""
        folded, digest = _folded(text)
        same = sorted(k for k in self._digests.get(digest, ()) if k != ignore)
        if same:
            return Match(same[0], 1.0, True)
        grams, minhash = _prepared(folded)
        if grams.size == 0:
            return None
        best: Match | None = None
        for number in self._lsh.query(minhash):
            key = self._keys[number]
            if key is None or key == ignore:
                continue
            similarity = jaccard(grams, self._shingles[number])
            if similarity >= self._threshold and (
                best is None or (-similarity, key) < (-best.similarity, best.key)
            ):
                best = Match(key, similarity, False)
        return best
