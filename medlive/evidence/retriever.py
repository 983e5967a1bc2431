"""The retriever of an index: searches each side, fuses the results, and re-ranks them with a cross-encoder.

Each phrase of a query is searched by its words, and by its nearest vectors where an encoder reads its language:
one that no encoder reads has no dense side, and its hits say so by having none.

Fusion is by ranks alone (Cormack, Clarke and Büttcher, SIGIR 2009): a passage's score is the sum over sides and
phrases of the side's weight / (60 + its rank there). Scores of different sides cannot be compared, their ranks can.
Words weigh 1, vectors what the build measured for the language (`manifest.SideWeight`).

Where a query has several phrases, the words of all of them together are searched too, which finds what is about the
whole of a claim instead of one aspect; that order counts as much as the phrases' own, and the two halve the words'
share, so that words and vectors weigh alike.
"""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from medlive.evidence.corpora.parsing.text import language_of
from medlive.evidence.encoder import Encoder, Reranker
from medlive.evidence.lexical import LexicalIndex
from medlive.evidence.passage import Hit, IndexIdentity, Passage, Query, Side, SideHit
from medlive.evidence.store import PassageStore
from medlive.evidence.verification import Verification

if TYPE_CHECKING:
    from medlive.evidence.dense import DenseIndex
    from medlive.evidence.vectors import Ordinals

RetrieverName = Literal["bm25", "dense", "hybrid"]
Vector = np.ndarray[tuple[int], np.dtype[np.float32]]

MAX_K = 1000
RRF_K = 60
"""The paper's constant: how little the first ranks differ from the next."""
DEPTH = 100
"""Passages that each side contributes; k of them where more than so many are asked for."""
JOINT = 0.5
"""The share of the words' weight that the order by all phrases' words has; the phrases' own orders have the rest."""
RERANKED = 50
"""The first so many of the fused order are read by the cross-encoder; k of them where more are asked for."""
SCORE_DIGITS = 10
"""Fused scores are rounded so: what is left beyond is the order of float additions."""
_DIGITS = 6
"""Significant digits of an encoder's score: what is left beyond changes with the batch a text was in."""
_SPARE = 16
"""Passages fetched past the depth, so that ids decide among those that tie there: one text in several corpora."""
_MAX_QUERY_CHARS = 8000

Found = Sequence[tuple[int, float]]
"""What one side found: (ordinal, that side's score), best first."""
Orders = Mapping[tuple[Side, int], Found]
"""(side, number of the phrase in the query) → what was found there."""


@dataclass(frozen=True, slots=True)
class DenseSide:
    """An encoder, the index of its vectors, and the phrases that it reads."""

    encoder: Encoder
    index: "DenseIndex"
    ordinals: "Ordinals"
    """(vectors,): which passage each vector is of; an encoder has no vector of a language that it does not know."""
    weights: Mapping[str, float]
    """Language of the phrases that it reads → what it counts beside the words, 0 to 1."""

    def weight_of(self, phrase: str) -> float:
        """What it counts for this phrase; 0 where it does not read it."""
        language = language_of(phrase)
        if language == "und":  # A dose, a code: whoever reads anything may read it
            return max(self.weights.values(), default=0.0)
        return self.weights.get(language, 0.0)


class _DenseQuery(NamedTuple):
    """One phrase's dense side."""

    side: int  # Which of the dense sides reads it
    text: str
    depth: int
    not_after: date | None


