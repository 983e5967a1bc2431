"""`medlive eval all` as users run it: kills at every stage, a question first, budgets, and its exit statuses."""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medlive.__main__ import run
from medlive.evaluation.asking.plan import run_logs, spent_of
from medlive.llm.engine import Reply, Request
from medlive.llm.rules.engine import RulesEngine
from tests.support.bad_endpoint import bad_endpoint, completion, fails, sends
from tests.support.counting_endpoint import counting_endpoint
from tests.support.engines import serve
from tests.support.publishing import a_snapshot
from tests.support.releases import case, release

ROOT = Path(__file__).parents[2]
CASES = 5
RULES = RulesEngine().identity.model


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "MEDLIVE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return release(
        tmp_path / "snapshots", "2026.W46", [case(f"ml-{i}") for i in range(CASES)]
    ).path


def command(cases: object, url: str, out: Path, *more: object) -> list[str]:
    return [
        "eval",
        "all",
        "--cases",
        str(cases),
        "--model",
        "sample-generic",
        "--base-url",
        url,
        "--grader",
        RULES,
        "--out",
        str(out),
        "--allow",
        "not-publishable",
        *map(str, more),
    ]


async def here(*arguments: str) -> int:
    return await asyncio.to_thread(run, list(arguments))


def rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


async def until(holds: Callable[[], bool], process: asyncio.subprocess.Process) -> None:
    while not holds():
        assert process.returncode is None, await process.communicate()
        await asyncio.sleep(0.02)


