"""Bootstrap draws of clusters: `weight_chunks` makes the weights, `over_draws` and `bootstrap_*` the drawn figures.

The weights of one table are the same for every model, slice and pair, so that their figures are paired.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypedDict, Unpack

import numpy as np

from .intervals import Flags, Floats, Places, quotient


class Draws(TypedDict, total=False):
    """The number of draws (1000 if absent), and the seed of their random numbers (0 if absent)."""

    draws: int
    seed: int


class Resampling(Draws, total=False):
    """How items are drawn; all figures of one table of scores share these arguments."""

    clusters: Places | None
    """Each item's cluster, from 0; None: each is its own."""


_CHUNK = 16_000_000
"""About the most weights (draws x items) in memory at a time; more are made chunk by chunk."""


def weight_chunks(
    items: int,
    draws: int = 1000,
    seed: int = 0,
    clusters: Places | None = None,
) -> Iterable[Floats]:
    """Chunks of resampling weights, (some draws x items): how often a draw, with replacement, takes each item's
    cluster. All chunks together have `draws` rows.

    `clusters` gives each item's cluster, from 0; None: each item is its own. The rows depend on the seed alone, not
    on the chunks' size.
    """
    place = np.arange(items) if clusters is None else clusters
    if len(place) * draws > _CHUNK:
        return _draw_weights(place, draws, seed)
    return _kept_weights(place.astype(np.int64).tobytes(), draws, seed)


@lru_cache(maxsize=1)
def _kept_weights(
    place: bytes,
    draws: int,
    seed: int,
) -> list[Floats]:
    """The whole matrix of weights, kept for the next call: a table's models, slices and pairs share it."""
    clusters = np.frombuffer(place, dtype=np.int64)
    return list(_draw_weights(clusters, draws, seed))


def _draw_weights(
    place: Places,
    draws: int,
    seed: int,
) -> Iterator[Floats]:
    """Draw the weights, chunk by chunk; `place` gives each item's cluster."""
    rng = np.random.default_rng(seed)
    count = int(place.max(initial=-1)) + 1
    step = max(1, _CHUNK // max(1, len(place)))
    for start in range(0, draws, step):
        weights = np.empty((min(step, draws - start), count))
        for row in weights:
            drawn = rng.integers(0, count, size=count)
            row[:] = np.bincount(drawn, minlength=count)
        # Column-major: groups of items, which are columns, are taken out again and again.
        yield np.asfortranarray(weights[:, place])


def over_draws(
    figure: Callable[[Floats], Floats],
    items: int,
    **how: Unpack[Resampling],
) -> Floats:
    """`figure` evaluated on every draw's weights: it takes (some draws x items) and returns a row for each draw."""
    return np.concatenate(list(map(figure, weight_chunks(items, **how))))


def cluster_counts(
    known: Flags,
    clusters: Places | None,
) -> Places:
    """How many clusters have a known item, by column of `known` (items x columns); None: each item is a cluster."""
    counts = cluster_sums(known.astype(np.float64), clusters)
    return np.asarray((counts > 0).sum(axis=0))


def cluster_sums(values: Floats, clusters: Places | None) -> Floats:
    """The sums of items by cluster: (clusters x columns); None: each item is a cluster."""
    if clusters is None or not len(values):
        return values
    order = np.argsort(clusters, kind="stable")
    starts = np.flatnonzero(np.diff(clusters[order], prepend=-1))
    return np.asarray(np.add.reduceat(values[order], starts, axis=0))


def bootstrap_means(
    values: Floats,
    **how: Unpack[Resampling],
) -> Floats:
    """The mean of each column in each draw: (draws x columns).

    `values` is (items x columns), NaN where a column lacks an item; such items are left out of that column's mean.
    The mean is NaN in a draw without any item of the column.
    """
    return bootstrap_groups(values, **how)[:, 0]


def bootstrap_groups(
    values: Floats,
    groups: Sequence[Places] | None = None,
    **how: Unpack[Resampling],
) -> Floats:
    """The mean of each column within each group in each draw: (draws x groups x columns).

    `groups` are rows of items; None: one group of all. All items are drawn, whatever their group, so that figures of
    different groups are paired. Otherwise as `bootstrap_means`.
    """
    present = ~np.isnan(values)
    return bootstrap_ratios(
        np.where(present, values, 0.0),
        present.astype(np.float64),
        groups,
        **how,
    )


def bootstrap_ratios(
    above: Floats,
    below: Floats,
    groups: Sequence[Places] | None = None,
    **how: Unpack[Resampling],
) -> Floats:
    """Σ above / Σ below over a draw's items, by group and column: (draws x groups x columns); NaN for 0 / 0.

    `above` and `below` are (items x columns), without NaN. Otherwise as `bootstrap_groups`.
    """
    both = np.concatenate([above, below], axis=1)
    if groups is None:
        groups = [np.arange(len(above))]

    def of_draws(weights: Floats) -> Floats:
        ratios = np.full(
            (len(weights), len(groups), above.shape[1]),
            np.nan,
        )
        for group, rows in enumerate(groups):
            if not len(rows):
                continue
            is_whole = len(rows) == len(above)
            own = weights if is_whole else weights[:, rows]
            sums = own @ both[rows]
            upper, lower = np.split(sums, 2, axis=1)
            ratios[:, group] = quotient(upper, lower)
        return ratios

    return over_draws(of_draws, len(above), **how)


def spread_over_draws(drawn: Floats) -> Floats:
    """The standard deviation over draws; NaN where no draw has a value."""
    with warnings.catch_warnings():
        # NumPy warns of columns that are all NaN
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanstd(drawn, axis=0))
