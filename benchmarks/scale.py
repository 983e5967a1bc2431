"""One scale against the truth: a real table in weeks of unequal difficulty, and planted years.

A table is a CSV file with a line for each model and a column for each item, scores in [0, 1]. Its items are put into
eight weeks by their mean and some chance, each model answers three weeks in a row, and what is estimated from that
is held against the full table's means. A planted year has 40 models, 52 weeks of 30 cases, drifting difficulty, a
model that leaked and one that answers easy weeks alone. Prints the tables of docs/builders/measurements/scale.md.
Run: `python benchmarks/scale.py [--table FILE] [--designs 40]`.
"""

import argparse
import csv
import time
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from medlive.statistics.contamination import seen_effect
from medlive.statistics.correlation import spearman
from medlive.statistics.intervals import Floats
from medlive.statistics.items import FALSE_ALARMS, analyse_items
from medlive.statistics.scale import Scale, scale

WEEKS: Final = 8
IN_A_ROW: Final = 3
LEAK: Final = 0.15


class Result(NamedTuple):
    """How well one set of estimates meets the truth."""

    spearman: float
    rmse: float
    covered: float = float("nan")


def judge(estimates: Floats, truth: Floats, scaled: Scale | None = None) -> Result:
    """Estimates against the truth, and the share of intervals that hold it."""
    covered = float("nan")
    if scaled is not None:
        low = np.array([ability.low for ability in scaled.abilities])
        high = np.array([ability.high for ability in scaled.abilities])
        covered = float(((low <= truth + 1e-9) & (truth <= high + 1e-9)).mean())
    return Result(
        spearman=spearman(estimates, truth) or 0.0,
        rmse=float(np.sqrt(np.mean((estimates - truth) ** 2))),
        covered=covered,
    )


