"""A thread as the agents see it: normalised, and without the identifiers of people."""

from dataclasses import replace

from medlive.threads.deidentify import redact
from medlive.threads.model import Thread
from medlive.threads.normalise import dominant_language, normalise


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
