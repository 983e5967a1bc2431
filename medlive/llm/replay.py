"""No reply is paid for twice: a stored one is found by its request's digest, a new one is kept before use."""

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from filelock import FileLock, Timeout

from medlive.digest import canonical_json
from medlive.errors import BadInput, MedliveError, UsageError
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine, EngineIdentity, Finish, Reply, ReplyStore, Request, Usage
from medlive.llm.reading import split_thinking

FILE_NAME: Final = "replies.jsonl"


class ReplayEngine:
    """An Engine that asks another one only for what its store does not hold.

    Equal requests at the same time share one call. A truncated or refused reply is kept as well, it was paid
    for; whoever asked decides what to do with it.
    """

    def __init__(self, engine: Engine, store: ReplyStore, budget: Budget | None = None) -> None:
        """`budget` is asked before and charged after every call that is really made."""
        self._engine = engine
        self._store = store
        self._budget = budget or Budget()
        self._under_way: dict[str, asyncio.Task[Reply]] = {}

    @property
    def identity(self) -> EngineIdentity:
        """The inner engine's: a replayed reply is that engine's reply."""
        return self._engine.identity

    async def answer(self, request: Request) -> Reply:
        """The stored reply, or the engine's.

        Raises EndpointUnavailable as the engine does, BudgetSpent when a call is needed and none is left, and
        what the store raises when a reply cannot be kept.
        """
        digest = request.digest(self._engine.identity)
        shared = self._under_way.get(digest)
        if shared is not None:
            return replace(await asyncio.shield(shared), replayed=True)
        task = asyncio.create_task(self._find_or_ask(digest, request))
        self._under_way[digest] = task
        task.add_done_callback(lambda done: self._landed(digest, done))
        # Shielded: a caller who is cancelled takes neither the others' reply nor a paid one away.
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Let calls that are under way be answered and kept, then close the engine; the store is its owner's."""
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        await self._engine.aclose()

    def _landed(self, digest: str, task: asyncio.Task[Reply]) -> None:
        del self._under_way[digest]
        if not task.cancelled():
            task.exception()  # marks it as seen: its caller may be gone

    async def _find_or_ask(self, digest: str, request: Request) -> Reply:
        if (stored := await self._store.find(digest)) is not None:
            return replace(stored, replayed=True)
        estimate = self._budget.estimate(self._engine, request)
        reply = await self._budget.pay(estimate, lambda: self._engine.answer(request))
        await self._store.keep(digest, request, self._engine.identity, reply)
        return reply


class FileReplyStore:
    """A ReplyStore in one append-only file `replies.jsonl`, for evaluation, which has no database.

    A line is written whole by one call to the system before `keep` returns, so it outlives a kill of the
    process; the disk is made to hold it when the store is closed. A line that a crash cut off is dropped when
    the file is opened, and the next one stands on its own line again. One process at a time: the file is locked.
    """

    def __init__(self, folder: Path) -> None:
        """Open or begin the file in `folder`, which is made where it is missing.

        Raises UsageError when another process has it open, and BadInput when it cannot be read or written.
        """
        self.path = folder / FILE_NAME
        self.damaged = 0
        """Lines that were no replies, cut off or unreadable; what they held is asked again."""
        self._places: dict[str, tuple[int, int]] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = open(self.path, "a+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise BadInput(f"{self.path} cannot be opened: {error.strerror}") from error
        try:
            self._acquire()
            self._load()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._places)

    async def find(self, request_digest: str) -> Reply | None:
        """The reply stored under that digest."""
        place = self._places.get(request_digest)
        if place is None:
            return None
        start, length = place
        self._file.seek(start)
        return _reply(json.loads(self._file.read(length)))

    async def keep(self, request_digest: str, request: Request, identity: EngineIdentity, reply: Reply) -> None:
        """Append a reply; raises MedliveError when the disk does not take it."""
        record = {
            "request": request_digest,
            "task": request.task,
            "prompt": request.prompt.digest,
            "engine": identity.engine,
            "model": identity.model,
            "parameters": dict(identity.parameters),
            "reply": {
                "text": reply.stored_text,
                "finish": reply.finish,
                "usage": reply.usage.as_json(),
                "model": reply.model,
            },
        }
        line = _encode(canonical_json(record)) + b"\n"
        start = self._file.seek(0, os.SEEK_END)
        try:
            written = self._file.write(line)
        except OSError as error:
            raise MedliveError(f"{self.path} cannot be written: {error.strerror}") from error
        if written != len(line):
            self._file.truncate(start)
            raise MedliveError(f"{self.path} cannot be written: the disk took only a part of a line")
        self._places[request_digest] = (start, len(line))

    def close(self) -> None:
        """Make the disk hold everything, and let the file go."""
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()
            self._lock.release()

    def _acquire(self) -> None:
        self._lock = FileLock(self.path.with_name(f".{self.path.name}.lock"), timeout=0)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise UsageError(
                f"{self.path} is in use by another process", hint="Wait for it, or give another folder."
            ) from error

    def _load(self) -> None:
        self._file.seek(0)
        start = 0
        with open(self.path, "rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    self.damaged += 1
                    self._file.truncate(start)
                    break
                digest = _digest_of(line)
                if digest is None:
                    self.damaged += 1
                else:
                    self._places[digest] = (start, len(line))
                start += len(line)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _digest_of(line: bytes) -> str | None:
    """The request digest of a line that holds a whole reply, else None."""
    try:
        record = json.loads(line.decode("utf-8", "surrogatepass"))
        _reply(record)
        digest = record["request"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return digest if isinstance(digest, str) else None


def _reply(record: Mapping[str, Any]) -> Reply:
    reply = record["reply"]
    thinking, text = split_thinking(str(reply["text"]))
    usage = Usage(**reply["usage"])
    return Reply(text, Finish(reply["finish"]), usage, str(reply["model"]), thinking=thinking)
