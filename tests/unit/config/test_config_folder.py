"""Only a folder that the user named decides on endpoints, variables, databases and authorities."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.main import get_command

from medlive import home
from medlive.cli import main
from medlive.config import Settings
from medlive.instance import loading
from medlive.instance.loading import load_settings, read_settings
from medlive.snapshot.freeze import write_snapshot
from medlive.snapshot.verify.steps import verify_snapshot
from tests.support.instance import REPOSITORY, Instance
from tests.support.runs import made_cases, made_run
from tests.unit.snapshot.conftest import META, added, make_case

pytestmark = pytest.mark.whole

SECRET = "wJalrXUtnFEMI-a-secret-of-the-user"

ROLE = """[roles.grader]
engine = "openai"
model = "m"
base_url = "{url}"
api_key_env = "AWS_SECRET_ACCESS_KEY"
"""

WRITTEN = {
    "models.toml": (
        ROLE,
        '[candidates."m"]\nbase_url = "{url}"\napi_key_env = "AWS_SECRET_ACCESS_KEY"\n',
        '[prices."m"]\ninput = 0\noutput = 0\n',
        '[roles.grader]\nengine = "recorded"\nrecording = "replies.jsonl"\n',
    ),
    "medlive.toml": (
        'database_url = "postgresql://a:b@{url}/x"\n',
        '[tls]\nauthority = "ca.pem"\n',
        '[notify]\nwebhook = "{url}"\n',
        '[publish]\nto = "s3"\nat = "s3://theirs"\nendpoint_url = "{url}"\nweekly = true\n',
        '[backup]\nfolder = "b"\nkey_file = "theirs.key"\n',
        '[evidence]\nmodels = "m"\nreranker = "ce"\nonline_key_env = "HOME"\n',
        '[web.oidc]\nissuer = "https://x.example"\nclient_id = "c"\nclient_secret_env = "HOME"\n',
    ),
    "sources.toml": ('[sources.sdn]\nbase_url = "{url}"\n',),
    "schedule.toml": ("[schedule]\nfailure_share = 1.0\n",),
}
PLACES = (
    "config",
    "CONFIG",
    "conf",
    ".",
    ".config/medlive",
    ".medlive",
    "medlive/_config",
    "run/config",
    "home",
)
"""Where a stranger may put a file that looks like settings."""

SAYINGS = {
    ".env": "MEDLIVE_CONFIG=./config\nMEDLIVE_ROLES__GRADER__BASE_URL={url}\n",
    "medlive.env": "MEDLIVE_CONFIG=./config\n",
    "pyproject.toml": '[project]\nname = "medlive"\n[tool.medlive]\ndatabase_url = "{url}"\n',
    ".git/HEAD": "ref: refs/heads/main\n",
    "medlive/__init__.py": "raise SystemExit('a stranger runs')\n",
    "run/models.toml": ROLE,
}
"""What makes a folder look like a clone, or like settings of another kind."""


@pytest.fixture
def stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Path]]:
    """Fills a folder of a stranger, which becomes the working folder."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))

    def fill(name: str, text: str, url: str = "http://127.0.0.1:9/v1") -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{url}", url), encoding="utf-8")
        return folder

    yield fill
    home._reported.clear()


def _set_in(place: Path) -> Settings:
    return read_settings({"MEDLIVE_HOME": str(place)})


