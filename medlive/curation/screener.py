"""The Screener: extracts (L_N, Q, L_A) from a thread, each element with its message and quote.

Source: LiveMedBench §3.2.1. A thread passes iff all three are non-empty. A reply that cites a message of the wrong
side is invalid.
"""

from medlive.curation.agent import Agent
from medlive.curation.elements import check_message_ids, thread_inputs
from medlive.curation.model import Element, Kind, Side
from medlive.curation.tasks import ExtractReply
from medlive.threads.model import Thread


async def screen(thread: Thread, agent: Agent) -> tuple[Element, ...]:
    """Extract the elements of L_N, Q and L_A; code assigns the ids. Raises AgentFailure."""

    def check(reply: ExtractReply) -> str | None:
        query = [reply.query] if reply.query else []
        sides = (
            (Side.NARRATIVE, reply.narrative),
            (Side.QUERY, query),
            (Side.ADVICE, reply.advice),
        )
        faults = (
            check_message_ids(thread, side, [e.message_id for e in found])
            for side, found in sides
        )
        return next(filter(None, faults), None)

    reply = await agent.ask(ExtractReply, thread_inputs(thread), check)
    narrative = [
        Element(
            f"n{i}", Side.NARRATIVE, Kind(e.kind), e.message_id, e.quote, e.statement
        )
        for i, e in enumerate(reply.narrative, 1)
    ]
    advice = [
        Element(f"a{i}", Side.ADVICE, Kind(e.kind), e.message_id, e.quote, e.statement)
        for i, e in enumerate(reply.advice, 1)
    ]
    q = reply.query
    query = (
        [Element("q", Side.QUERY, Kind.QUESTION, q.message_id, q.quote, q.question)]
        if q
        else []
    )
    return (*narrative, *query, *advice)
