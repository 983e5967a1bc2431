"""Replies of engines, found by their request's digest and stored before anybody uses them."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import defer

from medlive.db.batching import Batcher
from medlive.db.mapping import insert_rows, is_one_of, read, row_of
from medlive.db.session import Database
from medlive.db.tables.decisions import PromptRow, ReplyRow
from medlive.digest import digest_json
from medlive.llm.engine import EngineIdentity, Reply, Request, Usage
from medlive.llm.reading import split_thinking


@dataclass(frozen=True, slots=True)
class _Paid:
    digest: str
    request: Request
    identity: EngineIdentity
    reply: Reply


class PostgresReplyStore:
    """A `medlive.llm.engine.ReplyStore` in the database.

    `keep` returns when the reply is committed; calls at the same time share one transaction, and so do
    look-ups. A reply that is there already stays: the first was paid for and is the one decisions rest on.
    """

    def __init__(self, db: Database) -> None:
        """`db` stays its owner's."""
        self._db = db
        self._find = Batcher(self._find_all)
        self._keep = Batcher(self._keep_all)
        self._prompts: set[str] = set()

    async def find(self, request_digest: str) -> Reply | None:
        """The reply stored under that digest. Raises DatabaseUnavailable."""
        return await self._find(request_digest)

    async def keep(self, request_digest: str, request: Request, identity: EngineIdentity, reply: Reply) -> None:
        """Store a reply, durably, with its request and its prompt's text. Raises DatabaseUnavailable."""
        await self._keep(_Paid(request_digest, request, identity, reply))

    async def aclose(self) -> None:
        """Wait for what is being stored; the database stays open."""
        await self._keep.aclose()
        await self._find.aclose()

    async def _find_all(self, digests: Sequence[str]) -> list[Reply | None]:
        row = ReplyRow
        query = (
            select(row).where(is_one_of(row.request_digest, digests)).options(defer(row.inputs, raiseload=True))
        )
        async with self._db.begin() as session:
            found = {r.request_digest: _reply(r) for r in await session.scalars(query)}
        return [found.get(digest) for digest in digests]

    async def _keep_all(self, paid: Sequence[_Paid]) -> list[None]:
        prompts = {p.request.prompt.digest: p.request.prompt for p in paid}
        missing = [
            {"digest": digest, "task": prompt.task, "text": prompt.text}
            for digest, prompt in sorted(prompts.items())
            if digest not in self._prompts
        ]
        # Sorted, so that two processes that store the same replies never wait for each other crosswise.
        rows = {p.digest: _row(p) for p in paid}
        async with self._db.begin() as session:
            await insert_rows(session, PromptRow, missing, skip_known=True)
            await insert_rows(session, ReplyRow, [rows[digest] for digest in sorted(rows)], skip_known=True)
        self._prompts.update(prompts)
        return [None] * len(paid)


def _reply(row: ReplyRow) -> Reply:
    thinking, text = split_thinking(row.text)
    usage = read(Usage, row, reasoning_tokens=0)
    return Reply(text, row.finish, usage, row.reply_model, replayed=True, thinking=thinking)


def _row(paid: _Paid) -> dict[str, object]:
    request, identity, reply = paid.request, paid.identity, paid.reply
    values = {
        "request_digest": paid.digest,
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
    return row_of(ReplyRow, reply) | row_of(ReplyRow, reply.usage) | values
