"""Messages to operators: written to the database first, sent until a place has taken them."""

import logging
from datetime import timedelta
from typing import Any, Final

from medlive.config import NotifySection
from medlive.db import watch
from medlive.db.session import Database, Session
from medlive.db.tables.watch import OutboxRow
from medlive.errors import ServiceUnavailable
from medlive.service.watch.notify import Event, places, send

_log = logging.getLogger(__name__)
_AT_ONCE: Final = 20
_WAITS: Final = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 30, 60, 240))
_LONGEST_WAIT: Final = timedelta(hours=12)
"""How long a message waits after each attempt that failed."""


async def write_message(
    session: Session,
    section: NotifySection,
    event: Event,
    week: str,
    text: str,
    **more: Any,
) -> int:
    """Write a message for every configured place in the session's transaction; how many places there are.

    The first line of `text` is the subject of the e-mail; `more` is added to what a webhook is sent.
    """
    named = places(section)
    await watch.post(
        session, named, {"event": event, "week": week, "text": text, **more}
    )
    return len(named)


async def deliver(database: Database, section: NotifySection) -> int:
    """Send what is due; how many messages were delivered. A place that cannot be reached is tried again later."""
    async with database.begin() as session:
        messages = await watch.due_messages(session, _AT_ONCE)
    delivered = 0
    for message in messages:
        is_wanted = message.place in places(section)
        error = await _try(section, message) if is_wanted else None
        async with database.begin() as session:
            if error is None:
                delivered += is_wanted
                await watch.remove_message(session, message)
            else:
                tried = message.attempts
                wait = _WAITS[tried] if tried < len(_WAITS) else _LONGEST_WAIT
                await watch.note_failure(session, message, error, wait)
    return delivered


async def _try(section: NotifySection, message: OutboxRow) -> str | None:
    """Send one message; why it was not delivered, or None."""
    try:
        await send(section, message.place, message.message)
    except ServiceUnavailable as error:
        _log.warning("%s", error.message)
        return error.message
    return None
