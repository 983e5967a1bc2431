"""FRANK's metrics, and cross-examination, against people's factuality of summaries.

Run `python benchmarks/frank.py [--scores FILE] [--draws 1000] [--no-write]`; it writes
docs/builders/measurements/frank.md.
The files lie beside the repository, in shared/realdata/agreement, and are never copied. `--scores` is what `medlive
eval protocol run cross-examination RUNS --set lowest=9999 --json` printed of pairs whose id is FRANK's `hash`
and whose model its `model_name` (docs/protocols.md); that page is printed and not written. Every correlation is
computed a second time by scikit-learn and scipy in the way of FRANK's authors. Exit status 1 where the two differ, 3
where the files or those libraries are absent.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from measured import measured_line

from medlive.errors import BadInput
from medlive.evaluation.tables import decode_text
from medlive.integrity.log import read_bytes
from medlive.statistics.correlation import correlate, residuals
from medlive.statistics.estimate import Estimate
from medlive.statistics.intervals import Floats

ROOT: Final = Path(__file__).resolve().parents[1]
DATA: Final = ROOT.parent / "shared" / "realdata" / "agreement"
OUT: Final = ROOT / "docs" / "builders" / "measurements" / "frank.md"
FILES: Final = (
    "frank_human_annotations.json",
    "frank_baseline_factuality_metrics_outputs.json",
)
DATASETS: Final = {"cnndm": "CNN/DailyMail", "bbc": "XSum"}
ERRORS: Final = {
    "EntE": ("entity", "144 of 167"),
    "CorefE": ("coreference", "29 of 85"),
    "GramE": ("grammar", "17 of 64"),
    "OutE": ("out of article", "33 of 38"),
    "RelE": ("relation", "35 of 38"),
    "CircE": ("circumstance", "28 of 33"),
    "LinkE": ("discourse link", "7 of 17"),
}
"""FRANK's name of an error → its name, and what MEDIC's cross-examination caught (seed 004, table 11)."""
OURS: Final = "cross-examination: "


@dataclass(frozen=True, slots=True)
class Item:
    """One summary's scores by people and metrics."""

    article: str
    model: str
    dataset: str
    split: str
    """"valid" or "test"."""
    factuality: float
    """0 to 1."""
    errors: frozenset[str]
    """Of `ERRORS`: those without which people would have found it more or less factual."""
    metrics: Mapping[str, float]
    """By metric; absent where the file has no number."""


def frank_rows(text: str, name: str) -> dict[tuple[str, str], Mapping[str, Any]]:
    """A FRANK file's summaries by (article, model). Raises BadInput."""
    try:
        rows = json.loads(text)
        found = {(str(row["hash"]), str(row["model_name"])): row for row in rows}
    except (ValueError, RecursionError, TypeError, KeyError) as exc:
        raise BadInput(f"{name} is not a FRANK file: {str(exc)[:120]}") from exc
    if len(found) < len(rows):
        raise BadInput(f"{name}: {len(rows) - len(found)} summaries occur twice")
    return found


def factuality(row: Mapping[str, Any], name: str) -> float:
    """The share of a summary's sentences that the majority of three annotators found without a factual error."""
    value = row.get("Factuality")
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= 1
    ):
        raise BadInput(
            f"{name}: summary {row.get('hash')!r}: Factuality must be a number from 0 to 1, found {value!r}"
        )
    return float(value)


def read_frank(humans: Path, metrics: Path) -> tuple[Item, ...]:
    """FRANK's `human_annotations.json` joined with `baseline_factuality_metrics_outputs.json` (Pagnoni et al.
    2021), in the order of the first. Raises BadInput if an item is in one file only or occurs twice."""
    people, scores = (
        frank_rows(decode_text(read_bytes(x), x.name), x.name)
        for x in (humans, metrics)
    )
    if people.keys() != scores.keys():
        raise BadInput(
            f"{len(people.keys() ^ scores.keys())} summaries are in one file only"
        )
    items = []
    for key, row in people.items():
        score = factuality(row, humans.name)
        errors = frozenset(
            name for name in ERRORS if row.get(f"Flip_{name}", score) != score
        )
        given = {
            name: value
            for name, value in scores[key].items()
            if name not in ("hash", "model_name")
        }
        items.append(
            Item(
                *key,
                str(row["dataset"]),
                str(row["split"]),
                score,
                errors,
                dict(_numbers(given)),
            )
        )
    return tuple(items)


