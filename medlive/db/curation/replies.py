"""Stored replies of engines, found by their request's digest, so that none is paid for twice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from medlive.db.batching import Batcher
from medlive.db.mapping import read, row_of
from medlive.db.session import Database, Session
from medlive.db.tables.decisions import PromptRow, ReplyRow
from medlive.integrity.digest import digest_json
from medlive.llm.engine import EngineIdentity, Finish, Prompt, Reply, Request, Usage
from medlive.llm.reading import split_thinking

R = TypeVar("R", PromptRow, ReplyRow)
_MOST = 64
"""At most this many replies are looked for in one statement, or stored in one transaction."""
_FIND = """
    SELECT request_digest, text, finish, reply_model, input_tokens, cached_tokens, output_tokens, estimated,
        CAST(cost_usd AS float) AS cost_usd, latency_ms
    FROM replies WHERE request_digest = ANY (:digests)
"""


@dataclass
class _Search:
    """A reply that is looked for."""

    digest: str
    row: Any = None


class PostgresReplyStore:
    """A `medlive.llm.engine.ReplyStore` in the database; calls at the same time are done together.

    `keep` returns when the reply is committed. If a reply to the request is stored already, it stays: it was paid for
    first, and decisions are based on it.
    """

    def __init__(self, db: Database) -> None:
        """The caller closes `db`."""
        self._db = db
        self._find = Batcher(self._find_all, largest=_MOST)
        self._keep = Batcher(self._keep_all, largest=_MOST)

    async def find(self, request_digest: str) -> Reply | None:
        """The reply stored under that digest; None if there is none. Raises DatabaseUnavailable."""
        search = _Search(request_digest)
        await self._find(search)
        if (row := search.row) is None:
            return None
        thinking, answer = split_thinking(row.text)
        return Reply(
            answer,
            Finish(row.finish),
            read(Usage, row, reasoning_tokens=0),
            row.reply_model,
            replayed=True,
            thinking=thinking,
        )

    async def _find_all(self, searches: Sequence[_Search]) -> None:
        digests = [search.digest for search in searches]
        async with self._db.read() as session:
            rows = await session.run(_FIND, digests=digests)
            stored = {row.request_digest: row for row in rows}
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
        row = row_of(
            ReplyRow,
            reply,
            request_digest=request_digest,
            prompt_digest=request.prompt.digest,
            schema_digest=digest_json(request.schema),
            reply_model=reply.model,
            text=reply.stored_text,
        )
        for part in (reply.usage, identity, request):
            row |= row_of(ReplyRow, part)
        await self._keep((request.prompt, row))

    async def _keep_all(
        self,
        replies: Sequence[tuple[Prompt, dict[str, Any]]],
    ) -> None:
        """Store a batch of replies, each as its request's prompt and the row, and their prompts."""
        rows = {row["request_digest"]: row for _, row in replies}
        prompts: dict[str, dict[str, Any]] = {}
        for prompt, row in replies:
            digest = row["prompt_digest"]
            prompts[digest] = row_of(PromptRow, prompt, digest=digest)
        # Sorted, so that two processes never wait for each other's rows crosswise.
        new_prompts = [prompts[digest] for digest in sorted(prompts)]
        new = [rows[digest] for digest in sorted(rows)]
        async with self._db.begin() as session:
            await session.insert_rows(PromptRow, new_prompts, skip_known=True)
            await session.insert_rows(ReplyRow, new, skip_known=True)


async def _find_only(
    session: Session, table: type[R], column: str, digest: str
) -> R | None:
    """The only row whose `column` begins with `digest`; None if there is no such row, or several."""
    rows = await session.rows(
        table, f"WHERE starts_with({column}, :digest) LIMIT 2", digest=digest
    )
    return rows[0] if len(rows) == 1 else None


async def find_prompt(session: Session, digest: str) -> PromptRow | None:
    """The only stored prompt whose digest begins with `digest`; None if there is none, or several."""
    return await _find_only(session, PromptRow, "digest", digest)


async def find_request(
    session: Session, digest: str
) -> tuple[Request, ReplyRow] | None:
    """The only stored request whose digest begins with `digest`, and its reply; None if there is none, or several.

    Its schema is empty: only the schema's digest is stored.
    """
    row = await _find_only(session, ReplyRow, "request_digest", digest)
    if row is None:
        return None
    prompt = await session.get_one(PromptRow, row.prompt_digest)
    asked = Prompt(row.task, prompt.text)
    return read(Request, row, prompt=asked, schema={}), row


async def find_replies(
    session: Session,
    digests: Iterable[str],
) -> dict[str, ReplyRow]:
    """Request's digest → its stored reply, for the digests that have one."""
    rows = await session.rows(
        ReplyRow, "WHERE request_digest = ANY (:digests)", digests=list(digests)
    )
    return {row.request_digest: row for row in rows}