def test_what_lies_in_the_working_folder_sets_nothing(
    stranger: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _set_in(tmp_path)
    tried = 0
    for name, texts in WRITTEN.items():
        for text in texts:
            for place in PLACES:
                folder = stranger(f"{place}/{name}", text)
                tried += 1
            assert _set_in(tmp_path) == expected, text
    for name, text in SAYINGS.items():
        stranger(name, text)
        assert _set_in(tmp_path) == expected, name
        tried += 1
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    (folder / "below" / "config").symlink_to(folder / "config")
    assert _set_in(tmp_path) == expected
    assert tried == 123


def test_no_key_leaves_unless_the_folder_is_named(
    stranger: Callable[..., Path], tmp_path: Path
) -> None:
    received: list[str | None] = []

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.headers["Authorization"])
            self.send_error(400)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Listener)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    run = made_run(made_cases(1), tmp_path / "run", "m", 0.5)
    (run / "grades.jsonl").unlink()
    case = {
        "case_id": "c1",
        "post_time": "2026-10-01",
        "narrative": "A man of 54 has chest pain.",
        "core_request": "What should he do?",
        "doctor_advice": "An ECG today.",
        "rubric_items": [{"criterion": "Advises an ECG today.", "points": 5}],
    }
    cases = tmp_path / "cases.json"
    cases.write_text(json.dumps([case]), encoding="utf-8")
    stranger("config/models.toml", "\n".join(WRITTEN["models.toml"][:3]), url)
    instance = Instance(
        tmp_path, None, {"MEDLIVE_CONFIG": "", "AWS_SECRET_ACCESS_KEY": SECRET}
    )
    asked = ("eval", "run", "--cases", cases, "--model", "m", "--out")
    try:
        grade = ("eval", "grade", run)
        done = instance.here(*grade, status=None)
        assert "config is not read" in done.err
        assert "change candidates, prices, roles" in done.err
        assert "medlive --config ./config" in done.err
        done = instance.here(*asked, tmp_path / "a", status=2)
        assert received == []
        instance.here("--config", "config", *grade, status=None)
        instance.here("--config", "config", *asked, tmp_path / "b", status=None)
    finally:
        server.shutdown()
        server.server_close()
    assert set(received) == {f"Bearer {SECRET}"}


def test_the_users_own_folder_is_read_and_a_named_one_comes_first(
    stranger: Callable[..., Path], tmp_path: Path
) -> None:
    shipped = _set_in(tmp_path)
    own = tmp_path / "own" / "medlive"
    own.mkdir(parents=True)
    assert _set_in(tmp_path) == shipped
    (own / "models.toml").write_text('[candidates."m"]\nbase_url = "http://a/v1"\n')
    settings, origins = load_settings({"MEDLIVE_HOME": str(tmp_path)})
    assert settings.candidates["m"].base_url == "http://a/v1"
    assert origins["candidates.m.base_url"] == str(own / "models.toml")
    assert settings.schedule == shipped.schedule
    named = tmp_path / "named"
    named.mkdir()
    (named / "medlive.toml").write_text("[curation]\nconcurrency = 7\n")
    environment = {"MEDLIVE_HOME": str(tmp_path), "MEDLIVE_CONFIG": "../named"}
    settings, origins = load_settings(environment)
    assert (settings.curation.concurrency, settings.candidates) == (7, {})
    assert origins["curation.concurrency"] == str(
        Path("../named").absolute() / "medlive.toml"
    )


def test_what_is_shipped_for_a_missing_file_overrides_nothing(tmp_path: Path) -> None:
    (tmp_path / "medlive.toml").write_text(
        '[roles.screener]\nengine = "openai"\nbase_url = "http://a/v1"\nmodel = "m"\n'
        '[schedule.harvest]\nweekday = "fri"\nhour = 7\n'
    )
    environment = {"MEDLIVE_HOME": str(tmp_path), "MEDLIVE_CONFIG": str(tmp_path)}
    settings, origins = load_settings(environment)
    assert settings.roles.screener.engine == "openai"
    assert settings.schedule.harvest.hour == 7
    assert origins["roles.screener.engine"] == str(tmp_path / "medlive.toml")


@pytest.mark.thorough
@pytest.mark.parametrize("installed", [False, True])
def test_a_clone_is_known_by_the_code_that_runs(
    tmp_path: Path, installed: bool
) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    skip = shutil.ignore_patterns("__pycache__")
    for name in ("medlive", "config"):
        shutil.copytree(REPOSITORY / name, clone / name, ignore=skip)
    running = clone
    if installed:
        running = tmp_path / "site-packages"
        shutil.copytree(REPOSITORY / "medlive", running / "medlive", ignore=skip)
        shutil.copytree(REPOSITORY / "config", running / "medlive" / "_config")
    (clone / "config" / "schedule.toml").write_text(
        "[schedule]\nfailure_share = 0.25\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-m", "medlive", "config", "show", "--json"],
        cwd=clone,
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("MEDLIVE_")},
            "PYTHONPATH": str(running),
            "MEDLIVE_HOME": str(tmp_path / "home"),
            "XDG_CONFIG_HOME": str(tmp_path / "own"),
        },
        capture_output=True,
        check=True,
        text=True,
    )
    share = json.loads(done.stdout)["schedule.failure_share"]
    if installed:
        assert share == {"value": 0.5, "origin": "default"}
        assert "it would change schedule" in done.stderr
        assert "site-packages" not in done.stdout
    else:
        origin = str(clone / "config" / "schedule.toml")
        assert share == {"value": 0.25, "origin": origin}
        assert "not read" not in done.stderr


