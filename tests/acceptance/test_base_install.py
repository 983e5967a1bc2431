"""The base package alone, in a fresh environment: what a consumer does, without the service's libraries."""

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instance import REPOSITORY
from tests.support.releases import case, release
from tests.support.waiting import LIMIT_S

_COPIED = ("medlive", "migrations", "config")
_FILES = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE")
_LOAD = "import sys; from medlive import load_snapshot; print(len(load_snapshot(sys.argv[1])))"
_ABSENT = "import importlib.util as u; assert u.find_spec('sqlalchemy') is None"


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the package and what it declares, and nothing else."""
    folder = tmp_path_factory.mktemp("base")
    source, venv = folder / "source", folder / "venv"
    source.mkdir()
    for name in _COPIED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, source / name, ignore=ignored)
    for name in _FILES:
        shutil.copy(REPOSITORY / name, source / name)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    done = subprocess.run(
        [*pip, "-c", str(source / "constraints.txt"), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    unreachable = ("No matching distribution", "Could not find a version", "Connection")
    if done.returncode and any(words in done.stderr for words in unreachable):
        pytest.skip("no package index is reachable, or it lacks a pinned version")
    assert done.returncode == 0, done.stderr
    return venv / "bin"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The surroundings of a consumer's commands: a home of their own, nothing of this checkout."""
    ours = ("MEDLIVE_", "PYTHONPATH", "COVERAGE")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return {**kept, "MEDLIVE_HOME": str(tmp_path / "home"), "COLUMNS": "200"}


@pytest.fixture
def endpoint(
    binaries: Path, environment: dict[str, str], tmp_path: Path
) -> Iterator[str]:
    """A sample endpoint on loopback, served by the fresh environment too."""
    said = tmp_path / "serve.log"
    with said.open("wb") as log:
        server = subprocess.Popen(
            [str(binaries / "medlive"), "llm", "serve", "--port", "0"],
            cwd=tmp_path,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        yield _address(server, said)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(LIMIT_S)


def _address(server: "subprocess.Popen[bytes]", said: Path) -> str:
    """The address that the server prints once it listens."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end and server.poll() is None:
        for word in said.read_text().split():
            if word.startswith("http://127.0.0.1:"):
                urllib.request.urlopen(f"{word}/models", timeout=LIMIT_S).close()
                return word
        time.sleep(0.1)
    raise AssertionError(said.read_text())


@pytest.mark.thorough
def test_the_consumer_s_path_needs_the_base_package_alone(
    binaries: Path, environment: dict[str, str], endpoint: str, tmp_path: Path
) -> None:
    snapshot = release(tmp_path, "2026.W46", [case("a1"), case("a2")]).path

    def run(program: str, *arguments: str | Path) -> str:
        done = subprocess.run(
            [str(binaries / program), *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (
            f"{program} {arguments}\n{done.stdout}{done.stderr}"
        )
        return done.stdout

    run("python", "-c", _ABSENT)
    assert run("python", "-c", _LOAD, snapshot).strip() == "2"
    assert "passed" in run("medlive", "snapshot", "verify", snapshot)
    asked = ("--base-url", endpoint)
    allowed = ("--allow", "not-publishable")
    model = ("--model", "sample-generic")
    run("medlive", "eval", "run", "--cases", snapshot, *model, *asked, "--out", "run")
    run("medlive", "eval", "grade", "run", "--grader", "rules", *asked)
    assert "sample-generic" in run("medlive", "eval", "score", "run", *allowed)
    run("medlive", "eval", "report", "run", "--out", "report", *allowed)
    assert (tmp_path / "report" / "index.html").is_file()
