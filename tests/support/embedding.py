"""An encoder whose vectors follow from the text alone, and passages to embed."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from medlive.evidence.dense.vectors import Item

DIMENSION = 8


@dataclass(frozen=True)
class Identity:
    """Stands for an encoder."""

    name: str = "counting"
    digest: str = "sha256:" + "ab" * 32
    dimension: int = DIMENSION


@dataclass
class CountingEncoder:
    """Any order and any process give a text the same vector; the texts that were embedded are kept."""

    identity: Identity = field(default_factory=Identity)
    texts: list[str] = field(default_factory=list)

    def encode_passages(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        self.texts += [text for _, text in pairs]
        return np.stack([vector(text) for _, text in pairs])


def vector(text: str) -> NDArray[np.float32]:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)


def key(number: int) -> bytes:
    return hashlib.sha256(f"passage {number}".encode()).digest()[:16]


def items(numbers: Iterable[int]) -> Callable[[], list[Item]]:
    made = [Item(key(n), f"title {n}", f"text {n}") for n in numbers]
    return lambda: made


class Arrays:
    """A source of vectors that are in memory."""

    def __init__(self, vectors: NDArray[np.float32], name: str = "arrays") -> None:
        self._vectors = vectors.astype(np.float16)
        self.encoder = Identity(dimension=vectors.shape[1])
        self.keys_digest = f"sha256:{name}"
        self.dimension = vectors.shape[1]

    def __len__(self) -> int:
        return len(self._vectors)

    def half(self, start: int, stop: int) -> NDArray[np.float16]:
        return self._vectors[start:stop]

    def rows(self, ordinals: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._vectors[ordinals].astype(np.float32)


def clustered(count: int, dimension: int, clusters: int, spread: float, seed: int) -> NDArray[np.float32]:
    """Vectors around centres that are the same for any seed."""
    centres = np.random.default_rng(0).standard_normal((clusters, dimension))
    rng = np.random.default_rng(seed)
    drawn = centres[rng.integers(0, clusters, count)] + spread * rng.standard_normal((count, dimension))
    return drawn.astype(np.float32)
