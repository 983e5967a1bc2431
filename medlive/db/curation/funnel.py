"""The filter chain's results, and where every thread stands: each counts once."""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from medlive.db.audit.standing import count_stages
from medlive.db.session import Session
from medlive.db.tables.decisions import FilterResultRow

if TYPE_CHECKING:  # it imports NumPy, which `medlive status` does without
    from medlive.filters.model import FilterVerdict

STAGES = ("filters", "screener", "validator", "controller", "rubric", "case")


async def save_chain_results(
    session: Session,
    chain_digest: str,
    results: Sequence[tuple[int, Sequence["FilterVerdict"]]],
) -> None:
    """Save (revision's number, result) pairs in one statement.

    A revision that this chain has judged keeps its first result: it decided what was curated.
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


async def filter_verdicts_of(
    session: Session, revision_pk: int
) -> list[dict[str, Any]]:
    """Every rule's verdict about a thread's revision, chain by chain, in the rules' order."""
    results = await session.rows(
        FilterResultRow,
        "WHERE revision_id = :revision ORDER BY chain_digest",
        revision=revision_pk,
    )
    return list(chain.from_iterable(result.verdicts for result in results))


async def filter_reason_of(session: Session, revision_pk: int) -> str | None:
    """Why the latest chain that judged a thread's revision rejected it; None where it passed or waits."""
    result = await session.first(
        FilterResultRow,
        "WHERE revision_id = :revision ORDER BY decided_at DESC, chain_digest LIMIT 1",
        revision=revision_pk,
    )
    return None if result is None else result.reason


class FunnelRow(NamedTuple):
    """How many threads stand at one place; as tables and JSON have it."""

    stage: str  # filters, screener, validator, controller, rubric or case
    outcome: str  # pending, rejected, parked, failed, held, kept or withdrawn
    # The reason, for filters the failing rule's; None where there is none
    reason: str | None
    threads: int


async def funnel(session: Session) -> list[FunnelRow]:
    """The places where threads stand, in the order of the stages, largest first.

    Of each thread its latest revision counts, of that the latest filter result and the latest attempt.
    """
    rows = []
    for stage, outcome, reason, threads in await count_stages(session):
        rows.append(FunnelRow(stage, outcome, reason or None, threads))
    return sorted(rows, key=lambda row: (STAGES.index(row.stage), -row.threads))
