"""Batches handed in to an endpoint's batch API, looked after, and read: by the commands, over HTTP."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from medlive.cli.main import build
from medlive.errors import CheckFailed, EndpointUnavailable, UsageError
from medlive.evaluation.asking.run import begin_run, run_model
from medlive.evaluation.runs.folder import ModelUse, open_run
from medlive.evaluation.runs.templates import load_template
from medlive.evaluation.scoring.graded import load_graded
from tests.support.bad_endpoint import completion
from tests.support.batch_endpoint import batch_endpoint
from tests.unit.evaluation.conftest import AT, USE, Model, make_cases, verdict

EXPIRED = {
    "code": "batch_expired",
    "message": "This request could not be executed before the window expired.",
}


async def batch(home: Path, *words: str | Path) -> tuple[BaseException | None, str]:
    line = ["eval", "batch", *map(str, words)]
    env = {"MEDLIVE_HOME": str(home), "BATCH_KEY": "secret-key"}
    done = await asyncio.to_thread(CliRunner().invoke, build(line), line, env=env)
    return done.exception, done.output


def result(call: dict[str, Any], text: str) -> dict[str, Any]:
    body = completion(text) | {"model": call["body"]["model"]}
    return {
        "custom_id": call["custom_id"],
        "response": {"status_code": 200, "body": body},
        "error": None,
    }


def expired(call: dict[str, Any]) -> dict[str, Any]:
    return {"custom_id": call["custom_id"], "response": None, "error": EXPIRED}


@pytest.fixture
async def run(run_dir: Path) -> Path:
    """Four cases of three criteria, answered."""
    await run_model(make_cases(4), Model(), run_dir, use=USE, created_at=AT)
    return run_dir


async def test_verdicts_come_through_the_batch_api_until_none_is_open(
    run: Path, tmp_path: Path
) -> None:
    home, calls = tmp_path / "home", tmp_path / "calls.jsonl"
    async with batch_endpoint() as endpoint:
        named = ["--base-url", endpoint.url]
        key = ["--api-key-env", "BATCH_KEY"]
        error, _ = await batch(home, "read", run)
        assert isinstance(error, UsageError)
        grader = ["--grader", "judge-1", "--mode", "criterion", *named]
        assert (await batch(home, "write", run, *grader, "--out", calls))[0] is None
        error, output = await batch(home, "submit", run, calls, *named, *key)
        assert error is None
        assert "validating" in output
        assert endpoint.keys == {"Bearer secret-key"}
        assert endpoint.calls("batch-0") == [
            json.loads(line) for line in calls.read_bytes().splitlines()
        ]
        assert "secret-key" not in (run / "batches.jsonl").read_text()

        error, output = await batch(home, "status", run, "--json")
        assert isinstance(error, CheckFailed)
        error, output = await batch(home, "read", run)
        assert isinstance(error, CheckFailed)
        assert "12 calls have no result" in error.message
        endpoint.turn("batch-0", "in_progress")
        assert "1 of 1 batches are under way" in str(
            (await batch(home, "status", run))[0]
        )

        # It expires with half of the results.
        first = endpoint.calls("batch-0")
        results = [result(call, verdict(False)) for call in first[:6]]
        endpoint.turn(
            "batch-0", "expired", results, [expired(call) for call in first[6:]]
        )
        assert (await batch(home, "status", run))[0] is None
        error, output = await batch(home, "read", run)
        assert isinstance(error, CheckFailed)
        assert "6 criteria that were asked for are ungraded" in error.message
        assert load_graded(run).grader is not None

        # The next is refused as a whole, and the one after it is completed.
        for number in (1, 2):
            rest = tmp_path / f"rest{number}.jsonl"
            assert (await batch(home, "write", run, *grader, "--out", rest))[0] is None
            assert (await batch(home, "submit", run, rest, *named, *key))[0] is None
            told = {
                "data": [{"code": "invalid", "message": "no such model", "line": 3}]
            }
            if number == 1:
                endpoint.turn("batch-1", "failed", errors=told)
                error, output = await batch(home, "status", run)
                assert error is None
                assert "line 3: no such model" in output
                error, output = await batch(home, "read", run)
                assert isinstance(error, CheckFailed)
                assert "failed; line 3: no such model" in output
        endpoint.turn(
            "batch-2",
            "completed",
            [result(c, verdict(False)) for c in endpoint.calls("batch-2")],
            [],
        )
        assert (await batch(home, "read", run))[0] is None
    # What was fetched is kept: reading again needs the endpoint for the states alone.
    assert len(list((run / "batch_results").iterdir())) == 4
    assert (
        sum(
            grade.met is False
            for grades in load_graded(run).grades.values()
            for grade in grades.values()
        )
        == 12
    )
    error, _ = await batch(home, "status", run)
    assert isinstance(error, EndpointUnavailable)


async def test_answers_are_handed_in_where_the_run_says(
    run_dir: Path, tmp_path: Path
) -> None:
    home, calls = tmp_path / "home", tmp_path / "calls.jsonl"
    async with batch_endpoint() as endpoint:
        use = ModelUse("cand-1", endpoint=endpoint.url)
        await begin_run(
            make_cases(3), run_dir, use=use, created_at=AT, prompt=load_template("open")
        )
        assert (await batch(home, "write", run_dir, "--answers", "--out", calls))[
            0
        ] is None
        assert (await batch(home, "submit", run_dir, calls))[0] is None
        endpoint.turn(
            "batch-0",
            "completed",
            [result(call, "Rest.") for call in endpoint.calls("batch-0")],
        )
        error, _ = await batch(home, "read", run_dir, "--answers")
        assert error is None
        assert {a.response for a in open_run(run_dir).answers()[0].values()} == {
            "Rest."
        }
        other = tmp_path / "other.jsonl"
        other.write_text('{"custom_id": "x"}\n')
        error, _ = await batch(
            home, "submit", run_dir, other, "--base-url", endpoint.url
        )
        assert isinstance(error, UsageError)
        error, _ = await batch(
            home, "submit", run_dir, calls, "--base-url", endpoint.url + "/nowhere"
        )
        assert isinstance(error, EndpointUnavailable)
