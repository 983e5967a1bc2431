"""The retriever of an index: searches each side, fuses the results, and re-ranks them with a cross-encoder.

Each phrase of a query is searched by its words, and by its nearest vectors where the encoder knows its language:
one that an encoder cannot read has no dense side, and its hits say so by having none.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Literal, NamedTuple

from medlive.errors import UsageError
from medlive.evidence.batcher import Batcher
from medlive.evidence.corpora.parsing.text import language_of
from medlive.evidence.encoder import Encoder, Reranker
from medlive.evidence.fusion import DEPTH, Found, by_ordinal, fused
from medlive.evidence.lexical import LexicalIndex
from medlive.evidence.passage import Hit, IndexIdentity, Passage, Query, Side
from medlive.evidence.store import PassageStore

if TYPE_CHECKING:
    from medlive.evidence.dense import DenseIndex

RetrieverName = Literal["bm25", "dense", "hybrid"]

MAX_K = 1000
RERANKED = 50
"""The first so many of the fused order are read by the cross-encoder; k of them where more are asked for."""
_DIGITS = 6
"""Significant digits of an encoder's score: what is left beyond changes with the batch a text was in."""
_SPARE = 16
"""Passages fetched past the depth, so that ids decide among those that tie there: one text in several corpora."""
LANGUAGES = {"medcpt": frozenset({"en"})}
"""Encoder name → the languages (ISO 639) it reads; one that is not named reads any."""
_MAX_QUERY_CHARS = 8000


@dataclass(frozen=True, slots=True)
class DenseSide:
    """An encoder and the index of its vectors."""

    encoder: Encoder
    index: "DenseIndex"

    def reads(self, phrase: str) -> bool:
        """Whether the encoder knows the phrase's language."""
        languages = LANGUAGES.get(self.encoder.identity.name)
        return languages is None or language_of(phrase) in (*languages, "und")


class _DenseQuery(NamedTuple):
    """One phrase's dense side."""

    text: str
    depth: int
    not_after: date | None
    corpora: frozenset[str] | None


