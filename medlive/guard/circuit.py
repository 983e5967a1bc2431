"""A circuit breaker for each model at an endpoint, and each literature service: what fails is not asked for a while.

A circuit *opens* when the last calls failed (timeouts, broken connections, server errors), at once when the key or
the account is refused, when the model is refused a few times in a row, or when none of the last replies could be used.
While it is open every call raises CircuitOpen. After a back-off one call is let through: it closes the circuit, or
doubles the back-off.
Open circuits are kept in a store that all processes of an instance share; without one, in memory.
"""

import logging
import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol
from urllib.parse import urlsplit

from medlive.clock import now
from medlive.errors import CircuitOpen
from medlive.integrity.digest import digest_json

_log = logging.getLogger(__name__)

FAILURES = 8
"""Failed attempts in a row that open a circuit; a timeout counts as two of them."""
FAILING_S = 10.0
"""Seconds that these failures must last, so that a restart of the endpoint opens nothing."""
REFUSALS = 3  # Refusals of the model (403, 404) one after another
UNUSABLE = 12  # Replies one after another that could not be used
BACKOFF_S = 30.0
REFUSED_BACKOFF_S = 60.0
"""Where the key, the account or the model is refused: a person has to act, and a refusal costs nothing."""
MOST_REFUSED_BACKOFF_S = 300.0
UNUSABLE_BACKOFF_S = 300.0  # Where replies come, and are paid for
MOST_BACKOFF_S = 3600.0
FRESH_S = 2.0
"""Seconds for which a closed circuit is not looked up again in the store."""


@dataclass(frozen=True)
class Opening:
    """An open circuit."""

    endpoint: str  # Host, port and model
    cause: str
    # Whether replies came and could not be used: only a usable one closes it
    of_replies: bool
    opened_at: datetime
    retry_at: datetime  # When one call is let through
    backoff_s: float

    def __str__(self) -> str:
        when = f"since {self.opened_at:%Y-%m-%d %H:%M} UTC, asked again at {self.retry_at:%H:%M}"
        return f"the endpoint {self.endpoint} is not asked {when}: {self.cause}"

    def error(self) -> CircuitOpen:
        """The exception that calls raise meanwhile."""
        return CircuitOpen(
            str(self), hint="it is tried again by itself", retry_at=self.retry_at
        )

    def is_due(self, moment: datetime) -> bool:
        """Whether a call is let through; also where the clock was set back."""
        return (
            not moment < self.retry_at <= moment + timedelta(seconds=2 * MOST_BACKOFF_S)
        )


class CircuitStore(Protocol):
    """Where the open circuits of an instance are kept, by the digest of address, key and model."""

    async def find(self, key: str) -> Opening | None:
        """The circuit's opening; None where it is closed."""
        ...

    async def swap(
        self,
        key: str,
        known: Opening | None,
        new: Opening | None,
    ) -> bool:
        """Store `new` if `known` is still stored (None: closed); return whether it was."""
        ...


