"""Run a weekly step again when a person asks (`run_again`), or clear it, so that the scheduler does (`clear_step`)."""

from medlive.config import Settings
from medlive.db.audit_log import record
from medlive.db.jobs import queued_locks
from medlive.db.release.snapshots import find_snapshot
from medlive.db.release.weeks import end_wait
from medlive.db.runs import CURATE, Run, clear_harvest, clear_runs, runs_of_week
from medlive.db.session import Database, Session
from medlive.db.tables.people import Act
from medlive.errors import CheckFailed, UsageError
from medlive.service.release.withdraw import check_given_reason, check_person_name
from medlive.service.work.jobs import open_app, run_step_job, step_lock
from medlive.service.work.taken import STEP

from .scheduler import step_work
from .steps import FREEZE, QUEUE, StepState, read_states


async def run_again(
    database: Database, settings: Settings, step: str, *, by: str | None = None
) -> Run | None:
    """Run a step now, whether or not it is done: in a worker that serves its queue, else in this process.

    It is run for its current ISO week (`StepState.week`); `by` is for the audit log. Raises UsageError for an unknown
    step, CheckFailed while it is being done, and DatabaseUnavailable.
    """
    by = check_person_name(by)
    state = await _find(database, settings, step)
    async with database.begin() as session:
        await _clear(session, state)
        await record(session, Act.RUN_STEP, f"step:{step}", by=by, week=state.week)
    works = {STEP: step_work(database, settings)}
    async with open_app(database).open_async() as app:
        await run_step_job(app, database, works, state.queue, step, state.week)
    _, runs = await database.ask(runs_of_week, state.week)
    return runs.get(state.command)


async def clear_step(
    database: Database,
    settings: Settings,
    step: str,
    *,
    reason: str | None = None,
    by: str | None = None,
) -> str:
    """Make a step count as not done, so that the scheduler runs it again; return its current ISO week.

    Raises UsageError for an unknown step, one of which nothing is recorded, and a frozen week's freeze, and
    CheckFailed while it is being done.
    """
    reason, by = check_given_reason(reason), check_person_name(by)
    state = await _find(database, settings, step)
    week = state.week
    async with database.begin() as session:
        info = await find_snapshot(session, week) if step == FREEZE else None
        if info and info.frozen_at:
            raise UsageError(
                f"{week} is frozen and stays as it is",
                hint="medlive snapshot withdraw takes cases back",
            )
        if not await _clear(session, state):
            raise UsageError(f"nothing is recorded of {step} for {week}")
        await record(session, Act.CLEAR_STEP, f"step:{step}", reason, by=by, week=week)
    return week


async def _find(database: Database, settings: Settings, step: str) -> StepState:
    """The state of the step of this name. Raises UsageError."""
    names = []
    for state in await read_states(database, settings):
        if state.name == step:
            return state
        names.append(state.name)
    raise UsageError(f"unknown step {step[:100]!r}", hint=f"steps: {', '.join(names)}")


async def _clear(session: Session, state: StepState) -> int:
    """Make a step count as not done; the number of runs cleared. Raises CheckFailed while it is being done."""
    week = state.week
    if await queued_locks(session, [step_lock(state.name, week)]):
        raise CheckFailed(
            f"{state.name} of {week} is being done",
            hint="medlive jobs list shows its job",
        )
    await end_wait(session, state.name, week)
    by_hand = CURATE if state.name == QUEUE else ""
    cleared = await clear_runs(
        session, state.command, week, by_hand=by_hand, since=state.slot
    )
    if state.source:
        cleared += await clear_harvest(session, state.source, week)
    return cleared
