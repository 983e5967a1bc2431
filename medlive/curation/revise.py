"""Elements that a control objected to go back to whoever wrote them, with the finding."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from medlive.curation.agent import Agent
from medlive.curation.model import Element, Side
from medlive.curation.shown import TITLE, inputs_of
from medlive.curation.tasks import PACKAGE, RevisionReply
from medlive.threads.model import Role, Thread


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
            if fault := foreign_messages(thread, elements[item.id].side, cited):
                return f"{item.id}: {fault}"
        return None

    reply = await agent.ask(PACKAGE, "screener.revise", inputs, RevisionReply, check)
    return {
        item.id: replace(elements[item.id], message_id=item.message_id, quote=item.quote, statement=item.statement)
        if item.keep
        else None
        for item in reply.elements
    }


def foreign_messages(thread: Thread, side: Side, given: Iterable[str]) -> str | None:
    """What is wrong with the messages that elements of a side were taken from."""
    if side is Side.ADVICE:
        allowed, what = {m.id for m in thread.advice_messages()}, "a verified physician's message"
    else:
        allowed = {m.id for m in thread.messages if m.role is Role.PATIENT} | {TITLE}
        what = 'a patient\'s message or "title"'
    strangers = sorted(set(given) - allowed)
    return f"{side.value}: message_id {strangers[0][:40]!r} is not {what}" if strangers else None
