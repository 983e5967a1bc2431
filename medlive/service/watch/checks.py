"""Every check, one function each, in one list: what `status --check`, metrics, alerts and messages know.

A check reads facts and yields what it finds. Codes are stable: alerts and acknowledgements use them.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

from medlive.db.tables.intake import RunOutcome
from medlive.db.tables.watch import OpenProblemRow, Severity
from medlive.guard.printable import printable
from medlive.service.backup.contents import TrialOutcome
from medlive.service.schedule.steps import (
    BACKUP,
    StepState,
    StepStatus,
    command_of,
    summarize_counts,
)
from medlive.service.watch.alike import group_failures
from medlive.service.watch.model import (
    EVIDENCE,
    HEARTBEAT,
    Facts,
    Symptom,
)
from medlive.service.week_budget import NEARLY, week_limits

SILENT_AFTER: Final = timedelta(minutes=3)
"""A scheduler is heard every minute."""
UNSERVED_AFTER: Final = timedelta(minutes=2)
"""Jobs may wait so long for a worker that is being restarted."""
BY_HAND_WITHIN: Final = timedelta(days=8)
"""An instance that never had a lasting scheduler is run by cron where a step began so recently."""
SHORTEST_PAUSE: Final = timedelta(minutes=3)
USUAL_PAUSE: Final = timedelta(minutes=30)
LONGEST_PAUSE: Final = timedelta(hours=2)
"""How long nothing may be decided while jobs wait: at least, without a history, and at most."""
OLD_JOB: Final = timedelta(days=1)
LONG_STEP: Final = timedelta(days=1)
ALIKE: Final = 3
ALIKE_SHARE: Final = 0.01
"""Threads that fail alike are a problem from so many on, and so large a share of a week's threads."""
MOST_GROUPS: Final = 5

Find = Callable[[Facts], Iterator[Symptom]]


class Check(NamedTuple):
    """One check."""

    code: str
    severity: Severity
    find: Find
    is_local: bool = False  # Whether it reads what only the machine itself knows


def find_problems(facts: Facts) -> list[OpenProblemRow]:
    """Every problem, in the order of the checks; those of the machine only where it holds MEDLIVE_HOME."""
    problems = []
    for check in CHECKS:
        if check.is_local and facts.local is None:
            continue
        for symptom in check.find(facts):
            problem = OpenProblemRow(
                code=check.code,
                subject=printable(symptom.subject),
                severity=check.severity,
                # Endpoints and forums have their words in it
                text=printable(symptom.text),
                next_step=printable(symptom.next_step),
            )
            problems.append(problem)
    return problems


def no_scheduler(facts: Facts) -> Iterator[Symptom]:
    """No scheduler works: nothing is harvested or frozen. An instance that cron runs needs none."""
    heard = facts.scheduler_heard
    if facts.scheduler_active or not facts.in_use:
        return
    if heard is not None:
        if facts.moment - heard > SILENT_AFTER:
            yield Symptom(
                f"no scheduler has worked since {_minute(heard)}",
                "start `medlive scheduler`",
            )
        return
    # by cron, `medlive scheduler --once` too
    by_hand = [run.started_at for run in facts.history.latest.values()]
    if not by_hand or facts.moment - max(by_hand) > BY_HAND_WITHIN:
        yield Symptom(
            "no scheduler has ever worked",
            "start `medlive scheduler`, or run the steps by cron",
        )


def scheduler_silent(facts: Facts) -> Iterator[Symptom]:
    """A scheduler has its lock and does not look at its steps: it hangs."""
    heard = facts.scheduler_heard
    if (
        facts.scheduler_active
        and heard is not None
        and facts.moment - heard > SILENT_AFTER
    ):
        yield Symptom(
            f"a scheduler is there and was last heard {_minute(heard)}",
            "look at its log, then restart it: another one goes on where it was",
        )


