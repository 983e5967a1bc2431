"""Physicians' ratings of the cases: coherence of the narrative, quality of the advice, validity of each criterion.

Evaluates the ratings that a study exports, as LiveMedBench's Table 1. Scales: 0 to 2 for narrative with
query and for the advice, 0 or 1 for a criterion; 1 or more means agreement. Needs only a run's cases.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from medlive.digest import digest_json
from medlive.errors import BadInput
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.runs.folder import open_run
from medlive.evaluation.tables import add_rows
from medlive.statistics.agreement import ac1_of_sums, macro_f1_of_tables, rater_sums
from medlive.statistics.bootstrap import Estimate, estimate, no_estimate, ratio_of
from medlive.statistics.intervals import Floats

EstimateFn = Callable[..., Estimate]
Ratings = dict[str, dict[str, int]]
"""By item and rater."""

ASPECTS: Final[Mapping[str, int]] = {
    "narrative_and_query": 3,
    "advice": 3,
    "criterion": 2,
}
"""The rated aspects, with the number of values on their scales."""
LEAST_ITEMS: Final = 5
_EXPORT: Final = "the results of a study of cases (/review) link to its ratings"
_UNKNOWN: Final = "items belong to other cases or changed texts; left out"


@dataclass(frozen=True, slots=True)
class Item:
    """One aspect of one case."""

    id: str
    case: EvaluationCase
    aspect: str
    criterion: str = ""


@dataclass(frozen=True, slots=True)
class RaterShare:
    """The share of one rater's ratings that are 1 or more."""

    rater: str
    agreed: Estimate


