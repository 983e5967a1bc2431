"""A Compose project in a folder of its own, set up as deploy/README.md says, and what can be asked of it."""

import json
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from medlive.demo.samples import load_sample_threads
from tests.containers.images import FILES, MEDLIVE, ROOT
from tests.containers.shell import Broken, run, until

PROFILES: Final = ("rooms", "backup")
SUBNETS: Final = ("172.29.87.0/24", "172.29.88.0/24")
GATEWAY: Final = "172.29.87.1"
"""As which the web sees nginx on the host."""
FIRST_PORT: Final = 8800
SITES: Final = ("icliniq", "sdn", "dxy", "medlive")
"""In the order of the communities' ports."""
USER: Final = 10001


class Service(NamedTuple):
    """A container of a service."""

    name: str
    service: str
    state: str  # "running"
    health: str  # "healthy", "unhealthy", "starting"; "" where it is not probed
    restarts: int


class Project:
    """One project; its folder stands for the clone on a server."""

    def __init__(self, name: str, folder: Path, compose: Sequence[str]) -> None:
        """Keep what names it."""
        self.name, self.folder = name, folder
        self._compose = [*compose, f"--project-name={name}"]
        for file in ("docker-compose.yml", "compose.containers.yml"):
            self._compose.append(f"--file={file}")
        self._compose += [f"--profile={profile}" for profile in PROFILES]

    def compose(
        self, *words: str, seconds: float = 300, text: str | None = None
    ) -> str:
        """What a command of Compose prints."""
        return run(*self._compose, *words, cwd=self.folder, seconds=seconds, text=text)

    def logs(self, *services: str) -> str:
        """What services have logged."""
        return self.compose("logs", "--no-color", "--no-log-prefix", *services)

    def medlive(self, service: str, *words: str, seconds: float = 300) -> str:
        """What a command of medlive prints, run as a service would run it."""
        once = ("run", "--rm", "-T", "--no-deps", service)
        return self.compose(*once, *words, seconds=seconds)

    def query(self, sql: str) -> list[list[str]]:
        """The rows that PostgreSQL answers with."""
        psql = ("psql", "--username=medlive", "--dbname=medlive", "-qAtc", sql)
        lines = self.compose("exec", "-T", "postgres", *psql).splitlines()
        return [line.split("|") for line in lines]

    def number(self, sql: str) -> int:
        """The one number that PostgreSQL answers with; -1 while it does not answer."""
        try:
            return int(self.query(sql)[0][0])
        except Broken:
            return -1

    def services(self) -> list[Service]:
        """Every container of the project."""
        names = self.compose("ps", "--all", "--quiet").split()
        found: list[dict[str, Any]] = json.loads(run("docker", "inspect", *names))
        return [_service(one) for one in found]

    def service(self, name: str) -> Service:
        """The first container of a service."""
        found = [one for one in self.services() if one.service == name]
        if not found:
            raise Broken(f"{name} has no container")
        return min(found)

    def health(self, service: str, port: int) -> str:
        """What a service answers to its probe."""
        code = (
            "import urllib.request as u;"
            f"print(u.urlopen('http://127.0.0.1:{port}/healthz', timeout=5).read().decode())"
        )
        return self.compose("exec", "-T", service, "python", "-c", code)

    def wait_healthy(self, *services: str, seconds: float = 300) -> None:
        """Wait until every container of these services is healthy."""

        def all_healthy() -> bool:
            chosen = [one for one in self.services() if one.service in services]
            return {one.service for one in chosen} == {*services} and all(
                one.health in ("healthy", "") and one.state == "running"
                for one in chosen
            )

        until(all_healthy, f"{', '.join(services)} healthy", seconds)

    def down(self) -> None:
        """Remove its containers, networks and volumes."""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout=5")


def _service(found: dict[str, Any]) -> Service:
    state = found["State"]
    return Service(
        name=found["Name"].lstrip("/"),
        service=found["Config"]["Labels"]["com.docker.compose.service"],
        state=state["Status"],
        health=state.get("Health", {}).get("Status", ""),
        restarts=found["RestartCount"],
    )