def no_worker(facts: Facts) -> Iterator[Symptom]:
    """Jobs of a queue could begin, and nobody serves it."""
    for queue in facts.queues:
        if queue.workers or queue.worked or queue.since is None:
            continue
        if facts.moment - queue.since > UNSERVED_AFTER:
            yield Symptom(
                f"no worker serves the queue {queue.queue}: {queue.ready} jobs wait since {_minute(queue.since)}",
                f"start `medlive worker --queues {queue.queue}`",
                queue.queue,
            )


def worker_waits(facts: Facts) -> Iterator[Symptom]:
    """A worker takes no jobs of a queue, and says why."""
    for worker in facts.waiting_workers:
        if facts.moment - worker.since > UNSERVED_AFTER:
            yield Symptom(
                f"a worker on {worker.host} (process {worker.pid}) waits since {_minute(worker.since)}:"
                f" {worker.reason}",
                "mend its cause; it goes on by itself",
                f"{worker.host}:{worker.pid}",
            )


def threads_lost(facts: Facts) -> Iterator[Symptom]:
    """Threads wait for nothing that will ever take them up."""
    if facts.lost_threads:
        yield Symptom(
            f"{facts.lost_threads} threads wait and nothing will take them up",
            "a scheduler queues them again by itself, and so does `medlive jobs check`",
        )


def no_progress(facts: Facts) -> Iterator[Symptom]:
    """Workers have jobs and decide nothing for longer than they ever took."""
    for queue in facts.queues:
        if (
            queue.queue != "curate"
            or not (queue.workers or queue.worked)
            or queue.since is None
        ):
            continue
        since = max(queue.since, facts.decisions[0]) if facts.decisions else queue.since
        limit = longest_pause(facts.decisions)
        if facts.moment - since > limit and not facts.circuits:
            yield Symptom(
                f"{queue.ready} threads wait and none was decided since {_minute(since)}; "
                f"by its history it takes {limit.total_seconds() / 60:.0f} minutes at most",
                "look at the workers' logs, then restart them",
                queue.queue,
            )


def longest_pause(decisions: Sequence[datetime]) -> timedelta:
    """How long nothing may be decided while threads wait, by when the latest were decided, newest first.

    Three times the gap that one in a hundred exceeds; gaps of LONGEST_PAUSE and more are pauses and do not count.
    """
    gaps = []
    for later, earlier in pairwise(decisions):
        gap = abs(later - earlier)
        if gap < LONGEST_PAUSE:
            gaps.append(gap)
    if len(gaps) < 20:
        return USUAL_PAUSE
    usual = sorted(gaps)[int(len(gaps) * 0.99)]
    return min(max(3 * usual, SHORTEST_PAUSE), LONGEST_PAUSE)


def jobs_old(facts: Facts) -> Iterator[Symptom]:
    """A job could begin for more than a day, though its queue is served."""
    for queue in facts.queues:
        if (
            queue.workers
            and queue.since is not None
            and facts.moment - queue.since > OLD_JOB
        ):
            yield Symptom(
                f"a job of the queue {queue.queue} waits since {_minute(queue.since)}",
                f"start more workers, or look at it: `medlive jobs list --queue {queue.queue}`",
                queue.queue,
            )


def jobs_failed(facts: Facts) -> Iterator[Symptom]:
    """Jobs ended with an error of medlive or its surroundings, and nothing has done them since."""
    for failed in facts.failed_jobs:
        yield Symptom(
            f"{failed.jobs} jobs of the queue {failed.queue} failed, such as {failed.example}",
            f"look at the worker's log, then `medlive jobs retry {failed.example}`",
            failed.queue,
        )


def threads_fail_alike(facts: Facts) -> Iterator[Symptom]:
    """Several threads failed for the same cause."""
    least = max(ALIKE, ALIKE_SHARE * facts.decided)
    groups = group_failures(facts.failed_threads)
    for group in groups[:MOST_GROUPS]:
        if group.threads < least:
            return
        yield Symptom(
            f"{group.threads} threads failed alike in {', '.join(group.stages)}, {group.reason}: {group.cause}",
            f"look at one: `medlive thread show {group.example}`; then `medlive curate --retry-failed`",
            f"{group.reason}: {group.cause}"[:100],
        )


