"""One scale: what models would score on all cases of a window, although each answered only some of them.

A two-way model of normal scores (van der Waerden) with a slope for each model, fitted by least squares with the cases
absorbed, and read back as scores by isotonic regression. Draws are linear in the weights of the cases (Jaeckel's
infinitesimal jackknife). docs/scale.md says what is promised, docs/method.md §2 has the formulas and their sources.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from medlive.statistics.bootstrap import (
    Comparison,
    Floats,
    Places,
    Standing,
    cluster_sums,
    tie_groups,
    weight_chunks,
    with_holm,
)
from medlive.statistics.intervals import mean_bounds, quantile

Flags = NDArray[np.bool_]

LEAST_COMMON: Final = 5
"""Cases that two models must share to be linked directly."""
LEAST_CASES: Final = 10
"""Cases from which there is a scale."""
SLOPE_CASES: Final = 20.0
"""Cases of ordinary spread that speak for a slope of 1 before any is seen."""
BEYOND_CHANCE: Final = 4.0
"""A model's own departure from the curve counts as far as its square exceeds so many times its variance."""

_STEPS: Final = 50
_CLOSE: Final = 1e-3
"""On the normal scale: a thousandth moves a score by less than 0.0005."""
_RIDGE: Final = 0.01
"""Keeps a level finite that nothing determines; too small to move one that is determined."""
_BINS: Final = 100
_WIDTH: Final = 0.25
"""Half the distance over which the curve's slope is taken: it rises in steps."""


@dataclass(frozen=True, slots=True)
class Ability:
    """What one model would score on all cases of the window."""

    name: str
    n: int
    """Cases that it has a score on."""
    value: float | None = None
    """The mean of its scores, and of the expected ones where it has none; None: `why` says so."""
    low: float | None = None
    high: float | None = None
    """The 95 % interval of that mean on these cases; only what was not answered is uncertain."""
    wide_low: float | None = None
    wide_high: float | None = None
    """The 95 % interval for other cases of the kind, as that of a plain mean is."""
    slope: float | None = None
    """How strongly it follows the difficulty of cases; the mean of all models is 1."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """Models and cases on one scale."""

    abilities: tuple[Ability, ...]
    """In the order of the names."""
    standings: tuple[Standing, ...]
    """Tie groups and rank ranges of the models on the scale, from the best down."""
    expected: Floats
    """(cases x models): each model's expected score on each case; NaN off the scale."""
    variance: Floats
    """Of a score around `expected`, in the same shape."""
    why: str = ""
    """Why there is no scale at all."""


class _Fit(NamedTuple):
    scores: Floats
    known: Flags
    normal: Floats
    """Normal scores, 0 where there is none."""
    levels: Floats
    slopes: Floats
    easiness: Floats
    support: Floats
    """Of a case: what its easiness is based on, the sum of the squared slopes."""

    @property
    def places(self) -> Floats:
        """(cases x models): where each score is expected on the normal scale."""
        return self.levels + self.easiness[:, None] * self.slopes

    @property
    def residuals(self) -> Floats:
        return np.where(self.known, self.normal - self.places, 0.0)

    @property
    def freedom(self) -> int:
        """Scores less what is fitted to them: an easiness a case, level and slope a model."""
        return max(int(self.known.sum()) - len(self.scores) - 2 * len(self.levels), 1)

    @property
    def unseen_places(self) -> Floats:
        """`places` with each case's easiness by the other models alone: fair to a score that helped to set it."""
        leverage = np.minimum(self.slopes**2 / self.support[:, None], 0.95)
        return np.asarray(self.places - self.residuals * leverage / (1 - leverage))


def linked_groups(known: Flags) -> list[list[int]]:
    """Models (columns of `known`) that `LEAST_COMMON` shared cases link, directly or through others.

    The largest group comes first, of equal ones that with more scores.
    """
    counts = known.astype(np.float64)
    linked = counts.T @ counts >= LEAST_COMMON
    for _ in range(len(linked).bit_length()):
        linked = linked | (linked @ linked)
    groups = {tuple(np.flatnonzero(row).tolist()) for row in linked if row.any()}
    key = {group: (-len(group), -counts[:, group].sum()) for group in groups}
    return sorted(map(list, sorted(groups)), key=lambda group: key[tuple(group)])


