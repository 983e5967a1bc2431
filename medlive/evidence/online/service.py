"""What every literature service shares: the protocol of a service, of the store of its answers, and the one way
to ask over HTTP with pace, retries and a cache."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import date
from typing import ClassVar, Protocol

from medlive.clock import now, parse_retry_after
from medlive.errors import LiteratureUnavailable
from medlive.evidence.client import Client
from medlive.evidence.corpora.model import Document, passages_of
from medlive.evidence.passage import Passage
from medlive.guard.bounds import LITERATURE_BYTES, LITERATURE_WAIT_S
from medlive.guard.http import RETRIED_STATUSES
from medlive.integrity.digest import digest_json

ATTEMPTS = 4
"""Requests in all before a service counts as away."""
INTERVAL_S = 0.35
"""A little more than the third of a second that NCBI allows without a key; requests travel for unequal times.
Europe PMC publishes no limit."""
BACKOFF_S = 1.0
"""Seconds before the second attempt, doubled each time; a Retry-After is waited for besides."""

_SECRETS = frozenset({"api_key", "email"})
"""Fields of a form that do not change the answer."""
_log = logging.getLogger(__name__)


class Unreadable(Exception):
    """An answer that is not what the service promises; the text says what it is."""


class TryAgain(Unreadable):
    """The same, where another attempt may fare better."""


def not_expected(body: bytes, cause: str) -> TryAgain:
    """The error for a body of another form."""
    page = b"<html" in body[:2000].lower()
    return TryAgain(f"the answer is {'a web page' if page else cause}")


class AnswerStore(Protocol):
    """Keeps answers, and the turns of all workers at a service."""

    async def load(self, key: str) -> bytes | None:
        """Return the answer of that key, if it is stored and recent enough."""

    async def save(self, service: str, key: str, body: bytes) -> None:
        """Store what was read from an answer."""

    async def take_turn(self, service: str, interval_s: float) -> float:
        """Reserve the next request to a service, over all workers; return the seconds to wait for it."""

    async def hold_back(self, service: str, wait_s: float) -> None:
        """Reserve no request of any worker for so long, as the service asked."""


class Gate(Protocol):
    """Keeps all workers from a service that is away; `medlive.llm.circuit.Circuit` is one."""

    async def check(self) -> None:
        """Let a request through. Raises CircuitOpen while the service counts as away."""

    async def answered(self) -> None:
        """The service answered."""

    async def failed(self, cause: str, began: float) -> None:
        """An attempt that began then (`time.monotonic`) got no usable answer."""

    async def refused(self, cause: str, *, certain: bool = False) -> None:
        """The service refused an attempt; `certain` if it will refuse the others."""


@dataclass(frozen=True)
class Literature(ABC):
    """A service that finds articles, asked politely."""

    client: Client
    store: AnswerStore
    gate: Gate  # Keeps requests from the service while it is away
    _: KW_ONLY
    contact: str  # The operator's e-mail address
    name: ClassVar[str]  # Of its corpus, and of the side as which its hits are recorded
    licence: ClassVar[str]  # Of documents that name none

    @property
    def interval_s(self) -> float:
        """Seconds between two requests of all workers together."""
        return INTERVAL_S

    @abstractmethod
    async def search(
        self,
        words: str,
        *,
        most: int,
        not_after: date | None,
    ) -> list[Passage]:
        """Return the passages of the most relevant articles, best first.

        Retracted articles and those under an expression of concern are left out.

        Raises LiteratureUnavailable where this request got no usable answer, CircuitOpen where none is made.
        """

    async def ask(
        self,
        address: str,
        form: Mapping[str, str],
        read: Callable[[bytes], bytes],
    ) -> bytes:
        """Return what was read from the answer to a request, now or earlier.

        Args:
            address: Where the form is posted.
            form: The request. It is not stored: its words come from a thread, which may be taken down.
            read: Returns what is stored of an answer, without the request that services repeat in it. Raises
                Unreadable for a body that is not an answer, TryAgain where another attempt may help.

        Raises:
            LiteratureUnavailable: if no usable answer came.
            CircuitOpen: if the service is away, for whatever request.
        """
        shown = {name: text for name, text in form.items() if name not in _SECRETS}
        key = digest_json({"service": self.name, "address": address, "form": shown})
        stored = await self.store.load(key)
        if stored is not None:
            return stored
        cause = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(BACKOFF_S * 2.0 ** (attempt - 1))
            await self.gate.check()
            wait_s = await self.store.take_turn(self.name, self.interval_s)
            await asyncio.sleep(wait_s)
            began = time.monotonic()
            try:
                content = await self._attempt(address, form, read)
            except OSError as exc:
                cause = f"no answer ({type(exc).__name__})"
            except TryAgain as exc:
                cause = str(exc)
            except Unreadable as exc:
                await self.gate.answered()
                raise self._away(str(exc)) from exc
            else:
                await self.gate.answered()
                await self.store.save(self.name, key, content)
                return content
            _log.debug("%s: %s", self.name, cause)
            await self.gate.failed(cause, began)
        raise self._away(f"{cause}, {ATTEMPTS} times")

    async def _attempt(
        self,
        address: str,
        form: Mapping[str, str],
        read: Callable[[bytes], bytes],
    ) -> bytes:
        """Ask once; a wait that the service asks for holds back every worker. Raises OSError or Unreadable."""
        response, body = await self.client.post(address, form)
        status = f"status {response.status_code}"
        if response.status_code in RETRIED_STATUSES:
            wait_s = parse_retry_after(response.headers.get("retry-after", "")) or 0.0
            if wait_s > LITERATURE_WAIT_S:
                cause = f"{status}; it asks to wait {wait_s:.0f} s"
                await self.gate.refused(cause, certain=True)
                raise self._away(cause)
            if wait_s:
                await self.store.hold_back(self.name, wait_s)
            raise TryAgain(status)
        # The service answers no request from here: the address, the network or the key is refused.
        refusal = "" if response.status_code in (200, 400) else status
        if b"api key invalid" in body[:1000].lower():
            refusal = "the API key is not valid"
        if refusal:
            await self.gate.refused(refusal)
            raise self._away(refusal)
        if response.status_code == 400:
            raise Unreadable(status)
        if len(body) > LITERATURE_BYTES:
            raise Unreadable(f"more than {LITERATURE_BYTES} bytes")
        return read(body)

    def passages(
        self,
        documents: Iterable[Document],
        day: date | None,
    ) -> list[Passage]:
        """Cut the documents that were published by a day (None: any), in their order; an undated one may be younger."""
        passages: list[Passage] = []
        for document in documents:
            published = document.published
            if published is not None and (day is None or published <= day):
                pieces = passages_of(document, corpus=self.name, licence=self.licence)
                passages += filter(None, pieces)
        return passages

    def _away(self, cause: str) -> LiteratureUnavailable:
        return LiteratureUnavailable(
            f"{self.name} gave no usable answer: {cause}",
            hint="the threads concerned are retried; [evidence] online = [] does without it",
        )


def in_the_past(day: date | None) -> date | None:
    """Return a last day of publication that a request needs; None for today, so that its answer can be kept."""
    return day if day is not None and day < now().date() else None