def disk(facts: Facts) -> Iterator[Symptom]:
    """A file system that medlive writes to is nearly full."""
    limits = facts.settings.watch
    assert facts.local is not None
    for drive in facts.local.disks:
        least = max(limits.disk_free_gb * 1e9, limits.disk_free_share * drive.size)
        if drive.free < least:
            yield Symptom(
                f"{drive.free / 1e9:.1f} of {drive.size / 1e9:.0f} GB are free at {drive.path} ({drive.place})",
                "make room, or move it to a larger disk",
                drive.place,
            )


def evidence_missing(facts: Facts) -> Iterator[Symptom]:
    """There is neither an evidence index nor a literature service, so that no thread can be curated."""
    assert facts.local is not None
    missing = facts.local.evidence_missing
    if missing is not None and facts.in_use and not facts.settings.evidence.online:
        yield Symptom(missing, "`medlive evidence build CORPUS...`, or restore it")


def evidence_corrupt(facts: Facts) -> Iterator[Symptom]:
    """A file of the evidence index is not as it was built."""
    local, noted = facts.local, facts.observations.get(EVIDENCE)
    assert local is not None
    wrong = local.evidence_corrupt
    if wrong is None and noted is not None:
        is_same = noted.value["state"] == local.evidence_state
        wrong = noted.value["problem"] if is_same else None
    if wrong is not None:
        yield Symptom(
            wrong,
            "restore the index, or build it again: `medlive evidence build CORPUS...`",
        )


def rights_missing(facts: Facts) -> Iterator[Symptom]:
    """A role of the database has lost a right that it needs."""
    by_role: dict[str, list[str]] = {}
    for right in facts.missing_rights:
        by_role.setdefault(right.role, []).append(f"{right.privilege} on {right.table}")
    for role, missing in by_role.items():
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        yield Symptom(
            f"{role} lacks {', '.join(missing[:3])}{more}",
            "`medlive db roles` as the owner",
            role,
        )


def circuit_open(facts: Facts) -> Iterator[Symptom]:
    """A model's endpoint is not asked for a while, and threads wait for it."""
    for opening in facts.circuits:
        yield Symptom(
            str(opening),
            "mend its cause; then it is tried again by itself",
            opening.endpoint,
        )


def budget_spent(facts: Facts) -> Iterator[Symptom]:
    """A limit of the week is reached: no thread is begun before the next week."""
    for limit in week_limits(dict(facts.week)):
        if limit.is_spent:
            yield Symptom(
                f"{limit.name} for {facts.week['week']} is spent ({limit.usd:.2f})",
                "the next week goes on, or raise [budget] in medlive.toml",
                limit.stage,
            )


def budget_near(facts: Facts) -> Iterator[Symptom]:
    """Four fifths of a limit of the week are spent."""
    for limit in week_limits(dict(facts.week)):
        if NEARLY * limit.limit <= limit.usd < limit.limit:
            yield Symptom(
                f"{limit.name} for {facts.week['week']} is nearly spent ({limit.usd:.2f})",
                "`medlive cost --week this` shows for what",
                limit.stage,
            )


def unpriced(facts: Facts) -> Iterator[Symptom]:
    """Replies of the week have no price, so that nobody knows what they cost."""
    if n := facts.week["unpriced"]:
        yield Symptom(
            f"{n} replies of {facts.week['week']} have no price: the cost is unknown",
            'set [prices."MODEL"] in models.toml, 0 for a model that costs nothing',
        )


def source_quarantined(facts: Facts) -> Iterator[Symptom]:
    """A source is left out because its pages changed."""
    for source in facts.sources:
        if source.quarantined_at is not None:
            yield Symptom(
                f"{source.name} is quarantined since {_minute(source.quarantined_at)}: {source.quarantine_reason}",
                f"`medlive source check {source.name} --url URL`, then `medlive source lift {source.name}`",
                source.name,
            )


