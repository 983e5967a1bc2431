"""1 GB downloaded from `medlive serve`, beside nginx on the same disk in the same run, and what the server takes.

A snapshot whose largest file is replaced by random bytes is recorded as frozen in a database of its own. curl
fetches it from both servers in turn; where there is no nginx, the other one is a bare loop of sendfile(2). Then
eight clients fetch it at once, and the server's greatest resident memory is compared with that before. Exits 1 if
the median is under 0.5 of the peer's, the idle server takes 150 MB or more, or its memory grows by over 64 MB.

    python benchmarks/downloads.py [--megabytes 1024] [--rounds 5]
"""

import argparse
import asyncio
import hashlib
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from snapshot_load import cases
from throwaway import throwaway_home

from medlive.config import Settings
from medlive.db.release.snapshots import begin_snapshot, freeze_snapshot
from medlive.db.tables.release import SnapshotRow
from medlive.integrity.digest import digest_file
from medlive.integrity.folder import SUMS, sha256
from medlive.service.database import open_database
from medlive.snapshot.freeze import write_snapshot
from medlive.snapshot.manifest import Manifest, Provenance, SnapshotMeta

VERSION, NAME = "2026.W47", "data/cases.jsonl"
SHARE, IDLE_MB, GROWTH_MB = 0.5, 150, 64
NGINX = """{user}
daemon off; error_log stderr; pid {folder}/pid; events {{}}
http {{ access_log off; sendfile on; client_body_temp_path {folder}/t; proxy_temp_path {folder}/t;
fastcgi_temp_path {folder}/t; uwsgi_temp_path {folder}/t; scgi_temp_path {folder}/t;
server {{ listen 127.0.0.1:{port}; root {root}; }} }}
"""


async def make_snapshot(settings: Settings, megabytes: int) -> Path:
    """Record a snapshot as frozen whose file of cases is `megabytes` of random bytes; return that file."""
    provenance = Provenance(
        code_version="0", engines=(), prompts={}, evidence=(), thresholds={}
    )
    [case] = (replace(case, first_release=VERSION) for case in cases(1))
    added = {
        "case_id": case.case_id,
        "reason": "new",
        "from_revision": None,
        "to_revision": 1,
    }
    meta = SnapshotMeta(
        version=VERSION,
        created_at=datetime(2026, 11, 22, tzinfo=UTC),
        provenance=provenance,
    )
    folder = write_snapshot(
        [case],
        meta,
        settings.home / "snapshots",
        lambda section: [added] if section == "added" else [],
    ).path
    with (folder / NAME).open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1 << 20))
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    entry = manifest.files[NAME].model_copy(
        update={"size": megabytes << 20, "sha256": sha256(folder / NAME)}
    )
    manifest = manifest.model_copy(update={"files": manifest.files | {NAME: entry}})
    (folder / "manifest.json").write_text(manifest.text(), encoding="utf-8")
    names = [*manifest.files, "manifest.json"]
    (folder / SUMS).write_text(
        "".join(f"{sha256(folder / name)}  {name}\n" for name in sorted(names))
    )
    async with open_database(settings) as database, database.begin() as session:
        await begin_snapshot(session, VERSION)
        await freeze_snapshot(
            session,
            SnapshotRow(
                version=VERSION,
                manifest={"counts": {"cases": 0, "criteria": 0}},
                manifest_digest=digest_file(folder / "manifest.json"),
                sums_digest=digest_file(folder / SUMS),
                signature=None,
                path=str(folder),
                publishable=True,
                why_not=[],
            ),
        )
    return folder / NAME


