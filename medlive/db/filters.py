"""What the filter chain found, rule by rule."""

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.tables import FilterResultRow, FilterVerdictRow, ThreadRevisionRow
from medlive.db.threads import is_latest
from medlive.filters.chain import ChainResult


async def save_chain_results(
    session: AsyncSession, chain_digest: str, results: Sequence[tuple[int, ChainResult]]
) -> None:
    """Save (revision's number, result) pairs in two statements.

    A revision that this chain has judged keeps its first result: it decided what was curated.
    """
    if not results:
        return
    statement = (
        upsert(FilterResultRow)
        .values(
            [
                {
                    "revision_id": revision_pk,
                    "chain_digest": chain_digest,
                    "passed": result.rejected_by is None,
                    "rejected_by": result.rejected_by.rule if result.rejected_by else None,
                    "reason": str(result.rejected_by.reason) if result.rejected_by else None,
                }
                for revision_pk, result in sorted(results, key=lambda pair: pair[0])
            ]
        )
        .on_conflict_do_nothing()
        .returning(FilterResultRow.revision_id)
    )
    added = set(await session.scalars(statement))
    verdicts = [
        {
            "revision_id": revision_pk,
            "chain_digest": chain_digest,
            "rule": verdict.rule,
            "position": position,
            "passed": verdict.passed,
            "reason": None if verdict.reason is None else str(verdict.reason),
            "evidence": dict(verdict.evidence),
        }
        for revision_pk, result in results
        if revision_pk in added
        for position, verdict in enumerate(result.verdicts, start=1)
    ]
    if verdicts:
        await session.execute(upsert(FilterVerdictRow), verdicts)


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
