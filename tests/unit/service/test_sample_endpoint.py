"""The sample models as an endpoint, asked and graded by the commands."""

import asyncio
import json
import shlex
import sys
from pathlib import Path

import pytest

from medlive.__main__ import run
from medlive.instance.loading import read_settings
from medlive.instance.opening import serve_rules

CASES = [
    {
        "case_id": "knee-1",
        "post_time": "2026-10-01",
        "narrative": "My knee hurts after running, for three weeks.",
        "core_request": "Do I need an MRI scan?",
        "doctor_advice": "Rest first; see a doctor if it swells.",
        "rubric_items": [
            {
                "criterion": "Recommends rest until the patient is examined by a physician.",
                "points": 5,
            },
            {"criterion": "Prescribes an antibiotic.", "points": -5},
        ],
    }
]
COMMANDS = (
    "eval run --cases cases.json --model sample-generic --base-url URL --out runs/sample",
    "eval grade runs/sample --grader rules --base-url URL",
    "eval score runs/sample --allow not-publishable",
)


async def test_a_sample_model_is_asked_graded_and_scored_without_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path / "home"))
    # Who has no index can serve without the extra `service`, which what searches one needs.
    monkeypatch.setitem(sys.modules, "medlive.evidence.index", None)
    (tmp_path / "cases.json").write_text(json.dumps(CASES), "utf-8")
    told: list[str] = []
    async with serve_rules(read_settings(), warn=told.append) as url:
        for command in COMMANDS:
            words = shlex.split(command.replace("URL", url))
            assert await asyncio.to_thread(run, words) == 0
    assert told == [
        f"no evidence index at {tmp_path / 'home' / 'evidence' / 'default'}: "
        "sample-evidence answers like sample-generic"
    ]
    assert (
        json.loads((tmp_path / "runs/sample/run.json").read_text("utf-8"))["model"]
        == "sample-generic"
    )
    assert "100.0" in capsys.readouterr().out