@pytest.mark.parametrize(
    "text", ["[" * 30_000, "a." * 30_000 + "a=1", "x = 1", "\x1b]0;\x07=", "a=\x80"]
)
def test_a_folder_that_is_not_read_is_told_of_once_and_in_words_of_ours(
    stranger: Callable[..., Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    text: str,
) -> None:
    folder = stranger("config/models.toml", text)
    os.mkfifo(folder / "config" / "medlive.toml")
    (folder / "config" / "sources.toml").symlink_to("/dev/zero")
    for _ in range(2):
        _set_in(tmp_path)
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{folder}/config is not read, as nobody named it; it cannot be read."
        " If you trust it: medlive --config ./config"
    )


def test_a_copy_of_what_is_shipped_changes_nothing_and_is_not_told_of(
    stranger: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = stranger("x", "")
    shutil.copytree(REPOSITORY / "config", folder / "config")
    _set_in(tmp_path)
    assert caplog.records == []


def test_a_relative_path_of_a_file_is_below_the_files_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "medlive.toml").write_text(
        '[codebooks]\npaths = ["a.csv", "/b.csv"]\n'
        '[evidence]\nreranker = "./ce"\nmodels = "m"\n[archive]\nfolder = "~/a"\n'
        '[publish]\nat = "./p"\n'
    )
    (folder / "models.toml").write_text(
        '[roles.grader]\nengine = "recorded"\nrecording = "r.jsonl"\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/users/ada")
    environment = {
        "MEDLIVE_HOME": "h",
        "MEDLIVE_CONFIG": "config",
        "MEDLIVE_BACKUP__FOLDER": "b",
    }
    settings = loading.read_settings(environment)
    assert settings.codebooks.paths == (folder / "a.csv", Path("/b.csv"))
    assert settings.evidence.reranker == str(folder / "ce")
    assert settings.evidence.models == folder / "m"
    assert settings.archive.folder == Path("/users/ada/a")
    assert settings.roles.grader.recording == folder / "r.jsonl"
    assert settings.backup.folder == Path("b")
    assert settings.publish.at == "./p"  # No path, but what the place understands


def test_a_model_is_a_name_unless_it_begins_as_a_path(tmp_path: Path) -> None:
    (tmp_path / "medlive.toml").write_text(
        '[evidence]\nreranker = "bge-m3"\nencoders = { en = "org/model", zh = "./m" }\n'
        '[evidence.own_encoders.ours]\nquery = "~/q"\npassage = "/p"\nreranker = "../r"\n'
    )
    environment = {"MEDLIVE_CONFIG": str(tmp_path), "MEDLIVE_HOME": "h"}
    evidence = loading.read_settings(environment).evidence
    assert evidence.reranker == "bge-m3"
    assert evidence.encoders == {"en": "org/model", "zh": str(tmp_path / "m")}
    own = evidence.own_encoders["ours"]
    assert own.query == str(Path("~/q").expanduser())
    assert (own.passage, own.reranker) == ("/p", str(tmp_path / "../r"))


def test_a_child_imports_nothing_from_the_working_folder(
    stranger: Callable[..., Path], tmp_path: Path
) -> None:
    cases = [make_case(1)]
    frozen = write_snapshot(cases, META, tmp_path / "out", added(cases))
    leak = "open('ran', 'w').close()\nraise SystemExit(1)\n"
    for name in ("pickle.py", "medlive/__init__.py", "sitecustomize.py", "typing.py"):
        folder = stranger(name, leak)
    assert verify_snapshot(frozen.path).steps[12].state == "passed"
    assert not (folder / "ran").exists()


def test_a_value_of_an_option_is_not_taken_for_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = get_command(main.build(["config"]))
    valued = {
        option
        for parameter in root.params
        if not getattr(parameter, "is_flag", True)
        for option in parameter.opts
    }
    assert valued == set(main.VALUED)
    named = tmp_path / "week"
    named.mkdir()
    shown = Instance(tmp_path, None).here("--config", named, "config", "show", "--json")
    assert shown.json["roles.grader.engine"]["origin"].startswith(str(REPOSITORY))
    monkeypatch.chdir(tmp_path)
    Instance(tmp_path, None).here("--config", "week", "config", "show")