class IndexRetriever:
    """The `Retriever` over an index on disk; one instance may serve any number of tasks at once."""

    def __init__(
        self,
        store: PassageStore,
        identity: IndexIdentity,
        *,
        lexical: LexicalIndex | None,
        dense: DenseSide | None,
        reranker: Reranker | None = None,
    ) -> None:
        """At least one of `lexical` and `dense`."""
        if lexical is None and dense is None:
            raise ValueError("a retriever needs a side")
        self._store = store
        self._identity = identity
        self._lexical = lexical
        self.dense = dense
        """None for a search of words alone."""
        self._reranker = reranker
        self._requests: Batcher[_DenseQuery, Found] = Batcher(self._nearest)

    @property
    def identity(self) -> IndexIdentity:
        """Which index this is."""
        return self._identity

    async def search(
        self,
        queries: Sequence[Query],
        *,
        k: int,
        not_after: date | None = None,
        corpora: Collection[str] | None = None,
    ) -> list[list[Hit]]:
        """For each query its k best hits (1 ≤ k ≤ 1000), best first; equal scores are ordered by passage id.

        Phrases are plain text, whatever they hold. Passages published after `not_after` are left out on every
        side, undated ones stay; so is what is not of `corpora`, where they are named. `score` is the sum of
        reciprocal ranks where sides are fused, a cross-encoder's where it re-ranks, else the one side's own.
        Queries of calls that come at about the same time are encoded and searched together, which changes no
        result.
        Raises UsageError for a corpus that the index does not hold.
        """
        if not 1 <= k <= MAX_K:
            raise ValueError(f"k is {k}, allowed are 1 to {MAX_K}")
        searched_corpora = None if corpora is None else self._known(corpora)
        if self.dense is None:
            return await asyncio.to_thread(self._search_words, queries, k, not_after, searched_corpora)
        dense = self.dense
        readable = [(at, n) for at, q in enumerate(queries) for n, p in enumerate(q.phrases) if dense.reads(p)]
        requests = [
            _DenseQuery(queries[at].phrases[n], self._depth(queries[at], k), not_after, searched_corpora)
            for at, n in readable
        ]
        found, nearest = await asyncio.gather(
            asyncio.to_thread(self._by_words, queries, k, not_after, searched_corpora),
            self._requests.submit(requests),
        )
        for (at, n), near in zip(readable, nearest, strict=True):
            found[at][Side.DENSE, n] = near
        return await asyncio.to_thread(self._hits, queries, found, k)

    def _known(self, corpora: Collection[str]) -> frozenset[str]:
        strange = sorted(set(corpora) - set(self._identity.corpora))
        if strange:
            raise UsageError(
                f"the evidence index has no corpus {', '.join(map(repr, strange))}",
                hint=f"expected one of {', '.join(sorted(self._identity.corpora))}",
            )
        return frozenset(corpora)

    def _search_words(
        self, queries: Sequence[Query], k: int, not_after: date | None, corpora: frozenset[str] | None
    ) -> list[list[Hit]]:
        return self._hits(queries, self._by_words(queries, k, not_after, corpora), k)

    def _depth(self, query: Query, k: int) -> int:
        """How many passages each side contributes."""
        if self._fuses(query):
            return max(k, DEPTH)
        return max(k, RERANKED) if self._reranker is not None else k

    def _fuses(self, query: Query) -> bool:
        return self._identity.retriever == "hybrid" or len(query.phrases) > 1

    def _by_words(
        self, queries: Sequence[Query], k: int, not_after: date | None, corpora: frozenset[str] | None
    ) -> list[dict[tuple[Side, int], Found]]:
        if self._lexical is None:
            return [{} for _ in queries]
        return [
            {
                (Side.LEXICAL, n): self._lexical.search(phrase, self._depth(query, k), not_after, corpora)
                for n, phrase in enumerate(query.phrases)
            }
            for query in queries
        ]

    def _nearest(self, requests: Sequence[_DenseQuery]) -> list[Found]:
        """Encode all in one batch, then search once for each set of filters."""
        assert self.dense is not None
        texts = list(dict.fromkeys(request.text[:_MAX_QUERY_CHARS] for request in requests))
        rows = {text: row for row, text in enumerate(texts)}
        vectors = self.dense.encoder.encode_queries(texts)
        groups: dict[_DenseQuery, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(request._replace(text=""), []).append(number)
        found: list[Found] = [[] for _ in requests]
        for (_, depth, not_after, corpora), numbers in groups.items():
            allowed = self._store.allowed(not_after, corpora)
            if allowed is not None and not allowed.any():
                continue
            chosen = vectors[[rows[requests[number].text[:_MAX_QUERY_CHARS]] for number in numbers]]
            scores, ordinals = self.dense.index.search(chosen, depth + _SPARE, allowed)
            for number, vector, at, near in zip(numbers, chosen, ordinals, scores, strict=True):
                # A query without a word that the encoder knows is a vector of nothing, as near to one as to all.
                if vector.any():
                    pairs = zip(at.tolist(), near.tolist(), strict=True)
                    rounded = [(ordinal, _rounded(score)) for ordinal, score in pairs if ordinal >= 0]
                    found[number] = self._store.ordered(rounded, depth)
        return found

    def _hits(
        self, queries: Sequence[Query], found: Sequence[dict[tuple[Side, int], Found]], k: int
    ) -> list[list[Hit]]:
        return [self._hits_of(query, orders, k) for query, orders in zip(queries, found, strict=True)]

    def _hits_of(self, query: Query, orders: dict[tuple[Side, int], Found], k: int) -> list[Hit]:
        if self._fuses(query):
            best = self._store.ordered(fused(orders), max(k, RERANKED if self._reranker else 0))
        else:
            best = list(next(iter(orders.values()), ()))
        passages: dict[int, Passage] = {}
        if self._reranker is not None:
            best = best[: max(k, RERANKED)]
            passages = {ordinal: self._store.get(ordinal) for ordinal, _ in best}
            orders[Side.RERANK, 0] = best = self._reranked(self._reranker, query.phrases[0], passages)
        places = by_ordinal(orders)
        return [
            Hit(passages.get(ordinal) or self._store.get(ordinal), score, rank, tuple(places.get(ordinal, ())))
            for rank, (ordinal, score) in enumerate(best[:k], start=1)
        ]

    def _reranked(self, reranker: Reranker, phrase: str, passages: dict[int, Passage]) -> list[tuple[int, float]]:
        if not passages:
            return []
        scores = reranker.score(
            phrase[:_MAX_QUERY_CHARS], [passage.title_and_text for passage in passages.values()]
        )
        rounded = [(o, _rounded(float(score))) for o, score in zip(passages, scores, strict=True)]
        return self._store.ordered(rounded, len(rounded))


def _rounded(score: float) -> float:
    return float(f"{score:.{_DIGITS}g}")
