"""Who may share what: verdicts between run folders and processes, a folder between processes, and nothing between
answers that differ."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from medlive.errors import ConfigError
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.grading.cache import GradeCache
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.log import open_log, read_log
from medlive.evaluation.model import Answer, CaseSet, Mode, Origin
from medlive.evaluation.runs.folder import open_run, read_grades
from medlive.integrity.lock import Locked
from medlive.llm.engine import Request
from tests.unit.evaluation.conftest import (
    AT,
    USE,
    Judge,
    Model,
    make_cases,
    reply,
    verdict,
)

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


@pytest.mark.parametrize("mode", list(Mode))
async def test_the_same_answer_in_another_folder_costs_nothing_and_says_so(
    tmp_path: Path, mode: Mode
) -> None:
    cache = GradeCache(tmp_path / "cache")
    first = await grade_run(
        await answered(tmp_path / "a"), Judge(met), mode=mode, cache=cache
    )
    assert (first.cached, first.calls) == (0, 12 if mode is Mode.CRITERION else 4)
    # Other ids and another order of the cases: what counts is what the verdict rests on.
    cases = make_cases(4)
    renamed = tuple(
        replace(
            c,
            case_id=f"x-{c.case_id}",
            criteria=tuple(replace(k, id=f"x-{k.id}") for k in c.criteria),
        )
        for c in reversed(cases.cases)
    )
    edited = replace(renamed[0].criteria[1], criterion="another wording")
    renamed = (
        replace(
            renamed[0],
            criteria=(renamed[0].criteria[0], edited, *renamed[0].criteria[2:]),
        ),
        *renamed[1:],
    )
    judge = Judge(met)
    other = await answered(tmp_path / "b", replace(cases, cases=renamed))
    second = await grade_run(
        other, judge, mode=mode, cache=GradeCache(tmp_path / "cache")
    )
    assert (second.cached, second.reused, second.calls, second.ungraded) == (
        11,
        11,
        1,
        0,
    )
    assert (
        judge.requests[0].inputs.get("criterion", "another wording")
        == "another wording"
    )
    rows = {
        (g.case_id, g.criterion_id): g for g in read_grades(other / "grades.jsonl")[0]
    }
    assert len(rows) == 12
    held = [g for g in rows.values() if g.origin is Origin.CACHE]
    assert len(held) == 11
    assert all(
        g.usage == {} and g.reasoning == "because" and g.grader == "judge-1"
        for g in held
    )
    assert all(
        g.met == cid.endswith("k0")
        for (_, cid), g in rows.items()
        if g.origin is Origin.CACHE
    )
    # Another judge, prompt or answer shares nothing.
    assert (
        await grade_run(other, Judge(met, engine="other"), mode=mode, cache=cache)
    ).cached == 0


async def test_what_the_cache_may_not_give(tmp_path: Path) -> None:
    cache = GradeCache(tmp_path / "cache")
    run = await answered(tmp_path / "a")
    # Neither the ungraded nor, for whoever pins it, verdicts of another model.
    with pytest.raises(ConfigError):
        await grade_run(
            run, Judge(lambda _: "rubbish"), cache=cache, mode=Mode.CRITERION
        )
    assert not list(os.walk(tmp_path / "cache"))
    await grade_run(
        run,
        Judge(lambda r: reply(met(r), model="judge-2")),
        cache=cache,
        allow_unpinned=True,
        mode=Mode.CRITERION,
    )
    copy = await answered(tmp_path / "b")
    assert (
        await grade_run(copy, Judge(met), cache=cache, mode=Mode.CRITERION)
    ).cached == 0
    # A verdict by a model that nobody asked does not stand in the folder either.
    assert (await grade_run(run, Judge(met), mode=Mode.CRITERION)).calls == 12

    # Rows that are torn, of others, or met without words of the answer are passed over.
    paths = list((tmp_path / "cache").rglob("*.jsonl"))
    assert len(paths) == 4
    for path, spoil in zip(
        paths, (b'{"met": tr', b"\xff\x00\n[]\n7\n", b"", b"\n\n"), strict=True
    ):
        rows = [json.loads(line) for line in path.read_bytes().splitlines()]
        bad = [
            {**row, "met": True, "quote": quote}
            for row in rows
            for quote in ("invented", "", 7)
        ]
        bad += [{**row, "met": "true"} for row in rows]
        path.write_bytes(
            b"".join(json.dumps(row).encode() + b"\n" for row in bad) + spoil
        )
    third = await answered(tmp_path / "c")
    assert (
        await grade_run(
            third, Judge(met), cache=GradeCache(tmp_path / "cache"), mode=Mode.CRITERION
        )
    ).cached == 0
    fourth = await answered(tmp_path / "d")
    assert (
        await grade_run(
            fourth,
            Judge(met),
            cache=GradeCache(tmp_path / "cache"),
            mode=Mode.CRITERION,
        )
    ).cached == 12


async def test_a_cache_that_cannot_be_written_is_told_and_stops_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("in the way")
    result = await grade_run(
        await answered(tmp_path / "a"),
        Judge(met),
        cache=GradeCache(tmp_path / "file" / "cache"),
        mode=Mode.CRITERION,
    )
    assert result.ungraded == 0
    assert any("cannot be" in note for note in result.notes)


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


GRADER = """
import asyncio, sys
from pathlib import Path
from tests.unit.evaluation.conftest import Judge
from tests.unit.evaluation.test_eval_grading_sharing import met
from medlive.evaluation.grading.cache import GradeCache
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.model import Mode

