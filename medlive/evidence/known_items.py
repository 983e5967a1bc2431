"""What an encoder counts beside the words, measured on an index's own known items.

A known item is a passage that is looked for by its title, or by its first sentence where it has none, among all
passages, by each side alone. A side that finds
few of them does not know the language, whatever its name promises, and fusing it would spoil what words had found.
"""

from collections.abc import Sequence

import numpy as np

from medlive.evidence.dense import DenseIndex, as_query, sample_ordinals
from medlive.evidence.encoder import Encoder
from medlive.evidence.lexical import LexicalIndex
from medlive.evidence.manifest import SideWeight
from medlive.evidence.passage import Passage
from medlive.evidence.store import PassageStore
from medlive.evidence.vectors import Ordinals

ITEMS = 200
"""Titles a language, at most."""
LEAST_ITEMS = 20
"""Fewer titles measure nothing."""
LEAST_SHARE = 0.5
"""A side that finds less than this share of what words find is left out."""
_DEPTH = 10
_LOOKED_AT = 20_000
"""Passages from which titles are drawn."""
_TITLE = range(6, 300)
"""Characters of a title that somebody might ask for."""


def measure_weights(
    store: PassageStore,
    lexical: LexicalIndex,
    dense: DenseIndex,
    ordinals: Ordinals,
    encoder: Encoder,
    languages: Sequence[str],
) -> tuple[SideWeight, ...]:
    """Measure one encoder beside the words, in each language that it reads.

    Args:
        store: All passages of the index.
        lexical: The words' side.
        dense: The encoder's side.
        ordinals: Which passage each of its vectors is of.
        encoder: The encoder.
        languages: The languages (ISO 639) whose phrases it reads.
    """
    weights = []
    items = _items(store, ordinals)
    for language in languages:
        titles = items.get(language, {})
        if len(titles) < LEAST_ITEMS:
            weights.append(SideWeight(language=language, weight=1.0, items=len(titles)))
            continue
        by_words = []
        for title, wanted in titles.items():
            hits = lexical.search(title, _DEPTH, None)
            by_words.append(_reciprocal_rank([at for at, _ in hits], wanted))
        rows = dense.search(encoder.encode_queries(list(titles)), _DEPTH).ordinals
        by_vectors = []
        for row, wanted in zip(rows, titles.values(), strict=True):
            by_vectors.append(_reciprocal_rank(ordinals[row[row >= 0]], wanted))
        words, vectors = float(np.mean(by_words)), float(np.mean(by_vectors))
        share = min(1.0, vectors / words) if words else 1.0
        weights.append(
            SideWeight(
                language=language,
                weight=round(share, 3) if share >= LEAST_SHARE else 0.0,
                items=len(titles),
                words=round(words, 3),
                vectors=round(vectors, 3),
            )
        )
    return tuple(weights)


def _items(
    store: PassageStore, ordinals: Ordinals
) -> dict[str, dict[str, frozenset[int]]]:
    """Language → title → the passages that have it, of a sample of titles of each language."""
    chosen: dict[str, dict[str, set[int]]] = {}
    for at in sample_ordinals(len(ordinals), _LOOKED_AT):
        passage = store.get(int(ordinals[at]))
        titles = chosen.setdefault(passage.language, {})
        if len(titles) < ITEMS:
            titles.setdefault(_question(passage), set())
    for ordinal in ordinals:
        passage = store.get(int(ordinal))
        wanted = chosen.get(passage.language, {}).get(_question(passage))
        if wanted is not None:
            wanted.add(int(ordinal))
    return {
        language: {title: frozenset(wanted) for title, wanted in titles.items()}
        for language, titles in chosen.items()
    }


def _question(passage: Passage) -> str:
    """What somebody might ask for who wants this passage."""
    if len(passage.title) in _TITLE:
        return passage.title
    return as_query("", passage.text)


def _reciprocal_rank(
    ordinals: "Sequence[int] | Ordinals", wanted: frozenset[int]
) -> float:
    for rank, ordinal in enumerate(ordinals, start=1):
        if int(ordinal) in wanted:
            return 1 / rank
    return 0.0
