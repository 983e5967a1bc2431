"""Every check, one function each, in one list: what `status --check`, metrics, alerts and messages know.

A check reads facts and yields what it finds. Codes are stable: alerts and acknowledgements use them.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta

from medlive.db import watch
from medlive.db.mapping import Record
from medlive.db.session import Database
from medlive.db.tables.intake import RunOutcome
from medlive.db.tables.work import OpenProblemRow, Severity
from medlive.guard.printable import printable
from medlive.service.schedule.steps import (
    BACKUP,
    StepState,
    command_of,
    summarize_counts,
)
from medlive.service.week_budget import week_limits

from .facts import Facts

ENDS_AFTER = timedelta(minutes=5)
"""A problem that was not seen for this long has ended; one that comes and goes is one problem."""
SILENT_AFTER = timedelta(minutes=3)
"""A scheduler is heard every minute."""
UNSERVED_AFTER = timedelta(minutes=2)
"""Jobs may wait this long for a worker that is being restarted."""
BY_HAND_WITHIN = timedelta(days=8)
"""An instance that never had a lasting scheduler counts as run by cron if a step began within this time."""
LONGEST_PAUSE = timedelta(minutes=30)
"""How long nothing may be decided while jobs wait."""
ALIKE = 3
ALIKE_SHARE = 0.01
"""Threads that fail alike are a problem if they are at least ALIKE, and this share of a week's threads."""


Finding = tuple[str, ...]
"""A sentence, what to do about it and, if it is about one thing (a queue, a source), that thing's name."""
Check = Callable[[Facts], Iterator[Finding]]


def find_problems(facts: Facts) -> list[OpenProblemRow]:
    """Every problem, in the order of the checks."""
    problems = []
    for check, severity in CHECKS.items():
        for text, next_step, *subject in check(facts):
            problems.append(
                OpenProblemRow(
                    code=check.__name__,
                    subject=printable("".join(subject)),
                    severity=severity,
                    text=printable(text),  # Endpoints and forums have their words in it
                    next_step=printable(next_step),
                )
            )
    return problems


async def read_problems(database: Database, facts: Facts) -> list[OpenProblemRow]:
    """Every problem now; LOCAL ones of another machine as its scheduler stored them. Raises DatabaseUnavailable."""
    problems = find_problems(facts)
    stored = {problem.key: problem for problem in await database.ask(watch.list_open)}
    for problem in problems:
        if known := stored.pop(problem.key, None):
            problem.acknowledged_at = known.acknowledged_at
            problem.acknowledged_until = known.acknowledged_until
    for known in stored.values():
        if known.code in LOCAL and facts.moment - known.seen_at < ENDS_AFTER:
            problems.append(known)
    return problems


def no_scheduler(facts: Facts) -> Iterator[Finding]:
    """No scheduler works, or it hangs: nothing is harvested or frozen. An instance that cron runs needs none."""
    if not facts.in_use:
        return
    if heard := facts.scheduler_heard:
        if facts.moment - heard > SILENT_AFTER:
            yield (
                f"no scheduler has worked since {_minute(heard)}",
                "start `medlive scheduler`; restart one that hangs: it goes on where it was",
            )
        return
    if facts.scheduler_active:
        return
    # by cron, `medlive scheduler --once` too
    by_hand = [run.started_at for run in facts.history.latest.values()]
    if not by_hand or facts.moment - max(by_hand) > BY_HAND_WITHIN:
        yield (
            "no scheduler has ever worked",
            "start `medlive scheduler`, or run the steps by cron",
        )


def no_worker(facts: Facts) -> Iterator[Finding]:
    """Jobs of a queue could begin, and nobody serves it."""
    for queue in facts.queues:
        is_served = queue.workers or queue.worked
        if (
            not is_served
            and queue.since
            and facts.moment - queue.since > UNSERVED_AFTER
        ):
            yield (
                f"no worker serves the queue {queue.queue}: {queue.ready} jobs wait since {_minute(queue.since)}",
                f"start `medlive worker --queues {queue.queue}`",
                queue.queue,
            )


def worker_waits(facts: Facts) -> Iterator[Finding]:
    """A worker takes no jobs of a queue, and says why."""
    for worker in facts.waiting_workers:
        if facts.moment - worker.since > UNSERVED_AFTER:
            yield (
                f"a worker on {worker.host} (process {worker.pid}) waits since {_minute(worker.since)}:"
                f" {worker.reason}",
                "mend its cause; it goes on by itself",
                f"{worker.host}:{worker.pid}",
            )


def threads_lost(facts: Facts) -> Iterator[Finding]:
    """Threads wait for nothing that will ever take them up."""
    if facts.lost_threads:
        yield (
            f"{facts.lost_threads} threads wait and nothing will take them up",
            "a scheduler queues them again by itself, and so does `medlive jobs check`",
        )


