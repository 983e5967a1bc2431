"""The retriever of an index: searches each side, fuses the results, and re-ranks them with a cross-encoder.

Each phrase of a query is searched by its words, and by its nearest vectors where an encoder reads its language. The
ways of ranking are `passage.Side`; a hit names the sides that found it.

Fusion is by ranks alone (Cormack, Clarke and Büttcher, SIGIR 2009): a passage's score is the sum over sides and
phrases of the side's weight / (60 + its rank there). Scores of different sides cannot be compared, their ranks can.
Words weigh 1, vectors what the build measured for the language (`manifest.SideWeight`).

Where a query has several phrases, the words of all of them together are searched too (the joint order), which finds
what is about the whole of a claim instead of one aspect. The joint order and the phrases' own orders get half of the
words' weight each, so that words and vectors weigh alike.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Literal

from .corpora.parsing.text import language_of
from .encoders.model import Encoder, Reranker
from .lexical import LexicalIndex
from .passage import Hit, IndexIdentity, Phrases, Place, SideHit
from .store import Order, PassageStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .dense import DenseIndex
    from .vectors import Ordinals

RetrieverName = Literal["bm25", "dense", "hybrid"]

RRF_K = 60
"""The paper's constant: how little the first ranks differ from the next."""
DEPTH = 100
"""Passages that each side contributes; k if that is more."""
JOINT = 0.5
"""The joint order's share of the words' weight; the phrases' own orders have the rest."""
RERANKED = 50
"""Passages at the head of the fused order that the cross-encoder reads; k if that is more."""
SCORE_DIGITS = 10
"""Decimal places of a fused score; further ones depend on the order of float additions."""
_DIGITS = 6
"""Significant digits of an encoder's score; further ones change with the batch that a text was in."""
_QUERY_CHARS = 8000  # An endpoint refuses more than it reads
_SPARE = 16
"""More passages than the depth, so that ids decide among those that tie there (one text in several corpora)."""


@dataclass(frozen=True)
class DenseSide:
    """An encoder, the index of its vectors, and the phrases that it reads."""

    encoder: Encoder
    index: "DenseIndex"
    ordinals: "Ordinals"
    """(vectors,): the ordinal of each vector's passage; passages in languages unknown to the encoder have no vector."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Language of a phrase → this side's weight against the words, 0 to 1."""

    def weight_of(self, phrase: str) -> float:
        """This side's weight for a phrase; 0 if the encoder does not read the phrase."""
        language = language_of(phrase)
        if language == "und":  # A dose, a code: every encoder may read it
            return max(self.weights.values(), default=0.0)
        return self.weights.get(language, 0.0)

    def nearest(
        self,
        phrases: Sequence[str],
        k: int,
        allowed: "NDArray[np.bool_] | None" = None,
    ) -> list[Order]:
        """The k nearest passages to each phrase, best first; the phrases are encoded in one batch.

        `allowed` has a truth value for each passage of the index; None for every passage.
        """
        vectors = self.encoder.encode_queries([p[:_QUERY_CHARS] for p in phrases])
        if allowed is not None:
            allowed = allowed[self.ordinals]
        orders: list[Order] = []
        results = zip(
            vectors,
            *self.index.search(vectors, k, allowed),
            strict=True,
        )
        for vector, scores, numbers in results:
            # A query without a word that the encoder knows is a zero vector, equally near to every passage.
            is_hit = (numbers >= 0) & vector.any()
            ordinals = self.ordinals[numbers[is_hit]].tolist()
            rounded = map(_rounded, scores[is_hit].tolist())
            orders.append(list(zip(ordinals, rounded, strict=True)))
        return orders


