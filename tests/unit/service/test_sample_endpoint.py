"""The sample models as an endpoint, as docs/evaluating.md says how to try them."""

import asyncio
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from medlive.__main__ import run
from medlive.config_loading import load_settings
from medlive.service.wiring import serve_rules

GUIDE = Path(__file__).parents[3] / "docs" / "evaluating.md"


async def test_the_guide_s_trial_runs_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path / "home"))
    # Who has no index can serve without the extra `service`, which what searches one needs.
    monkeypatch.setitem(sys.modules, "medlive.evidence.open_index", None)
    section = (
        GUIDE.read_text("utf-8").split("## Try it without a model")[1].split("\n## ")[0]
    )
    held = re.search(r"<<'END'\n(.*?)\nEND\n", section, re.DOTALL)
    (tmp_path / "cases.json").write_text(held[1], "utf-8")
    lines = [
        shlex.split(line)[1:]
        for line in section.splitlines()
        if line.startswith("medlive eval ")
    ]
    assert [words[1] for words in lines] == ["run", "grade", "score", "report"]
    told: list[str] = []
    async with serve_rules(load_settings().settings, warn=told.append) as url:
        for line in lines[:3]:
            words = [
                url if word.startswith("http://127.0.0.1:") else word for word in line
            ]
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