def no_progress(facts: Facts) -> Iterator[Finding]:
    """Workers have threads to curate and decide nothing."""
    for queue in facts.queues:
        is_served = queue.workers or queue.worked
        if queue.queue != "curate" or not is_served or queue.since is None:
            continue
        since = max(queue.since, facts.decided_at or queue.since)
        if facts.moment - since > LONGEST_PAUSE and not facts.circuits:
            yield (
                f"{queue.ready} threads wait and none was decided since {_minute(since)}",
                "look at the workers' logs, then restart them",
                queue.queue,
            )


def jobs_failed(facts: Facts) -> Iterator[Finding]:
    """Jobs ended with an error of medlive or its surroundings, and nothing has done them since."""
    for failed in facts.failed_jobs:
        yield (
            f"{failed.jobs} jobs of the queue {failed.queue} failed, such as {failed.example}",
            f"look at the worker's log, then `medlive jobs retry {failed.example}`",
            failed.queue,
        )


def threads_fail_alike(facts: Facts) -> Iterator[Finding]:
    """Several threads failed for the same reason."""
    least = max(ALIKE, ALIKE_SHARE * facts.decided)
    groups: dict[tuple[str, str], list[Record]] = {}
    for failed in facts.failed_threads:
        groups.setdefault((failed.stage, failed.reason), []).append(failed)
    for (stage, reason), alike in groups.items():
        if len(alike) >= least:
            last = alike[0]
            yield (
                f"{len(alike)} threads failed alike in {stage}, {reason}, the last: {last.detail[:200]}",
                f"look at one: `medlive thread show {last.source}/{last.thread_id}`;"
                " then `medlive curate --retry-failed`",
                f"{stage}: {reason}",
            )


def disk(facts: Facts) -> Iterator[Finding]:
    """A file system that medlive writes to is nearly full."""
    for place, path, free, size in facts.disks:
        if free < facts.settings.watch.disk_free_gb * 1e9:
            yield (
                f"{free / 1e9:.1f} of {size / 1e9:.0f} GB are free at {path} ({place})",
                "make room, or move it to a larger disk",
                place,
            )


def evidence(facts: Facts) -> Iterator[Finding]:
    """There is neither an evidence index nor a literature service, or a file of the index is missing or cut short.

    Each file is read whole when the index is opened.
    """
    if facts.evidence_problem:
        yield (
            facts.evidence_problem,
            "restore the index, or build it again: `medlive evidence build CORPUS...`",
        )


def rights_missing(facts: Facts) -> Iterator[Finding]:
    """A role of the database has lost a right that it needs."""
    by_role: dict[str, list[str]] = {}
    for right in facts.missing_rights:
        by_role.setdefault(right.role, []).append(f"{right.privilege} on {right.table}")
    for role, missing in by_role.items():
        yield (
            f"{role} lacks {', '.join(missing)}",
            "`medlive db roles` as the owner",
            role,
        )


def circuit_open(facts: Facts) -> Iterator[Finding]:
    """A model's endpoint is not asked for a while, and threads wait for it."""
    for opening in facts.circuits:
        yield (
            str(opening),
            "mend its cause; then it is tried again by itself",
            opening.endpoint,
        )


def budget_spent(facts: Facts) -> Iterator[Finding]:
    """A limit of the week is reached: no thread is begun before the next week."""
    for limit in week_limits(facts.spending):
        if limit.is_spent:
            yield (
                limit.spent_text,
                "the next week goes on, or raise [budget] in medlive.toml",
                limit.stage,
            )


def unpriced(facts: Facts) -> Iterator[Finding]:
    """Replies of the week have no price, so that nobody knows what they cost."""
    if n := facts.spending["unpriced"]:
        yield (
            f"{n} replies of {facts.spending['week']} have no price: the cost is unknown",
            'set [prices."MODEL"] in models.toml, 0 for a model that costs nothing',
        )


def source_quarantined(facts: Facts) -> Iterator[Finding]:
    """A source is left out because its pages changed."""
    for source in facts.sources:
        if source.quarantined_at:
            yield (
                f"{source.name} is quarantined since {_minute(source.quarantined_at)}: {source.quarantine_reason}",
                f"`medlive source check {source.name} --url URL`, then `medlive source lift {source.name}`",
                source.name,
            )


def step_overdue(facts: Facts) -> Iterator[Finding]:
    """A weekly step is not done a day after its time."""
    for step in facts.steps:
        if step.overdue:
            text = f"{step.name} is overdue since {_minute(step.next_at)}"
            if has_failed(step, facts):
                text += f": {_last(step)}"
            yield text, _STEP_HINT, step.name


