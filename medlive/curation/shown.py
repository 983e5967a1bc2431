"""What the agents see of a thread: the words of its patients and of its verified physicians."""

from typing import Any

from medlive.threads.model import Message, Role, Thread

TITLE = "title"


def shown_messages(thread: Thread) -> tuple[Message, ...]:
    """The messages an engine may see: patients' and verified physicians', nobody else's."""
    return tuple(m for m in thread.messages if m.role is Role.PATIENT or m.is_advice_source)


def shown_text(thread: Thread) -> str:
    """Title and messages that an engine may see, as one text."""
    return "\n\n".join([thread.title, *(m.text for m in shown_messages(thread))]).strip()


def inputs_of(thread: Thread, language: str) -> dict[str, Any]:
    """What the Screener's engine sees of a thread."""
    return {
        "language": language,
        "title": thread.title,
        "messages": [{"id": m.id, "role": m.role.value, "text": m.text} for m in shown_messages(thread)],
    }
