"""Results of the filter chain; the funnel, which counts each thread once by its stage and outcome; and what the paper's
own rule would decide."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row

from medlive.db.mapping import Record
from medlive.db.session import Session
from medlive.db.tables.decisions import FilterResultRow

if TYPE_CHECKING:  # it imports NumPy, which `medlive status` does without
    from medlive.filters.model import FilterVerdict

# The stages of the funnel, in order
STAGES = ("filters", "screener", "validator", "controller", "rubric", "case")


async def save_chain_results(
    session: Session,
    chain_digest: str,
    results: Sequence[tuple[int, Sequence["FilterVerdict"]]],
) -> None:
    """Save (revision's number, verdict of each rule) pairs in one statement.

    A revision that this chain has judged before keeps that result: it decided what was curated.
    """
    rows = []
    for revision_pk, verdicts in sorted(results, key=lambda pair: pair[0]):
        failed = next((v for v in verdicts if not v.passed), None)
        row = {
            "revision_id": revision_pk,
            "chain_digest": chain_digest,
            "passed": failed is None,
            "rejected_by": failed.rule if failed else None,
            "reason": failed.reason if failed else None,
            "verdicts": list(verdicts),
        }
        rows.append(row)
    await session.insert_rows(FilterResultRow, rows, skip_known=True)


async def filter_results_of(
    session: Session, revision_pk: int
) -> list[FilterResultRow]:
    """The results of all filter chains that judged a thread's revision, the latest first."""
    return await session.rows(
        FilterResultRow,
        "WHERE revision_id = :revision ORDER BY decided_at DESC, chain_digest",
        revision=revision_pk,
    )


FunnelRow = Row[*tuple[Any, ...]]
"""How many threads are at one place of the funnel: stage (of `STAGES`), outcome (pending, rejected, parked, failed,
held, kept or withdrawn), reason (for filters the failing rule's; None if there is none), threads (their number)."""


async def funnel(session: Session, week: str = "") -> Sequence[FunnelRow]:
    """How many threads are at each place, in the order of the stages, largest first: threads that last moved in an ISO
    week, or for "" all threads.

    A thread counts by its latest revision, with that revision's latest filter result and latest attempt.
    """
    query = """
        SELECT stage, outcome, nullif(reason, '') AS reason, count(*) AS threads FROM thread_standings
        WHERE :week IN ('', week) GROUP BY 1, 2, 3
        ORDER BY array_position(CAST(:stages AS text[]), stage), 4 DESC, 2, 3 NULLS FIRST
    """
    return (await session.run(query, week=week, stages=list(STAGES))).all()


# Source: LiveMedBench §3.2.2 and §3.2.3: V = (S_cc, S_inf, S_align) above their thresholds, any contradicted advice
# vetoes, any unsupported element discards. The second check of a contradiction, the second reading, the proof and
# people have no part in it.
_BY_PAPER = """
    WITH judged AS (
      SELECT outcome, CASE
        WHEN reason IN ('no_narrative', 'no_query', 'no_advice') THEN 'rejected'
        WHEN s_cc = 0 OR s_inf <= threshold_sufficiency OR s_align <= threshold_alignment THEN 'rejected'
        WHEN EXISTS (SELECT FROM claim_verdicts WHERE curation_id = curations.id
                     AND verdict IN ('contradicted', 'disputed')) THEN 'rejected'
        WHEN EXISTS (SELECT FROM elements WHERE curation_id = curations.id
                     AND standing = 'unsupported') THEN 'rejected'
        WHEN EXISTS (SELECT FROM elements JOIN controller_checks AS last USING (curation_id)
                     WHERE curation_id = curations.id AND standing = 'dropped' AND subject = element_id
                     AND NOT last.passed AND check_name <> 'suspicion' AND round = (
                       SELECT max(round) FROM controller_checks AS own
                       WHERE own.curation_id = last.curation_id AND own.subject = last.subject
                     )) THEN 'rejected'
        WHEN s_cc = 1 AND s_inf IS NOT NULL AND s_align IS NOT NULL THEN 'kept'
        ELSE 'unknown' END AS by_paper
      FROM curations
      WHERE started_at >= :since AND started_at < :until AND outcome <> 'failed'
    )
    SELECT outcome, by_paper, count(*) AS threads FROM judged GROUP BY 1, 2 ORDER BY 1, 2
"""


async def outcomes_by_paper(
    session: Session, since: datetime, until: datetime
) -> Sequence[Record]:
    """Decisions begun from `since` to before `until`, without failed ones, by outcome here and by the paper's rule.

    Each has outcome (kept, rejected, parked or held), by_paper (kept or rejected; unknown: the chain ended before
    the paper's rule had all that it needs) and threads (how many).
    """
    return await session.records(_BY_PAPER, since=since, until=until)
