"""`eval grade`, `judge-direct` and `audit` as a user calls them: who grades, what a plan says, which status."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from medlive.cli.evaluation import options
from medlive.cli.main import build
from medlive.config import Settings
from medlive.errors import CheckFailed, EndpointUnavailable, UsageError
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.grading.grade import grade_run
from medlive.grader.judge import Mode
from medlive.llm.openai import OpenAIEngine
from medlive.llm.rules.engine import RulesEngine
from tests.support.bad_endpoint import bad_endpoint, completion, fails, sends
from tests.support.engines import serve
from tests.unit.evaluation.conftest import AT, USE, Judge, Model, make_cases, verdict

pytestmark = pytest.mark.whole

Command = Callable[..., Awaitable[Any]]


@pytest.fixture
async def run(tmp_path: Path) -> Path:
    await run_model(make_cases(2), Model(), tmp_path / "run", use=USE, created_at=AT)
    return tmp_path / "run"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    async def call(*words: str | Path) -> Any:
        line = ["eval", *map(str, words)]
        home = {"MEDLIVE_HOME": str(tmp_path / "home")}
        return await asyncio.to_thread(CliRunner().invoke, build(line), line, env=home)

    return call


async def test_who_grades_is_named_and_what_the_rules_are(
    run: Path, command: Command
) -> None:
    async with serve(RulesEngine) as url:
        asked = ("grade", run, "--grader", "rules", "--base-url", url)
        planned = await command(*asked, "--dry-run", "--json")
        done = await command(*asked, "--json")
        table = await command(*asked)
    who = json.loads(done.stdout)["grader"]
    assert (who["engine"], who["mode"]) == ("rules", "rubric")
    short = f"the grader is {who['model']} in rubric mode ({who['judge'][:19]})"
    assert short in done.stderr
    assert short in planned.stderr
    assert "no clinical judgement was made" in done.stderr
    assert short in table.stdout


async def test_without_a_grader_the_rules_engine_does_not_take_over(
    run: Path, command: Command
) -> None:
    for more in ((), ("--dry-run",), ("--mode", "criterion")):
        done = await command("grade", run, *more)
        assert isinstance(done.exception, UsageError)
        assert "no grader is configured" in str(done.exception)
    assert not (run / "grades.jsonl").exists() or not (run / "grades.jsonl").read_text()


async def test_several_runs_are_graded_by_one_command(
    run: Path, tmp_path: Path, command: Command
) -> None:
    other = tmp_path / "other"
    await run_model(make_cases(3), Model(), other, use=USE, created_at=AT)
    async with serve(RulesEngine) as url:
        asked = ("grade", run, other, "--grader", "rules", "--base-url", url)
        first, second = json.loads((await command(*asked, "--json")).stdout)
        table = await command(*asked)
    assert (first["path"], second["path"]) == (str(run), str(other))
    assert first["criteria"] < second["criteria"]
    assert first["ungraded"] == second["ungraded"] == 0
    assert table.stdout.index(run.name) < table.stdout.index(other.name)


async def test_a_limit_in_dollars_without_a_price_says_where_to_set_one(
    run: Path, command: Command
) -> None:
    asked = ("grade", run, "--grader", "m-1", "--base-url", "http://127.0.0.1:9/v1")
    done = await command(*asked, "--max-usd", "2")
    assert "--max-usd" in str(done.exception)
    assert "the price of m-1 is unknown" in str(done.exception)
    assert "--price IN,OUT" in done.exception.hint


async def test_a_table_names_its_graders_engine_and_refuses_to_mix_engines(
    tmp_path: Path, command: Command
) -> None:
    for name, engine in (("a", "openai"), ("b", "openai"), ("c", "rules")):
        await run_model(make_cases(2), Model(), tmp_path / name, use=USE, created_at=AT)
        await grade_run(
            tmp_path / name,
            Judge(lambda _: verdict(False), engine=engine),
            mode=Mode.CRITERION,
        )
    alike = await command("score", tmp_path / "a", tmp_path / "b", "--draws", "10")
    assert alike.exit_code == 0
    assert "openai engine" in " ".join(alike.stdout.split())
    mixed = await command("score", tmp_path / "a", tmp_path / "c", "--draws", "10")
    assert isinstance(mixed.exception, CheckFailed)
    assert "graded by 2 graders" in str(mixed.exception)


async def test_a_score_says_why_criteria_are_ungraded(
    run: Path, command: Command
) -> None:
    reply = '{"met": true, "quote": "", "reasoning": "x"}'
    mixed = Judge(
        lambda r: verdict(True) if r.inputs["criterion"].endswith(".0") else reply,
        model="judge-2",
    )
    left = (await grade_run(run, mixed, mode=Mode.CRITERION)).ungraded
    said = await command("score", run)
    assert (
        f"run: {left} criteria are ungraded: met without words of the answer"
        in said.stderr
    )
    assert str(said.exception) == "no case has a score"


async def test_what_has_no_score_has_no_bounds(
    tmp_path: Path, command: Command
) -> None:
    answer = [{"case_id": "a", "response": "Rest."}]
    grade = [{"case_id": "a", "criterion_id": "k", "rater": "p", "met": True}]
    for points, more in ((-5, ()), (5, ("--metric", "safe"))):
        rubric = [{"id": "k", "criterion": "Says rest.", "points": points}]
        files: dict[str, Path] = {}
        for name, rows in (
            ("cases", [{"case_id": "a", "query": "What now?", "rubric": rubric}]),
            ("responses", answer),
            ("grades", grade),
        ):
            files[name] = tmp_path / f"{name}{points}.jsonl"
            files[name].write_text(json.dumps(rows[0]) + "\n", "utf-8")
        given = [part for name, at in files.items() for part in (f"--{name}", at)]
        out = tmp_path / f"run{points}"
        await command("import", *given, "--model", "m", "--out", out)
        said = await command("score", out, *more, "--format", "json")
        assert str(said.exception) == "no case has a score"
        overall = json.loads(said.stdout)["models"][0]["overall"]
        bounds = (None, None) if points < 0 else (0.0, 1.0)
        assert (overall["least"], overall["most"]) == bounds


async def test_an_option_that_is_empty_is_refused_and_not_passed_over(
    run: Path, tmp_path: Path, command: Command
) -> None:
    at = ("--base-url", "http://127.0.0.1:9/v1")
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"case_id": "a", "query": "What now?"}\n', "utf-8")
    asked = ("run", "--cases", cases, "--model", "m", *at, "--out", tmp_path / "new")
    for words in (
        ("grade", run, "--grader", "", *at),
        (*asked, "--posted-from", ""),
        (*asked, "--first-release-after", ""),
    ):
        done = await command(*words, "--dry-run")
        assert isinstance(done.exception, UsageError), done.stderr


@pytest.mark.thorough
async def test_the_rules_at_an_address_cost_what_is_unknown(
    run: Path, command: Command
) -> None:
    await grade_run(run, Judge(lambda _: verdict(False)), mode=Mode.CRITERION)
    rules = RulesEngine().identity.model
    for words in (
        ("grade", "--grader", rules),
        ("judge-direct", "--grader", "m"),
        ("audit", "--grader", rules),
    ):
        name, *who = words
        asked = (name, run, *who, "--base-url", "http://127.0.0.1:9/v1", "--dry-run")
        plan = json.loads((await command(*asked, "--json")).stdout)
        assert next(iter(plan.values()))["usd"] is None


async def test_where_no_call_was_answered_the_endpoint_is_what_is_missing(
    run: Path, command: Command
) -> None:
    await grade_run(run, Judge(lambda _: verdict(False)), mode=Mode.CRITERION)
    sound = sends(completion("No idea.") | {"model": "m"})
    for name, steps, kind in (
        ("grade", [fails(405)], EndpointUnavailable),
        ("judge-direct", [fails(405)], EndpointUnavailable),
        ("audit", [fails(405)], EndpointUnavailable),
        (
            "grade",
            [fails(400, "too long", "context_length_exceeded")],
            CheckFailed,
        ),
        ("audit", [fails(405), sound], CheckFailed),
    ):
        async with bad_endpoint(steps) as endpoint:
            done = await command(
                name,
                run,
                "--grader",
                "m",
                "--base-url",
                endpoint.url,
                "--concurrency",
                "1",
            )
        assert type(done.exception) is kind
        assert ("calls was answered, the last: " in str(done.exception)) is (
            kind is EndpointUnavailable
        )


@pytest.mark.thorough
async def test_repeats_that_are_not_answered_end_as_grading_does(
    run: Path, command: Command
) -> None:
    sound = sends(completion(verdict(False)) | {"model": "m"})
    async with bad_endpoint([sound] * 6 + [fails(405)]) as endpoint:
        asked = (
            "--grader",
            "m",
            "--base-url",
            endpoint.url,
            "--concurrency",
            "1",
            "--repeats",
            "2",
            "--mode",
            "criterion",
        )
        done = await command("grade", run, *asked)
    assert "none of 6 calls was answered" in str(done.exception)


async def test_a_price_is_the_graders_and_the_second_judge_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = {
        "engine": "openai",
        "base_url": "http://127.0.0.1:9/v1",
        "model": "second",
        "price": {"input": 1.0, "output": 2.0},
    }
    settings = Settings.model_validate({"home": tmp_path, "roles": {"checker": role}})
    monkeypatch.setattr(options, "read_settings", lambda: settings)
    calls = options.Calls(price=options.read_price("30,60"))
    address = "http://127.0.0.1:9/v1"
    by = options.Grading(grader="m-1", base_url=address, calls=calls)
    async with aclosing(by.open()) as grader, by.checker(grader) as checker:
        prices = []
        for engine in (grader, checker):
            assert isinstance(engine, OpenAIEngine)
            assert engine.price is not None
            prices.append(engine.price.input)
    assert prices == [30.0, 1.0]
