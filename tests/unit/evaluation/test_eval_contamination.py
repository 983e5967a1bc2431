"""Contamination of made-up models: what was planted is found, what is unknown stays unknown."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from medlive.__main__ import run
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    EvaluationCase,
    EvaluationCriterion,
)
from medlive.evaluation.runs.folder import CasesUse, RunFolder, RunInfo, TemplateUse
from medlive.evaluation.scoring.contamination import (
    ContaminationTable,
    ModelContamination,
    contamination,
    score_arms,
)
from medlive.evaluation.scoring.estimates import (
    AFTER,
    CUTOFF,
    UP_TO,
)
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.score import score_runs
from medlive.llm.registry import (
    Candidate,
    Registry,
)
from medlive.report.tables import arms_rows, contamination_json
from tests.support.runs import made_cases, made_run

STEPS = 20
"""A case has so many criteria of one point: scores are multiples of 1/20."""
MONTHS = [f"20{y}-{m:02d}" for y in (24, 25) for m in range(1, 13)]


def cases_of(n: int) -> tuple[EvaluationCase, ...]:
    """Cases over 24 months in the order of time, the specialty drifting from heart to skin."""
    rng = np.random.default_rng(n)
    criteria = tuple(
        EvaluationCriterion(f"k{i}", f"t{i}", 1.0, "Accuracy") for i in range(STEPS)
    )
    cases = []
    for place in range(n):
        month = MONTHS[place * len(MONTHS) // n]
        skin = rng.random() < 0.2 + 0.6 * place / n
        cases.append(
            EvaluationCase(
                case_id=f"c{place:04d}",
                language="en",
                narrative="n",
                query="q",
                advice="a",
                criteria=criteria,
                post_time=f"{month}-15T00:00:00",
                month=month,
                source="icliniq",
                theme="Response Depth",
                specialty="Dermatology" if skin else "Cardiology",
                first_release=f"2026.W{10 + place * 40 // n:02d}",
            )
        )
    return tuple(cases)


def run_of(
    name: str,
    cases: Sequence[EvaluationCase],
    scores: Sequence[float | None],
    way: str = "closed",
) -> GradedRun:
    use = CasesUse(
        origin="snapshot",
        name="2026.W47",
        digest="sha256:0",
        rows="sha256:1",
        count=len(cases),
        publishable=True,
        notes=(),
    )
    info = RunInfo(
        created_at=datetime(2026, 11, 21, tzinfo=UTC),
        code_version="0",
        model=name,
        endpoint=None,
        engine="openai",
        parameters={},
        template=TemplateUse(
            name="open-book" if way == "open-book" else "livemedbench-v1", digest=None
        ),
        cases=use,
        arm=way,
    )
    answers, met = {}, {}
    for case, score in zip(cases, scores, strict=True):
        answers[case.case_id] = Answer(
            case.case_id, AnswerState.OK, "Rest.", "stop", name
        )
        points = None if score is None else round(min(1.0, max(0.0, score)) * STEPS)
        met[case.case_id] = {
            f"k{i}": None if points is None else i < points for i in range(STEPS)
        }
    path = Path(f"{name}-{way}")
    return GradedRun(
        RunFolder(path, info, tuple(cases)), name, answers, {}, None, (), met
    )


def registry_of(cutoffs: Mapping[str, str], **more: object) -> Registry:
    tables = {
        name: {"cutoff": c, "cutoff_source": "its card", "confidence": "stated"}
        for name, c in cutoffs.items()
    }
    return Registry.model_validate({"candidates": {**tables, **more}})


CASES = cases_of(360)
SEEN = {
    name: np.array([c.month or "" for c in CASES]) <= cut
    for name, cut in {
        "early": "2024-06",
        "middle": "2025-01",
        "late": "2025-06",
    }.items()
}
REGISTRY = registry_of({"early": "2024-06", "middle": "2025-01-31", "late": "2025-06"})


def planted(
    effect: Mapping[str, float],
    drift: float = 0.0,
    mix: float = 0.0,
    every: int = 1,
) -> list[GradedRun]:
    """Runs of three models; `every` 2: on every second case."""
    rng = np.random.default_rng(6)
    cases = CASES[::every]
    n = len(cases)
    base = 0.55 + rng.normal(0, 0.1, n) - drift * np.arange(n) / n
    base -= mix * np.array([c.specialty == "Dermatology" for c in cases])
    runs = []
    for name, seen in SEEN.items():
        scores = base + effect.get(name, 0.0) * seen[::every] + rng.normal(0, 0.08, n)
        runs.append(run_of(name, cases, scores.tolist()))
    return runs


def table_of(
    runs: list[GradedRun], registry: Registry = REGISTRY
) -> ContaminationTable:
    return contamination(score_runs(runs, draws=200, registry=registry), registry)


def analysed(
    runs: list[GradedRun], registry: Registry = REGISTRY
) -> dict[str, ModelContamination]:
    return {m.label: m for m in table_of(runs, registry).models}


def test_a_planted_memory_is_found_beyond_the_others() -> None:
    table = table_of(planted({"middle": 0.12}, every=2))
    found = {m.label: m for m in table.models}
    middle, late = found["middle"], found["late"]
    assert middle.cutoff.text == "2025-01-31"
    assert (middle.drop.n_pre, middle.drop.n_post) == (98, 82)
    assert middle.drop.low <= 0.12 <= middle.drop.high
    assert middle.p_holm == pytest.approx(3 / 5000)
    assert middle.did.low <= 0.12 <= middle.did.high
    assert middle.did.low > 0
    assert middle.did_against == ("early",)
    assert late.did.low <= 0 <= late.did.high
    assert late.p_holm > 0.05
    assert found["early"].did is None
    assert "no comparison of the drop" in " ".join(found["early"].notes)
    paper = middle.paper
    assert paper.full.n == 180
    assert paper.post.n == 82
    # The full set holds what came after the cutoff: the paper's figure is the smaller one.
    assert 0 < paper.difference < middle.drop.difference
    assert middle.placebos_as_large == 0
    assert len(middle.placebos) >= 8


@pytest.mark.thorough
def test_drift_is_no_memory_and_a_shift_of_the_mix_is_adjusted_away() -> None:
    drifting = analysed(planted({}, drift=0.3))
    late = drifting["late"]
    assert late.drop.low > 0.05
    assert late.did.low <= 0 <= late.did.high
    mixed = analysed(planted({}, mix=0.35))["late"]
    by = mixed.mixes
    assert list(by) == ["specialty", "source", "difficulty"]
    assert mixed.drop.low > 0
    assert by["source"].difference == pytest.approx(mixed.drop.difference)
    assert by["specialty"].low <= 0 <= by["specialty"].high
    assert abs(by["difficulty"].difference) < abs(mixed.drop.difference)
    for mix in by.values():
        assert mix.n_pre + mix.lost_pre == mixed.drop.n_pre
        assert mix.n_post + mix.lost_post == mixed.drop.n_post


@pytest.mark.thorough
def test_what_is_unknown_or_too_little_is_said() -> None:
    runs = [
        run_of("stranger", CASES, [0.5] * 360),
        run_of("newborn", CASES, [0.5] * 360),
    ]
    runs.append(run_of("dated", CASES, [0.5] * 360))
    registry = Registry.model_validate(
        {
            "candidates": {
                "newborn": Candidate(
                    cutoff="2025-11", cutoff_source="a talk", confidence="inferred"
                ),
                "dated": {"released": date(2025, 6, 20)},
            }
        }
    )
    every = table_of(runs, registry)
    found = {m.label: m for m in every.models}
    stranger, newborn, dated = found["stranger"], found["newborn"], found["dated"]
    assert (stranger.cutoff, stranger.drop, stranger.mixes) == (None, None, {})
    assert stranger.few
    assert "the cutoff is unknown" in stranger.notes[0]
    assert newborn.few
    assert (newborn.drop.n_post, newborn.drop.p, newborn.p_holm) == (15, None, None)
    assert newborn.drop.difference == 0
    assert any("no p-value" in note for note in newborn.notes)
    assert dated.cutoff.basis == "released"
    assert dated.cutoff.day == date(2025, 6, 20)
    assert any("release date" in note for note in dated.notes)
    table = score_runs(runs, draws=20, registry=registry)
    by_label = {m.label: m for m in table.models}
    assert by_label["stranger"].slice(CUTOFF, AFTER) is None
    assert by_label["dated"].slice(CUTOFF, UP_TO).n == dated.drop.n_pre
    text = json.dumps(contamination_json(every), allow_nan=False)
    assert json.loads(text)["models"][0]["model"] in by_label


def test_cases_without_a_date_are_on_no_side() -> None:
    cases = [
        CASES[0],
        *(
            EvaluationCase(
                f"u{i}", "en", "n", "q", "a", CASES[0].criteria, "someday", None
            )
            for i in range(3)
        ),
        EvaluationCase("m", "en", "n", "q", "a", CASES[0].criteria, "", "2025-01"),
    ]
    registry = registry_of({"x": "2025-01-10"})
    found = analysed([run_of("x", cases, [0.5, 0.5, 0.5, None, 0.5])], registry)["x"]
    # A month that holds the cutoff may have been seen.
    assert (found.drop.n_pre, found.drop.n_post, found.scored) == (2, 0, 4)
    assert any("2 cases without a date" in note for note in found.notes)


@pytest.mark.thorough
def test_the_raw_arm_is_held_against_the_rewritten_one() -> None:
    rng = np.random.default_rng(3)
    base = rng.uniform(0.3, 0.7, len(CASES))
    raw = base + 0.2 * SEEN["late"] + rng.normal(0, 0.05, len(CASES))
    runs = [
        run_of("late", CASES, base.tolist()),
        run_of("late", CASES, raw.tolist(), "raw"),
    ]
    found = table_of(runs)
    (arm,) = found.arms
    assert arm.drop.low <= 0.2 <= arm.drop.high
    assert arm.drop.low > 0.1
    # A model is no control of itself.
    assert all(m.did is None for m in found.models)


@pytest.mark.thorough
def test_what_was_asked_another_way_is_no_control() -> None:
    runs = planted({"middle": 0.12})
    alone = table_of(runs)
    rng = np.random.default_rng(5)
    other = [
        run_of(name, CASES, rng.uniform(0, 1, len(CASES)).tolist(), way)
        for name in ("early", "late")
        for way in ("open-book", "raw")
    ]
    found = table_of([*other, *runs])
    (middle, beside) = (
        next(m for m in t.models if m.label == "middle") for t in (alone, found)
    )
    assert beside.did == middle.did
    against = {m.label: m.did_against for m in found.models}
    assert against["late (late-open-book)"] == ("early (early-open-book)",)


def test_models_that_share_no_case_are_not_said_to_tie() -> None:
    cases = CASES[:80]
    scores = np.linspace(0.2, 0.8, len(cases)).tolist()
    half = len(cases) // 2
    runs = [
        run_of("a", cases[:half], scores[:half]),
        run_of("b", cases[half:], scores[half:]),
    ]
    assert any(
        "a and b; not compared" in w for w in score_runs(runs, draws=50).warnings
    )
    shared = [runs[0], run_of("b", cases[half - 1 :], scores[half - 1 :])]
    assert not any("not compared" in w for w in score_runs(shared, draws=50).warnings)


def test_open_book_against_closed_on_fresh_cases_alone() -> None:
    rng = np.random.default_rng(9)
    cases, fresh = CASES[::3], ~SEEN["late"][::3]
    closed = rng.uniform(0.3, 0.6, len(cases)) + 0.2 * ~fresh
    opened = closed + 0.1 * fresh + rng.normal(0, 0.05, len(cases))
    runs = [
        run_of("late", cases, closed.tolist()),
        run_of("late", cases, opened.tolist(), "open-book"),
        run_of("late", cases, closed.tolist(), "raw"),
        run_of("other", cases, opened.tolist(), "open-book"),
        run_of("stranger", cases, closed.tolist()),
        run_of("stranger", cases, closed.tolist(), "open-book"),
    ]
    arms = {
        arm.model: arm
        for arm in score_arms(score_runs(runs, draws=200, registry=REGISTRY))
    }
    assert set(arms) == {"late", "stranger"}
    late = arms["late"]
    assert (late.cutoff is not None, late.pair.n, late.baseline.n) == (
        True,
        int(fresh.sum()),
        120,
    )
    assert late.pair.low <= 0.1 <= late.pair.high
    assert late.p_holm < 0.005
    assert late.open_score.value - late.closed_score.value == pytest.approx(
        late.pair.difference
    )
    assert late.baseline.value > late.closed_score.value
    assert (
        arms["stranger"].cutoff,
        arms["stranger"].pair.n,
        arms["stranger"].pair.difference,
    ) == (None, 120, 0)
    assert {row["cutoff"] is None for row in arms_rows(arms.values())} == {True, False}


def test_a_cutoff_is_a_day_or_the_end_of_its_month() -> None:
    registry = Registry.model_validate(
        {
            "candidates": {
                "a/b": {
                    "cutoff": date(2025, 6, 1),
                    "cutoff_source": "x",
                    "confidence": "stated",
                },
                "c": {"model": "c-2025-01-01", "released": date(2025, 1, 2)},
            }
        }
    )
    assert registry.cutoff("a/b").day == date(2025, 6, 1)
    assert registry.cutoff("c-2025-01-01").basis == "released"
    assert registry.cutoff("C") is None
    leap = registry_of({"x": "2024-02"}).cutoff("x")
    assert leap.day == date(2024, 2, 29)
    assert leap.before("2024-02-29", None) is True
    assert leap.before("2024-03-01T00:00:00", "2024-03") is False
    assert leap.before("", None) is None
    assert leap.before("2024-02", None) is True
    assert leap.before("2024-03", None) is False
    assert leap.before("last week", None) is None
    for table, said in (
        ({"cutoff": "2025-13", "cutoff_source": "x", "confidence": "stated"}, "cutoff"),
        (
            {"cutoff": "June 2025", "cutoff_source": "x", "confidence": "stated"},
            "YYYY-MM",
        ),
        ({"cutoff": "2025-01"}, "cutoff_source"),
        ({"cutof": "2025-01"}, "cutof"),
        (
            {"cutoff": "2025-01", "cutoff_source": "x", "confidence": "sure"},
            "confidence",
        ),
    ):
        with pytest.raises(ValidationError, match=said):
            Registry.model_validate({"candidates": {"m": table}})


def test_the_last_month_of_the_calendar_has_an_end() -> None:
    cases = tuple(
        replace(c, post_time="9999-12-31T00:00:00", month="9999-12") for c in CASES[:40]
    )
    found = contamination(
        score_runs([run_of("late", cases, [0.5] * 40)], draws=20), REGISTRY
    ).models[0]
    assert (found.drop.n_pre, found.drop.n_post) == (0, 40)


def test_every_figure_for_people_names_its_cases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = made_cases(24, months=24)
    runs = [made_run(made, tmp_path / name, name, 0.5) for name in ("early", "late")]
    (tmp_path / "models.toml").write_text(
        "".join(
            f'[candidates."{name}"]\ncutoff = "{cutoff}"\ncutoff_source = "x"\nconfidence = "stated"\n'
            for name, cutoff in (("early", "2025-03"), ("late", "2025-11"))
        )
    )
    options = ["--metric", "published", "--draws", "50"]
    assert (
        run(
            [
                "--config",
                str(tmp_path),
                "eval",
                "contamination",
                *map(str, runs),
                *options,
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert "not clipped" in said
