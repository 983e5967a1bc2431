"""Several judges of the same answers: the figures of docs/protocols.md, ranks, and what people settle."""

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
from medlive.evaluation.agreement.humans import items_of
from medlive.evaluation.agreement.judges import compare_judges, compare_ranks
from medlive.evaluation.agreement.meta import meta_run
from medlive.evaluation.agreement.settle import UNSETTLED, settle
from medlive.evaluation.model import EvaluationCase, EvaluationCriterion
from medlive.evaluation.protocols.portfolio import ranks
from medlive.evaluation.scoring.graded import load_graded
from tests.support.runs import graded_by, made_cases, made_run

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
    made = made_run(made_cases(cases), folder, model, 0.5, missing=False)
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
    by = {one["group"]: one for one in found.criteria}
    pair = by["all"]["pair"]
    assert (pair.equal.value, pair.equal.n, by["all"]["undecided"]) == (0.75, 40, 0)
    assert pair.ac1.value == pytest.approx((0.75 - 0.46875) / 0.53125)
    assert pair.kappa.value == pytest.approx((0.75 - 0.53125) / 0.46875)
    assert (
        pair.confusion.both_met,
        pair.confusion.first_only,
        pair.confusion.second_only,
    ) == (20, 5, 5)
    assert by["positive"]["pair"].equal.n + by["negative"]["pair"].equal.n == 40
    assert (
        sum(
            one["pair"].equal.n
            for name, one in by.items()
            if name not in ("all", "positive", "negative")
        )
        == 40
    )
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
    assert ranking["shift"].value == pytest.approx(-0.0325)
    assert ranking["mean_absolute_difference"].value == pytest.approx(0.0425)
    assert (ranking["kendall"].value, ranking["spearman"].value) == (
        pytest.approx(4 / 6),
        pytest.approx(0.8),
    )
    assert (ranking["reversed"], dict(ranking["top"])) == ((("v", "w"),), {1: 0, 3: 3})
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
    (none,) = disjoint.rankings
    empty = {
        (s.value, s.clusters, s.why) for s in (r["score"] for r in disjoint.scores)
    }
    assert empty == {(None, 0, "no item")}
    assert (none["cases"], none["shift"].value) == (0, None)
    for judges, said in ((("mild", "nobody"), "nobody"), (("mild",), "by two")):
        with pytest.raises(UsageError, match=said):
            compare_judges(runs, judges)


scores = st.integers(0, 4).map(lambda n: n / 4)


@pytest.mark.thorough
@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(*[scores] * 6), min_size=5, max_size=9))
def test_turned_round_judges_turn_the_shift_and_nothing_else(
    rows: list[tuple[float, ...]],
) -> None:
    values = np.array(rows).reshape(len(rows), 2, 3).transpose(1, 0, 2)
    models, clusters = ["x", "y", "z"], np.arange(len(rows))
    one = compare_ranks(("mild", "strict"), models, values, clusters, draws=50)
    two = compare_ranks(("strict", "mild"), models, values[::-1], clusters, draws=50)
    assert one["shift"].value == pytest.approx(-(two["shift"].value or 0.0))
    for name in ("spearman", "kendall", "mean_absolute_difference"):
        first, second = one[name].value, two[name].value
        assert first == (second if first is None else pytest.approx(second))
    assert (one["reversed"], one["top"]) == (two["reversed"], two["top"])
    same = compare_ranks(("mild", "mild"), models, values[[0, 0]], clusters, draws=50)
    assert (same["shift"].value, same["reversed"], same["top"]) == (0.0, (), {1: 1})


def people(path: Path, *rows: tuple[str, int, str, bool | None]) -> Path:
    keys = ("case_id", "criterion_id", "rater", "met")
    path.write_text(
        "".join(
            json.dumps(dict(zip(keys, (c, f"k{k}", *r), strict=True))) + "\n"
            for c, k, *r in rows
        )
    )
    return path


