"""Collect the requests of many tasks into batches, which cost an encoder little more than one request."""

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
"""How long the first call waits for others; later ones are collected while a batch runs."""
MAX_BATCH = 256
"""A batch takes calls until it has this many requests."""


@dataclass(slots=True)
class _Call(Generic[Q, A]):
    requests: Sequence[Q]
    answers: "asyncio.Future[Sequence[A]]"


@dataclass(slots=True)
class _Queue(Generic[Q, A]):
    """The waiting calls of one event loop."""

    waiting: deque[_Call[Q, A]] = field(default_factory=deque)
    worker: asyncio.Task[None] | None = None


class Batcher(Generic[Q, A]):
    """Answers requests in batches, in a thread, one batch at a time; serves any number of event loops."""

    def __init__(
        self,
        answer: Callable[[Sequence[Q]], Sequence[A]],
        *,
        window_s: float = WINDOW_S,
        max_batch: int = MAX_BATCH,
    ) -> None:
        """`answer` returns one answer per request, in order; none may depend on the others of its batch."""
        self._answer = answer
        self._window_s = window_s
        self._max_batch = max_batch
        # Event loops of several threads may call at once, and an encoder is not made for two batches.
        self._one_batch = threading.Lock()
        self._queues_lock = threading.Lock()
        self._queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _Queue[Q, A]] = WeakKeyDictionary()

    async def submit(self, requests: Sequence[Q]) -> list[A]:
        """Return one answer per request, in order. Raises what `answer` raised for their batch."""
        if not requests:
            return []
        loop = asyncio.get_running_loop()
        with self._queues_lock:
            queue = self._queues.setdefault(loop, _Queue())
        call: _Call[Q, A] = _Call(requests, loop.create_future())
        queue.waiting.append(call)
        if queue.worker is None or queue.worker.done():
            queue.worker = loop.create_task(self._work(queue))
        return list(await call.answers)

    async def _work(self, queue: _Queue[Q, A]) -> None:
        try:
            await asyncio.sleep(self._window_s)
            while queue.waiting:
                batch: list[_Call[Q, A]] = []
                while queue.waiting and sum(len(call.requests) for call in batch) < self._max_batch:
                    batch.append(queue.waiting.popleft())
                await self._answer_batch([call for call in batch if not call.answers.done()])
        finally:
            # A task that is kept would keep its loop.
            queue.worker = None
            while queue.waiting:
                queue.waiting.popleft().answers.cancel()

    async def _answer_batch(self, batch: list[_Call[Q, A]]) -> None:
        requests = [request for call in batch for request in call.requests]
        try:
            answers = await asyncio.to_thread(self._locked_answer, requests)
        except asyncio.CancelledError:
            for call in batch:
                call.answers.cancel()
            raise
        except Exception as exc:
            for call in batch:
                if not call.answers.done():
                    call.answers.set_exception(exc)
            return
        start = 0
        for call in batch:
            end = start + len(call.requests)
            if not call.answers.done():
                call.answers.set_result(answers[start:end])
            start = end

    def _locked_answer(self, requests: Sequence[Q]) -> Sequence[A]:
        with self._one_batch:
            return self._answer(requests) if requests else []
