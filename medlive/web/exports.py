"""Exports: files that were written whole before they are sent, some at a time for each account."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import IO, Final

from fastapi import HTTPException
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from medlive.guard.bounds import EXPORTS

_BLOCK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Exports:
    """How many exports each account has under way in this process."""

    running: Counter[int] = field(default_factory=Counter)

    @contextmanager
    def of(self, account: int) -> Iterator[ExitStack]:
        """Yield a stack that ends the export when it is closed. Raises HTTPException for one too many."""
        if self.running[account] >= EXPORTS:
            text = f"You have {EXPORTS} exports under way. Wait until one has ended."
            raise HTTPException(429, text)
        with ExitStack() as stack:
            self.running[account] += 1
            stack.callback(self.running.subtract, [account])
            yield stack


class Export(StreamingResponse):
    """A file that is sent as fast as its reader takes it, and then forgotten."""

    def __init__(self, file: IO[bytes], slot: ExitStack, headers: Mapping[str, str]):
        """Send `file` from its place on; `slot` is closed when the reader has it, or is gone."""
        blocks = iter(lambda: file.read(_BLOCK), b"")
        super().__init__(
            blocks, media_type="text/csv; charset=utf-8", headers=dict(headers)
        )
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._slot:
            await super().__call__(scope, receive, send)