def step_failed(facts: Facts) -> Iterator[Finding]:
    """A weekly step failed for its week and is not done since."""
    for step in facts.steps:
        if not step.overdue and step.status != "done" and has_failed(step, facts):
            yield (
                f"{step.name} failed for {step.week}: {_last(step)}",
                _STEP_HINT,
                step.name,
            )


def has_failed(step: StepState, facts: Facts) -> bool:
    """Whether a step's latest run for its week failed, or, while that one still runs, an earlier one did."""
    run = step.latest
    if run is None or run.week != step.week:
        return False
    if run.outcome is RunOutcome.RUNNING:
        return bool(facts.history.failures.get(step.command))
    return run.outcome is RunOutcome.FAILED


def week_partial(facts: Facts) -> Iterator[Finding]:
    """The newest week was frozen before all threads queued for it were decided."""
    if facts.partial:
        yield (
            facts.partial,
            "the rest enters the next week; `medlive week show` has the reasons",
        )


def clock_off(facts: Facts) -> Iterator[Finding]:
    """This machine's clock and the database's do not agree."""
    if facts.clock_problem:
        yield (
            facts.clock_problem,
            "let both machines set their clocks by the network (NTP)",
        )


def backup_old(facts: Facts) -> Iterator[Finding]:
    """The latest weekly backup is too old, or was never made."""
    if facts.settings.backup.folder is None or not facts.in_use:
        return
    done = facts.history.done.get(_BACKUP)
    if done is None:
        firsts = [harvest.first_at for harvest in facts.history.harvests.values()]
        at, text = min(firsts, default=facts.moment), "no weekly backup was ever made"
    else:
        at = done.finished_at or done.started_at
        text = f"the latest backup was made {_minute(at)}"
    if facts.moment - at > timedelta(days=facts.settings.watch.backup_days):
        yield (
            text,
            "look at the step in `medlive status`, or run `medlive backup FOLDER`",
        )


def backup_unchecked(facts: Facts) -> Iterator[Finding]:
    """The latest weekly backup was not restored into a scratch database, or did not come back."""
    latest, done = facts.history.latest.get(_BACKUP), facts.history.done.get(_BACKUP)
    if facts.settings.backup.folder is None or not facts.settings.backup.check:
        return
    if latest and latest.counts.get("check") == "failed":
        yield (
            f"the backup of {latest.week}: {summarize_counts(latest.counts)}",
            f"find out what altered it, move it away, then {_BACK_UP_AGAIN}",
        )
    elif done and done.counts.get("check") != "passed":
        why = done.counts.get("why", "it was not restored")
        yield (
            f"the backup of {done.week} was not tried: {why}",
            f"then {_BACK_UP_AGAIN}",
        )


def message_undelivered(facts: Facts) -> Iterator[Finding]:
    """A message to operators could not be delivered; it is sent again."""
    for place in ("webhook", "email"):
        waiting = [message for message in facts.undelivered if message.place == place]
        if waiting:
            yield (
                f"{len(waiting)} messages by {place} are undelivered since {_minute(waiting[0].created_at)}: "
                f"{waiting[-1].last_error}",
                "see [notify] in medlive.toml; they are sent again",
                place,
            )


CHECKS: Mapping[Check, Severity] = {
    no_scheduler: Severity.PAGE,
    no_worker: Severity.PAGE,
    worker_waits: Severity.PAGE,
    threads_lost: Severity.TICKET,
    no_progress: Severity.PAGE,
    jobs_failed: Severity.TICKET,
    threads_fail_alike: Severity.PAGE,
    disk: Severity.PAGE,
    evidence: Severity.PAGE,
    rights_missing: Severity.PAGE,
    circuit_open: Severity.PAGE,
    budget_spent: Severity.PAGE,
    unpriced: Severity.TICKET,
    source_quarantined: Severity.TICKET,
    step_overdue: Severity.PAGE,
    step_failed: Severity.TICKET,
    week_partial: Severity.TICKET,
    clock_off: Severity.PAGE,
    backup_old: Severity.TICKET,
    backup_unchecked: Severity.TICKET,
    message_undelivered: Severity.TICKET,
}
"""All checks, in the order in which `status --check` prints what they find; a check's code is its name."""
LOCAL = ("disk", "evidence")
"""The codes of checks that read what only the machine itself knows."""

_BACKUP = command_of(BACKUP)
_BACK_UP_AGAIN = "`medlive week run backup`"
_STEP_HINT = "`medlive status` shows the steps; what failed is tried again by itself"


def _last(step: StepState) -> str:
    """The counts or the problem of a step's latest run."""
    assert step.latest
    return summarize_counts(step.latest.counts)


def _minute(moment: datetime) -> str:
    """A moment to the minute."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"
