"""`medlive eval run|import|export`: what is refused, what is said, and the exit status."""

import asyncio
import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

from medlive.__main__ import run
from tests.support.bad_endpoint import bad_endpoint, fails, sends
from tests.support.releases import case, release
from tests.support.runs import made_cases, made_run

pytestmark = pytest.mark.whole


@pytest.fixture
def cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path / "home"))
    rubric = [{"criterion": "Advises rest.", "points": 5}]
    rows = [
        {
            "case_id": f"c{i}",
            "narrative": "It hurts.",
            "core_request": "?",
            "rubric_items": rubric,
        }
        for i in "ab"
    ]
    return write(tmp_path / "LiveMedBench_v1.json", rows)


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), "utf-8")
    return path


def asked(cases: Path, *more: str) -> list[str]:
    return [
        "eval",
        "run",
        "--cases",
        str(cases),
        "--base-url",
        "http://127.0.0.1:1/v1",
        "--out",
        str(cases.parent / "run"),
        *more,
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--model", " "], "--model is empty"),
        (["--model", "m", "--parameters", "[]"], "--parameters must be a JSON object"),
        (["--model", "m", "--undated"], "belong to --template open-book"),
        (
            ["--model", "m", "--cases", "none.json"],
            "none.json' is neither a snapshot's folder",
        ),
        (["--model", "m", "--cases", "2026.W01"], "2026.W01"),
        (
            ["--model", "m", "--parameters", '{"api_key": "s3cret"}'],
            "the parameter api_key looks like a secret",
        ),
        (
            [
                "--model",
                "m",
                "--dry-run",
                "--parameters",
                '{"extra": {"authToken": "s3cret"}}',
            ],
            "the parameter extra.authToken looks like a secret",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_made(
    cases: Path, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(asked(cases, *more)) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "s3cret" not in told
    assert not (cases.parent / "run").exists()


def test_an_interrupted_run_says_that_nothing_is_lost(
    cases: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def interrupted(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("medlive.evaluation.asking.run.run_model", interrupted)
    assert run(asked(cases, "--model", "m")) == 130
    assert "finished work is kept" in capsys.readouterr().err


def test_half_paid_work_is_imported_and_exported_with_status_0(
    cases: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = cases.parent
    responses = write(
        folder / "r.json",
        [{"case_id": "ca", "response": "Rest.", "finish_reason": "stop"}],
    )
    made = [
        "--cases",
        str(cases),
        "--responses",
        str(responses),
        "--model",
        "m",
        "--out",
        str(folder / "run"),
    ]
    assert run(["eval", "import", *made]) == 0
    assert (
        "cases without an answer: 1; medlive eval run asks for them if the import was given the template"
        in capsys.readouterr().err
    )
    export = ["eval", "export", str(folder / "run"), "--out", str(folder / "out")]
    assert run(export) == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 3
    assert "1 criteria are ungraded" in told.err
    assert run([*export, "--judge", "sha256:0"]) == 2
    assert "sha256:0" in capsys.readouterr().err
    (folder / "out" / "m_results.json").write_text("paid for")
    assert run(export) == 2
    assert "name another folder" in capsys.readouterr().err


async def test_without_one_answer_the_endpoint_is_what_is_missing(
    cases: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    sound = {
        "choices": [{"message": {"content": "Rest."}, "finish_reason": "stop"}],
        "model": "m",
    }
    for steps, status, said in (
        ([fails(405, "no way")], 3, "none of 2 calls was answered, the last: "),
        (
            [fails(400, "too long", "context_length_exceeded")],
            1,
            "cases without an answer: 2",
        ),
        ([fails(405, "no way"), sends(sound)], 1, "cases without an answer: 1"),
        ([fails(405, "no way")], 3, "none of 1 calls was answered"),
        ([sends(sound)], 0, ""),
    ):
        async with bad_endpoint(steps) as endpoint:
            more = ["--model", "m", "--base-url", endpoint.url, "--concurrency", "1"]
            assert await asyncio.to_thread(run, asked(cases, *more)) == status
        assert said in capsys.readouterr().err


async def test_empty_answers_are_no_answers(
    cases: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    empty = {
        "choices": [{"message": {"content": ""}, "finish_reason": "length"}],
        "model": "m",
    }
    async with bad_endpoint([sends(empty)]) as endpoint:
        more = ["--model", "m", "--base-url", endpoint.url, "--concurrency", "1"]
        assert await asyncio.to_thread(run, asked(cases, *more)) == 1
    assert "cases without an answer: 2" in capsys.readouterr().err


def test_a_dry_run_knows_no_price_of_an_endpoint(
    cases: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # What is called as the rules are costs nothing on this machine, and who knows what at an address.
    assert run(asked(cases, "--model", "rules-1", "--dry-run", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["answers"]["usd"] is None


def test_why_a_snapshot_is_not_publishable_is_said_with_what_it_is(
    cases: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release(cases.parent, "2026.W46", [case("a1")], why_not=("made by rules",))
    plan = ["--model", "m", "--dry-run"]
    assert run(asked(cases.parent / "medlive-2026.W46", *plan)) == 0
    assert "not publishable: made by rules" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--format", "inspect"), "pip install inspect-ai"),
        ((), "--model is missing"),
    ],
)
def test_an_import_of_a_log_says_what_it_lacks(
    cases: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.setattr("medlive.errors.find_spec", lambda _: None)
    files = ("--cases", cases, "--responses", cases, "--out", tmp_path / "run")
    assert run(["eval", "import", *map(str, files), *more]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--format", "inspekt", "--out", "a.json"), "is not one of"),
        (("--format", "inspect", "--out", "a.log"), "ends in .eval or .json"),
        (("--format", "inspect", "--out", "a.json"), "pip install inspect-ai"),
    ],
)
def test_an_export_as_a_log_says_what_it_lacks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.setattr("medlive.errors.find_spec", lambda _: None)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    made_run(made_cases(2), folder, "m", 0.5)
    assert run(["eval", "export", str(folder), *more]) == 2
    assert said in capsys.readouterr().err
