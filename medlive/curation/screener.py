"""The Screener: a thread becomes (L_N, Q, L_A), each element with its message and its words.

Source: LiveMedBench §3.2.1. Forward iff all three are non-empty. Only patients and verified physicians are
shown to the engine, and a reply that cites a message outside its side is invalid, whatever engine gave it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from medlive.curation.agent import Agent
from medlive.curation.model import Element, Kind, Side
from medlive.curation.tasks import ExtractReply, RevisionReply
from medlive.threads.model import Message, Role, Thread

PACKAGE = "medlive.curation"
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


async def screen(thread: Thread, language: str, agent: Agent) -> tuple[Element, ...]:
    """The elements of L_N, Q and L_A, ids given by code. Raises AgentFailure."""

    def check(reply: ExtractReply) -> str | None:
        return (
            _foreign(thread, Side.NARRATIVE, (e.message_id for e in reply.narrative))
            or _foreign(thread, Side.QUERY, [reply.query.message_id] if reply.query else [])
            or _foreign(thread, Side.ADVICE, (e.message_id for e in reply.advice))
        )

    reply = await agent.ask(PACKAGE, "screener.extract", inputs_of(thread, language), ExtractReply, check)
    elements = [
        Element(f"n{i}", Side.NARRATIVE, Kind(e.kind), e.message_id, e.quote, e.statement)
        for i, e in enumerate(reply.narrative, 1)
    ]
    if q := reply.query:
        elements.append(Element("q", Side.QUERY, Kind.QUESTION, q.message_id, q.quote, q.question))
    elements += [
        Element(f"a{i}", Side.ADVICE, Kind(e.kind), e.message_id, e.quote, e.statement)
        for i, e in enumerate(reply.advice, 1)
    ]
    return tuple(elements)


async def revise(
    thread: Thread, language: str, faulty: Sequence[tuple[Element, str]], agent: Agent
) -> dict[str, Element | None]:
    """Each element that a control objected to, with the finding, as the Screener mends it; None where it takes the
    element back. Raises AgentFailure."""
    elements = {element.id: element for element, _ in faulty}
    inputs = {
        **inputs_of(thread, language),
        "elements": [
            {
                "id": e.id,
                "side": e.side.value,
                "message_id": e.message_id,
                "quote": e.quote,
                "statement": e.statement,
                "finding": finding,
            }
            for e, finding in faulty
        ],
    }

    def check(reply: RevisionReply) -> str | None:
        if sorted(item.id for item in reply.elements) != sorted(elements):
            return "one item for each element that was given, no more, no fewer"
        for item in reply.elements:
            cited = [item.message_id] if item.keep else []
            if fault := _foreign(thread, elements[item.id].side, cited):
                return f"{item.id}: {fault}"
        return None

    reply = await agent.ask(PACKAGE, "screener.revise", inputs, RevisionReply, check)
    return {
        item.id: replace(elements[item.id], message_id=item.message_id, quote=item.quote, statement=item.statement)
        if item.keep
        else None
        for item in reply.elements
    }


def _foreign(thread: Thread, side: Side, given: Iterable[str]) -> str | None:
    """What is wrong with the messages that elements of a side were taken from."""
    if side is Side.ADVICE:
        allowed, what = {m.id for m in thread.advice_messages()}, "a verified physician's message"
    else:
        allowed = {m.id for m in thread.messages if m.role is Role.PATIENT} | {TITLE}
        what = 'a patient\'s message or "title"'
    strangers = sorted(set(given) - allowed)
    return f"{side.value}: message_id {strangers[0][:40]!r} is not {what}" if strangers else None
