"""All protocols at once by a process that is killed: what was answered and kept is asked for once."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from medlive.evaluation.protocols.pairwise import CRITERIA
from medlive.integrity.log import read_log
from medlive.llm.prompts import read_inputs
from medlive.report.render import read_portfolio
from tests.support.bad_endpoint import Step, bad_endpoint, completion, sends
from tests.support.runs import made_cases, made_run

ROOT = Path(__file__).parents[2]
AT_ONCE = 4
KILLED_AT = 90
"""Requests after which the process is killed: amid the protocol after the checklist."""


def said(inputs: dict[str, Any]) -> str:
    """A sound reply to any protocol's question."""
    if "first" in inputs:
        better = "first" if len(inputs["first"]) > len(inputs["second"]) else "second"
        return json.dumps(
            {"reasoning": "Why."} | dict.fromkeys((*CRITERIA, "better"), better)
        )
    if "questions" in inputs:
        return json.dumps(
            {
                "answers": [
                    {"id": one["id"], "answer": "yes"} for one in inputs["questions"]
                ]
            }
        )
    if "count" in inputs:
        return json.dumps({"questions": ["Is rest advised?", "Is there a term?"]})
    return json.dumps({"reasoning": "Why.", "score": 4})


def kept(out: Path) -> int:
    """Findings with a value in all logs."""
    return sum(
        row["value"] is not None
        for path in out.glob("*.jsonl")
        for row in read_log(path)[0]
    )


@pytest.mark.thorough
async def test_a_killed_portfolio_goes_on_and_asks_nothing_twice_that_was_kept(
    tmp_path: Path,
) -> None:
    cases, out = made_cases(8), tmp_path / "out"
    runs = [
        made_run(
            cases, tmp_path / f"r{k}", f"m{k}", 0.6, missing=False, words=8 + 16 * k
        )
        for k in range(3)
    ]
    process: asyncio.subprocess.Process
    asked: list[int] = []

    def choose(body: dict[str, Any]) -> Step:
        async def step(body: dict[str, Any]) -> web.StreamResponse:
            if endpoint.asked >= KILLED_AT and len(asked) == 1:
                process.kill()
                await process.wait()
            inputs = read_inputs(body["messages"])
            assert inputs is not None
            return await sends(completion(said(inputs)) | {"model": "judge-1"})(body)

        return step

    async with bad_endpoint(choose=choose) as endpoint:
        words = [
            "eval",
            "protocol",
            "all",
            *map(str, runs),
            "--out",
            str(out),
            "--json",
        ]
        words += [
            "--grader",
            "judge-1",
            "--base-url",
            endpoint.url,
            "--concurrency",
            str(AT_ONCE),
        ]
        home = {
            "MEDLIVE_HOME": str(tmp_path / "home"),
            "OPENAI_API_KEY": "k",
            "PYTHONPATH": str(ROOT),
        }
        before = [0]
        for _ in range(2):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "medlive",
                *words,
                env=os.environ | home,
                stdout=asyncio.subprocess.DEVNULL,
            )
            asked.append(-endpoint.asked)
            status = await process.wait()
            asked[-1] += endpoint.asked
            before.append(kept(out))
            # What was under way when it was killed is all that can be lost.
            assert (
                0 <= asked[-1] - (before[-1] - before[-2]) <= (AT_ONCE if status else 0)
            )
    assert status == 0
    assert 0 < before[1] < before[2]
    done = {
        task.task: task.questions
        for task in read_portfolio(out).tasks
        if task.questions
    }
    assert set(done) == {"checklist", "cross-examination", "pairwise"}
    assert (
        sum(one["asked"] for one in done.values())
        == sum(one["answered"] for one in done.values())
        == before[-1]
    )
    assert sum(one["calls"] for one in done.values()) == asked[-1]
