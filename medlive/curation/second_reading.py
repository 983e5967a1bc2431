"""Second reading (`read_case`), third voice (`hear_voice`, `settle`), removal of people's identifiers (`redact_texts`).

Source: docs/method.md §1, second reading. The reader judges thread and case as a whole, and never releases a case:
where it disagrees with the earlier steps, the case is held for a person, with the reason and the elements concerned. A
third voice judges the advice objected to, without seeing the objection, and what the reader finds left unsaid. Where
both are sure that it is wrong, the case is rejected; where the reader is unsure and the voice sure that it is sound,
the case goes on; else a person decides.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from medlive.deidentify.detect import redact
from medlive.text.normalise import contains_quote
from medlive.threads.model import Thread

from .agent import Agent, AgentFailure, check_known, ids_of
from .elements import Brief, element_inputs, thread_inputs
from .holds import hold_on
from .model import (
    AdviceFault,
    Alignment,
    CaseText,
    ClaimVerdict,
    Element,
    FaultyAdvice,
    Hold,
    Reason,
    SecondReading,
    Soundness,
    Voice,
)
from .tasks import (
    CaseReply,
    IdentifierItem,
    IdentifiersReply,
    SoundnessItem,
)

# Faults of advice that a third voice judges, the gravest first
_ADVICE = {
    AdviceFault.HARMFUL: Reason.ADVICE_HARMFUL,
    AdviceFault.FALSE: Reason.ADVICE_WRONG,
}


async def read_case(
    thread: Thread,
    text: CaseText,
    advice: Sequence[Element],
    agent: Agent,
    *,
    month: str = "",
) -> SecondReading:
    """Have the second reader judge a thread and its case.

    A case counts as unanswered where a leading complaint has no advice, whatever the reader says of the whole.
    Raises AgentFailure.

    Args:
        thread: Its messages.
        text: The case.
        advice: The case's elements.
        agent: The reader.
        month: When it was asked, where the medicine of that time matters; else empty.
    """
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
    """The holds that a second reading gives for history, question or wording, which no third voice judges."""
    confirmed = {
        Reason.HISTORY_DOUBTED: reading.enough,
        Reason.QUESTION_DOUBTED: reading.asked and reading.clinical,
        Reason.NOT_UNDERSTANDABLE: reading.understandable,
    }
    doubts = [reason for reason, is_so in confirmed.items() if not is_so]
    return tuple(Hold(reason, reading.reason) for reason in doubts)


@dataclass(frozen=True)
class Objection:
    """One thing that the second reading objects to."""

    reason: Reason
    element_id: str
    """"" for the case as a whole."""
    words: str
    sure: bool

    @property
    def id(self) -> str:
        """The id of the item by which a voice judges it."""
        return self.element_id or self.reason.value


def objections(reading: SecondReading) -> list[Objection]:
    """What a third voice is asked about, the gravest first."""
    objected = []
    for fault, reason in _ADVICE.items():
        for wrong in reading.wrong:
            if wrong.kind is fault:
                words = f"{wrong.reason} {wrong.standard}".strip()
                objected.append(Objection(reason, wrong.element_id, words, wrong.sure))
    for reason, objects, words in (
        (Reason.DANGER_UNANSWERED, bool(reading.danger), reading.danger),
        (Reason.QUESTION_UNANSWERED, not reading.answered, reading.reason),
    ):
        if objects:
            objected.append(Objection(reason, "", words, reading.sure))
    return objected


async def hear_voice(
    reading: SecondReading,
    brief: Brief,
    claims: Sequence[ClaimVerdict],
    passages: Sequence[Mapping[str, str]],
    agent: Agent,
) -> SecondReading:
    """Have a third voice judge what a second reading objects to; unchanged where it objects to nothing.

    Among the items is, as a control, an advice that literature supports, where there is one: a voice that calls it
    wrong does not count, nor does one that fails or does not name the standard that a wrong advice offends.

    Args:
        reading: The second reading.
        brief: The case.
        claims: The verdicts on its advice.
        passages: The passages that the verdicts cite: id, title, text.
        agent: Another model than the reader's where one is configured.

    Raises:
        AgentFailure: If the engine is unavailable or the budget is spent.
    """
    objected = objections(reading)
    if not objected:
        return reading
    items = _items(objected, brief.advice, claims)
    inputs = {**brief.inputs(), "passages": list(passages), "items": items}
    wanted = [item["id"] for item in items]

    def fault_of(item: SoundnessItem) -> str | None:
        if item.verdict is Soundness.WRONG and not item.standard.strip():
            return f"{item.id}: `standard` does not name what it offends"
        return None

    try:
        verdicts = await agent.ask_each(SoundnessItem, inputs, wanted, fault_of)
    except AgentFailure as failure:
        if failure.is_outage:
            raise
        return replace(reading, voices_note=f"no third voice: {failure.detail}"[:2000])
    controls = set(wanted) - {objection.id for objection in objected}
    if any(verdicts[name].verdict is Soundness.WRONG for name in controls):
        note = "the third voice does not count: it also rejects an advice that literature supports"
        return replace(reading, voices_note=note)
    voices = []
    for objection in objected:
        judged = verdicts[objection.id].model_dump(exclude={"id"})
        voices.append(Voice(objection.reason, objection.element_id, **judged))
    is_same = agent.identity.model == reading.engine.get("model")
    note = "the third voice is the second reader's own model" if is_same else ""
    return replace(reading, voices=tuple(voices), voices_note=note)


def _items(
    objected: Sequence[Objection],
    advice: Sequence[Element],
    claims: Sequence[ClaimVerdict],
) -> list[dict[str, str]]:
    """The items that a voice judges, in the case's order; the control is the first supported advice not objected to."""
    named = {objection.element_id for objection in objected}
    for claim in claims:
        if claim.verdict is Alignment.SUPPORTED and claim.element_id not in named:
            named.add(claim.element_id)
            break
    items = []
    for element in advice:
        if element.id in named:
            item = {"id": element.id, "kind": "advice", "text": element.statement}
            items.append(item)
    for objection in objected:
        if not objection.element_id:
            item = {"id": objection.id, "kind": "unsaid", "text": objection.words}
            items.append(item)
    return items