class Circuit:
    """The circuit of one model at one endpoint with one key."""

    def __init__(
        self, key: str, endpoint: str, store: CircuitStore | None = None
    ) -> None:
        """`endpoint` is its name for people."""
        self._key = key
        self._endpoint = endpoint
        self._store = store
        self._opening: Opening | None = None
        """As last read or written."""
        self._read_at = float("-inf")
        self._failing_since = 0.0
        self._probing = False
        self._strikes: Counter[str] = Counter()
        """How often in a row something went wrong, by its kind: failed, refused, unusable."""

    async def check(self) -> None:
        """Let a call through. Raises CircuitOpen, but for one caller of all processes after each back-off."""
        if (opening := await self.opening()) is None:
            return
        moment = now()
        # A probe whose process dies is followed by another one after the same back-off.
        retry_at = moment + timedelta(seconds=opening.backoff_s)
        if opening.is_due(moment) and await self._swap(
            replace(opening, retry_at=retry_at)
        ):
            self._probing = True
            return
        raise opening.error()

    async def opening(self) -> Opening | None:
        """The circuit's opening; None where it is closed."""
        if self._opening is not None or time.monotonic() - self._read_at > FRESH_S:
            # before it is known: the other calls of this moment do not ask too
            self._read_at = time.monotonic()
            known = self._opening
            if self._store is not None:
                self._opening = await self._store.find(self._key)
            if known and not self._opening:  # another process's probe was answered
                self._reset()
        return self._opening

    async def answered(self) -> None:
        """The endpoint answered, whatever it said."""
        self._strikes["failed"] = self._strikes["refused"] = 0
        if self._opening is not None and not self._opening.of_replies:
            await self._close()

    async def failed(
        self, cause: str, began: float, *, timed_out: bool = False
    ) -> None:
        """Count an attempt without an answer, which began at `began` (`time.monotonic`); open the circuit if due."""
        if self._strikes["failed"]:
            began = min(began, self._failing_since)
        self._failing_since = began
        self._strikes["failed"] += 1 + timed_out
        lasting = time.monotonic() - began >= FAILING_S
        if self._probing or (self._strikes["failed"] >= FAILURES and lasting):
            await self._open(cause, BACKOFF_S)

    async def refused(self, cause: str, *, certain: bool = False) -> None:
        """Count a refusal of the model; open the circuit after a few, at once where it is of the key or account."""
        self._strikes["refused"] += 1
        if self._probing or certain or self._strikes["refused"] >= REFUSALS:
            await self._open(cause, REFUSED_BACKOFF_S, most_s=MOST_REFUSED_BACKOFF_S)

    async def judged(self, problem: str | None) -> None:
        """Count a new reply, usable (`problem` None) or not; open the circuit after UNUSABLE unusable ones in a row."""
        if problem is None:
            self._strikes["unusable"] = 0
            await self._close()
            return
        self._strikes["unusable"] += 1
        count = self._strikes["unusable"]
        if self._probing or count >= UNUSABLE:
            await self.replies_refused(
                f"{count} replies could not be used, the last: {problem[:300]}"
            )

    async def replies_refused(self, cause: str) -> None:
        """Replies come that nobody can use: open the circuit at once; only a usable reply closes it."""
        await self._open(cause, UNUSABLE_BACKOFF_S, of_replies=True)

    async def _open(
        self,
        cause: str,
        backoff_s: float,
        *,
        most_s: float = MOST_BACKOFF_S,
        of_replies: bool = False,
    ) -> None:
        """Open the circuit, or double the back-off after a failed probe; an open one ignores other failures."""
        known = self._opening
        moment = opened_at = now()
        if known is not None:
            if not self._probing:
                return
            backoff_s = min(most_s, 2 * known.backoff_s)
            opened_at = known.opened_at
        opening = Opening(
            endpoint=self._endpoint,
            cause=cause,
            of_replies=of_replies,
            opened_at=opened_at,
            retry_at=moment + timedelta(seconds=backoff_s),
            backoff_s=backoff_s,
        )
        if await self._swap(opening):
            self._probing = False
            _log.warning("%s", opening)

    async def _close(self) -> None:
        if self._opening is not None and self._probing and await self._swap(None):
            self._reset()
            _log.warning("the endpoint %s answers again", self._endpoint)

    def _reset(self) -> None:
        self._probing = False
        self._strikes.clear()

    async def _swap(self, new: Opening | None) -> bool:
        done = self._store is None or await self._store.swap(
            self._key, self._opening, new
        )
        if done:
            self._opening = new
        self._read_at = time.monotonic() if done else float("-inf")
        return done


def circuit_key(base_url: str, key: str, model: str) -> str:
    """The key of a model's circuit in a store."""
    return digest_json([base_url.rstrip("/"), key.strip(), model])


def circuit_name(base_url: str, model: str) -> str:
    """The name of a model's circuit for people."""
    return f"{urlsplit(base_url).netloc.rpartition('@')[2]} ({model})"


def circuit_of(engine: object) -> Circuit | None:
    """The circuit that an engine asks through; None for one that asks no endpoint."""
    circuit: Circuit | None = getattr(engine, "circuit", None)
    return circuit
