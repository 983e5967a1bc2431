"""How often the 95 % intervals of means and of paired differences hold the truth, by simulation.

Four kinds of cases: scores of made-up rubrics by Equation 1 (six criteria of 3 to 10 points, a quarter of them
negative; ability set so that the mean is as stated), the same with cases of very unequal difficulty ("hard"), answers
of which a few are good and the others worth next to nothing ("rare"), and scores of 0 or 1. Each case alone, or in
clusters of 1, 2 and 3 cases with half of their variance in common. A cell has an interval where nine of ten samples
have one; the others are listed. Prints the tables of docs/builders/measurements/intervals.md; exits 1 where a
cell with an interval is covered less than .93 times, the error of the simulation allowed for.
Run: `python benchmarks/intervals.py [--experiments 1000]`.
"""

import argparse
from collections.abc import Sequence
from functools import cache
from itertools import product
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np

from medlive.statistics.bootstrap import bootstrap_means
from medlive.statistics.comparison import compare_paired
from medlive.statistics.estimate import mean_estimates
from medlive.statistics.intervals import Floats

MEANS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99)
PAIRS: Final = (
    (0.01, 0.005),
    (0.02, 0.02),
    (0.05, 0.05),
    (0.05, 0.01),
    (0.2, 0.2),
    (0.2, 0.05),
    (0.4, 0.4),
    (0.4, 0.2),
    (0.8, 0.8),
    (0.99, 0.95),
)
SIZES: Final = (10, 30, 39, 100, 400, 1000, 3000)
KINDS: Final = ("rubric", "hard", "rare", "0 or 1")
LEAST: Final = 0.93
MOST: Final = 0.97
MOSTLY: Final = 0.9
"""The share of samples with an interval from which on a cell counts as having one."""
DRAWS: Final = 400
QUANTILES: Final = np.vectorize(NormalDist().cdf)(np.linspace(-6, 6, 4001))


@cache
def scores(kind: str, mean: float) -> Floats:
    """100,000 scores with about this mean, highest first."""
    if kind == "0 or 1":
        return (np.arange(100_000) < mean * 100_000).astype(np.float64)
    if kind == "rare":
        return rare_scores(mean)
    rng = np.random.default_rng(1)
    points = rng.choice([10.0, 8, 6, 5, 4, 3], (100_000, 6))
    negative = rng.random(points.shape) < 0.25
    negative[:, 0] = False
    weight = np.where(negative, -points, points)
    spread = 3.5 if kind == "hard" else 1.2
    ease = rng.normal(0, spread, (len(points), 1)) + rng.logistic(0, 1, points.shape)
    # Good models hardly meet what is an error.
    wrong = rng.logistic(0, 1, points.shape) > (4 if mean > 0.7 else 1)
    low, high = -20.0, 20.0
    for _ in range(30):
        ability = (low + high) / 2
        met = np.where(negative, wrong, ease + ability > 0)
        got = (weight * met).sum(axis=1) / np.maximum(weight, 0).sum(axis=1)
        values = np.clip(got, 0, 1)
        low, high = (ability, high) if values.mean() < mean else (low, ability)
    return np.sort(values)[::-1]


def rare_scores(mean: float) -> Floats:
    """Scores of which a few are near 1 and the others near 0; near 1 the other way round."""
    if mean > 0.5:
        return 1 - rare_scores(1 - mean)[::-1]
    rng = np.random.default_rng(1)
    good = rng.beta(9, 1, 100_000)
    poor = rng.beta(0.3, 60, 100_000) * min(1.0, 20 * mean)
    share = (mean - poor.mean()) / (good.mean() - poor.mean())
    return np.sort(np.where(np.arange(100_000) < share * 100_000, good, poor))[::-1]


def sample(kind: str, mean: float, latent: Floats) -> Floats:
    """Scores at these places of a normal distribution: the higher, the lower the score."""
    place = np.interp(latent, np.linspace(-6, 6, 4001), QUANTILES)
    return np.asarray(
        scores(kind, mean)[np.minimum((place * 100_000).astype(int), 99_999)]
    )


