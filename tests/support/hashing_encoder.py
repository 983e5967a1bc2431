"""An encoder without weights: each word adds one to a place that its hash names. Deterministic, and fast."""

import re
import threading
from collections.abc import Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from medlive.evidence.encoders.model import Encoder, EncoderIdentity
from medlive.evidence.encoders.table import LANGUAGES
from medlive.evidence.plan import IndexPlan
from medlive.integrity.digest import digest_json


class HashingEncoder:
    """Counts what it was asked, so that a test can tell what was embedded anew and what in one batch."""

    def __init__(
        self,
        name: str = "hashing",
        dimension: int = 64,
        salt: str = "",
        languages: tuple[str, ...] = (),
    ) -> None:
        self.identity = EncoderIdentity(
            name=name,
            digest=digest_json([name, dimension, salt]),
            dimension=dimension,
        )
        self._salt, self._languages = salt, languages
        self.passages: list[tuple[str, str]] = []
        self.query_batches: list[list[str]] = []
        self._counting = threading.Lock()

    def reads(self, language: str) -> bool:
        """Every language, unless some were named."""
        return not self._languages or language in (*self._languages, "und")

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, dimension), of length 1 or 0."""
        with self._counting:
            self.query_batches.append(list(texts))
        return self._vectors(texts)

    def encode_passages(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """(n, dimension), of length 1 or 0."""
        with self._counting:
            self.passages += pairs
        return self._vectors([f"{title} {text}" for title, text in pairs])

    def _vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.identity.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                place = crc32((self._salt + word).encode("utf-8", "surrogatepass"))
                vectors[row, place % self.identity.dimension] += 1
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


def index_plan(
    encoder: HashingEncoder,
    where: str = "no-such-model",
) -> IndexPlan:
    """The plan of an index with this encoder's vectors, for the languages that it reads."""
    encoder.identity = encoder.identity.model_copy(update={"where": where})
    side = (encoder, tuple(filter(encoder.reads, LANGUAGES)))
    return IndexPlan((side,), "a test's choice")


def named(encoder: Encoder) -> dict[str, Encoder]:
    """The encoder by its name, as `open_index` wants it."""
    return {encoder.identity.name: encoder}
