"""What the filter chain found, rule by rule."""

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.mapping import insert_rows, row_of
from medlive.db.tables.decisions import FilterResultRow, FilterVerdictRow
from medlive.db.tables.intake import ThreadRevisionRow
from medlive.db.threads.threads import is_latest
from medlive.filters.chain import ChainResult


async def save_chain_results(
    session: AsyncSession, chain_digest: str, results: Sequence[tuple[int, ChainResult]]
) -> None:
    """Save (revision's number, result) pairs in two statements.

    A revision that this chain has judged keeps its first result: it decided what was curated.
    """
    rows = [
        {
            "revision_id": revision_pk,
            "chain_digest": chain_digest,
            "passed": result.rejected_by is None,
            "rejected_by": result.rejected_by.rule if result.rejected_by else None,
            "reason": result.rejected_by.reason if result.rejected_by else None,
        }
        for revision_pk, result in sorted(results, key=lambda pair: pair[0])
    ]
    saved = await insert_rows(session, FilterResultRow, rows, skip_known=True, returning=("revision_id",))
    added = {pk for (pk,) in saved}
    verdicts = [
        row_of(FilterVerdictRow, v, revision_id=revision_pk, chain_digest=chain_digest, position=position)
        for revision_pk, result in results
        if revision_pk in added
        for position, v in enumerate(result.verdicts, start=1)
    ]
    await insert_rows(session, FilterVerdictRow, verdicts)


async def count_by_rule(session: AsyncSession, chain_digest: str) -> list[tuple[str, str, int]]:
    """(rule, reason, threads) for every rule that a latest revision fails, in the chain's order; a thread that
    fails several rules counts in each."""
    row = FilterVerdictRow
    query = (
        select(row.rule, row.reason, func.count())
        .join(ThreadRevisionRow, ThreadRevisionRow.id == row.revision_id)
        .where(row.chain_digest == chain_digest, ~row.passed, is_latest())
        .group_by(row.rule, row.reason)
        .order_by(func.min(row.position), row.reason)
    )
    return [(rule, reason or "", count) for rule, reason, count in await session.execute(query)]
