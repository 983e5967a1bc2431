"""A real Prometheus of this run's own: its programs, a copy of deploy/monitoring that is in a hurry, its answers."""

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import yaml

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
EVERY = "1s"
"""How often targets are scraped and rules looked at; `deploy/monitoring` says a minute."""
FOR = "1s"
TREND = "[15s]"
"""What stands for the week over which a disk's trend is taken."""


class Programs(NamedTuple):
    """Where Prometheus' two programs are."""

    prometheus: Path
    promtool: Path


def find_programs(folder: Path) -> Programs | None:
    """Find the installed programs, or unpack Debian's package into a folder: no service is installed or started.

    Args:
        folder: Where the package is unpacked if there is a need.

    Returns:
        The programs; None where they are not installed and apt does not answer.
    """
    installed = shutil.which("prometheus"), shutil.which("promtool")
    if installed[0] and installed[1]:
        return Programs(Path(installed[0]), Path(installed[1]))
    if not shutil.which("apt-get"):
        return None
    if os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "-qq"], capture_output=True)
    fetch = ["apt-get", "download", "-qq", "prometheus"]
    if subprocess.run(fetch, cwd=folder, capture_output=True).returncode:
        return None
    for package in folder.glob("prometheus_*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder / "package"], check=True)
    programs = folder / "package" / "usr" / "bin"
    return Programs(programs / "prometheus", programs / "promtool")


def free_ports(number: int) -> list[int]:
    """So many ports of loopback that nobody listens on."""
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def write_hurried(folder: Path, ports: Iterable[int]) -> Path:
    """Write deploy/monitoring with seconds for minutes, days and weeks.

    Args:
        folder: Where the two files are written.
        ports: Where medlive's metrics will be served.

    Returns:
        The file of the configuration.
    """
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text("utf-8"))
    (job,) = config["scrape_configs"]
    (targets,) = job["static_configs"]
    targets["targets"] = [f"127.0.0.1:{port}" for port in ports]
    job["scrape_interval"] = EVERY
    config["global"] = {"evaluation_interval": EVERY}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), "utf-8")
    alerts = yaml.safe_load((MONITORING / "alerts.yml").read_text("utf-8"))
    for group in alerts["groups"]:
        for rule in group["rules"]:
            rule["for"] = FOR
            rule["expr"] = rule["expr"].replace("[7d]", TREND)
    (folder / "alerts.yml").write_text(yaml.safe_dump(alerts), "utf-8")
    return folder / "prometheus.yml"


class Prometheus:
    """A running Prometheus, asked over HTTP."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression gives now."""
        data = await self._get("query", query=expression)
        return list(data["result"])

    async def firing(self) -> list[dict[str, str]]:
        """The labels of every alert that fires."""
        data = await self._get("alerts")
        labels = []
        for alert in data["alerts"]:
            if alert["state"] == "firing":
                labels.append(alert["labels"])
        return labels

    async def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        reply = await self._client.get(f"/api/v1/{path}", params=parameters)
        content = reply.json()
        if content["status"] != "success":
            raise ValueError(f"Prometheus refuses {parameters}: {content['error']}")
        return dict(content["data"])


@asynccontextmanager
async def start_prometheus(
    program: Path, config: Path, data: Path
) -> AsyncIterator[Prometheus]:
    """Run Prometheus while the context lasts.

    Args:
        program: Its program.
        config: Its configuration.
        data: A folder for its data and its log.
    """
    (port,) = free_ports(1)
    command = [
        str(program),
        f"--config.file={config}",
        f"--storage.tsdb.path={data / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    log_path = data / "prometheus.log"
    with log_path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stderr=log)
        try:
            async with httpx2.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", verify=False
            ) as client:
                await _until_ready(client, process, log_path)
                yield Prometheus(client)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _until_ready(
    client: httpx2.AsyncClient, process: asyncio.subprocess.Process, log: Path
) -> None:
    while True:
        if process.returncode is not None:
            content = await asyncio.to_thread(log.read_text, "utf-8")
            raise ValueError(f"Prometheus ended: {content[-2000:]}")
        try:
            if (await client.get("/-/ready")).status_code == 200:
                return
        except httpx2.TransportError:
            pass  # it does not listen yet
        await asyncio.sleep(0.2)


def run_promtool(program: Path, *arguments: str | Path) -> str:
    """What promtool finds wrong; empty: nothing."""
    command: Sequence[str | Path] = [program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode else ""
