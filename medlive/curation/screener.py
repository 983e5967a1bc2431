"""The Screener: a thread becomes (L_N, Q, L_A), each element with its message and its words.

Source: LiveMedBench §3.2.1. Forward iff all three are non-empty. Only patients and verified physicians are
shown to the engine, and a reply that cites a message outside its side is invalid, whatever engine gave it.
"""

from medlive.curation.agent import Agent
from medlive.curation.model import Element, Kind, Side
from medlive.curation.revise import foreign_messages
from medlive.curation.shown import inputs_of
from medlive.curation.tasks import PACKAGE, ExtractReply
from medlive.threads.model import Thread


async def screen(thread: Thread, language: str, agent: Agent) -> tuple[Element, ...]:
    """The elements of L_N, Q and L_A, ids given by code. Raises AgentFailure."""

    def check(reply: ExtractReply) -> str | None:
        return (
            foreign_messages(thread, Side.NARRATIVE, (e.message_id for e in reply.narrative))
            or foreign_messages(thread, Side.QUERY, [reply.query.message_id] if reply.query else [])
            or foreign_messages(thread, Side.ADVICE, (e.message_id for e in reply.advice))
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
