"""The Validator: V = (S_cc, S_inf, S_align), computed in code from what the engine judged item by item.

Source: LiveMedBench §3.2.2; docs/method.md §1. Short English phrases find the passages; the complete claim is
judged. A verdict must quote its passages, and a quote that is not in its passage makes the reply invalid. A
contradiction rejects a case, so a second, differently worded check must confirm it.
"""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from medlive.curation.agent import Agent, check_ids
from medlive.curation.elements import element_inputs
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
    AlignmentItem,
    AlignmentReply,
    CitationItem,
    ClaimItem,
    ClaimsReply,
    ComplaintReply,
    SufficiencyReply,
    VetoItem,
    VetoReply,
)
from medlive.evidence.excerpt import excerpt
from medlive.evidence.passage import Hit, Query
from medlive.text.normalise import contains_quote
from medlive.text.quantities import numbers_missing

QUERY_ID: Final = "q"  # The id in a checklist item that the query itself states
MAX_PASSAGES: Final = 30  # Passages of all claims together, unless a claim would get fewer than `LEAST_PASSAGES`
LEAST_PASSAGES: Final = 3
EXCERPT: Final = (
    260  # Characters shown of a passage: the sentences closest to its claims
)
TITLE_SHOWN: Final = 80  # Characters shown of its title
SECOND_LOOK: Final = 3  # A contradicted claim's own best passages that the second check sees beside the cited ones
LEAST_QUOTE: Final = 4  # Fewest words (Chinese: characters) in a quote of evidence
_WORDS: Final = re.compile(r"[\u3400-\u9fff]|[^\W\d_]+")
_NAME: Final = re.compile(r"\b[A-Za-z][\w-]*\d[\w-]*")
"""A name that contains a digit ("SARS-CoV-2", "HbA1c") and states no number."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An advice element as a claim to search for and judge."""

    element_id: str
    statement: str  # Self-contained
    queries: tuple[
        str, ...
    ]  # Short English phrases, and the claim itself where it is Chinese
    flag: str = ""  # A remaining fault of the statement's numbers; empty if none
    advertising: bool = False

    @property
    def query(self) -> Query:
        """The search query."""
        return Query(*self.queries)


@dataclass(frozen=True, slots=True)
class Brief:
    """The elements of a case that are judged."""

    query: Element
    narrative: Sequence[Element]
    advice: Sequence[Element]

    def inputs(self) -> dict[str, Any]:
        """Query and narrative as a task's inputs."""
        return {
            "query": self.query.statement,
            "narrative": element_inputs(self.narrative),
        }


async def judge_query(query: Element, agent: Agent) -> tuple[int, ElyCategory]:
    """Return S_cc (1 iff Q is meaningful and clinical) and Q's category. Raises AgentFailure."""
    reply = await agent.ask(ComplaintReply, {"query": query.statement})
    clinical = reply.meaningful and reply.category is not ElyCategory.NONCLINICAL
    return int(clinical), reply.category


async def judge_sufficiency(
    brief: Brief, agent: Agent
) -> tuple[tuple[Requirement, ...], str]:
    """Return Q's checklist, required items first, and whether a physician would answer now or ask back.

    Raises AgentFailure.
    """
    known = {e.id for e in brief.narrative} | {QUERY_ID}

    def check(reply: SufficiencyReply) -> str | None:
        items = (*reply.required, *reply.prudent)
        for item in items:
            if item.present and not item.element_ids:
                return f'{item.requirement[:60]!r} is present without a statement that says it ("q": the query)'
            if not item.present and item.element_ids:
                return f"{item.requirement[:60]!r} names statements and is not present"
            if not known.issuperset(item.element_ids):
                return f"{item.requirement[:60]!r} names a statement that was not given"
        names = [item.requirement.casefold() for item in items]
        return "a requirement stands twice" if len(set(names)) < len(names) else None

    reply = await agent.ask(SufficiencyReply, brief.inputs(), check)
    listed = [
        *((item, False) for item in reply.required),
        *((item, True) for item in reply.prudent),
    ]
    found = tuple(
        Requirement(i.requirement, i.present, i.element_ids, prudent)
        for i, prudent in listed
    )
    return found, reply.consult


def sufficiency(requirements: Sequence[Requirement], kept: Sequence[Element]) -> float:
    """S_inf = |present ∩ required| / |required|, without prudent items.

    An item is present while a kept element or the query states it.
    """
    known = {e.id for e in kept} | {QUERY_ID}
    required = [r for r in requirements if not r.prudent]
    return sum(
        r.present and not known.isdisjoint(r.element_ids) for r in required
    ) / len(required)


