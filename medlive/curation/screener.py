"""The Screener: extracts (L_N, Q, L_A) from a thread, each element with its message and quote.

Source: LiveMedBench §3.2.1. A thread passes iff all three are non-empty. A reply is invalid if its advice
cites another message than a verified physician's, or the rest another than a patient's.
"""

from collections.abc import Mapping, Sequence

from medlive.threads.model import Thread

from .agent import Agent
from .elements import check_message_ids, thread_inputs
from .model import Element, Kind, Side
from .tasks import AdviceItem, ExtractReply, NarrativeItem, QueryItem


async def screen(thread: Thread, agent: Agent) -> tuple[Element, ...]:
    """Extract the elements of L_N, Q and L_A; code assigns the ids. Raises AgentFailure."""

    def check(reply: ExtractReply) -> str | None:
        for side, items in _sides(reply).items():
            cited = [item.message_id for item in items]
            if fault := check_message_ids(thread, side, cited):
                return fault
        return None

    reply = await agent.ask(ExtractReply, thread_inputs(thread), check)
    elements = []
    for side, items in _sides(reply).items():
        for number, item in enumerate(items, start=1):
            identity = f"{side.value[0]}{number}"
            kind: Kind = "question"
            if isinstance(item, QueryItem):
                identity, statement = "q", item.question
            else:
                kind, statement = item.kind, item.statement
            element = Element(
                identity, side, kind, item.message_id, item.quote, statement
            )
            elements.append(element)
    return tuple(elements)


def _sides(
    reply: ExtractReply,
) -> Mapping[Side, Sequence[NarrativeItem | QueryItem | AdviceItem]]:
    """Side → the items of a reply."""
    return {
        Side.NARRATIVE: reply.narrative,
        Side.QUERY: (reply.query,) if reply.query else (),
        Side.ADVICE: reply.advice,
    }
