"""Batch files of answers and verdicts: what is written is what a live call sends, and results count by the same
checks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medlive.errors import BadInput, UsageError
from medlive.evaluation.asking.run import begin_run, import_answers, run_model
from medlive.evaluation.grading import batch
from medlive.evaluation.grading.batch import (
    BATCHES,
    BatchRead,
    read_answers,
    read_batch,
    write_answers,
    write_batch,
)
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.runs.folder import ModelUse, open_run, read_grades
from medlive.evaluation.runs.templates import load_template
from medlive.evaluation.scoring.graded import load_graded
from medlive.grader.judge import Mode
from medlive.integrity.digest import canonical_json
from medlive.integrity.log import open_log
from medlive.llm.engine import EngineIdentity
from medlive.llm.openai import OpenAIEngine
from medlive.llm.prompts import read_inputs
from tests.support.bad_endpoint import bad_endpoint, completion, sends
from tests.unit.evaluation.conftest import AT, USE, Model, make_cases, verdict

JUDGE = "judge-1"
IDENTITY = EngineIdentity("openai", JUDGE, {"temperature": 0})


def engine(url: str) -> OpenAIEngine:
    return OpenAIEngine(JUDGE, url, "k", {"temperature": 0}, max_retries=0)


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
    done = write_batch(run, IDENTITY, tmp_path / "b.jsonl", mode=mode)
    assert (done.requests, done.criteria) == (12 if mode is Mode.CRITERION else 4, 12)
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
            for g in read_grades(d / "grades.jsonl")[0]
        }
        for d in (run, live)
    ]
    assert strip[0] == strip[1]
    assert {g.origin for g in read_grades(run / "grades.jsonl")[0]} == {"batch"}


async def test_every_kind_of_result_is_told_apart_and_what_is_open_is_written_again(
    run: Path, tmp_path: Path
) -> None:
    write_batch(run, IDENTITY, tmp_path / "b.jsonl", mode=Mode.CRITERION)
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
        "again": 1,
        "duplicates": 1,
        "unknown": 1,
        "damaged": 4,
        "missing": 5,
    }
    assert set(told.reasons) == {
        "batch: status 500",
        "batch: batch_expired",
        "another model answered: 'judge-2'",
        "the reply is no JSON",
        "not JSON: Unterminated string starting at",
    }
    assert any("status 500" in g.reason for g in read_grades(run / "grades.jsonl")[0])
    assert any(
        "batch_expired" in g.reason for g in read_grades(run / "grades.jsonl")[0]
    )
    before = (run / "grades.jsonl").read_bytes()
    assert counts(read_batch(run, [path]))["again"] == 8
    assert (run / "grades.jsonl").read_bytes() == before

    again = write_batch(run, IDENTITY, tmp_path / "b2.jsonl", mode=Mode.CRITERION)
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


async def test_limits_split_a_batch(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "MOST_REQUESTS", 5)
    done = write_batch(run, IDENTITY, tmp_path / "b.jsonl", mode=Mode.CRITERION)
    assert [p.name for p in done.files] == ["b-001.jsonl", "b-002.jsonl", "b-003.jsonl"]
    rows = [row for path in done.files for row in written(path)]
    assert len(rows) == 12
    size = max(path.stat().st_size for path in done.files)
    monkeypatch.setattr(batch, "MOST_BYTES", size - 1)
    small = write_batch(run, IDENTITY, tmp_path / "s.jsonl", mode=Mode.CRITERION)
    assert all(path.stat().st_size < size for path in small.files)
    assert sorted(r["custom_id"] for p in small.files for r in written(p)) == sorted(
        r["custom_id"] for r in rows
    )


async def test_results_about_what_has_changed_since_are_left_out(
    run: Path, tmp_path: Path
) -> None:
    write_batch(run, IDENTITY, tmp_path / "b.jsonl", mode=Mode.RUBRIC)
    rows = written(tmp_path / "b.jsonl")
    answer = open_run(run).answers()[0]["c000"]
    with open_log(run / "responses.jsonl") as log:
        log.add(replace(answer, response="Rest in bed.").row())
    told = read_batch(run, [save(tmp_path / "r.jsonl", [result(row) for row in rows])])
    assert counts(told) == {"stale": 1, "met": 3, "not_met": 6}
    assert "has changed since" in told.notes[0]


async def test_a_batch_by_another_prompt_or_of_no_run_is_not_read(
    run: Path, tmp_path: Path
) -> None:
    results = save(tmp_path / "r.jsonl", [])
    with pytest.raises(BadInput):
        read_batch(run, [results])
    write_batch(run, IDENTITY, tmp_path / "b.jsonl", mode=Mode.CRITERION)
    with pytest.raises(BadInput):
        read_batch(run, [tmp_path / "nowhere.jsonl"])
    (row, *_) = written(tmp_path / "b.jsonl")
    log = (run / BATCHES).read_text()
    (run / BATCHES).write_text(log.replace('"temperature":0', '"temperature":1'))
    told = read_batch(run, [save(tmp_path / "r.jsonl", [result(row)])])
    assert counts(told) == {"unknown": 1}
    assert any("another version" in note for note in told.notes)


CANDIDATE = ModelUse("cand-1", parameters={"temperature": 0.5, "max_tokens": 9})


async def test_answers_come_by_batch_as_they_come_live(
    run_dir: Path, tmp_path: Path
) -> None:
    cases = make_cases(6)
    template = load_template("open")
    await begin_run(cases, run_dir, use=CANDIDATE, created_at=AT, prompt=template)
    assert write_answers(run_dir, tmp_path / "q.jsonl").requests == 6
    rows = written(tmp_path / "q.jsonl")

    def answer(
        row: dict[str, Any], text: str = "Drink water.", finish: str = "stop"
    ) -> dict[str, Any]:
        body = completion(text, finish=finish) | {"model": "cand-1-0925"}
        return {
            "custom_id": row["custom_id"],
            "response": {"status_code": 200, "body": body},
            "error": None,
        }

    lines: list[Any] = [
        answer(rows[0]),
        answer(rows[1], finish="length"),
        answer(rows[2], "I cannot.", "content_filter"),
        answer(rows[3], ""),
        {
            "custom_id": rows[4]["custom_id"],
            "response": None,
            "error": {"message": "expired"},
        },
        {"custom_id": "f" * 64},
        "x",
    ]
    results = save(tmp_path / "r.jsonl", lines)
    told = read_answers(run_dir, [results])
    assert counts(told) == {
        "ok": 1,
        "truncated": 1,
        "refused": 1,
        "empty": 1,
        "failed": 1,
        "unknown": 1,
        "damaged": 1,
        "missing": 1,
    }
    assert read_answers(run_dir, [results]).counts["again"] == 5
    answers = open_run(run_dir).answers()[0]
    assert answers["c000"].model == "cand-1-0925"
    assert answers["c004"].reason == "batch: expired"
    again = write_answers(run_dir, tmp_path / "q2.jsonl")
    assert again.requests == 3
    second = written(tmp_path / "q2.jsonl")
    told = read_answers(
        run_dir, [save(tmp_path / "r2.jsonl", [answer(row) for row in second])]
    )
    assert counts(told) == {"ok": 3}
    assert write_answers(run_dir, tmp_path / "q3.jsonl").files == ()

    async with bad_endpoint([sends(completion("Drink water."))]) as endpoint:
        live = OpenAIEngine("cand-1", endpoint.url, "k", CANDIDATE.parameters)
        done = await run_model(
            cases,
            live.complete,
            tmp_path / "live",
            use=CANDIDATE,
            created_at=AT,
            template="open",
        )
        # The same folder goes on live where the batch ended.
        assert done.calls == 6
        assert (
            await run_model(
                cases,
                live.complete,
                run_dir,
                use=CANDIDATE,
                created_at=AT,
                template="open",
            )
        ).calls == 0
        await live.aclose()
        assert sorted(map(canonical_json, endpoint.bodies)) == sorted(
            canonical_json(row["body"]) for row in rows
        )


async def test_a_run_that_does_not_say_how_it_is_asked_gives_no_batch(
    run: Path, tmp_path: Path
) -> None:
    with pytest.raises(BadInput):
        read_answers(run, [])
    imported = tmp_path / "imported"
    import_answers(imported, make_cases(2), [], "m", AT)
    with pytest.raises(UsageError, match="does not say"):
        write_answers(imported, tmp_path / "q.jsonl")
    assert not (tmp_path / "q.jsonl").exists()


async def test_a_question_that_goes_on_from_another_is_asked_and_graded_with_it(
    tmp_path: Path,
) -> None:
    first, second, third = make_cases(3).cases
    second = replace(second, after=first.case_id)
    cases = replace(make_cases(3), cases=(first, second, third))
    run = tmp_path / "run"
    await begin_run(cases, run, use=USE, created_at=AT, prompt=load_template("as-is"))
    file = tmp_path / "q.jsonl"
    assert write_answers(run, file).requests == 2
    results = [result(row, "Drink water.") for row in written(file)]
    read_answers(run, [save(tmp_path / "r.jsonl", results)])
    assert write_answers(run, file).requests == 1
    (row,) = written(file)
    said_before = [message["content"] for message in row["body"]["messages"]]
    assert said_before == [first.question, "Drink water.", second.question]
    read_answers(run, [save(tmp_path / "r.jsonl", [result(row, "Drink water.")])])
    write_batch(run, IDENTITY, file)
    results = [result(row) for row in written(file)]
    told = read_batch(run, [save(tmp_path / "r.jsonl", results)])
    assert counts(told) == {"met": 3, "not_met": 6}
