"""The Screener: extracts (L_N, Q, L_A) from a thread, each element with its message and quote.

Source: LiveMedBench §3.2.1. A thread passes iff all three are non-empty. The engine sees patients and verified
physicians only, and a reply that cites a message of the wrong side is invalid.
"""

from medlive.curation.agent import Agent
from medlive.curation.model import Element, Kind, Side
from medlive.curation.revise import check_message_ids
from medlive.curation.tasks import PACKAGE, ExtractReply
from medlive.curation.visible import thread_inputs
from medlive.threads.model import Thread


async def screen(thread: Thread, language: str, agent: Agent) -> tuple[Element, ...]:
    """Extract the elements of L_N, Q and L_A; code assigns the ids. Raises AgentFailure."""

    def check(reply: ExtractReply) -> str | None:
        return (
            check_message_ids(thread, Side.NARRATIVE, (e.message_id for e in reply.narrative))
            or check_message_ids(thread, Side.QUERY, [reply.query.message_id] if reply.query else [])
            or check_message_ids(thread, Side.ADVICE, (e.message_id for e in reply.advice))
        )

    reply = await agent.ask(PACKAGE, "screener.extract", thread_inputs(thread, language), ExtractReply, check)
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
