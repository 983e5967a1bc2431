"""`medlive eval run|import|export`: what is refused, what is said, and the exit status."""

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

from medlive.__main__ import run


@pytest.fixture
def cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path / "home"))
    rubric = [{"criterion": "Advises rest.", "points": 5}]
    rows = [
        {"case_id": f"c{i}", "narrative": "It hurts.", "core_request": "?", "rubric_items": rubric} for i in "ab"
    ]
    return write(tmp_path / "LiveMedBench_v1.json", rows)


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), "utf-8")
    return path


def asked(cases: Path, *more: str) -> list[str]:
    return [
        "eval", "run", "--cases", str(cases), "--base-url", "http://127.0.0.1:1/v1", "--out",
        str(cases.parent / "run"), *more,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--model", " "], "--model is empty"),
        (
            ["--model", "m", "--parameters", '{"max_tokens": 5, "max_completion_tokens": 9}'],
            "one limit by two names",
        ),
        (["--model", "m", "--parameters", "[]"], "--parameters is a JSON object"),
        (["--model", "m", "--undated"], "belong to --template open-book"),
        (["--model", "m", "--base-url", "http://127.0.0.1:1/v1?key=s3cret"], "has words after ? or #"),
        (["--model", "m", "--base-url", "http://127.0.0.1:1/v1#s3cret"], "has words after ? or #"),
        (["--model", "m", "--parameters", '{"api_key": "s3cret"}'], "the parameter api_key looks like a secret"),
        (
            ["--model", "m", "--dry-run", "--parameters", '{"extra": {"authToken": "s3cret"}}'],
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

    monkeypatch.setattr("medlive.evaluation.run.run_model", interrupted)
    assert run(asked(cases, "--model", "m")) == 130
    assert "what was finished is kept" in capsys.readouterr().err


def test_half_paid_work_is_imported_and_exported_with_status_0(
    cases: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = cases.parent
    responses = write(folder / "r.json", [{"case_id": "ca", "text": "Rest.", "finish_reason": "stop"}])
    made = ["--cases", str(cases), "--responses", str(responses), "--model", "m", "--out", str(folder / "run")]
    assert run(["eval", "import", *made, "--response-field", "text"]) == 0
    assert "1 cases have no answer; medlive eval run asks for them" in capsys.readouterr().err
    export = ["eval", "export", str(folder / "run"), "--out", str(folder / "out")]
    assert run(export) == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 3
    assert "1 criteria are ungraded" in told.err
    assert run([*export, "--judge", "sha256:0"]) == 2
    assert "sha256:0" in capsys.readouterr().err
    (folder / "out" / "m_results.json").write_text("paid for")
    assert run(export) == 2
    assert "--replace" in capsys.readouterr().err
    assert run([*export, "--replace"]) == 0
