"""What stands beside a score: complete against paper, the core score, the length of answers."""

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.cli.evaluation.tables import describe_scores
from medlive.cli.output import Result, show_result
from medlive.evaluation.bundles.bundle import BundleInfo, bundle_scores
from medlive.evaluation.grading.imports import export_run, left_out
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    CaseSet,
    EvaluationCase,
    EvaluationCriterion,
)
from medlive.evaluation.runs.folder import RESPONSES
from medlive.evaluation.scoring.graded import GradedRun, load_graded
from medlive.evaluation.scoring.metrics import (
    CaseState,
    Metric,
    case_score,
    core_case,
)
from medlive.evaluation.scoring.score import (
    ModelScore,
    ScoreTable,
    score_runs,
)
from medlive.integrity.digest import canonical_json
from medlive.report.html import file_name
from medlive.report.render import write_report
from medlive.report.tables import score_rows, scores_json
from tests.support.published import published_table
from tests.support.runs import made_cases, made_run

pytestmark = pytest.mark.whole

ANSWER = Answer("c", AnswerState.OK, "text", "stop", "m")
ORIGINS = ("advice", "evidence", "consensus")
Rubric = list[tuple[int, bool, str]]
RUBRICS = st.lists(
    st.tuples(
        st.integers(-10, 10).filter(bool), st.booleans(), st.sampled_from(ORIGINS)
    ),
    min_size=1,
    max_size=12,
)


def equation_1(rubric: Rubric) -> Fraction | None:
    """The score of a rubric's verdicts, written anew from docs/method.md §2."""
    most = sum(points for points, _, _ in rubric if points > 0)
    if most == 0:
        return None
    total = sum(points for points, met, _ in rubric if met)
    return min(Fraction(1), max(Fraction(0), Fraction(total, most)))


@given(RUBRICS)
def test_each_metric_counts_its_own_criteria(rubric: Rubric) -> None:
    criteria = tuple(
        EvaluationCriterion(f"k{i}", f"t{i}", float(points), origin=origin)
        for i, (points, _, origin) in enumerate(rubric)
    )
    case = EvaluationCase("c", "en", "n", "q", "a", criteria, "", None)
    met = {f"k{i}": verdict for i, (_, verdict, _) in enumerate(rubric)}

    def assert_score(found: object, counted: Rubric) -> None:
        expected = equation_1(counted)
        assert found == (None if expected is None else pytest.approx(float(expected)))

    of_advice = [row for row in rubric if row[2] == "advice"]
    heavy = [row for row in rubric if abs(row[0]) >= 7]
    assert_score(case_score(case, ANSWER, met, Metric.COMPLETE).score, rubric)
    assert_score(case_score(case, ANSWER, met, Metric.PAPER).score, of_advice)
    core = case_score(core_case(case), ANSWER, met, Metric.COMPLETE)
    assert_score(core.score, heavy)
    published = case_score(case, ANSWER, met, Metric.PUBLISHED)
    # The published script has no other criteria than those of advice, and does not clip a case.
    most = sum(points for points, _, _ in of_advice if points > 0)
    total = sum(points for points, verdict, _ in of_advice if verdict)
    assert published.score == pytest.approx(total / most if most else 0.0)


def test_an_ungraded_criterion_of_another_origin_leaves_the_paper_score() -> None:
    criteria = (
        EvaluationCriterion("a", "of advice", 5.0),
        EvaluationCriterion("b", "of evidence", 5.0, origin="evidence"),
    )
    case = EvaluationCase("c", "en", "n", "q", "a", criteria, "", None)
    met = {"a": True, "b": None}
    complete = case_score(case, ANSWER, met, Metric.COMPLETE)
    assert (complete.state, complete.score) == (CaseState.PARTLY_GRADED, None)
    assert (complete.low, complete.high) == (0.5, 1.0)
    assert case_score(case, ANSWER, met, Metric.PAPER).score == 1.0


