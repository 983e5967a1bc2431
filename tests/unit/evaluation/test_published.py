"""Papers' own figures, computed again: how tables are read, what counts as the same, and what was found."""

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

_DATED = re.compile("^Measured on .*", re.M)
_PLACE = Path(__file__).parents[3] / "benchmarks" / "published.py"


@pytest.fixture(scope="module")
def published() -> Any:
    spec = importlib.util.spec_from_file_location("published", _PLACE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["published"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_tables_are_read_with_tabs_or_bars(published: Any) -> None:
    text = "x\nModel\tOP\n<i>Open</i>\t\nA\t<b>1,234.5</b>\t**6%**\nTable 1: 9\t9\n| B | 7 | - |\nEnd"
    assert published.rows(text, "Model", "Table 1") == {"A": ["1234.5", "6"]}
    assert published.rows(text, "Table 1", "End")["B"] == ["7", "-"]
    with pytest.raises(ValueError, match="substring not found"):
        published.rows(text, "Table 2", "End")


@pytest.mark.parametrize(
    ("printed", "value", "slack", "same"),
    [
        ("65.7", 65.75, 0, True),
        ("65.7", 65.76, 0, False),
        ("65.7", 65.76, 0.05, True),
        ("10", 10.5, 0, True),
        ("-1.5", -1.54, 0, True),
    ],
)
def test_a_figure_is_the_same_where_rounding_accounts_for_it(
    published: Any, printed: str, value: float, slack: float, same: bool
) -> None:
    assert published.rounds_to(printed, value, slack) is same


def test_equal_scores_leave_a_choice_of_ranks(published: Any) -> None:
    cells = [("1", 0.9), ("2", 0.8), ("3", 0.8), ("3", 0.1)]
    assert [
        published._nearest_rank(int(rank), score, cells, False) for rank, score in cells
    ] == [1, 2, 3, 4]
    assert published._nearest_rank(1, 0.9, cells, True) == 4


@pytest.mark.thorough
def test_what_the_papers_print_comes_out_as_the_page_says(published: Any) -> None:
    checks = published.published(published.SHARED)
    if checks is None:
        pytest.skip("the papers are not beside this checkout")
    page = published.OUT.read_text(encoding="utf-8")
    assert _DATED.sub("", page) == _DATED.sub("", published.page(checks))
    wrong = {
        check.what.partition(":")[0]: check.differing()
        for check in checks
        if check.paper == "MEDIC"
    }
    assert wrong["Table 11"] == [
        ("OVERALL", "65.7", pytest.approx(66.37, abs=0.01)),
        ("caught, OVERALL", "298", 295),
    ]
    assert [of for of, *_ in wrong["Table 2, from Table 5"]] == ["EHRSQL, GPT-OSS-20B"]
    assert not [c.what for c in checks if c.paper == "ClinConsensus" and c.differing()]
