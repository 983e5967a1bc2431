"""The Validator: V = (S_cc, S_inf, S_align), computed in code from what the engine judged item by item.

Source: LiveMedBench §3.2.2; docs/method.md §1. A claim is made to stand alone, and a Chinese one is translated,
before evidence is looked for. A verdict on evidence must quote the passages it rests on; a quote that is not in
its passage makes the reply invalid. A contradiction discards a case, so a second, differently worded check has to
confirm it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medlive.curation.agent import Agent, ask_all
from medlive.curation.model import (
    Alignment,
    Citation,
    ClaimVerdict,
    Element,
    ElyCategory,
    Requirement,
    SecondCheck,
)
from medlive.curation.tasks import (
    AlignmentReply,
    CitationItem,
    ClaimsReply,
    ComplaintReply,
    SufficiencyReply,
    TranslationReply,
    VetoReply,
)
from medlive.evidence.passage import Hit, Query
from medlive.threads.grounding import added, content, shares_content
from medlive.threads.negation import flipped
from medlive.threads.normalise import contains_quote
from medlive.threads.quantities import numbers_missing

PACKAGE = "medlive.curation"
_HAN = re.compile(r"[\u3400-\u9fff]")
_WORDS = re.compile(r"[\u3400-\u9fff]|[^\W\d_]+")
_POINTS = re.compile(r"\b(?:it|its|this|that|these|those|them|they|such|same)\b|[这那该它此其]", re.IGNORECASE)
"""What points at something that a claim is to name: its words may all be other ones."""
_NAME = re.compile(r"\b[A-Za-z][\w-]*\d[\w-]*")
"""A name with a number in it ("SARS-CoV-2", "HbA1c"), which states none."""
_MOST_OTHER = 1 / 3
"""The share of a claim's content that the case need not hold, and of its advice's that it need not: a term for a
layman's word."""
LEAST_QUOTE = 4
"""Words (Chinese: characters) that a quote of evidence must have: fewer decide nothing."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An advice element as it is looked up and judged."""

    element_id: str
    statement: str
    """It stands alone: it names what it is about."""
    english: str | None
    """In English; None when it is English, or could not be translated."""

    @property
    def query(self) -> Query:
        """What evidence is searched for."""
        return Query(self.statement, self.english)


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


async def state_claims(
    language: str, query: Element, narrative: Sequence[Element], advice: Sequence[Element], agent: Agent
) -> tuple[Claim, ...]:
    """The advice elements as claims that stand alone, in order; Chinese ones with their English.

    A claim states its element's numbers and only numbers of the case, denies what its element denies, and is made
    of the case's words. Where the engine's is none, the element's own statement is looked up, and a translation
    that is none is left out: the advice is judged in either case. Raises AgentFailure.
    """
    statements = {e.id: e.statement for e in advice}
    case = "\n".join([query.statement, *(e.statement for e in narrative), *statements.values()])
    inputs: dict[str, Any] = {
        "language": language,
        "query": query.statement,
        "narrative": _listed(narrative),
        "advice": [{"id": e.id, "kind": e.kind.value, "statement": e.statement} for e in advice],
    }
    reply = await agent.ask(
        PACKAGE, "validator.claims", inputs, ClaimsReply, lambda r: _one_each([c.id for c in r.claims], statements)
    )
    stated = {
        c.id: c.statement if _is_claim_of(statements[c.id], c.statement, case, language) else statements[c.id]
        for c in reply.claims
    }
    english = await _translated(language, stated, agent) if language != "en" else {}
    return tuple(Claim(e.id, stated[e.id], english.get(e.id)) for e in advice)


def _is_claim_of(statement: str, claim: str, case: str, language: str) -> bool:
    """Whether a claim says what the advice says, no less, and no more than the case."""
    return (
        not numbers_missing(claim, case)
        and not numbers_missing(statement, claim)
        and not flipped(claim, [statement])
        and (language != "zh" or _HAN.search(claim) is not None)
        and _made_of(claim, case)
        and (
            _made_of(statement, claim)
            or (_POINTS.search(statement) is not None and shares_content(statement, claim))
        )
    )


def _made_of(text: str, source: str) -> bool:
    return len(added(text, source)) <= _MOST_OTHER * len(set(content(text)))


async def _translated(language: str, statements: Mapping[str, str], agent: Agent) -> dict[str, str]:
    """Claim → its English, without those that could not be translated."""
    inputs = {"language": language, "claims": [{"id": i, "statement": s} for i, s in statements.items()]}
    reply = await agent.ask(
        PACKAGE,
        "validator.translate",
        inputs,
        TranslationReply,
        lambda r: _one_each([t.id for t in r.translations], statements),
    )
    return {t.id: t.english for t in reply.translations if _is_english_of(statements[t.id], t.english)}


