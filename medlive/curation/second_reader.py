"""The second reader: judges thread and case as a whole, and finds identifiers in the texts of a release.

Source: docs/method.md §1. It never releases a case: where it disagrees with the chain, the case is held for a
person, with the reason and the elements concerned.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

from medlive.curation.agent import Agent, check_known, ids_of
from medlive.curation.elements import element_inputs, thread_inputs
from medlive.curation.model import (
    CaseText,
    Element,
    FaultyAdvice,
    Hold,
    Reason,
    SecondReading,
    Side,
)
from medlive.curation.tasks import CaseReply, IdentifierItem, IdentifiersReply
from medlive.deidentify.detect import redact
from medlive.text.normalise import contains_quote
from medlive.threads.model import Thread


async def read_case(
    thread: Thread,
    text: CaseText,
    elements: Sequence[Element],
    agent: Agent,
    *,
    month: str = "",
) -> SecondReading:
    """Have the second reader judge a thread and its case.

    A case in which something leading has no answer counts as unanswered, whatever the reader says of the whole.
    Raises AgentFailure.

    Args:
        thread: Its messages.
        text: The case.
        elements: Of the case.
        agent: The reader.
        month: When it was asked, where the medicine of that time matters; else empty.
    """
    advice = [e for e in elements if e.side is Side.ADVICE]
    known = set(ids_of(advice))
    inputs = {
        **({"month": month} if month else {}),
        **thread_inputs(thread),
        "case": asdict(text),
        "advice": element_inputs(advice),
    }
    messages = "\n".join(message.text for message in thread.messages)

    def check(reply: CaseReply) -> str | None:
        named = {*ids_of(reply.wrong), *ids_of(reply.unseen)}
        for words in (*(item.quote for item in reply.unseen), *reply.damaged):
            if not contains_quote(words, messages):
                return f"{words[:60]!r} does not stand in the messages"
        return check_known(named, known, "an advice element") or check_known(
            {item.by for item in reply.brought},
            known | {""},
            'an advice element, or ""',
        )

    reply = await agent.ask(CaseReply, inputs, check)
    unanswered = [i.what for i in reply.brought if i.leading and not i.by]
    reason = reply.reason
    if unanswered:
        reason = f"No answer to: {'; '.join(unanswered)}. {reason}".strip()
    wrong = []
    for item in reply.wrong:
        values = item.model_dump(exclude={"id"})
        wrong.append(FaultyAdvice(element_id=item.id, **values))
    return SecondReading(
        asked=reply.asked,
        clinical=reply.clinical,
        enough=reply.enough,
        answered=reply.answered and not unanswered,
        understandable=reply.understandable,
        wrong=tuple(wrong),
        danger=reply.danger.strip(),
        reason=reason[:2000],
        engine=agent.identity.as_json(),
        sure=reply.sure,
        unseen={item.id: item.quote for item in reply.unseen},
        damaged=tuple(dict.fromkeys(map(str.strip, reply.damaged))),
    )


def reading_holds(reading: SecondReading) -> tuple[Hold, ...]:
    """The reasons to hold a case that a second reading gives and no third voice takes up."""
    confirmed = {
        Reason.HISTORY_DOUBTED: reading.enough,
        Reason.QUESTION_DOUBTED: reading.asked and reading.clinical,
        Reason.NOT_UNDERSTANDABLE: reading.understandable,
    }
    doubts = [reason for reason, is_so in confirmed.items() if not is_so]
    return tuple(Hold(reason, reading.reason) for reason in doubts)


class Redacted(NamedTuple):
    """Texts with identifiers of people removed."""

    # Text id → the text with each identifier replaced by its kind in brackets
    texts: Mapping[str, str]
    found: tuple[str, ...]  # Identifiers found, as "<text id>: <kind>", never the words
    remaining: tuple[str, ...]  # Identifiers that code could not replace, likewise


async def redact_texts(
    texts: Mapping[str, str], agent: Agent, repeated: Mapping[str, str]
) -> Redacted:
    """Remove identifiers from texts by patterns and by the reader. Raises AgentFailure.

    The reader is not shown the `repeated` texts, whose words are those of the others.
    """
    own = {**texts, **repeated}
    clean = {identity: redact(text, agent.language) for identity, text in own.items()}

    def check(reply: IdentifiersReply) -> str | None:
        for item in reply.found:
            if item.text_id not in texts:
                return f"{item.text_id[:40]!r} is not the id of a text"
            if len(item.words.strip()) < 2:
                return f"{item.words!r} is a single character; copy it with the word beside it"
            if not contains_quote(item.words, clean[item.text_id]):
                return f"{item.words[:60]!r} does not stand in {item.text_id}"
        return None

    inputs = {"texts": [{"id": i, "text": clean[i]} for i in texts]}
    reply = await agent.ask(IdentifiersReply, inputs, check)
    remaining = _replace(reply.found, clean)
    return Redacted(clean, _places(reply.found), _places(remaining))


def _replace(
    identifiers: Sequence[IdentifierItem], clean: dict[str, str]
) -> list[IdentifierItem]:
    """Replace identifiers in every text; those that are still there, spelled otherwise than they were copied."""
    by_words: dict[str, list[IdentifierItem]] = {}
    for item in identifiers:
        by_words.setdefault(item.words.strip(), []).append(item)
    misspelt: list[IdentifierItem] = []
    # The longest first: "Dr Patel" before "Patel".
    for words in sorted(by_words, key=len, reverse=True):
        items = by_words[words]
        # The same name is replaced in every text.
        whole = re.compile(rf"(?<![A-Za-z0-9]){re.escape(words)}(?![A-Za-z0-9])")
        for item in items:
            if not whole.search(clean[item.text_id]):
                misspelt.append(item)
        sign = f"[{items[0].kind.replace('_', ' ')}]"
        for identity, text in clean.items():
            clean[identity] = whole.sub(sign, text)
    # "Patel" went with "Dr Patel", but "DR PATEL" did not.
    remaining = []
    for item in misspelt:
        if contains_quote(item.words, clean[item.text_id]):
            remaining.append(item)
    return remaining


def _places(items: Sequence[IdentifierItem]) -> tuple[str, ...]:
    return tuple(f"{item.text_id}: {item.kind}" for item in items)
