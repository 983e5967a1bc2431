"""What engines cost and how well they answered, by task and by stage; a reply that was replayed counts once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, literal, select
from sqlalchemy.ext.asyncio import AsyncSession

from medlive.curation.model import Outcome
from medlive.db.tables.decisions import AgentCallRow, CurationRow, ReplyRow
from medlive.db.tables.intake import ThreadRevisionRow
from medlive.llm.ask import CallOutcome


@dataclass(frozen=True, slots=True)
class Cost:
    """What stored replies of one task, one stage or all cost. Replies outlive what asked for them: one that was
    paid for and never used is here as well."""

    name: str
    """`<stage>.<what>`, the stage alone, or "all"."""
    replies: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    unpriced: int
    """Replies whose price is unknown."""
    known_usd: float
    """What the others cost."""
    latency_p50_ms: float
    latency_p95_ms: float

    @property
    def cost_usd(self) -> float | None:
        """None when a reply's price is unknown."""
        return None if self.unpriced else self.known_usd

    @property
    def cached_share(self) -> float | None:
        """The share of input tokens that endpoints had in their prefix cache; None when nothing was read."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None


@dataclass(frozen=True, slots=True)
class Answers:
    """How one stage's calls ended: those that were really made, replays left out."""

    name: str
    """The stage, or "all"."""
    calls: int
    """With a reply."""
    repairs: int
    """Second attempts among them."""
    invalid: int
    refused: int
    truncated: int
    unavailable: int
    """Calls that no endpoint answered; not among `calls`."""
    over_budget: int
    """Calls that were not made; not among `calls`."""
    replayed: int
    """Calls that a stored reply answered; not among `calls`."""

    def share(self, count: int) -> float | None:
        """A count's share of the calls; None when there were none."""
        return count / self.calls if self.calls else None


@dataclass(frozen=True, slots=True)
class Costs:
    """Everything that `medlive status` says about engines."""

    tasks: tuple[Cost, ...]
    stages: tuple[Cost, ...]
    total: Cost
    answers: tuple[Answers, ...]
    curated: int
    """Threads that an attempt asked engines about."""
    kept: int
    """Of these, threads that an attempt kept."""


async def costs(session: AsyncSession) -> Costs:
    """Since the beginning, stages and tasks in alphabetical order."""
    stage = func.split_part(ReplyRow.task, ".", 1)
    tasks = await _costs(session, ReplyRow.task, [ReplyRow.task])
    stages = await _costs(session, stage, [stage])
    total = await _costs(session, literal("all"), [])
    curated, kept = await _threads(session)
    return Costs(
        tasks=tuple(tasks),
        stages=tuple(stages),
        total=total[0] if total else Cost("all", 0, 0, 0, 0, 0, 0.0, 0.0, 0.0),
        answers=tuple(await _answers(session)),
        curated=curated,
        kept=kept,
    )


async def _costs(session: AsyncSession, name: Any, group: Sequence[Any]) -> list[Cost]:
    row = ReplyRow
    query = select(
        name,
        func.count(),
        func.sum(row.input_tokens),
        func.sum(row.cached_tokens),
        func.sum(row.output_tokens),
        func.count() - func.count(row.cost_usd),
        func.coalesce(func.sum(row.cost_usd), 0),
        *(func.percentile_cont(share).within_group(row.latency_ms) for share in (0.5, 0.95)),
    ).having(func.count() > 0)
    if group:
        query = query.group_by(*group).order_by(*group)
    return [
        Cost(name, n, int(read), int(cached), int(written), unpriced, float(usd), float(half), float(most))
        for name, n, read, cached, written, unpriced, usd, half, most in await session.execute(query)
    ]


async def _answers(session: AsyncSession) -> list[Answers]:
    call = AgentCallRow
    stage = func.split_part(call.task, ".", 1)
    query = (
        select(stage, call.outcome, call.replayed, func.count(), func.count().filter(call.attempt == 2))
        .group_by(stage, call.outcome, call.replayed)
        .order_by(stage)
    )
    counts: dict[str, dict[str, int]] = {}
    for name, outcome, replayed, n, repairs in await session.execute(query):
        for place in (name, "all"):
            of = counts.setdefault(place, dict.fromkeys((*CallOutcome, "calls", "repairs", "replayed"), 0))
            if replayed:
                of["replayed"] += n
                continue
            of[outcome] += n
            if outcome not in (CallOutcome.UNAVAILABLE, CallOutcome.OVER_BUDGET):
                of["calls"] += n
                of["repairs"] += repairs
    return [
        Answers(
            name=name,
            calls=of["calls"],
            repairs=of["repairs"],
            invalid=of[CallOutcome.INVALID],
            refused=of[CallOutcome.REFUSED],
            truncated=of[CallOutcome.TRUNCATED],
            unavailable=of[CallOutcome.UNAVAILABLE],
            over_budget=of[CallOutcome.OVER_BUDGET],
            replayed=of["replayed"],
        )
        for name, of in sorted(counts.items(), key=lambda item: (item[0] == "all", item[0]))
    ]


async def _threads(session: AsyncSession) -> tuple[int, int]:
    """Threads that were asked about, and those of them that were kept; each counts once."""
    asked = select(AgentCallRow.curation_id).where(AgentCallRow.curation_id == CurationRow.id).exists()
    thread = ThreadRevisionRow.thread_id
    query = (
        select(
            func.count(thread.distinct()),
            func.count(thread.distinct()).filter(CurationRow.outcome == Outcome.KEPT),
        )
        .select_from(CurationRow)
        .join(ThreadRevisionRow, ThreadRevisionRow.id == CurationRow.revision_id)
        .where(asked)
    )
    curated, kept = (await session.execute(query)).one()
    return curated, kept
