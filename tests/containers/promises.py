"""What deploy/ promises of a week on one machine with Docker, each kept or Broken."""

import hashlib
import os
import signal
from typing import Final

from medlive.demo.samples import sample_evidence_path
from tests.containers.images import MEDLIVE, MOST_MB, Images, size
from tests.containers.project import Project
from tests.containers.proxy import check_proxy
from tests.containers.shell import Broken, run, until

WORKERS: Final = 2
OURS: Final = ("scheduler", "worker", "backup", "web", "metrics")
"""medlive's services that are healthy without evidence and accounts; the rooms wait for one."""
_DOING: Final = (
    "FROM procrastinate_jobs WHERE status = 'doing' AND queue_name = 'curate'"
)
_BUSY: Final = f"SELECT count(DISTINCT worker_id) {_DOING}"
_WAITING: Final = "SELECT count(*) FROM medlive_waiting_threads()"
_DECIDED: Final = "SELECT count(*) FROM curations"
_SNAPSHOTS: Final = "SELECT count(*) FROM snapshots"
_FAILED: Final = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'failed'"
_BACKED_UP: Final = "SELECT count(*) FROM pipeline_runs WHERE command = 'scheduler backup' AND outcome = 'done'"
_LOCK_HOLDER: Final = (
    "SELECT client_addr FROM pg_stat_activity WHERE pid IN"
    " (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)"
)


class Stage:
    """The projects, and what one check leaves for the next."""

    def __init__(self, first: Project, second: Project, images: Images) -> None:
        """Keep them."""
        self.first, self.second, self.images = first, second, images
        self.version = ""
        """The frozen snapshot's."""


def image_is_small(stage: Stage) -> str:
    """medlive's image holds at most MOST_MB on its base, no compiler and no pip."""
    own_mb = (size(MEDLIVE) - size(stage.images.python)) / 1e6
    found = run(
        *("docker", "run", "--rm", "--entrypoint=sh", MEDLIVE, "-c"),
        "for tool in gcc cc make /opt/medlive/bin/pip; do command -v $tool; done; true",
    )
    if own_mb > MOST_MB or found:
        raise Broken(f"{own_mb:.0f} MB on its base, with {found.split() or 'no tools'}")
    return f"{own_mb:.0f} MB on a base of {size(stage.images.python) / 1e6:.0f}"


def services_are_healthy(stage: Stage) -> str:
    """Every profile's services come up, before there is evidence or an account."""
    scale = f"--scale=worker={WORKERS}"
    # The second scheduler is another check's.
    names = ("postgres", "endpoint", "communities", "rooms", *OURS)
    stage.first.compose("up", "--detach", "--no-build", scale, *names)
    stage.first.wait_healthy("postgres", "endpoint", *OURS)
    return f"{len(stage.first.services())} containers"


def missing_things_are_waited_for(stage: Stage) -> str:
    """Worker and rooms say what they wait for, do not restart, and go on when it is there."""
    first = stage.first
    until(
        lambda: "evidence" in first.health("worker", 8090),
        "the missing evidence on the worker's health page",
        60,
    )
    said = first.compose(
        *("run", "--rm", "-T", "--no-deps", "--entrypoint=sh", "worker", "-c"),
        "medlive status --check || true",
    )
    if "evidence:" not in said:
        raise Broken(f"`medlive status` does not say that evidence is missing: {said}")
    until(
        lambda: "account" in first.health("rooms", 8080),
        "the missing account on the rooms' health page",
        60,
    )
    _no_restarts(stage)
    first.medlive("rooms", "user", "invite", "ada", "--role", "admin")
    corpus = sample_evidence_path()
    first.compose(
        *(
            "run",
            "--rm",
            "-T",
            "--no-deps",
            f"--volume={corpus}:/corpora/{corpus.name}:ro",
        ),
        *("worker", "evidence", "build", f"/corpora/{corpus.name}"),
    )
    first.wait_healthy("rooms")
    # By itself the scheduler looks within ten minutes.
    first.medlive("worker", "week", "run", "queue", "--by", "ada")
    until(lambda: first.number(_BUSY) > 0, "threads under curation", 180)
    _no_restarts(stage)
    for service, words in (("worker", "no jobs of curate"), ("rooms", "no account")):
        lines = [line for line in first.logs(service).splitlines() if words in line]
        containers = WORKERS if service == "worker" else 1
        if len(lines) != containers:
            raise Broken(f"{service} says {len(lines)} times: {words}")
    return "evidence and an account, each said once"


def _no_restarts(stage: Stage) -> None:
    again = [one.name for one in stage.first.services() if one.restarts]
    if again:
        raise Broken(f"restarted: {', '.join(again)}")


