"""How good a ranking is: recall at a depth, nDCG; and queries made from an index's own passages.

Every function gives one value a query, so that whoever reports a mean can say how sure it is.
"""

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from medlive.evidence.corpora.parsing.chunk import sentences
from medlive.evidence.passage import Passage, Query, Retriever
from medlive.evidence.retriever import DenseSide
from medlive.evidence.store import PassageStore
from medlive.evidence.vectors import VectorStore, keys_of


def recall_at(found: Sequence[str], relevant: set[str], k: int) -> float:
    """Return the share of the relevant documents in the first k, 0 to 1. Raises ValueError if none is relevant."""
    if not relevant:
        raise ValueError("no document is relevant")
    return len(relevant.intersection(found[:k])) / len(relevant)


def ndcg_at(found: Sequence[str], gains: Mapping[str, float], k: int) -> float:
    """Normalised discounted cumulative gain of the first k, 0 to 1; a gain is taken as it is, log base 2.

    Järvelin and Kekäläinen, TOIS 2002, with the discount log2(rank + 1). A document without a gain has 0. Raises
    ValueError when no document has a gain, so that no order is better than another.
    """
    best = sum(gain / math.log2(n + 2) for n, gain in enumerate(sorted(gains.values(), reverse=True)[:k]))
    if best <= 0:
        raise ValueError("no document has a gain")
    return sum(gains.get(name, 0.0) / math.log2(n + 2) for n, name in enumerate(found[:k])) / best


@dataclass(frozen=True, slots=True)
class KnownItem:
    """A query that was made from a passage, which it should find."""

    query: str
    passage: str
    """The passage's id."""


def known_items(store: PassageStore, count: int, *, seed: int = 0) -> list[KnownItem]:
    """Queries from a sample of passages: every second word of the passage's first sentence.

    The words stand in the passage, which stays in the index: what is measured is whether an index finds again
    what it holds, and not whether it understands. Passages whose sentence has fewer than 8 words are passed over.
    """
    order = random.Random(seed).sample(range(len(store)), len(store))
    items: list[KnownItem] = []
    for ordinal in order:
        if len(items) == count:
            break
        passage: Passage = store.get(ordinal)
        words = next(sentences(passage.text), "").split()
        if len(words) >= 8:
            items.append(KnownItem(" ".join(words[1::2]), passage.id))
    return items


async def ranked_documents(
    retriever: Retriever, queries: Sequence[str], depth: int, *, not_after: date | None = None
) -> list[list[str]]:
    """For each query the ids of the passages found, best first."""
    answers = await retriever.search([Query(query) for query in queries], k=depth, not_after=not_after)
    return [[hit.passage.id for hit in hits] for hits in answers]


async def latencies(retriever: Retriever, queries: Sequence[str], k: int) -> list[float]:
    """Measure the seconds of each query, one after another, after a warm-up with the first."""
    seconds: list[float] = []
    for query in [*queries[:1], *queries]:
        start = time.perf_counter()
        await retriever.search([Query(query)], k=k)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


async def batch_seconds(retriever: Retriever, queries: Sequence[str], k: int) -> float:
    """Measure the seconds per query of one call with all queries."""
    start = time.perf_counter()
    await retriever.search([Query(query) for query in queries], k=k)
    return (time.perf_counter() - start) / len(queries)


def dense_recall(
    side: DenseSide, vectors: VectorStore, store: PassageStore, queries: Sequence[str], k: int
) -> list[float]:
    """For each query the share of its exact k nearest vectors that the dense index finds."""
    query_vectors = side.encoder.encode_queries(queries)
    from medlive.evidence.dense import exact

    expected = exact(vectors.vectors(keys_of(store)), query_vectors, min(k, len(store)))
    found = side.index.search(query_vectors, min(k, len(store)))[1]
    return [float(np.isin(want, got).mean()) for want, got in zip(expected, found, strict=True)]
