"""FRANK's correlations on a small file, against hand-computed ones, and cross-examination's scores among them."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from medlive.errors import BadInput


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "frank", Path(__file__).parents[3] / "benchmarks" / "frank.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["frank"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


frank: Any = load()

SUMMARIES = [
    # Model, people's factuality, the metric. The means of a are (0.5, 2), of b (0.2, 12), of all (0.35, 7).
    ("a", 0.0, 1.0),
    ("a", 0.5, 3.0),
    ("a", 1.0, 2.0),
    ("b", 0.0, 9.5),
    ("b", 0.5, 14.0),
    ("b", 0.1, 12.5),
]
# Less the mean of all, the products sum to -2.95, the squares to 0.775 and 162.5: it prefers the worse model.
RAW = -2.95 / (0.775 * 162.5) ** 0.5
# Less each model's own: -0.5, 0, 0.5, -0.2, 0.3, -0.1 of people and -1, 1, 0, -2.5, 2, 0.5 of the metric. The
# products sum to 1.55, the squares to 0.64 and 12.5; the ranks differ by 1, 1, 3, 1, 1, 1.
GIVEN, BY_RANK = 1.55 / 8**0.5, 1 - 6 * 14 / (6 * 35)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rows: list[list[dict[str, Any]]] = [[], []]
    for place, (model, people, metric) in enumerate(SUMMARIES):
        key = {
            "hash": f"h{place}",
            "model_name": model,
            "dataset": "cnndm",
            "split": "test",
        }
        rows[0].append(
            {**key, "Factuality": people, "Flip_EntE": 1.0 if people < 0.5 else people}
        )
        rows[1].append({**key, "Metric": metric, "NaN": float("nan")})
    for name, values in zip(frank.FILES, rows, strict=True):
        (tmp_path / name).write_text(json.dumps(values), encoding="utf-8")
    return tmp_path


def scores(path: Path, **change: Any) -> Path:
    """What the protocol prints: the second table lists every pair."""
    columns = ["model", "case", "figure", "conformity", "consistency"]
    rows = [
        [model, f"h{n}", 50.0, 100.0, 100.0 * people]
        for n, (model, people, _) in enumerate(SUMMARIES)
    ]
    rows[1] = [change.get("model", "a"), *rows[1][1:]]
    path.write_text(
        json.dumps({"tables": [{}, {"columns": columns, "rows": rows}]}),
        encoding="utf-8",
    )
    return path


def test_the_partial_correlations_are_those_worked_out_by_hand(files: Path) -> None:
    items = frank.read_frank(*(files / name for name in frank.FILES))
    assert list(items[0].metrics) == ["Metric"]
    pearson, _, given, by_rank = frank.correlations(items, "Metric", 20)
    assert pearson.value == pytest.approx(RAW)
    assert given.value == pytest.approx(GIVEN)
    assert by_rank.value == pytest.approx(BY_RANK)


@pytest.mark.thorough
def test_the_page_is_checked_by_other_libraries_and_takes_scores(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    line = [
        "--data",
        str(files),
        "--draws",
        "10",
        "--scores",
        str(scores(files / "scores.json")),
    ]
    assert frank.main(line) == 0
    printed = capsys.readouterr().out
    assert "| cross-examination: consistency | 6 | 1.000" in printed
    assert (
        "| cross-examination: figure | 6 | one side is the same for every item"
        in printed
    )
    assert "| entity | 3 of 3 | 144 of 167 |" in printed
    monkeypatch.setattr(frank, "again", lambda *_: (0.0, 0.0, 0.0, 0.0))
    assert frank.main(line) == 1
    assert "by scikit-learn and scipy" in capsys.readouterr().err


def test_pairs_that_are_not_franks_are_refused(files: Path) -> None:
    items = frank.read_frank(*(files / name for name in frank.FILES))
    with pytest.raises(BadInput, match="1 pairs"):
        frank.with_scores(items, scores(files / "scores.json", model="z"))
    (files / "scores.json").write_text("{}")
    with pytest.raises(BadInput):
        frank.with_scores(items, files / "scores.json")


@pytest.mark.thorough
def test_the_published_files_come_to_what_their_authors_say() -> None:
    if not all((frank.DATA / name).is_file() for name in frank.FILES):
        pytest.skip("FRANK is not beside this checkout")
    items = frank.read_frank(*(frank.DATA / name for name in frank.FILES))
    given = {name: frank.correlations(items, name, 10)[2:] for name in items[0].metrics}
    best = [
        max((values[place].value or 0.0, name) for name, values in given.items())[1]
        for place in (0, 1)
    ]
    assert (len(items), best) == (2246, ["BertScore P Art", "FactCC"])
