"""The facts that checks read, gathered from the database and this machine."""

import os
from collections.abc import Callable
from datetime import datetime

from medlive import clock as own_clock
from medlive.clock import now
from medlive.config import DEFAULT_KEY_VARIABLE, RoleSettings, Settings
from medlive.db import watch
from medlive.db.audit import health
from medlive.db.curation.circuits import list_circuits
from medlive.db.harvest.harvests import list_sources
from medlive.db.runs import is_scheduler_active, load_history
from medlive.db.session import Database, read_clock
from medlive.db.waits import find_lost
from medlive.db.workers import waiting_workers
from medlive.llm.circuit import circuit_key, circuit_name
from medlive.service.schedule.clocks import clock_problem
from medlive.service.schedule.steps import WEEK, read_states
from medlive.service.watch.local import read_local
from medlive.service.watch.model import Facts
from medlive.service.watch.week import newest_partial
from medlive.service.week_budget import read_week


async def read_facts(
    database: Database, settings: Settings, clock: Callable[[], datetime] = now
) -> Facts:
    """Everything that checks read, now; `clock` decides which weekly steps are due.

    Raises ConfigError and DatabaseUnavailable.
    """
    async with database.begin() as session:
        moment = await read_clock(session)
        clock_off = clock_problem(own_clock.now(), moment)
        directory = await health.data_directory(session)
    steps = await read_states(database, settings, clock())
    async with database.begin() as session:
        return Facts(
            settings=settings,
            moment=moment,
            in_use=await health.is_in_use(session),
            scheduler_active=await is_scheduler_active(session),
            history=await load_history(session, clock()),
            steps=steps,
            workers=await health.workers_by_queue(session),
            queues=await health.queue_health(session),
            waiting_workers=await waiting_workers(session),
            lost_threads=len(await find_lost(session)),
            decisions=await health.latest_decisions(session),
            decided=await health.count_decided(session, moment - WEEK),
            failed_jobs=await health.failed_jobs(session),
            failed_threads=await health.failed_threads(session),
            sources=await list_sources(session),
            circuits=await list_circuits(session, configured_circuits(settings)),
            week=await read_week(session, settings.budget),
            undelivered=await watch.undelivered(session),
            missing_rights=await health.missing_rights(session),
            observations=await watch.observations(session),
            clock_problem=clock_off,
            partial=await newest_partial(session),
            local=read_local(settings, directory),
        )


def configured_circuits(settings: Settings) -> set[str]:
    """The keys of the roles' circuits; their endpoints where a role's key is not in this environment.

    The workers' may hold it: then their circuit has another key than this process could make.
    """
    used: list[RoleSettings] = [role for _, role in settings.roles]
    circuits: set[str] = {*settings.evidence.online}  # Named by the service
    for role in used:
        if role.engine != "openai" or not role.base_url or not role.model:
            continue
        key = os.environ.get(role.api_key_env or DEFAULT_KEY_VARIABLE)
        if key is None:
            circuits.add(circuit_name(role.base_url, role.model))
        else:
            circuits.add(circuit_key(role.base_url, key, role.model))
    return circuits
