"""What a batch left open, as the next file or by live grading, which repairs replies."""

import asyncio
import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from medlive.cli.main import build
from medlive.errors import CheckFailed, DiskFull
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.grading import batch
from medlive.evaluation.grading.batch import BATCHES, BatchWritten, read_batch
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.runs.folder import grades_of
from medlive.grader.judge import Mode
from medlive.llm.engine import EngineIdentity
from medlive.llm.prompts import read_inputs
from tests.support.bad_endpoint import bad_endpoint, completion, sends
from tests.support.engines import engine_at
from tests.unit.evaluation.conftest import (
    AT,
    USE,
    Judge,
    Model,
    make_cases,
    verdict,
)

pytestmark = pytest.mark.whole

JUDGE = EngineIdentity("openai", "judge-1", {"temperature": 0})


def said(body: dict[str, Any], careful: bool = False) -> str:
    """A grader that is careless first, about every criterion that ends in 1, and reads what is wrong with that."""
    inputs, told = read_inputs(body["messages"]), careful or len(body["messages"]) > 2
    assert inputs is not None
    if "criterion" in inputs:
        return verdict(
            True,
            "Drink water"
            if told or not inputs["criterion"].endswith("1")
            else "Drink wine",
        )
    entries = [
        json.loads(
            verdict(
                True,
                "Drink water"
                if told or not c["criterion"].endswith("1")
                else "Drink wine",
            )
        )
        | {"id": c["id"]}
        for c in inputs["criteria"]
    ]
    return json.dumps({"grades": entries})


def write_batch(run: Path, out: Path, mode: Mode) -> BatchWritten:
    url = "http://127.0.0.1:9/v1"
    body_of = engine_at("judge-1", url, "k", {"temperature": 0}).body
    return batch.write_batch(run, JUDGE, body_of, out, mode=mode)


def written(*paths: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for path in paths for line in path.read_bytes().splitlines()
    ]


def result(
    row: dict[str, Any], text: str | None = None, status: int = 200
) -> dict[str, Any]:
    body = completion(said(row["body"]) if text is None else text) | {
        "model": "judge-1"
    }
    if status != 200:
        body = {"error": {"message": text}}
    return {
        "custom_id": row["custom_id"],
        "response": {"status_code": status, "body": body},
        "error": None,
    }


