"""Many callers, one statement: what is asked while the database is busy is asked together next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from medlive.errors import ServiceUnavailable

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Gathers single calls into batches. A lone call goes out at once; under load the batches grow."""

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        largest: int = 256,
        gather_s: float = 0.0,
    ) -> None:
        """`work` answers a batch in its order, as a whole or not at all; `gather_s` is how long it waits for
        more."""
        self._work = work
        self._largest = largest
        self._gather_s = gather_s
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Result:
        """The answer to one item. Raises what `work` raises for a batch of this item alone; a caller that is
        cancelled does not stop the work."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await future

    async def aclose(self) -> None:
        """Wait until everything that was asked is done."""
        while self._task is not None and not self._task.done():
            await self._task

    async def _run(self) -> None:
        while self._waiting:
            if self._gather_s and len(self._waiting) < self._largest:
                await asyncio.sleep(self._gather_s)
            batch = self._waiting[: self._largest]
            del self._waiting[: self._largest]
            await self._answer(batch)

    async def _answer(self, batch: list[tuple[Item, "asyncio.Future[Result]"]]) -> None:
        try:
            results = await self._work([item for item, _ in batch])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, ServiceUnavailable):
                # One bad item must not fail its neighbours.
                for one in batch:
                    await self._answer([one])
                return
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)
