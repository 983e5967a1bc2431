"""BM25 on disk: finds passages by the words they share with a query, weighted by rarity.

Tantivy scores with k1 = 1.2 and b = 0.75 (fixed in the library). A passage has two fields, the head (title
and section) and the body (the text); a term's scores in both are added, the head's times `HEAD_BOOST`.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import tantivy

from medlive.errors import IndexCorrupt, IndexOutdated
from medlive.evidence.analysis import Analyzer, analyzer
from medlive.evidence.passage import Hit, IndexIdentity, Passage, Query
from medlive.evidence.store import PassageStore

RETRIEVER = "bm25"
HEAD_BOOST = 0.75
"""Measured: on the Cystic Fibrosis collection nDCG@10 is 0.446 without the head, 0.51-0.52 from 0.5 to 1, 0.476 at
2; on sentences of real advice more than 1 lets one word of a title outweigh the rest of the sentence."""
MAX_QUERY_CHARS = 8000
"""Only the beginning of a longer query is looked at."""
MAX_QUERY_TERMS = 64
"""The rarest terms of a longer query; the others would only slow it down."""
MAX_K = 1000
SCORE_DIGITS = 4
"""Scores are rounded so: what is left beyond is the order of float additions."""

_WRITER_MEMORY = 64_000_000


def parameters() -> dict[str, float | int | str]:
    """What decides the results beside the passages; part of the index digest."""
    return {
        "k1": 1.2,
        "b": 0.75,
        "head_boost": HEAD_BOOST,
        "max_query_terms": MAX_QUERY_TERMS,
        "analyzer": analyzer().fingerprint,
    }


def libraries() -> dict[str, str]:
    """The versions of the libraries that cut and search."""
    from importlib.metadata import version

    return {"tantivy": version("tantivy"), "rjieba": version("rjieba")}


def _schema() -> Any:
    return (
        tantivy.SchemaBuilder()
        .add_text_field("head", tokenizer_name="whitespace", index_option="freq")
        .add_text_field("body", tokenizer_name="whitespace", index_option="freq")
        .add_unsigned_field("ordinal", fast=True)
        .add_integer_field("day", indexed=True, fast=True)
        .build()
    )


class LexicalWriter:
    """Builds the index in an empty folder; one thread, so that the same passages give the same segments."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._analyzer = analyzer()
        self._index = tantivy.Index(_schema(), path=str(folder))
        self._writer = self._index.writer(_WRITER_MEMORY, 1)

    def add(self, ordinal: int, passage: Passage) -> None:
        """Index a passage under its ordinal in the store."""
        document = tantivy.Document()
        # Terms hold no white space, so that the engine's whitespace tokenizer gives them back as they are.
        document.add_text("head", " ".join(self._analyzer.terms(f"{passage.title} {passage.section}")))
        document.add_text("body", " ".join(self._analyzer.terms(passage.text)))
        document.add_unsigned("ordinal", ordinal)
        if passage.published is not None:
            document.add_integer("day", passage.published.toordinal())
        self._writer.add_document(document)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._writer.commit()
        else:
            self._writer.rollback()
        self._writer.wait_merging_threads()


@dataclass(frozen=True, slots=True)
class _Found:
    score: float
    passage: Passage


class BM25Retriever:
    """The `Retriever` over an index on disk; one instance may serve any number of tasks at once."""

    def __init__(self, folder: Path, store: PassageStore, identity: IndexIdentity) -> None:
        """Open the index in `folder` over the passages of `store`. Raises IndexCorrupt or IndexOutdated."""
        try:
            self._index = tantivy.Index.open(str(folder))
            self._index.config_reader("manual")
            self._index.reload()
            self._searcher = self._index.searcher()
        except ValueError as exc:
            outdated = "incompatible" in str(exc).lower()
            raise (IndexOutdated if outdated else IndexCorrupt)(f"{folder} cannot be opened: {exc}") from exc
        if self._searcher.num_docs != len(store):
            raise IndexCorrupt(f"{folder} indexes {self._searcher.num_docs} passages of {len(store)} stored")
        self._schema = self._index.schema
        self._store = store
        self._identity = identity
        self._analyzer: Analyzer = analyzer()

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

        A query is plain text, whatever it holds; one without a word of the index has no hits. Passages
        published after `not_after` are left out, undated ones stay.
        """
        if not 1 <= k <= MAX_K:
            raise ValueError(f"k is {k}, allowed are 1 to {MAX_K}")
        return await asyncio.to_thread(self._search_all, [query.text for query in queries], k, not_after)

    def _search_all(self, queries: list[str], k: int, not_after: date | None) -> list[list[Hit]]:
        return [self._search(query, k, not_after) for query in queries]

    def _search(self, query: str, k: int, not_after: date | None) -> list[Hit]:
        asked = self._query(query, not_after)
        if asked is None:
            return []
        # Fetch past k until a lower score shows that every passage that ties with the k-th is there.
        limit = k + 16
        while True:
            try:
                hits = self._searcher.search(asked, limit, count=False).hits
                ordinals = self._searcher.fast_field_values("ordinal", [address for _, address in hits])
            except ValueError as exc:
                raise IndexCorrupt(f"the evidence index cannot be read: {exc}") from exc
            scores = [round(score, SCORE_DIGITS) for score, _ in hits]
            if len(hits) < limit or scores[-1] < scores[k - 1]:
                break
            limit *= 4
        last = scores[min(k, len(scores)) - 1] if scores else 0.0
        found = [
            _Found(score, self._passage(ordinal))
            for score, ordinal in zip(scores, ordinals, strict=True)
            if score >= last
        ]
        found.sort(key=lambda f: (-f.score, f.passage.id))
        return [Hit(f.passage, f.score, rank) for rank, f in enumerate(found[:k], start=1)]

    def _passage(self, ordinal: float | None) -> Passage:
        if ordinal is None:
            raise IndexCorrupt("the evidence index holds a document without its passage's number")
        return self._store.get(int(ordinal))

    def _query(self, text: str, not_after: date | None) -> Any | None:
        """The engine's query, built term by term; None when no term is in the index."""
        frequency: dict[str, int] = {}
        for term in dict.fromkeys(self._analyzer.terms(text[:MAX_QUERY_CHARS])):
            frequency[term] = self._searcher.doc_freq("body", term) + self._searcher.doc_freq("head", term)
        known = sorted((count, term) for term, count in frequency.items() if count)[:MAX_QUERY_TERMS]
        if not known:
            return None
        should = tantivy.Occur.Should
        clauses = []
        for _, term in known:
            body = tantivy.Query.term_query(self._schema, "body", term, "freq")
            head = tantivy.Query.term_query(self._schema, "head", term, "freq")
            clauses += [(should, body), (should, tantivy.Query.boost_query(head, HEAD_BOOST))]
        query = tantivy.Query.boolean_query(clauses)
        if not_after is None:
            return query
        later = tantivy.Query.range_query(
            self._schema,
            "day",
            tantivy.FieldType.Integer,
            lower_bound=not_after.toordinal(),
            include_lower=False,
        )
        return tantivy.Query.boolean_query([(tantivy.Occur.Must, query), (tantivy.Occur.MustNot, later)])