async def state_claims(brief: Brief, agent: Agent) -> tuple[Claim, ...]:
    """State the advice elements as self-contained claims with search phrases, in order.

    Claims that add a number to the case, or omit one of their advice, are sent back once and then flagged.
    Raises AgentFailure.
    """
    statements = {e.id: e.statement for e in brief.advice}
    case = "\n".join(
        [
            brief.query.statement,
            *(e.statement for e in brief.narrative),
            *statements.values(),
        ]
    )
    inputs = {
        **brief.inputs(),
        "advice": element_inputs(brief.advice, "kind", "statement"),
    }

    async def state(
        **findings: list[str],
    ) -> tuple[dict[str, ClaimItem], dict[str, str]]:
        reply = await agent.ask(
            ClaimsReply,
            inputs | findings,
            lambda r: check_ids([c.id for c in r.claims], list(statements)),
        )
        faults = {
            c.id: _number_fault(statements[c.id], c.statement, case)
            for c in reply.claims
        }
        return {c.id: c for c in reply.claims}, {
            i: fault for i, fault in faults.items() if fault
        }

    stated, flags = await state()
    if flags:
        stated, flags = await state(
            findings=[f"{i}: {flag}" for i, flag in flags.items()]
        )

    claims = [stated[i] for i in statements]
    own_words = agent.language != "en"
    return tuple(
        Claim(
            c.id,
            c.statement,
            (*c.queries, c.statement) if own_words else c.queries,
            flags.get(c.id, ""),
            c.advertising,
        )
        for c in claims
    )


def _number_fault(statement: str, claim: str, case: str) -> str:
    added = numbers_missing(_NAME.sub(" ", claim), case)
    lost = numbers_missing(statement, claim)
    faults = [f"the case does not state {', '.join(added)}"] if added else []
    faults += [f"the claim leaves out {', '.join(lost)}"] if lost else []
    return "; ".join(faults)