def scale(
    names: Sequence[str],
    scores: Floats,
    *,
    clusters: Places | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Scale:
    """Put models on one scale by the scores that they have.

    Args:
        names: Models, one a column.
        scores: (cases x models) in [0, 1], NaN where a model has no score.
        clusters: Each case's cluster, from 0; None: each case is its own.
        draws: Bootstrap draws of clusters.
        seed: Of the draws.

    A model off the scale has no value, and a reason. Cases that only such models have a score on are left out.
    """
    known = ~np.isnan(scores)
    members = np.array(next(iter(linked_groups(known)), []), dtype=np.int_)
    cases = np.flatnonzero(known[:, members].any(axis=1))
    own = scores[np.ix_(cases, members)]
    why = _objection(own)
    abilities = [
        Ability(name=name, n=int(n), why=why or UNLINKED)
        for name, n in zip(names, known.sum(axis=0), strict=True)
    ]
    expected = np.full(scores.shape, np.nan)
    variance = np.full(scores.shape, np.nan)
    if why:
        return Scale(tuple(abilities), (), expected, variance, why)
    fit = _fit(own)
    reading = _read(fit)
    place = None
    if clusters is not None:
        place = np.unique(clusters[cases], return_inverse=True)[1]
    influence = cluster_sums(reading.influence, place)
    linking = cluster_sums(reading.linking, place)
    chunks = [weights - 1 for weights in weight_chunks(len(influence), draws, seed)]
    doubt = np.random.default_rng(seed).normal(size=(draws, len(members)))
    drawn = reading.values + np.concatenate([chunk @ influence for chunk in chunks])
    drawn += doubt * np.sqrt(reading.doubt)
    moved = np.concatenate([chunk @ linking for chunk in chunks])
    wide = mean_bounds(
        reading.values, drawn.std(axis=0), np.full(len(members), len(influence))
    )
    # Residuals are smaller than errors by what was fitted to them.
    spread = moved.var(axis=0) * fit.known.sum() / fit.freedom
    narrow = _on_these_cases(fit, reading, spread + reading.doubt)
    for at, member in enumerate(members):
        abilities[member] = Ability(
            name=names[member],
            n=abilities[member].n,
            value=float(reading.values[at]),
            low=float(narrow[0][at]),
            high=float(narrow[1][at]),
            wide_low=float(wide[0][at]),
            wide_high=float(wide[1][at]),
            slope=float(fit.slopes[at]),
        )
    expected[np.ix_(cases, members)] = reading.expected
    variance[np.ix_(cases, members)] = reading.variance
    standings = _standings([names[at] for at in members], reading.values, drawn)
    return Scale(tuple(abilities), standings, expected, variance)


UNLINKED: Final = (
    f"not linked: shares fewer than {LEAST_COMMON} cases with the models on the scale"
)


def _objection(scores: Floats) -> str:
    """Why these scores give no scale; "" where they do."""
    if scores.shape[1] < 2:
        return f"no scale: no two models share {LEAST_COMMON} cases"
    if len(scores) < LEAST_CASES:
        return f"no scale: {len(scores)} cases, it needs {LEAST_CASES}"
    if np.nanmin(scores) == np.nanmax(scores):
        return "no scale: all scores are the same"
    return ""


def normal_scores(scores: Floats) -> Floats:
    """The normal quantile of each score's rank among all, ties at their middle; 0 for NaN."""
    known = ~np.isnan(scores)
    _, place, counts = np.unique(scores[known], return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2
    quantile = NormalDist().inv_cdf
    levels = np.array([quantile(rank) for rank in middle / counts.sum()])
    out = np.zeros(scores.shape)
    out[known] = levels[place]
    return out


def _fit(scores: Floats) -> _Fit:
    """Levels and slopes of models by Gauss and Newton's steps, the easiness of each case absorbed."""
    known = ~np.isnan(scores)
    models = scores.shape[1]
    normal = normal_scores(scores)
    fit = _absorb(scores, known, normal, np.zeros(models), np.ones(models))
    for _ in range(_STEPS):
        residuals = fit.residuals
        to_levels = residuals.sum(axis=0) - _RIDGE * fit.levels
        to_slopes = fit.easiness @ residuals - SLOPE_CASES * (fit.slopes - 1)
        gradient = np.concatenate([to_levels, to_slopes])
        step = np.linalg.solve(_information(fit), gradient)
        slopes = fit.slopes + step[models:]
        slopes = slopes / slopes.mean()
        before = fit
        fit = _absorb(scores, known, normal, fit.levels + step[:models], slopes)
        change = np.abs(fit.levels - before.levels) + np.abs(fit.slopes - before.slopes)
        if change.max() < _CLOSE:
            break
    return fit


def _absorb(
    scores: Floats, known: Flags, normal: Floats, levels: Floats, slopes: Floats
) -> _Fit:
    """The fit with each case's best easiness under these levels and slopes; their mean is 0."""
    support = known @ slopes**2 + _RIDGE
    easiness = np.where(known, normal - levels, 0.0) @ slopes / support
    middle = easiness.mean()
    return _Fit(
        scores,
        known,
        normal,
        levels + middle * slopes,
        slopes,
        easiness - middle,
        support,
    )


def _information(fit: _Fit) -> Floats:
    """(2 models x 2 models): least squares in levels and slopes, the cases absorbed (Schur's complement)."""
    known = fit.known.astype(np.float64)
    borne = known * fit.slopes
    blocks = []
    for power in range(3):
        by_case = fit.easiness**power
        own = np.diag(by_case @ known)
        blocks.append(own - borne.T @ (borne * (by_case / fit.support)[:, None]))
    models = len(fit.levels)
    own_ridge = np.repeat([_RIDGE, SLOPE_CASES], models)
    return np.block([[blocks[0], blocks[1]], [blocks[1], blocks[2]]]) + np.diag(
        own_ridge
    )


class _Curve(NamedTuple):
    """Scores by place on the normal scale: the mean rises, the variance need not."""

    places: Floats
    means: Floats
    variances: Floats

    def mean(self, places: Floats) -> Floats:
        return np.interp(places, self.places, self.means)

    def variance(self, places: Floats) -> Floats:
        return np.interp(places, self.places, self.variances)


def _curve(fit: _Fit, judged: Flags) -> _Curve:
    """Isotonic regression of scores on the places that other models' scores give them."""
    places, scores = fit.unseen_places[judged], fit.scores[judged]
    order = np.argsort(places, kind="stable")
    bins = np.array_split(order, max(1, min(_BINS, int(np.sqrt(len(order))))))
    centres = np.array([places[members].mean() for members in bins])
    sizes = np.array([float(len(members)) for members in bins])
    means = _rising(np.array([scores[members].mean() for members in bins]), sizes)
    misses = (scores - np.interp(places, centres, means)) ** 2
    variances = np.array([misses[members].mean() for members in bins])
    return _Curve(centres, means, variances)


def _rising(values: Floats, sizes: Floats) -> Floats:
    """The closest values that never fall, by pooling adjacent violators."""
    pools: list[tuple[float, float, int]] = []
    for value, size in zip(values, sizes, strict=True):
        pool = (float(value), float(size), 1)
        while pools and pools[-1][0] >= pool[0]:
            mean, weight, count = pools.pop()
            total = weight + pool[1]
            pool = (
                (mean * weight + pool[0] * pool[1]) / total,
                total,
                count + pool[2],
            )
        pools.append(pool)
    return np.repeat([mean for mean, _, _ in pools], [count for _, _, count in pools])


class _Reading(NamedTuple):
    values: Floats
    expected: Floats
    variance: Floats
    influence: Floats
    """(cases x models): what one more copy of a case adds to each ability."""
    linking: Floats
    """The same of expected scores alone, on these cases."""
    doubt: Floats
    """The variance of each ability by what the model of scores leaves out: slopes drawn to 1, curves of one's own."""


def _read(fit: _Fit) -> _Reading:
    """Abilities and their dependence on each case."""
    cases = len(fit.scores)
    judged = fit.known & (fit.known.sum(axis=1) > 1)[:, None]
    curve = _curve(fit, judged)
    misses = np.where(judged, fit.scores - curve.mean(fit.unseen_places), 0.0)
    counts = np.maximum(judged.sum(axis=0), 1)
    departure = misses.sum(axis=0) / counts
    chance = (misses**2).sum(axis=0) / counts**2
    kept = np.maximum(0.0, 1 - BEYOND_CHANCE * chance / np.maximum(departure**2, 1e-12))
    expected = np.clip(curve.mean(fit.places) + kept * departure, 0.0, 1.0)
    filled = np.where(fit.known, fit.scores, expected)
    values = filled.mean(axis=0)

    # A departure holds for what was not answered, and moves with the curve on what was.
    open_share = (~fit.known).mean(axis=0)
    steep = curve.mean(fit.places + _WIDTH) - curve.mean(fit.places - _WIDTH)
    steep /= 2 * _WIDTH
    pull = steep * (~fit.known / cases - judged * (open_share * kept / counts))
    moves = _moves(fit, pull)
    by_case = np.concatenate(
        [fit.residuals, fit.residuals * fit.easiness[:, None]], axis=1
    )
    answers = np.linalg.solve(_information(fit), moves.T)
    linking = by_case @ answers
    linking += (misses - judged * departure) * (open_share * kept / counts)
    linking += _bent(fit, curve, judged, misses)
    return _Reading(
        values=values,
        expected=expected,
        variance=curve.variance(fit.places),
        influence=linking + (filled - values) / cases,
        linking=linking,
        doubt=_slope_doubt(fit, answers) + _curve_doubt(fit, curve, judged, misses),
    )


def _slope_doubt(fit: _Fit, answers: NDArray[Any]) -> Floats:
    """What drawing slopes to 1 may have cost, by how far the slopes of these models differ in truth (moments)."""
    models = len(fit.slopes)
    noise = (fit.residuals**2).sum() / fit.freedom
    error = np.diag(np.linalg.inv(_information(fit)))[models:]
    drawn = 1 - SLOPE_CASES * error
    excess = (fit.slopes - 1) ** 2 - noise * error * drawn
    spread = max(float(excess.sum() / (drawn**2).sum()), 0.0)
    return np.asarray(spread * SLOPE_CASES**2 * (answers[models:] ** 2).sum(axis=0))


def _curve_doubt(fit: _Fit, curve: _Curve, judged: Flags, misses: Floats) -> Floats:
    """What a model's own departure from the common curve may be where it did not answer.

    Departures are taken to be in proportion to √(p(1 - p)) of the expected score, by as much as those on answered
    cases exceed chance.
    """
    expected = curve.mean(fit.places)
    size = np.sqrt(np.maximum(expected * (1 - expected), 0.0))
    counts = np.maximum(judged.sum(axis=0), 1)
    excess = (misses.sum(axis=0) ** 2 - (misses**2).sum(axis=0)) / counts**2
    seen = (size * judged).sum(axis=0) / counts
    unseen = (size * ~fit.known).sum(axis=0) / len(fit.known)
    share = max(float(excess.sum() / max((seen**2).sum(), 1e-12)), 0.0)
    return np.asarray(share * unseen**2)


def _bent(fit: _Fit, curve: _Curve, judged: Flags, misses: Floats) -> Floats:
    """(cases x models): what a case's misses add to the expected scores, by the part of the curve that they bend."""
    cases, models = misses.shape
    parts = len(curve.places)
    edges = (curve.places[1:] + curve.places[:-1]) / 2
    seen = np.searchsorted(edges, fit.unseen_places)
    asked = np.searchsorted(edges, fit.places)
    rows = np.broadcast_to(np.arange(cases)[:, None], misses.shape)
    columns = np.broadcast_to(np.arange(models), misses.shape)
    by_part = np.zeros((cases, parts))
    np.add.at(by_part, (rows[judged], seen[judged]), misses[judged])
    sizes = np.bincount(seen[judged], minlength=parts)
    wanted = np.zeros((parts, models))
    np.add.at(wanted, (asked[~fit.known], columns[~fit.known]), 1 / cases)
    return by_part / np.maximum(sizes, 1) @ wanted


def _moves(fit: _Fit, pull: Floats) -> Floats:
    """(models x 2 models): how abilities move with levels and slopes; `pull`: with the place of each score."""
    borne = fit.known * fit.slopes
    through = pull * fit.slopes / fit.support[:, None]
    blocks = []
    for by_case in (np.ones(len(pull)), fit.easiness):
        own = np.diag(by_case @ pull)
        blocks.append(own - (through * by_case[:, None]).T @ borne)
    return np.concatenate(blocks, axis=1)


def _on_these_cases(
    fit: _Fit, reading: _Reading, moved: Floats
) -> tuple[Floats, Floats]:
    """The interval of each ability where the cases are fixed, within what the unanswered ones could give."""
    unanswered = ~fit.known
    noise = (reading.variance * unanswered).sum(axis=0) / len(fit.known) ** 2
    # A curve and links that rest on few models are known less well than draws of cases show.
    error = quantile(len(fit.slopes)) * np.sqrt(moved + noise)
    least = np.where(fit.known, fit.scores, 0.0).mean(axis=0)
    most = np.where(fit.known, fit.scores, 1.0).mean(axis=0)
    values = np.clip(reading.values, least, most)
    return np.maximum(values - error, least), np.minimum(values + error, most)


def _standings(
    names: Sequence[str], values: Floats, drawn: Floats
) -> tuple[Standing, ...]:
    """Tie groups of abilities; a pair differs where its difference does over the draws of cases, after Holm."""
    pairs = []
    for i, j in combinations(range(len(names)), 2):
        gap = float(values[i] - values[j])
        spread = float((drawn[:, i] - drawn[:, j]).std())
        p = 2 * NormalDist().cdf(-abs(gap) / max(spread, 1e-12))
        pair = Comparison(
            first=names[i],
            second=names[j],
            n=len(drawn),
            difference=gap,
            low=gap - 1.96 * spread,
            high=gap + 1.96 * spread,
            p=p,
            p_holm=p,
        )
        pairs.append(pair)
    abilities = dict(zip(names, map(float, values), strict=True))
    return tuple(tie_groups(abilities, with_holm(pairs)))
