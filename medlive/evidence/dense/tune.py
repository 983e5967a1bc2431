"""Search parameters that reach a recall at the least cost, and the recall they reach on other queries."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from medlive.evidence.dense.index import Searcher, faiss
from medlive.evidence.dense.model import DenseKind, Matrix, Ordinals
from medlive.evidence.dense.vectors import EncoderIdentity

BLOCK = 32_768
"""Vectors in single precision at a time."""
_STEPS = tuple(sorted({round(2 ** (half / 2)) for half in range(34)}))
_MARGIN = 0.01
"""Above the target on the queries that are tuned on: about one standard error of a mean of 256 recalls."""
_REFINES: dict[DenseKind, tuple[int, ...]] = {DenseKind.IVF_SQ8: (1, 2, 4), DenseKind.IVF_PQ: (4, 8, 16, 32, 64)}
_SEED = 20230102
_SENTENCE = re.compile(r"\s*.{20,300}?(?:[.!?](?=\s|$)|[。！？])", re.DOTALL)
"""At least some words long, so that a heading or an abbreviation is no sentence."""
_EF = (16, 4096)
"""The least and the most candidates that HNSW is tried with."""


class VectorSource(Protocol):
    """Vectors in the order of an index's passages."""

    @property
    def encoder(self) -> EncoderIdentity: ...

    @property
    def keys_digest(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    def __len__(self) -> int: ...

    def half(self, start: int, stop: int) -> NDArray[np.float16]:
        """The vectors of the ordinals from `start` up to `stop`."""
        ...

    def rows(self, ordinals: Ordinals) -> Matrix:
        """The vectors of these ordinals."""
        ...


def blocks(source: VectorSource, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Matrix]]:
    """The vectors of ordinals `start` up to `stop` in single precision, by blocks, each with its first ordinal."""
    end = len(source) if stop is None else stop
    for first in range(start, end, BLOCK):
        yield first, source.half(first, min(first + BLOCK, end)).astype(np.float32)


def exact(
    source: VectorSource, queries: Matrix, k: int, progress: Callable[[int], None] | None = None
) -> tuple[Matrix, Ordinals]:
    """The k nearest of all vectors to each query, by looking at every one; memory: one block."""
    scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
    ordinals = np.full((len(queries), k), -1, dtype=np.int64)
    for first, block in blocks(source):
        best, at = faiss.knn(queries, block, min(k, len(block)), metric=faiss.METRIC_INNER_PRODUCT)
        both = np.concatenate([scores, best], axis=1)
        places = np.concatenate([ordinals, at + first], axis=1)
        order = np.argsort(-both, axis=1, kind="stable")[:, :k]
        scores, ordinals = np.take_along_axis(both, order, 1), np.take_along_axis(places, order, 1)
        if progress is not None:
            progress(first + len(block))
    return scores, ordinals


def recall(found: Ordinals, expected: Ordinals) -> float:
    """The mean share of the expected ordinals of a row that are found in it; -1 stands for none."""
    shares = [
        len(np.intersect1d(got[got >= 0], want[want >= 0])) / max(int((want >= 0).sum()), 1)
        for got, want in zip(found, expected, strict=True)
    ]
    return float(np.mean(shares))


def sample_ordinals(count: int, size: int) -> Ordinals:
    """Ordinals drawn evenly, each once; the same at each call."""
    return np.random.default_rng(_SEED).permutation(count)[:size].astype(np.int64)


def as_query(title: str, text: str) -> str:
    """What somebody might ask or claim whom this passage answers: its first sentence, or its title without one.

    For queries to tune and measure on where real ones are few: a query lies farther from the passages than they
    lie from each other, and an index tuned on passages finds fewer of its neighbours.
    """
    first = _SENTENCE.match(text)
    return (first[0] if first else title).strip() or title


class Trial:
    """Queries with their exact answers."""

    def __init__(self, queries: Matrix, expected: Ordinals, k: int, own: Ordinals | None) -> None:
        """`own`: the ordinal that each query is the vector of, which is no answer to it; then `expected` was
        looked for among k + 1."""
        self._queries = queries
        self._k = k
        self._own = own
        self._expected = self._answers(expected)

    def recall(self, searcher: Searcher, effort: int, refine: int) -> float:
        """What the searcher finds at this effort."""
        wide = min(self._k + (self._own is not None), searcher.count)
        return recall(self._answers(searcher.search(self._queries, wide, effort, refine)[1]), self._expected)

    def _answers(self, ordinals: Ordinals) -> Ordinals:
        if self._own is None:
            return ordinals[:, : self._k]
        others_found = np.full((len(ordinals), self._k), -1, dtype=np.int64)
        for row, (found, own) in enumerate(zip(ordinals, self._own, strict=True)):
            others = found[found != own][: self._k]
            others_found[row, : len(others)] = others
        return others_found


def tune(searcher: Searcher, trial: Trial, target: float, k: int, nlist: int | None) -> tuple[int, int]:
    """The cheapest (effort, refine) that reaches the target with a margin; if none does, the one of best recall.

    Cost is counted, not timed, so that a build gives the same index on a busy machine: bytes read from lists and
    for scoring again. More effort finds no less, so that each refinement's least effort is found by halving.
    """
    if searcher.kind is DenseKind.FLAT:
        return 1, 1
    least, limit = _EF if nlist is None else (1, nlist)
    steps = [step for step in _STEPS if least <= step < limit] + [limit]
    goal = min(target + _MARGIN, 1.0)
    best: tuple[float, int, int] | None = None
    fallback = (-1.0, limit, 1)
    for refine in _REFINES.get(searcher.kind, (1,)):
        best_recall, effort = _least_effort(steps, partial(_recall, searcher, trial, refine), goal)
        if effort is None:
            fallback = max(fallback, (best_recall, steps[-1], refine))
            continue
        cost = _cost(searcher, effort, refine, k, nlist)
        if best is None or cost < best[0]:
            best = (cost, effort, refine)
    if best is not None:
        return best[1], best[2]
    return fallback[1], fallback[2]


def _recall(searcher: Searcher, trial: Trial, refine: int, effort: int) -> float:
    return trial.recall(searcher, effort, refine)


def _least_effort(steps: list[int], recall_at: Callable[[int], float], goal: float) -> tuple[float, int | None]:
    """The least step that reaches the goal, with its recall; the recall of the last and None where none does."""
    low, high, at_high = 0, len(steps) - 1, None
    while low < high:
        middle = (low + high) // 2
        value = recall_at(steps[middle])
        if value >= goal:
            high, at_high = middle, value
        else:
            low = middle + 1
    value = recall_at(steps[high]) if at_high is None else at_high
    return value, steps[high] if value >= goal else None


def _cost(searcher: Searcher, effort: int, refine: int, k: int, nlist: int | None) -> float:
    if nlist is None:
        return float(effort)
    code = {DenseKind.IVF_FLAT: 2.0, DenseKind.IVF_SQ8: 1.0}.get(searcher.kind, 0.25) * searcher.dimension
    listed = effort / nlist * searcher.count * code
    # A candidate's vector is read from a place of its own, at about four times the cost of a list's next.
    again = refine * k * searcher.dimension * 2 * 4
    return listed + again