def _is_english_of(statement: str, english: str) -> bool:
    """Whether a translation is English and states no number that its claim does not."""
    return (
        bool(english) and _HAN.search(english) is None and not numbers_missing(_NAME.sub(" ", english), statement)
    )


async def judge_alignment(
    language: str,
    query: Element,
    narrative: Sequence[Element],
    claims: Sequence[Claim],
    hits: Sequence[Sequence[Hit]],
    agent: Agent,
    *,
    confirm_veto: bool,
) -> tuple[float, tuple[ClaimVerdict, ...]]:
    """S_align = mean v(a_j) over L_A and each verdict with its evidence. `hits[j]` belongs to `claims[j]`.

    Raises AgentFailure.
    """
    verdicts = await ask_all(
        _judge_claim(language, query, narrative, claim, tuple(found), agent, confirm_veto)
        for claim, found in zip(claims, hits, strict=True)
    )
    return sum(v.verdict.value_of for v in verdicts) / len(verdicts), tuple(verdicts)


async def _judge_claim(
    language: str,
    query: Element,
    narrative: Sequence[Element],
    claim: Claim,
    hits: tuple[Hit, ...],
    agent: Agent,
    confirm_veto: bool,
) -> ClaimVerdict:
    def verdict(
        of: Alignment, evidence: Sequence[CitationItem], reason: str, second: SecondCheck | None = None
    ) -> ClaimVerdict:
        return ClaimVerdict(
            claim.element_id, claim.statement, claim.english, of, hits, _citations(evidence), reason, second
        )

    if not hits:
        return verdict(Alignment.NEUTRAL, (), "no passage was retrieved")
    texts = {hit.passage.id: hit.passage.text for hit in hits}
    inputs = {
        "language": language,
        "query": query.statement,
        "narrative": _listed(narrative),
        "claim": {"id": claim.element_id, "statement": claim.statement},
        "passages": [{"id": h.passage.id, "title": h.passage.title, "text": h.passage.text} for h in hits],
    }
    reply = await agent.ask(
        PACKAGE,
        "validator.alignment",
        inputs,
        AlignmentReply,
        lambda r: (
            _evidence_fault(r.evidence, texts, required=r.verdict is not Alignment.NEUTRAL)
            or _idle_support(claim, r)
        ),
    )
    if reply.verdict is not Alignment.CONTRADICTED or not confirm_veto:
        return verdict(reply.verdict, reply.evidence, reply.reason)
    veto = await agent.ask(
        PACKAGE,
        "validator.veto",
        inputs,
        VetoReply,
        lambda r: _evidence_fault(r.evidence, texts, required=r.goes_against),
    )
    second = SecondCheck(veto.goes_against, _citations(veto.evidence), veto.reason)
    of = Alignment.CONTRADICTED if veto.goes_against else Alignment.NEUTRAL
    return verdict(of, reply.evidence, reply.reason, second)


def _citations(evidence: Sequence[CitationItem]) -> tuple[Citation, ...]:
    return tuple(Citation(c.passage_id, c.quote) for c in evidence)


def _evidence_fault(evidence: Sequence[CitationItem], texts: Mapping[str, str], *, required: bool) -> str | None:
    if required and not evidence:
        return "a verdict other than neutral needs a passage id and a quote of that passage"
    cited = [c.passage_id for c in evidence]
    if len(set(cited)) < len(cited):
        return "a passage is cited twice; give it once, with the words that decide"
    for citation in evidence:
        name = citation.passage_id[:80]
        if citation.passage_id not in texts:
            return f"passage {name!r} was not given"
        if len(_WORDS.findall(citation.quote)) < LEAST_QUOTE:
            return f"the quote of passage {name!r} is too short to decide anything; quote the sentence"
        if not contains_quote(citation.quote, texts[citation.passage_id]):
            return f"the quote is not in passage {name!r}"
    return None


def _idle_support(claim: Claim, reply: AlignmentReply) -> str | None:
    """Why a "supported" does not stand: no quote has a word of the claim. A contradiction may use other words,
    and one too many costs a case; a support too many releases one."""
    if reply.verdict is not Alignment.SUPPORTED:
        return None
    for citation in reply.evidence:
        if claim.english is None and bool(_HAN.search(claim.statement)) != bool(_HAN.search(citation.quote)):
            return None  # nothing to compare
        if shares_content(f"{claim.statement}\n{claim.english or ''}", citation.quote):
            return None
    return "no quote has a word in common with the claim; quote what speaks of it, or the verdict is neutral"


def _one_each(given: Sequence[str], wanted: Mapping[str, str]) -> str | None:
    return None if sorted(given) == sorted(wanted) else "one for each id that was given, no more, no fewer"


def _listed(elements: Sequence[Element]) -> list[dict[str, Any]]:
    return [{"id": e.id, "statement": e.statement} for e in elements]
