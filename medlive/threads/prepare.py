"""Prepare a thread for the agents: normalise it and remove the identifiers of people."""

import re
from collections.abc import Callable
from dataclasses import replace

from medlive.deidentify.detect import (
    Identifier,
    find_identifiers,
    redact,
    redact_beginning,
)
from medlive.text.normalise import dominant_language, normalise

from .model import Thread

LANGUAGES = ("en", "zh")
"""The languages of cases."""
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")


def thread_identifiers(thread: Thread) -> list[list[Identifier]]:
    """Find the identifiers in the title, and in each message, in order.

    The texts are not normalised, so that the offsets match what is stored, and each is read by its own script,
    whatever the thread's language.
    """
    identifiers = []
    for text in [thread.title, *(message.text for message in thread.messages)]:
        language = "zh" if _HAN.search(text) else "en"
        identifiers.append(find_identifiers(text, language))
    return identifiers


def normalised(thread: Thread) -> Thread:
    """Normalise every text of a thread, for filters and the search for duplicates."""
    return _with_texts(thread, normalise)


def _with_texts(thread: Thread, change: Callable[[str], str]) -> Thread:
    """The thread with its title and every message's text changed."""
    messages = []
    for message in thread.messages:
        messages.append(replace(message, text=change(message.text)))
    return replace(thread, title=change(thread.title), messages=tuple(messages))


def thread_language(thread: Thread) -> str:
    """Detect the language of a thread's text: "en", "zh", "other" or "unknown".

    What patients and verified physicians write decides, then the patients' words alone, then everybody's; where the
    language is unknown even so, the one that the source declares counts, as for the filters.
    """
    patients = [m for m in thread.messages if m.role == "patient"]
    shown = [m for m in thread.messages if m.role == "patient" or m.is_advice_source]
    language = "unknown"
    for messages in (shown, patients, thread.messages):
        texts = [thread.title, *(message.text for message in messages)]
        language = dominant_language("\n".join(texts))
        if language in LANGUAGES:
            return language
    is_declared = language == "unknown" and thread.language in LANGUAGES
    return str(thread.language) if is_declared else language


def deidentified(thread: Thread, language: str) -> Thread:
    """Replace the identifiers of people; only this form of a thread reaches an engine or a case."""
    return _with_texts(thread, lambda text: redact(text, language))


def prepared(thread: Thread) -> tuple[Thread, str]:
    """A thread as the agents get it, normalised and without identifiers of people; and its language."""
    clean = normalised(thread)
    language = thread_language(clean)
    return deidentified(clean, language), language


def deidentified_beginning(text: str, after: str, language: str) -> str:
    """Normalise the beginning of a message and remove identifiers, those too that go on beyond it.

    Args:
        text: The beginning.
        after: What stands after it; "" if it is the whole message.
        language: The thread's.
    """
    body = normalise(text)
    tail = _gap(text, after) + normalise(after) if after else ""
    return redact_beginning(body + tail, language, len(body))


def _gap(left: str, right: str) -> str:
    """What `normalise` makes of the spaces between two parts of a text, which it strips at their ends."""
    spaces = left[len(left.rstrip()) :]
    spaces += right[: len(right) - len(right.lstrip())]
    if "\n" in spaces:
        return "\n"
    return " " if spaces else ""
