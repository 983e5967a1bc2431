"""What engines' replies cost in a period, by stage, task, engine and source."""

from collections.abc import Sequence
from datetime import datetime

from medlive.clock import week_bounds
from medlive.curation.model import Outcome
from medlive.db.mapping import Record
from medlive.db.session import Session
from medlive.snapshot.manifest import WeekCost

_SPENT = """
    SELECT CASE grouping(task, engine, source, stage) WHEN 7 THEN 'task' WHEN 11 THEN 'engine'
            WHEN 13 THEN 'source' WHEN 14 THEN 'stage' ELSE 'all' END AS by,
        coalesce(task, engine, source, stage, '') AS name, count(*) AS replies,
        coalesce(sum(input_tokens), 0)::bigint AS input_tokens,
        coalesce(sum(cached_tokens), 0)::bigint AS cached_tokens,
        coalesce(sum(output_tokens), 0)::bigint AS output_tokens,
        count(*) - count(cost_usd) AS unpriced, count(*) FILTER (WHERE estimated) AS estimated,
        coalesce(sum(cost_usd), 0)::float AS known_usd,
        CASE WHEN count(cost_usd) = count(*) THEN coalesce(sum(cost_usd), 0)::float END AS cost_usd
    FROM (
        SELECT task, split_part(task, '.', 1) AS stage,
            concat_ws(' ', engine, model) AS engine, input_tokens, cached_tokens, output_tokens, estimated,
            cost_usd, coalesce((
                SELECT source FROM agent_calls JOIN curations ON curations.id = curation_id
                JOIN thread_revisions ON thread_revisions.id = curations.revision_id
                JOIN threads ON threads.id = thread_revisions.thread_id
                WHERE reply_digest = replies.request_digest ORDER BY curation_id LIMIT 1
            ), '') AS source
        FROM replies WHERE created_at >= :since AND created_at < :until
    ) AS paid
    GROUP BY GROUPING SETS ((task), (engine), (source), (stage), ()) ORDER BY by, known_usd DESC, name
"""


async def stage_spending(
    session: Session, since: datetime, until: datetime
) -> Sequence[Record]:
    """What the replies stored from `since` to before `until` cost, by stage (the first part of the task's name).

    Each has stage, known_usd (of the replies with a price), unpriced (how many have none) and estimated (how many count
    by an upper bound of their tokens).
    """
    return await session.records(
        """
        SELECT split_part(task, '.', 1) AS stage, coalesce(sum(cost_usd), 0)::float AS known_usd,
            count(*) - count(cost_usd) AS unpriced, count(*) FILTER (WHERE estimated) AS estimated
        FROM replies WHERE created_at >= :since AND created_at < :until GROUP BY 1 ORDER BY 1
        """,
        since=since,
        until=until,
    )


async def mean_thread_cost(session: Session) -> float | None:
    """The mean cost in US dollars of a thread that engines were asked about; None without any, or if a reply has no
    price."""
    mean: float | None = await session.value("""
        SELECT CASE WHEN count(cost_usd) = count(*) THEN CAST(coalesce(sum(cost_usd), 0) AS float) / nullif((
            SELECT count(DISTINCT thread_id) FROM curations
            JOIN thread_revisions ON thread_revisions.id = curations.revision_id
            WHERE EXISTS (SELECT FROM agent_calls WHERE curation_id = curations.id)
        ), 0) END FROM replies
        """)
    return mean


async def count_ended(
    session: Session, outcome: Outcome, since: datetime, until: datetime
) -> int:
    """How many thread revisions reached an outcome from `since` to before `until`, whatever happened to them later."""
    ended = await session.value(
        """
        SELECT count(DISTINCT revision_id) FROM curations
        WHERE outcome = :outcome AND finished_at >= :since AND finished_at < :until
        """,
        outcome=outcome,
        since=since,
        until=until,
    )
    return int(ended)


async def week_cost(session: Session, week: str) -> WeekCost:
    """What the replies stored in an ISO week, up to now, cost. Raises UsageError if `week` is not one."""
    spent = await spending(session, *week_bounds(week))
    total = next(row for row in spent if row.by == "all")
    # Rounded: the order in which a database adds must not show in a snapshot's bytes.
    total.usd = None if total.cost_usd is None else round(total.cost_usd, 4)
    return WeekCost.model_validate(total, from_attributes=True)


Spent = Record
"""The cost of a period's replies of one stage, task, engine or source, or of all.

It has by (stage, task, engine, source or all), name (which one; as a source "" for replies that no decision used),
replies, input_tokens, cached_tokens, output_tokens, unpriced (replies whose price is unknown), estimated (replies whose
endpoint reported no usage: their tokens are an upper bound), known_usd (of the replies with a price) and cost_usd (the
same; None if a reply is unpriced).
"""


async def spending(session: Session, since: datetime, until: datetime) -> list[Spent]:
    """What the replies stored from `since` to before `until` cost: by stage, task, engine and source, and in all.

    Each reply counts once, for the source of the thread that used it first.
    """
    return await session.records(_SPENT, since=since, until=until)
