"""What the paper's own rule would have decided, beside what was decided: the effect of every addition to it.

Source: LiveMedBench §3.2.2 and §3.2.3: V = (S_cc, S_inf, S_align) above their thresholds, any contradicted advice
vetoes, any unsupported element discards, also one that was dropped for it. The second check of a contradiction, the
second reading, the proof and people have no part in it.
"""

from collections.abc import Sequence
from datetime import datetime

from medlive.db.mapping import Record
from medlive.db.session import Session

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
    """Decisions that were begun in a time, without failed ones, by outcome here and by the paper's rule.

    Each has outcome (kept, rejected, parked or held), by_paper (kept or rejected; unknown: the chain ended before
    the paper's rule had all that it needs) and the number of threads.
    """
    return await session.records(_BY_PAPER, since=since, until=until)
