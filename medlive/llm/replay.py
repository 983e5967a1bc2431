"""`ReplayEngine`: no reply is paid for twice. It finds stored replies by their request's digest, and stores new ones
before they are used."""

import asyncio
from dataclasses import replace

from medlive.guard.circuit import circuit_of

from .budget import Budget
from .engine import Engine, Reply, ReplyStore, Request

CLOSING_S = 10.0


class ReplayEngine:
    """An Engine that asks another one only for what its store does not hold.

    Equal requests at the same time share one call. A truncated or refused reply is kept as well, it was paid
    for; whoever asked decides what to do with it.
    """

    def __init__(
        self, engine: Engine, store: ReplyStore, budget: Budget | None = None
    ) -> None:
        """`budget` is checked before, and charged after, every call that is not replayed."""
        self._engine = engine
        self._store = store
        self._budget = budget or Budget()
        self._under_way: dict[str, asyncio.Task[Reply]] = {}
        self.circuit = circuit_of(engine)
        self.identity = engine.identity
        """The inner engine's: a replayed reply is that engine's reply."""

    async def answer(self, request: Request) -> Reply:
        """The stored reply, or the engine's.

        Raises EndpointUnavailable as the engine does, BudgetSpent when a call is needed and none is left, and
        what the store raises when a reply cannot be kept.
        """
        digest = request.digest(self.identity)
        shared = self._under_way.get(digest)
        if shared is not None:
            return replace(await asyncio.shield(shared), replayed=True)

        async def find_or_ask() -> Reply:
            if (stored := await self._store.find(digest)) is not None:
                return replace(stored, replayed=True)
            estimate = self._budget.estimate(self._engine, request)
            reply = await self._budget.pay(
                estimate, lambda: self._engine.answer(request)
            )
            await self._store.keep(digest, request, self.identity, reply)
            return reply

        task = asyncio.create_task(find_or_ask())
        self._under_way[digest] = task

        def end(done: asyncio.Task[Reply]) -> None:
            del self._under_way[digest]
            if not done.cancelled():
                done.exception()  # marks it as seen: its caller may be gone

        task.add_done_callback(end)
        # Shielded: a caller who is cancelled takes neither the others' reply nor a paid one away.
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Let calls under way be answered and kept, for CLOSING_S at most, then close the engine.

        It is closed, and what is still under way is cancelled, also when the wait is cancelled.
        """
        try:
            await self.settle()
        finally:
            hanging = list(self._under_way.values())
            for call in hanging:
                call.cancel()
            await asyncio.gather(*hanging, return_exceptions=True)
            await self._engine.aclose()

    async def settle(self) -> None:
        """Let calls under way be answered and kept, for CLOSING_S at most."""
        if calls := list(self._under_way.values()):
            await asyncio.wait(calls, timeout=CLOSING_S)
