"""Asks of many tasks, answered together: a batch costs an encoder and a vector index little more than one ask."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

Q = TypeVar("Q")
A = TypeVar("A")

WINDOW_S = 0.002
"""How long the first call waits for others when nothing is under way; later ones gather while a batch runs."""
MOST = 256
"""A batch takes calls until it holds so many asks."""


@dataclass(slots=True)
class _Call(Generic[Q, A]):
    asks: Sequence[Q]
    answers: "asyncio.Future[Sequence[A]]"


@dataclass(slots=True)
class _Desk(Generic[Q, A]):
    """What one event loop's tasks have asked."""

    waiting: deque[_Call[Q, A]] = field(default_factory=deque)
    clerk: asyncio.Task[None] | None = None


class Gatherer(Generic[Q, A]):
    """Answers asks in batches, in a thread, one batch at a time; serves any number of event loops."""

    def __init__(
        self, answer: Callable[[Sequence[Q]], Sequence[A]], *, window_s: float = WINDOW_S, most: int = MOST
    ) -> None:
        """`answer` gives one answer per ask, in their order; none may depend on the others of its batch."""
        self._answer = answer
        self._window_s = window_s
        self._most = most
        self._one_batch = threading.Lock()
        self._making_desk = threading.Lock()
        self._desks: WeakKeyDictionary[asyncio.AbstractEventLoop, _Desk[Q, A]] = WeakKeyDictionary()

    async def ask(self, asks: Sequence[Q]) -> list[A]:
        """One answer per ask, in their order. Raises what `answer` raised for the batch that held them."""
        if not asks:
            return []
        loop = asyncio.get_running_loop()
        with self._making_desk:
            desk = self._desks.setdefault(loop, _Desk())
        call: _Call[Q, A] = _Call(asks, loop.create_future())
        desk.waiting.append(call)
        if desk.clerk is None or desk.clerk.done():
            desk.clerk = loop.create_task(self._serve(desk))
        return list(await call.answers)

    async def _serve(self, desk: _Desk[Q, A]) -> None:
        try:
            await asyncio.sleep(self._window_s)
            await self._serve_all(desk)
        finally:
            # Whoever calls next hires anew; and a task that was kept would keep its loop.
            desk.clerk = None
            while desk.waiting:
                desk.waiting.popleft().answers.cancel()

    async def _serve_all(self, desk: _Desk[Q, A]) -> None:
        while desk.waiting:
            batch: list[_Call[Q, A]] = []
            while desk.waiting and sum(len(call.asks) for call in batch) < self._most:
                call = desk.waiting.popleft()
                # A caller that gave up has cancelled its future.
                if not call.answers.done():
                    batch.append(call)
            try:
                answers = await asyncio.to_thread(self._answered, [ask for call in batch for ask in call.asks])
            except asyncio.CancelledError:
                # The loop is ending: nobody is left who could serve them.
                for call in batch:
                    call.answers.cancel()
                raise
            except Exception as exc:
                for call in batch:
                    if not call.answers.done():
                        call.answers.set_exception(exc)
                continue
            start = 0
            for call in batch:
                end = start + len(call.asks)
                if not call.answers.done():
                    call.answers.set_result(answers[start:end])
                start = end

    def _answered(self, asks: Sequence[Q]) -> Sequence[A]:
        # Event loops of several threads may ask at once; an encoder is not made for two batches.
        with self._one_batch:
            return self._answer(asks) if asks else []
