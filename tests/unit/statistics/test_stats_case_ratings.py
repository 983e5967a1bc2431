"""Physicians' ratings of the cases: shares and AC1 against irrCAC's and by hand."""

from importlib.util import find_spec

import numpy as np
import pytest

from medlive.statistics.case_ratings import ASPECTS, aspect_figures
from tests.support.agreement import ac1

N = 8


@pytest.fixture
def cases() -> dict[str, dict[str, str]]:
    """What can be rated of some cases of two criteria each: aspect → item → case."""
    by_aspect: dict[str, dict[str, str]] = {aspect: {} for aspect in ASPECTS}
    for place in range(N):
        aspects = ["narrative_and_query", "advice", "criterion", "criterion"]
        for number, aspect in enumerate(aspects):
            by_aspect[aspect][f"q-{place}-{number}"] = f"c{place:03}"
    return by_aspect


@pytest.mark.thorough
def test_the_table_is_what_was_rated(cases: dict[str, dict[str, str]]) -> None:
    draw = np.random.default_rng(3)
    unrated = "q-1-3"
    by_rater: list[dict[str, int]] = []
    for _ in range(2):
        own = {}
        for aspect, items in cases.items():
            for item in items:
                own[item] = int(draw.integers(ASPECTS[aspect]))
        del own[unrated]
        by_rater.append(own)
    ratings: dict[str, dict[str, int]] = {}
    for rater, own in zip(("ann", "bo"), by_rater, strict=True):
        for item, rating in own.items():
            ratings.setdefault(item, {})[rater] = rating
    for aspect, items in cases.items():
        one = aspect_figures(aspect, items, ratings, ["ann", "bo"], draws=100)
        turned = aspect_figures(aspect, items, ratings, ["bo", "ann"], draws=100)
        assert (one.ac1, one.equal, one.macro_f1) == (
            turned.ac1,
            turned.equal,
            turned.macro_f1,
        )
        assert one.values == {"criterion": 2}.get(aspect, 3)
        rated = [item for item in items if item != unrated]
        first, second = ([own[item] for item in rated] for own in by_rater)
        assert one.ac1.value == pytest.approx(ac1(first, second, one.values))
        assert one.equal.value == pytest.approx(
            np.mean(np.array(first) == np.array(second))
        )
        assert (one.ac1.n, one.ac1.low is not None) == (len(rated), True)
        for share, column in zip(one.raters.values(), (first, second), strict=True):
            assert share.value == pytest.approx(np.mean(np.array(column) >= 1))
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


def test_what_is_rated_beside_an_aspect_is_passed_over(
    cases: dict[str, dict[str, str]],
) -> None:
    ratings = {"q-0-0": {"ann": 1}, "i-1": {"ann": 1}}
    figures = [aspect_figures(a, cases[a], ratings, ["ann"], draws=100) for a in cases]
    assert [one.raters["ann"].n for one in figures] == [1, 0, 0]
