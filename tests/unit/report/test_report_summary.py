"""The summary's sentences against the score table; criteria and costs against a count of their own."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.scoring.graded import (
    GradedRun,
    load_graded,
)
from medlive.evaluation.scoring.score import (
    ScoreTable,
    score_runs,
)
from medlive.llm.engine import Usage
from medlive.llm.registry import Registry
from medlive.report.html import whole
from medlive.report.model import analyse
from medlive.report.render import summarise, tied_with
from medlive.report.sections import (
    costs,
    criteria,
    met_by_criterion,
)
from medlive.statistics.comparison import Comparison, tie_groups
from tests.support.runs import made_cases, made_run

pytestmark = pytest.mark.whole


def table_of(
    root: Path,
    skills: dict[str, float],
    n: int = 120,
    cutoffs: tuple[str, ...] = (),
    months: int = 12,
) -> ScoreTable:
    cases = made_cases(n, months=months)
    runs = [
        load_graded(made_run(cases, root / f"r{k}", name, s))
        for k, (name, s) in enumerate(skills.items())
    ]
    known = {
        name: {"cutoff": cutoff, "cutoff_source": "card", "confidence": "stated"}
        for name, cutoff in zip(skills, cutoffs, strict=False)
    }
    return score_runs(
        runs, draws=100, registry=Registry.model_validate({"candidates": known})
    )


@pytest.mark.parametrize(
    "skills",
    [
        {"a": 0.8, "b": 0.5, "c": 0.3},
        {"a": 0.6, "b": 0.6, "c": 0.2},
        {"a": 0.5, "b": 0.5, "c": 0.5},
    ],
)
def test_who_leads_and_with_whom_it_is_tied_is_what_the_table_says(
    tmp_path: Path, skills: dict[str, float]
) -> None:
    table = table_of(tmp_path, skills, n=36, months=2)
    said = summarise(analyse(table))
    first = table.models[0]
    assert f"{first.label} " in said["Who leads"]
    assert f"{100 * first.overall.value:.1f} %" in said["Who leads"]
    different = {
        frozenset((c.first, c.second)) for c in table.comparisons if c.p_holm < 0.05
    }
    tied = [
        m.label
        for m in table.models[1:]
        if frozenset((first.label, m.label)) not in different
    ]
    assert ("is tied with " + ", ".join(tied) + "." in said["Who leads"]) is bool(tied)
    assert ("leads with" in said["Who leads"]) is (not tied)


@pytest.mark.thorough
def test_the_ranking_after_every_cutoff_goes_first_unless_it_rests_on_few_cases(
    tmp_path: Path,
) -> None:
    table = table_of(
        tmp_path / "a", {"a": 0.7, "b": 0.4}, cutoffs=("2025-03", "2025-05")
    )
    assert table.fresh is not None
    best = table.fresh.models[0]
    said = summarise(analyse(table))["Who leads"]
    assert said.startswith("On cases posted after every cutoff (2025-05-31), ")
    assert f"{100 * best.overall.value:.1f} %" in said
    assert f"n={best.overall.n}" in said
    late = table_of(
        tmp_path / "b", {"a": 0.7, "b": 0.4}, cutoffs=("2025-03", "2025-10")
    )
    assert late.fresh is not None
    assert late.fresh.models[0].overall.few
    assert summarise(analyse(late))["Who leads"].startswith("On all cases, ")


def test_what_is_missing_is_counted_over_all_models(tmp_path: Path) -> None:
    table = table_of(
        tmp_path, {"a": 0.7, "b": 0.4}, n=60, cutoffs=("2025-03",), months=6
    )
    said = summarise(analyse(table))["Missing or wrong"]
    rates = [model.rates for model in table.models]
    ungraded, unanswered = (
        sum(r.ungraded for r in rates),
        sum(r.unanswered for r in rates),
    )
    assert ungraded
    assert unanswered
    assert (
        f"{ungraded:,} of {sum(r.criteria for r in rates):,} verdicts are ungraded"
        in said
    )
    assert (
        f"{unanswered:,} of {sum(r.cases for r in rates):,} cases are unanswered"
        in said
    )
    assert "no cutoff is known for b," in said
    assert "the grader was not compared with people" in said
    assert "the warnings below" in said


def test_cases_that_no_score_is_defined_for_are_counted(tmp_path: Path) -> None:
    def without(place: int, case: EvaluationCase) -> EvaluationCase:
        negative = tuple(c for c in case.criteria if c.points < 0)
        return replace(case, criteria=negative) if place < 3 else case

    run = load_graded(
        made_run(
            made_cases(40, months=2, change=without),
            tmp_path / "r",
            "a",
            0.5,
            missing=False,
        )
    )
    said = summarise(analyse(score_runs([run], draws=20)))["Missing or wrong"]
    assert "3 of 40 cases have no positive criterion to score" in said
    assert "ungraded" not in said


def test_one_model_and_no_score_are_said_in_words(tmp_path: Path) -> None:
    alone = table_of(tmp_path / "a", {"a": 0.7}, n=20, months=2)
    said = summarise(analyse(alone))
    assert "; no other model is ranked." in said["Who leads"]
    assert said["Who leads"].endswith("Fewer than 30 cases: no result.")

    def ungraded(run: GradedRun) -> GradedRun:
        return replace(run, known_grades={}, met={}, grader=None)

    table = score_runs([ungraded(model.run) for model in alone.models], draws=20)
    assert summarise(analyse(table))["Who leads"] == "Nobody: no model has a score."


def test_a_leader_that_nothing_is_compared_with_is_tied_with_all() -> None:
    assert tied_with("a", ["b", "c"], []) == ["b", "c"]


def test_met_shares_are_those_of_the_grades_log(tmp_path: Path) -> None:
    table = table_of(tmp_path, {"a": 0.7, "b": 0.4}, n=40, months=2)
    report = analyse(table)
    verdicts = [
        (model.label, case, criterion, model.run.grades[case.case_id][criterion.id].met)
        for model in table.models
        for case in model.run.run.cases
        for criterion in case.criteria
        if criterion.id in model.run.grades.get(case.case_id, {})
    ]
    rated = {(r.case.case_id, r.criterion.id): r for r in met_by_criterion(report)}
    one = next(key for key, count in rated.items() if count.met == 1)
    mine = [
        met
        for _, case, c, met in verdicts
        if (case.case_id, c.id) == one and met is not None
    ]
    assert (rated[one].met, rated[one].graded) == (sum(mine), len(mine))
    html = "".join(criteria(report).parts)
    listed = html.split("Positive criteria least often met")[-1].split("</table>")[0]
    shares = [int(k) / int(n) for k, n in re.findall(r">(\d+) of (\d+)<", listed)]
    assert len(shares) == 10
    positive = [r.share for r in met_by_criterion(report) if r.criterion.points > 0]
    assert shares == sorted(positive)[:10]


def test_what_is_not_on_record_is_unknown_and_never_nothing(tmp_path: Path) -> None:
    cases = made_cases(12, months=2)
    usages = {
        "priced": Usage(100, 0, 300, 0.02),
        "unpriced": Usage(100, 0, 500),
        "imported": None,
    }
    runs = []
    for name, usage in usages.items():
        run = made_run(cases, tmp_path / name, name, 0.5, usage=usage)
        runs.append(load_graded(run))
    html = "".join(costs(analyse(score_runs(runs, draws=20))).parts)
    cells = {}
    for name in usages:
        row = html.split(f'<th scope="row">{name}</th>')[1].split("</tr>")[0]
        cells[name] = re.findall(r'<td class="n">([^<]*)', row)
    assert cells == {
        "priced": ["1,200", "3,600", "0.2400"],
        "unpriced": ["1,200", "6,000", "unknown"],
        "imported": ["unknown"] * 3,
    }


def test_a_number_in_a_name_stays_whole_and_what_is_in_it_is_escaped() -> None:
    assert (
        whole("gpt-5.2-2025-12-11<b>")
        == 'gpt-<span class="nb">5.2-2025-12-11</span>&lt;b&gt;'
    )
    assert whole("sha256:" + "0" * 64) == "sha256:" + "0" * 64
    assert whole(None) == "–"


def test_only_a_difference_that_survives_the_correction_ends_a_tie() -> None:
    pairs = [
        Comparison("a", "b", 50, 0.1, 0.01, 0.2, 0.02, 0.06),
        Comparison("c", "a", 50, -0.2, -0.3, -0.1, 0.001, 0.003),
    ]
    assert tied_with("a", ["b", "c"], pairs) == ["b"]


def test_a_difference_without_an_interval_is_a_tie_as_in_the_ranking() -> None:
    pair = Comparison("a", "b", 50, 0.1, None, None, 0.001, 0.001, "too few to say")
    assert [s.group for s in tie_groups({"a": 0.6, "b": 0.5}, [pair]).values()] == [
        1,
        1,
    ]
    assert tied_with("a", ["b"], [pair]) == ["b"]
