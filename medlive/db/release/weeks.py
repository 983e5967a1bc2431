"""How far a week's threads are (`week_standing`), by which a freeze decides whether to wait, and steps' waits.

A week's threads are those queued for its freeze, and those left over by earlier weeks. Each is decided, held, failed or
waiting, by stored facts alone. A thread counts for the first freeze at which it is settled; if a week is frozen while
it waits, it counts for the next week.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from medlive.db.mapping import int_array
from medlive.db.session import Session
from medlive.snapshot.manifest import Partial

from .snapshots import load_fixed

NOT_BEGUN = "not begun"  # Why a queued thread waits
NOT_QUEUED = "not queued"  # Why a thread waits that no queueing has reached yet

_JOBS = """
    SELECT queueing_lock FROM procrastinate_jobs
    WHERE queue_name = 'curate' AND status IN ('todo', 'doing')
"""
# Only of a thread's latest revision: an earlier one is superseded.
_MEMBERS = f"""
    WITH jobs AS ({_JOBS})
    SELECT CASE WHEN jobs.queueing_lock IS NOT NULL OR outcome = 'pending' THEN 'waiting'
            WHEN outcome IN ('failed', 'held') THEN outcome ELSE 'decided' END AS state,
        CASE outcome WHEN 'failed' THEN reason ELSE '{NOT_BEGUN}' END AS why, count(*)
    FROM week_threads AS member JOIN thread_standings AS standing USING (revision_id)
    LEFT JOIN jobs ON jobs.queueing_lock = 'curate:' || member.revision_id
    WHERE (member.frozen_in IS NULL OR member.frozen_in = :week)
        AND (member.week IS NULL OR member.week <= :week)
    GROUP BY 1, 2
    UNION ALL SELECT 'waiting', '{NOT_QUEUED}', count(*) FROM thread_standings AS standing WHERE outcome = 'pending'
        AND NOT EXISTS (SELECT FROM week_threads WHERE revision_id = standing.revision_id)
        AND NOT EXISTS (
            SELECT FROM pipeline_runs WHERE outcome = 'done' AND (
                (command = 'scheduler queue' AND iso_week >= :week)
                OR (command = 'curate' AND to_char(started_at AT TIME ZONE 'UTC', 'IYYY."W"IW') >= :week)
            )
        )
"""
"""(state, why, how many) of a week's threads; threads that are not queued yet come last."""


@dataclass(frozen=True)
class WeekStanding:
    """How far a week's threads are; the parts add up to `queued`."""

    week: str
    queued: int
    """Threads queued for the week, left over by earlier weeks, or not reached by the week's queueing yet."""
    decided: int  # Kept, rejected, or parked: settled for this week
    held: int
    # With a reason; nothing tries these again before the next week's queueing
    failed: int
    waiting: int
    failures: tuple[tuple[str, int], ...] = ()  # Reason → failed threads, most first
    # `NOT_BEGUN`, `NOT_QUEUED` or the last failure → waiting threads, most first
    waits: tuple[tuple[str, int], ...] = ()
    # Whether so many failed that they must have one cause in common
    failing_alike: bool = False
    partial: Partial | None = None  # Of a week that was frozen before it was whole

    @property
    def whole(self) -> bool:
        """Whether everything queued for the week is settled, or was when it was frozen."""
        return self.partial is None and not self.waiting and not self.failing_alike

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Queued, decided, held, failed and waiting, as a frozen week keeps them."""
        return self.queued, self.decided, self.held, self.failed, self.waiting

    @property
    def because(self) -> str:
        """Why the week is not whole, in words; empty if it is."""
        if self.partial is not None:
            return self.partial.because
        parts = []
        if self.failing_alike or (self.failed and self.waiting):
            parts.append(f"{self.failed} failed ({_listed(self.failures)})")
        if self.waiting:
            parts.append(f"{self.waiting} wait ({_listed(self.waits)})")
        return ", ".join(parts)

    @property
    def in_short(self) -> str:
        """How many threads are settled, such as "16 of 45, because 29 wait (not begun 29)"."""
        done = f"{self.decided + self.held} of {self.queued}"
        return f"{done}, because {self.because}" if self.because else done


async def note_queued(
    session: Session, revisions: Sequence[int], week: str | None
) -> None:
    """Note that thread revisions are queued for an ISO week's freeze; None for the next one."""
    if revisions:
        await session.run(
            """
            INSERT INTO week_threads (revision_id, week) SELECT id, CAST(:week AS text) FROM thread_revisions
            WHERE id = ANY (CAST(:revisions AS int[])) ON CONFLICT (revision_id) DO UPDATE
            SET week = excluded.week, queued_at = excluded.queued_at, frozen_in = NULL
            WHERE week_threads.frozen_in IS NOT NULL
            """,
            revisions=int_array(revisions),
            week=week,
        )


