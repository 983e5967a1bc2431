"""What an encoder counts beside the words, and whether a reranker helps, measured on an index's own known items.

A known item is a passage that is looked for by its title, or by its first sentence where it has none, among all
passages, by each side alone. A side that finds
few of them does not know the language, whatever its name promises, and fusing it would spoil what words had found.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from medlive.evidence.dense import as_query, sample_ordinals
from medlive.evidence.encoders.model import Reranker
from medlive.evidence.lexical import LexicalIndex
from medlive.evidence.manifest import RerankerEntry, SideWeight
from medlive.evidence.passage import Passage, Query
from medlive.evidence.retriever import DenseSide, IndexRetriever
from medlive.evidence.store import PassageStore
from medlive.evidence.vectors import Ordinals

ITEMS = 200
"""Titles a language, at most."""
LEAST_ITEMS = 20
"""Fewer titles measure nothing."""
LEAST_SHARE = 0.5
"""A side that finds less than this share of what words find is left out."""
RERANKED_ITEMS = 50
"""Titles a language that a reranker is measured on: it reads ten passages for each."""
_DEPTH = 10
_LOOKED_AT = 20_000
"""Passages from which titles are drawn."""
_TITLE = range(6, 300)
"""Characters of a title that somebody might ask for."""


def measure_weights(
    store: PassageStore,
    lexical: LexicalIndex,
    side: DenseSide,
    languages: Sequence[str],
) -> tuple[SideWeight, ...]:
    """Measure one encoder beside the words, in each of the languages (ISO 639) whose phrases it reads.

    `store` has all passages of the index, `lexical` is the words' side.
    """
    weights = []
    questions = _questions(store, side.ordinals)
    for language in languages:
        asked = questions.get(language, [])[:ITEMS]
        items = len(asked)
        if items < LEAST_ITEMS:
            weights.append(SideWeight(language=language, weight=1.0, items=items))
            continue
        by_words, by_vectors = [], []
        for question, near in zip(asked, side.nearest(asked, _DEPTH), strict=True):
            hits = lexical.search(question, _DEPTH, None)
            by_words.append(_reciprocal_rank(question, (store.get(n) for n, _ in hits)))
            passages = (store.get(n) for n, _ in near)
            by_vectors.append(_reciprocal_rank(question, passages))
        words, vectors = float(np.mean(by_words)), float(np.mean(by_vectors))
        share = min(1.0, vectors / words) if words else 1.0
        weights.append(
            SideWeight(
                language=language,
                weight=round(share, 3) if share >= LEAST_SHARE else 0.0,
                items=items,
                words=round(words, 3),
                vectors=round(vectors, 3),
            )
        )
    return tuple(weights)


def measure_reranker(
    reranker: Reranker,
    retriever: IndexRetriever,
    store: PassageStore,
) -> RerankerEntry:
    """Measure whether a cross-encoder finds known items better than the order that `retriever` gives it."""
    before, after = [], []
    for asked in _questions(store, np.arange(len(store))).values():
        for question in asked[:RERANKED_ITEMS]:
            [hits] = retriever.search_now([Query(question)], _DEPTH, None)
            passages = [hit.passage for hit in hits]
            pairs = [passage.title_and_text for passage in passages]
            order = np.argsort(-reranker.score(question, pairs), kind="stable")
            before.append(_reciprocal_rank(question, passages))
            after.append(_reciprocal_rank(question, [passages[n] for n in order]))
    return RerankerEntry(
        where=reranker.name,
        digest=reranker.digest,
        items=len(before),
        before=round(float(np.mean(before)), 3),
        after=round(float(np.mean(after)), 3),
    )


def _questions(store: PassageStore, ordinals: Ordinals) -> dict[str, list[str]]:
    """Language → questions that a sample of its passages answers, each once."""
    questions: dict[str, dict[str, None]] = {}
    for at in sample_ordinals(len(ordinals), _LOOKED_AT):
        passage = store.get(int(ordinals[at]))
        questions.setdefault(passage.language, {})[_question(passage)] = None
    return {language: list(asked) for language, asked in questions.items()}


def _question(passage: Passage) -> str:
    """What somebody might ask for who wants this passage."""
    if len(passage.title) in _TITLE:
        return passage.title
    return as_query("", passage.text)


def _reciprocal_rank(question: str, passages: Iterable[Passage]) -> float:
    """One over the rank of the first passage that answers the question; 0 without one."""
    for rank, passage in enumerate(passages, start=1):
        if _question(passage) == question:
            return 1 / rank
    return 0.0