@contextmanager
def medlive(home: Path) -> Iterator[tuple[str, int]]:
    """`medlive serve`: its address and process."""
    command = [sys.executable, "-m", "medlive", "serve", "--port", "0"]
    with subprocess.Popen(
        command,
        env=os.environ | {"MEDLIVE_HOME": str(home)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        found = next(
            filter(None, (re.search(r"http://\S+", line) for line in process.stderr))
        )
        try:
            yield found[0], process.pid
        finally:
            process.terminate()


@contextmanager
def peer(root: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """nginx over `root`, or a loop of sendfile: its name and address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if shutil.which("nginx") is None:
            child = os.fork()
            if child == 0:
                serve_bare(listener, root)
        if shutil.which("nginx") is not None:
            listener.close()
            # Started by root, its workers are somebody else, who may not read the folder.
            owner = "" if os.geteuid() else "user root;"
            (folder / "nginx.conf").write_text(
                NGINX.format(folder=folder, port=port, root=root, user=owner)
            )
            child = subprocess.Popen(
                ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]
            ).pid
            time.sleep(1)
        try:
            yield (
                "nginx" if shutil.which("nginx") else "sendfile",
                f"http://127.0.0.1:{port}",
            )
        finally:
            os.kill(child, 15)
            os.waitpid(child, 0)


def serve_bare(listener: socket.socket, root: Path) -> None:
    """Answer every request with the file that it names, by sendfile, until killed."""
    while True:
        connection, _ = listener.accept()
        path = root / connection.recv(65536).split()[1].decode().lstrip("/")
        with connection, path.open("rb") as file:
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {path.stat().st_size}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode())
            connection.sendfile(file)


def download_s(url: str, out: str = os.devnull) -> float:
    """Seconds that curl takes."""
    started = time.perf_counter()
    subprocess.run(["curl", "-sS", "--fail", "-o", out, url], check=True)
    return time.perf_counter() - started


def memory_mb(pid: int, name: str = "VmRSS") -> float:
    """A process's resident memory, or with VmHWM its greatest."""
    status = Path(f"/proc/{pid}/status").read_text()
    return (
        int(
            next(line for line in status.splitlines() if line.startswith(name)).split()[
                1
            ]
        )
        / 1024
    )


def main() -> int:
    """Print the figures; the exit status says whether the limits hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with throwaway_home() as home:
        return measure(Settings(home=home), arguments.megabytes, arguments.rounds)


def measure(settings: Settings, megabytes: int, rounds: int) -> int:
    """Make the snapshot, measure, print."""
    file = asyncio.run(make_snapshot(settings, megabytes))
    root = settings.home / "snapshots"
    path = file.relative_to(root).as_posix()
    with (
        medlive(settings.home) as (url, pid),
        peer(root, settings.home) as (name, other),
    ):
        download_s(f"{url}/latest.json")
        idle = memory_mb(pid)
        copy = settings.home / "copy"
        download_s(
            f"{url}/{path}", str(copy)
        )  # the first one also reads the file for its digest
        with copy.open("rb") as one, file.open("rb") as two:
            same = (
                hashlib.file_digest(one, "sha256").digest()
                == hashlib.file_digest(two, "sha256").digest()
            )
        copy.unlink()
        pairs = [
            (download_s(f"{url}/{path}"), download_s(f"{other}/{path}"))
            for _ in range(rounds)
        ]
        before = memory_mb(pid, "VmHWM")
        clients = [
            subprocess.Popen(["curl", "-sS", "-o", os.devnull, f"{url}/{path}"])
            for _ in range(8)
        ]
        assert {client.wait() for client in clients} == {0}
        growth = memory_mb(pid, "VmHWM") - before
    ours, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = theirs / ours
    gigabytes = megabytes / 1024
    print(
        f"download  {gigabytes / ours:.2f} GB/s, {ratio:.2f} of {name} ({gigabytes / theirs:.2f}); wanted {SHARE}"
    )
    print(
        f"memory    idle {idle:.0f} MB (under {IDLE_MB}), 8 clients {growth:.0f} MB more (at most {GROWTH_MB})"
    )
    print(f"bytes     {'as on disk' if same else 'DIFFERENT'}")
    return (
        0 if same and ratio >= SHARE and idle < IDLE_MB and growth <= GROWTH_MB else 1
    )


if __name__ == "__main__":
    raise SystemExit(main())
