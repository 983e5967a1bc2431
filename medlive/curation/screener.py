"""The Screener: a thread becomes (L_N, Q, L_A), each element with its message and its words.

Source: LiveMedBench §3.2.1. Forward iff all three are non-empty. Only patients and verified physicians are
shown to the engine, and a reply that cites a message outside its side is invalid, whatever engine gave it.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from medlive.curation.agent import Agent
from medlive.curation.model import Element, Kind, Side
from medlive.curation.tasks import AdviceReply, NarrativeReply, QueryReply
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
    patient = {m.id for m in thread.messages if m.role is Role.PATIENT}
    physician = {m.id for m in thread.advice_messages()}
    inputs = inputs_of(thread, language)

    def of_patient(reply: NarrativeReply) -> str | None:
        return _foreign((e.message_id for e in reply.elements), patient, "a patient's message")

    def of_patient_or_title(reply: QueryReply) -> str | None:
        cited = [reply.query.message_id] if reply.query else []
        return _foreign(cited, patient | {TITLE}, 'a patient\'s message or "title"')

    def of_physician(reply: AdviceReply) -> str | None:
        return _foreign((e.message_id for e in reply.elements), physician, "a verified physician's message")

    answers = await asyncio.gather(
        agent.ask(PACKAGE, "screener.narrative", inputs, NarrativeReply, of_patient),
        agent.ask(PACKAGE, "screener.query", inputs, QueryReply, of_patient_or_title),
        agent.ask(PACKAGE, "screener.advice", inputs, AdviceReply, of_physician),
        return_exceptions=True,  # the others finish, so that what was paid is on record
    )
    narrative, query, advice = answers
    if isinstance(narrative, BaseException):
        raise narrative
    if isinstance(query, BaseException):
        raise query
    if isinstance(advice, BaseException):
        raise advice
    elements = [
        Element(f"n{i}", Side.NARRATIVE, Kind(e.kind), e.message_id, e.quote, e.statement)
        for i, e in enumerate(narrative.elements, 1)
    ]
    if query.query:
        q = query.query
        elements.append(Element("q", Side.QUERY, Kind.QUESTION, q.message_id, q.quote, q.question))
    elements += [
        Element(f"a{i}", Side.ADVICE, Kind(e.kind), e.message_id, e.quote, e.statement)
        for i, e in enumerate(advice.elements, 1)
    ]
    return tuple(elements)


def _foreign(given: Iterable[str], allowed: set[str], what: str) -> str | None:
    strangers = sorted({message_id for message_id in given if message_id not in allowed})
    return f"message_id {strangers[0][:40]!r} is not {what}" if strangers else None
