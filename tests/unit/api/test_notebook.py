"""The package as a notebook uses it: what `medlive` exports, its frames and figures, and the tutorial's cells."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import medlive
from medlive import frames
from medlive.errors import MissingExtra, UsageError
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.bundles.bundle import make_bundle
from medlive.evaluation.bundles.files import archive
from medlive.evaluation.cases.load import from_snapshot
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.runs.folder import ModelUse
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.score import score_runs
from medlive.grader.judge import Mode
from tests.support.bundles import graded
from tests.support.releases import case, release
from tests.unit.evaluation.conftest import AT, Judge, Model, make_cases, verdict

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two graded runs of the same twelve cases."""
    root, folders = tmp_path_factory.mktemp("runs"), []
    for name in ("first", "second"):
        folder = root / name

        async def make(folder: Path = folder, name: str = name) -> None:
            await run_model(
                make_cases(12), Model(), folder, use=ModelUse(name), created_at=AT
            )
            judge = Judge(lambda request: verdict("1." in str(request.inputs)))
            await grade_run(folder, judge, mode=Mode.CRITERION)

        asyncio.run(make())
        folders.append(folder)
    return folders


def test_everything_named_is_there_and_documented() -> None:
    for name in medlive.__all__:
        value = getattr(medlive, name)
        assert name == "__version__" or value.__doc__, name
    with pytest.raises(AttributeError):
        _ = medlive.absent


def test_models_of_the_same_cases_have_their_own_means_on_the_scale(
    runs: list[Path],
) -> None:
    table = medlive.ability(runs, draws=50)
    if table.scale.why:
        assert "the same" in table.scale.why
    else:
        means = [model.overall.value for model in medlive.score(runs).models]
        assert [row.value for row in table.scale.abilities] == pytest.approx(means)
    assert len(table.cases) == 12
    assert table.silent == 12  # both answered alike
    assert table.suspects == []


def test_a_score_is_that_of_the_command(runs: list[Path]) -> None:
    table = medlive.score(runs, metric="paper", draws=50)
    other = score_runs(
        [load_graded(run) for run in runs], metric=Metric.PAPER, draws=50
    )
    assert [m.overall for m in table.models] == [m.overall for m in other.models]
    assert medlive.compare(*runs, metric="paper", draws=50) == table.comparisons[0]


def test_a_bundle_is_read_with_its_snapshot_or_the_folder(tmp_path: Path) -> None:
    release(tmp_path, "2026.W46", [case("a1"), case("b2")])
    folder = tmp_path / "medlive-2026.W46"
    run = graded(folder, tmp_path / "run", "model-a")
    bundle = tmp_path / "a.zip"
    bundle.write_bytes(archive(make_bundle(run, draws=20)))
    for snapshot in (folder, medlive.load_snapshot(folder)):
        read = medlive.load_bundle(bundle, snapshot=snapshot)
        assert read.verdicts("b2") == run.verdicts("b2")


async def test_a_run_of_a_part_of_a_snapshot_says_so_and_one_of_nothing_is_refused(
    tmp_path: Path,
) -> None:
    release(tmp_path, "2026.W46", [case("a1"), case("b2")])
    snapshot = medlive.load_snapshot(tmp_path / "medlive-2026.W46")
    part = snapshot.where(lambda one: one.case_id == snapshot.cases[0].case_id)
    with pytest.raises(UsageError, match="no case left"):
        await run_model(
            from_snapshot(snapshot.filter(language="xx")),
            Model(),
            tmp_path / "none",
            use=ModelUse("m"),
            created_at=AT,
        )
    for name, chosen in (("all", snapshot), ("any", snapshot.filter()), ("part", part)):
        folder = tmp_path / name
        await run_model(
            from_snapshot(chosen), Model(), folder, use=ModelUse("m"), created_at=AT
        )
        said = medlive.score(folder, draws=2).warnings
        assert any("only on 1 cases of 2026.W46" in why for why in said) is (
            name == "part"
        )


