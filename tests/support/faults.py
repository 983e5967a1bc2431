"""An instance that is well, and the faults that can be made in it: each for real, in its database and files."""

import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import text

from medlive.clock import iso_week, now
from medlive.config import Settings
from medlive.db.jobs import Queue, announce_serving
from medlive.db.release.snapshots import FixedMeta, Numbers
from medlive.db.runs import SCHEDULER_LOCK
from medlive.db.session import Database, ask_lock, lock_connection
from medlive.guard.circuit import circuit_key, circuit_name
from medlive.service.schedule.steps import latest_slot
from medlive.service.watch.notify import look
from medlive.service.work.jobs import defer_revisions, defer_step, open_app
from medlive.snapshot.manifest import Partial, Provenance
from tests.support.decisions import saved, thread
from tests.support.disks import fill_disk, mount_small_disk, unmount

ENDPOINT = {"engine": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
DIGEST = "sha256:" + "a" * 64


@dataclass
class Stage:
    """The instance in which a fault is made; what it holds is let go at the end."""

    database: Database
    settings: Settings
    holding: AsyncExitStack
    environment: Callable[[str, str], None]

    async def change(self, *statements: str, **values: Any) -> None:
        """Change the database by SQL."""
        async with self.database.begin() as session:
            for statement in statements:
                await session.execute(text(statement), values)

    def configure(self, section: str, **values: Any) -> None:
        """Change settings of a section."""
        changed = getattr(self.settings, section).model_copy(update=values)
        self.settings = self.settings.model_copy(update={section: changed})

    @property
    def index(self) -> Path:
        """The evidence index."""
        return self.settings.home / "evidence" / "default"


Make = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True)
class Fault:
    """A fault, and the code by which it must be named."""

    code: str
    make: Make


@asynccontextmanager
async def healthy_instance(
    database: Database, home: Path, index: Path, environment: Callable[[str, str], None]
) -> AsyncIterator[Stage]:
    """An instance in use, run by cron, in which no check finds anything."""
    await saved(database, *(thread(number) for number in range(1, 5)))
    shutil.copytree(index, home / "evidence" / "default")
    settings = Settings.model_validate({"home": home, "watch": {"disk_free_gb": 0}})
    async with AsyncExitStack() as holding:
        stage = Stage(database, settings, holding, environment)
        await stage.change(
            "INSERT INTO pipeline_runs (command, settings, code_version, outcome, started_at, finished_at, counts)"
            " VALUES ('curate', '{}', '1', 'done', now(), now(), '{}')"
        )
        yield stage


async def scheduler_heard(stage: Stage, ago: str) -> None:
    await stage.change(
        f"INSERT INTO observations (name, at) VALUES ('scheduler', now() - interval '{ago}')"
    )


async def scheduler_stopped(stage: Stage) -> None:
    await scheduler_heard(stage, "4 minutes")


async def no_scheduler_ever(stage: Stage) -> None:
    await stage.change(
        "UPDATE pipeline_runs SET started_at = now() - interval '9 days'"
    )


async def scheduler_hangs(stage: Stage) -> None:
    await scheduler_heard(stage, "4 minutes")
    connection = await stage.holding.enter_async_context(
        lock_connection(stage.database)
    )
    assert await ask_lock(
        connection, "SELECT pg_try_advisory_lock(:key)", SCHEDULER_LOCK
    )


async def queue_threads(stage: Stage) -> None:
    """Jobs of the queue `curate`, that wait for three minutes."""
    app = open_app(stage.database)
    async with app.open_async(), stage.database.begin() as session:
        revisions = list(await session.scalars(text("SELECT id FROM thread_revisions")))
        await defer_revisions(session, revisions)
    await stage.change("UPDATE procrastinate_events SET at = at - interval '3 minutes'")


async def queue_step(stage: Stage) -> None:
    app = open_app(stage.database)
    async with app.open_async(), stage.database.begin() as session:
        await defer_step(session, Queue.RELEASE, "freeze", iso_week(now()))
    await stage.change("UPDATE procrastinate_events SET at = at - interval '3 minutes'")


async def worker_killed(stage: Stage) -> None:
    """A worker died with its jobs, and no other takes them over."""
    await queue_threads(stage)
    await stage.change(
        "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '3 minutes')",
        "UPDATE procrastinate_jobs SET status = 'doing', worker_id = (SELECT max(id) FROM procrastinate_workers)",
        "UPDATE procrastinate_events SET at = at - interval '3 minutes'",
    )


async def serve_queue(stage: Stage) -> None:
    connection = await stage.holding.enter_async_context(
        lock_connection(stage.database)
    )
    await announce_serving(connection, [Queue.CURATE])


