"""One scale: what models would score on all cases of a window, although each answered only some of them.

A two-way model of normal scores (van der Waerden) with a slope for each model, fitted by least squares with the cases
absorbed, and read back as scores by isotonic regression. Draws are linear in the weights of the cases (Jaeckel's
infinitesimal jackknife). docs/scale.md says what is promised, docs/method.md §2 has the formulas and their sources.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import NormalDist

import numpy as np

from .bootstrap import cluster_sums, weight_chunks
from .comparison import (
    Comparison,
    Standing,
    tie_groups,
    with_holm,
)
from .intervals import Flags, Floats, Places, mean_bounds, quantile

LEAST_COMMON = 5
"""Cases that two models must share to be linked directly."""
LEAST_CASES = 10
"""Cases from which there is a scale."""
SLOPE_CASES = 20.0
"""The weight of the assumption that a slope is 1, in cases of ordinary spread."""
BEYOND_CHANCE = 4.0
"""A model's own departure from the curve counts as far as its square exceeds this many times its variance."""

_STEPS = 50  # most Gauss-Newton steps
_CLOSE = 1e-3
"""A step that changes less is the last one. On the normal scale: a thousandth moves a score by less than 0.0005."""
_RIDGE = 0.01
"""Keeps a level finite that nothing determines; too small to move one that is determined."""
_BINS = 100  # most parts of the curve
_WIDTH = 0.25
"""Half the distance over which the curve's slope is taken, since the curve rises in steps."""


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Scale:
    """Models and cases on one scale."""

    abilities: tuple[Ability, ...]
    """In the order of the names."""
    standings: Mapping[str, Standing]
    """Tie groups and rank ranges of the models on the scale, from the best down."""
    expected: Floats
    """(cases x models): each model's expected score on each case; NaN off the scale."""
    variance: Floats
    """The variance of a score around `expected`, in the same shape."""
    why: str = ""
    """Why there is no scale at all."""


def linked_groups(known: Flags) -> list[list[int]]:
    """Models (columns of `known`) that `LEAST_COMMON` shared cases link, directly or through others.

    The largest group comes first; among groups of equal size, the one with more scores.
    """
    counts = known.astype(np.float64)
    return sorted(
        connected(counts.T @ counts >= LEAST_COMMON),
        key=lambda group: (-len(group), -counts[:, group].sum()),
    )


def connected(linked: Flags) -> list[list[int]]:
    """The groups of indices that are linked, directly or through others; one not linked to itself is in no group."""
    for _ in range(len(linked).bit_length()):
        linked = linked | (linked @ linked)
    groups = {tuple(np.flatnonzero(row).tolist()) for row in linked if row.any()}
    return list(map(list, sorted(groups)))


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
        seed: The seed of the draws.

    A model off the scale has no value, and a reason. Cases that only such models have a score on are left out.
    """
    known = ~np.isnan(scores)
    members = np.array(
        next(iter(linked_groups(known)), []),
        dtype=np.int_,
    )
    cases = np.flatnonzero(known[:, members].any(axis=1))
    on_scale = np.ix_(cases, members)
    own = scores[on_scale]
    why = ""
    if len(members) < 2:
        why = f"no scale: no two models share {LEAST_COMMON} cases"
    elif len(cases) < LEAST_CASES:
        why = f"no scale: {len(cases)} cases, it needs {LEAST_CASES}"
    elif np.nanmin(own) == np.nanmax(own):
        why = "no scale: all scores are the same"
    abilities = []
    for name, n in zip(names, known.sum(axis=0), strict=True):
        ability = Ability(
            name=name,
            n=int(n),
            why=why or UNLINKED,
        )
        abilities.append(ability)
    expected = np.full(scores.shape, np.nan)
    variance = np.full(scores.shape, np.nan)
    if why:
        return Scale(
            tuple(abilities),
            {},
            expected,
            variance,
            why,
        )
    fit = _Fit(own)
    values = fit.values
    place = None
    if clusters is not None:
        place = np.unique(clusters[cases], return_inverse=True)[1]
    linking = cluster_sums(fit.linking, place)
    influence = cluster_sums(fit.influence, place)
    # Links and curve are known less well than draws of cases show: Student's quantile replaces the normal one.
    beyond = quantile(len(members)) / NormalDist().inv_cdf(0.975)
    influence = influence + linking * (beyond * fit.lost**0.5 - 1)
    drawn, moved = [], []
    for weights in weight_chunks(len(influence), draws, seed):
        drawn.append((weights - 1) @ influence)
        moved.append((weights - 1) @ linking)
    rng = np.random.default_rng(seed)
    doubt = rng.normal(size=(draws, len(members)))
    abilities_drawn = values + np.concatenate(drawn)
    abilities_drawn += doubt * np.sqrt(fit.doubt) * beyond
    wide_low, wide_high = mean_bounds(
        mean=values,
        spread=abilities_drawn.std(axis=0),
        clusters=np.full(len(members), len(influence)),
    )
    low, high = fit.on_these_cases(np.concatenate(moved))
    for at, member in enumerate(members):
        abilities[member] = replace(
            abilities[member],
            value=float(values[at]),
            low=float(low[at]),
            high=float(high[at]),
            wide_low=float(min(wide_low[at], low[at])),
            wide_high=float(max(wide_high[at], high[at])),
            slope=float(fit.slopes[at]),
            why="",
        )
    expected[on_scale] = fit.expected
    variance[on_scale] = fit.variance
    ranked = [names[at] for at in members]
    return Scale(
        abilities=tuple(abilities),
        standings=_standings(ranked, values, abilities_drawn),
        expected=expected,
        variance=variance,
    )


UNLINKED = (
    f"not linked: shares fewer than {LEAST_COMMON} cases with the models on the scale"
)


def normal_scores(scores: Floats) -> Floats:
    """The normal quantile of each score's rank among all, ties at their middle; 0 for NaN."""
    known = ~np.isnan(scores)
    _, place, counts = np.unique(
        scores[known],
        return_inverse=True,
        return_counts=True,
    )
    middle = np.cumsum(counts) - counts / 2
    quantile = NormalDist().inv_cdf
    levels = np.array(list(map(quantile, middle / counts.sum())))
    normal = np.zeros(scores.shape)
    normal[known] = levels[place]
    return normal