def read_table(path: Path) -> Floats:
    """(items x models), NaN for an empty cell."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    scores = [[float(cell) if cell else np.nan for cell in row[1:]] for row in rows]
    return np.array(scores).T


def eight_weeks(full: Floats, spread: float | None, seed: int) -> Floats:
    """The table with what each model did not answer blanked; a spread of None: weeks of equal difficulty."""
    rng = np.random.default_rng(seed)
    items, models = full.shape
    means = np.nanmean(full, axis=1)
    key = rng.random(items)
    if spread is not None:
        key = means + rng.normal(0, spread * means.std(), items)
    week = np.empty(items, dtype=np.int_)
    week[np.argsort(key)] = np.arange(items) * WEEKS // items
    week = rng.permutation(WEEKS)[week]
    first = rng.integers(0, WEEKS - IN_A_ROW + 1, models)
    asked = (week[:, None] >= first) & (week[:, None] < first + IN_A_ROW)
    return np.where(asked, full, np.nan)


def measure_table(full: Floats, spread: float | None, designs: int) -> list[str]:
    """Two lines of a table: plain means, and the scale."""
    names = [str(model) for model in range(full.shape[1])]
    truth = np.nanmean(full, axis=0)
    plain, scaled = [], []
    for seed in range(designs):
        scores = eight_weeks(full, spread, seed)
        plain.append(judge(np.nanmean(scores, axis=0), truth))
        result = scale(names, scores)
        values = np.array([ability.value for ability in result.abilities], dtype=float)
        scaled.append(judge(values, truth, result))
    label = "equal" if spread is None else f"{spread:g}"
    return [
        _line(f"{label}, plain means", plain),
        _line(f"{label}, the scale", scaled),
    ]


def _line(label: str, results: list[Result]) -> str:
    means = np.mean(results, axis=0)
    covered = "" if np.isnan(means[2]) else f"{means[2]:.3f}"
    return f"| {label} | {means[0]:.3f} | {means[1]:.4f} | {covered} |"


class Year(NamedTuple):
    """A planted year: who would score what, who was asked what, and when."""

    full: Floats
    asked: NDArray[np.bool_]
    week: NDArray[np.int_]
    probability: Floats
    seen: NDArray[np.bool_]


def planted_year(
    seed: int, *, models: int = 40, anchors: int = 0, leak: float = 0.0
) -> Year:
    """52 weeks of 30 cases that become harder; each model is asked in eight weeks in a row, anchors in all.

    Model 0 has read the first half of the year, which adds `leak`; model 1 is asked in the easiest eight weeks.
    """
    rng = np.random.default_rng(seed)
    weeks, cases = 52, 30
    week = np.repeat(np.arange(weeks), cases)
    level = rng.normal(0, 0.4, weeks) - np.linspace(0, 1.0, weeks)
    easiness = level[week] + rng.normal(0, 1, len(week))
    ability = rng.normal(0.8, 0.6, models)
    noise = rng.normal(0, 0.5, (len(week), models))
    probability = 1 / (1 + np.exp(-(ability + easiness[:, None] + noise)))
    full = np.round(rng.beta(2 * probability, 2 * (1 - probability)) * 20) / 20
    first = rng.integers(0, weeks - 7, models)
    asked = (week[:, None] >= first) & (week[:, None] < first + 8)
    asked[:, 0] = True
    asked[:, 1] = np.isin(week, np.argsort(-level)[:8])
    asked[:, models - anchors :] = True
    seen = np.zeros_like(asked)
    seen[week < weeks // 2, 0] = True
    full[seen] = np.minimum(full[seen] + leak, 1.0)
    return Year(full, asked, week, probability, seen)


def measure_years(designs: int) -> list[str]:
    """Plain means and the scale in planted years, and the model of easy weeks."""
    plain, scaled, easy = [], [], []
    for seed in range(designs):
        year = planted_year(seed)
        scores = np.where(year.asked, year.full, np.nan)
        truth = year.full.mean(axis=0)
        result = scale([str(k) for k in range(40)], scores)
        means = np.nanmean(scores, axis=0)
        values = np.array([ability.value for ability in result.abilities], dtype=float)
        plain.append(judge(means, truth))
        scaled.append(judge(values, truth, result))
        easy.append([means[1] - truth[1], values[1] - truth[1]])
    bias = np.mean(easy, axis=0)
    return [
        _line("planted year, plain means", plain),
        _line("planted year, the scale", scaled),
        "",
        f"Bias of the model of easy weeks: plain {bias[0]:+.3f}, scale {bias[1]:+.3f}.",
    ]


def measure_few(designs: int) -> list[str]:
    """How often intervals hold with few models: a planted quarter of eight weeks, three in a row for each model."""
    lines = []
    for models in (6, 10, 20):
        results = []
        for seed in range(designs):
            year = planted_year(seed, models=models)
            rng = np.random.default_rng(seed)
            full, week = year.full[year.week < WEEKS], year.week[year.week < WEEKS]
            first = rng.integers(0, WEEKS - IN_A_ROW + 1, models)
            asked = (week[:, None] >= first) & (week[:, None] < first + IN_A_ROW)
            result = scale(
                [str(k) for k in range(models)], np.where(asked, full, np.nan)
            )
            values = [ability.value for ability in result.abilities]
            if None not in values:
                truth = full.mean(axis=0)
                results.append(judge(np.array(values, dtype=float), truth, result))
        lines.append(_line(f"eight weeks, {models} models", results))
    return lines


def measure_criteria(designs: int) -> list[str]:
    """Abilities from case scores, and from criteria as items whose expected verdicts are weighed into scores again."""
    by_case, by_criterion = [], []
    for seed in range(designs):
        year = planted_year(seed)
        rng = np.random.default_rng(seed)
        cases, models = year.probability.shape
        points = rng.choice([3, 4, 5, 7, 8, 9], size=(cases, 6, 1)).astype(float)
        points /= points.sum(axis=1, keepdims=True)
        # Some criteria are met by most, some by few: the case's probability is their middle.
        place = np.log(year.probability / (1 - year.probability))[:, None, :]
        place = place + rng.normal(0, 1.2, (cases, 6, 1))
        met = (rng.random((cases, 6, models)) < 1 / (1 + np.exp(-place))).astype(float)
        full = (points * met).sum(axis=1)
        truth = full.mean(axis=0)
        names = [str(model) for model in range(models)]
        scores = np.where(year.asked, full, np.nan)
        result = scale(names, scores)
        values = np.array([ability.value for ability in result.abilities], dtype=float)
        by_case.append(judge(values, truth))
        items = np.where(year.asked[:, None, :], met, np.nan).reshape(-1, models)
        threads = np.repeat(np.arange(cases), 6)
        result = scale(names, items, clusters=threads, draws=2)
        expected = result.expected.reshape(cases, 6, models)
        filled = np.where(np.isnan(scores), (points * expected).sum(axis=1), scores)
        by_criterion.append(judge(filled.mean(axis=0), truth))
    return [_line("case scores", by_case), _line("criteria", by_criterion)]


def measure_anchors(designs: int) -> list[str]:
    """How far the scale drifts: the error of the difficulty of the last quarter against the first."""
    lines = []
    for anchors in (0, 1, 2, 5):
        errors = []
        for seed in range(designs):
            year = planted_year(seed, models=16 + anchors, anchors=anchors)
            # Without model 0, which is asked all year: it would be an anchor.
            scores = np.where(year.asked, year.full, np.nan)[:, 1:]
            result = scale([str(k) for k in range(scores.shape[1])], scores)
            linked = ~np.isnan(result.expected).all(axis=0)
            if linked.sum() < scores.shape[1]:
                errors.append([np.nan, 1])
                continue
            truth = year.full[:, 1:]
            early, late = year.week < 13, year.week >= 39
            filled = np.where(np.isnan(scores), result.expected, scores)
            asked = ~np.isnan(result.expected[:, 0])
            gaps = []
            for table in (filled, truth):
                gaps.append(table[early & asked].mean() - table[late & asked].mean())
            errors.append([gaps[0] - gaps[1], 0])
        spread = np.sqrt(np.nanmean(np.array(errors)[:, 0] ** 2))
        apart = int(np.sum([error[1] for error in errors]))
        lines.append(f"| {anchors} | {spread:.4f} | {apart} of {designs} |")
    return lines


def measure_leak(designs: int) -> list[str]:
    """Today's difference in differences on scores, and on what the scale did not expect, with and without a leak."""
    lines = []
    for leak in (0.0, LEAK):
        found: dict[str, list[tuple[float, bool, bool]]] = {
            "scores": [],
            "residuals": [],
        }
        for seed in range(designs):
            year = planted_year(seed, leak=leak)
            scores = np.where(year.asked, year.full, np.nan)
            clean = planted_year(seed)
            effect = float((year.full - clean.full)[year.seen].mean())
            result = scale([str(k) for k in range(40)], scores, draws=2)
            for name, values in (
                ("scores", scores),
                ("residuals", scores - result.expected),
            ):
                estimate = seen_effect(values, year.seen, draws=200)
                if estimate is None or estimate.low is None or estimate.high is None:
                    continue
                held = estimate.low <= effect <= estimate.high
                found[name].append((estimate.effect - effect, held, estimate.low > 0))
        for name, rows in found.items():
            bias, held, power = np.mean(rows, axis=0)
            lines.append(
                f"| {leak:g} | {name} | {bias:+.4f} | {held:.2f} | {power:.2f} |"
            )
    return lines