async def worker_never_decides(stage: Stage) -> None:
    await queue_threads(stage)
    await serve_queue(stage)
    await stage.change("UPDATE procrastinate_events SET at = at - interval '1 hour'")


async def job_failed(stage: Stage) -> None:
    await queue_threads(stage)
    await stage.change("UPDATE procrastinate_jobs SET status = 'doing'")
    await stage.change(
        "UPDATE procrastinate_jobs SET status = 'failed' WHERE id % 2 = 0"
    )
    await stage.change(
        "UPDATE procrastinate_jobs SET status = 'succeeded' WHERE id % 2 = 1"
    )


async def step_job_failed(stage: Stage) -> None:
    await queue_step(stage)
    await stage.change("UPDATE procrastinate_jobs SET status = 'doing'")
    await stage.change("UPDATE procrastinate_jobs SET status = 'failed'")


async def decide(
    stage: Stage, which: str, at: str, reason: str = "invalid_reply", detail: str = "''"
) -> None:
    """An attempt about each thread, thirty times over, which failed; expressions may use `n` and `revision.id`."""
    await stage.change(
        "INSERT INTO curations (revision_id, pipeline_digest, attempt, outcome, stage, reason, detail,"
        " threshold_sufficiency, threshold_alignment, engines, started_at, finished_at)"
        f" SELECT revision.id, '{DIGEST}', n, 'failed', 'screener', '{reason}', {detail}, 0.5, 0.5, '{{}}',"
        f" {at}, {at} FROM thread_revisions AS revision, generate_series(1, 30) AS n WHERE {which}"
    )


def threads_failed(detail: str, reason: str) -> Make:
    async def make(stage: Stage) -> None:
        await decide(stage, "n = 1", "now()", reason, detail)

    return make


async def disk_is_full(stage: Stage) -> None:
    """A disk has less room than must be free; the limit is what is raised, as not everybody may mount a disk."""
    stage.configure("watch", disk_free_gb=1e9)


async def disk_is_filled(stage: Stage) -> None:
    """The raw pages have a disk of their own, which is filled."""
    folder = stage.settings.home / "archive"
    folder.mkdir()
    if not mount_small_disk(folder, 8 << 20):
        pytest.skip("no disk may be mounted here: root and `mount` are needed")
    stage.holding.callback(unmount, folder)
    stage.configure("watch", disk_free_gb=0.002)
    assert await look(stage.database, stage.settings) == []
    fill_disk(folder / "filler", room=1 << 20)


async def evidence_is_gone(stage: Stage) -> None:
    shutil.rmtree(stage.index)


def evidence_file(ending: str, spoil: Callable[[Path], None]) -> Make:
    """Spoil the first file of the index whose name ends so."""

    async def make(stage: Stage) -> None:
        spoil(
            next(
                path
                for path in sorted(stage.index.rglob("*"))
                if path.name.endswith(ending)
            )
        )

    return make


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def right_revoked(right: str) -> Make:
    async def make(stage: Stage) -> None:
        await stage.change(f"REVOKE {right}")

    return make


def circuit_opened(cause: str) -> Make:
    async def make(stage: Stage) -> None:
        address, model = ENDPOINT["base_url"], ENDPOINT["model"]
        stage.settings = Settings.model_validate(
            stage.settings.model_dump() | {"roles": {"screener": ENDPOINT}}
        )
        await stage.change(
            "INSERT INTO circuits SELECT :key, :name, :cause, false, now(), now(), 30",
            key=circuit_key(address, os.environ.get("OPENAI_API_KEY", ""), model),
            name=circuit_name(address, model),
            cause=cause,
        )

    return make


def spent(cost: str, estimated: bool = False, **budget: object) -> Make:
    """A reply of this week at that cost."""

    async def make(stage: Stage) -> None:
        stage.configure("budget", **budget)
        await stage.change(
            f"INSERT INTO prompts (digest, task, text) VALUES ('{DIGEST}', 'screener.extract', 'x')",
            "INSERT INTO replies (request_digest, task, prompt_digest, engine, model, parameters, inputs,"
            " schema_digest, text, finish, reply_model, input_tokens, cached_tokens, output_tokens, estimated,"
            f" cost_usd, latency_ms) VALUES ('{DIGEST}', 'screener.extract', '{DIGEST}', 'openai', 'm', '{{}}',"
            f" '{{}}', '{DIGEST}', 'x', 'stop', 'm', 1, 0, 1, {estimated}, {cost}, 1)",
        )

    return make


async def source_is_quarantined(stage: Stage) -> None:
    await stage.change(
        "INSERT INTO sources (name, kind, quarantined_at, quarantine_reason)"
        " VALUES ('sdn', 'site', now(), 'layout')"
    )