@dataclass(eq=False)
class IndexRetriever:
    """The `Retriever` over an index on disk; one instance may serve any number of tasks at once."""

    store: PassageStore
    identity: IndexIdentity
    lexical: LexicalIndex | None
    """None without a search by words; then there is a dense side."""
    dense: Sequence[DenseSide]  # Empty for a search by words alone
    reranker: Reranker | None
    verified: Future[None] | None
    """The check of all files, for which a search waits and whose error it raises; None: no check."""

    async def search(
        self,
        queries: Sequence[Phrases],
        *,
        k: int,
        not_after: date | None = None,
    ) -> list[list[Hit]]:
        """For each query its k best hits (k ≥ 1), best first; equal scores are ordered by passage id.

        Phrases are plain text, whatever they hold. Passages published after `not_after` are left out on every
        side, undated ones stay. `score` is the sum of reciprocal ranks, or a cross-encoder's where it re-ranks.

        Raises IndexCorrupt if a file of the index is damaged.
        """
        if self.verified is not None:
            await asyncio.shield(asyncio.wrap_future(self.verified))
        return await asyncio.to_thread(self.search_now, queries, k, not_after)

    def search_now(
        self,
        queries: Sequence[Phrases],
        k: int,
        not_after: date | None,
    ) -> list[list[Hit]]:
        """As `search`, but blocking, and without waiting for `verified`."""
        depth = max(k, DEPTH)
        allowed = self.store.allowed(not_after) if self.dense else None
        phrases = dict.fromkeys(p for query in queries for p in query)
        nearest: dict[str, Order] = {}
        for side in self.dense:
            own = [phrase for phrase in phrases if self._reader_of(phrase) is side]
            orders_of_side = side.nearest(own, depth + _SPARE, allowed) if own else []
            for phrase, order in zip(own, orders_of_side, strict=True):
                nearest[phrase] = self.store.ordered(order, depth)
        results = []
        for query in queries:
            orders: dict[Place, Order] = {}
            weights: dict[Place, float] = {}
            for place, text, weight in _searched(query):
                if self.lexical is not None:
                    orders[place] = self.lexical.search(text, depth, not_after)
                    weights[place] = weight
            for number, phrase in enumerate(query):
                if reader := self._reader_of(phrase):
                    orders["dense", number] = nearest[phrase]
                    weights["dense", number] = reader.weight_of(phrase)
            results.append(self._hits_of(query, orders, weights, k))
        return results

    def _reader_of(self, phrase: str) -> DenseSide | None:
        """The dense side that counts most for the phrase; None where none reads it."""
        best = max(
            self.dense,
            key=lambda side: side.weight_of(phrase),
            default=None,
        )
        return best if best and best.weight_of(phrase) > 0 else None

    def _hits_of(
        self,
        query: Phrases,
        orders: dict[Place, Order],
        weights: Mapping[Place, float],
        k: int,
    ) -> list[Hit]:
        """Fuse and rerank a query's orders, which are sorted by `Side` and phrase; return the k best hits."""
        wanted = max(k, RERANKED) if self.reranker else k
        best = self.store.ordered(fused(orders, weights), wanted)
        passages = {ordinal: self.store.get(ordinal) for ordinal, _ in best}
        if self.reranker is not None:
            pairs = [passage.title_and_text for passage in passages.values()]
            scores = self.reranker.score(query[0][:_QUERY_CHARS], pairs)
            reread = zip(passages, map(_rounded, scores.tolist()), strict=True)
            best = orders["rerank", 0] = self.store.ordered(list(reread), wanted)
        places: dict[int, list[SideHit]] = defaultdict(list)
        for (side, phrase), order in orders.items():
            for rank, (ordinal, score) in enumerate(order, start=1):
                places[ordinal].append(SideHit(side, rank, score, phrase))
        hits = []
        for rank, (ordinal, score) in enumerate(best[:k], start=1):
            hits.append(Hit(passages[ordinal], score, rank, tuple(places[ordinal])))
        return hits


def _rounded(score: float) -> float:
    return float(f"{score:.{_DIGITS}g}")


def _searched(query: Phrases) -> Iterator[tuple[Place, str, float]]:
    """Yield each search by words: the place of its order, the text to search for, the order's weight.

    Beside each phrase's order there is a joint order of all phrases of a language, so that a claim that is searched by
    three English phrases and in its own Chinese words finds what is written in Chinese. One phrase has no joint order.
    """
    count = len(query)
    share = JOINT if count > 1 else 0.0
    words: dict[str, list[str]] = {}
    for number, phrase in enumerate(query):
        words.setdefault(language_of(phrase), []).append(phrase)
        yield ("lexical", number), phrase, 1 - share
    for number, phrases in enumerate(words.values() if share else ()):
        yield ("joint", number), " ".join(phrases), share * count


def fused(
    orders: Mapping[Place, Order],
    weights: Mapping[Place, float],
) -> Order:
    """(ordinal, fused score) of every passage in any of `orders`, unsorted; `weights` has each order's weight."""
    total: dict[int, float] = {}
    for place, order in orders.items():
        for rank, (ordinal, _) in enumerate(order, start=1):
            share = weights[place] / (RRF_K + rank)
            total[ordinal] = total.get(ordinal, 0.0) + share
    return [(ordinal, round(score, SCORE_DIGITS)) for ordinal, score in total.items()]
