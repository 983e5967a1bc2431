"""Plugins: from a folder that was named, and from no other that others may write to."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from medlive import plugins
from medlive.errors import ConfigError
from medlive.evaluation.protocols.registry import known_protocols
from medlive.evaluation.protocols.safety import PassiveSafety
from medlive.instance.loading import load_settings
from medlive.service.work.taken import STEP, check_job
from medlive.sources.registry import known_sites

SITE = "from medlive.sources.sites.sdn import Sdn\nclass Own(Sdn):\n    name = 'own'\nSITE = Own\n"

ASKS = """
from medlive.evaluation.grading.questions import Question
from medlive.llm.ask import ReplyModel
from medlive.llm.engine import Prompt
class Said(ReplyModel):
    task = "own.said"
    said: bool
OWN = Prompt(Said.task, "Say so.")
PROTOCOL = Question(case_id="a", part="said", inputs={}, reply=Said, prompt=OWN)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "plugins"
    folder.mkdir(mode=0o755)
    (folder / "own.py").write_text(SITE)
    (folder / "own.py").chmod(0o644)
    yield folder
    plugins.use_plugins(None)


def test_a_folder_adds_an_adapter_once_it_is_named(folder: Path) -> None:
    (folder / ".#own.py").symlink_to("an editor's lock")
    assert "own" not in known_sites()
    plugins.use_plugins(folder)
    assert "own" in known_sites()
    check_job(STEP, "harvest", {"step": "harvest:own", "week": "2026.W47"})


def test_a_module_of_the_folder_may_define_a_dataclass(folder: Path) -> None:
    (folder / "own.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        f"@dataclass\nclass Row:\n    number: int\n{SITE}"
    )
    plugins.use_plugins(folder)
    assert "own" in known_sites()


def test_a_module_of_the_folder_may_ask_with_instructions_of_its_own(
    folder: Path,
) -> None:
    (folder / "own.py").write_text(ASKS)
    plugins.use_plugins(folder)
    (question,) = plugins.load_plugins("protocols")
    assert question.request.prompt.text == "Say so."


@pytest.mark.parametrize("name", [".", "own.py"])
@pytest.mark.security
def test_what_others_may_write_to_is_not_run(folder: Path, name: str) -> None:
    (folder / "own.py").write_text("raise SystemExit('it ran')")
    (folder / name).chmod(0o777)
    plugins.use_plugins(folder)
    with pytest.raises(ConfigError, match="others may write"):
        known_sites()


def test_what_is_wrong_with_a_plugin_is_said(folder: Path) -> None:
    plugins.use_plugins(folder)
    (folder / "own.py").write_text("import nothing_of_that_name")
    with pytest.raises(ConfigError, match=r"own\.py cannot be loaded: ModuleNotFound"):
        known_sites()
    plugins.use_plugins(None)


def test_a_known_name_is_not_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "own.py").write_text(SITE.replace("'own'", "'sdn'"))
    plugins.use_plugins(folder)
    with pytest.raises(ConfigError, match="two adapters named 'sdn'"):
        known_sites()


def test_an_installed_package_adds_a_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(PassiveSafety):
        name = "own"

    monkeypatch.setattr(EntryPoint, "load", lambda _: Own)
    entry = EntryPoint("own", "package:Own", "medlive.protocols")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
    plugins._entry_points.cache_clear()
    try:
        assert known_protocols()["own"] is Own
    finally:
        plugins._entry_points.cache_clear()


def test_a_variable_that_is_nearly_one_of_medlives_is_refused(tmp_path: Path) -> None:
    named = {"MEDLIVE_HOME": str(tmp_path), "MEDLIVE_OPENAI_KEY": "a key's own"}
    load_settings(named)
    with pytest.raises(ConfigError, match="unknown variable") as refused:
        load_settings(named | {"MEDLIVE_SIGNING_KEYFILE": "x"})
    assert refused.value.hint == "is MEDLIVE_SIGNING_KEY_FILE meant?"
