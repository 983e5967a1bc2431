"""A task's thread as the rules read it: who said what, and which lines of a form say it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from medlive.llm.rules import language_zh as zh
from medlive.llm.rules.text import READ, Language, Piece, language_of, piece

MESSAGES: Final = 200
"""Messages of one thread that are read."""
TOTAL: Final = 200_000
"""Characters of one thread that are read, over all messages."""


class Said(NamedTuple):
    """One message."""

    id: str
    role: str
    text: str


class Conversation(NamedTuple):
    """A thread as an agent's inputs give it."""

    language: Language
    title: str
    messages: tuple[Said, ...]

    def of(self, role: Literal["patient", "physician"]) -> Iterator[Said]:
        """The messages of one role, in order."""
        return (m for m in self.messages if m.role == role)


def read(inputs: Mapping[str, Any]) -> Conversation:
    """The inputs of a screener task; what lies beyond the bounds is not read."""
    title = str(inputs.get("title") or "")[:2000]
    found: list[Said] = []
    left = TOTAL
    for message in list(inputs.get("messages") or ())[:MESSAGES]:
        text = str(message.get("text") or "")
        if len(text) > READ:
            text = text[:READ]
        if len(text) > left:
            break
        left -= len(text)
        found.append(Said(str(message.get("id") or ""), str(message.get("role") or ""), text))
    language = language_of(inputs.get("language"), title + " ".join(m.text[:2000] for m in found[:4]))
    return Conversation(language, title, tuple(found))


class Zone(NamedTuple):
    """Lines of a message that belong together: a form's field with its value, or free text (label "")."""

    label: str
    whole: Piece
    """Label and value."""
    value: Piece
    headed: bool
    """Whether a section heading of an exported dialogue stands before."""


def zones(text: str, language: Language) -> list[Zone]:
    """A message's zones, in order. English text is one free zone."""
    if language == "en":
        whole = piece(text, 0, min(len(text), READ))
        return [Zone("", whole, whole, False)] if whole else []
    found: list[Zone] = []
    label, headed = "", False
    start = value_start = 0
    at = 0

    def close(end: int) -> None:
        whole, value = piece(text, start, end), piece(text, value_start, end)
        if whole and value:
            found.append(Zone(label, whole, value, headed))

    for line in text[:READ].splitlines(keepends=True):
        end = at + len(line)
        stripped = line.lstrip()
        if zh.HEADER.match(line):
            close(at)
            label, headed, start, value_start = "", True, end, end
        elif (match := zh.FIELD.match(stripped)) is not None:
            close(at)
            label, start = match.group("label"), at + len(line) - len(stripped)
            value_start = start + match.end()
        at = end
    close(at)
    return found
