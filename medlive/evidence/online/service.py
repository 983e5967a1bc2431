"""What every literature service shares: the protocol of a service, of the store of its answers, and the one way
to ask over HTTP with pace, retries and a cache."""

import asyncio
import email.utils
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, NamedTuple, Protocol

from medlive.bounds import LITERATURE_BYTES, LITERATURE_WAIT_S
from medlive.digest import digest_json
from medlive.errors import EvidenceUnavailable
from medlive.evidence.passage import Passage

ATTEMPTS: Final = 4
"""Requests in all before a service counts as away."""
BACKOFF_S: Final = 1.0
"""Seconds before the second attempt, doubled each time; a Retry-After that is longer wins."""
RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504})

_log: Final = logging.getLogger(__name__)


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]  # Names in lower case
    body: bytes


Post = Callable[[str, Mapping[str, str]], Awaitable[Answer]]
"""Posts a form to an address. Raises OSError if no answer came."""


class Unreadable(Exception):
    """An answer that is not what the service promises; the text says what it is."""


class TryAgain(Unreadable):
    """The same, where the service itself says that another attempt may fare better."""


class AnswerStore(Protocol):
    """Keeps answers, and the turns of all workers at a service."""

    async def load(self, key: str) -> bytes | None:
        """Return the stored answer of a request that is recent enough; None if there is none."""
        ...

    async def save(self, key: str, service: str, body: bytes) -> None:
        """Store what was read from an answer."""
        ...

    async def take_turn(self, service: str, interval_s: float) -> float:
        """Reserve the next request to a service, over all workers; return the seconds to wait for it."""
        ...


class Literature(Protocol):
    """A service that finds articles."""

    name: str

    async def search(self, words: str, *, most: int, not_after: date | None) -> list[Passage]:
        """Return the passages of the most relevant articles, best first. Raises EvidenceUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class Caller:
    """Asks one service politely."""

    service: str
    interval_s: float  # Seconds between two requests of all workers together
    post: Post
    store: AnswerStore
    secrets: frozenset[str] = frozenset()  # Fields of a form that do not change the answer

    def key(self, address: str, form: Mapping[str, str]) -> str:
        """Return what an answer is stored under."""
        shown = {name: value for name, value in form.items() if name not in self.secrets}
        return digest_json({"service": self.service, "address": address, "form": shown})

    async def ask(self, address: str, form: Mapping[str, str], read: Callable[[bytes], bytes]) -> bytes:
        """Return what was read from the answer to a request, now or earlier.

        Args:
            address: Where the form is posted.
            form: The request. It is not stored: its words come from a thread, which may be taken down.
            read: Returns what is stored of an answer, without the request that services repeat in it. Raises
                Unreadable for a body that is not an answer, TryAgain where another attempt may help.

        Raises:
            EvidenceUnavailable: if no usable answer came.
        """
        key = self.key(address, form)
        stored = await self.store.load(key)
        if stored is None:
            stored = await self.fetch(address, form, read)
            await self.store.save(key, self.service, stored)
        return stored

    async def fetch(self, address: str, form: Mapping[str, str], read: Callable[[bytes], bytes]) -> bytes:
        """Return what `read` makes of the service's answer, asked for again where that may help.

        Raises EvidenceUnavailable.
        """
        cause = ""
        for attempt in range(ATTEMPTS):
            await asyncio.sleep(await self.store.take_turn(self.service, self.interval_s))
            wait = BACKOFF_S * 2.0**attempt
            try:
                answer = await self.post(address, form)
                _check_status(answer)
                return read(answer.body)
            except OSError as exc:
                cause = f"no answer ({type(exc).__name__})"
            except TryAgain as exc:
                cause = str(exc)
                wait = max(wait, _retry_after(answer))
            except Unreadable as exc:
                raise self._away(str(exc)) from exc
            if wait > LITERATURE_WAIT_S:
                raise self._away(f"{cause}; it asks to wait {wait:.0f} s")
            if attempt + 1 < ATTEMPTS:
                _log.debug("%s: %s; asked again in %.1f s", self.service, cause, wait)
                await asyncio.sleep(wait)
        raise self._away(f"{cause}, {ATTEMPTS} times")

    def _away(self, cause: str) -> EvidenceUnavailable:
        return EvidenceUnavailable(
            f"{self.service} gave no usable answer: {cause}",
            hint="the threads concerned are retried; [evidence] online = [] does without it",
        )


def _check_status(answer: Answer) -> None:
    if answer.status in RETRIED:
        raise TryAgain(f"status {answer.status}")
    if answer.status != 200:
        raise Unreadable(f"status {answer.status}")
    if len(answer.body) > LITERATURE_BYTES:
        raise Unreadable(f"more than {LITERATURE_BYTES} bytes")


def _retry_after(answer: Answer) -> float:
    """Return the seconds that an answer asks to wait; 0 if it does not say."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:6])
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
