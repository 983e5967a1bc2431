"""The third voice: judges what the second reading objects to, without knowing that anybody objected.

Source: docs/method.md §1, second reading. Both sure: the case is rejected. The reader unsure and the voice clear: it
goes on. Anything else is for a person.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.holds import hold_on
from medlive.curation.model import (
    AdviceFault,
    Alignment,
    ClaimVerdict,
    Element,
    Hold,
    Reason,
    SecondReading,
    Soundness,
    Voice,
)
from medlive.curation.tasks import SoundnessItem
from medlive.curation.validator import Brief

_ADVICE: Final = {
    AdviceFault.HARMFUL: Reason.ADVICE_HARMFUL,
    AdviceFault.FALSE: Reason.ADVICE_WRONG,
}


@dataclass(frozen=True, slots=True)
class Objection:
    """What the second reading objects to."""

    reason: Reason
    element_id: str
    """"" for the case as a whole."""
    words: str
    sure: bool

    @property
    def id(self) -> str:
        """Under which a voice judges it."""
        return self.element_id or self.reason.value


def objections(reading: SecondReading) -> tuple[Objection, ...]:
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
    return tuple(objected)


async def hear_voice(
    reading: SecondReading,
    brief: Brief,
    claims: Sequence[ClaimVerdict],
    passages: Sequence[Mapping[str, str]],
    agent: Agent,
) -> SecondReading:
    """Have a third voice judge what a second reading objects to; unchanged where it objects to nothing.

    An element that literature supports is among the items, where there is one: a voice that calls that wrong too does
    not count. Nor does one that fails, or is sure of a wrong without a standard.

    Args:
        reading: The second reading.
        brief: The case.
        claims: The verdicts on its advice.
        passages: Those that the verdicts cite: id, title, text.
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
    """What is judged, in the case's order, with the first supported advice that nobody objects to."""
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
        The reasons to reject the case, the gravest first; both sides' words on these; and the holds.
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
        # A reader may object to one element for two reasons.
        details[name] = f"{details[name]}; {words}" if name in details else words
    holds = []
    for reason, details in open_details.items():
        holds += hold_on(reason, details)
    return rejected, "; ".join(lines), holds