def a_dead_worker_is_replaced(stage: Stage) -> str:
    """kill -9 of one of two busy workers: it is started again, and no thread is lost."""
    first = stage.first
    until(lambda: first.number(_BUSY) == WORKERS, "two busy workers", 120)
    victim = first.service("worker")
    state = run("docker", "inspect", "--format", "{{.State.Pid}}", victim.name)
    os.kill(int(state), signal.SIGKILL)
    until(
        lambda: [w for w in first.services() if w.name == victim.name and w.restarts],
        f"{victim.name} started again",
        60,
    )
    first.wait_healthy("worker")
    return f"{victim.name}, with {first.number(_DECIDED)} threads decided"


def postgres_may_restart(stage: Stage) -> str:
    """PostgreSQL is restarted under the work; nobody else is."""
    first = stage.first
    before = {one.name: one.restarts for one in first.services()}
    first.compose("restart", "postgres")
    first.wait_healthy("postgres", "rooms", *OURS)
    decided = first.number(_DECIDED)
    until(lambda: first.number(_DECIDED) > decided, "another decision", 180)
    after = {one.name: one.restarts for one in first.services()}
    if after != before:
        raise Broken(f"restarted with PostgreSQL: {after}, before: {before}")
    return f"after {decided} decisions"


def a_second_scheduler_takes_over(stage: Stage) -> str:
    """The second scheduler waits, and goes on with the week when the first is gone.

    It looks at what is due as it begins, and then every ten minutes: all threads are to be decided by then.
    """
    first = stage.first
    until(lambda: first.number(_WAITING) == 0, "every thread decided", 300)
    first.compose("up", "--detach", "--no-build", "--no-deps", "second-scheduler")
    first.wait_healthy("second-scheduler")
    until(
        lambda: "another scheduler" in first.health("second-scheduler", 8091),
        "the second scheduler waiting for the first",
        60,
    )
    first.compose("kill", "scheduler")
    until(
        lambda: "ok" in first.health("second-scheduler", 8091),
        "the second scheduler at work",
        60,
    )
    return "the first was killed"


def the_week_is_frozen(stage: Stage) -> str:
    """Every thread is decided, the week is frozen and signed, and verifies."""
    first = stage.first
    until(lambda: first.number(_SNAPSHOTS) > 0, "the frozen week", 300)
    rows = first.query("SELECT version FROM snapshots")
    stage.version = rows[0][0]
    key = first.folder / "keys" / "medlive.pub"
    first.compose(
        *("run", "--rm", "-T", "--no-deps", f"--volume={key}:/medlive.pub:ro"),
        *("backup", "snapshot", "verify", stage.version),
        "--public-key=/medlive.pub",
    )
    waiting = first.number(_WAITING)
    if waiting or first.number(_FAILED):
        raise Broken(f"{waiting} threads wait, {first.number(_FAILED)} jobs failed")
    return f"{stage.version}, {first.number(_DECIDED)} decisions"


def a_backup_restores_equal_bytes(stage: Stage) -> str:
    """The weekly backup, restored into a second project, holds the same snapshot to the byte."""
    first, second = stage.first, stage.second
    until(lambda: first.number(_BACKED_UP) > 0, "the weekly backup", 180)
    shown = ("run", "--rm", "-T", "--no-deps", "--entrypoint=cat", "worker")
    key = first.compose(*shown, "/data/backup.pub").splitlines()[-1]
    listed = first.compose(
        *("run", "--rm", "-T", "--no-deps", "--entrypoint=ls", "backup"),
        "/data/backups",
    )
    week = listed.split()[-1]
    second.compose("up", "--detach", "postgres")
    second.wait_healthy("postgres")
    mounted = f"--volume={first.name}_backups:/backups:ro"
    owner = ("run", "--rm", "-T", "--no-deps", mounted, "migrate")
    second.compose(*owner, "restore", f"/backups/{week}", "--public-key", key)
    second.compose(*owner, "db", "roles")
    second.compose(*owner, "db", "check")
    second.compose(*owner, "snapshot", "verify", stage.version)
    digests = [_digests(project) for project in (first, second)]
    if digests[0] != digests[1]:
        raise Broken(f"the snapshots differ: {digests}")
    rows = [project.number(_DECIDED) for project in (first, second)]
    if rows[0] != rows[1]:
        raise Broken(f"{rows[0]} decisions, {rows[1]} after the restore")
    count = len(digests[0].splitlines())
    return f"{count} files, {hashlib.sha256(digests[0].encode()).hexdigest()[:12]}"


def _digests(project: Project) -> str:
    command = (
        "cd /data/snapshots && find . -type f -not -name '.*' | sort | xargs sha256sum"
    )
    found = project.compose(
        *("run", "--rm", "-T", "--no-deps", "--entrypoint=sh", "migrate", "-c", command)
    )
    if not found.strip():
        raise Broken(f"{project.name} holds no snapshot")
    return found


def proxy_serves_with_tls(stage: Stage) -> str:
    """nginx by deploy/nginx.conf before web and rooms: ranges, ETags, rooms apart, the visitor's own address."""
    return check_proxy(stage.first, stage.images.debian, stage.version)
