"""Replies of engines: found by their request's digest, stored before anybody uses them, and what they cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from medlive.db.batching import Batcher
from medlive.db.mapping import insert_rows, is_one_of, read, read_all, row_of
from medlive.db.session import Database
from medlive.db.tables.decisions import PromptRow, ReplyRow
from medlive.integrity.digest import digest_json
from medlive.llm.engine import EngineIdentity, Prompt, Reply, Request, Usage
from medlive.llm.reading import split_thinking

R = TypeVar("R", PromptRow, ReplyRow)
_MOST = 64
"""Replies that are looked for, or stored, in one transaction."""
_USAGE = (
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "estimated",
    "cost_usd",
    "latency_ms",
)
_FOUND = [
    getattr(ReplyRow, name)
    for name in ("request_digest", "text", "finish", "reply_model", *_USAGE)
]


@dataclass(slots=True)
class _Search:
    """A reply that is looked for."""

    digest: str
    row: Any = None


@dataclass(frozen=True, slots=True)
class _Paid:
    """A reply to store."""

    prompt: Prompt
    row: dict[str, Any]


class PostgresReplyStore:
    """A `medlive.llm.engine.ReplyStore` in the database; calls at the same time share a transaction.

    `keep` returns when the reply is committed. A reply that is stored already stays: the first was paid for and is
    the one decisions rest on.
    """

    def __init__(self, db: Database) -> None:
        """`db` stays its owner's."""
        self._db = db
        self._find, self._keep = (
            Batcher(self._find_all, largest=_MOST),
            Batcher(self._keep_all, largest=_MOST),
        )
        self._prompts: set[str] = set()
        """Digests of those that are stored; prompts are never deleted."""

    async def find(self, request_digest: str) -> Reply | None:
        """The reply stored under that digest. Raises DatabaseUnavailable."""
        await self._find(search := _Search(request_digest))
        if (row := search.row) is None:
            return None
        thinking, answer = split_thinking(row.text)
        usage = read(Usage, row, reasoning_tokens=0)
        return Reply(
            answer, row.finish, usage, row.reply_model, replayed=True, thinking=thinking
        )

    async def _find_all(self, searches: Sequence[_Search]) -> None:
        query = select(*_FOUND).where(
            is_one_of(ReplyRow.request_digest, [search.digest for search in searches])
        )
        async with self._db.read() as session:
            stored = {row.request_digest: row for row in await session.execute(query)}
        for search in searches:
            search.row = stored.get(search.digest)

    async def keep(
        self,
        request_digest: str,
        request: Request,
        identity: EngineIdentity,
        reply: Reply,
    ) -> None:
        """Store a reply, durably, with its request and its prompt's text. Raises DatabaseUnavailable."""
        values = {
            "request_digest": request_digest,
            "task": request.task,
            "prompt_digest": request.prompt.digest,
            "engine": identity.engine,
            "model": identity.model,
            "parameters": dict(identity.parameters),
            "inputs": dict(request.inputs),
            "schema_digest": digest_json(request.schema),
            "repair": list(request.repair) if request.repair else None,
            "round": request.round,
            "reply_model": reply.model,
            "text": reply.stored_text,
        }
        row = row_of(ReplyRow, reply) | row_of(ReplyRow, reply.usage) | values
        await self._keep(_Paid(request.prompt, row))

    async def _keep_all(self, replies: Sequence[_Paid]) -> None:
        rows = {reply.row["request_digest"]: reply.row for reply in replies}
        new = {reply.row["prompt_digest"]: reply.prompt for reply in replies}
        new = {digest: new[digest] for digest in sorted(new.keys() - self._prompts)}
        prompts = [
            row_of(PromptRow, prompt, digest=digest) for digest, prompt in new.items()
        ]
        async with self._db.begin() as session:
            await insert_rows(session, PromptRow, prompts, skip_known=True)
            # In one order for everybody, so that two processes never wait for each other crosswise.
            await insert_rows(
                session,
                ReplyRow,
                [rows[digest] for digest in sorted(rows)],
                skip_known=True,
            )
        self._prompts |= new.keys()


async def _find_one(
    session: AsyncSession,
    row: type[R],
    column: InstrumentedAttribute[str],
    digest: str,
) -> R | None:
    """The one row whose digest begins so; None when there is none or more."""
    beginning = column.startswith(digest, autoescape=True)
    rows = (await session.scalars(select(row).where(beginning).limit(2))).all()
    return rows[0] if len(rows) == 1 else None


async def find_prompt(session: AsyncSession, digest: str) -> PromptRow | None:
    """The one stored prompt whose digest begins so; None when there is none or more."""
    return await _find_one(session, PromptRow, PromptRow.digest, digest)


async def find_request(
    session: AsyncSession, digest: str
) -> tuple[Request, ReplyRow] | None:
    """The one stored request whose digest begins so, with its reply; None when there is none or more."""
    row = await _find_one(session, ReplyRow, ReplyRow.request_digest, digest)
    if row is None:
        return None
    prompt = await session.get_one(PromptRow, row.prompt_digest)
    repair = None if row.repair is None else (row.repair[0], row.repair[1])
    return Request(
        row.task, Prompt(row.task, prompt.text), row.inputs, {}, repair, row.round
    ), row


@dataclass(frozen=True, slots=True)
class Answers:
    """How one stage's calls ended. `calls` are those with a reply that was not replayed."""

    name: str  # The stage, or "all"
    calls: int
    repairs: int  # Second attempts among them
    invalid: int
    refused: int
    truncated: int
    unavailable: int  # Calls that no endpoint answered; not among `calls`
    over_budget: int  # Calls that were not made; not among `calls`
    replayed: int  # Calls that a stored reply answered; not among `calls`

    def share(self, count: int) -> float | None:
        """A count's share of the calls; None when there were none."""
        return count / self.calls if self.calls else None


_ANSWERS = text("""
    SELECT coalesce(stage, 'all') AS name, count(*) FILTER (WHERE replayed) AS replayed,
        count(*) FILTER (WHERE asked AND outcome NOT IN ('unavailable', 'over_budget')) AS calls,
        count(*) FILTER (WHERE asked AND outcome NOT IN ('unavailable', 'over_budget') AND attempt = 2) AS repairs,
        count(*) FILTER (WHERE asked AND outcome = 'invalid') AS invalid,
        count(*) FILTER (WHERE asked AND outcome = 'refused') AS refused,
        count(*) FILTER (WHERE asked AND outcome = 'truncated') AS truncated,
        count(*) FILTER (WHERE asked AND outcome = 'unavailable') AS unavailable,
        count(*) FILTER (WHERE asked AND outcome = 'over_budget') AS over_budget
    FROM (SELECT *, split_part(task, '.', 1) AS stage, NOT replayed AS asked FROM agent_calls) AS calls
    GROUP BY ROLLUP (stage) HAVING count(*) > 0 ORDER BY stage NULLS LAST
""")


async def count_answers(session: AsyncSession) -> list[Answers]:
    """How well engines answered, by stage in alphabetical order, and in all."""
    return await read_all(session, Answers, _ANSWERS)
