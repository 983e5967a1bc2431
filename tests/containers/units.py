"""`make units`: the units of deploy/systemd in a container of the distribution, set up by deploy/README.md's own lines.

Exit status 0: every promise was kept; 1: one was not; 3: no engine can start here.
"""

import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from medlive.demo.samples import sample_evidence_path
from tests.containers.engine import NoEngine, docker_engine
from tests.containers.images import FILES, ROOT, base_images
from tests.containers.shell import Broken, run, say, until

NAME: Final = "medlive-units"
STEPS: Final = ("installed", "running", "sandboxed", "secret", "restarted", "embedded")
_CGROUPS: Final = Path("/sys/fs/cgroup")


def readme_lines() -> str:
    """The block of deploy/README.md that sets up a machine with systemd."""
    text = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    section = text.split("## One machine with systemd")[1].split("\n## ")[0]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    if block is None:
        raise Broken("deploy/README.md has no lines for systemd")
    return block[1]


def main() -> int:
    """Run each step in the container; the first that fails is the last."""
    if os.geteuid() != 0:
        say("make units needs root: it starts a container with systemd")
        return 3
    began, kept = time.monotonic(), list[str]()
    folder = Path(tempfile.mkdtemp(prefix="medlive-units-"))
    try:
        with docker_engine():
            try:
                _keep_promises(folder, kept)
            finally:
                run("docker", "rm", "--force", "--volumes", NAME)
    except NoEngine as error:
        say(f"no unit was run: {error}")
        return 3
    except Broken as error:
        say(f"NOT KEPT  {error}")
    finally:
        shutil.rmtree(folder)
    say(
        f"{len(kept)} of {len(STEPS)} promises kept in {time.monotonic() - began:.0f} s"
    )
    return 0 if len(kept) == len(STEPS) else 1


def _keep_promises(folder: Path, kept: list[str]) -> None:
    image = base_images().debian
    _lay_out(folder)
    _start(image, folder)
    try:
        for step in STEPS:
            began = time.monotonic()
            script = ("bash", "/srv/units.sh", step)
            said = run("docker", "exec", NAME, *script, seconds=900, errors=True)
            seconds = time.monotonic() - began
            say(f"kept {seconds:5.0f} s  units {step}: {said.splitlines()[-1]}")
            kept.append(step)
    except Broken as error:
        # Before the units are there journalctl knows none, and fails.
        journal = "journalctl --no-pager --lines=30 --unit=medlive@* 2>&1 || true"
        lines = run("docker", "exec", NAME, "sh", "-c", journal)
        raise Broken(f"{error}\n{lines}") from error


def _lay_out(folder: Path) -> None:
    """What an operator brings: the clone's files, the wheel, corpora."""
    clone, corpora = folder / "medlive", folder / "corpora"
    for name in ("config", "deploy"):
        shutil.copytree(ROOT / name, clone / name)
    shutil.copy(ROOT / "constraints.txt", clone)
    corpora.mkdir()
    shutil.copy(sample_evidence_path(), corpora)
    shutil.copy(FILES / "units.sh", folder)
    (folder / "lines.sh").write_text(f"set -euo pipefail\n{readme_lines()}")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps")
    run(*pip, f"--wheel-dir={clone}", str(ROOT))


def _start(image: str, folder: Path) -> None:
    """The container, whose first process is systemd."""
    words = ["docker", "run", "--detach", f"--name={NAME}", "--tmpfs=/run"]
    words += [f"--volume={folder}:/bring:ro", "--tmpfs=/tmp:exec"]
    if (_CGROUPS / "cgroup.controllers").exists():
        words += ["--privileged", "--cgroupns=private"]
    else:
        named = _CGROUPS / "systemd"
        words += ["--cgroupns=host", f"--volume={named}:{named}"]
        words += [f"--cap-add={name}" for name in ("SYS_ADMIN", "SYS_PTRACE", "SYSLOG")]
        loose = ("seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined")
        words += [f"--security-opt={option}" for option in loose]
    run("docker", "rm", "--force", NAME)
    run(*words, image)
    run(
        "docker",
        "exec",
        NAME,
        "bash",
        "-c",
        "cp -r /bring/. /srv && umount /bring || true",
    )
    until(_has_started, "systemd in its container", 60)


def _has_started() -> bool:
    try:
        state = run(
            "docker", "exec", NAME, "sh", "-c", "systemctl is-system-running || true"
        )
    except Broken:
        return False
    return state.strip() in ("running", "degraded")


if __name__ == "__main__":
    sys.exit(main())
