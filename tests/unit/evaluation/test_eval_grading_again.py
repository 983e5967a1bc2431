"""Who may share what: verdicts between run folders and processes, a folder between processes, and nothing between
answers that differ."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from medlive.evaluation.asking.run import run_model
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    CaseSet,
)
from medlive.evaluation.runs.folder import open_run
from medlive.grader.judge import Mode
from medlive.integrity.log import Locked, open_log, read_log
from medlive.llm.engine import Request
from tests.support.waiting import until
from tests.unit.evaluation.conftest import (
    AT,
    USE,
    Judge,
    Model,
    make_cases,
    verdict,
)

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[3]


async def answered(path: Path, cases: CaseSet | None = None) -> Path:
    await run_model(cases or make_cases(4), Model(), path, use=USE, created_at=AT)
    return path


def met(request: Request) -> str:
    if "criterion" in request.inputs:
        return verdict(request.inputs["criterion"].endswith("0"))
    entries = [
        json.loads(verdict(c["criterion"].endswith("0"), id=c["id"]))
        for c in request.inputs["criteria"]
    ]
    return json.dumps({"grades": entries})


async def test_an_answer_that_is_edited_is_graded_again_alone(run_dir: Path) -> None:
    await answered(run_dir)
    await grade_run(run_dir, Judge(met), mode=Mode.CRITERION)
    old = open_run(run_dir).answers()[0]["c002"]
    with open_log(run_dir / "responses.jsonl") as log:
        log.add(replace(old, response="Drink water and rest.").row())
    judge = Judge(met)
    assert (await grade_run(run_dir, judge, mode=Mode.CRITERION)).calls == 3
    assert {r.inputs["answer"] for r in judge.requests} == {"Drink water and rest."}
    with open_log(run_dir / "responses.jsonl") as log:
        log.add(old.row())
    assert (await grade_run(run_dir, judge, mode=Mode.CRITERION)).calls == 0
    assert isinstance(open_run(run_dir).answers()[0]["c002"], Answer)


WORKER = """
import asyncio, itertools, sys
from pathlib import Path
from tests.unit.evaluation.conftest import AT, USE, Judge, make_cases, reply
from tests.unit.evaluation.test_eval_grading_again import met
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.grading.grade import grade_run
from medlive.grader.judge import Mode

calls = itertools.count()

async def ten(messages):
    if next(calls) >= 10:
        await asyncio.sleep(600)
    return reply("Fine.", model="cand-1")

class Ten(Judge):
    async def answer(self, request):
        if len(self.requests) >= 10:
            await asyncio.sleep(600)
        return await super().answer(request)

async def work(asked, graded):
    await asyncio.gather(
        run_model(make_cases(60), ten, asked, use=USE, created_at=AT, concurrency=4),
        grade_run(graded, Ten(met), mode=Mode.CRITERION, concurrency=4),
    )

asyncio.run(work(*map(Path, sys.argv[1:])))
"""


def start(asked: Path, graded: Path) -> "subprocess.Popen[str]":
    """A process that answers ten cases, gives ten verdicts and then hangs."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-c", WORKER, str(asked), str(graded)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def test_a_killed_run_and_grading_go_on_and_a_second_process_is_turned_away(
    tmp_path: Path,
) -> None:
    asked, run = tmp_path / "asked", await answered(tmp_path / "run", make_cases(40))
    answers, grades = asked / "responses.jsonl", run / "grades.jsonl"
    process = start(asked, run)
    try:
        await until(lambda: min(len(read_log(p)[0]) for p in (answers, grades)) >= 8)
        with pytest.raises(Locked):
            await answered(asked, make_cases(60))
        with pytest.raises(Locked):
            await grade_run(run, Judge(met), mode=Mode.CRITERION)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()

    before = len(read_log(answers)[0])
    assert 8 <= before < 20
    model = Model()
    done = await run_model(make_cases(60), model, asked, use=USE, created_at=AT)
    assert done.calls == len(model.prompts) == 60 - before
    assert done.states[AnswerState.OK] == 60

    before = len(read_log(grades)[0])
    assert 8 <= before < 20
    judge = Judge(met)
    result = await grade_run(run, judge, mode=Mode.CRITERION)
    assert (result.ungraded, result.calls) == (0, len(judge.requests))
    assert 120 - before - 4 <= result.calls <= 120 - before
    assert read_log(grades)[1] == []
