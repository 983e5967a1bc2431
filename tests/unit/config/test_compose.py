"""docker-compose.yml and the image agree with the command line and the repository."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from medlive.cli.main import COMMANDS, build
from medlive.config import Settings

ROOT = Path(__file__).parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
OURS = {name: service for name, service in COMPOSE["services"].items() if service["image"].startswith("medlive:")}


def test_it_runs_its_services_from_one_image() -> None:
    assert set(OURS) == {"migrate", "scheduler", "worker", "web", "rooms"}
    assert set(COMPOSE["services"]) - set(OURS) == {"postgres"}
    assert len({str(service["build"]) for service in OURS.values()}) == 1
    assert (ROOT / OURS["web"]["build"]["dockerfile"]).is_file()


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_service_runs_a_command_of_the_program_with_options_that_it_has(name: str) -> None:
    words: list[str] = OURS[name]["command"]
    command: Any = typer.main.get_command(build(words)).commands[words[0]]  # type: ignore[attr-defined]
    assert words[0] in COMMANDS
    rest = words[1:]
    if hasattr(command, "commands"):
        command, rest = command.commands[rest[0]], rest[1:]
    # Reads the words as the program would, without running it.
    command.make_context(name, list(rest))


def test_nothing_starts_before_the_schema_is_there() -> None:
    assert OURS["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for name in set(OURS) - {"migrate"}:
        assert OURS[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}, name


def test_named_volumes_are_declared_and_bound_folders_exist() -> None:
    for name, service in COMPOSE["services"].items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (ROOT / source).is_dir() if source.startswith(".") else source in COMPOSE["volumes"], name


def test_settings_that_it_gives_are_settings() -> None:
    for name, service in OURS.items():
        for variable in service["environment"]:
            key = variable.removeprefix("MEDLIVE_").lower()
            assert key.split("__")[0] in Settings.model_fields, (name, variable)


def test_only_this_machine_reaches_the_web_port_and_no_password_is_written_down() -> None:
    assert all(port.startswith("127.0.0.1:") for s in COMPOSE["services"].values() for port in s.get("ports", ()))
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert not re.search(r"PASSWORD: +[^$\s]", text)


def test_the_image_copies_what_exists_and_installs_what_is_there() -> None:
    steps = _steps()
    copied = [word for keyword, words in steps if keyword == "COPY" for word in words[:-1]]
    assert copied
    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert {"pyproject.toml", "medlive", "migrations", "config"} <= set(copied)
    assert dict(steps)["USER"] != ["root"]
    assert dict(steps)["ENTRYPOINT"] == ["[medlive]"]
    extra = re.search(r"\.\[(\w+)\]", " ".join(w for k, words in steps if k == "RUN" for w in words))
    assert f"\n{extra.group(1)} = [" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def _steps() -> list[tuple[str, list[str]]]:
    """(instruction, words) of the Dockerfile, continued lines joined."""
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0].upper(), shlex.split(line)[1:]) for line in lines]
