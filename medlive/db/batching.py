"""`Batcher` does many callers' items together: those that arrive during a batch form the next one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from medlive.errors import ServiceUnavailable

Item = TypeVar("Item")


class Batcher(Generic[Item]):
    """Collects items of single calls into batches. A lone item is done at once; under load the batches grow."""

    def __init__(
        self, work: Callable[[Sequence[Item]], Awaitable[None]], *, largest: int
    ) -> None:
        """`work` does a batch of at most `largest` items as a whole or not at all."""
        self._work, self._largest = work, largest
        self._waiting: list[tuple[Item, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> None:
        """Wait until an item is done. Raises what `work` raises for it; a cancelled caller does not stop the work."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        await future

    async def aclose(self) -> None:
        """Wait until everything that was asked is done."""
        while self._task is not None and not self._task.done():
            await self._task

    async def _run(self) -> None:
        while self._waiting:
            batch = self._waiting[: self._largest]
            del self._waiting[: self._largest]
            await self._do(batch)

    async def _do(self, batch: list[tuple[Item, "asyncio.Future[None]"]]) -> None:
        """Do a batch and settle its futures; if it fails, do each item alone."""
        failure = None
        try:
            await self._work([item for item, _ in batch])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, ServiceUnavailable):
                for single in batch:  # one bad item must not fail its neighbours
                    await self._do([single])
                return
            failure = error
        for _, future in batch:
            if not future.done() and failure is not None:
                future.set_exception(failure)
            elif not future.done():
                future.set_result(None)
