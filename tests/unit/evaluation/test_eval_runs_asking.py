"""How candidates are asked: their parameters as they go over the wire, budgets, plans that send nothing."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medlive.config import RoleSettings
from medlive.errors import ConfigError, EndpointUnavailable, UsageError
from medlive.evaluation.asking.plan import estimate_tokens
from medlive.evaluation.asking.run import plan_run, run_model
from medlive.evaluation.model import AnswerState
from medlive.evaluation.runs.folder import ModelUse, open_run
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.refusals import run_warnings
from medlive.instance.loading import read_settings
from medlive.instance.opening import (
    choose_candidate,
    grader_engine,
    grader_identity,
    open_endpoint,
)
from medlive.llm.budget import Budget
from medlive.llm.engine import Finish, Usage
from medlive.llm.registry import Price
from tests.support.bad_endpoint import (
    BadEndpoint,
    bad_endpoint,
    completion,
    fails,
    ok,
    sends,
)
from tests.unit.evaluation.conftest import AT, USE, Model, down, make_cases, reply

MODELS = """
[candidates."thinks-1"]
model = "vendor/thinks-1"
base_url = "URL"
api_key_env = "THINKS_KEY"
[candidates."thinks-1".parameters]
max_completion_tokens = 16000
reasoning_effort = "high"
chat_template_kwargs = { enable_thinking = false }
top_p = 0.95
[prices."vendor/thinks-1"]
input = 1.0
output = 2.0
"""


def configured(folder: Path, url: str) -> Any:
    (folder / "models.toml").write_text(MODELS.replace("URL", url), "utf-8")
    return read_settings({"MEDLIVE_CONFIG": str(folder), "MEDLIVE_HOME": str(folder)})


def endpoint_of(url: str, parameters: dict[str, Any], concurrency: int) -> RoleSettings:
    return RoleSettings(
        engine="openai",
        model="m",
        base_url=url,
        parameters=parameters,
        concurrency=concurrency,
    )


async def sent(choice: Any, out: Path, endpoint: BadEndpoint) -> list[dict[str, Any]]:
    engine = open_endpoint(choice)
    try:
        use = ModelUse(
            "thinks-1", "openai", choice.base_url, choice.parameters, choice.model
        )
        await run_model(make_cases(2), engine.complete, out, use=use, created_at=AT)
    finally:
        await engine.aclose()
    return endpoint.bodies


async def test_what_the_registry_says_is_what_the_endpoint_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THINKS_KEY", "sk-secret")
    async with bad_endpoint([ok("Rest.")]) as endpoint:
        choice = choose_candidate(configured(tmp_path, endpoint.url), "thinks-1")
        bodies = await sent(choice, tmp_path / "a", endpoint)
        assert {
            k: v
            for k, v in bodies[0].items()
            if k not in ("messages", "response_format")
        } == {
            "model": "vendor/thinks-1",
            "max_completion_tokens": 16000,
            "reasoning_effort": "high",
            "chat_template_kwargs": {"enable_thinking": False},
            "top_p": 0.95,
        }
        assert endpoint.headers[0]["Authorization"] == "Bearer sk-secret"
        info = json.loads((tmp_path / "a" / "run.json").read_text("utf-8"))
        assert (info["model"], info["asked_as"]) == ("thinks-1", "vendor/thinks-1")
        assert info["parameters"] == choice.parameters
        assert "sk-secret" not in (tmp_path / "a" / "run.json").read_text("utf-8")


def test_the_command_line_overrides_and_null_takes_away(tmp_path: Path) -> None:
    settings = configured(tmp_path, "http://127.0.0.1:9/v1")
    choice = choose_candidate(
        settings, "thinks-1", parameters={"top_p": None, "temperature": 0.3}
    )
    assert "top_p" not in choice.parameters
    assert choice.parameters["temperature"] == 0.3
    assert choice.price is not None
    # The registry's key is for the registry's endpoint.
    assert (
        choose_candidate(settings, "thinks-1", base_url="http://other/v1").api_key_env
        is None
    )
    with pytest.raises(UsageError):
        choose_candidate(settings, "unheard-of")


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (
            {
                "message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
                "param": "max_tokens",
                "code": "unsupported_parameter",
            },
            "max_tokens = 64",
        ),
        (
            {
                "message": "Unsupported value: 'temperature' does not support 0.5",
                "param": "temperature",
                "code": "unsupported_value",
            },
            "temperature = 0.5",
        ),
        (
            {"message": "Unrecognized request argument supplied: reasoning_effort"},
            'reasoning_effort = "high"',
        ),
        (
            {"message": "Extra inputs are not permitted: top_k", "param": 7, "code": 3},
            "top_k = 9",
        ),
    ],
)
async def test_a_parameter_that_the_model_does_not_take_is_named_and_ends_the_run(
    error: dict[str, Any], named: str, run_dir: Path
) -> None:
    parameters = {
        "max_tokens": 64,
        "temperature": 0.5,
        "reasoning_effort": "high",
        "top_k": 9,
    }
    async with bad_endpoint(
        [sends({"error": {"type": "invalid_request_error", **error}}, 400)]
    ) as endpoint:
        engine = open_endpoint(endpoint_of(endpoint.url, parameters, 1))
        use = ModelUse("m", parameters=parameters)
        with pytest.raises(ConfigError, match=named):
            await run_model(
                make_cases(9),
                engine.complete,
                run_dir,
                use=use,
                created_at=AT,
                concurrency=1,
            )
        await engine.aclose()
        assert endpoint.asked == 1
    assert (run_dir / "responses.jsonl").read_bytes() == b""


async def test_a_prompt_that_is_too_long_is_no_parameter_s_fault(run_dir: Path) -> None:
    told = "This model's maximum context is 10 tokens; your max_tokens is not supported"
    async with bad_endpoint(
        [fails(400, told, "context_length_exceeded"), ok("Rest.")]
    ) as endpoint:
        engine = open_endpoint(endpoint_of(endpoint.url, {"max_tokens": 64}, 1))
        use = ModelUse("m", parameters={"max_tokens": 64})
        done = await run_model(
            make_cases(2),
            engine.complete,
            run_dir,
            use=use,
            created_at=AT,
            concurrency=1,
        )
        await engine.aclose()
    assert (done.states[AnswerState.FAILED], done.states[AnswerState.OK]) == (1, 1)


async def test_truncation_and_refusal_are_states_of_an_answer(run_dir: Path) -> None:
    script = [
        sends(completion("half an ans", finish="length")),
        sends(completion(None, refusal="I will not.")),
        sends(completion("", finish="content_filter")),
        sends(completion("  ")),
        ok("Rest."),
    ]
    async with bad_endpoint(script) as endpoint:
        engine = open_endpoint(endpoint_of(endpoint.url, {}, 1))
        done = await run_model(
            make_cases(5),
            engine.complete,
            run_dir,
            use=ModelUse("m"),
            created_at=AT,
            concurrency=1,
        )
        await engine.aclose()
    assert {s.value: n for s, n in done.states.items()} == {
        "ok": 1,
        "truncated": 1,
        "refused": 2,
        "empty": 1,
        "failed": 0,
    }


@pytest.mark.parametrize("concurrency", [1, 7])
async def test_a_budget_ends_a_run_that_the_next_one_goes_on_with(
    concurrency: int, run_dir: Path
) -> None:
    model, budget = Model(), Budget(max_calls=5)
    spending: Any = {"budget": budget, "estimate": lambda messages: Usage(10, 0, 2)}
    first = await run_model(
        make_cases(12),
        model,
        run_dir,
        use=USE,
        created_at=AT,
        **spending,
        concurrency=concurrency,
    )
    assert (first.calls, len(model.prompts), first.missing) == (5, 5, 7)
    assert "5 calls" in (first.stopped or "")
    # 12 tokens a call: the budget allows two, and the one that goes past it.
    tokens = {**spending, "budget": Budget(max_tokens=30)}
    second = await run_model(
        make_cases(12),
        model,
        run_dir,
        use=USE,
        created_at=AT,
        **tokens,
        concurrency=concurrency,
    )
    assert (second.calls, second.missing) == (3, 4)
    last = await run_model(make_cases(12), model, run_dir, use=USE, created_at=AT)
    assert (last.calls, last.stopped, last.missing) == (4, None, 0)
    assert len(set(model.prompts)) == len(model.prompts) == 12


async def test_a_plan_makes_nothing_and_counts_what_is_left(run_dir: Path) -> None:
    price = Price(input=1.0, output=10.0)
    plan = await plan_run(make_cases(30), run_dir, use=USE, created_at=AT, price=price)
    assert run_dir.name not in os.listdir(run_dir.parent)
    assert plan.calls == 30
    model = Model(lambda prompt: reply("Fine."))
    await run_model(make_cases(30), model, run_dir, use=USE, created_at=AT)
    assert plan.input_tokens == sum(map(estimate_tokens, model.prompts))
    assert plan.usd == pytest.approx(
        (plan.input_tokens + 10 * plan.output_tokens) / 1e6
    )
    rows = (run_dir / "responses.jsonl").read_bytes().splitlines(keepends=True)
    (run_dir / "responses.jsonl").write_bytes(b"".join(rows[:20]))
    rest = await plan_run(make_cases(30), run_dir, use=USE, created_at=AT, price=price)
    assert rest.calls == 10
    assert (run_dir / "responses.jsonl").read_bytes() == b"".join(rows[:20])
    other = ModelUse("x")
    plan = await plan_run(make_cases(30), run_dir / "other", use=other, created_at=AT)
    assert plan.usd is None


async def test_a_dead_endpoint_costs_no_more_than_its_patience(run_dir: Path) -> None:
    steps = {
        "in a row": (fails(413, "too long"), 22),
        "no such key": (fails(401, "no such key"), 2),
    }
    for said, (step, most) in steps.items():
        async with bad_endpoint([step]) as endpoint:
            engine = open_endpoint(endpoint_of(endpoint.url, {}, 2))
            with pytest.raises(EndpointUnavailable, match=said) as caught:
                await run_model(
                    make_cases(100),
                    engine.complete,
                    run_dir,
                    use=ModelUse("m"),
                    created_at=AT,
                    concurrency=2,
                )
            await engine.aclose()
            assert endpoint.asked <= most
    assert "key" in (caught.value.hint or "")


async def test_the_identity_of_a_grader_is_the_one_it_asks_with(tmp_path: Path) -> None:
    settings = configured(tmp_path, "http://127.0.0.1:9/v1")
    for model in ("judge-1", "rules"):
        engine = grader_engine(
            settings.roles.grader,
            model=model,
            base_url="http://127.0.0.1:9/v1",
            api_key_env=None,
            concurrency=1,
        )
        assert grader_identity(settings.roles.grader, model) == engine.identity
        await engine.aclose()


async def test_a_grader_is_sent_the_parameters_that_are_configured_and_no_others(
    tmp_path: Path,
) -> None:
    role = configured(tmp_path, "http://127.0.0.1:9/v1").roles.grader
    role = role.model_copy(
        update={
            "engine": "openai",
            "model": "m",
            "base_url": "http://127.0.0.1:9/v1",
            "parameters": {"temperature": 0, "seed": 1},
        }
    )
    for named, parameters, sent in (
        (None, None, {"temperature": 0, "seed": 1}),
        (None, {"temperature": None, "top_p": 1}, {"seed": 1, "top_p": 1}),
        ("judge-1", None, {}),
        ("judge-1", {"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
    ):
        engine = grader_engine(
            role,
            model=named,
            base_url="http://127.0.0.1:9/v1" if named else None,
            api_key_env=None,
            concurrency=1,
            parameters=parameters,
        )
        assert engine.identity.parameters == sent
        await engine.aclose()


@pytest.mark.parametrize(
    ("asked", "named", "said"),
    [
        (None, ["cand-1"], None),
        (
            None,
            ["cand-1-2026-01-01"],
            "cand-1 was asked; the endpoint names cand-1-2026-01-01",
        ),
        ("vendor/Cand-1", ["cand-1"], None),
        (None, ["cand-1-mini"], "cand-1 was asked; the endpoint names cand-1-mini"),
        (None, ["cand-0"], "cand-1 was asked; the endpoint names cand-0"),
        (
            None,
            ["cand-1-a", "cand-1-b"],
            "cand-1 was asked; the endpoint names cand-1-a, cand-1-b",
        ),
        (
            None,
            ["(unnamed)"],
            "cand-1 was asked; the endpoint names (unnamed)",
        ),
    ],
)
async def test_another_model_than_the_one_asked_is_told(
    run_dir: Path, asked: str | None, named: list[str], said: str | None
) -> None:
    model = Model(
        lambda prompt: reply("Rest.", model=named[len(model.prompts) % len(named)])
    )
    use = replace(USE, asked_as=asked)
    result = await run_model(make_cases(4), model, run_dir, use=use, created_at=AT)
    assert result.notes == (() if said is None else (said,))


async def test_an_endpoint_that_never_answered_is_not_the_run_s(run_dir: Path) -> None:
    async def at(endpoint: str, model: Model) -> Any:
        use = replace(USE, endpoint=endpoint)
        return await run_model(make_cases(3), model, run_dir, use=use, created_at=AT)

    def some_down(prompt: str) -> Any:
        return down() if "病史" in prompt else reply("Rest.", model="cand-1")

    await at("http://wrong/v1", Model(lambda _: down()))
    before = json.loads((run_dir / "run.json").read_text("utf-8"))
    assert before["endpoint"] == "http://wrong/v1"
    done = await at("http://right/v1", Model(some_down))
    assert json.loads((run_dir / "run.json").read_text("utf-8")) == before | {
        "endpoint": "http://right/v1"
    }
    assert done.notes == ("1 failed: the endpoint gave status 500",)
    last = await at("http://other/v1", Model(lambda _: reply("Rest.", model="cand-1")))
    assert last.states[AnswerState.OK] == 3
    (told,) = last.notes
    assert (
        told
        == "http://other/v1 is asked now; run.json names http://right/v1, where earlier answers are from"
    )
    assert open_run(run_dir).info.endpoint == "http://right/v1"


@pytest.mark.parametrize(
    ("text", "thinks"),
    [
        ("<think>rest?</think>Rest.", True),
        ("\n <THINKING>\nit does not end", True),
        ("rest, I suppose</think>Rest.", True),
        ("I think <b>rest</b>.", False),
        ("Write <think>or else</think> in your notes.", False),
    ],
)
async def test_answers_that_are_graded_with_their_thinking_are_counted(
    run_dir: Path, text: str, thinks: bool
) -> None:
    model = Model(
        lambda prompt: reply("Rest." if "Narrative" in prompt else text, model="cand-1")
    )
    done = await run_model(make_cases(4), model, run_dir, use=USE, created_at=AT)
    told = "2 answers begin with a thinking block, which is graded with them: let the endpoint separate it"
    assert done.notes == ((told,) if thinks else ())
    assert open_run(run_dir).answers()[0]["c001"].response == text
    warnings = list(run_warnings([load_graded(run_dir)], 4, 4))
    assert (f"cand-1: {told}" in warnings) is thinks


async def test_why_answers_failed_is_told_by_count(run_dir: Path) -> None:
    reasons = ["too\nlong", "busy", "busy", "busy", "gone", "dark"]
    model = Model(lambda _: EndpointUnavailable(reasons[len(model.prompts) - 1]))
    result = await run_model(make_cases(6), model, run_dir, use=USE, created_at=AT)
    assert result.notes == (
        "3 failed: busy",
        "1 failed: too long",
        "1 failed: gone",
        "and 1 other reasons (responses.jsonl has them all)",
    )


async def test_a_limit_spent_before_the_first_word_is_told(run_dir: Path) -> None:
    model = Model(lambda _: reply("", Finish.LENGTH, model="cand-1"))
    result = await run_model(make_cases(2), model, run_dir, use=USE, created_at=AT)
    assert result.states[AnswerState.EMPTY] == 2
    assert [
        note
        for note in result.notes
        if note.startswith("2 answers are empty because the token limit")
    ]
