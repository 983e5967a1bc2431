"""The tutorials, line by line: what a page types is run, and what it shows is looked for in what is printed.

A page's `console` blocks hold commands after `$`, and below each the part of its output that matters, `…` for anything.
Blocks with a title are files, written where the title says; other `python` blocks are run.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from medlive.db import embedded
from tests.support.instance import REPOSITORY
from tests.support.server import own_database

FOLDERS = (
    REPOSITORY / "docs" / "tutorials",
    REPOSITORY / "docs" / "builders" / "tutorials",
)
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
_SETS = (
    # Evaluate goes on in the home of the first, held cases in the same clone
    ("first-release", "evaluate", "held-cases"),
    ("site-adapter",),
    ("corpus",),
    ("protocol",),
)
_MARK = "tutorial-step"
_LIMIT_S = 300


@dataclass
class Step:
    """A command, and the lines that the page shows of its output."""

    command: str
    shown: list[str] = field(default_factory=list)


def tutorials() -> dict[str, Path]:
    """Name of a tutorial → its page."""
    pages: dict[str, Path] = {}
    for folder in FOLDERS:
        pages |= {page.stem: page for page in folder.glob("*.md")}
    return pages


def steps_of(page: str) -> Iterator[Step]:
    """Every block of a page as commands, in order."""
    for kind, title, body in _BLOCK.findall(page):
        if title:
            folder = Path(title).parent
            yield Step(
                f"mkdir -p {folder}; cat > {title} <<'END-OF-FILE'\n{body}END-OF-FILE"
            )
        elif kind == "python":
            yield Step(f"python - <<'END-OF-SCRIPT'\n{body}END-OF-SCRIPT")
        elif kind == "console":
            yield from _console_steps(body)


def _console_steps(body: str) -> Iterator[Step]:
    step = None
    for line in body.splitlines():
        if line.startswith("$ "):
            if step is not None:
                yield step
            step = Step(line[2:])
        else:
            assert step is not None, f"output without a command: {line}"
            step.shown.append(line)
    if step is not None:
        yield step


def missing_line(shown: list[str], printed: str) -> str | None:
    """The first shown line that the output does not have in its place; spaces count once."""
    rest = " ".join(printed.split())
    for line in shown:
        parts = [" ".join(part.split()) for part in line.split("…")]
        found = re.search(".*?".join(map(re.escape, parts)), rest)
        if found is None:
            return line
        rest = rest[found.end() :]
    return None


Run = Callable[[list[str]], None]


@pytest.fixture
def run(server: str, tmp_path: Path) -> Iterator[Run]:
    """Runs pages one after another in one shell, in a copy of what a clone holds."""
    # The embedded server runs as another user, who must get in.
    clone = Path(tempfile.mkdtemp(prefix="medlive-tutorial-"))
    clone.chmod(0o755)
    for name in ("medlive", "config", "migrations"):
        shutil.copytree(
            REPOSITORY / name,
            clone / name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    program = tmp_path / "bin" / "medlive"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m medlive "$@"\n')
    program.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MEDLIVE_")}
    folders = [program.parent, Path(sys.executable).parent]
    path = os.pathsep.join([*map(str, folders), kept["PATH"]])
    with own_database(server) as url:
        environment = {
            **kept,
            "PATH": path,
            "PYTHONPATH": str(clone),
            "MEDLIVE_CONFIG": str(clone / "config"),
            "MEDLIVE_DATABASE_URL": url,
            "COLUMNS": "200",
        }

        def run_pages(names: list[str]) -> None:
            steps: list[Step] = []
            for name in names:
                page = tutorials()[name].read_text(encoding="utf-8")
                steps += steps_of(page)
            if any(step.command == "medlive demo" for step in steps):
                del environment["MEDLIVE_DATABASE_URL"]  # the demo has its own
            check_steps(steps, run_steps(steps, clone, environment))

        yield run_pages
    for home in ("home", "demo-home"):
        embedded.stop(clone / home)
    shutil.rmtree(clone, ignore_errors=True)


def run_steps(steps: list[Step], folder: Path, environment: dict[str, str]) -> str:
    """Run all commands in one shell; return what they printed, a mark with its exit status after each."""
    lines = []
    for step in steps:
        lines += [step.command, f'echo "{_MARK} $?"']
    script, printed = folder / "tutorial.sh", folder / "printed.txt"
    script.write_text("\n".join(lines), encoding="utf-8")
    with printed.open("wb") as out:
        shell = subprocess.Popen(
            ["bash", str(script)],
            cwd=folder,
            env=environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        shell.wait(_LIMIT_S)
    finally:
        # What a page left running in the background
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    return printed.read_text(encoding="utf-8")


def check_steps(steps: list[Step], printed: str) -> None:
    """Fail for the first command that failed, or that did not print what its page shows."""
    parts = re.split(rf"{_MARK} (\d+)\n", printed)
    outputs, statuses = parts[:-1:2], parts[1::2]
    assert len(outputs) == len(steps)
    for step, output, status in zip(steps, outputs, statuses, strict=True):
        assert status == "0", f"$ {step.command}\n{output}"
        line = missing_line(step.shown, output)
        assert line is None, f"$ {step.command}\n{output}\nwithout: {line}"


def test_a_line_that_is_not_printed_is_noticed() -> None:
    assert missing_line(["… kept │ 6"], "stage\nrubric │ kept   │ 6") is None
    assert missing_line(["b", "a"], "a\nb") == "a"
    steps = [Step("true", []), Step("false", [])]
    check_steps(steps[:1], f"{_MARK} 0\n")
    with pytest.raises(AssertionError):
        check_steps(steps, f"{_MARK} 0\n{_MARK} 1\n")


def test_every_tutorial_is_run() -> None:
    assert set(tutorials()) == {name for names in _SETS for name in names}


@pytest.mark.thorough
@pytest.mark.parametrize("names", _SETS, ids="-".join)
def test_a_tutorial_runs_line_by_line(names: list[str], run: Run) -> None:
    run(list(names))