class Slow(Judge):
    async def answer(self, request):
        await asyncio.sleep(float(sys.argv[2]))
        return await super().answer(request)

cache = GradeCache(Path(sys.argv[3]))
result = asyncio.run(grade_run(Path(sys.argv[1]), Slow(met), mode=Mode.CRITERION, concurrency=4, cache=cache))
print(result.calls, result.cached, result.ungraded)
"""


def start(run_dir: Path, pause: float, cache: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-c", GRADER, str(run_dir), str(pause), str(cache)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def test_a_killed_grading_goes_on_and_a_second_process_is_turned_away(
    tmp_path: Path,
) -> None:
    run = await answered(tmp_path / "run", make_cases(40))
    process = start(run, 0.05, tmp_path / "cache")
    try:
        for _ in range(1200):
            if len(read_log(run / "grades.jsonl").rows) >= 8:
                break
            await asyncio.sleep(0.025)
        with pytest.raises(Locked):
            await grade_run(run, Judge(met), mode=Mode.CRITERION)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    before = len(read_log(run / "grades.jsonl").rows)
    assert 8 <= before < 120
    judge = Judge(met)
    result = await grade_run(
        run, judge, cache=GradeCache(tmp_path / "cache"), mode=Mode.CRITERION
    )
    assert (result.ungraded, result.calls) == (0, len(judge.requests))
    assert 120 - before - 4 <= result.calls <= 120 - before
    assert read_log(run / "grades.jsonl").damaged == []


@pytest.mark.thorough
async def test_processes_that_share_a_cache_leave_it_whole(tmp_path: Path) -> None:
    runs = [await answered(tmp_path / str(i), make_cases(30)) for i in range(2)]
    processes = [start(run, 0.0, tmp_path / "cache") for run in runs]
    told = [p.communicate() for p in processes]
    assert [p.returncode for p in processes] == [0, 0], told
    assert all(int(out.split()[2]) == 0 for out, _ in told)
    for folder, _, names in os.walk(tmp_path / "cache"):
        for name in names:
            assert read_log(Path(folder) / name).damaged == []
    copy = await answered(tmp_path / "copy", make_cases(30))
    assert (
        await grade_run(
            copy, Judge(met), cache=GradeCache(tmp_path / "cache"), mode=Mode.CRITERION
        )
    ).cached == 90
