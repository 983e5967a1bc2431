"""Physicians' ratings of the cases: shares and AC1 against irrCAC's and by hand."""

from importlib.util import find_spec

import numpy as np
import pytest

from medlive.statistics.case_ratings import ASPECTS, RatedItem, aspect_figures
from tests.support.agreement import ac1

N = 8


@pytest.fixture
def items() -> list[RatedItem]:
    """What can be rated of some cases of two criteria each."""
    rated = []
    for place in range(N):
        aspects = ["narrative_and_query", "advice", "criterion", "criterion"]
        for number, aspect in enumerate(aspects):
            rated.append(RatedItem(f"q-{place}-{number}", f"c{place:03}", aspect))
    return rated


@pytest.mark.thorough
def test_the_table_is_what_was_rated(items: list[RatedItem]) -> None:
    draw = np.random.default_rng(3)
    said: list[dict[str, int | None]] = []
    for _ in range(2):
        said.append(
            {item.id: int(draw.integers(ASPECTS[item.aspect])) for item in items}
        )
        said[-1][items[7].id] = None
    ratings: dict[str, dict[str, int]] = {}
    for rater, given in zip(("ann", "bo"), said, strict=True):
        for item, rating in given.items():
            if rating is not None:
                ratings.setdefault(item, {})[rater] = rating
    found = aspect_figures(items, ratings, ["ann", "bo"], draws=100)
    turned = aspect_figures(items, ratings, ["bo", "ann"], draws=100)
    figures = [
        [(one.ac1, one.equal, one.macro_f1) for one in done] for done in (found, turned)
    ]
    assert figures[0] == figures[1]
    assert [one.values for one in found] == [3, 3, 2]
    for one in found:
        rated = [i.id for i in items if i.aspect == one.aspect and i.id != items[7].id]
        first, second = ([given[item] for item in rated] for given in said)
        assert one.ac1.value == pytest.approx(ac1(first, second, one.values))
        assert one.equal.value == pytest.approx(
            np.mean(np.array(first) == np.array(second))
        )
        assert (one.ac1.n, one.ac1.low is not None) == (len(rated), True)
        for share, column in zip(one.raters, (first, second), strict=True):
            assert share.agreed.value == pytest.approx(np.mean(np.array(column) >= 1))
        if find_spec("sklearn") is not None:
            f1 = pytest.importorskip("sklearn.metrics").f1_score
            scikit = f1(
                first,
                second,
                labels=range(one.values),
                average="macro",
                zero_division=0,
            )
            assert one.macro_f1.value == pytest.approx(scikit)
        if find_spec("irrCAC") is not None:
            pd, raw = pytest.importorskip("pandas"), pytest.importorskip("irrCAC.raw")
            frame = pd.DataFrame({"a": first, "b": second})
            theirs = raw.CAC(
                frame, categories=list(range(one.values)), digits=12
            ).gwet()["est"]
            assert one.ac1.value == pytest.approx(theirs["coefficient_value"], abs=1e-9)


def test_what_is_rated_beside_cases_is_passed_over(items: list[RatedItem]) -> None:
    item = items[0]
    verdict = item._replace(id="i-1", aspect="verdict")
    ratings = {item.id: {"ann": 1}, verdict.id: {"ann": 1}}
    figures = aspect_figures([item, verdict], ratings, ["ann"], draws=100)
    assert [one.raters[0].agreed.n for one in figures] == [1, 0, 0]
