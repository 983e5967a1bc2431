"""Exact checks of elements and texts, in code: they bind.

Source: docs/method.md §1, Controller. What a statement means, an engine judges.
"""

from collections.abc import Sequence

from medlive.curation.elements import message_text, visible_texts
from medlive.curation.model import Check, ControllerCheck, Element
from medlive.text.normalise import contains_quote
from medlive.text.quantities import doses_exchanged, numbers_missing
from medlive.threads.model import Thread


def exact_checks(
    thread: Thread, element: Element, round_: int = 0
) -> list[ControllerCheck]:
    """Check that the quote is in its message and that the numbers agree with the thread.

    A number conflicts when the visible thread does not state it; a dose also when the quote has another one and
    the message does not state this one.
    """
    source = message_text(thread, element.message_id)
    whole = "\n".join(visible_texts(thread))
    missing = numbers_missing(element.statement, whole)
    missing = missing or doses_exchanged(element.statement, element.quote, source)
    absent = unstated = ""
    if not contains_quote(element.quote, source):
        absent = f"not in the message, character by character: {element.quote[:200]}"
    if missing:
        unstated = f"the message does not state {', '.join(missing)[:200]}"
    checks = []
    for check, fault in (
        (Check.QUOTE_IN_MESSAGE, absent),
        (Check.NUMBERS_AGREE, unstated),
    ):
        checks.append(ControllerCheck(check, element.id, not fault, fault, round_))
    return checks


def check_text_numbers(
    subject: str, text: str, sources: Sequence[str], round_: int = 0
) -> ControllerCheck:
    """Check that a written text ("narrative" or "advice") states only numbers of its sources."""
    missing = numbers_missing(text, *sources)
    detail = f"no statement holds {', '.join(missing)[:200]}" if missing else ""
    return ControllerCheck(Check.NUMBERS_AGREE, subject, not missing, detail, round_)