def test_a_row_names_an_origin_only_where_it_is_not_advice() -> None:
    criterion = EvaluationCriterion("k", "t", 5.0)
    case = EvaluationCase("c", "en", "n", "q", "a", (criterion,), "", None)
    # Digests of runs and bundles rest on these bytes.
    assert "origin" not in canonical_json(case.row())
    other = replace(case, criteria=(replace(criterion, origin="consensus"),))
    assert EvaluationCase.from_row(json.loads(canonical_json(other.row()))) == other


def mixed(place: int, case: EvaluationCase) -> EvaluationCase:
    """The case with its second and third criterion added to the advice's."""
    first, second, third, *rest = case.criteria
    added = (replace(second, origin="evidence"), replace(third, origin="consensus"))
    return replace(case, criteria=(first, *added, *rest))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[GradedRun]:
    """Four models on cases with criteria of every origin."""
    root = tmp_path_factory.mktemp("mixed")
    cases = made_cases(40, months=4, change=mixed)
    folders = [
        made_run(cases, root / f"run-{k}", f"model-{k}", 0.8 - 0.15 * k)
        for k in range(4)
    ]
    return [load_graded(folder) for folder in folders]


@pytest.fixture(scope="module")
def table(runs: list[GradedRun]) -> ScoreTable:
    return score_runs(runs, draws=30)


def mean_of(run: GradedRun, metric: Metric) -> float:
    scores = [c.score for c in run.case_scores(metric) if c.score is not None]
    return float(np.mean(scores))