def set_up(first: Path, second: Path, postgres: str) -> None:
    """Lay out two servers' folders, with the same passwords.

    Args:
        first: An empty folder.
        second: Another one.
        postgres: PostgreSQL's image.
    """
    _lay_out(first, postgres)
    shutil.copytree(first, second, dirs_exist_ok=True)
    for folder, subnet in zip((first, second), SUBNETS, strict=True):
        with (folder / ".env").open("a") as file:
            file.write(f"SUBNET={subnet}\n")


def _lay_out(folder: Path, postgres: str) -> None:
    shutil.copy(ROOT / "docker-compose.yml", folder)
    shutil.copy(FILES / "compose.yml", folder / "compose.containers.yml")
    shutil.copytree(FILES, folder / "files")
    shutil.copytree(ROOT / "config", folder / "config")
    (folder / "deploy").mkdir()
    shutil.copy(ROOT / "deploy" / "logins.sh", folder / "deploy")
    _configure(folder / "config")
    keys = folder / "keys"
    keys.mkdir()
    mounted = f"--volume={keys}:/keys"
    make = ("snapshot", "keygen", "--out", "/keys")
    run("docker", "run", "--rm", mounted, "--user=0", MEDLIVE, *make)
    os.chown(keys / "medlive.key", USER, USER)
    (keys / "medlive.pub").chmod(0o644)
    words = ("POSTGRES", "MEDLIVE_WORKER", "MEDLIVE_WEB")
    lines = [f"{word}_PASSWORD={secrets.token_hex(24)}" for word in words]
    lines += [
        f"MEDLIVE_SIGNING_KEY_FILE={keys / 'medlive.key'}",
        f"POSTGRES_IMAGE={postgres}",
    ]
    _write_secret(folder / ".env", lines)
    _write_secret(
        folder / "medlive.env",
        [
            "MEDLIVE_HARVEST__CONTACT=containers@example.org",
            "MEDLIVE_HARVEST__ALLOW_LOOPBACK=true",
            # The endpoint is a recording, which holds no answers to prove rubrics by.
            "MEDLIVE_RUBRIC__PROVE=false",
            f"MODEL_KEY={secrets.token_hex(8)}",
        ],
    )


def _write_secret(path: Path, lines: list[str]) -> None:
    path.touch(mode=0o600)
    path.write_text("".join(f"{line}\n" for line in lines))


def _configure(config: Path) -> None:
    """Sample communities, a local endpoint, every step due at once, weekly backups, names behind a proxy."""
    sources = []
    boards: dict[str, set[str]] = {}
    for thread in load_sample_threads():
        boards.setdefault(thread.site, set()).add(thread.board)
    for offset, site in enumerate(SITES):
        listed = [] if site == "icliniq" else sorted(boards[site])
        sources += [
            f"[sources.{site}]",
            f'base_url = "http://127.0.0.1:{FIRST_PORT + offset}"',
            f"boards = {json.dumps(listed)}",
            "min_interval_s = 0.0",
        ]
    (config / "sources.toml").write_text("\n".join(sources))
    roles = []
    for role in ("screener", "validator", "controller", "rubric", "reader"):
        roles += [
            f"[roles.{role}]",
            'engine = "openai"',
            'base_url = "http://endpoint:8088/v1"',
            'model = "sample-2026-10-01"',
            'api_key_env = "MODEL_KEY"',
            "concurrency = 4",  # so that there is time to kill who asks
        ]
    (config / "models.toml").write_text("\n".join(roles))
    steps = []
    for step in ("harvest", "queue", "freeze", "retention", "backup"):
        steps += [f"[schedule.{step}]", 'weekday = "mon"', "hour = 0"]
    (config / "schedule.toml").write_text("\n".join(steps))
    _set(config / "medlive.toml", '# folder = "/backups" ', 'folder = "/data/backups" ')
    _set(
        config / "medlive.toml",
        '# base_url = "https://medlive.example"',
        'base_url = "https://rooms.medlive.example"',
    )
    _set(config / "medlive.toml", '# hosts = ["', 'hosts = ["')
    _set(
        config / "medlive.toml",
        '# trusted_proxies = ["10.0.0.2"]',
        f'trusted_proxies = ["{GATEWAY}"]',
    )


def _set(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if text.count(old) != 1:
        raise Broken(f"{path.name} does not hold {old!r} once")
    path.write_text(text.replace(old, new))
