"""The pinned model: what answers counts only where it names the model that was asked."""

from typing import Final

from medlive.errors import UsageError
from medlive.llm.engine import UNNAMED, Reply

STRANGERS: Final = 8
"""This many replies by another model than the pinned one, and none by it: a wrong configuration."""


def stranger(reply: Reply, asked: str) -> str | None:
    """Why a reply does not count for the model it names; None where it names the one that was asked."""
    if reply.model == asked:
        return None
    named = "the reply names none" if reply.model == UNNAMED else repr(reply.model[:100])
    return f"another model answered: {named}"


class Pinned:
    """Holds replies against the model that was asked, and ends a run that only others answer."""

    def __init__(self, role: str, asked: str, *, allow_unpinned: bool) -> None:
        """`role` for the message: "grader". `allow_unpinned` takes every reply."""
        self._role, self._asked, self._any = role, asked, allow_unpinned
        self._strangers = 0
        self._seen = False

    def fault(self, reply: Reply) -> str | None:
        """Count a reply; why it does not count, or None. Raises UsageError when eight do not and none did."""
        why = None if self._any else stranger(reply, self._asked)
        if why is None:
            self._seen = True
            return None
        self._strangers += 1
        if self._seen or self._strangers < STRANGERS:
            return why
        if reply.model == UNNAMED:
            raise UsageError(
                f"the {self._role} {self._asked!r} was asked, and no reply names the model that it is by",
                hint="--allow-unpinned takes such replies",
            )
        raise UsageError(
            f"the {self._role} {self._asked!r} was asked and {reply.model!r} answered, every time",
            hint=f"name {reply.model!r} as the {self._role}, or take whatever answers: --allow-unpinned",
        )
