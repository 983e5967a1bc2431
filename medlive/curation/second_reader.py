"""The second reading: thread and case as a whole, by a reader with knowledge of its own, and its look for what
names a person in the texts of a release.

Source: docs/method.md §1. It never releases a case: where it differs from the chain, the case waits for a person,
with the reason and the elements it rests on.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from medlive.curation.agent import Agent
from medlive.curation.model import CaseText, Element, Hold, Reason, SecondReading, Side, Wrong, WrongAdvice
from medlive.curation.shown import inputs_of
from medlive.curation.tasks import PACKAGE, CaseReply, IdentifierItem, IdentifiersReply
from medlive.curation.validator import listed
from medlive.deidentify.detect import redact
from medlive.text.normalise import contains_quote
from medlive.threads.model import Thread


async def read_case(
    thread: Thread, language: str, text: CaseText, elements: Sequence[Element], agent: Agent
) -> SecondReading:
    """What the second reader says of the thread and of the case made of it. Raises AgentFailure."""
    advice = [e for e in elements if e.side is Side.ADVICE]
    known = {e.id for e in advice}

    def check(reply: CaseReply) -> str | None:
        strangers = sorted({w.id for w in reply.wrong} - known)
        return f"{strangers[0][:20]!r} is not the id of an advice element" if strangers else None

    inputs = {
        **inputs_of(thread, language),
        "case": {"narrative": text.narrative, "query": text.query, "advice": text.advice},
        "advice": listed(advice),
    }
    reply = await agent.ask(PACKAGE, "reader.case", inputs, CaseReply, check)
    return SecondReading(
        asked=reply.asked,
        clinical=reply.clinical,
        enough=reply.enough,
        answered=reply.answered,
        understandable=reply.understandable,
        wrong=tuple(WrongAdvice(w.id, w.kind, w.reason) for w in reply.wrong),
        danger=reply.danger.strip(),
        reason=reply.reason,
        engine=agent.identity.as_json(),
    )


def holds_of(reading: SecondReading) -> tuple[Hold, ...]:
    """Where a second reading differs from a chain that would keep the case, the gravest first."""
    found = []
    for kind, reason in ((Wrong.HARMFUL, Reason.ADVICE_HARMFUL), (Wrong.FALSE, Reason.ADVICE_WRONG)):
        wrong = [w for w in reading.wrong if w.kind is kind]
        if wrong:
            told = "; ".join(f"{w.element_id}: {w.reason}" for w in wrong)
            found.append(Hold(reason, told, tuple(w.element_id for w in wrong)))
    if reading.danger:
        found.append(Hold(Reason.DANGER_UNANSWERED, reading.danger))
    if not reading.enough:
        found.append(Hold(Reason.HISTORY_DOUBTED, reading.reason))
    if not (reading.asked and reading.clinical):
        found.append(Hold(Reason.QUESTION_DOUBTED, reading.reason))
    if not reading.answered:
        found.append(Hold(Reason.QUESTION_UNANSWERED, reading.reason))
    if not reading.understandable:
        found.append(Hold(Reason.NOT_UNDERSTANDABLE, reading.reason))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Redacted:
    """Texts without what names a person or leads to one."""

    texts: Mapping[str, str]
    """Text id → the text with each identifier replaced by its kind in brackets."""
    found: tuple[str, ...]
    """What the reader found, as "<text id>: <kind>", never its words."""
    remaining: tuple[str, ...]
    """What it found and code could not replace, likewise."""


async def redact_texts(language: str, texts: Mapping[str, str], agent: Agent) -> Redacted:
    """The texts after the patterns and the reader took out what names a person. Raises AgentFailure."""
    clean = {identity: redact(text, language) for identity, text in texts.items()}

    def check(reply: IdentifiersReply) -> str | None:
        for item in reply.found:
            if item.text_id not in clean:
                return f"{item.text_id[:40]!r} is not the id of a text"
            if len(item.words.strip()) < 2:
                return f"{item.words!r} is a single character; copy it with the word beside it"
            if not contains_quote(item.words, clean[item.text_id]):
                return f"{item.words[:60]!r} does not stand in {item.text_id}"
        return None

    inputs = {"language": language, "texts": [{"id": i, "text": t} for i, t in clean.items()]}
    reply = await agent.ask(PACKAGE, "reader.identifiers", inputs, IdentifiersReply, check)
    remaining = []
    for words, items in _by_words(reply).items():
        # The same name in another text is the same name: it is replaced wherever it stands.
        whole = re.compile(rf"(?<![A-Za-z0-9]){re.escape(words)}(?![A-Za-z0-9])")
        if not any(whole.search(clean[item.text_id]) for item in items):
            remaining += [f"{item.text_id}: {item.kind}" for item in items]
        sign = f"[{items[0].kind.replace('_', ' ')}]"
        clean = {identity: whole.sub(sign, text) for identity, text in clean.items()}
    found = tuple(f"{item.text_id}: {item.kind}" for item in reply.found)
    return Redacted(clean, found, tuple(remaining))


def _by_words(reply: IdentifiersReply) -> dict[str, list[IdentifierItem]]:
    """What was found by its words, the longest first: "Dr Patel" goes before "Patel"."""
    found: dict[str, list[IdentifierItem]] = {}
    for item in sorted(reply.found, key=lambda item: -len(item.words.strip())):
        found.setdefault(item.words.strip(), []).append(item)
    return found