class IndexRetriever:
    """The `Retriever` over an index on disk; one instance may serve any number of tasks at once."""

    def __init__(
        self,
        store: PassageStore,
        identity: IndexIdentity,
        *,
        lexical: LexicalIndex | None,
        dense: Sequence[DenseSide] = (),
        reranker: Reranker | None = None,
        verification: Verification | None = None,
    ) -> None:
        """At least one of `lexical` and `dense`; a search waits for `verification`."""
        if lexical is None and not dense:
            raise ValueError("a retriever needs a side")
        self._store = store
        self.identity = identity
        self._lexical = lexical
        self.dense = tuple(dense)
        """None of them for a search of words alone."""
        self._reranker = reranker
        self._verification = verification
        self._one_batch = threading.Lock()

    async def search(
        self,
        queries: Sequence[Query],
        *,
        k: int,
        not_after: date | None = None,
    ) -> list[list[Hit]]:
        """For each query its k best hits (1 ≤ k ≤ 1000), best first; equal scores are ordered by passage id.

        Phrases are plain text, whatever they hold. Passages published after `not_after` are left out on every
        side, undated ones stay. `score` is the sum of
        reciprocal ranks where sides are fused, a cross-encoder's where it re-ranks, else the one side's own.

        Raises IndexCorrupt if a file of the index is damaged.
        """
        if not 1 <= k <= MAX_K:
            raise ValueError(f"k is {k}, allowed are 1 to {MAX_K}")
        if self._verification is not None:
            await self._verification.wait()
        return await asyncio.to_thread(self._search, queries, k, not_after)

    def _search(
        self, queries: Sequence[Query], k: int, not_after: date | None
    ) -> list[list[Hit]]:
        orders: list[dict[tuple[Side, int], Found]] = [{} for _ in queries]
        weights: list[dict[int, float]] = [{} for _ in queries]
        places: list[tuple[int, int]] = []
        requests: list[_DenseQuery] = []
        for at, query in enumerate(queries):
            depth = self._depth(query, k)
            for n, phrase in enumerate(query.phrases):
                if self._lexical is not None:
                    orders[at][Side.LEXICAL, n] = self._lexical.search(
                        phrase, depth, not_after
                    )
                side, weight = self._reader_of(phrase)
                if weight > 0:
                    places.append((at, n))
                    weights[at][n] = weight
                    text = phrase[:_MAX_QUERY_CHARS]
                    requests.append(_DenseQuery(side, text, depth, not_after))
            if self._lexical is not None:
                for number, words in enumerate(joint_phrases(query)):
                    orders[at][Side.JOINT, number] = self._lexical.search(
                        words, depth, not_after
                    )
        for (at, n), near in zip(places, self._nearest(requests), strict=True):
            orders[at][Side.DENSE, n] = near
        return [
            self._hits_of(query, orders[at], weights[at], k)
            for at, query in enumerate(queries)
        ]

    def reads(self, phrase: str) -> bool:
        """Whether the phrase is searched by its meaning too."""
        return self._reader_of(phrase)[1] > 0

    def _reader_of(self, phrase: str) -> tuple[int, float]:
        """The number of the dense side that reads the phrase best, and its weight; weight 0 where none does."""
        sides = [(side.weight_of(phrase), -n) for n, side in enumerate(self.dense)]
        weight, number = max(sides, default=(0.0, 0))
        return -number, weight

    def _depth(self, query: Query, k: int) -> int:
        """How many passages each side contributes."""
        if self._fuses(query):
            return max(k, DEPTH)
        return max(k, RERANKED) if self._reranker is not None else k

    def _fuses(self, query: Query) -> bool:
        return self.identity.retriever == "hybrid" or len(query.phrases) > 1

    def _nearest(self, requests: Sequence[_DenseQuery]) -> list[Found]:
        """Encode each side's phrases in one batch, then search once for each side, day and depth."""
        nearest: list[Found] = [[] for _ in requests]
        groups: dict[_DenseQuery, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(request._replace(text=""), []).append(number)
        vectors = self._encoded(requests)
        for (at, _, depth, not_after), numbers in groups.items():
            side = self.dense[at]
            allowed = self._store.allowed(not_after)
            if allowed is not None:
                allowed = allowed[side.ordinals]
                if not allowed.any():
                    continue
            chosen = np.array([vectors[number] for number in numbers])
            scores, rows = side.index.search(chosen, depth + _SPARE, allowed)
            for number, vector, row, near in zip(
                numbers, chosen, rows, scores, strict=True
            ):
                # A query without a word that the encoder knows is a vector of nothing, as near to one as to all.
                if not vector.any():
                    continue
                hits = row >= 0
                ordinals = side.ordinals[row[hits]].tolist()
                rounded = list(map(_rounded, near[hits].tolist()))
                pairs = list(zip(ordinals, rounded, strict=True))
                nearest[number] = self._store.ordered(pairs, depth)
        return nearest

    def _encoded(self, requests: Sequence[_DenseQuery]) -> dict[int, Vector]:
        """Number of the request → its vector."""
        vectors: dict[int, Vector] = {}
        for at, side in enumerate(self.dense):
            own = [n for n, request in enumerate(requests) if request.side == at]
            texts = list(dict.fromkeys(requests[number].text for number in own))
            if not texts:
                continue
            with self._one_batch:
                rows = dict(zip(texts, side.encoder.encode_queries(texts), strict=True))
            for number in own:
                vectors[number] = rows[requests[number].text]
        return vectors

    def _hits_of(
        self,
        query: Query,
        orders: dict[tuple[Side, int], Found],
        weights: Mapping[int, float],
        k: int,
    ) -> list[Hit]:
        if self._fuses(query):
            best = self._store.ordered(
                fused(orders, weights), max(k, RERANKED if self._reranker else 0)
            )
        else:
            best = list(next(iter(orders.values()), ()))
        passages: dict[int, Passage] = {}
        if self._reranker is not None:
            best = best[: max(k, RERANKED)]
            passages = {ordinal: self._store.get(ordinal) for ordinal, _ in best}
            orders[Side.RERANK, 0] = best = self._reranked(
                self._reranker, query.phrases[0], passages
            )
        places = _by_ordinal(orders)
        return [
            Hit(
                passages.get(ordinal) or self._store.get(ordinal),
                score,
                rank,
                tuple(places.get(ordinal, ())),
            )
            for rank, (ordinal, score) in enumerate(best[:k], start=1)
        ]

    def _reranked(
        self, reranker: Reranker, phrase: str, passages: dict[int, Passage]
    ) -> list[tuple[int, float]]:
        if not passages:
            return []
        scores = reranker.score(
            phrase[:_MAX_QUERY_CHARS],
            [passage.title_and_text for passage in passages.values()],
        )
        rounded = [
            (o, _rounded(float(score)))
            for o, score in zip(passages, scores, strict=True)
        ]
        return self._store.ordered(rounded, len(rounded))


def _rounded(score: float) -> float:
    return float(f"{score:.{_DIGITS}g}")


def joint_phrases(query: Query) -> list[str]:
    """For each language of a query's phrases all their words; nothing for one phrase alone.

    Each language has an order of its own, so that a claim that is searched by three English
    phrases and in its own Chinese words finds what is written in Chinese.
    """
    if len(query.phrases) < 2:
        return []
    words: dict[str, list[str]] = {}
    for phrase in query.phrases:
        words.setdefault(language_of(phrase), []).append(phrase)
    return [" ".join(phrases) for phrases in words.values()]


def fused(orders: Orders, dense: Mapping[int, float]) -> list[tuple[int, float]]:
    """(ordinal, fused score) of everything that is in any order, in no order.

    `dense` is phrase → the weight of its vectors.
    """
    total: dict[int, float] = {}
    weights = _weights(orders, dense)
    for key, found in orders.items():
        for rank, (ordinal, _) in enumerate(found, start=1):
            share = weights[key] / (RRF_K + rank)
            total[ordinal] = total.get(ordinal, 0.0) + share
    return [(ordinal, round(score, SCORE_DIGITS)) for ordinal, score in total.items()]


def _weights(
    orders: Orders, dense: Mapping[int, float]
) -> dict[tuple[Side, int], float]:
    """What each order counts: words one, of which joint orders have their share; vectors what was measured."""
    phrases = sum(side is Side.LEXICAL for side, _ in orders)
    joint = (Side.JOINT, 0) in orders
    weights: dict[tuple[Side, int], float] = {}
    for side, number in orders:
        weight = 1.0
        if side is Side.DENSE:
            weight = dense[number]
        elif side is Side.JOINT:
            weight = JOINT * phrases
        elif joint:
            weight = 1 - JOINT
        weights[side, number] = weight
    return weights


def _by_ordinal(orders: Orders) -> dict[int, list[SideHit]]:
    """Ordinal → its place in each order that has it, by side and phrase."""
    places: dict[int, list[SideHit]] = {}
    sides = list(Side)
    for side, phrase in sorted(orders, key=lambda key: (sides.index(key[0]), key[1])):
        for rank, (ordinal, score) in enumerate(orders[side, phrase], start=1):
            places.setdefault(ordinal, []).append(SideHit(side, rank, score, phrase))
    return places