def save(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
async def run(run_dir: Path) -> Path:
    """Four cases of three criteria, answered."""
    await run_model(make_cases(4), Model(), run_dir, use=USE, created_at=AT)
    return run_dir


@pytest.mark.parametrize(
    "mode", [Mode.CRITERION, pytest.param(Mode.RUBRIC, marks=pytest.mark.thorough)]
)
async def test_what_a_batch_left_open_is_the_next_file_and_live_grading_repairs_it(
    run: Path, tmp_path: Path, mode: Mode
) -> None:
    write_batch(run, tmp_path / "b.jsonl", mode)
    lost, *others = written(tmp_path / "b.jsonl")
    told = read_batch(
        run, [save(tmp_path / "r.jsonl", [result(row) for row in others])]
    )
    unread = 3 if mode is Mode.RUBRIC else 4
    assert (told.counts["ungraded"], told.counts["missing"]) == (unread, 1)

    done = write_batch(run, tmp_path / "b2.jsonl", mode)
    again = written(tmp_path / "b2.jsonl")
    assert (done.requests, done.waiting) == (unread + 1, 1)
    by_id = {row["custom_id"]: row for row in again}
    assert by_id[lost["custom_id"]]["body"] == lost["body"]

    async with bad_endpoint(
        choose=lambda body: sends(completion(said(body)) | {"model": "judge-1"})
    ) as endpoint:
        engine = engine_at(
            "judge-1", endpoint.url, "k", {"temperature": 0}, max_retries=0
        )
        assert (await grade_run(run, engine, mode=mode)).met == 12
        await engine.aclose()
    assert write_batch(run, tmp_path / "b4.jsonl", mode).requests == 0


async def test_the_file_that_was_handed_in_is_no_result(
    run: Path, tmp_path: Path
) -> None:
    write_batch(run, tmp_path / "b.jsonl", Mode.CRITERION)
    told = read_batch(run, [tmp_path / "b.jsonl"])
    assert (
        told.counts["unread"],
        told.counts["ungraded"],
        told.counts["missing"],
        told.counts["open"],
    ) == (
        12,
        0,
        12,
        12,
    )
    assert not (run / "grades.jsonl").read_bytes()


async def test_calls_that_are_under_way_are_counted(run: Path, tmp_path: Path) -> None:
    write_batch(run, tmp_path / "b.jsonl", Mode.CRITERION)
    rows = written(tmp_path / "b.jsonl")
    unread = [result(row, "no") for row in rows[:5]]
    read_batch(run, [save(tmp_path / "r.jsonl", unread)])
    every = write_batch(run, tmp_path / "e.jsonl", Mode.CRITERION)
    assert (every.requests, every.waiting) == (12, 7)


async def test_results_by_another_model_are_not_lost_when_it_is_allowed_later(
    run: Path, tmp_path: Path
) -> None:
    write_batch(run, tmp_path / "b.jsonl", Mode.CRITERION)
    rows = [result(row, verdict(False)) for row in written(tmp_path / "b.jsonl")]
    for row in rows[2:]:
        row["response"]["body"]["model"] = "judge-1-0925"
    results = save(tmp_path / "r.jsonl", [*rows, {**rows[0], "response": None}])
    told = read_batch(run, [results])
    assert (told.counts["not_met"], told.counts["ungraded"]) == (2, 10)
    assert "judge-1-0925" in max(told.reasons, key=told.reasons.__getitem__)
    assert told.counts["open"] == 10
    before = (run / "grades.jsonl").read_bytes()
    told = read_batch(run, [results])
    assert (told.counts["ungraded"], told.counts["open"]) == (0, 10)
    assert (run / "grades.jsonl").read_bytes() == before
    told = read_batch(run, [results], allow_unpinned=True)
    assert (
        told.counts["not_met"],
        told.counts["ungraded"],
        told.counts["open"],
    ) == (
        10,
        0,
        0,
    )
    usages = [g.usage for g in list(grades_of(run / "grades.jsonl", [])) if g.usage]
    assert len(usages) == 12


@contextmanager
def room(size: int) -> Iterator[None]:
    """No file may grow beyond this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_result_that_could_not_be_logged_is_taken_when_it_is_read_again(
    run: Path, tmp_path: Path
) -> None:
    other = Judge(lambda r: verdict(False, reasoning="y" * 3000), engine="other")
    await grade_run(run, other, mode=Mode.CRITERION)
    write_batch(run, tmp_path / "b.jsonl", Mode.CRITERION)
    results = save(
        tmp_path / "r.jsonl",
        [result(row, verdict(False)) for row in written(tmp_path / "b.jsonl")],
    )
    size = (run / "grades.jsonl").stat().st_size
    assert (run / BATCHES).stat().st_size < size - 10_000
    with room(size + 1500), pytest.raises(DiskFull):
        read_batch(run, [results])
    kept = sum(g.engine == "openai" for g in list(grades_of(run / "grades.jsonl", [])))
    assert 0 < kept < 12
    told = read_batch(run, [results])
    assert (told.counts["not_met"], told.counts["missing"]) == (12 - kept, 0)


async def test_the_commands_go_on_until_nothing_is_open(
    run: Path, tmp_path: Path
) -> None:
    async def batch(*words: str | Path) -> tuple[BaseException | None, str]:
        line = ["eval", "batch", *map(str, words)]
        home = {"MEDLIVE_HOME": str(tmp_path / "home")}
        done = await asyncio.to_thread(CliRunner().invoke, build(line), line, env=home)
        return done.exception, done.output

    def answers(name: str, answer: Callable[[dict[str, Any]], Any]) -> Path:
        return save(
            tmp_path / f"r-{name}", [answer(row) for row in written(tmp_path / name)]
        )

    named = ["--grader", "judge-1", "--base-url", "http://127.0.0.1:9/v1"]
    assert (await batch("write", run, *named, "--out", tmp_path / "1.jsonl"))[0] is None
    error, _ = await batch("write", run, *named, "--out", tmp_path / "1.jsonl")
    assert "is there already" in str(error)
    assert isinstance(
        (await batch("read", run, answers("1.jsonl", result)))[0], CheckFailed
    )
    assert isinstance(
        (await batch("read", run, tmp_path / "r-1.jsonl"))[0], CheckFailed
    )
    error, output = await batch("write", run, *named, "--out", tmp_path / "2.jsonl")
    assert error is None
    assert "calls: 4" in output
    careful = answers("2.jsonl", lambda row: result(row, said(row["body"], True)))
    assert (await batch("read", run, careful))[0] is None
    error, output = await batch("write", run, *named, "--out", tmp_path / "3.jsonl")
    assert error is None
    assert "nothing is open" in output
    assert not (tmp_path / "3.jsonl").exists()
    (tmp_path / "README.md").write_text("# Results\n\nSee elsewhere.\n", "utf-8")
    error, _ = await batch("read", run, tmp_path / "README.md")
    assert isinstance(error, CheckFailed)
    assert (error.message, error.hint) == ("2 lines are no results of this run", None)