def test_complete_and_paper_stand_side_by_side(
    table: ScoreTable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert table.metric is Metric.COMPLETE
    assert table.companion_metrics == (Metric.PAPER,)
    for model in table.models:
        own = model.companions
        assert own.complete == model.overall
        assert own.complete.value == pytest.approx(mean_of(model.run, Metric.COMPLETE))
        assert own.paper.value == pytest.approx(mean_of(model.run, Metric.PAPER))
        assert own.paper.value != pytest.approx(own.complete.value, abs=1e-4)
    rows = {(r["model"], r["slice"]): r["mean"] for r in score_rows(table)}
    plain = scores_json(table)
    assert plain["advice_only"] is False
    for model, row in zip(table.models, plain["models"], strict=True):
        assert row["complete"]["mean"] == model.overall.value
        assert row["paper"]["mean"] == rows[model.label, "paper"]
        assert row["core"]["mean"] == rows[model.label, "core"]
    show_result(Result(None, describe_scores(table)))
    printed = " ".join(capsys.readouterr().out.split())
    assert "paper %" in printed
    assert "core %" in printed


def test_the_same_figures_whichever_metric_leads(
    runs: list[GradedRun], table: ScoreTable
) -> None:
    beside = {model.label: model.companions for model in table.models}
    for metric in (Metric.PAPER, Metric.PUBLISHED):
        other = score_runs(runs, metric=metric, draws=30)
        assert Metric.COMPLETE in other.companion_metrics
        for model in other.models:
            own = beside[model.label]
            assert model.companions.complete == own.complete
            assert model.companions.paper == own.paper
            if metric is Metric.PAPER:
                assert model.overall == own.paper
            # Rates and errors are of the criteria that count.
            assert model.rates.criteria < 200


def test_the_published_script_prints_the_same_on_exported_files(
    runs: list[GradedRun], tmp_path: Path
) -> None:
    run = runs[0]
    benchmark, _, grades = (
        json.loads(path.read_text("utf-8")) for path in export_run(run, tmp_path)
    )
    assert {len(entry["rubric_items"]) for entry in benchmark} == {3}
    table = score_runs([run], metric=Metric.PUBLISHED, draws=30)
    assert published_table(benchmark, {run.label: grades}) == table.tsv()
    assert left_out(run)[0].startswith("80 criteria do not rest on the advice")


def test_where_every_criterion_rests_on_advice_there_is_one_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = made_cases(20, months=2)
    run = load_graded(made_run(cases, tmp_path / "run", "model", 0.6))
    table = score_runs([run], draws=30)
    (model,) = table.models
    assert table.advice_only
    assert table.companion_metrics == ()
    assert model.companions.complete == model.companions.paper == model.overall
    assert {row["slice"] for row in score_rows(table)} & {"complete", "paper"} == set()
    show_result(Result(None, describe_scores(table)))
    printed = " ".join(capsys.readouterr().out.split())
    assert "complete = paper" in printed
    assert "paper %" not in printed


def scored_by(
    root: Path, met: Callable[[int, EvaluationCriterion], bool]
) -> list[GradedRun]:
    """Three models with answers of growing length, and verdicts by length."""
    cases: CaseSet = made_cases(40, months=2)
    found = []
    for k in range(3):
        folder = made_run(cases, root / f"run-{k}", f"model-{k}", 0.5, missing=False)
        lines = (folder / RESPONSES).read_text("utf-8").splitlines()
        answers = {}
        for place, line in enumerate(lines):
            answer = Answer.from_row(json.loads(line))
            length = 100 + 100 * ((place * 7 + k * 5) % 9)
            answers[answer.case_id] = replace(answer, response="x" * length)
        graded = load_graded(folder)
        verdicts = {}
        for case in graded.run.cases:
            length = len(answers[case.case_id].response)
            verdicts[case.case_id] = {c.id: met(length, c) for c in case.criteria}
        found.append(replace(graded, answers=answers, met=verdicts))
    return found


@pytest.mark.thorough
def test_a_score_that_pays_for_length_is_seen_and_a_core_that_does_not(
    tmp_path: Path,
) -> None:
    def more_for_longer(length: int, criterion: EvaluationCriterion) -> bool:
        if abs(criterion.points) >= 7:
            return criterion.points > 0
        return criterion.points > 0 and int(criterion.id[1:]) < length / 250

    runs = scored_by(tmp_path, more_for_longer)
    headline, core = score_runs(runs, draws=30).lengths
    assert (headline.figure, core.figure) == ("complete", "core")
    assert headline.n == 120
    assert (headline.partial or 0) > 0.6
    assert (headline.pearson or 0) > 0.6
    # Every answer has the heavy points: the core score does not vary at all.
    assert core.partial is None
    assert 0 < core.n < 120
    one = score_runs(runs[:1], draws=30).lengths[0]
    assert one.partial is None
    assert one.pearson is not None


def test_a_bundle_holds_each_metric_with_its_core_score(runs: list[GradedRun]) -> None:
    about = BundleInfo(
        code_version="",
        numpy="",
        canary=None,
        draws=30,
        seed=0,
        withdrawn_cases=(),
        withdrawn_criteria=(),
        signing=None,
    )
    scores = bundle_scores(runs[0], about)
    (model,) = score_runs(runs[:1], draws=30).models
    own = model.companions
    complete, paper = scores["complete"]["overall"], scores["paper"]["overall"]
    assert complete["mean"] == pytest.approx(own.complete.value, abs=1e-6)
    assert paper["mean"] == pytest.approx(own.paper.value, abs=1e-6)
    assert scores["complete"]["core"]["mean"] == pytest.approx(own.core.value, abs=1e-6)
    assert scores["complete"]["core"] != scores["paper"]["core"]
    # Rates and errors are of all criteria.
    assert scores["rates"]["criteria"] == model.rates.criteria


@pytest.mark.thorough
def test_the_report_shows_both_scores_and_where_a_criterion_comes_from(
    runs: list[GradedRun], tmp_path: Path
) -> None:
    table = score_runs(runs[:2], metric=Metric.PAPER, draws=30)
    out = write_report(table, tmp_path / "out").parent
    page = (out / "index.html").read_text("utf-8")
    assert ">complete, %</th>" in page
    assert ">core, %</th>" in page
    case = table.models[0].run.run.cases[0]
    text = (out / "cases" / file_name(case.case_id)).read_text("utf-8")
    # The paper metric leads, and yet the page has every criterion and what it rests on.
    assert all(f"<td>{origin}</td>" in text for origin in ORIGINS)


def test_models_are_ranked_by_the_metric_that_leads(table: ScoreTable) -> None:
    def order(value: Callable[[ModelScore], float | None]) -> list[str]:
        models = sorted(table.models, key=lambda m: -(value(m) or 0.0))
        return [model.label for model in models]

    assert [m.label for m in table.models] == order(
        lambda m: m.companions.complete.value
    )
