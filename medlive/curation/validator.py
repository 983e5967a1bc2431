"""The Validator: V = (S_cc, S_inf, S_align), computed in code from what the engine judged item by item.

Source: LiveMedBench §3.2.2; docs/method.md §1. A verdict on evidence must quote the passage it rests on; a
quote that is not in the cited passage makes the reply invalid. A contradiction discards a case, so a second,
differently worded check has to confirm it.
"""

from collections.abc import Sequence
from typing import Any

from medlive.curation.agent import Agent, ask_all
from medlive.curation.model import (
    Alignment,
    ClaimVerdict,
    Element,
    ElyCategory,
    Requirement,
)
from medlive.curation.tasks import AlignmentReply, ComplaintReply, SufficiencyReply, VetoReply
from medlive.evidence.passage import Hit
from medlive.threads.normalise import contains_quote

PACKAGE = "medlive.curation"


async def judge_query(language: str, query: Element, agent: Agent) -> tuple[int, ElyCategory]:
    """S_cc and Q's category: 1 iff the engine finds Q meaningful and clinical. Raises AgentFailure."""
    reply = await agent.ask(
        PACKAGE, "validator.query", {"language": language, "query": query.statement}, ComplaintReply
    )
    clinical = reply.meaningful and reply.category is not ElyCategory.NONCLINICAL
    return int(clinical), reply.category


async def judge_sufficiency(
    language: str, query: Element, narrative: Sequence[Element], agent: Agent
) -> tuple[float, tuple[Requirement, ...]]:
    """S_inf = |present ∩ required| / |required| and the checklist behind it. Raises AgentFailure."""
    known = {e.id for e in narrative}

    def check(reply: SufficiencyReply) -> str | None:
        for item in reply.items:
            if item.present and not item.element_ids:
                return f"{item.requirement[:60]!r} is present without an element that entails it"
            if not item.present and item.element_ids:
                return f"{item.requirement[:60]!r} names elements and is not present"
            if not known.issuperset(item.element_ids):
                return f"{item.requirement[:60]!r} names an element that was not given"
        names = [item.requirement.casefold() for item in reply.items]
        return "a requirement stands twice" if len(set(names)) < len(names) else None

    inputs = {"language": language, "query": query.statement, "narrative": _listed(narrative)}
    reply = await agent.ask(PACKAGE, "validator.sufficiency", inputs, SufficiencyReply, check)
    items = tuple(Requirement(i.requirement, i.present, i.element_ids) for i in reply.items)
    return sum(i.present for i in items) / len(items), items


async def judge_alignment(
    language: str,
    query: Element,
    narrative: Sequence[Element],
    advice: Sequence[Element],
    hits: Sequence[Sequence[Hit]],
    agent: Agent,
    *,
    confirm_veto: bool,
) -> tuple[float, tuple[ClaimVerdict, ...]]:
    """S_align = mean v(a_j) over L_A and each verdict with its evidence. `hits[j]` belongs to `advice[j]`.

    Raises AgentFailure.
    """
    claims = await ask_all(
        _judge_claim(language, query, narrative, claim, tuple(found), agent, confirm_veto)
        for claim, found in zip(advice, hits, strict=True)
    )
    return sum(c.verdict.value_of for c in claims) / len(claims), tuple(claims)


async def _judge_claim(
    language: str,
    query: Element,
    narrative: Sequence[Element],
    claim: Element,
    hits: tuple[Hit, ...],
    agent: Agent,
    confirm_veto: bool,
) -> ClaimVerdict:
    if not hits:
        nothing = "no passage was retrieved"
        return ClaimVerdict(claim.id, Alignment.NEUTRAL, (), (), "", nothing)
    texts = {hit.passage.id: hit.passage.text for hit in hits}
    inputs = {
        "language": language,
        "query": query.statement,
        "narrative": _listed(narrative),
        "claim": {"id": claim.id, "statement": claim.statement},
        "passages": [{"id": h.passage.id, "title": h.passage.title, "text": h.passage.text} for h in hits],
    }

    def check(reply: AlignmentReply) -> str | None:
        rests = reply.verdict is not Alignment.NEUTRAL
        return _evidence_fault(reply.passage_ids, reply.quote, texts, required=rests)

    reply = await agent.ask(PACKAGE, "validator.alignment", inputs, AlignmentReply, check)
    first = ClaimVerdict(claim.id, reply.verdict, hits, reply.passage_ids, reply.quote, reply.reason)
    if reply.verdict is not Alignment.CONTRADICTED or not confirm_veto:
        return first
    veto = await agent.ask(
        PACKAGE,
        "validator.veto",
        inputs,
        VetoReply,
        lambda r: _evidence_fault(r.passage_ids, r.quote, texts, required=r.goes_against),
    )
    if veto.goes_against:
        reason = f"{reply.reason} Confirmed: {veto.reason}"
        return ClaimVerdict(claim.id, Alignment.CONTRADICTED, hits, reply.passage_ids, reply.quote, reason)
    reason = f"{reply.reason} Not confirmed: {veto.reason}"
    return ClaimVerdict(claim.id, Alignment.NEUTRAL, hits, reply.passage_ids, reply.quote, reason, overturned=True)


def _evidence_fault(
    passage_ids: Sequence[str], quote: str, texts: dict[str, str], *, required: bool
) -> str | None:
    strangers = [pid for pid in passage_ids if pid not in texts]
    if strangers:
        return f"passage {strangers[0][:80]!r} was not given"
    if required and not (passage_ids and quote.strip()):
        return "a verdict other than neutral needs a passage id and a quote of that passage"
    if quote and not any(contains_quote(quote, texts[pid]) for pid in passage_ids):
        return "the quote is in no cited passage"
    return None


def _listed(elements: Sequence[Element]) -> list[dict[str, Any]]:
    return [{"id": e.id, "statement": e.statement} for e in elements]