async def harvested(
    stage: Stage, week: str, ago: str = "0 days", outcome: str = "done"
) -> None:
    await stage.change(
        "INSERT INTO sources (name, kind) VALUES ('sdn', 'site')",
        "INSERT INTO harvest_runs (source, iso_week, outcome, problem, started_at, finished_at)"
        f" VALUES ('sdn', :week, '{outcome}', 'the site answers 500', now() - interval '{ago}',"
        f" now() - interval '{ago}')",
        week=week,
    )


def step_ran(step: str, outcome: str, ago: str = "10 minutes") -> Make:
    """A step's run for the week of its latest slot."""

    async def make(stage: Stage) -> None:
        week = iso_week(
            latest_slot(datetime.now(UTC), getattr(stage.settings.schedule, step))
        )
        await harvested(stage, week)
        counts = '{"problem": "no space is left"}' if outcome == "failed" else "{}"
        ended = "NULL" if outcome == "running" else "now()"
        await stage.change(
            "DELETE FROM pipeline_runs",  # that by hand counts as the queue's
            "INSERT INTO pipeline_runs (command, settings, code_version, outcome, started_at, finished_at, counts,"
            f" iso_week) VALUES ('scheduler {step}', '{{}}', '1', '{outcome}', now() - interval '{ago}', {ended},"
            " CAST(:counts AS jsonb), :week)",
            counts=counts,
            week=week,
        )

    return make


async def worker_waits(stage: Stage) -> None:
    await stage.change(
        "INSERT INTO workers (host, pid, queues, paused, state, reason, since)"
        """ VALUES ('h', 7, '["curate"]', '["curate"]', 'waiting', 'no evidence', now() - interval '3 min')"""
    )


async def threads_are_lost(stage: Stage) -> None:
    """Threads have passed the filters and have no job."""
    await stage.change("UPDATE thread_standings SET stage = 'screener'")


async def frozen_in_part(stage: Stage) -> None:
    """The newest week was frozen with threads that waited."""
    meta = FixedMeta(
        lineage=(),
        signing=None,
        provenance=Provenance(
            code_version="1", engines=(), prompts={}, evidence=(), thresholds={}
        ),
        why_not=(),
        numbers=Numbers(cases=16, criteria=80, held=0),
        hold_out=0.0,
        gates_digest=DIGEST,
        partial=Partial(decided=16, queued=45, because="29 wait (not begun 29)"),
    )
    await stage.change(
        "INSERT INTO snapshots (version, state, meta) VALUES ('2026.W10', 'building', CAST(:meta AS jsonb))",
        "UPDATE snapshots SET state = 'frozen', frozen_at = now(), manifest = '{}', manifest_digest = :digest,"
        " sums_digest = :digest, cases = 16, criteria = 80, publishable = true, path = 'x', why_not = '[]'",
        meta=meta.model_dump_json(),
        digest=DIGEST,
    )


async def clock_is_ahead(stage: Stage) -> None:
    real = now
    ahead = patch("medlive.clock.now", lambda: real() + timedelta(days=22))
    stage.holding.enter_context(ahead)


async def harvest_failed(stage: Stage) -> None:
    await harvested(stage, iso_week(now()), outcome="failed")


async def weeks_were_missed(stage: Stage) -> None:
    await harvested(stage, "2020.W01", "20 days")


async def backup_never_made(stage: Stage) -> None:
    stage.configure("backup", folder=stage.settings.home / "backups")
    await harvested(stage, "2020.W01", "9 days")


async def backup_too_old(stage: Stage) -> None:
    stage.configure("backup", folder=stage.settings.home / "backups")
    await stage.change(
        "INSERT INTO pipeline_runs (command, settings, code_version, outcome, started_at, finished_at, counts,"
        " iso_week) VALUES ('scheduler backup', '{}', '1', 'done', now() - interval '9 days',"
        " now() - interval '9 days', '{}', '2020.W01')"
    )


def backup_with(outcome: str, **counts: str) -> Make:
    """The week's backup ended so."""

    async def make(stage: Stage) -> None:
        stage.configure("backup", folder=stage.settings.home / "backups")
        await stage.change(
            "INSERT INTO pipeline_runs (command, settings, code_version, outcome, started_at, finished_at, counts,"
            f" iso_week) VALUES ('scheduler backup', '{{}}', '1', '{outcome}', now(), now(),"
            " CAST(:counts AS jsonb), :week)",
            counts=json.dumps(counts),
            week=iso_week(now()),
        )

    return make


def undelivered(place: str) -> Make:
    """A message that no place takes; the other place, where the test listens, stays."""

    async def make(stage: Stage) -> None:
        await stage.change(
            "INSERT INTO outbox (place, message, attempts, last_error, send_at) VALUES"
            f" ('{place}', '{{\"text\": \"x\"}}', 1, 'the {place} was not delivered (ConnectError)',"
            " now() + interval '5 minutes')"
        )

    return make


