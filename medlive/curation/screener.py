"""The Screener: extracts (L_N, Q, L_A) from a thread, each element with its message and quote.

Source: LiveMedBench §3.2.1. A thread passes iff all three are non-empty. A reply that cites a message of the wrong
side is invalid.
"""

from collections.abc import Sequence

from medlive.curation.agent import Agent
from medlive.curation.elements import check_message_ids, thread_inputs
from medlive.curation.model import Element, Kind, Side
from medlive.curation.tasks import AdviceItem, ExtractReply, NarrativeItem
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
        for side, items in sides:
            cited = [item.message_id for item in items]
            if fault := check_message_ids(thread, side, cited):
                return fault
        return None

    reply = await agent.ask(ExtractReply, thread_inputs(thread), check)
    elements: list[Element] = []
    sides: tuple[tuple[Side, Sequence[NarrativeItem | AdviceItem]], ...] = (
        (Side.NARRATIVE, reply.narrative),
        (Side.ADVICE, reply.advice),
    )
    for side, items in sides:
        for number, item in enumerate(items, start=1):
            values = item.model_dump() | {"kind": Kind(item.kind)}
            elements.append(Element(f"{side.value[0]}{number}", side, **values))
    if (query := reply.query) is not None:
        element = Element(
            id="q",
            side=Side.QUERY,
            kind=Kind.QUESTION,
            message_id=query.message_id,
            quote=query.quote,
            statement=query.question,
        )
        elements.insert(len(reply.narrative), element)
    return tuple(elements)
