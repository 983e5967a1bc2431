"""The images: bases from a registry or, where none is within reach, made of Debian's packages; and medlive's own."""

import os
import platform
import shutil
import ssl
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from tests.containers.shell import Broken, run, say, try_to

ROOT: Final = Path(__file__).parents[2]
FILES: Final = Path(__file__).parent / "files"
MEDLIVE: Final = "medlive:0.1.0"
PYTHON: Final = "python:3.12-slim-bookworm"
POSTGRES: Final = "postgres:18"
MADE: Final = "medlive-containers"
"""Before the colon of every image that is made here and is not medlive's."""
MOST_MB: Final = 600
"""The most that medlive's image may hold on its base, in millions of bytes."""
_PULL_S: Final = 300
_UNUSED: Final = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
)
"""What an image of a registry does not have either."""


class Images(NamedTuple):
    """What services are made from."""

    python: str  # The base of medlive's image
    postgres: str
    debian: str  # With PostgreSQL, nginx and systemd


def base_images() -> Images:
    """The bases, made where they are not there yet."""
    made = Images(f"{MADE}:python", f"{MADE}:postgres", f"{MADE}:debian")
    is_within_reach = _pulled(PYTHON)
    if not is_within_reach and not _is_there(made.python):
        say("no registry is within reach: base images are made of Debian's packages")
        _bootstrap(made.python)
    python = PYTHON if is_within_reach else made.python
    postgres = POSTGRES if is_within_reach and _pulled(POSTGRES) else made.postgres
    if not _is_there(made.debian):
        _build("debian.Dockerfile", made.debian, python)
    if postgres == made.postgres and not _is_there(postgres):
        _build("postgres.Dockerfile", postgres, made.debian)
    return Images(python, postgres, made.debian)


def build_medlive(base: str, tag: str = MEDLIVE) -> None:
    """The image as deploy/README.md has it built."""
    _docker_build(ROOT, ROOT / "deploy" / "Dockerfile", tag, base)


def size(image: str) -> int:
    """The bytes of an image, its base's among them."""
    return int(run("docker", "image", "inspect", "--format", "{{.Size}}", image))


def remove(*images: str) -> None:
    """Remove images that were made here, as far as they are there."""
    for image in images:
        try_to("docker", "image", "rm", "--force", image)


def _is_there(image: str) -> bool:
    return try_to("docker", "image", "inspect", image)


def _pulled(image: str) -> bool:
    return _is_there(image) or try_to("docker", "pull", image, seconds=_PULL_S)


def _build(name: str, tag: str, base: str) -> None:
    _docker_build(FILES, FILES / name, tag, base)


def _docker_build(folder: Path, file: Path, tag: str, base: str) -> None:
    """Build with the host's network, which reaches what this machine does."""
    run(
        "docker",
        "build",
        "--network=host",
        f"--build-arg=BASE={base}",
        f"--file={file}",
        f"--tag={tag}",
        str(folder),
        env=os.environ | {"DOCKER_BUILDKIT": "0"},
        seconds=900,
    )


def _bootstrap(tag: str) -> None:
    """A small Debian with its own Python, under the names that an image of python.org's has."""
    if shutil.which("debootstrap") is None:
        raise Broken("no registry is within reach, and debootstrap is not installed")
    folder = tempfile.mkdtemp(prefix="medlive-base-")
    tree = Path(folder)
    try:
        packages = "--include=ca-certificates,python3,python3-venv"
        run("debootstrap", "--variant=minbase", packages, "bookworm", folder)
        (tree / "usr/bin/python").symlink_to("python3")
        for place in _UNUSED:
            _empty(tree / place)
        _trust_as_here(tree)
        archive = f"{folder}.tar"
        run("tar", f"--directory={folder}", f"--file={archive}", "--create", ".")
        run("docker", "import", f"--platform=linux/{_machine()}", archive, tag)
        Path(archive).unlink()
    finally:
        shutil.rmtree(tree)


def _empty(place: Path) -> None:
    """Remove what lies in a folder, as far as there is one."""
    for path in place.glob("*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _trust_as_here(tree: Path) -> None:
    """Believe the authorities that this machine believes: a proxy before its registries may have its own."""
    authorities = ssl.get_default_verify_paths().cafile
    if authorities is None:
        return
    name = "etc/ssl/certs/ca-certificates.crt"
    shutil.copy(authorities, tree / name)
    (tree / "etc/pip.conf").write_text(f"[global]\ncert = /{name}\n")


def _machine() -> str:
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    return names.get(platform.machine(), platform.machine())