async def week_standing(
    session: Session, week: str, *, failure_share: float
) -> WeekStanding:
    """How far the threads of an ISO week are; for a frozen week, how far they were then.

    Args:
        session: The database.
        week: The ISO week.
        failure_share: If more than this share of the week's threads failed, one common cause is assumed, and the week
            is not whole.
    """
    fixed = await load_fixed(session, week)
    if fixed is not None and fixed.standing is not None:
        return WeekStanding(week, *fixed.standing, partial=fixed.partial)
    states = Counter[str]()
    reasons = {"failed": Counter[str](), "waiting": Counter[str]()}
    for state, why, count in await session.run(_MEMBERS, week=week):
        states[state] += count
        if state in reasons and count:
            reasons[state][why] += count
    queued = states.total()
    return WeekStanding(
        week=week,
        queued=queued,
        decided=states["decided"],
        held=states["held"],
        failed=states["failed"],
        waiting=states["waiting"],
        failures=tuple(reasons["failed"].most_common()),
        waits=tuple(reasons["waiting"].most_common()),
        failing_alike=states["failed"] > failure_share * queued,
    )


async def settle_week(session: Session, standing: WeekStanding) -> None:
    """Note that a week's settled threads count for its freeze; the others count for the next one.

    Failed threads are settled only if the week is whole.
    """
    left_over = ["pending"] if standing.whole else ["pending", "failed"]
    await session.run(
        f"""
        WITH jobs AS ({_JOBS})
        UPDATE week_threads AS member SET frozen_in = :week
        WHERE frozen_in IS NULL AND (member.week IS NULL OR member.week <= :week)
            AND NOT EXISTS (SELECT FROM jobs WHERE queueing_lock = 'curate:' || member.revision_id)
            AND NOT EXISTS (
                SELECT FROM thread_standings AS standing
                WHERE standing.revision_id = member.revision_id AND standing.outcome = ANY (:left_over)
            )
        """,
        week=standing.week,
        left_over=left_over,
    )


StepWait = tuple[datetime, bool]
"""Since when a weekly step waits for others, and whether its time limit has passed."""


async def load_waits(session: Session) -> dict[tuple[str, str], StepWait]:
    """(step, ISO week) → the step's wait."""
    waits = await session.run(
        "SELECT step, week, since, ended_at IS NOT NULL FROM step_waits"
    )
    return {(step, week): (since, is_over) for step, week, since, is_over in waits}


async def save_wait(
    session: Session,
    step: str,
    week: str,
    wait: StepWait,
) -> None:
    """Store a step's wait; once its time limit has passed, that stays noted."""
    since, is_over = wait
    await session.run(
        """
        INSERT INTO step_waits (step, week, since, ended_at)
        VALUES (:step, :week, :since, CASE WHEN :is_over THEN now() END)
        ON CONFLICT (step, week) DO UPDATE SET since = excluded.since,
        ended_at = coalesce(step_waits.ended_at, excluded.ended_at)
        """,
        step=step,
        week=week,
        since=since,
        is_over=is_over,
    )


async def end_wait(session: Session, step: str, week: str) -> None:
    """Forget a step's wait: it has nothing to wait for."""
    await session.run(
        "DELETE FROM step_waits WHERE step = :step AND week = :week",
        step=step,
        week=week,
    )


def _listed(counts: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in counts)
