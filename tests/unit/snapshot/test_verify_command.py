"""`medlive snapshot verify`: its exit status, and what it says of the signature."""

import json
from pathlib import Path

import pytest

from medlive.__main__ import run
from medlive.integrity.signing import generate
from tests.support.snapshots import Line, build_line


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Line:
    return build_line(tmp_path_factory.mktemp("line"))


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path / "home"))


def test_the_key_decides_what_is_proved(
    releases: Line, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, other = tmp_path / "own.pub", tmp_path / "other.pub"
    own.write_text(releases.key.public.text())
    other.write_text(generate()[1])
    command = ["snapshot", "verify", str(releases.last), "--json"]
    assert run(command) == 0
    said = capsys.readouterr()
    assert "not origin" in said.err
    assert json.loads(said.out)["trust"] == "integrity"
    assert run([*command, "--public-key", str(own)]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["trust"] == "origin"
    assert len(json.loads(said.out)["steps"]) == 19
    assert run([*command, "--public-key", str(other)]) == 1
    failed = [
        s
        for s in json.loads(capsys.readouterr().out)["steps"]
        if s["state"] == "failed"
    ]
    assert [s["number"] for s in failed] == [1]
    assert failed[0]["findings"][0]["file"] == "manifest.json"


def test_what_cannot_be_verified_is_wrong_use(
    releases: Line, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = str(releases.last)
    no_key = tmp_path / "no.pub"
    no_key.write_text("hello")
    assert run(["snapshot", "verify", str(tmp_path / "nowhere")]) == 2
    assert run(["snapshot", "verify", last, "--public-key", str(no_key)]) == 2
    assert run(["snapshot", "verify", last, "--public-key", str(tmp_path)]) == 2
    assert "Traceback" not in capsys.readouterr().err