@pytest.mark.thorough
async def test_a_kill_at_any_stage_costs_the_calls_under_way(
    snapshot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    async with counting_endpoint(latency_ms=150) as endpoint:
        mine = command(snapshot, endpoint.url, out, "--yes", "--concurrency", 1)
        # In the middle of the answers, then of the grades.
        for calls in (2, CASES + 3):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "medlive",
                *mine,
                cwd=ROOT,
                env=dict(os.environ),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
            await until(lambda most=calls: endpoint.asked >= most, process)  # type: ignore[misc]
            process.send_signal(signal.SIGKILL)
            await process.communicate()
            assert not (out / "report").exists()
        assert len(rows(out / "run" / "grades.jsonl")) > 0
        assert await here(*mine) == 0, capsys.readouterr().err
        told = capsys.readouterr()
        assert endpoint.asked <= 2 * CASES + 2, (
            "more than the two calls under way was asked twice"
        )
        assert "stage 2 of 3: grades; spent 0 calls" in told.err
        page = out / "report" / "index.html"
        assert str(page) in told.out
        answers = {row["case_id"] for row in rows(out / "run" / "responses.jsonl")}
        assert len(answers) == len(rows(out / "run" / "responses.jsonl")) == CASES
        # What was lost after the last call is made again, without a question since nothing is spent.
        before = endpoint.asked
        shutil.rmtree(page.parent)
        assert await here(*(word for word in mine if word != "--yes")) == 0, (
            capsys.readouterr().err
        )
        assert (endpoint.asked, page.exists()) == (before, True)


async def test_nothing_is_sent_before_a_yes(
    snapshot: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    async with bad_endpoint([fails(401)]) as endpoint:
        mine = command(snapshot, endpoint.url, out)
        assert await here(*mine) == 2
        assert "--yes" in capsys.readouterr().err
        with monkeypatch.context() as closed:
            closed.setattr("sys.stdin", None)
            assert await here(*mine) == 2
        assert "nobody is there to answer" in capsys.readouterr().err
        assert await here(*mine, "--dry-run", "--mode", "criterion") == 0
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
        assert await here(*mine) == 1
        assert "nothing was sent" in capsys.readouterr().err
        assert await here(*mine, "--max-usd", "1") == 2
        assert "the price of sample-generic is unknown" in capsys.readouterr().err
        assert endpoint.asked == 0
        assert not out.exists()
        assert await here(*mine, "--yes", "--concurrency", "1") == 3
        assert not (out / "report").exists()


async def test_dollars_are_the_folder_s_in_all_and_a_spent_budget_leaves_a_score(
    snapshot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    priced = ("--yes", "--price", "1000,1000", "--grader-price", "1000,1000")
    async with serve(RulesEngine) as url:
        mine = command(snapshot, url, tmp_path / "out", *priced, "--concurrency", "1")
        folder = tmp_path / "out" / "run"
        assert await here(*mine, "--max-usd", "0.5") == 1
        first = spent_of(run_logs(folder))
        assert first[1] == 0
        assert first[0] > 0.5
        capsys.readouterr()
        # The same budget again is spent already.
        assert await here(*mine, "--max-usd", "0.5") == 1
        assert "0.5 US dollars is spent" in capsys.readouterr().err
        assert spent_of(run_logs(folder)) == first
        # Enough for all answers and one case's verdicts: a score with its bounds.
        grade = ["eval", "grade", str(folder), "--grader", RULES, "--base-url", url]
        more = first[0]
        while not any(folder.glob("grades.jsonl")):
            more += 1.0
            await here(*mine, "--max-usd", str(more))
        capsys.readouterr()
        limit = (
            "--max-usd",
            str(spent_of(run_logs(folder))[0] + 1e-6),
            "--concurrency",
            "1",
        )
        assert await here(*grade, "--price", "1000,1000", *limit, "--json") == 1
        done = json.loads(capsys.readouterr().out)
        partial = done["partial_score"]
        assert 0 < partial["n"] < partial["of"]
        assert partial["least"] <= partial["mean"] * partial["n"] / partial["of"]
        assert partial["most"] <= 1
        assert await here(*mine, "--price", "free") == 2


@pytest.mark.thorough
async def test_one_budget_holds_for_both_stages_and_whatever_comes_back(
    snapshot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with counting_endpoint() as endpoint:
        mine = command(snapshot, endpoint.url, tmp_path / "out", "--yes")
        for spent in (3, CASES + 2):
            assert await here(*mine, "--max-calls", str(spent - endpoint.asked)) == 1
            assert "goes on from here" in capsys.readouterr().err
            assert endpoint.asked == spent
            assert not (tmp_path / "out" / "report").exists()
        assert await here(*mine) == 0, capsys.readouterr().err
        assert endpoint.asked == 2 * CASES
    tool_call = sends(completion(None, finish="tool_calls", tool_calls=[{"id": "1"}]))
    async with bad_endpoint([tool_call]) as endpoint:
        other = command(
            snapshot, endpoint.url, tmp_path / "other", "--yes", "--max-calls", "5"
        )
        assert await here(*other) in (1, 3)
        assert endpoint.asked == 5


class _HalfMute(RulesEngine):
    """Gives no verdict on the first case."""

    asked = 0

    async def answer(self, request: Request) -> Reply:
        reply = await super().answer(request)
        self.asked += 1
        return (
            Reply("I would rather not say.", reply.finish, reply.usage, reply.model)
            if self.asked < 3
            else reply
        )


async def test_what_is_ungraded_is_in_the_report_and_the_status(
    snapshot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serve(_HalfMute) as url:
        mine = command(snapshot, url, tmp_path / "out", "--yes", "--concurrency", 1)
        assert await here(*mine) == 1
        assert "criteria ungraded" in capsys.readouterr().err
        page = tmp_path / "out" / "report" / "index.html"
        assert page.exists()
        assert await here(*mine) == 0, capsys.readouterr().err
        # The run of another model has another folder, and a run folder holds no other.
        assert await here(*mine, "--model", "sample-evidence") == 2
        assert (
            "with model sample-generic, not sample-evidence" in capsys.readouterr().err
        )
        assert await here(*mine, "--out", str(tmp_path / "out" / "run")) == 2


async def test_json_is_one_document_and_a_second_run_costs_nothing_under_an_alias_too(
    snapshot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serve(RulesEngine) as url:
        # "rules" at an endpoint is an alias: its replies name the version that answered.
        mine = [
            *command(snapshot, url, tmp_path / "out", "--json"),
            "--grader",
            "rules",
        ]
        assert await here(*mine, "--dry-run") == 0
        planned = json.loads(capsys.readouterr().out)
        assert (
            planned["plan"]["all"]["calls"],
            planned["scores"],
            planned["spent"]["calls"],
        ) == (
            2 * CASES,
            None,
            0,
        )
        assert await here(*mine) == 2
        assert json.loads(capsys.readouterr().out)["spent"]["calls"] == 0
        assert await here(*mine, "--yes") == 0
        first = json.loads(capsys.readouterr().out)
        assert (first["spent"]["calls"], first["report"]) == (
            2 * CASES,
            str(tmp_path / "out" / "report" / "index.html"),
        )
        assert await here(*mine) == 0, capsys.readouterr().err
        second = json.loads(capsys.readouterr().out)
    assert (second["plan"]["all"]["calls"], second["spent"]["calls"]) == (0, 0)
    assert second["scores"]["models"] == first["scores"]["models"]


async def test_latest_stays_that_of_the_run(
    snapshot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, out = tmp_path / "home" / "snapshots", tmp_path / "out"
    a_snapshot(home, "2026.W46", cases=2)
    async with serve(RulesEngine) as url:
        mine = command("latest", url, out, "--yes")
        assert await here(*mine, "--max-calls", "1") == 1
        a_snapshot(home, "2026.W47", cases=2)
        assert await here(*mine) == 0, capsys.readouterr().err
    info = json.loads((out / "run" / "run.json").read_text())
    assert (info["cases"]["name"], info["cases"]["verified"]) == ("2026.W46", True)
    told = capsys.readouterr().err
    assert "stage 1 of 3: answers" in told
