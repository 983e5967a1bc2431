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
from medlive.instance.loading import DATABASE_PARTS
from medlive.integrity.signing import FILE_VARIABLE

ROOT = Path(__file__).parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load(
    (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
)
OURS = {
    name: service
    for name, service in COMPOSE["services"].items()
    if service["image"].startswith("medlive:")
}


def test_it_runs_its_services_from_one_image() -> None:
    assert set(OURS) == {
        "migrate",
        "scheduler",
        "worker",
        "backup",
        "web",
        "rooms",
        "metrics",
    }
    assert set(COMPOSE["services"]) - set(OURS) == {"postgres"}
    assert len({str(service["build"]) for service in OURS.values()}) == 1
    assert (ROOT / OURS["web"]["build"]["dockerfile"]).is_file()


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_service_runs_a_command_of_the_program_with_options_that_it_has(
    name: str,
) -> None:
    read_command(OURS[name]["command"])


def read_command(words: list[str]) -> None:
    """Read the words as the program would, without running it."""
    command: Any = typer.main.get_command(build(words)).commands[words[0]]  # type: ignore[attr-defined]
    assert words[0] in COMMANDS
    rest = words[1:]
    if hasattr(command, "commands"):
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context(words[0], list(rest))


def test_nothing_starts_before_the_schema_is_there() -> None:
    assert OURS["migrate"]["depends_on"] == {
        "postgres": {"condition": "service_healthy"}
    }
    for name in set(OURS) - {"migrate"}:
        assert OURS[name]["depends_on"]["migrate"] == {
            "condition": "service_completed_successfully"
        }, name


def test_named_volumes_are_declared_and_bound_folders_exist() -> None:
    for name, service in COMPOSE["services"].items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (
                (ROOT / source).exists()
                if source.startswith(".")
                else source in COMPOSE["volumes"]
            ), name


def test_settings_that_it_gives_are_settings() -> None:
    for name, service in OURS.items():
        for variable in service["environment"]:
            key = variable.removeprefix("MEDLIVE_").lower()
            known = {
                *Settings.model_fields,
                "config",
                FILE_VARIABLE.removeprefix("MEDLIVE_").lower(),
            }
            assert key.split("__")[0] in known or variable in DATABASE_PARTS, (
                name,
                variable,
            )


def test_no_service_is_given_the_passwords_of_others() -> None:
    given = {
        name: [f["path"] for f in service.get("env_file", ())]
        for name, service in COMPOSE["services"].items()
    }
    assert {name for name, files in given.items() if files} == {"scheduler", "worker"}
    assert {file for files in given.values() for file in files} == {"medlive.env"}
    for name in OURS:
        passwords = {
            v for k, v in OURS[name]["environment"].items() if k.endswith("PASSWORD")
        }
        assert len(passwords) == 1, name


def test_the_public_part_sees_what_is_given_out_alone() -> None:
    paths = {volume.split(":")[1] for volume in OURS["web"]["volumes"]}
    given_out = {f"/data/{name}" for name in ("snapshots", "reports", "bundles")}
    assert paths == given_out | {"/data/evidence", "/etc/medlive"}
    assert all(volume.endswith(":ro") for volume in OURS["web"]["volumes"])
    image = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    for name, service in OURS.items():
        others = {volume.split(":")[1] for volume in service["volumes"]}
        assert given_out <= others, name
        # A named volume gets its owner from the image's folder.
        assert all(path in image for path in given_out)


def test_the_public_unit_knows_no_key() -> None:
    folder = ROOT / "deploy" / "systemd"
    own = (folder / "medlive@web.service.d" / "public.conf").read_text("utf-8")
    shared = (folder / "medlive@.service").read_text("utf-8")
    assert "\nEnvironmentFile=\n" in own
    assert "EnvironmentFile=-/etc/medlive/keys.env" in shared
    assert "EnvironmentFile=-/etc/medlive/keys.env" not in own
    hidden = re.findall(r"-(/\S+)", own)
    for key in ("backup.key", "handle.key", "web.key", "keys", "archive"):
        assert f"/var/lib/medlive/{key}" in hidden
    assert "/etc/medlive/medlive.key" in hidden


def test_everything_is_probed_or_ends_and_the_web_is_not_the_owner() -> None:
    for name, service in COMPOSE["services"].items():
        probed = "test" in service.get("healthcheck", ())
        assert probed or service["restart"] == "no", name
    users = {
        name: s["environment"].get("MEDLIVE_DATABASE_USER", "medlive")
        for name, s in OURS.items()
    }
    web = dict.fromkeys(("web", "rooms", "metrics"), "web")
    owners = dict.fromkeys(("migrate", "backup"), "medlive")
    assert users == {
        **owners,
        **dict.fromkeys(("scheduler", "worker"), "worker"),
        **web,
    }


def test_only_this_machine_reaches_the_web_port_and_no_password_is_written_down() -> (
    None
):
    assert all(
        port.startswith("127.0.0.1:")
        for s in COMPOSE["services"].values()
        for port in s.get("ports", ())
    )
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert not re.search(r"PASSWORD: +[^$\s]", text)


def test_the_image_copies_what_exists_and_installs_what_is_there() -> None:
    steps = _steps()
    copies = [
        words
        for keyword, words in steps
        if keyword == "COPY" and not words[0].startswith("--from")
    ]
    copied = [word for words in copies for word in words[:-1]]
    assert copied
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{source}" for source in copied} == {
        line for line in ignored if line.startswith("!")
    }
    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert {"pyproject.toml", "medlive", "migrations", "config"} <= set(copied)
    assert int(dict(steps)["USER"][0]) > 0
    assert dict(steps)["ENTRYPOINT"] == ["[medlive]"]
    (extras,) = (
        words[0].removeprefix("EXTRAS=")
        for k, words in steps
        if k == "ARG" and "EXTRAS" in words[0]
    )
    assert OURS["web"]["build"]["args"]["EXTRAS"] == f"${{MEDLIVE_EXTRAS:-{extras}}}"
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert [
        extra for extra in extras.split(",") if f"\n{extra} = [" not in declared
    ] == []


def _steps() -> list[tuple[str, list[str]]]:
    """(instruction, words) of the Dockerfile, continued lines joined."""
    text = (
        (ROOT / "deploy" / "Dockerfile")
        .read_text(encoding="utf-8")
        .replace("\\\n", " ")
    )
    lines = [
        line for line in text.splitlines() if line.strip() and not line.startswith("#")
    ]
    return [(line.split()[0].upper(), shlex.split(line)[1:]) for line in lines]