@dataclass(frozen=True, slots=True)
class AspectQuality:
    """Figures for one aspect, with 95 % intervals over bootstrap draws of cases."""

    aspect: str
    values: int
    raters: tuple[RaterShare, ...]
    ac1: Estimate
    """Over all raters at once, on the original values."""
    equal: Estimate
    macro_f1: Estimate
    """The mean over pairs of raters, over the values of the scale; either may be the reference."""

    @property
    def name(self) -> str:
        """The aspect in words."""
        return self.aspect.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Quality:
    """The ratings of a run's cases."""

    cases: str
    cases_digest: str
    n: int
    files: str
    aspects: tuple[AspectQuality, ...]
    draws: int
    seed: int
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON."""
        return {
            "format": "medlive-quality",
            "format_version": 1,
            "level": 0.95,
            **asdict(self),
        }


def quality(
    run_dir: Path, files: Sequence[Path], *, draws: int = 1000, seed: int = 0
) -> Quality:
    """Evaluate files of ratings of the run's cases.

    Raises BadInput if lines are invalid, a rater contradicts themselves, or nothing matches the current cases.
    """
    run = open_run(run_dir)
    items = {item.id: item for case in run.cases for item in case_items(case)}
    given, raters, notes = _read(files, items)
    aspects = aspect_figures(items.values(), given, raters, draws=draws, seed=seed)
    about, named = run.info.cases, ", ".join(path.name for path in files)
    return Quality(
        about.name,
        about.digest,
        len(run.cases),
        named,
        aspects,
        draws,
        seed,
        tuple(notes),
    )


def aspect_figures(
    items: Iterable[Item],
    given: Ratings,
    raters: Sequence[str],
    *,
    draws: int = 1000,
    seed: int = 0,
) -> tuple[AspectQuality, ...]:
    """The figures of each aspect of cases, whatever else was rated.

    The draws depend on the order of the items, not on that of `given`.
    """
    rated: dict[str, list[Item]] = {aspect: [] for aspect in ASPECTS}
    for item in items:
        if item.aspect in rated and item.id in given:
            rated[item.aspect].append(item)
    estimate_fn = partial(estimate, draws=draws, seed=seed)
    figures = []
    for aspect, of_aspect in rated.items():
        figures.append(_aspect(aspect, of_aspect, given, raters, estimate_fn))
    return tuple(figures)


def _aspect(
    aspect: str,
    rated: Sequence[Item],
    given: Ratings,
    raters: Sequence[str],
    estimate_fn: EstimateFn,
) -> AspectQuality:
    codes = np.empty((len(rated), len(raters)), dtype=np.int_)
    clusters = np.empty(len(rated), dtype=np.int_)
    cases: dict[str, int] = {}
    for row, item in enumerate(rated):
        codes[row] = [given[item.id].get(rater, -1) for rater in raters]
        clusters[row] = cases.setdefault(item.case.case_id, len(cases))
    shares = []
    for rater, column in zip(raters, codes.T, strict=True):
        kept = column >= 0
        agreed = column[kept] >= 1
        cells = np.column_stack([agreed, np.ones(len(agreed))]).astype(np.float64)
        shares.append(RaterShare(rater, estimate_fn(cells, ratio_of, clusters[kept])))
    several = (codes >= 0).sum(axis=1) > 1
    n = int(several.sum())
    ac1 = equal = macro_f1 = no_estimate(f"{n} items with two raters are too few", n)
    if n >= LEAST_ITEMS:
        codes, clusters = codes[several], clusters[several]
        sums = rater_sums(codes, ASPECTS[aspect])
        ac1 = estimate_fn(sums, ac1_of_sums, clusters)
        equal = estimate_fn(sums[:, :2], ratio_of, clusters)
        tables = _pair_tables(codes, ASPECTS[aspect])
        macro_f1 = estimate_fn(tables, _mean_macro_f1, clusters)
    return AspectQuality(
        aspect=aspect,
        values=ASPECTS[aspect],
        raters=tuple(shares),
        ac1=ac1,
        equal=equal,
        macro_f1=macro_f1,
    )


def _pair_tables(codes: NDArray[np.int_], values: int) -> Floats:
    """What each item adds to the table of each pair of raters: (items x pairs x values x values)."""
    # The last row, which -1 names, is of zeros: no rating
    rated = np.eye(values + 1)[codes][..., :values]
    first, second = np.triu_indices(codes.shape[1], 1)
    tables: Floats = rated[:, first, :, None] * rated[:, second, None, :]
    return tables


def _mean_macro_f1(tables: Floats) -> Floats:
    """The mean over the pairs that rated anything in common; NaN where none did."""
    each = macro_f1_of_tables(tables)
    n = (~np.isnan(each)).sum(axis=-1)
    return np.where(n > 0, np.nansum(each, axis=-1) / np.maximum(n, 1), np.nan)


def case_items(case: EvaluationCase) -> Iterator[Item]:
    """What is rated of a case: its narrative with query, its advice, each of its criteria."""
    yield Item(
        _id(case.case_id, "narrative_and_query", case.question),
        case,
        "narrative_and_query",
    )
    yield Item(_id(case.case_id, "advice", case.question, case.advice), case, "advice")
    for c in case.criteria:
        yield Item(
            _id(case.case_id, c.id, case.question, c.criterion),
            case,
            "criterion",
            c.criterion,
        )


def _id(*parts: str) -> str:
    return "q-" + digest_json(list(parts)).partition(":")[2][:16]


def _read(
    files: Sequence[Path], items: Mapping[str, Item]
) -> tuple[Ratings, tuple[str, ...], list[str]]:
    """The ratings, the raters, and notes on what is left out."""
    given: Ratings = {}
    skipped = Counter[str | None]()

    def add(_: str, values: Mapping[str, Any]) -> None:
        skipped[_add(given, values, items)] += 1

    for path in files:
        add_rows(path, ("item", "rater", "rating"), add, hint=_EXPORT)
    del skipped[None]
    if not given:
        names = ", ".join(path.name for path in files)
        unknown = skipped[_UNKNOWN]
        others = f"only {unknown} items of other cases or changed texts"
        raise BadInput(
            f"{names}: expected ratings of this run's cases, found {others if unknown else 'no ratings'}"
        )
    raters = dict.fromkeys(chain.from_iterable(given.values()))
    notes = [f"{skipped[why]} {why}" for why in sorted(filter(None, skipped))]
    return given, tuple(raters), notes


def _add(
    given: Ratings, values: Mapping[str, Any], items: Mapping[str, Item]
) -> str | None:
    """Add a row's rating, or return why it is left out. Raises ValueError if it is invalid."""
    cells = (values.get(name) for name in ("item", "rater", "rating"))
    item, rater, rating = (
        "" if c is None or isinstance(c, bool) else str(c).strip() for c in cells
    )
    if not item or not rater:
        raise ValueError("item and rater are required")
    if item not in items:
        return _UNKNOWN
    if not rating:
        return "ratings have no decision and are left out"
    most, number = ASPECTS[items[item].aspect] - 1, rating.removesuffix(".0")
    if number not in map(str, range(most + 1)):
        raise ValueError(
            f"rating must be a whole number from 0 to {most}, found {rating[:40]!r}"
        )
    if given.setdefault(item, {}).setdefault(rater, int(number)) != int(number):
        raise ValueError(f"{rater!r} contradicts their earlier rating of {item}")
    return None
