"""Send elements that failed a check back to the Screener, with the finding."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from medlive.curation.agent import Agent, check_ids
from medlive.curation.model import Element, Side
from medlive.curation.tasks import PACKAGE, RevisionReply
from medlive.curation.visible import TITLE, element_inputs, thread_inputs
from medlive.threads.model import Role, Thread


async def revise(
    thread: Thread, language: str, faulty: Sequence[tuple[Element, str]], agent: Agent
) -> dict[str, Element | None]:
    """Have the Screener revise (element, finding) pairs; id → the revised element, None where it is withdrawn.

    Raises AgentFailure.
    """
    elements = {element.id: element for element, _ in faulty}
    inputs = {
        **thread_inputs(thread, language),
        "elements": [
            {**inputs, "finding": finding}
            for inputs, (_, finding) in zip(
                element_inputs(elements.values(), "side", "message_id", "quote", "statement"), faulty, strict=True
            )
        ],
    }

    def check(reply: RevisionReply) -> str | None:
        if fault := check_ids([item.id for item in reply.elements], list(elements)):
            return fault
        for item in reply.elements:
            cited = [item.message_id] if item.keep else []
            if fault := check_message_ids(thread, elements[item.id].side, cited):
                return f"{item.id}: {fault}"
        return None

    reply = await agent.ask(PACKAGE, "screener.revise", inputs, RevisionReply, check)
    return {
        item.id: replace(elements[item.id], message_id=item.message_id, quote=item.quote, statement=item.statement)
        if item.keep
        else None
        for item in reply.elements
    }


def check_message_ids(thread: Thread, side: Side, given: Iterable[str]) -> str | None:
    """What is wrong with the message ids that elements of a side cite; None if nothing."""
    if side is Side.ADVICE:
        allowed, what = {m.id for m in thread.advice_messages()}, "a verified physician's message"
    else:
        allowed = {m.id for m in thread.messages if m.role is Role.PATIENT} | {TITLE}
        what = 'a patient\'s message or "title"'
    invalid = sorted(set(given) - allowed)
    return f"{side.value}: message_id {invalid[0][:40]!r} is not {what}" if invalid else None
