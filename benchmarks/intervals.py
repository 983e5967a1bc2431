"""How often the 95 % intervals of means and of paired differences hold the truth, by simulation.

Scores of made-up rubrics by Equation 1 (six criteria of 3 to 10 points, a quarter of them negative; ability set so
that the mean is as stated) and, as the hardest case, scores of 0 or 1; each case alone, or in clusters of 1, 2 and
3 cases with half of their variance in common. Beside each the percentile of the same draws. Prints the tables of
docs/measurements/intervals.md; exits 1 where a mean or a difference of rubric scores is covered less than .93 times.
Run: `python benchmarks/intervals.py [--experiments 4000]`, about a minute.
"""

import argparse
from functools import cache
from itertools import product
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from medlive.statistics.bootstrap import (
    Floats,
    bootstrap_means,
    bounds_of,
    compare_paired,
)

MEANS: Final = (0.005, 0.01, 0.05, 0.2, 0.4)
PAIRS: Final = (
    (0.01, 0.005),
    (0.05, 0.05),
    (0.05, 0.01),
    (0.2, 0.2),
    (0.2, 0.05),
    (0.4, 0.4),
    (0.4, 0.2),
)
SIZES: Final = (10, 39, 100, 400)
LEAST: Final = 0.93
QUANTILES: Final = np.vectorize(NormalDist().cdf)(np.linspace(-6, 6, 4001))


@cache
def scores(kind: str, mean: float) -> Floats:
    """100,000 scores with about this mean, highest first."""
    if kind == "0 or 1":
        return (np.arange(100_000) < mean * 100_000).astype(np.float64)
    rng = np.random.default_rng(1)
    points = rng.choice([10.0, 8, 6, 5, 4, 3], (100_000, 6))
    negative = rng.random(points.shape) < 0.25
    negative[:, 0] = False
    weight = np.where(negative, -points, points)
    ease = rng.normal(0, 1.2, (len(points), 1)) + rng.logistic(0, 1, points.shape)
    wrong = rng.logistic(0, 1, points.shape) > 1
    low, high = -12.0, 12.0
    for _ in range(30):
        ability = (low + high) / 2
        met = np.where(negative, wrong, ease + ability > 0)
        found = np.clip(
            (weight * met).sum(axis=1) / np.maximum(weight, 0).sum(axis=1), 0, 1
        )
        low, high = (ability, high) if found.mean() < mean else (low, ability)
    return np.sort(found)[::-1]


def sample(kind: str, mean: float, latent: Floats) -> Floats:
    """Scores at these places of a normal distribution: the higher, the lower the score."""
    place = np.interp(latent, np.linspace(-6, 6, 4001), QUANTILES)
    return np.asarray(
        scores(kind, mean)[np.minimum((place * 100_000).astype(int), 99_999)]
    )


def cell(
    kind: str, clustered: bool, n: int, means: tuple[float, ...], experiments: int
) -> list[float]:
    """Coverage of the mean, or of the difference of two, by percentile and by ours; NaN where there is none."""
    rng = np.random.default_rng(2)
    places = (
        np.repeat(np.arange(n), np.resize([1, 2, 3], n))[:n]
        if clustered
        else np.arange(n)
    )
    common = rng.normal(size=(n, experiments))[places]
    base = (
        0.5**0.5 * (common + rng.normal(size=(n, experiments))) if clustered else common
    )
    clusters = places if clustered else None
    if len(means) == 1:
        values, truth = (
            sample(kind, means[0], base),
            float(scores(kind, means[0]).mean()),
        )
        drawn = bootstrap_means(values, clusters=clusters)
        low, high = bounds_of(values, drawn, clusters)
    else:
        first, second = (
            sample(kind, m, 0.6**0.5 * base + 0.4**0.5 * rng.normal(size=base.shape))
            for m in means
        )
        values, truth = (
            first - second,
            float(scores(kind, means[0]).mean() - scores(kind, means[1]).mean()),
        )
        drawn = bootstrap_means(values, clusters=clusters)
        _, low, high, _ = compare_paired(values, clusters=clusters)
    ends = np.percentile(drawn, [2.5, 97.5], axis=0)
    ours = (
        np.nan
        if np.isnan(low).all()
        else float(((low <= truth) & (truth <= high)).mean())
    )
    return [float(((ends[0] <= truth) & (truth <= ends[1])).mean()), ours]


def table(rows: tuple[Any, ...], experiments: int) -> float:
    """Print one table; the least coverage of rubric scores."""
    kinds = list(product(("rubric", "0 or 1"), (False, True)))
    heads = [f"{kind}{', clustered' if clustered else ''}" for kind, clustered in kinds]
    print(
        "| score, % | n | "
        + " | ".join(heads)
        + " |\n"
        + "| --- " * (len(heads) + 2)
        + "|"
    )
    least = 1.0
    for means, n in product(rows, SIZES):
        cells = []
        for kind, clustered in kinds:
            percentile, ours = cell(kind, clustered, n, means, experiments)
            cells.append("–" if np.isnan(ours) else f"{ours:.3f} ({percentile:.2f})")
            least = (
                min(least, ours) if kind == "rubric" and not np.isnan(ours) else least
            )
        print(
            f"| {' and '.join(f'{100 * m:g}' for m in means)} | {n} | "
            + " | ".join(cells)
            + " |",
            flush=True,
        )
    print()
    return least


def main() -> int:
    """Print both tables; the exit status says whether rubric scores are covered."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiments", type=int, default=4000)
    experiments = parser.parse_args().experiments
    least = min(
        table(tuple((m,) for m in MEANS), experiments), table(PAIRS, experiments)
    )
    print(f"least coverage of rubric scores: {least:.3f}")
    return 0 if least >= LEAST else 1


if __name__ == "__main__":
    raise SystemExit(main())