def _numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in row.items():
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
        ):
            yield name, float(value)


def with_scores(items: Sequence[Item], path: Path) -> tuple[Item, ...]:
    """The items that a result of `protocol run --json` has, its scores among their metrics. Raises BadInput."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))["tables"][1]
        rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
        found = {
            (row.pop("case"), row.pop("model")): dict(_numbers(row)) for row in rows
        }
    except (OSError, ValueError, LookupError, TypeError) as exc:
        raise BadInput(
            f"{path} is not the JSON of `eval protocol run cross-examination`: {exc}"
        ) from exc
    kept = tuple(
        replace(
            item,
            metrics=dict(item.metrics)
            | {OURS + name: value for name, value in found[key].items()},
        )
        for item in items
        if (key := (item.article, item.model)) in found
    )
    if len(kept) < len(found):
        raise BadInput(
            f"{path}: {len(found) - len(kept)} pairs are not FRANK's: id is its hash, model its model_name"
        )
    return kept


def sides(items: Sequence[Item], metric: str) -> tuple[Floats, list[str]]:
    """A metric's and people's scores as two columns, and who wrote each summary."""
    kept = [item for item in items if metric in item.metrics]
    return np.array([[item.metrics[metric], item.factuality] for item in kept]), [
        item.model for item in kept
    ]


def correlations(
    items: Sequence[Item], metric: str, draws: int
) -> tuple[Estimate, ...]:
    """Pearson and Spearman, then both given the summariser; drawn are whole articles, of which several summaries
    are."""
    articles = {
        name: place
        for place, name in enumerate(dict.fromkeys(item.article for item in items))
    }
    clusters = [articles[item.article] for item in items if metric in item.metrics]
    columns, models = sides(items, metric)
    return tuple(
        correlate(kind, *pair.T, clusters=clusters, draws=draws)
        for pair in (columns, residuals(columns, models))
        for kind in ("pearson", "spearman")
    )


def again(items: Sequence[Item], metric: str) -> tuple[float, ...]:
    """The same by other people's code: regression on the summariser as a category (scikit-learn), correlation of
    the residuals (scipy), as `evaluate.py` of FRANK's authors does it."""
    from scipy.stats import pearsonr, spearmanr
    from sklearn.linear_model import LinearRegression
    from sklearn.preprocessing import OneHotEncoder

    columns, models = sides(items, metric)
    groups = OneHotEncoder().fit_transform(np.array(models)[:, None]).toarray()
    left = columns - LinearRegression().fit(groups, columns).predict(groups)
    return tuple(
        float(f(*pair.T).statistic)
        for pair in (columns, left)
        for f in (pearsonr, spearmanr)
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell) for cell in line) + " |" for line in lines
    )


def section(title: str, items: Sequence[Item], draws: int) -> tuple[str, int]:
    """The part on some summaries, and how many correlations it holds. Raises ArithmeticError where other people's
    code comes to another figure."""
    rows = []
    metrics = sorted({name for item in items for name in item.metrics})
    for metric in metrics:
        found = correlations(items, metric, draws)
        values = [one.value for one in found if one.value is not None]
        if len(values) < len(found):
            rows.append([metric, found[0].n, *[found[0].why] * len(found)])
            continue
        theirs = again(items, metric)
        if not np.allclose(values, theirs, rtol=0, atol=1e-9):
            raise ArithmeticError(
                f"{title}, {metric}: {values} here, {theirs} by scikit-learn and scipy"
            )
        shown = (
            f"{one.value:.3f}"
            + (f" ({one.low:.3f} to {one.high:.3f})" if one.low is not None else "")
            for one in found
        )
        rows.append([metric, found[0].n, *shown])
    columns = [
        "metric",
        "n",
        "Pearson",
        "Spearman",
        "Pearson, given",
        "Spearman, given",
    ]
    return f"## {title}\n\n{table(columns, rows)}\n", 4 * len(metrics)