def step_overdue(facts: Facts) -> Iterator[Symptom]:
    """A weekly step is not done a day after its time."""
    for step in facts.steps:
        if step.overdue:
            why = f": {_last(step)}" if has_failed(step, facts) else ""
            yield Symptom(
                f"{step.name} is overdue since {_minute(step.next_at)}{why}",
                _STEP_HINT,
                step.name,
            )


def step_failed(facts: Facts) -> Iterator[Symptom]:
    """A weekly step failed for its week and is not done since."""
    for step in facts.steps:
        if (
            not step.overdue
            and step.status is not StepStatus.DONE
            and has_failed(step, facts)
        ):
            yield Symptom(
                f"{step.name} failed for {step.week}: {_last(step)}",
                _STEP_HINT,
                step.name,
            )


def step_hangs(facts: Facts) -> Iterator[Symptom]:
    """A weekly step has been at work for more than a day."""
    for step in facts.steps:
        run = step.latest
        if (
            run is None
            or run.outcome is not RunOutcome.RUNNING
            or step.status is StepStatus.DONE
        ):
            continue
        if facts.moment - run.started_at > LONG_STEP:
            yield Symptom(
                f"{step.name} is at work since {_minute(run.started_at)}",
                "look at the scheduler's log, then restart it: the step is taken up again",
                step.name,
            )


def has_failed(step: StepState, facts: Facts) -> bool:
    """Whether a step's latest run for its week failed, or one before it while that is still at work."""
    run = step.latest
    if run is None or run.week != step.week:
        return False
    running = run.outcome is RunOutcome.RUNNING
    return run.outcome is RunOutcome.FAILED or (
        running and bool(facts.history.failures.get(step.command))
    )


def week_partial(facts: Facts) -> Iterator[Symptom]:
    """The newest week was frozen before all threads queued for it were decided."""
    if facts.partial is not None:
        yield Symptom(
            facts.partial,
            "the rest enters the next week; `medlive week show` has the reasons",
        )


def clock_off(facts: Facts) -> Iterator[Symptom]:
    """This machine's clock and the database's do not agree."""
    if facts.clock_problem is not None:
        yield Symptom(
            facts.clock_problem,
            "let both machines set their clocks by the network (NTP)",
        )


def recorded_ahead(facts: Facts) -> Iterator[Symptom]:
    """A clock that was ahead has recorded steps of weeks that have not come."""
    if facts.history.ahead:
        yield Symptom(
            f"recorded for weeks that have not come: {', '.join(facts.history.ahead)}",
            "a scheduler undoes it by itself, and so does `medlive week clear`",
        )


def backup_old(facts: Facts) -> Iterator[Symptom]:
    """The latest weekly backup is too old, or was never made."""
    if facts.settings.backup.folder is None or not facts.in_use:
        return
    done = facts.history.done.get(_BACKUP)
    first = min(
        (harvest.first_at for harvest in facts.history.harvests.values()),
        default=facts.moment,
    )
    at = first if done is None else done.finished_at or done.started_at
    if facts.moment - at > timedelta(days=facts.settings.watch.backup_days):
        text = (
            "no weekly backup was ever made"
            if done is None
            else f"the latest backup was made {_minute(at)}"
        )
        yield Symptom(
            text, "look at the step in `medlive status`, or run `medlive backup FOLDER`"
        )


