"""A thread as the agents see it: normalised, and without the identifiers of people."""

import re
from dataclasses import replace
from typing import Final, NamedTuple

from medlive.deidentify.detect import IdentifierKind, find_identifiers, redact
from medlive.text.normalise import dominant_language, normalise
from medlive.threads.model import Thread

_HAN: Final = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")


class FoundIdentifier(NamedTuple):
    """Where an identifier stands in a thread: offsets into the text as it was shown, never the words."""

    message: int | None
    """The place of the message in the thread, from 0; None for the title."""
    kind: IdentifierKind
    start: int
    end: int


def thread_identifiers(thread: Thread) -> tuple[FoundIdentifier, ...]:
    """The identifiers of people in the title and then in each message, in the order they stand in.

    Reads the texts as they are, not normalised, so that the offsets fit what is stored. Each text is read by its
    own script, whatever the thread says its language is. Empty where there is none; never fails.
    """
    texts: list[tuple[int | None, str]] = [(None, thread.title)]
    texts += [(place, m.text) for place, m in enumerate(thread.messages)]
    return tuple(
        FoundIdentifier(place, i.kind, i.start, i.end)
        for place, text in texts
        for i in find_identifiers(text, "zh" if _HAN.search(text) else "en")
    )


def normalised(thread: Thread) -> Thread:
    """The thread with every text normalised; what filters judge and duplicates are compared on."""
    return replace(
        thread,
        title=normalise(thread.title),
        messages=tuple(replace(m, text=normalise(m.text)) for m in thread.messages),
    )


def thread_language(thread: Thread) -> str:
    """The language the thread is written in, read from its text: "en", "zh", "other" or "unknown"."""
    return dominant_language("\n".join([thread.title, *(m.text for m in thread.messages)]))


def deidentified(thread: Thread, language: str) -> Thread:
    """The thread with identifiers of people replaced; nothing else ever reaches an engine or a case."""
    return replace(
        thread,
        title=redact(thread.title, language),
        messages=tuple(replace(m, text=redact(m.text, language)) for m in thread.messages),
    )