_BAD_REQUEST = (
    "'endpoint \x1b[2J refuses request ' || revision.id || "
    "': status 400: no parameter \"x' || revision.id || '\"'"
)
_LIMITED = "'no answer in 6 attempts: status 429: wait ' || revision.id * 7 || ' s'"

FAULTS: Mapping[str, Fault] = {
    "scheduler-stopped": Fault("no_scheduler", scheduler_stopped),
    "scheduler-never-started": Fault("no_scheduler", no_scheduler_ever),
    "scheduler-hangs": Fault("no_scheduler", scheduler_hangs),
    "no-worker-for-threads": Fault("no_worker", queue_threads),
    "no-worker-for-a-step": Fault("no_worker", queue_step),
    "worker-killed-with-its-jobs": Fault("no_worker", worker_killed),
    "worker-takes-no-jobs": Fault("worker_waits", worker_waits),
    "threads-without-a-job": Fault("threads_lost", threads_are_lost),
    "worker-never-decides": Fault("no_progress", worker_never_decides),
    "jobs-of-threads-failed": Fault("jobs_failed", job_failed),
    "job-of-a-step-failed": Fault("jobs_failed", step_job_failed),
    "threads-refused-with-400": Fault(
        "threads_fail_alike", threads_failed(_BAD_REQUEST, "endpoint_unavailable")
    ),
    "threads-limited-with-429": Fault(
        "threads_fail_alike", threads_failed(_LIMITED, "endpoint_unavailable")
    ),
    "threads-with-unusable-replies": Fault(
        "threads_fail_alike", threads_failed("'no JSON'", "invalid_reply")
    ),
    "disk-bytes": Fault("disk", disk_is_full),
    "disk-filled": Fault("disk", disk_is_filled),
    "evidence-gone": Fault("evidence", evidence_is_gone),
    "evidence-file-gone": Fault("evidence", evidence_file("days.bin", Path.unlink)),
    "evidence-file-short": Fault("evidence", evidence_file(".store", cut_short)),
    "evidence-manifest-broken": Fault(
        "evidence", evidence_file("manifest.json", flip_byte)
    ),
    "right-of-worker-revoked": Fault(
        "rights_missing", right_revoked("INSERT ON curations FROM medlive_worker")
    ),
    "right-of-web-revoked": Fault(
        "rights_missing", right_revoked("SELECT ON cases FROM medlive_web")
    ),
    "right-to-a-column-revoked": Fault(
        "rights_missing",
        right_revoked("UPDATE (closed_at) ON disputes FROM medlive_web"),
    ),
    "account-without-credit": Fault("circuit_open", circuit_opened("no credit")),
    "endpoint-down": Fault("circuit_open", circuit_opened("no connection")),
    "week-budget-spent": Fault("budget_spent", spent("2", week_usd=1.0)),
    "stage-budget-spent": Fault(
        "budget_spent", spent("2", stage_week_usd={"screener": 1.0})
    ),
    "week-budget-spent-without-usage": Fault(
        "budget_spent", spent("2", estimated=True, week_usd=1.0)
    ),
    "reply-without-a-price": Fault("unpriced", spent("NULL")),
    "source-quarantined": Fault("source_quarantined", source_is_quarantined),
    "freeze-failed": Fault("step_failed", step_ran("freeze", "failed")),
    "queue-failed": Fault("step_failed", step_ran("queue", "failed")),
    "retention-failed": Fault("step_failed", step_ran("retention", "failed")),
    "harvest-failed": Fault("step_failed", harvest_failed),
    "weeks-missed": Fault("step_overdue", weeks_were_missed),
    "week-frozen-in-part": Fault("week_partial", frozen_in_part),
    "clock-is-ahead": Fault("clock_off", clock_is_ahead),
    "backup-never-made": Fault("backup_old", backup_never_made),
    "backup-too-old": Fault("backup_old", backup_too_old),
    "backup-does-not-come-back": Fault(
        "backup_unchecked",
        backup_with(
            "failed", check="failed", problem="the restore check failed: 3 rows"
        ),
    ),
    "backup-cannot-be-tried": Fault(
        "backup_unchecked",
        backup_with("done", check="impossible", why="owner may not create databases"),
    ),
    "backup-was-not-tried": Fault("backup_unchecked", backup_with("done")),
    "webhook-refuses": Fault("message_undelivered", undelivered("webhook")),
    "mail-refuses": Fault("message_undelivered", undelivered("email")),
}
"""Name → a fault; the table in docs/builders/faults.md has a row for each."""