def settle(reading: SecondReading) -> tuple[list[Reason], str, list[Hold]]:
    """Decide each objection by reader and voice: it rejects the case, is cleared, or holds the case for a person.

    Returns:
        The reasons to reject the case, the gravest first; what reader and voice say on these; and the holds.
    """
    voices = {(voice.reason, voice.element_id): voice for voice in reading.voices}
    rejected, lines = list[Reason](), list[str]()
    open_details: dict[Reason, dict[str, str]] = {}
    for objection in objections(reading):
        reason, name, words = objection.reason, objection.element_id, objection.words
        voice = voices.get((reason, name))
        if voice:
            against = f"{voice.case_against} {voice.standard}".strip()
            is_sound = voice.verdict is Soundness.SOUND
            says = voice.case_for if is_sound else against
            if voice.sure and voice.verdict is Soundness.WRONG and objection.sure:
                rejected.append(reason)
                line = f"{words}; third voice: {says}"
                lines.append(f"{name}: {line}" if name else line)
                continue
            if voice.sure and is_sound and not objection.sure:
                continue
            words += f"; third voice: {voice.verdict.value}: {says}"
        details = open_details.setdefault(reason, {})
        # A reader may object to one element twice in the same way.
        details[name] = f"{details[name]}; {words}" if name in details else words
    holds = []
    for reason, details in open_details.items():
        for hold in hold_on(reason, details):
            holds.append(replace(hold, detail=hold.detail[:2000]))
    return rejected, "; ".join(lines), holds


class Redacted(NamedTuple):
    """Texts with identifiers of people removed."""

    # Text id → the text with each identifier replaced by its kind in brackets
    texts: Mapping[str, str]
    found: list[str]  # Identifiers found, as "<text id>: <kind>", never the words
    remaining: list[str]  # Identifiers that code could not replace, likewise


async def redact_texts(
    texts: Mapping[str, str], agent: Agent, repeated: Mapping[str, str]
) -> Redacted:
    """Remove identifiers from texts by patterns and by the reader. Raises AgentFailure.

    The reader is not shown the `repeated` texts, which repeat words of the others.
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
    by_words: dict[str, list[IdentifierItem]] = {}
    for item in reply.found:
        by_words.setdefault(item.words.strip(), []).append(item)
    misspelt: list[IdentifierItem] = []
    # The longest first: "Dr Patel" before "Patel".
    for words in sorted(by_words, key=len, reverse=True):
        items = by_words[words]
        # The same name is replaced in every text.
        whole = re.compile(rf"(?<![A-Za-z0-9]){re.escape(words)}(?![A-Za-z0-9])")
        misspelt += [i for i in items if not whole.search(clean[i.text_id])]
        sign = f"[{items[0].kind.replace('_', ' ')}]"
        for identity, text in clean.items():
            clean[identity] = whole.sub(sign, text)
    # "Patel" went with "Dr Patel", but "DR PATEL" did not.
    remaining = [i for i in misspelt if contains_quote(i.words, clean[i.text_id])]
    return Redacted(clean, _places(reply.found), _places(remaining))


def _places(items: Sequence[IdentifierItem]) -> list[str]:
    """Where identifiers are, as "<text id>: <kind>"."""
    return [f"{item.text_id}: {item.kind}" for item in items]