def test_draws_and_a_seed_that_cannot_be_are_said(runs: list[Path]) -> None:
    for draws, seed in ((0, 0), (10, -1)):
        with pytest.raises(UsageError, match="at least"):
            medlive.score(runs, draws=draws, seed=seed)


def test_a_window_of_days_is_taken_as_text_or_date(runs: list[Path]) -> None:
    text = medlive.score(runs[0], since="2025-03-01", draws=10)
    day = medlive.score(runs[0], since=date(2025, 3, 1), draws=10)
    assert text.models[0].overall == day.models[0].overall
    assert text.models[0].overall.n == 10


@pytest.mark.parametrize(
    "wrong", [{"metric": "best"}, {"errata": "no"}, {"since": "soon"}]
)
def test_a_wrong_value_names_what_was_expected(
    runs: list[Path], wrong: dict[str, str]
) -> None:
    (name,) = wrong
    with pytest.raises(UsageError, match=name):
        medlive.score(runs, **wrong)  # type: ignore[arg-type]


@pytest.mark.thorough
def test_the_frames_of_each_library_hold_the_same(runs: list[Path]) -> None:
    table = medlive.score(runs, draws=20)
    means = sum(1 + sum(map(len, model.slices.values())) for model in table.models)
    calls: list[tuple[Callable[..., Any], Any, int]] = [
        (frames.cases, runs[0], 12),
        (frames.answers, runs, 24),
        (frames.verdicts, runs, 72),
        (frames.scores, table, 24),
        (frames.means, table, means),
    ]
    for make, source, rows in calls:
        pandas = make(source)
        polars = make(source, "polars")
        arrow = make(source, "arrow")
        assert len(pandas) == len(polars) == arrow.num_rows == rows
        assert list(pandas.columns) == polars.columns == arrow.column_names
    with pytest.raises(UsageError):
        frames.cases(runs[0], "numpy")  # type: ignore[arg-type]


def test_the_scores_of_a_frame_have_the_tables_mean(runs: list[Path]) -> None:
    table = medlive.score(runs, draws=20)
    means = frames.scores(table).groupby("model").score.mean()
    for model in table.models:
        assert means[model.label] == pytest.approx(model.overall.value)


def test_runs_of_one_model_have_the_names_of_their_scores(runs: list[Path]) -> None:
    several = [replace(load_graded(run), label="one") for run in runs]
    names = {model.label for model in score_runs(several, draws=10).models}
    assert len(names) == 2
    for frame in (frames.answers, frames.verdicts):
        assert set(frame(several, library="arrow")["model"].to_pylist()) == names


def test_a_missing_library_is_named(
    runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = medlive.score(runs, draws=20)
    monkeypatch.setattr("medlive.errors.find_spec", lambda name: None)
    with pytest.raises(MissingExtra):
        frames.scores(table)


def test_power_of_runs_and_of_an_assumption(runs: list[Path]) -> None:
    assumed = medlive.power(5)
    assert assumed.to_tell_two_apart == 285
    assert medlive.power(10).to_tell_two_apart < assumed.to_tell_two_apart
    assert medlive.power(5, runs).spread.score > 0
    for spread in (float("inf"), float("nan")):
        with pytest.raises(UsageError, match="no number of cases"):
            medlive.power(5, spread=spread)
    wrong: list[dict[str, Any]] = [
        {"models": 1},
        {"before": 0},
        {"points": 0},
        {"points": 101},
    ]
    for odd in [*wrong, {"correlation": 2}, {"correlation": 1}, {"correlation": -2}]:
        with pytest.raises(UsageError, match="points have to be above 0"):
            medlive.power(**{"points": 5, **odd})
    with pytest.raises(UsageError, match="the spread has to be above 0"):
        medlive.power(5, spread=-30.0)


def test_a_protocol_that_asks_nobody(runs: list[Path]) -> None:
    results = asyncio.run(medlive.protocol("coverage", runs))
    assert set(results.figures) == {"first", "second"}
    with pytest.raises(UsageError):
        asyncio.run(medlive.protocol("pairwise", runs))
