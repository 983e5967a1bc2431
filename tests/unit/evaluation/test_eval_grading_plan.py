"""What grading takes: planned before, bounded while it goes, and repeated beside the verdicts that count."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.evaluation.agreement.meta import read_rounds, repeated
from medlive.evaluation.asking.plan import (
    estimate_tokens,
    plan_calls,
    sent_text,
)
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.grading.grade import grade_run, plan_grading, repeat_run
from medlive.evaluation.runs.folder import grades_of, open_run
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.score import score_runs
from medlive.grader.judge import Mode
from medlive.llm.budget import Budget
from medlive.llm.engine import EngineIdentity, Reply, Request, Usage
from medlive.llm.registry import Price
from tests.unit.evaluation.conftest import (
    AT,
    USE,
    Judge,
    Model,
    down,
    make_cases,
    verdict,
)


async def answered(path: Path, n: int = 4) -> Path:
    await run_model(make_cases(n), Model(), path, use=USE, created_at=AT)
    return path


def met(request: Request) -> str:
    if "criterion" in request.inputs:
        return verdict(request.inputs["criterion"].endswith("0"))
    entries = [
        json.loads(verdict(c["criterion"].endswith("0"), id=c["id"]))
        for c in request.inputs["criteria"]
    ]
    return json.dumps({"grades": entries})


@pytest.mark.parametrize("mode", list(Mode))
async def test_a_plan_counts_the_calls_that_grading_makes(
    tmp_path: Path, mode: Mode
) -> None:
    run = await answered(tmp_path / "run")
    price = Price(input=2.0, output=8.0, cached=0.5)
    judge = Judge(met)

    before = sorted(p.name for p in run.iterdir())
    found = plan_grading(run, judge.identity, mode=mode, price=price)
    assert sorted(p.name for p in run.iterdir()) == before
    assert judge.requests == []
    result = await grade_run(run, judge, mode=mode, concurrency=1)
    assert result.calls == found.calls == (12 if mode is Mode.CRITERION else 4)
    # The estimate is of what was really sent.
    texts = [sent_text(r) for r in judge.requests]
    assert found.input_tokens == sum(map(estimate_tokens, texts))
    assert found.output_tokens == 70 * 12
    assert found.usd == pytest.approx(
        price.cost(found.input_tokens, 0, found.output_tokens)
    )
    assert plan_grading(run, judge.identity, mode=mode).usd is None
    assert plan_grading(run, judge.identity, mode=mode).calls == 0


@pytest.mark.parametrize("mode", list(Mode))
async def test_a_plan_of_repeats_is_what_they_take(tmp_path: Path, mode: Mode) -> None:
    run, judge = await answered(tmp_path / "run"), Judge(met)
    planned = plan_grading(run, judge.identity, mode=mode, repeats=3)
    await grade_run(run, judge, mode=mode, concurrency=1)
    # What the first round leaves is the later rounds; what a budget cut off is what is left of them.
    later = plan_grading(run, judge.identity, mode=mode, repeats=3)
    assert later.calls == planned.calls - len(judge.requests)
    cut = await repeat_run(run, judge, repeats=3, mode=mode, budget=Budget(max_calls=3))
    assert (
        cut.calls,
        plan_grading(run, judge.identity, mode=mode, repeats=3).calls,
    ) == (
        3,
        later.calls - 3,
    )
    await repeat_run(run, judge, repeats=3, mode=mode)
    assert len(judge.requests) == planned.calls
    assert plan_grading(run, judge.identity, mode=mode, repeats=3).calls == 0
    assert planned.input_tokens == sum(
        estimate_tokens(sent_text(r)) for r in judge.requests
    )


async def test_rules_with_a_price_are_planned_at_it(tmp_path: Path) -> None:
    run = await answered(tmp_path / "run", 1)
    identity = EngineIdentity("rules", "rules", {})
    assert plan_grading(run, identity, mode=Mode.CRITERION).usd is None
    assert (
        plan_grading(
            run, identity, price=Price(input=2.0, output=8.0), mode=Mode.CRITERION
        ).usd
        or 0.0
    ) > 0


@given(st.text(max_size=200), st.text(max_size=200))
def test_tokens_are_more_for_more_text_and_chinese_costs_more_than_english(
    one: str, other: str
) -> None:
    assert (
        estimate_tokens(one)
        <= estimate_tokens(one + other)
        <= estimate_tokens(one) + estimate_tokens(other) + 1
    )
    assert estimate_tokens("发热" * 50) > estimate_tokens("ab" * 50)


def test_a_plan_of_nothing_is_nothing() -> None:
    plan = plan_calls([], price=Price(input=1.0, output=1.0))
    assert (
        plan.calls,
        plan.input_tokens,
        plan.output_tokens,
        plan.usd,
    ) == (0, 0, 0, 0.0)
    alike = plan_calls([("x" * 400, 1)] * 3, price=None, output_tokens=5)
    assert (
        alike.input_tokens,
        alike.output_tokens,
        alike.usd,
    ) == (300, 15, None)


class Priced(Judge):
    """A judge whose calls cost a cent and a hundred tokens, as it says beforehand."""

    def estimate(self, request: Request) -> Usage:
        return Usage(90, 0, 10, 0.01)

    async def answer(self, request: Request) -> Reply:
        said = await super().answer(request)
        await asyncio.sleep(0.001)
        return replace(said, usage=Usage(90, 0, 10, 0.01))


@pytest.mark.parametrize(
    "budget",
    [Budget(max_calls=7), Budget(max_usd=0.07), Budget(max_tokens=700)],
    ids=["calls", "dollars", "tokens"],
)
async def test_a_budget_ends_a_grading_and_what_was_paid_for_is_kept(
    run_dir: Path, budget: Budget
) -> None:
    run = await answered(run_dir, 20)
    judge = Priced(met)
    result = await grade_run(
        run, judge, concurrency=5, budget=budget, mode=Mode.CRITERION
    )
    assert result.calls == len(judge.requests) == budget.calls == 7
    assert result.met + result.not_met == 7
    assert (result.ungraded, result.reasons) == (53, {"not asked yet": 53})
    assert result.stopped
    done = await grade_run(run, judge, mode=Mode.CRITERION)
    assert (done.calls, done.ungraded, done.stopped) == (53, 0, None)


async def test_a_budget_that_ends_before_the_repair_leaves_the_fault_on_record(
    run_dir: Path,
) -> None:
    run = await answered(run_dir, 1)
    result = await grade_run(
        run,
        Judge(lambda _: "rubbish"),
        concurrency=1,
        budget=Budget(max_calls=1),
        mode=Mode.CRITERION,
    )
    assert (result.calls, result.ungraded) == (1, 3)
    (grade,) = list(grades_of(run / "grades.jsonl", []))
    assert grade.raw == "rubbish"
    assert result.stopped


@pytest.mark.parametrize(
    "mode", [Mode.CRITERION, pytest.param(Mode.RUBRIC, marks=pytest.mark.thorough)]
)
async def test_rounds_stand_beside_the_verdicts_and_move_no_score(
    run_dir: Path, mode: Mode
) -> None:
    run = await answered(run_dir)
    judge = Judge(met)
    await grade_run(run, judge, mode=mode)
    before = (run / "grades.jsonl").read_bytes()
    score = score_runs([load_graded(run)], draws=10).models[0].overall

    def moody(request: Request) -> str | Exception:
        round_ = request.round // 1000
        if (
            round_ == 3
            and "criterion" in request.inputs
            and request.inputs["criterion"] == "criterion 0.0"
        ):
            return "rubbish"
        return met(request).replace("true", "false") if round_ == 4 else met(request)

    moods = Judge(moody)
    done = await repeat_run(
        run, moods, repeats=4, mode=mode, budget=Budget(max_calls=5)
    )
    assert (len(moods.requests), bool(done.stopped)) == (5, True)
    done = await repeat_run(run, moods, repeats=4, mode=mode)
    assert done.stopped is None
    rounds = read_rounds(load_graded(run), [])
    assert {len(verdicts) for verdicts in rounds.values()} == {4}
    assert len(rounds) == 12
    for (_, cid), verdicts in rounds.items():
        first = cid == "k0"
        assert verdicts[0] is first
        assert verdicts[1] is first
        assert verdicts[2] in (first, None)
        assert verdicts[3] is False
    found = repeated(load_graded(run), rounds, draws=10)
    assert found is not None
    spoilt = mode is Mode.CRITERION
    assert found["invalid"] == done.left == (1 if spoilt else 0)
    # Three met and one not: half of a criterion's six pairs are equal; of two met and one not, one in three.
    equal = 8 + 3 * 0.5 + (1 / 3 if spoilt else 0.5)
    assert found["equal"].value == pytest.approx(equal / 12)
    again = await repeat_run(run, moods, repeats=4, mode=mode)
    assert again.calls == (2 if spoilt else 0)
    assert (run / "grades.jsonl").read_bytes() == before
    assert score_runs([load_graded(run)], draws=10).models[0].overall == score


async def test_rounds_are_of_what_is_graded_and_of_answers_as_they_are(
    run_dir: Path,
) -> None:
    run = await answered(run_dir, 2)
    half = Judge(
        lambda r: met(r) if r.inputs["criterion"].startswith("criterion 0") else down()
    )
    await grade_run(run, half, mode=Mode.CRITERION)
    judge = Judge(met)
    await repeat_run(run, judge, repeats=2, mode=Mode.CRITERION)
    assert {r.inputs["criterion"][:11] for r in judge.requests} == {"criterion 0"}
    log_of_rounds = (run / "repeats.jsonl").read_text()
    row = json.loads(log_of_rounds.splitlines()[0]) | {"round": "3"}
    damaged = f'{json.dumps(row)}\n{{"round": 3}}\n7\n{{"met'
    (run / "repeats.jsonl").write_text(log_of_rounds + damaged)
    rounds = read_rounds(load_graded(run), [])
    assert {len(verdicts) for verdicts in rounds.values()} == {2}
    assert {v for (case, _), v in rounds.items() if case == "c001"} == {(None, None)}
    answer = open_run(run).answers()[0]["c000"]
    with (run / "responses.jsonl").open("a") as log:
        log.write(json.dumps(replace(answer, response="Rest.").row()) + "\n")
    notes: list[str] = []
    rounds = read_rounds(load_graded(run), notes)
    assert not [case for case, _ in rounds if case == "c000"]
    assert len(notes) == 3
