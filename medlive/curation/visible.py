"""What the agents see: a thread's patients and verified physicians, and elements as JSON."""

from collections.abc import Iterable
from typing import Any

from medlive.curation.model import Element
from medlive.threads.model import Message, Role, Thread

TITLE = "title"


def visible_messages(thread: Thread) -> tuple[Message, ...]:
    """The messages of patients and verified physicians, the only ones an engine sees."""
    return tuple(m for m in thread.messages if m.role is Role.PATIENT or m.is_advice_source)


def visible_text(thread: Thread) -> str:
    """The title and the visible messages as one text."""
    return "\n\n".join([thread.title, *(m.text for m in visible_messages(thread))]).strip()


def thread_inputs(thread: Thread, language: str) -> dict[str, Any]:
    """A thread as a task's inputs."""
    return {
        "language": language,
        "title": thread.title,
        "messages": [{"id": m.id, "role": m.role.value, "text": m.text} for m in visible_messages(thread)],
    }


def element_inputs(elements: Iterable[Element], *fields: str) -> list[dict[str, Any]]:
    """Elements as a task's inputs: `id` and the named fields (default: `statement`)."""
    return [{name: str(getattr(e, name)) for name in ("id", *(fields or ("statement",)))} for e in elements]