class _Fit:
    """Fits models' levels and slopes by Gauss-Newton steps, each case's easiness absorbed, and reads them as scores.

    A score is expected at level + slope · easiness on the normal scale; the curve turns that into a score.

    `normal` are the normal scores, 0 where there is none; `support` is what a case's easiness is based on, the sum of
    the squared slopes. `judged` marks scores on cases that another model has a score on too, `counts` is their number
    by model, and `misses` is how far they are above the curve. `middles` are the places of the curve's parts, `means`
    and `variances` those of the scores there. `influence` is (cases x models), what one more copy of a case adds to
    each ability, and `linking` the same of expected scores alone, on these cases. `doubt` is the variance of each
    ability by what the model of scores leaves out: slopes drawn to 1, models' own curves.
    """

    def __init__(self, scores: Floats) -> None:
        self.scores = scores
        self.known = ~np.isnan(scores)
        self.normal = normal_scores(scores)
        models = scores.shape[1]
        self.absorb(np.zeros(models), np.ones(models))
        for _ in range(_STEPS):
            levels, slopes = self.levels, self.slopes
            residuals = self.residuals
            to_levels = residuals.sum(axis=0) - _RIDGE * levels
            to_slopes = self.easiness @ residuals
            to_slopes = to_slopes - SLOPE_CASES * (slopes - 1)
            gradient = np.concatenate([to_levels, to_slopes])
            step = np.linalg.solve(self.information, gradient)
            moved = slopes + step[models:]
            self.absorb(levels + step[:models], moved / moved.mean())
            by_level = np.abs(self.levels - levels)
            by_slope = np.abs(self.slopes - slopes)
            if (by_level + by_slope).max() < _CLOSE:
                break
        self.read()

    def absorb(self, levels: Floats, slopes: Floats) -> None:
        """Take these levels and slopes, and each case's best easiness under them; the mean of easiness is 0."""
        support = self.known @ slopes**2 + _RIDGE
        above = np.where(
            self.known,
            self.normal - levels,
            0.0,
        )
        easiness: Floats = above @ slopes / support
        middle = easiness.mean()
        self.levels = levels + middle * slopes
        self.slopes = slopes
        self.easiness = easiness - middle
        self.support = support

    @property
    def places(self) -> Floats:
        """(cases x models): where each score is expected on the normal scale."""
        return np.asarray(self.levels + self.easiness[:, None] * self.slopes)

    @property
    def residuals(self) -> Floats:
        """(cases x models): normal scores less what is expected; 0 where there is none."""
        return np.where(
            self.known,
            self.normal - self.places,
            0.0,
        )

    @property
    def freedom(self) -> int:
        """Scores less what is fitted to them: an easiness a case, level and slope a model."""
        fitted = len(self.scores) + 2 * len(self.levels)
        return max(int(self.known.sum()) - fitted, 1)

    @property
    def lost(self) -> float:
        """The factor by which squares of errors exceed those of residuals, because of what was fitted."""
        return float(self.known.sum() / self.freedom)

    @property
    def unseen_places(self) -> Floats:
        """`places` with each case's easiness by the other models alone: fair to a score that helped to set it."""
        leverage = np.minimum(
            self.slopes**2 / self.support[:, None],
            0.95,
        )
        own_part = self.residuals * leverage / (1 - leverage)
        return np.asarray(self.places - own_part)

    @property
    def information(self) -> Floats:
        """(2 models x 2 models): least squares in levels and slopes, the cases absorbed (Schur's complement)."""
        known = self.known.astype(np.float64)
        borne = known * self.slopes
        blocks = []
        for power in range(3):
            by_case = self.easiness**power
            share = (by_case / self.support)[:, None]
            own = np.diag(by_case @ known)
            blocks.append(own - borne.T @ (borne * share))
        levels, both, slopes = blocks
        ridge = np.repeat(
            [_RIDGE, SLOPE_CASES],
            len(self.levels),
        )
        return np.block([[levels, both], [both, slopes]]) + np.diag(ridge)

    def read(self) -> None:
        """Read the fit as scores: draw the curve, then set what is expected, abilities, and what cases add to them."""
        known = self.known
        places = self.places
        self.judged = known & (known.sum(axis=1) > 1)[:, None]
        self.counts = np.maximum(
            self.judged.sum(axis=0),
            1,
        )
        self.draw_curve()
        unseen = self.curve(self.unseen_places)
        self.misses = np.where(
            self.judged,
            self.scores - unseen,
            0.0,
        )
        departure = self.misses.sum(axis=0) / self.counts
        chance = (self.misses**2).sum(axis=0) / self.counts**2
        excess = BEYOND_CHANCE * chance / np.maximum(departure**2, 1e-12)
        kept = np.maximum(0.0, 1 - excess)
        expected = self.curve(places) + kept * departure
        self.expected = np.clip(expected, 0.0, 1.0)
        filled = np.where(
            known,
            self.scores,
            self.expected,
        )
        self.values = filled.mean(axis=0)
        self.variance = np.interp(places, self.middles, self.variances)

        # A departure holds for what was not answered, and moves with the curve on what was.
        cases = len(known)
        moving = (~known).mean(axis=0) * kept / self.counts
        rise = self.curve(places + _WIDTH) - self.curve(places - _WIDTH)
        steep = rise / (2 * _WIDTH)
        pull = steep * (~known / cases - self.judged * moving)
        answers = np.linalg.solve(
            self.information,
            self.moves(pull).T,
        )
        of_slopes = self.residuals * self.easiness[:, None]
        by_case = np.concatenate([self.residuals, of_slopes], axis=1)
        self.linking = by_case @ answers
        self.linking += (self.misses - self.judged * departure) * moving
        self.linking += self.bent()
        self.influence = self.linking + (filled - self.values) / cases
        by_slope = np.asarray(answers[len(self.slopes) :])
        self.doubt = self.slope_doubt(by_slope) + self.curve_doubt()

    def draw_curve(self) -> None:
        """Isotonic regression of scores on the places that other models' scores give them.

        The mean rises with the place on the normal scale, the variance need not.
        """
        places = self.unseen_places[self.judged]
        scores = self.scores[self.judged]
        order = np.argsort(places, kind="stable")
        number = min(_BINS, int(np.sqrt(len(order))))
        bins = np.array_split(order, max(1, number))
        sizes = list(map(len, bins))
        means = [scores[members].mean() for members in bins]
        middles = [places[members].mean() for members in bins]
        self.middles = np.array(middles)
        self.means = _rising(means, sizes)
        squares = (scores - self.curve(places)) ** 2
        variances = [squares[members].mean() for members in bins]
        self.variances = np.array(variances)

    def curve(self, places: Floats) -> Floats:
        """The mean score at places on the normal scale."""
        return np.interp(places, self.middles, self.means)

    def moves(self, pull: Floats) -> Floats:
        """(models x 2 models): how abilities move with levels and slopes; `pull` is how they move with each place."""
        borne = self.known * self.slopes
        through = pull * self.slopes / self.support[:, None]
        blocks = []
        for by_case in (np.ones(len(pull)), self.easiness):
            own = np.diag(by_case @ pull)
            weighted = through * by_case[:, None]
            blocks.append(own - weighted.T @ borne)
        return np.concatenate(blocks, axis=1)

    def bent(self) -> Floats:
        """(cases x models): what a case's misses add to expected scores by bending a part of the curve."""
        judged = self.judged
        cases, models = judged.shape
        parts = len(self.middles)
        edges = (self.middles[1:] + self.middles[:-1]) / 2
        part_seen = np.searchsorted(edges, self.unseen_places)
        part_asked = np.searchsorted(edges, self.places)
        rows, _ = np.nonzero(judged)
        _, columns = np.nonzero(~self.known)
        by_part = np.zeros((cases, parts))
        np.add.at(
            by_part,
            (rows, part_seen[judged]),
            self.misses[judged],
        )
        sizes = np.bincount(part_seen[judged], minlength=parts)
        wanted = np.zeros((parts, models))
        np.add.at(
            wanted,
            (part_asked[~self.known], columns),
            1 / cases,
        )
        return by_part / np.maximum(sizes, 1) @ wanted

    def slope_doubt(self, answers: Floats) -> Floats:
        """The variance by drawing slopes to 1, from how much the true slopes differ (method of moments)."""
        noise = (self.residuals**2).sum() / self.freedom
        inverse = np.linalg.inv(self.information)
        error = np.diag(inverse)[len(self.slopes) :]
        drawn = 1 - SLOPE_CASES * error
        excess = (self.slopes - 1) ** 2 - noise * error * drawn
        spread = max(float(excess.sum() / (drawn**2).sum()), 0.0)
        squares = (answers**2).sum(axis=0)
        return np.asarray(spread * SLOPE_CASES**2 * squares)

    def curve_doubt(self) -> Floats:
        """The variance by a model's own departure from the common curve on cases that it did not answer.

        Departures are taken to be in proportion to √(p(1 - p)) of the expected score, by as much as those on answered
        cases exceed chance.
        """
        known = self.known
        expected = self.curve(self.places)
        size = np.sqrt(np.maximum(expected * (1 - expected), 0.0))
        total = self.misses.sum(axis=0)
        chance = (self.misses**2).sum(axis=0)
        excess = (total**2 - chance) / self.counts**2
        seen = (size * self.judged).sum(axis=0) / self.counts
        unseen = (size * ~known).sum(axis=0) / len(known)
        share = excess.sum() / max((seen**2).sum(), 1e-12)
        return np.asarray(max(float(share), 0.0) * unseen**2)

    def on_these_cases(self, moved: Floats) -> tuple[Floats, Floats]:
        """The interval of each ability on these cases, within what scores of 0 and 1 on unanswered ones would give.

        `moved` is (draws x models), what each draw of cases adds to abilities by `linking`.
        """
        known = self.known
        spread = moved.var(axis=0) * self.lost
        noise = (self.variance * ~known).sum(axis=0) / len(known) ** 2
        # Student's quantile: few models determine curve and links less well than draws of cases show.
        error = np.sqrt(spread + self.doubt + noise)
        error *= quantile(len(self.slopes))
        least = np.where(known, self.scores, 0.0).mean(axis=0)
        most = np.where(known, self.scores, 1.0).mean(axis=0)
        values = np.clip(self.values, least, most)
        return (
            np.maximum(values - error, least),
            np.minimum(values + error, most),
        )


def _rising(
    values: Sequence[float],
    sizes: Sequence[int],
) -> Floats:
    """The closest values that never fall, by pooling adjacent violators."""
    means: list[float] = []
    weights: list[float] = []
    counts: list[int] = []
    for value, size in zip(values, sizes, strict=True):
        mean, weight, count = float(value), float(size), 1
        while means and means[-1] >= mean:
            before = weights.pop()
            total = before + weight
            mean = (means.pop() * before + mean * weight) / total
            weight = total
            count += counts.pop()
        means.append(mean)
        weights.append(weight)
        counts.append(count)
    return np.repeat(means, counts)


def _standings(
    names: Sequence[str],
    values: Floats,
    drawn: Floats,
) -> dict[str, Standing]:
    """Tie groups of abilities; a pair differs if 0 is far from its drawn differences, after Holm's correction."""
    pairs = []
    for i, j in combinations(range(len(names)), 2):
        gap = float(values[i] - values[j])
        spread = float((drawn[:, i] - drawn[:, j]).std())
        distance = abs(gap) / max(spread, 1e-12)
        p = 2 * NormalDist().cdf(-distance)
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
    abilities = dict(zip(names, values.tolist(), strict=True))
    return tie_groups(abilities, with_holm(pairs))
