"""A thread and its elements as inputs of an engine's tasks, and the check of message ids in its replies.

An engine sees patients and verified physicians only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from medlive.threads.model import Message, Thread

from .agent import Identified, check_known, ids_of
from .model import Element, Side

TITLE = "title"  # Stands for a message id where the title is quoted


def visible_messages(thread: Thread) -> tuple[Message, ...]:
    """The messages of patients and verified physicians."""
    visible = []
    for message in thread.messages:
        if message.role == "patient" or message.is_advice_source:
            visible.append(message)
    return tuple(visible)


def message_text(thread: Thread, message_id: str) -> str:
    """The text of a message or the title; empty for an unknown id."""
    if message_id == TITLE:
        return thread.title
    message = thread.message(message_id)
    return message.text if message else ""


def thread_inputs(thread: Thread) -> dict[str, Any]:
    """A thread as a task's inputs."""
    messages = []
    for message in visible_messages(thread):
        shown = {"id": message.id, "role": message.role, "text": message.text}
        messages.append(shown)
    return {"title": thread.title, "messages": messages}


def visible_texts(thread: Thread) -> list[str]:
    """Title and texts of what an engine sees."""
    return [thread.title, *(m.text for m in visible_messages(thread))]


def element_inputs(
    elements: Iterable[Identified], *fields: str
) -> list[dict[str, Any]]:
    """Elements or claims as a task's inputs: `id` and the named fields (default: `statement`)."""
    names = ("id", *(fields or ("statement",)))
    inputs = []
    for element in elements:
        inputs.append({name: str(getattr(element, name)) for name in names})
    return inputs


@dataclass(frozen=True)
class Brief:
    """The elements of a case that are judged and written."""

    query: Element
    narrative: Sequence[Element]
    advice: Sequence[Element]
    month: str = ""
    """When it was asked, YYYY-MM; empty where the medicine of that time does not matter."""

    def inputs(self) -> dict[str, Any]:
        """Month, query and narrative as a task's inputs."""
        month = {"month": self.month} if self.month else {}
        return {
            **month,
            "query": self.query.statement,
            "narrative": element_inputs(self.narrative),
        }


def check_message_ids(
    thread: Thread,
    side: Side,
    ids: Iterable[str],
) -> str | None:
    """What is wrong with the message ids that elements of a side cite; None if nothing."""
    if side is Side.ADVICE:
        allowed = ids_of(thread.advice_messages())
        what = "a verified physician's message"
    else:
        patients = [m for m in thread.messages if m.role == "patient"]
        allowed = [*ids_of(patients), TITLE]
        what = 'a patient\'s message, nor "title"'
    fault = check_known(ids, allowed, what)
    return fault and f"{side.value}: {fault}"
