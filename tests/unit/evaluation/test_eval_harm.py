"""A run is read for harm: rows, resumption, controls, and what becomes of its scores."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from medlive.errors import EndpointUnavailable
from medlive.evaluation.grading.harm import plan_run, read_run
from medlive.evaluation.harm import (
    HARM_CALLS,
    READINGS,
    control_figures,
    read_rows,
)
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.metrics import CaseState, Metric
from medlive.evaluation.scoring.score import score_runs
from medlive.llm.budget import Budget
from medlive.llm.engine import Finish, Reply, Request, Usage
from tests.support.harm import SEVERE, HarmJudge
from tests.support.runs import made_cases, made_run

CASES = 20


def english(_: int, case: EvaluationCase) -> EvaluationCase:
    number = case.case_id.lstrip("case-0") or "0"
    return replace(
        case, language="en", narrative=f"Patient {number}: knee pain.", source="sdn"
    )


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    cases = made_cases(CASES, months=2, change=english)
    out = made_run(cases, tmp_path / "run", "a-model", 0.8, missing=False)
    # Every answer is in English now, as its case is.
    path = out / "responses.jsonl"
    text = path.read_text().replace(
        "建议先休息，减少上下楼。", "Please rest the knee and avoid stairs."
    )
    path.write_text(text)
    return out


async def test_confirmed_harm_caps_the_score_and_what_is_not_confirmed_does_not(
    run_dir: Path,
) -> None:
    await read_run(run_dir, HarmJudge(), HarmJudge())
    run = load_graded(run_dir)
    safe = {s.case.case_id: s for s in run.case_scores(Metric.SAFE)}
    complete = {s.case.case_id: s for s in run.case_scores(Metric.COMPLETE)}
    for case_id, score in safe.items():
        whole = complete[case_id].score
        if whole is None:
            continue
        if case_id == "case-0001":
            assert score.score == 0
        elif case_id == "case-0002":
            assert score.score == min(whole, 0.5)
        else:
            assert score.score == whole
    table = score_runs([run], draws=50)
    assert table.metric is Metric.SAFE
    (model,) = table.models
    assert model.harm.severe.value == pytest.approx(1 / model.harm.read)
    assert model.harm.any.value == pytest.approx(2 / model.harm.read)
    assert (model.harm.unconfirmed, model.harm.unread) == (1, 0)
    assert model.harm.omitted.value


async def test_a_run_that_was_read_costs_nothing_and_one_that_was_stopped_goes_on(
    run_dir: Path,
) -> None:
    judge = HarmJudge()
    first = await read_run(run_dir, judge, judge, budget=Budget(max_calls=10))
    assert first.stopped
    run = load_graded(run_dir)
    assert run.harm
    assert 0 < run.harm.read < CASES
    unread = [s for s in run.case_scores(Metric.SAFE) if s.state is CaseState.NOT_READ]
    assert unread
    assert all(score.score is None and score.low == 0 for score in unread)
    second = await read_run(run_dir, judge, judge)
    assert (second.read, second.calls) == (CASES, len(judge.requests) - first.calls)
    third = await read_run(run_dir, judge, judge)
    assert (third.read, third.calls) == (CASES, 0)
    assert plan_run(run_dir, judge.identity).calls == 0


async def test_a_failed_judge_leaves_answers_unread_and_never_safe(
    run_dir: Path,
) -> None:
    class Mute(HarmJudge):
        async def answer(self, request: Request) -> Reply:
            if SEVERE in request.inputs["question"]:
                return Reply("no", Finish.STOP, Usage(), "judge")
            return await super().answer(request)

    done = await read_run(run_dir, Mute(), HarmJudge())
    assert (done.read, sum(done.reasons.values())) == (CASES - 1, 1)
    (model,) = score_runs([load_graded(run_dir)], draws=50).models
    assert model.harm.unread == 1


@pytest.mark.parametrize(
    "mood", [pytest.param("everywhere", marks=pytest.mark.thorough), "nowhere"]
)
async def test_a_judge_who_finds_harm_everywhere_or_nowhere_fails_the_control(
    run_dir: Path, mood: str
) -> None:
    done = await read_run(run_dir, HarmJudge(mood=mood), HarmJudge())
    assert done.controls.failed
    table = score_runs([load_graded(run_dir)], draws=50)
    assert table.metric is Metric.COMPLETE
    assert any("fail their control" in warning for warning in table.warnings)


async def test_controls_look_like_answers_and_are_in_no_figure(run_dir: Path) -> None:
    judge = HarmJudge()
    done = await read_run(run_dir, judge, judge)
    rows, _ = read_rows(run_dir / READINGS)
    controls = [row for row in rows if row.control is not None]
    kinds = [row.control for row in controls]
    assert kinds.count("slip") == kinds.count("excellent") == 2
    assert not control_figures(controls).failed
    assert done.answers == len(rows) - len(controls) == CASES
    asked = {frozenset(request.inputs) for request in judge.requests}
    assert len(asked) == 2  # Readings are all alike, and so are checks
    assert "control-" not in json.dumps([dict(r.inputs) for r in judge.requests])


async def test_another_judge_adds_rows_and_the_one_with_more_counts(
    run_dir: Path,
) -> None:
    await read_run(run_dir, HarmJudge(), HarmJudge())
    other = HarmJudge(model="other", mood="nowhere")
    other.identity = replace(other.identity, pinned=False)
    await read_run(run_dir, other, other, budget=Budget(max_calls=5))
    run = load_graded(run_dir)
    assert run.harm
    assert (run.harm.reader, run.harm.read) == ("judge", CASES)
    assert any(
        note.startswith("read for harm by several pairs of judges")
        for note in load_graded(run_dir).notes
    )


async def test_an_answer_or_advice_that_changed_is_not_read(run_dir: Path) -> None:
    await read_run(run_dir, HarmJudge(), HarmJudge())
    path = run_dir / "responses.jsonl"
    lines = path.read_text().splitlines()
    changed = json.loads(lines[0]) | {"response": "Rest, and come back in a week."}
    path.write_text("\n".join([*lines, json.dumps(changed)]) + "\n")
    run = load_graded(run_dir)
    assert run.harm
    assert run.harm.read == CASES - 1


async def test_a_run_without_a_reading_is_scored_as_before(run_dir: Path) -> None:
    run = load_graded(run_dir)
    assert score_runs([run], draws=50).metric is Metric.COMPLETE
    table = score_runs([run], metric=Metric.SAFE, draws=50)
    assert table.models[0].overall.value is None
    assert any("not read for harm" in warning for warning in table.warnings)
    assert not (run_dir / HARM_CALLS).exists()


async def test_a_reader_whose_calls_all_fail_is_silent_although_nothing_is_checked(
    run_dir: Path,
) -> None:
    class Down(HarmJudge):
        async def answer(self, request: Request) -> Reply:
            raise EndpointUnavailable("the endpoint gave status 500")

    done = await read_run(run_dir, Down(), HarmJudge(), budget=Budget(max_calls=3))
    assert (done.calls, done.read, done.silence is not None) == (3, 0, True)
    done = await read_run(run_dir, HarmJudge(), Down())
    assert (done.read, done.silence) == (CASES - 4, None)


async def test_a_silent_reader_is_no_silence_where_the_checker_answers(
    run_dir: Path,
) -> None:
    class Down(HarmJudge):
        async def answer(self, request: Request) -> Reply:
            if self.mood == "down" or SEVERE in request.inputs["question"]:
                raise EndpointUnavailable("the endpoint gave status 500")
            return await super().answer(request)

    await read_run(run_dir, Down(), Down(mood="down"))
    checker = HarmJudge()
    done = await read_run(run_dir, Down(), checker)
    assert checker.requests
    assert (done.calls, done.read) == (1 + len(checker.requests), CASES - 1)
    assert done.silence is None
