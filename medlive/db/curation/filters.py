"""What the filter chain found, rule by rule."""

from collections.abc import Sequence

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.db.tables import FilterVerdictRow, ThreadRevisionRow
from medlive.db.threads.threads import is_latest
from medlive.db.unstorable import dump_json, to_stored
from medlive.filters.chain import ChainResult

# One statement's text whatever the number of rows: there are a dozen verdicts a thread.
_INSERT_RESULTS = text(
    "INSERT INTO filter_results (revision_id, chain_digest, passed, rejected_by, reason) "
    "SELECT revision_id, :chain, passed, rule, reason FROM unnest(CAST(:revisions AS int[]), "
    "CAST(:passed AS bool[]), CAST(:rules AS text[]), CAST(:reasons AS text[])) "
    "AS given (revision_id, passed, rule, reason) ON CONFLICT DO NOTHING RETURNING revision_id"
)
_VERDICT_COLUMNS = {
    "revision_id": "int",
    "chain_digest": "text",
    "rule": "text",
    "position": "smallint",
    "passed": "bool",
    "reason": "text",
    "evidence": "jsonb",
}
_INSERT_VERDICTS = text(
    f"INSERT INTO filter_verdicts ({', '.join(_VERDICT_COLUMNS)}) "
    "SELECT revision_id, chain_digest, rule, position, passed, reason, CAST(evidence AS jsonb) FROM unnest("
    + ", ".join(
        f"CAST(:{name} AS {'text' if kind == 'jsonb' else kind}[])" for name, kind in _VERDICT_COLUMNS.items()
    )
    + f") AS given ({', '.join(_VERDICT_COLUMNS)})"
)


async def save_chain_results(
    session: AsyncSession, chain_digest: str, results: Sequence[tuple[int, ChainResult]]
) -> None:
    """Save (revision's number, result) pairs in two statements.

    A revision that this chain has judged keeps its first result: it decided what was curated.
    """
    if not results:
        return
    rows = [
        (
            revision_pk,
            result.rejected_by is None,
            to_stored(result.rejected_by.rule) if result.rejected_by else None,
            str(result.rejected_by.reason) if result.rejected_by else None,
        )
        for revision_pk, result in sorted(results, key=lambda pair: pair[0])
    ]
    revisions, passed, rules, reasons = map(list, zip(*rows, strict=True))
    added = set(
        await session.scalars(
            _INSERT_RESULTS,
            {"revisions": revisions, "chain": chain_digest, "passed": passed, "rules": rules, "reasons": reasons},
        )
    )
    verdicts = [
        (
            revision_pk,
            chain_digest,
            to_stored(verdict.rule),
            position,
            verdict.passed,
            None if verdict.reason is None else str(verdict.reason),
            dump_json(dict(verdict.evidence)),
        )
        for revision_pk, result in results
        if revision_pk in added
        for position, verdict in enumerate(result.verdicts, start=1)
    ]
    if verdicts:
        columns = dict(zip(_VERDICT_COLUMNS, map(list, zip(*verdicts, strict=True)), strict=True))
        await session.execute(_INSERT_VERDICTS, columns)


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