def measure_keys(designs: int) -> list[str]:
    """The share of wrong keys among the suspects' list, and of sound criteria that are on it."""
    lines = []
    for models in (10, 20, 40):
        caught, alarms = [], []
        for seed in range(designs):
            rng = np.random.default_rng(seed)
            ability = rng.normal(0, 1, models)
            easiness = rng.normal(0, 1, 2000)
            sharpness = rng.lognormal(0, 0.4, 2000)
            place = sharpness[:, None] * (ability + easiness[:, None])
            met = (rng.random(place.shape) < 1 / (1 + np.exp(-place))).astype(float)
            wrong = rng.random(2000) < 0.02
            met[wrong] = 1 - met[wrong]
            items = analyse_items(met, met.mean(axis=0))
            suspects = np.array([item.suspect for item in items])
            caught.append(suspects[wrong].mean())
            alarms.append(suspects[~wrong].mean())
        lines.append(f"| {models} | {np.mean(caught):.2f} | {np.mean(alarms):.4f} |")
    return lines


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, help="a CSV file, models by items")
    parser.add_argument("--designs", type=int, default=40)
    options = parser.parse_args()
    head = "| design | Spearman | RMSE | 95 % intervals hold |\n| --- | ---: | ---: | ---: |"
    print(head)
    if options.table:
        full = read_table(options.table)
        for spread in (0.5, 1.0, 0.25, None):
            print(*measure_table(full, spread, options.designs), sep="\n", flush=True)
    few = max(2, options.designs // 4)
    print(*measure_years(few), sep="\n", flush=True)
    print(*measure_few(options.designs), sep="\n", flush=True)
    print(*measure_criteria(few), sep="\n", flush=True)
    print("\n| anchors | error of the drift | designs that fell apart |")
    print("| ---: | ---: | ---: |", *measure_anchors(few), sep="\n", flush=True)
    print("\n| leak | on | bias | held | found |\n| ---: | --- | ---: | ---: | ---: |")
    print(*measure_leak(few), sep="\n", flush=True)
    print(f"\nSuspects at a false alarm rate of {FALSE_ALARMS:.0%}:")
    print("\n| models | wrong keys found | sound ones on the list |")
    print("| ---: | ---: | ---: |", *measure_keys(few), sep="\n", flush=True)
    year = planted_year(0)
    scores = np.concatenate([np.where(year.asked, year.full, np.nan)] * 2)[:3000]
    start = time.perf_counter()
    scale([str(k) for k in range(40)], scores)
    print(
        f"\n40 models x 3,000 cases, 1,000 draws: {time.perf_counter() - start:.1f} s"
    )


if __name__ == "__main__":
    main()
