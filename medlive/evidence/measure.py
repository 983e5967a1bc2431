"""How well and how fast an index finds its own passages."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from medlive.evidence.corpora.parsing.chunk import sentences
from medlive.evidence.passage import Query, Retriever
from medlive.evidence.retriever import DenseSide
from medlive.evidence.store import PassageStore
from medlive.evidence.vectors import VectorStore, keys_of


@dataclass(frozen=True, slots=True)
class KnownItem:
    """A query that was made from a passage, which it should find."""

    query: str
    passage: str  # The passage's id


def known_items(store: PassageStore, count: int) -> list[KnownItem]:
    """Queries from a sample of passages: every second word of the passage's first sentence.

    The words stand in the passage, which stays in the index: what is measured is whether an index finds again
    what it holds, and not whether it understands. Passages whose sentence has fewer than 8 words are passed over.
    """
    order = random.Random(0).sample(range(len(store)), len(store))
    items: list[KnownItem] = []
    for ordinal in order:
        if len(items) == count:
            break
        passage = store.get(ordinal)
        words = next(sentences(passage.text), "").split()
        if len(words) >= 8:
            items.append(KnownItem(" ".join(words[1::2]), passage.id))
    return items


class TimedSearch(NamedTuple):
    """What queries find, and how long that takes."""

    ids: list[list[str]]  # By query, best first
    seconds: list[float]  # Of each query alone
    batch_seconds: float  # Of a query, where all are searched in one call


async def timed_search(
    retriever: Retriever, queries: Sequence[str], k: int
) -> TimedSearch:
    """Search the queries one by one and then all at once, after one search that is not timed."""
    await retriever.search([Query(queries[0])], k=k)
    seconds: list[float] = []
    for query in queries:
        start = time.perf_counter()
        await retriever.search([Query(query)], k=k)
        seconds.append(time.perf_counter() - start)
    start = time.perf_counter()
    answers = await retriever.search([Query(query) for query in queries], k=k)
    each = (time.perf_counter() - start) / len(queries)
    ids = [[hit.passage.id for hit in hits] for hits in answers]
    return TimedSearch(ids, seconds, each)


def dense_recall(
    side: DenseSide,
    vectors: VectorStore,
    store: PassageStore,
    queries: Sequence[str],
    k: int,
) -> list[float]:
    """For each query the share of its exact k nearest vectors that the dense index finds."""
    query_vectors = side.encoder.encode_queries(queries)
    from medlive.evidence.dense import exact

    expected = exact(vectors.vectors(keys_of(store)), query_vectors, min(k, len(store)))
    found = side.index.search(query_vectors, min(k, len(store)))[1]
    return [
        float(np.isin(want, got).mean())
        for want, got in zip(expected, found, strict=True)
    ]