class Cell(NamedTuple):
    """How often intervals of one kind of cases held."""

    given: float
    """The share of samples with an interval."""
    held: float
    """Of these, the share that held the truth."""
    percentile: float
    """Of all samples, the share in which percentiles of the draws held it."""

    def __str__(self) -> str:
        if self.given < MOSTLY:
            return f"– ({self.percentile:.2f})"
        return f"{self.held:.3f} ({self.percentile:.2f})"


def cell(
    kind: str, clustered: bool, n: int, means: Sequence[float], experiments: int
) -> Cell:
    """Simulate the mean, or the difference of two."""
    rng = np.random.default_rng(2)
    places = np.arange(n)
    if clustered:
        places = np.repeat(np.arange(n), np.resize([1, 2, 3], n))[:n]
    common = rng.normal(size=(n, experiments))[places]
    base = common
    if clustered:
        base = 0.5**0.5 * (common + rng.normal(size=(n, experiments)))
    clusters = places if clustered else None
    truth = float(scores(kind, means[0]).mean())
    if len(means) == 1:
        values = sample(kind, means[0], base)
        drawn = bootstrap_means(values, draws=DRAWS, clusters=clusters)
        figures = mean_estimates(values, drawn, clusters)
    else:
        sides = [
            sample(kind, m, 0.6**0.5 * base + 0.4**0.5 * rng.normal(size=base.shape))
            for m in means
        ]
        values = sides[0] - sides[1]
        truth -= float(scores(kind, means[1]).mean())
        drawn = bootstrap_means(values, draws=DRAWS, clusters=clusters)
        figures = compare_paired(values, draws=DRAWS, clusters=clusters)
    ends = np.percentile(drawn, [2.5, 97.5], axis=0)
    low = np.array([figure.low for figure in figures], dtype=np.float64)
    high = np.array([figure.high for figure in figures], dtype=np.float64)
    given = ~np.isnan(low)
    held = ((low <= truth) & (truth <= high))[given]
    return Cell(
        given=float(given.mean()),
        held=float(held.mean()) if len(held) else np.nan,
        percentile=float(((ends[0] <= truth) & (truth <= ends[1])).mean()),
    )


def table(rows: Sequence[Sequence[float]], experiments: int) -> list[str]:
    """Print one table; the cells with an interval that is covered too seldom or too often."""
    kinds = list(product(KINDS, (False, True)))
    heads = [f"{kind}{', clustered' if clustered else ''}" for kind, clustered in kinds]
    print(f"| score, % | n | {' | '.join(heads)} |")
    print("| --- " * (len(heads) + 2) + "|")
    outside: list[str] = []
    for means, n in product(rows, SIZES):
        name = " and ".join(f"{100 * mean:g}" for mean in means)
        # Large samples take long and vary little.
        times = experiments if n <= 400 else max(200, experiments // 4)
        cells = [cell(kind, clustered, n, means, times) for kind, clustered in kinds]
        print(f"| {name} | {n} | {' | '.join(map(str, cells))} |", flush=True)
        for head, found in zip(heads, cells, strict=True):
            error = 2 * (0.05 * 0.95 / times) ** 0.5
            if found.given < MOSTLY:
                continue
            if not LEAST - error <= found.held <= MOST + error:
                outside.append(f"{name} %, n {n}, {head}: {found.held:.3f}")
    print()
    return outside


def main() -> int:
    """Print both tables; the exit status says whether intervals hold often enough."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiments", type=int, default=1000)
    experiments = parser.parse_args().experiments
    outside = table([(mean,) for mean in MEANS], experiments)
    outside += table(PAIRS, experiments)
    print("Outside .93 to .97:", "; ".join(outside) or "none")
    return 1 if any(float(line.rpartition(" ")[2]) < LEAST for line in outside) else 0


if __name__ == "__main__":
    raise SystemExit(main())
