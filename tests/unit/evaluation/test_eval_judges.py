"""Several judges of the same answers: the figures of docs/protocols.md, and ranks."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from medlive.cli.main import build
from medlive.errors import UsageError
from medlive.evaluation.agreement.judges import compare_judges, compare_ranks
from medlive.evaluation.model import EvaluationCase, EvaluationCriterion
from medlive.evaluation.protocols.portfolio import ranks
from tests.support.runs import graded_by, made_cases, made_run

pytestmark = pytest.mark.whole

KQA = (
    Path(__file__).parents[4]
    / "shared"
    / "realdata"
    / "agreement"
    / "kqa_NLI_medical_annotator.csv"
)
Met = Callable[[EvaluationCase, EvaluationCriterion], bool | None]


def number(case: EvaluationCase, criterion: EvaluationCriterion) -> int:
    """A criterion's place among those of all cases, 5 a case."""
    return 5 * int(case.case_id[-4:]) + int(criterion.id[1:])


def run_of(
    folder: Path, *judges: tuple[str, Met], cases: int = 8, model: str = "m"
) -> Path:
    made = made_run(made_cases(cases, months=2), folder, model, 0.5, missing=False)
    for name, met in judges:
        graded_by(name, made, met)
    return made


def test_agreement_of_two_judges_is_the_worked_example(tmp_path: Path) -> None:
    # Of 40 criteria both find 20 met, each 5 alone, neither 10.
    def mild(case: EvaluationCase, c: EvaluationCriterion) -> bool:
        return number(case, c) < 25

    def strict(case: EvaluationCase, c: EvaluationCriterion) -> bool | None:
        return number(case, c) < 20 or 25 <= number(case, c) < 30

    run = run_of(tmp_path / "run", ("mild", mild), ("strict", strict))
    found = compare_judges([run], ("mild", "strict"), draws=50)
    (row,) = found.criteria
    pair = row["pair"]
    assert (pair.equal.value, pair.equal.n, row["undecided"]) == (0.75, 40, 0)
    assert pair.ac1.value == pytest.approx((0.75 - 0.46875) / 0.53125)
    assert pair.kappa.value == pytest.approx((0.75 - 0.53125) / 0.46875)
    assert (
        pair.confusion.both_met,
        pair.confusion.first_only,
        pair.confusion.second_only,
    ) == (20, 5, 5)
    assert (found.rankings, len(found.scores)) == ((), 2)


@pytest.mark.thorough
def test_ranks_under_two_judges_are_the_worked_example(tmp_path: Path) -> None:
    shares = {"v": (60, 50), "w": (50, 52), "x": (40, 35), "y": (30, 30)}
    hundred = tuple(
        EvaluationCriterion(f"k{n}", f"point {n}", 1.0, "Accuracy") for n in range(100)
    )
    cases = made_cases(6, change=lambda _, case: replace(case, criteria=hundred))
    runs = []
    for model, met in shares.items():
        runs.append(made_run(cases, tmp_path / model, model, 0.5, missing=False))
        for name, share in zip(("mild", "strict"), met, strict=True):
            graded_by(name, runs[-1], lambda _, c, share=share: int(c.id[1:]) < share)  # type: ignore[misc]
    found = compare_judges(runs, ("mild", "strict"), draws=50)
    (ranking,) = found.rankings
    assert ranking["mean_absolute_difference"].value == pytest.approx(0.0425)
    assert (ranking["kendall"].value, ranking["spearman"].value) == (
        pytest.approx(4 / 6),
        pytest.approx(0.8),
    )
    assert dict(ranking["top"]) == {1: 0, 3: 3}
    scored = {}
    for row in found.scores:
        scored[row["model"], row["judge"][0]] = row["score"].value
    assert [scored[m, j] for m in shares for j in "ms"] == pytest.approx(
        [share / 100 for both in shares.values() for share in both]
    )
    # The same answers in a folder of their own, graded by another judge, are the same model's.
    other = made_run(cases, tmp_path / "again", "v", 0.5, missing=False)
    graded_by("third", other, lambda *_: True)
    assert {
        g["pair"].equal.n
        for g in compare_judges([runs[0], other], ("mild", "third"), draws=50).criteria
    } == {600}
    graded_by("mild", other, lambda *_: True)
    with pytest.raises(UsageError, match="both v"):
        compare_judges([runs[0], other], ("mild", "third"))
    # A model on other cases shares none with the rest: agreement by criterion, and no ranks.
    apart = made_cases(2, change=lambda n, case: replace(case, case_id=f"apart-{n}"))
    far = made_run(apart, tmp_path / "far", "z", 0.5, missing=False)
    for name in ("mild", "strict"):
        graded_by(name, far, lambda *_: True)
    disjoint = compare_judges([runs[0], far], ("mild", "strict"), draws=50)
    assert disjoint.criteria
    assert disjoint.rankings == disjoint.scores == ()
    assert any("no ranks" in note for note in disjoint.notes)
    for judges, said in ((("mild", "nobody"), "nobody"), (("mild",), "by two")):
        with pytest.raises(UsageError, match=said):
            compare_judges(runs, judges)


