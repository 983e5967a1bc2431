"""The Controller: every element is supported by the thread, or the case is discarded; then N and A are written.

Source: LiveMedBench §3.2.3; docs/method.md §1. The checks in code come first and bind whatever engine answers.
"""

from collections.abc import Sequence

from medlive.curation.agent import Agent
from medlive.curation.model import CaseText, Check, ControllerCheck, Element, Kind, Side
from medlive.curation.screener import TITLE, shown_messages
from medlive.curation.tasks import SupportReply, WriteReply
from medlive.threads.grounding import LEAST_QUOTED, doses_exchanged, ungrounded, ungrounded_sentences
from medlive.threads.model import Role, Thread
from medlive.threads.negation import cut_off, denies, flipped
from medlive.threads.normalise import contains_quote
from medlive.threads.quantities import numbers, numbers_missing

PACKAGE = "medlive.curation"


def check_in_code(thread: Thread, elements: Sequence[Element]) -> tuple[ControllerCheck, ...]:
    """For each element: its quote stands in its message, every number it states stands in what was shown of the
    thread and none takes the place of its quote's, it is made of its quote's words, and it denies what its quote
    denies (a question, which states nothing, is let off the last).

    The words are a bound on what an engine may call supported: see `medlive.threads.grounding`.
    """
    whole = "\n".join([thread.title, *(m.text for m in shown_messages(thread))])
    checks = []
    for element in elements:
        source = _text_of(thread, element.message_id)
        found = source is not None and contains_quote(element.quote, source)
        checks.append(
            ControllerCheck(Check.QUOTE_IN_THREAD, element.id, found, "" if found else element.quote[:200])
        )
        missing = numbers_missing(element.statement, whole) or _numbers_exchanged(element, source or "")
        checks.append(ControllerCheck(Check.NUMBERS_IN_THREAD, element.id, not missing, ", ".join(missing)[:200]))
        context = f"{thread.title}\n{_context(thread, element)}"
        # A question may be a bare "what can I do?", and names its patient all the same.
        least = 0.0 if element.kind is Kind.QUESTION else LEAST_QUOTED
        new = ungrounded(element.statement, element.quote, context, least_quoted=least)
        checks.append(ControllerCheck(Check.SAYS_NO_MORE, element.id, not new, ", ".join(new)[:200]))
        if element.kind is not Kind.QUESTION:
            wrong = _negation_fault(element, source or "")
            checks.append(ControllerCheck(Check.NEGATION_KEPT, element.id, not wrong, wrong[:200]))
    return tuple(checks)


def _numbers_exchanged(element: Element, source: str) -> list[str]:
    """The statement's numbers that its own message does not state although the quote has numbers of their unit:
    a dose that somebody else named, in the place of this one."""
    quoted = {n.unit for n in numbers(element.quote)} - {None}
    missing = numbers_missing(element.statement, source) if quoted else []
    return [text for text in missing if any(n.unit in quoted for n in numbers(text))]


def _negation_fault(element: Element, source: str) -> str:
    if found := flipped(element.statement, [element.quote]):
        return found[0]
    if cut_off(element.quote, source) and not denies(element.statement):
        return f"the words before {element.quote[:80]!r} deny it"
    return ""


async def check_by_engine(
    thread: Thread, language: str, elements: Sequence[Element], agent: Agent
) -> tuple[ControllerCheck, ...]:
    """For each element: its statement says no more than its quote. Raises AgentFailure."""
    wanted = [e.id for e in elements]

    def check(reply: SupportReply) -> str | None:
        given = [v.id for v in reply.verdicts]
        return None if sorted(given) == sorted(wanted) else "one verdict for each element, no more, no fewer"

    inputs = {
        "language": language,
        "elements": [
            {"id": e.id, "statement": e.statement, "quote": e.quote, "context": _context(thread, e)}
            for e in elements
        ],
    }
    reply = await agent.ask(PACKAGE, "controller.support", inputs, SupportReply, check)
    verdicts = {v.id: v for v in reply.verdicts}
    return tuple(ControllerCheck(Check.SAYS_NO_MORE, i, verdicts[i].supported, verdicts[i].reason) for i in wanted)


async def write(
    language: str, elements: Sequence[Element], agent: Agent
) -> tuple[CaseText, tuple[ControllerCheck, ...]]:
    """N and A written from the elements, and whether they state only the elements' numbers, deny what they deny,
    and are sentence by sentence made of their words.

    Raises AgentFailure.
    """
    narrative = [e for e in elements if e.side is Side.NARRATIVE]
    advice = [e for e in elements if e.side is Side.ADVICE]
    query = next(e for e in elements if e.side is Side.QUERY)
    inputs = {
        "language": language,
        "query": query.statement,
        "narrative": [{"id": e.id, "statement": e.statement} for e in narrative],
        "advice": [{"id": e.id, "kind": e.kind.value, "statement": e.statement} for e in advice],
    }
    reply = await agent.ask(PACKAGE, "controller.write", inputs, WriteReply)
    text = CaseText(reply.narrative, query.statement, reply.advice)
    checks = []
    for subject, written, sources in (
        ("narrative", text.narrative, [*narrative, query]),
        ("advice", text.advice, advice),
    ):
        stated = "\n".join(f"{e.statement}\n{e.quote}" for e in sources)
        missing = [
            *numbers_missing(written, stated),
            *doses_exchanged(written, [f"{e.statement}\n{e.quote}" for e in sources]),
        ]
        checks.append(ControllerCheck(Check.NUMBERS_IN_ELEMENTS, subject, not missing, ", ".join(missing)[:200]))
        wrong = flipped(written, [part for e in sources for part in (e.statement, e.quote)])
        checks.append(ControllerCheck(Check.NEGATION_KEPT, subject, not wrong, "; ".join(wrong)[:200]))
        new = ungrounded_sentences(written, [part for e in sources for part in (e.statement, e.quote)], language)
        checks.append(ControllerCheck(Check.SAYS_NO_MORE, subject, not new, "; ".join(new)[:200]))
    return text, tuple(checks)


def _text_of(thread: Thread, message_id: str) -> str | None:
    if message_id == TITLE:
        return thread.title
    message = thread.message(message_id)
    return message.text if message else None


def _context(thread: Thread, element: Element) -> str:
    """What an element may lean on besides its quote: a question its own thread, an answer the turn before."""
    shown = shown_messages(thread)
    if element.kind is Kind.QUESTION:
        told = (m.text for m in shown if m.role is Role.PATIENT)
        return "\n".join([thread.title, *told])[:4000]
    at = next((i for i, m in enumerate(shown) if m.id == element.message_id), 0)
    return shown[at - 1].text[-1000:] if at > 0 else ""
