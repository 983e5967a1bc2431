"""Batch files of verdicts: what is written is what a live call sends, and results count by the same
checks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medlive.errors import BadInput
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.grading import batch
from medlive.evaluation.grading.batch import (
    BATCHES,
    BatchRead,
    BatchWritten,
    read_batch,
)
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.runs.folder import grades_of, open_run
from medlive.evaluation.scoring.graded import load_graded
from medlive.grader.judge import Mode
from medlive.integrity.digest import canonical_json
from medlive.integrity.log import open_log
from medlive.llm.engine import EngineIdentity
from medlive.llm.openai import OpenAIEngine
from medlive.llm.prompts import read_inputs
from tests.support.bad_endpoint import bad_endpoint, completion, sends
from tests.support.engines import engine_at
from tests.unit.evaluation.conftest import AT, USE, Model, make_cases, verdict

JUDGE = "judge-1"
IDENTITY = EngineIdentity("openai", JUDGE, {"temperature": 0})


def engine(url: str) -> OpenAIEngine:
    return engine_at(JUDGE, url, "k", {"temperature": 0}, max_retries=0)


def write_batch(run: Path, out: Path, mode: Mode) -> BatchWritten:
    body_of = engine("http://127.0.0.1:9/v1").body
    return batch.write_batch(run, IDENTITY, body_of, out, mode=mode)


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def said(body: dict[str, Any]) -> str:
    inputs = read_inputs(body["messages"])
    assert inputs is not None
    if "criterion" in inputs:
        return verdict(inputs["criterion"].endswith("0"))
    entries = [
        json.loads(verdict(c["criterion"].endswith("0"), id=c["id"]))
        for c in inputs["criteria"]
    ]
    return json.dumps({"grades": entries})


def result(
    row: dict[str, Any], text: str | None = None, model: str = JUDGE, status: int = 200
) -> dict[str, Any]:
    body = completion(said(row["body"]) if text is None else text) | {"model": model}
    return {
        "id": "r",
        "custom_id": row["custom_id"],
        "response": {"status_code": status, "request_id": "q", "body": body},
        "error": None,
    }


def save(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def counts(told: BatchRead) -> dict[str, int]:
    return {name: n for name, n in told.counts.items() if n and name != "open"}


@pytest.fixture
async def run(run_dir: Path) -> Path:
    """Four cases of three criteria, answered."""
    await run_model(make_cases(4), Model(), run_dir, use=USE, created_at=AT)
    return run_dir


@pytest.mark.parametrize("mode", list(Mode))
async def test_a_batch_is_what_live_grading_sends_and_comes_to_the_same(
    run: Path, tmp_path: Path, mode: Mode
) -> None:
    done = write_batch(run, tmp_path / "b.jsonl", mode)
    assert done.requests == (12 if mode is Mode.CRITERION else 4)
    rows = written(tmp_path / "b.jsonl")
    assert {(row["method"], row["url"]) for row in rows} == {
        ("POST", "/v1/chat/completions")
    }
    assert len({row["custom_id"] for row in rows}) == len(rows)
    assert all(len(row["custom_id"]) <= 64 for row in rows)
    told = read_batch(
        run, [save(tmp_path / "r.jsonl", [result(row) for row in rows])], prices={}
    )
    assert counts(told) == {"met": 4, "not_met": 8}

    live = tmp_path / "live"
    await run_model(make_cases(4), Model(), live, use=USE, created_at=AT)
    async with bad_endpoint(
        choose=lambda body: sends(completion(said(body)) | {"model": JUDGE})
    ) as endpoint:
        asked = engine(endpoint.url)
        await grade_run(live, asked, mode=mode)
        assert (await grade_run(run, asked, mode=mode)).calls == 0
        await asked.aclose()
        assert sorted(map(canonical_json, endpoint.bodies)) == sorted(
            canonical_json(r["body"]) for r in rows
        )
    strip = [
        {
            (g.key, g.met, g.quote, g.reasoning, g.raw, g.judge, g.grader)
            for g in list(grades_of(d / "grades.jsonl", []))
        }
        for d in (run, live)
    ]
    assert strip[0] == strip[1]
    assert {g.origin for g in list(grades_of(run / "grades.jsonl", []))} == {"batch"}


async def test_every_kind_of_result_is_told_apart_and_what_is_open_is_written_again(
    run: Path, tmp_path: Path
) -> None:
    write_batch(run, tmp_path / "b.jsonl", Mode.CRITERION)
    rows = written(tmp_path / "b.jsonl")
    good, failed, expired, stranger, prose, cut, twice, *_ = rows
    lines: list[Any] = [
        result(good),
        result(failed, status=500),
        {
            "custom_id": expired["custom_id"],
            "response": None,
            "error": {"code": "batch_expired"},
        },
        result(stranger, model="judge-2"),
        result(prose, "The criterion is not satisfied."),
        result(cut, said(cut["body"])[:-5]),
        result(twice),
        result(twice, verdict(not json.loads(said(twice["body"]))["met"])),
        {**result(good), "custom_id": "f" * 64},
        {"response": None},
        7,
    ]
    path = save(tmp_path / "r.jsonl", lines)
    path.write_text(path.read_text() + "{ no JSON\n\n" + json.dumps(result(good))[:40])
    told = read_batch(run, [path])
    assert counts(told) == {
        "met": 2,
        "ungraded": 5,
        "unread": 5,
        "missing": 5,
    }
    assert set(told.reasons) == {
        "batch: status 500",
        "batch: batch_expired",
        "another model answered: 'judge-2'",
        "the reply is no JSON",
        "not JSON: Unterminated string starting at",
    }
    assert any(
        "status 500" in g.reason for g in list(grades_of(run / "grades.jsonl", []))
    )
    assert any(
        "batch_expired" in g.reason for g in list(grades_of(run / "grades.jsonl", []))
    )
    before = (run / "grades.jsonl").read_bytes()
    assert counts(read_batch(run, [path])) == {"unread": 5, "missing": 5}
    assert (run / "grades.jsonl").read_bytes() == before

    again = write_batch(run, tmp_path / "b2.jsonl", Mode.CRITERION)
    assert again.requests == 10
    second = written(tmp_path / "b2.jsonl")
    # What has had a result gets another name; what is still waited for keeps its own.
    assert len({r["custom_id"] for r in second} & {r["custom_id"] for r in rows}) == 5
    told = read_batch(
        run, [save(tmp_path / "r2.jsonl", [result(row) for row in second])]
    )
    assert told.counts["missing"] == told.counts["ungraded"] == 0
    assert load_graded(run).grader is not None
    assert sum(len(g) for g in load_graded(run).grades.values()) == 12


async def test_what_a_call_cost_is_kept_once_although_an_error_came_before(
    run: Path, tmp_path: Path
) -> None:
    write_batch(run, tmp_path / "b.jsonl", Mode.RUBRIC)
    row, *_ = written(tmp_path / "b.jsonl")
    error = {"custom_id": row["custom_id"], "error": {"message": "expired"}}
    for lines in ([error], [result(row)], [result(row)]):
        read_batch(run, [save(tmp_path / "r.jsonl", lines)])
    grades = grades_of(run / "grades.jsonl", [])
    assert len([grade for grade in grades if grade.usage]) == 1


async def test_a_full_file_ends_and_the_rest_is_the_next(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "MOST_REQUESTS", 5)
    first = write_batch(run, tmp_path / "b.jsonl", Mode.CRITERION)
    assert (first.requests, first.is_full) == (5, True)
    rows = written(tmp_path / "b.jsonl")
    read_batch(run, [save(tmp_path / "r.jsonl", [result(row) for row in rows])])
    size = (tmp_path / "b.jsonl").stat().st_size
    monkeypatch.setattr(batch, "MOST_BYTES", size // 2)
    second = write_batch(run, tmp_path / "b2.jsonl", Mode.CRITERION)
    assert second.is_full
    assert 0 < second.requests < 5
    assert (tmp_path / "b2.jsonl").stat().st_size <= size // 2
    ids = {row["custom_id"] for row in rows}
    assert ids.isdisjoint(row["custom_id"] for row in written(tmp_path / "b2.jsonl"))


async def test_results_about_what_has_changed_since_are_left_out(
    run: Path, tmp_path: Path
) -> None:
    write_batch(run, tmp_path / "b.jsonl", Mode.RUBRIC)
    rows = written(tmp_path / "b.jsonl")
    answer = open_run(run).answers()[0]["c000"]
    with open_log(run / "responses.jsonl") as log:
        log.add(replace(answer, response="Rest in bed.").row())
    told = read_batch(run, [save(tmp_path / "r.jsonl", [result(row) for row in rows])])
    assert counts(told) == {"stale": 1, "met": 3, "not_met": 6}


async def test_a_batch_by_another_prompt_or_of_no_run_is_not_read(
    run: Path, tmp_path: Path
) -> None:
    results = save(tmp_path / "r.jsonl", [])
    with pytest.raises(BadInput):
        read_batch(run, [results])
    write_batch(run, tmp_path / "b.jsonl", Mode.CRITERION)
    with pytest.raises(BadInput):
        read_batch(run, [tmp_path / "nowhere.jsonl"])
    (row, *_) = written(tmp_path / "b.jsonl")
    log = (run / BATCHES).read_text()
    (run / BATCHES).write_text(log.replace('"temperature":0', '"temperature":1'))
    told = read_batch(run, [save(tmp_path / "r.jsonl", [result(row)])])
    assert counts(told) == {"unread": 1}
    assert any("another version" in note for note in told.notes)