scores = st.integers(0, 4).map(lambda n: n / 4)


@pytest.mark.thorough
@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(*[scores] * 6), min_size=5, max_size=9))
def test_turned_round_judges_change_nothing(
    rows: list[tuple[float, ...]],
) -> None:
    values = np.array(rows).reshape(len(rows), 2, 3).transpose(1, 0, 2)
    models, clusters = ["x", "y", "z"], np.arange(len(rows))
    one = compare_ranks(("mild", "strict"), models, values, clusters, draws=50)
    two = compare_ranks(("strict", "mild"), models, values[::-1], clusters, draws=50)
    for name in ("spearman", "kendall", "mean_absolute_difference"):
        first, second = one[name].value, two[name].value
        assert first == (second if first is None else pytest.approx(second))
    assert one["top"] == two["top"]
    same = compare_ranks(("mild", "mild"), models, values[[0, 0]], clusters, draws=50)
    assert same["top"] == {1: 1}


@pytest.mark.thorough
@pytest.mark.skipif(not KQA.exists(), reason="../shared/realdata/agreement is absent")
def test_two_physicians_of_kqa_as_judges(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        build(["eval"]),
        [
            "eval",
            "import",
            "--cases",
            str(KQA),
            "--responses",
            str(KQA),
            "--grades",
            str(KQA),
            "--model",
            "four",
            "--out",
            str(tmp_path / "run"),
        ],
        catch_exceptions=False,
    )
    assert done.exit_code == 0
    two = ("label_0", "label_1")
    pair = compare_judges([tmp_path / "run"], two).criteria[0]["pair"]
    assert [
        round(x or 0, 3)
        for x in (pair.equal.value, pair.ac1.value, pair.ac1.low, pair.ac1.high)
    ] == [
        0.854,
        0.723,
        0.631,
        0.814,
    ]


def test_the_command_compares_judges(tmp_path: Path) -> None:
    def command(*arguments: str | Path) -> Any:
        done = CliRunner().invoke(
            build(["eval"]), ["eval", "judges", *map(str, arguments)]
        )
        assert done.exception is None, done.output
        return done.stdout

    def mild(case: EvaluationCase, c: EvaluationCriterion) -> bool:
        return number(case, c) % 2 == 0

    run = run_of(
        tmp_path / "run",
        ("mild", mild),
        ("strict", lambda case, c: number(case, c) % 3 == 0),
        cases=6,
    )
    who = ("--judge", "mild", "--judge", "strict")
    shown = command("compare", run, *who, "--draws", "50")
    assert "differ" in shown
    assert (
        json.loads(command("compare", run, *who, "--draws", "50", "--json"))["format"]
        == "medlive-judges"
    )


def test_what_must_not_be_published_is_said_of_compared_judges(tmp_path: Path) -> None:
    run = run_of(
        tmp_path / "run", ("mild", lambda *_: True), ("strict", lambda *_: False)
    )
    info = json.loads((run / "run.json").read_text("utf-8"))
    info["cases"] |= {"publishable": False, "notes": ["a try"]}
    (run / "run.json").write_text(json.dumps(info), "utf-8")
    found = compare_judges([run], ("mild", "strict"), draws=50)
    assert any("not publishable" in note for note in found.notes)
    # Of eight cases no table of scores gives an interval.
    for row in found.scores:
        assert row["score"].low is None
        assert row["score"].why.startswith("too few to say")


def test_equal_means_are_equal_in_whatever_order_they_are_added_up() -> None:
    first = [0.1, 0.2, 0.3]
    values = np.array([[first, first[::-1], [0.9] * 3], [first, first, [0.9] * 3]])
    values = values.transpose(0, 2, 1)
    assert len(set(values[0].mean(axis=0).tolist())) == 3
    found = compare_ranks(
        ("a", "b"), ["m1", "m2", "m3"], values, np.arange(3), draws=20
    )
    assert found["spearman"].value == found["kendall"].value == 1.0
    assert ranks({"m1": 0.1 + 0.2 + 0.3, "m2": 0.3 + 0.2 + 0.1}, ["m1", "m2"]) == [
        1.5,
        1.5,
    ]
