"""nginx by deploy/nginx.conf on the host, before web and rooms; its visitors are containers."""

import json
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.containers.images import MEDLIVE, ROOT
from tests.containers.project import GATEWAY, Project
from tests.containers.shell import Broken, run, until

NAMES: Final = ("medlive.example", "rooms.medlive.example")
NGINX: Final = "medlive-containers-nginx"
_ATTEMPTS: Final = 11
"""One more than an address may make on an account."""


def check_proxy(project: Project, debian: str, version: str) -> str:
    """Visit the site through nginx. Raises Broken for what is not as promised.

    Args:
        project: What runs web and rooms.
        debian: The image with nginx.
        version: A frozen snapshot.
    """
    with _nginx(project.folder, debian):
        _expect(
            "tls",
            _visit(project, "tls"),
            {
                "plain": [301, "https://medlive.example/"],
                "page": 200,
                "protocol": "HTTP/1.1",
                "hsts": "max-age=31536000",
                "policies": 1,
                "other_name": 421,
            },
        )
        files = _visit(project, "files", version)
        tag = files.pop("tag")
        _expect(
            "files",
            files,
            {
                "whole": 200,
                "part": [206, files["part"][1]],
                "is_part": True,
                "beyond": 416,
                "known": [304, 0],
            },
        )
        if len(tag) != 66:
            raise Broken(f"the file's ETag is no SHA-256: {tag}")
        rooms = _visit(project, "rooms")
        cookie = rooms.pop("cookie")
        _expect(
            "rooms",
            rooms,
            {
                "elsewhere": 404,
                "page": [303, "/sign-in?next=/audit"],
                "script": 401,
                "form": 200,
            },
        )
        if not cookie.startswith("__Host-medlive=") or "secure" not in cookie:
            raise Broken(f"the cookie is not for https alone: {cookie}")
        stranger = _visit(project, "sign-in", "ada", str(_ATTEMPTS))["statuses"]
        with _other_address(project) as other:
            owner = _visit(project, "sign-in", "ada", "1", beside=other)["statuses"]
        if stranger[-1] != 429 or owner != [422]:
            raise Broken(
                "visitors are not told apart by their addresses: "
                f"{stranger[-1]} for one who tried often, {owner} for another"
            )
    return "ranges, ETags, rooms apart, visitors known by their own addresses"


def _expect(what: str, found: dict[str, Any], expected: dict[str, Any]) -> None:
    if found != expected:
        raise Broken(f"{what}: {found}, expected {expected}")


def _visit(project: Project, *words: str, beside: str = "") -> dict[str, Any]:
    """What a visitor in a container meets; `beside` is a container whose network it uses."""
    network = f"container:{beside}" if beside else f"{project.name}_default"
    names = [] if beside else [f"--add-host={name}:{GATEWAY}" for name in NAMES]
    said = run(
        *("docker", "run", "--rm", "--entrypoint=python", f"--network={network}"),
        *names,
        *(f"--volume={project.folder / 'files'}:/files:ro",),
        *(f"--volume={project.folder / 'tls'}:/certificate:ro",),
        *(MEDLIVE, "/files/visit.py", *words),
    )
    answer: dict[str, Any] = json.loads(said)
    return answer


@contextmanager
def _other_address(project: Project) -> Iterator[str]:
    """A container that holds another address while the block runs."""
    names = [f"--add-host={name}:{GATEWAY}" for name in NAMES]
    holder = run(
        *("docker", "run", "--rm", "--detach", "--entrypoint=sleep", *names),
        *(f"--network={project.name}_default", "--ip=172.29.87.200", MEDLIVE, "300"),
    ).strip()
    try:
        yield holder
    finally:
        run("docker", "rm", "--force", holder)


@contextmanager
def _nginx(folder: Path, debian: str) -> Iterator[None]:
    """nginx with the ports of the host while the block runs."""
    for port in (80, 443):
        if _answers(port):
            raise Broken(f"port {port} of this machine is taken: nginx needs it")
    tls = folder / "tls"
    tls.mkdir()
    _certificate(tls, debian)
    shutil.copy(ROOT / "deploy" / "nginx.conf", folder)
    place = "/etc/letsencrypt/live/medlive.example"
    run(
        *("docker", "run", "--detach", f"--name={NGINX}", "--network=host"),
        f"--volume={folder / 'nginx.conf'}:/etc/nginx/nginx.conf:ro",
        f"--volume={tls}:{place}:ro",
        *("--stop-signal=SIGTERM", debian, "nginx", "-g", "daemon off;"),
    )
    try:
        until(lambda: _answers(443), "nginx", 20)
        yield
    except Broken as error:
        said = run("docker", "logs", NGINX, errors=True)[-500:]
        raise Broken(f"{error} {said}") from error
    finally:
        run("docker", "rm", "--force", NGINX)


def _certificate(folder: Path, debian: str) -> None:
    """A certificate of both names, which signs itself."""
    names = ",".join(f"DNS:{name}" for name in NAMES)
    run(
        *("docker", "run", "--rm", f"--volume={folder}:/out", debian),
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-keyout", "/out/privkey.pem", "-out", "/out/fullchain.pem"),
        *("-subj", f"/CN={NAMES[0]}", "-addext", f"subjectAltName={names}"),
    )


def _answers(port: int) -> bool:
    with socket.socket() as caller:
        caller.settimeout(1)
        return caller.connect_ex(("127.0.0.1", port)) == 0