def test_people_settle_what_two_judges_leave_open(tmp_path: Path) -> None:
    # The judges differ on the first case's five criteria; on the second's k0 one of them has no verdict.
    def mild(case: EvaluationCase, c: EvaluationCriterion) -> bool:
        return number(case, c) % 2 == 0

    def strict(case: EvaluationCase, c: EvaluationCriterion) -> bool | None:
        return (
            None
            if number(case, c) == 5
            else number(case, c) % 2 == (number(case, c) < 5)
        )

    run = run_of(tmp_path / "run", ("mild", mild), ("strict", strict), cases=3)
    first = settle(run, ("mild", "strict"))
    assert (first.criteria, first.agreed, first.people, len(first.open), first.new) == (
        15,
        9,
        0,
        6,
        15,
    )
    assert (
        settle(run, ("mild", "strict")).new == settle(run, ("strict", "mild")).new == 0
    )
    one, two = "case-0000", "case-0001"
    rated = people(
        tmp_path / "people.jsonl",
        (one, 0, "ann", True),
        (one, 0, "bo", True),  # Settled
        (one, 1, "ann", True),
        (one, 1, "bo", False),
        (one, 1, "cleo", True),  # The adjudicator's
        (one, 2, "ann", True),  # One alone settles nothing
        (one, 3, "ann", None),
        (one, 3, "bo", None),
        (two, 0, "ann", False),
        (two, 0, "bo", False),  # Where a judge has no verdict
        (two, 1, "ann", False),
        (two, 1, "bo", False),  # Against both judges
    )
    second = settle(run, ("mild", "strict"), human=[rated], adjudicator="cleo")
    assert (second.agreed, second.people, second.overruled, second.new) == (9, 3, 1, 3)
    assert second.open == ((one, "k2"), (one, "k3"), (one, "k4"))
    graded = load_graded(run, judge=second.judge)
    met = graded.verdicts(one)
    assert [met[f"k{n}"] for n in range(5)] == [True, True, None, None, None]
    assert (graded.verdicts(two)["k0"], graded.verdicts(two)["k1"]) == (False, True)
    # Words are those of the judge who decided likewise: b on k1.
    assert [graded.grades[one][k].quote for k in ("k0", "k1", "k2")] == [
        "先休息",
        "先休息",
        "",
    ]
    assert graded.grades[one]["k2"].reason == UNSETTLED
    # Without the people it is open again, and says so.
    assert settle(run, ("mild", "strict")).new == 3
    again = load_graded(run, judge=second.judge)
    assert (again.verdicts(one)["k0"], again.grades[two]["k0"].reason) == (
        None,
        UNSETTLED,
    )
    with pytest.raises(UsageError, match="own verdicts"):
        meta_run(run, human=rated, judge=second.judge)
    with pytest.raises(UsageError):
        settle(run)
    with pytest.raises(UsageError, match="zoe"):
        settle(run, ("mild", "strict"), human=[rated], adjudicator="zoe")


@pytest.mark.skipif(not KQA.exists(), reason="../shared/realdata/agreement is absent")
def test_two_physicians_of_kqa_and_a_third_who_settles(tmp_path: Path) -> None:
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
    settled = settle(tmp_path / "run", two, human=[KQA], adjudicator="label_2")
    assert (settled.agreed, settled.people, settled.overruled, settled.open) == (
        170,
        29,
        9,
        (),
    )


def test_the_commands_compare_judges_and_settle_by_ratings(tmp_path: Path) -> None:
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
    made = json.loads(command("settle", run, *who, "--json"))
    assert (made["agreed"], made["open"]) == (15, 15)
    graded = load_graded(run, judge="mild").run
    items = items_of(graded.cases, graded.answers()[0])
    filled: list[str | Path] = []
    for name in ("ann", "bo"):
        path = tmp_path / f"{name}.csv"
        rows = "".join(f"{item},{name},yes\n" for item in items)
        path.write_text("item,rater,met\n" + rows)
        filled += ["--human", path]
    done = json.loads(command("settle", run, *who, *filled, "--json"))
    assert (done["people"], done["open"], done["new"]) == (15, 0, 15)
    assert "settled: mild / strict" in command("settle", run, *who, *filled)


def test_two_criteria_of_one_text_are_settled_once(tmp_path: Path) -> None:
    def mild(case: EvaluationCase, c: EvaluationCriterion) -> bool:
        return True

    def alike(_: int, case: EvaluationCase) -> EvaluationCase:
        first, second, *others = case.criteria
        second = replace(second, criterion=first.criterion)
        return replace(case, criteria=(first, second, *others))

    cases = made_cases(2, change=alike)
    run = made_run(cases, tmp_path / "run", "m", 0.5, missing=False)
    for name in ("a", "b"):
        graded_by(name, run, mild)
    assert settle(run, ("a", "b")).new == 10
    assert settle(run, ("a", "b")).new == 0


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
