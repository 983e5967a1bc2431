"""One installation as its maintainer has it: a home, a configuration, a database, and the command line."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

import medlive.__main__
from tests.support.waiting import LIMIT_S

REPOSITORY = Path(__file__).parents[2]
ROLES = ("screener", "validator", "controller", "rubric", "reader", "grader")


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


@dataclass(frozen=True, slots=True)
class Instance:
    """A home with its settings; every command runs in a process of its own."""

    home: Path
    url: str | None
    """The database; None for the embedded one under `home`."""
    settings: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """This process's environment without any medlive of its own, and this instance's settings."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("MEDLIVE_")}
        if self.url is not None:
            kept["MEDLIVE_DATABASE_URL"] = self.url
        defaults = {
            "MEDLIVE_HOME": str(self.home),
            "MEDLIVE_CONFIG": str(REPOSITORY / "config"),
            # Most endpoints of the tests are the rules engine, which writes no answers.
            "MEDLIVE_RUBRIC__PROVE": "false",
        }
        return {**kept, **defaults, **self.settings}

    def start(self, *arguments: str | Path) -> "subprocess.Popen[str]":
        """Begin a command and do not wait for it."""
        return subprocess.Popen(
            [sys.executable, "-m", "medlive", *map(str, arguments)],
            cwd=self.home,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(
        self, process: "subprocess.Popen[str]", *, limit_s: float = LIMIT_S
    ) -> Done:
        """Wait for a command; one that hangs is killed and fails the test."""
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(
                f"hangs after {limit_s} s: {process.args!r}\n{out}\n{err}"
            ) from None
        assert "Traceback" not in err, err
        return Done(process.returncode, out, err)

    def run(self, *arguments: str | Path, status: int | None = 0) -> Done:
        """Run a command to its end; `status` None takes any exit status."""
        done = self.finish(self.start(*arguments))
        if status is not None:
            assert done.status == status, (
                f"{arguments} → {done.status}\n{done.out[-2000:]}\n{done.err[-4000:]}"
            )
        return done

    def here(self, *arguments: str | Path, status: int | None = 0) -> Done:
        """Run a command in this process, sparing a start of Python; else as `run` does."""
        out, err = io.StringIO(), io.StringIO()
        before = dict(os.environ)
        os.environ.clear()
        os.environ.update(self.environment())
        try:
            with redirect_stdout(out), redirect_stderr(err):
                found = medlive.__main__.run([str(a) for a in arguments])
        finally:
            os.environ.clear()
            os.environ.update(before)
        done = Done(found, out.getvalue(), err.getvalue())
        if status is not None:
            assert done.status == status, (
                f"{arguments} → {done.status}\n{done.out[-2000:]}\n{done.err[-4000:]}"
            )
        return done

    def rows(
        self, query: str, parameters: Sequence[object] = ()
    ) -> list[tuple[Any, ...]]:
        """What a query finds in this instance's database."""
        with psycopg.connect(
            self.url.replace("postgresql+psycopg://", "postgresql://")
        ) as connection:
            return connection.execute(query.encode(), parameters).fetchall()

    def change(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Change this instance's database behind the program's back."""
        with psycopg.connect(
            self.url.replace("postgresql+psycopg://", "postgresql://")
        ) as connection:
            connection.execute(statement.encode(), parameters)

    def one(self, query: str) -> Any:
        """The single value that a query finds."""
        ((value,),) = self.rows(query)
        return value

    def places(self) -> dict[str, tuple[str, str | None, str | None, str]]:
        """`<source>/<thread id>` → (outcome, stage, reason, detail) of its latest revision."""
        found: dict[str, tuple[str, str | None, str | None, str]] = {}
        for name, passed, rule_reason, outcome, stage, reason, detail in self.rows(
            _PLACES
        ):
            if passed is None:
                found[name] = ("pending", "filters", None, "")
            elif not passed:
                found[name] = ("rejected", "filters", rule_reason, "")
            else:
                found[name] = (outcome or "pending", stage, reason, detail or "")
        return found


_PLACES = """
SELECT DISTINCT ON (t.id) t.source || '/' || t.thread_id,
       f.passed, f.reason, c.outcome, c.stage, c.reason, c.detail
FROM threads t
JOIN thread_revisions r ON r.thread_id = t.id
LEFT JOIN filter_results f ON f.revision_id = r.id
LEFT JOIN curations c ON c.revision_id = r.id
ORDER BY t.id, r.revision DESC, f.decided_at DESC, c.id DESC
"""


def write_models(folder: Path, base_url: str, **values: object) -> Path:
    """A configuration folder whose roles all ask the model "rules" at one endpoint; its path.

    `values` are further keys of each role.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("medlive.toml", "sources.toml"):
        (folder / name).write_text(
            (REPOSITORY / "config" / name).read_text(encoding="utf-8"), encoding="utf-8"
        )
    keys: dict[str, object] = {
        "engine": "openai",
        "base_url": base_url,
        "model": "rules",
        **values,
    }
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    text = "\n".join(f"[roles.{role}]\n{lines}" for role in ROLES)
    (folder / "models.toml").write_text(text, encoding="utf-8")
    return folder


def write_lines(path: Path, values: Iterable[object]) -> Path:
    """A JSON Lines file of plain values."""
    path.write_text(
        "".join(json.dumps(v, ensure_ascii=False) + "\n" for v in values),
        encoding="utf-8",
    )
    return path
