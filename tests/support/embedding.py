"""An encoder whose vectors follow from the text alone, and passages to embed."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from medlive.evidence.encoders.model import EncoderIdentity
from medlive.evidence.passage import Passage
from medlive.evidence.vectors import Keys, StoredVectors, keys_of

DIMENSION = 8


def identity(
    name: str = "counting",
    digest: str = "sha256:" + "ab" * 32,
    dimension: int = DIMENSION,
) -> EncoderIdentity:
    """The identity of an encoder that does not exist."""
    return EncoderIdentity(name=name, digest=digest, dimension=dimension)


@dataclass
class CountingEncoder:
    """Any order and any process give a text the same vector; the texts that were embedded are kept."""

    identity: EncoderIdentity = field(default_factory=identity)
    texts: list[str] = field(default_factory=list)

    def reads(self, _: str) -> bool:
        return True

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([vector(text) for text in texts])

    def encode_passages(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        self.texts += [text for _, text in pairs]
        return np.stack([vector(text) for _, text in pairs])


def vector(text: str) -> NDArray[np.float32]:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)


def items(numbers: Iterable[int]) -> list[Passage]:
    return [
        Passage(f"c:{n}", "c", f"title {n}", "", f"text {n}", "en", None, "", "")
        for n in numbers
    ]


def keys(numbers: Iterable[int]) -> Keys:
    return keys_of(items(numbers))


class Arrays(StoredVectors):
    """A source of vectors that are in memory."""

    def __init__(self, vectors: NDArray[np.float32], name: str = "arrays") -> None:
        self._vectors = vectors.astype(np.float16)
        self.encoder = identity(dimension=vectors.shape[1])
        self.keys_digest = f"sha256:{name}"

    def __len__(self) -> int:
        return len(self._vectors)

    def rows(self, ordinals: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._vectors[ordinals].astype(np.float32)


def clustered(
    count: int, dimension: int, clusters: int, spread: float, seed: int
) -> NDArray[np.float32]:
    """Vectors around centres that are the same for any seed."""
    centres = np.random.default_rng(0).standard_normal((clusters, dimension))
    rng = np.random.default_rng(seed)
    drawn = centres[rng.integers(0, clusters, count)] + spread * rng.standard_normal(
        (count, dimension)
    )
    return drawn.astype(np.float32)
