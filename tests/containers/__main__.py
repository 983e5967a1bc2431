"""`make containers`: what deploy/ promises of a machine with Docker, kept by running it.

Exit status 0: every promise was kept; 1: one was not; 3: no engine can start here.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.containers import promises
from tests.containers.engine import NoEngine, docker_engine, find_compose
from tests.containers.images import MEDLIVE, base_images, build_medlive, remove
from tests.containers.project import Project, set_up
from tests.containers.promises import Stage
from tests.containers.shell import Broken, run, say

CHECKS: Final[tuple[Callable[[Stage], str], ...]] = (
    promises.image_is_small,
    promises.services_are_healthy,
    promises.missing_things_are_waited_for,
    promises.a_dead_worker_is_replaced,
    promises.postgres_may_restart,
    promises.a_second_scheduler_takes_over,
    promises.the_week_is_frozen,
    promises.proxy_serves_with_tls,
    promises.a_backup_restores_equal_bytes,
)
FIRST: Final = "medlive-containers"
SECOND: Final = "medlive-containers-second"


def main() -> int:
    """Keep every promise, or say which one is not kept."""
    parser = argparse.ArgumentParser(prog="make containers", description=__doc__)
    parser.add_argument(
        "--keep", action="store_true", help="leave containers, volumes and images"
    )
    parser.add_argument("--logs", type=Path, help="where the containers' logs go")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if os.geteuid() != 0:
        say("make containers needs root: it starts containers and ends their processes")
        return 3
    began = time.monotonic()
    try:
        with docker_engine():
            compose = find_compose()
            kept = _keep_promises(compose, args.keep, args.logs)
    except NoEngine as error:
        say(f"no container was run: {error}")
        return 3
    seconds = time.monotonic() - began
    say(f"{kept} of {len(CHECKS)} promises kept in {seconds:.0f} s")
    return 0 if kept == len(CHECKS) else 1


def _keep_promises(compose: list[str], keep: bool, logs: Path | None) -> int:
    """How many of the checks went well; the first that does not is the last."""
    folders = [Path(tempfile.mkdtemp(prefix="medlive-containers-")) for _ in range(2)]
    first = Project(FIRST, folders[0], compose)
    second = Project(SECOND, folders[1], compose)
    kept = 0
    try:
        began = time.monotonic()
        images = base_images()
        _report("base images", f"{images.python}, {images.postgres}", began)
        began = time.monotonic()
        build_medlive(images.python)
        _report("medlive's image", MEDLIVE, began)
        set_up(first.folder, second.folder, images.postgres)
        stage = Stage(first, second, images)
        for check in CHECKS:
            began = time.monotonic()
            name = check.__name__.replace("_", " ")
            _report(name, check(stage), began)
            kept += 1
    except Broken as error:
        say(f"NOT KEPT  {error}")
        _save_logs(first, logs)
    finally:
        if keep:
            say(f"left behind: the projects {FIRST} and {SECOND}, in {folders[0]}")
        else:
            _clean_up(first, second)
    return kept


def _report(name: str, said: str, began: float) -> None:
    say(f"kept {time.monotonic() - began:5.0f} s  {name}: {said}")


def _save_logs(project: Project, place: Path | None) -> None:
    if not (project.folder / ".env").exists():
        return
    logs = project.compose("logs", "--no-color", "--tail=400")
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
        (place / "containers.log").write_text(logs)
        run("docker", "ps", "--all")
    else:
        say("\n".join(logs.splitlines()[-60:]))


def _clean_up(*projects: Project) -> None:
    for project in projects:
        if (project.folder / ".env").exists():
            try:
                project.down()
            except Broken as error:
                say(str(error))
        shutil.rmtree(project.folder, ignore_errors=True)
    remove(MEDLIVE)
    run("docker", "image", "prune", "--force")


if __name__ == "__main__":
    sys.exit(main())
