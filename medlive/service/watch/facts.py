"""The facts that checks read, gathered from the database and this machine."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from medlive import clock as own_clock
from medlive.clock import CLOCK_BOUND
from medlive.config import Settings
from medlive.db import watch
from medlive.db.audit import health
from medlive.db.curation.circuits import list_circuits
from medlive.db.harvest.harvests import SourceInfo, list_sources
from medlive.db.jobs import find_lost, waiting_workers
from medlive.db.mapping import Record
from medlive.db.release.snapshots import latest_frozen, load_fixed
from medlive.db.runs import History, load_history
from medlive.db.session import Database, read_clock
from medlive.db.tables.work import OutboxRow, WorkerRow
from medlive.errors import IndexMissing, MedliveError
from medlive.guard.circuit import Opening, circuit_key, circuit_name
from medlive.instance.paths import archive_path, index_path
from medlive.llm.registry import KEY_VARIABLE
from medlive.service.schedule.steps import WEEK, StepState, read_states
from medlive.service.week_budget import read_spending

Clock = Callable[[], datetime] | None
"""What decides which weekly steps are due; None: the database's clock."""


@dataclass(frozen=True)
class Facts:
    """Everything that checks read, at one moment."""

    settings: Settings
    moment: datetime  # By the database's clock
    in_use: bool  # Whether anything was ever harvested or imported
    scheduler_active: bool
    # When a lasting scheduler was last heard; None: never
    scheduler_heard: datetime | None
    history: History
    steps: Sequence[StepState]
    workers: Mapping[str, int]  # Queue → processes that serve it
    queues: Sequence[Record]
    waiting_workers: Sequence[WorkerRow]  # Live workers that take no jobs
    lost_threads: int  # Threads that nothing will take up
    decided_at: datetime | None  # When the latest attempt ended; None: never
    decided: int  # Threads that engines decided or failed to decide within a week
    failed_jobs: Sequence[Record]
    failed_threads: Sequence[Record]
    sources: Sequence[SourceInfo]
    circuits: Sequence[Opening]
    spending: Mapping[str, Any]  # As `read_spending` returns it
    undelivered: Sequence[OutboxRow]
    missing_rights: Sequence[Record]
    # That this machine's clock and the database's do not agree
    clock_problem: str | None
    # How far the newest frozen week was; None: whole, or there is none
    partial: str | None
    # What this machine alone knows; nothing where it does not hold MEDLIVE_HOME.
    # (place: home, archive, backup or database; path; bytes that are free; bytes)
    disks: Sequence[tuple[str, str, int, int]]
    # What is wrong with the evidence index, as far as its files' names and sizes say, or that it is needed and missing
    evidence_problem: str | None


async def read_facts(
    database: Database,
    settings: Settings,
    clock: Clock = None,
) -> Facts:
    """Everything that checks read, now; `clock` decides which weekly steps are due, None: the database's.

    Raises ConfigError and DatabaseUnavailable.
    """
    from medlive.evidence.index import read_index  # imports NumPy

    async with database.begin() as session:
        moment = await read_clock(session)
        clock_off = clock_problem(moment)
        directory = await health.data_directory(session)
        progress = await health.read_progress(session, moment - WEEK)
    evidence_problem = None
    is_home = settings.home.is_dir()
    try:
        if is_home:
            read_index(index_path(settings)).check()
    except MedliveError as error:
        is_missing = isinstance(error, IndexMissing)
        if not is_missing or (progress.in_use and not settings.evidence.online):
            evidence_problem = error.message
    due_at = clock() if clock else moment
    steps = await read_states(database, settings, due_at)
    async with database.begin() as session:
        partial = None
        if newest := await latest_frozen(session):
            fixed = await load_fixed(session, newest.version)
            if fixed and fixed.partial:
                partial = f"{newest.version} is partial: {fixed.partial.in_short}"
        return Facts(
            settings=settings,
            moment=moment,
            in_use=progress.in_use,
            scheduler_active=progress.scheduler_active,
            scheduler_heard=await watch.scheduler_heard(session),
            history=await load_history(session, due_at),
            steps=steps,
            workers=await health.workers_by_queue(session),
            queues=await health.queue_health(session),
            waiting_workers=await waiting_workers(session),
            lost_threads=len(await find_lost(session)),
            decided_at=progress.decided_at,
            decided=progress.decided,
            failed_jobs=await health.failed_jobs(session),
            failed_threads=await health.failed_threads(session),
            sources=await list_sources(session),
            circuits=await list_circuits(session, _configured_circuits(settings)),
            spending=await read_spending(session, settings.budget),
            undelivered=await watch.undelivered(session),
            missing_rights=await health.missing_rights(session),
            clock_problem=clock_off,
            partial=partial,
            disks=_read_disks(settings, directory) if is_home else (),
            evidence_problem=evidence_problem,
        )


def clock_problem(database: datetime) -> str | None:
    """That this machine's clock and the database's do not agree; None: they do."""
    own = own_clock.now()
    if abs(own - database) <= CLOCK_BOUND:
        return None
    return (
        f"this machine's clock says {own:%Y-%m-%d %H:%M} UTC, the database's"
        f" {database:%Y-%m-%d %H:%M}: set the one that is wrong"
    )


def _read_disks(
    settings: Settings, data_directory: str | None
) -> list[tuple[str, str, int, int]]:
    """The file systems that are written to: each once, by the first of its places.

    `data_directory` is the database's, which may lie on another machine.
    """
    places = {
        "home": settings.home,
        "archive": archive_path(settings),
        "backup": settings.backup.folder,
        "database": None if data_directory is None else Path(data_directory),
    }
    by_device: dict[int, tuple[str, str, int, int]] = {}
    for place, where in places.items():
        if where and where.is_dir():
            usage = shutil.disk_usage(where)
            by_device.setdefault(
                os.stat(where).st_dev, (place, str(where), usage.free, usage.total)
            )
    return [*by_device.values()]


def _configured_circuits(settings: Settings) -> set[str]:
    """The circuit breakers of this configuration, by key; by endpoint and model where a role's API key is not set here.

    The workers' environment may hold it; then their circuit has a key that this process cannot make.
    """
    circuits: set[str] = {*settings.evidence.online}  # Named by the service
    for _, role in settings.roles:
        if role.engine == "openai" and role.base_url and role.model:
            place, key = role.base_url, role.api_key_env or KEY_VARIABLE
            if key in os.environ:
                circuits.add(circuit_key(place, os.environ[key], role.model))
            else:
                circuits.add(circuit_name(place, role.model))
    return circuits