def backup_unchecked(facts: Facts) -> Iterator[Symptom]:
    """The latest weekly backup was not restored into a scratch database, or did not come back."""
    latest, done = facts.history.latest.get(_BACKUP), facts.history.done.get(_BACKUP)
    if facts.settings.backup.folder is None or not facts.settings.backup.check:
        return
    if latest is not None and latest.counts.get("check") == TrialOutcome.FAILED:
        problem = f"the backup of {latest.week}: {summarize_counts(latest.counts)}"
        yield Symptom(
            problem, f"find out what altered it, move it away, then {_BACK_UP_AGAIN}"
        )
    elif done is not None and done.counts.get("check") == TrialOutcome.IMPOSSIBLE:
        yield Symptom(
            f"the backup of {done.week} was not tried: {done.counts['why']}",
            f"then {_BACK_UP_AGAIN}",
        )
    elif done is not None and done.counts.get("check") != TrialOutcome.PASSED:
        yield Symptom(
            f"the backup of {done.week} was not restored to check it",
            f"{_BACK_UP_AGAIN} does it",
        )


def message_undelivered(facts: Facts) -> Iterator[Symptom]:
    """A message to operators could not be delivered; it is sent again."""
    for place in ("webhook", "email"):
        waiting = [message for message in facts.undelivered if message.place == place]
        if waiting:
            yield Symptom(
                f"{len(waiting)} messages by {place} are undelivered since {_minute(waiting[0].created_at)}: "
                f"{waiting[-1].last_error}",
                "see [notify] in medlive.toml; they are sent again",
                place,
            )


def heartbeat_undelivered(facts: Facts) -> Iterator[Symptom]:
    """The dead man's switch could not be reached."""
    noted = facts.observations.get(HEARTBEAT)
    if (
        noted is not None
        and facts.settings.notify.heartbeat_url is not None
        and noted.value.get("problem")
    ):
        yield Symptom(
            f"the heartbeat was not delivered ({noted.value['problem']})",
            "see heartbeat_url in [notify] of medlive.toml",
        )


CHECKS: Final[tuple[Check, ...]] = (
    Check("no_scheduler", Severity.PAGE, no_scheduler),
    Check("scheduler_silent", Severity.PAGE, scheduler_silent),
    Check("no_worker", Severity.PAGE, no_worker),
    Check("worker_waits", Severity.PAGE, worker_waits),
    Check("threads_lost", Severity.TICKET, threads_lost),
    Check("no_progress", Severity.PAGE, no_progress),
    Check("jobs_old", Severity.TICKET, jobs_old),
    Check("jobs_failed", Severity.TICKET, jobs_failed),
    Check("threads_fail_alike", Severity.PAGE, threads_fail_alike),
    Check("disk", Severity.PAGE, disk, is_local=True),
    Check("evidence_missing", Severity.PAGE, evidence_missing, is_local=True),
    Check("evidence_corrupt", Severity.PAGE, evidence_corrupt, is_local=True),
    Check("rights_missing", Severity.PAGE, rights_missing),
    Check("circuit_open", Severity.PAGE, circuit_open),
    Check("budget_spent", Severity.PAGE, budget_spent),
    Check("budget_near", Severity.TICKET, budget_near),
    Check("unpriced", Severity.TICKET, unpriced),
    Check("source_quarantined", Severity.TICKET, source_quarantined),
    Check("step_overdue", Severity.PAGE, step_overdue),
    Check("step_failed", Severity.TICKET, step_failed),
    Check("step_hangs", Severity.TICKET, step_hangs),
    Check("week_partial", Severity.TICKET, week_partial),
    Check("clock_off", Severity.PAGE, clock_off),
    Check("recorded_ahead", Severity.TICKET, recorded_ahead),
    Check("backup_old", Severity.TICKET, backup_old),
    Check("backup_unchecked", Severity.TICKET, backup_unchecked),
    Check("message_undelivered", Severity.TICKET, message_undelivered),
    Check("heartbeat_undelivered", Severity.TICKET, heartbeat_undelivered),
)
"""All checks, in the order in which `status --check` prints what they find."""

_BACKUP: Final = command_of(BACKUP)
_BACK_UP_AGAIN: Final = "`medlive week run backup`"
_STEP_HINT: Final = (
    "`medlive status` shows the steps; what failed is tried again by itself"
)


def _last(step: StepState) -> str:
    assert step.latest is not None
    return summarize_counts(step.latest.counts)


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
