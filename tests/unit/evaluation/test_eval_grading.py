"""Grading: met, not met, or ungraded with its reason; repeated work is free; nothing unanswered is graded."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from medlive.errors import ConfigError, EndpointUnavailable, RequestRefused, UsageError
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.grading.grade import grade_answer, grade_run
from medlive.evaluation.model import (
    Answer,
    AnswerState,
)
from medlive.evaluation.runs.folder import grades_of
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.score import score_runs
from medlive.grader.judge import Mode
from medlive.llm.engine import Finish, Reply, Request
from medlive.llm.replay import ReplayEngine
from tests.support.bad_endpoint import bad_endpoint, completion, sends
from tests.support.engines import engine_at
from tests.support.reply_store import store_of
from tests.unit.evaluation.conftest import (
    AT,
    USE,
    Judge,
    Model,
    down,
    make_cases,
    reply,
    verdict,
)


async def answered(
    run_dir: Path, n: int = 4, criteria: int = 3, model: Model | None = None
) -> None:
    await run_model(
        make_cases(n, criteria), model or Model(), run_dir, use=USE, created_at=AT
    )


def rubric_reply(request: Request) -> str:
    entries = [
        json.loads(verdict(i % 2 == 0, id=c["id"]))
        for i, c in enumerate(request.inputs["criteria"])
    ]
    return json.dumps({"grades": entries})


async def test_each_criterion_is_asked_once_and_its_record_is_whole(
    run_dir: Path,
) -> None:
    await answered(run_dir)
    judge = Judge(lambda r: verdict(r.inputs["criterion"].endswith(".0")))
    result = await grade_run(run_dir, judge, concurrency=5, mode=Mode.CRITERION)
    assert (result.criteria, result.met, result.not_met, result.ungraded) == (
        12,
        4,
        8,
        0,
    )
    assert result.calls == 12
    asked = judge.requests[0]
    assert asked.task == "grader.criterion"
    assert set(asked.inputs) == {"language", "question", "answer", "criterion"}
    notes: list[str] = []
    grades = list(grades_of(run_dir / "grades.jsonl", notes))
    assert notes == []
    assert {g.quote for g in grades if g.met} == {"Drink water"}
    assert {(g.grader, g.model, g.engine, g.reasoning) for g in grades} == {
        ("judge-1", "judge-1", "openai", "because")
    }
    assert all(json.loads(g.raw)["met"] is g.met for g in grades)
    again = await grade_run(run_dir, judge, mode=Mode.CRITERION)
    assert again.calls == 0
    assert again.reused == 12


async def test_rubric_mode_asks_once_a_case_and_asks_again_only_for_what_is_missing(
    run_dir: Path,
) -> None:
    await answered(run_dir, n=2)

    def answer(request: Request) -> str:
        whole = json.loads(rubric_reply(request))
        if request.repair is None:
            whole["grades"] = whole["grades"][:2]
        return json.dumps(whole)

    judge = Judge(answer)
    result = await grade_run(run_dir, judge, mode=Mode.RUBRIC, concurrency=1)
    assert result.ungraded == 0
    assert [[c["id"] for c in r.inputs["criteria"]] for r in judge.requests] == [
        ["k0", "k1", "k2"],
        ["k2"],
    ] * 2
    assert "does not grade" in judge.requests[1].repair[1]


async def test_a_judge_that_stays_unreadable_is_stopped_with_its_reply_named(
    run_dir: Path,
) -> None:
    await answered(run_dir, n=30)
    judge = Judge(lambda _: "I think it is fine.")
    with pytest.raises(ConfigError) as failed:
        await grade_run(run_dir, judge, concurrency=1, mode=Mode.CRITERION)
    assert "I think it is fine." in str(failed.value.hint)
    assert len(judge.requests) == 12
    # A judge that was read once, now or before, is asked for all.
    first = iter([verdict(False)])
    done = await grade_run(
        run_dir,
        Judge(lambda _: next(first, "?")),
        concurrency=1,
        max_retries=0,
        mode=Mode.CRITERION,
    )
    assert (done.not_met, done.ungraded, done.calls) == (1, 89, 90)
    assert (
        await grade_run(
            run_dir,
            Judge(lambda _: "?"),
            concurrency=1,
            max_retries=0,
            mode=Mode.CRITERION,
        )
    ).calls == 89


async def test_a_rubric_reply_of_which_a_part_is_read_stops_nothing(
    run_dir: Path,
) -> None:
    await answered(run_dir, n=20)

    def half(request: Request) -> str:
        return json.dumps({"grades": json.loads(rubric_reply(request))["grades"][:1]})

    done = await grade_run(
        run_dir, Judge(half), mode=Mode.RUBRIC, concurrency=1, max_retries=0
    )
    assert (done.calls, done.ungraded) == (20, 40)


async def test_a_repair_names_the_criterion_and_the_piece_that_is_not_in_the_answer(
    run_dir: Path,
) -> None:
    await answered(run_dir, n=1, criteria=2)

    def answer(request: Request) -> str:
        return rubric_reply(request).replace("Drink water", "Drink water … eat stones")

    judge = Judge(answer)
    done = await grade_run(run_dir, judge, mode=Mode.RUBRIC)
    assert (
        judge.requests[1].repair[1]
        == "k0: the quote is not in the answer letter for letter: 'eat stones'"
    )
    assert done.reasons == {"the quote is not in the answer letter for letter": 1}


async def test_reasons_are_counted_whole(run_dir: Path) -> None:
    await answered(run_dir, n=1, criteria=1)
    done = await grade_run(
        run_dir,
        Judge(lambda _: '{"met": "perhaps", "quote": "", "reasoning": ""}'),
        mode=Mode.CRITERION,
    )
    assert list(done.reasons) == ["met: Input should be a valid boolean"]


async def test_a_verdict_on_the_whole_answer_needs_no_quote(run_dir: Path) -> None:
    await answered(run_dir, n=3, criteria=4)
    other = Judge(lambda _: verdict(True, quote="", whole=True), model="judge-2")
    whole = await grade_run(run_dir, other, mode=Mode.CRITERION)
    assert (whole.met, whole.ungraded) == (12, 0)
    assert all(
        g.whole
        for g in list(grades_of(run_dir / "grades.jsonl", []))
        if g.model == "judge-2"
    )
    few = Judge(
        lambda r: verdict(r.inputs["criterion"].endswith((".0", ".1"))), model="judge-3"
    )
    assert not [
        note
        for note in (await grade_run(run_dir, few, mode=Mode.CRITERION)).notes
        if "quote" in note
    ]


async def test_an_unreadable_reply_is_repaired_once_and_then_ungraded(
    run_dir: Path,
) -> None:
    await answered(run_dir, n=1)

    def answer(request: Request) -> str:
        place = request.inputs["criterion"][-1]
        if place == "0":
            return (
                verdict(True, "words that are nowhere")
                if request.repair is None
                else verdict(True)
            )
        return "The criterion is not satisfied." if place == "1" else verdict(False)

    judge = Judge(answer)
    result = await grade_run(run_dir, judge, mode=Mode.CRITERION)
    assert (result.met, result.not_met, result.ungraded) == (1, 1, 1)
    assert result.calls == 5
    grades = {g.criterion_id: g for g in list(grades_of(run_dir / "grades.jsonl", []))}
    assert grades["k1"].met is None
    assert grades["k1"].raw == "The criterion is not satisfied."
    assert "no JSON" in grades["k1"].reason
    retried = await grade_run(run_dir, judge, mode=Mode.CRITERION)
    assert retried.calls == 2
    assert judge.requests[-1].round == judge.requests[-2].round == 1


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (reply(verdict(True), Finish.LENGTH), "token limit"),
        (reply("I cannot judge this.", Finish.REFUSAL), "refused"),
        (reply(verdict(True), model="judge-2"), "another model"),
        (reply(""), "empty"),
        (down(), "endpoint"),
    ],
)
async def test_what_is_no_verdict_is_ungraded_with_its_reason(
    run_dir: Path, said: object, reason: str
) -> None:
    await answered(run_dir, n=1)
    good = verdict(False)
    judge = Judge(lambda r: said if r.inputs["criterion"].endswith(".1") else good)  # type: ignore[arg-type,return-value]
    result = await grade_run(run_dir, judge, mode=Mode.CRITERION)
    assert (result.not_met, result.ungraded) == (2, 1)
    (left,) = [
        g for g in list(grades_of(run_dir / "grades.jsonl", [])) if g.met is None
    ]
    assert reason in left.reason


async def test_a_wrong_pinned_model_stops_and_unpinned_may_be_allowed(
    run_dir: Path,
) -> None:
    await answered(run_dir, n=20)
    judge = Judge(lambda r: reply(verdict(False), model="judge-2"))
    with pytest.raises(UsageError):
        await grade_run(run_dir, judge, mode=Mode.CRITERION)
    judge.pinned = False
    result = await grade_run(run_dir, judge, mode=Mode.CRITERION)
    assert result.not_met == 60
    table = score_runs([load_graded(run_dir)], draws=10)
    assert any("instead of the pinned model" in w for w in table.warnings)


async def test_a_reply_that_names_no_model_is_by_nobody_known(run_dir: Path) -> None:
    await answered(run_dir, n=3, criteria=4)
    case = make_cases(1, 1).cases[0]
    answer = Answer(case.case_id, AnswerState.OK, "Drink water", "stop", "m")
    body = completion(verdict(False))
    del body["model"]
    async with bad_endpoint(choose=lambda _: sends(body)) as endpoint:
        engine = engine_at("judge-1", endpoint.url, "key")
        try:
            (grade,) = await grade_answer(case, answer, engine, mode=Mode.CRITERION)
            assert (grade.met, grade.reason) == (
                None,
                "another model answered: the reply names none",
            )
            engine.identity = replace(engine.identity, pinned=False)
            (grade,) = await grade_answer(case, answer, engine, mode=Mode.CRITERION)
            assert grade.met is False
            engine.identity = replace(engine.identity, pinned=True)
            with pytest.raises(UsageError):
                await grade_run(run_dir, engine, mode=Mode.CRITERION)
        finally:
            await engine.aclose()


async def test_a_dead_grader_stops_the_grading_and_what_was_graded_stays(
    run_dir: Path,
) -> None:
    await answered(run_dir, n=40)
    left = iter(range(10**6))
    judge = Judge(lambda r: verdict(False) if next(left) < 10 else down())
    with pytest.raises(EndpointUnavailable):
        await grade_run(run_dir, judge, concurrency=2, mode=Mode.CRITERION)
    assert (
        sum(1 for g in list(grades_of(run_dir / "grades.jsonl", [])) if g.met is False)
        == 10
    )
    done = await grade_run(
        run_dir, Judge(lambda r: verdict(False)), mode=Mode.CRITERION
    )
    assert (done.calls, done.not_met) == (110, 120)


async def test_requests_that_are_refused_one_by_one_do_not_stop_the_others(
    run_dir: Path,
) -> None:
    await answered(run_dir, n=40)
    refused = RequestRefused("the endpoint refuses requests: status 400: too long")
    judge = Judge(
        lambda r: (
            refused
            if r.inputs["criterion"][10:12].strip(".") not in "09"
            else verdict(False)
        )
    )
    result = await grade_run(run_dir, judge, concurrency=2, mode=Mode.CRITERION)
    assert (result.not_met, result.ungraded, result.reasons) == (
        6,
        114,
        {f"endpoint: {refused.message}": 114},
    )
    # One that refuses everything, as for a parameter it does not know, is not asked for ever.
    other = Judge(lambda r: refused, engine="other")
    with pytest.raises(EndpointUnavailable):
        await grade_run(run_dir, other, concurrency=2, mode=Mode.CRITERION)
    assert len(other.requests) < 30


async def test_a_parameter_that_the_grader_does_not_take_is_named_and_ends_the_grading(
    run_dir: Path,
) -> None:
    await answered(run_dir)
    error = {
        "message": "Unsupported value: 'temperature' does not support 0",
        "param": "temperature",
    }
    async with bad_endpoint([sends({"error": error}, 400)]) as endpoint:
        engine = engine_at("judge-1", endpoint.url, parameters={"temperature": 0})
        with pytest.raises(ConfigError, match="temperature"):
            await grade_run(run_dir, engine, concurrency=1, mode=Mode.CRITERION)
        await engine.aclose()
        assert endpoint.asked == 1


async def test_an_unanswered_case_is_never_graded(run_dir: Path) -> None:
    said: dict[str, Reply | Exception] = {
        "Narrative 0": reply(""),
        "病史 1": down(),
        "Narrative 2": reply("Drink water"),
    }
    await answered(
        run_dir, 3, model=Model(lambda p: next(v for k, v in said.items() if k in p))
    )
    judge = Judge(lambda r: verdict(True))
    result = await grade_run(run_dir, judge, mode=Mode.CRITERION)
    assert result.unanswered == ("c000", "c001")
    assert result.criteria == result.calls == 3
    said["病史 1"] = reply("Drink water")
    await answered(
        run_dir, 3, model=Model(lambda p: next(v for k, v in said.items() if k in p))
    )
    assert (await grade_run(run_dir, judge, mode=Mode.CRITERION)).calls == 3


async def test_two_graders_keep_their_verdicts_apart(run_dir: Path) -> None:
    await answered(run_dir, n=2)
    await grade_run(run_dir, Judge(lambda r: verdict(True)), mode=Mode.CRITERION)
    await grade_run(run_dir, Judge(rubric_reply), mode=Mode.RUBRIC)
    assert load_graded(run_dir).grader is not None
    last = load_graded(run_dir)
    assert last.grader.mode == "rubric"
    judges = list(
        dict.fromkeys(g.judge for g in list(grades_of(run_dir / "grades.jsonl", [])))
    )
    first = load_graded(run_dir, judge=judges[0])
    assert all(g.met for grades in first.grades.values() for g in grades.values())


async def test_an_edited_criterion_is_graded_again_alone(tmp_path: Path) -> None:
    cases = make_cases(3)
    store = tmp_path / "store"
    for number, edited in enumerate((False, True)):
        if edited:
            changed = replace(cases.cases[0].criteria[1], criterion="another wording")
            first = replace(
                cases.cases[0], criteria=(cases.cases[0].criteria[0], changed)
            )
            cases = replace(cases, cases=(first, *cases.cases[1:]))
        judge = Judge(lambda r: verdict(False))
        run_dir = tmp_path / f"run{number}"
        await run_model(cases, Model(), run_dir, use=USE, created_at=AT)
        await grade_run(
            run_dir, ReplayEngine(judge, store_of(store)), mode=Mode.CRITERION
        )
        assert len(judge.requests) == (1 if edited else 9)


async def test_an_unusable_reply_in_the_store_is_asked_past_by_the_next_run(
    tmp_path: Path, run_dir: Path
) -> None:
    await answered(run_dir, n=1)
    kept = store_of(tmp_path)
    bad = Judge(lambda r: "rubbish")
    assert (
        await grade_run(run_dir, ReplayEngine(bad, kept), mode=Mode.CRITERION)
    ).ungraded == 3
    good = Judge(lambda r: verdict(False))
    assert (
        await grade_run(run_dir, ReplayEngine(good, kept), mode=Mode.CRITERION)
    ).ungraded == 0
    assert len(good.requests) == 3


@pytest.mark.parametrize("mode", list(Mode))
async def test_with_a_third_of_the_replies_bad_the_true_score_lies_within_the_bounds(
    run_dir: Path, mode: Mode
) -> None:
    await answered(run_dir, n=16, criteria=5)
    truth = random.Random(5)
    met = {
        (c.case_id, k.id): truth.random() < 0.5
        for c in make_cases(16, 5).cases
        for k in c.criteria
    }
    by_text = {
        k.criterion: (c.case_id, k.id)
        for c in make_cases(16, 5).cases
        for k in c.criteria
    }
    chance = random.Random(7)
    whole = {"quote": "Drink water", "reasoning": "y"}

    def answer(request: Request) -> object:
        def entry(criterion: str) -> dict[str, object]:
            return whole | {"met": met[by_text[criterion]]}

        if mode is Mode.CRITERION:
            said = json.dumps(entry(request.inputs["criterion"]))
        else:
            given = request.inputs["criteria"]
            said = json.dumps(
                {"grades": [entry(c["criterion"]) | {"id": c["id"]} for c in given]}
            )
        if chance.random() > 0.4:
            return said
        return chance.choice(
            [
                down(),
                reply(said[:-9]),
                reply(said, model="other"),
                reply(""),
                reply(said, Finish.LENGTH),
                reply("x" * 1_000_000),
                reply("Sorry.", Finish.REFUSAL),
            ]
        )

    result = await grade_run(run_dir, Judge(answer), mode=mode, concurrency=3)  # type: ignore[arg-type]
    assert result.ungraded > 0
    assert result.met + result.not_met + result.ungraded == 80
    graded = load_graded(run_dir)
    for case_id, grades in graded.grades.items():
        for cid, grade in grades.items():
            assert grade.met in (None, met[case_id, cid])
    overall = score_runs([graded], draws=20).models[0].overall
    true = []
    for case in graded.run.cases:
        total = sum(k.points for k in case.criteria if met[case.case_id, k.id])
        true.append(min(1.0, max(0.0, total / case.positive_points)))
    assert overall.least <= sum(true) / 16 <= overall.most
    assert overall.n < 16