def caught(items: Sequence[Item]) -> str:
    """Of the summaries with each kind of error, how many cross-examination found something in: an answer no or
    unknown where yes was due."""
    rows = []
    for error, (name, published) in ERRORS.items():
        of = [
            item.metrics
            for item in items
            if item.dataset == "cnndm" and error in item.errors
        ]
        hit = sum(
            min(m[OURS + "consistency"], m[OURS + "conformity"]) < 100 for m in of
        )
        rows.append([name, f"{hit} of {len(of)}", published])
    return f"## Errors that cross-examination finds, CNN/DailyMail\n\n{table(['error', 'found', 'MEDIC'], rows)}\n"


def page(items: Sequence[Item], draws: int, scored: bool) -> str:
    """The whole document."""
    parts = [
        (
            name + more,
            [
                item
                for item in items
                if key in ("", item.dataset) and split in ("", item.split)
            ],
        )
        for split, more in (("", ""), ("test", ", test split"))
        for key, name in ({"": "All summaries"} | DATASETS).items()
    ]
    texts, counts = zip(
        *(section(title, of, draws) for title, of in parts if of), strict=True
    )
    body = "\n".join([*texts, *([caught(items)] if scored else [])])
    return f"""# FRANK: metrics against people's factuality

{measured_line()}

Written by `benchmarks/frank.py`; run it to make this page again. {len(items):,} summaries of
{len({item.article for item in items})} articles by {len({item.model for item in items})} summarisers. People's
score is `Factuality`: three annotators judged each sentence, and the score is the mean over its sentences. The
file holds that score and no single annotator's labels, so **how far the annotators agree with each other cannot be
computed from it**.

"Given" is the partial correlation given the summariser, which the authors' `evaluate.py` takes for its measure:
each summariser's mean is taken from both sides first, since metric and factuality differ between summarisers
anyway. A metric without a number for a summary leaves it out (n). Intervals are over {draws:,} draws of whole
articles. Each of the {sum(counts)} correlations was computed again by scikit-learn and scipy in the authors' way
and is the same to nine digits. The paper takes all summaries, the authors' leaderboard the test split.

Of the data as they corrected them after the paper the authors say that BertScore P Art is best by Pearson and
FactCC by Spearman (README of their repository, 20 July 2021): so it is here, for all summaries, given the
summariser. The printed table of the paper is not compared: the paper is not at hand, and its BertScore figures
were corrected since.

{body}"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compute and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--scores", type=Path, help="the JSON of cross-examination on FRANK's texts"
    )
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument(
        "--no-write", action="store_true", help="print the page instead of writing it"
    )
    parser.add_argument(
        "--data", type=Path, default=DATA, help="the folder of FRANK's two files"
    )
    options = parser.parse_args(arguments)
    if absent := [name for name in FILES if not (options.data / name).is_file()]:
        print(f"absent from {options.data}: {', '.join(absent)}", file=sys.stderr)
        return 3
    if find_spec("scipy") is None or find_spec("sklearn") is None:
        print(
            "scipy and scikit-learn are absent: install the extra dev", file=sys.stderr
        )
        return 3
    try:
        items = read_frank(*(options.data / name for name in FILES))
        if options.scores is not None:
            items = with_scores(items, options.scores)
        text = page(items, options.draws, options.scores is not None)
    except (BadInput, ArithmeticError) as exc:
        print(exc, file=sys.stderr)
        return 1
    if options.no_write or options.scores is not None:
        print(text)
    else:
        OUT.write_text(text, encoding="utf-8")
        print(OUT.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
