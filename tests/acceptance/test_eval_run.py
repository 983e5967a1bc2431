"""`medlive eval run` and `import` as users run them: real commands, a real endpoint, kill -9, a full disk."""

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
from aiohttp import web

from medlive.__main__ import run
from medlive.config import Settings
from medlive.instance.paths import index_path
from tests.support.bad_endpoint import BadEndpoint, bad_endpoint, ok, sends
from tests.support.releases import case, release

ROOT = Path(__file__).parents[2]
CASES = 24


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    made = [
        case(
            f"ml-{i:04d}",
            language="zh" if i % 4 == 3 else "en",
            query="What helps against a dry cough?",
        )
        for i in range(CASES)
    ]
    return release(tmp_path / "snapshots", "2026.W46", made).path


@pytest.fixture
def benchmark(snapshot: Path, tmp_path: Path) -> Path:
    """The same cases as LiveMedBench's file, which there is nothing to verify of."""
    return (snapshot / "livemedbench.json").rename(tmp_path / "benchmark.json")


class Command:
    """Runs `medlive eval` in processes of its own."""

    def __init__(self, home: Path) -> None:
        self.environment = {
            **os.environ,
            "MEDLIVE_HOME": str(home),
            "PYTHONPATH": str(ROOT),
        }
        self.environment.pop("OPENAI_API_KEY", None)

    async def start(
        self, *arguments: object, limit: Callable[[], None] | None = None
    ) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "medlive",
            "eval",
            *map(str, arguments),
            env=self.environment,
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=limit,
        )

    async def __call__(
        self, *arguments: object, limit: Callable[[], None] | None = None
    ) -> tuple[int, str, str]:
        process = await self.start(*arguments, limit=limit)
        out, err = await asyncio.wait_for(process.communicate(), 120)
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path / "home")


def prompts(endpoint: BadEndpoint) -> list[str]:
    return [body["messages"][0]["content"] for body in endpoint.bodies]


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.thorough
async def test_a_killed_run_goes_on_and_another_process_is_turned_away(
    benchmark: Path,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    out, gate, answers = tmp_path / "run", asyncio.Event(), ok("Rest.")

    async def later(body: dict[str, Any]) -> web.StreamResponse:
        await gate.wait()
        return await answers(body)

    async with bad_endpoint([*[answers] * 6, later]) as endpoint:
        asked = (
            "run",
            "--cases",
            benchmark,
            "--model",
            "m",
            "--base-url",
            endpoint.url,
            "--out",
            out,
            "--concurrency",
            "2",
            "--json",
        )
        first = await command.start(*asked)
        while endpoint.asked < 8:
            assert first.returncode is None
            await asyncio.sleep(0.05)
        mine = ["eval", *map(str, asked)]
        status, told = await asyncio.to_thread(run, mine), capsys.readouterr().err
        first.send_signal(signal.SIGKILL)
        await first.communicate()
        assert (status, "another process" in told) == (3, True), told
        assert len(lines(out / "responses.jsonl")) == 6
        gate.set()
        status, said = await asyncio.to_thread(run, mine), capsys.readouterr()
        assert status == 0, said.err
        assert json.loads(said.out)["states"]["ok"] == CASES
        assert len(lines(out / "responses.jsonl")) == CASES
        # The two that were under way when the kill came are all that is asked twice.
        assert len(set(prompts(endpoint))) == CASES
        assert endpoint.asked == CASES + 2


@pytest.mark.thorough
async def test_a_full_disk_says_so_and_loses_nothing(
    benchmark: Path, command: Command, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    async with bad_endpoint([ok("x" * 5000)]) as endpoint:
        asked = (
            "run",
            "--cases",
            benchmark,
            "--model",
            "m",
            "--base-url",
            endpoint.url,
            "--out",
            out,
        )

        def small_files() -> None:
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

        status, _, told = await command(*asked, limit=small_files)
        assert (status, "no space is left" in told) == (3, True), told
        assert 5 < len(lines(out / "responses.jsonl")) < CASES


async def test_an_open_book_goes_on_without_its_index(
    snapshot: Path,
    evidence: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path))
    out, index = tmp_path / "run", tmp_path / "index"
    shutil.copytree(index_path(Settings(home=evidence)), index)
    # A call that is refused is made once, and leaves a failed answer.
    async with bad_endpoint(
        [sends({"error": {"message": "no"}}, 400), ok("Rest.")]
    ) as endpoint:
        asked = [
            "eval",
            "run",
            "--cases",
            str(snapshot),
            "--model",
            "m",
            "--base-url",
            endpoint.url,
            "--out",
            str(out),
            "--template",
            "open-book",
            "--top-k",
            "2",
            "--limit",
            "4",
            "--json",
            "--concurrency",
            "1",
            "--evidence",
            str(index),
        ]
        assert await asyncio.to_thread(run, asked) == 1
        assert json.loads(capsys.readouterr().out)["states"]["failed"] == 1
        index.rename(tmp_path / "gone")
        assert await asyncio.to_thread(run, asked) == 0
        assert json.loads(capsys.readouterr().out)["asked"] == 1
    rows = lines(out / "evidence.jsonl")
    assert len(rows) == 8
    assert all(row["date"] <= "2025-03-03" for row in rows)
    assert len(prompts(endpoint)) == 5
    for prompt in prompts(endpoint):
        data = prompt.split("<evidence>\n")[1].split("\n</evidence>")[0]
        assert len(json.loads(data)["passages"]) == 2


def test_a_snapshot_that_does_not_verify_is_taken_only_unverified(
    snapshot: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path))
    (snapshot / "README.md").write_bytes(
        (snapshot / "README.md").read_bytes() + b"more\n"
    )
    answers = tmp_path / "r.json"
    answers.write_text(
        json.dumps(
            [
                {"case_id": f"ml-{i:04d}", "model_response": "Rest."}
                for i in range(CASES)
            ]
        )
    )
    asked = [
        "eval",
        "import",
        "--cases",
        str(snapshot),
        "--responses",
        str(answers),
        "--model",
        "m",
    ]
    asked += ["--out", str(tmp_path / "run")]
    assert run(asked) == 1
    told = capsys.readouterr().err
    assert "README.md" in told
    assert "--unverified" in told
    assert not (tmp_path / "run").exists()
    assert run([*asked, "--unverified"]) == 0
    assert (
        json.loads((tmp_path / "run" / "run.json").read_bytes())["cases"]["verified"]
        is False
    )
