"""A server that misses something waits for it, instead of ending and being started again and again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from medlive.errors import ConfigError, MedliveError, ServiceUnavailable
from medlive.service.liveness import Liveness, answer_probes

T = TypeVar("T")
LOOK_S: Final = 3.0
"""How often what is missing is looked for."""
_log: Final = logging.getLogger(__name__)


async def wait_until_ready(
    prepare: Callable[[], Awaitable[T]],
    stop: asyncio.Event,
    host: str,
    port: int,
    look_s: float = LOOK_S,
) -> T | None:
    """What `prepare` gives as soon as nothing is missing; None when `stop` is set first.

    Meanwhile /healthz at the server's own address says what kind of thing is waited for, and all else is answered
    with 503. Names of hosts and users are for the log alone, which has each reason once.

    Args:
        prepare: Opens what the server needs; raises ServiceUnavailable or ConfigError for what is missing.
        stop: Ends the waiting when set.
        host: The address that the server will listen on.
        port: Its port.
        look_s: Seconds between two tries.

    Raises:
        ServiceUnavailable: when the address is taken.
    """
    try:
        return await prepare()
    except (ServiceUnavailable, ConfigError) as error:
        health, message = Liveness(), _say(error, "")
        health.waiting = _in_public(error)
    async with answer_probes(port, health, host):
        while not stop.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), look_s)
                break
            try:
                ready = await prepare()
            except (ServiceUnavailable, ConfigError) as error:
                message = _say(error, message)
                health.waiting = _in_public(error)
            else:
                _log.warning("nothing is missing any more")
                return ready
    return None


def _say(error: MedliveError, before: str) -> str:
    if error.message != before:
        hint = f" ({error.hint})" if error.hint else ""
        _log.warning("%s%s; going on when that is there", error.message, hint)
    return error.message


def _in_public(error: MedliveError) -> str:
    """The kind of an error, in its class's own words."""
    return (type(error).__doc__ or "").splitlines()[0]