def passages_each(claims: int, top_k: int) -> int:
    """Passages to retrieve for each claim: `top_k`, fewer where there are many claims."""
    return min(top_k, max(LEAST_PASSAGES, MAX_PASSAGES // claims))


async def judge_alignment(
    brief: Brief,
    claims: Sequence[Claim],
    hits: Sequence[Sequence[Hit]],
    agent: Agent,
    *,
    confirm_veto: bool,
) -> tuple[float, tuple[ClaimVerdict, ...]]:
    """Return S_align, the mean v(a_j) over L_A, and each verdict; `hits[j]` belongs to `claims[j]`.

    One call judges all claims, each passage given once. A claim without passages is judged too: the engine says
    whether it is standard. Raises AgentFailure.
    """
    found = _Evidence.of(claims, hits)
    inputs = {
        **brief.inputs(),
        "claims": [{"id": c.element_id, "statement": c.statement} for c in claims],
        "passages": [found.shown(name) for name in found.passages],
    }
    wanted = [c.element_id for c in claims]

    def check(reply: AlignmentReply) -> str | None:
        decided = (Alignment.SUPPORTED, Alignment.CONTRADICTED)
        return check_ids([v.id for v in reply.verdicts], wanted) or _evidence_fault(
            found, ((v.id, v.evidence, v.verdict in decided) for v in reply.verdicts)
        )

    reply = await agent.ask(AlignmentReply, inputs, check)
    first = {v.id: v for v in reply.verdicts}
    against = [first[i] for i in wanted if first[i].verdict is Alignment.CONTRADICTED]
    second = (
        await _confirm(inputs, found, against, agent)
        if against and confirm_veto
        else {}
    )
    verdicts = tuple(
        _verdict(found, claim, own, first[claim.element_id], second)
        for claim, own in found.claims
    )
    return sum(v.verdict.value_of for v in verdicts) / len(verdicts), verdicts


@dataclass(frozen=True, slots=True)
class _Evidence:
    """Claims with their hits, and all passages."""

    claims: tuple[tuple[Claim, Sequence[Hit]], ...]
    passages: Mapping[str, Hit]  # Short id → hit

    @classmethod
    def of(cls, claims: Sequence[Claim], hits: Sequence[Sequence[Hit]]) -> Self:
        """Give each passage a short id, the best first."""
        once = {hit.passage.id: hit for own in reversed(hits) for hit in own}
        ordered = sorted(once.values(), key=lambda hit: (hit.rank, hit.passage.id))
        numbered = {f"p{number}": hit for number, hit in enumerate(ordered, 1)}
        return cls(tuple(zip(claims, hits, strict=True)), numbered)

    def against(self, verdicts: Sequence[AlignmentItem]) -> Self:
        """The passages that verdicts cite, and the best hits of their claims."""
        judged = {v.id for v in verdicts}
        cited = {c.passage_id for v in verdicts for c in v.evidence}
        best = {
            h.passage.id
            for c, hits in self.claims
            if c.element_id in judged
            for h in hits[:SECOND_LOOK]
        }
        shown = {
            i: h for i, h in self.passages.items() if i in cited or h.passage.id in best
        }
        return replace(self, passages=shown)

    def shown(self, name: str) -> dict[str, str]:
        """A passage as a task's input: the sentences closest to its claims."""
        passage = self.passages[name].passage
        own = [
            c
            for c, found in self.claims
            if any(h.passage.id == passage.id for h in found)
        ]
        wanted = [phrase for c in own for phrase in (*c.queries, c.statement)]
        title = textwrap.shorten(passage.title, TITLE_SHOWN, placeholder=" …")
        return {
            "id": name,
            "title": title,
            "text": excerpt(passage.text, wanted, limit=EXCERPT),
        }

    def cited(self, evidence: Sequence[CitationItem]) -> tuple[Citation, ...]:
        """What a reply cites."""
        return tuple(
            Citation(self.passages[c.passage_id].passage.id, "\n".join(c.quotes))
            for c in evidence
        )


async def _confirm(
    inputs: Mapping[str, Any],
    found: _Evidence,
    against: Sequence[AlignmentItem],
    agent: Agent,
) -> dict[str, VetoItem]:
    """Check contradicted claims a second time, on the passages cited against them and their best hits."""
    wanted = [item.id for item in against]
    seen = found.against(against)

    def check(reply: VetoReply) -> str | None:
        return check_ids([v.id for v in reply.verdicts], wanted) or _evidence_fault(
            seen, ((v.id, v.evidence, v.goes_against) for v in reply.verdicts)
        )

    asked = {
        **inputs,
        "claims": [c for c in inputs["claims"] if c["id"] in wanted],
        "passages": [p for p in inputs["passages"] if p["id"] in seen.passages],
    }
    reply = await agent.ask(VetoReply, asked, check)
    return {v.id: v for v in reply.verdicts}


def _verdict(
    found: _Evidence,
    claim: Claim,
    hits: Sequence[Hit],
    first: AlignmentItem,
    seconds: Mapping[str, VetoItem],
) -> ClaimVerdict:
    again = seconds.get(claim.element_id)
    second = (
        SecondCheck(again.goes_against, found.cited(again.evidence), again.reason)
        if again
        else None
    )
    overturned = second is not None and not second.goes_against
    citations = found.cited(first.evidence)
    cited = {c.passage_id for c in (*citations, *(second.citations if second else ()))}
    own = {h.passage.id for h in hits}
    # Passages of other claims that this verdict cites follow the claim's own.
    others = [h for h in found.passages.values() if h.passage.id in cited - own]
    return ClaimVerdict(
        element_id=claim.element_id,
        claim=claim.statement,
        queries=claim.queries,
        verdict=Alignment.NEUTRAL if overturned else first.verdict,
        hits=(
            *hits,
            *(Hit(h.passage, h.score, len(hits) + n) for n, h in enumerate(others, 1)),
        ),
        citations=citations,
        reason=first.reason,
        second=second,
        flag=claim.flag,
    )


def _evidence_fault(
    found: _Evidence, verdicts: Iterable[tuple[str, Sequence[CitationItem], bool]]
) -> str | None:
    """The first fault in the evidence of verdicts (claim, evidence, whether it needs any)."""
    for identity, evidence, needed in verdicts:
        if needed and not evidence:
            return f"{identity}: this verdict needs a passage id and a quote of that passage"
        cited = [c.passage_id for c in evidence]
        if len(set(cited)) < len(cited):
            return f"{identity}: a passage is cited twice; give it once, with all its quotes"
        for citation in evidence:
            name = citation.passage_id[:80]
            if citation.passage_id not in found.passages:
                return f"{identity}: passage {name!r} was not given"
            for quote in citation.quotes:
                if len(_WORDS.findall(quote)) < LEAST_QUOTE:
                    return f"{identity}: a quote of passage {name!r} is too short to decide anything"
                if not contains_quote(
                    quote, found.passages[citation.passage_id].passage.text
                ):
                    return f"{identity}: a quote is not in passage {name!r}: {quote[:80]!r}"
    return None
