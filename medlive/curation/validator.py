"""The Validator: V = (S_cc, S_inf, S_align), computed in code from what the engine judged item by item.

Source: LiveMedBench §3.2.2; docs/method.md §1. Short English phrases find the passages; the complete claim is
judged. A verdict must quote its passages, and a quote that is not in its passage makes the reply invalid. A
contradiction rejects a case, so a second, differently worded check must confirm it; else people settle it.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from medlive.evidence.passage import Hit, Query
from medlive.evidence.selection import SEARCHED, ShownPassage, select
from medlive.text.quantities import numbers_missing

QUERY_ID: Final = "q"  # The id in a checklist item that the query itself states
SECOND_LOOK: Final = 3  # A contradicted claim's own best passages that the second check sees beside the cited ones
_DECIDED: Final = (Alignment.SUPPORTED, Alignment.CONTRADICTED)
LEAST_QUOTE: Final = 4  # Fewest words (Chinese: characters) in a quote of evidence
_WORDS: Final = re.compile(r"[\u3400-\u9fff]|[^\W\d_]+")
_NAME: Final = re.compile(r"\b[A-Za-z][\w-]*\d[\w-]*")
"""A name that contains a digit ("SARS-CoV-2", "HbA1c") and states no number."""


@dataclass(frozen=True, slots=True)
class EvidenceLimits:
    """How much of the evidence a judge is given."""

    passages: int  # Of each claim
    tokens: int  # What the passages of all claims may cost together

    @property
    def searched(self) -> int:
        """How many hits to search for each claim."""
        return SEARCHED * self.passages


@dataclass(frozen=True, slots=True)
class Claim:
    """An advice element as a claim to search for and judge."""

    element_id: str
    statement: str  # Self-contained
    # Short English phrases, and the claim itself where it is Chinese
    queries: tuple[str, ...]
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


async def judge_alignment(
    brief: Brief,
    claims: Sequence[Claim],
    hits: Sequence[Sequence[Hit]],
    agent: Agent,
    *,
    limits: EvidenceLimits,
    confirm_veto: bool,
) -> tuple[float, tuple[ClaimVerdict, ...]]:
    """Return S_align, the mean v(a_j) over L_A, and each verdict.

    One call judges all claims, each passage given once. A claim without passages is judged too: the engine says
    whether it is standard.

    Args:
        brief: The case.
        claims: Its advice.
        hits: `hits[j]` belongs to `claims[j]`.
        agent: The Validator.
        limits: How much of the hits is shown.
        confirm_veto: Whether a contradiction needs a second check.

    Raises:
        AgentFailure: If there is no usable reply.
    """
    found = _Evidence.of(claims, hits, limits)
    inputs = {
        **brief.inputs(),
        "claims": [{"id": c.element_id, "statement": c.statement} for c in claims],
        "passages": [found.shown(name) for name in found.passages],
    }
    wanted = [c.element_id for c in claims]

    def check(reply: AlignmentReply) -> str | None:
        return (
            check_ids([v.id for v in reply.verdicts], wanted)
            or _evidence_fault(
                found,
                ((v.id, v.evidence, v.verdict in _DECIDED) for v in reply.verdicts),
            )
            or _nearest_fault(found, reply.verdicts)
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
    """Claims with their hits, and what is shown of them."""

    claims: tuple[tuple[Claim, Sequence[Hit]], ...]
    passages: Mapping[str, ShownPassage]  # Short id → section

    @classmethod
    def of(
        cls,
        claims: Sequence[Claim],
        hits: Sequence[Sequence[Hit]],
        limits: EvidenceLimits,
    ) -> Self:
        """Choose what is shown, and give each section a short id, the best first."""
        wanted = [(*claim.queries, claim.statement) for claim in claims]
        chosen = select(wanted, hits, most=limits.passages, tokens=limits.tokens)
        return cls(
            claims=tuple(zip(claims, chosen.hits, strict=True)),
            passages={f"p{n}": p for n, p in enumerate(chosen.passages, 1)},
        )

    def against(self, verdicts: Sequence[AlignmentItem]) -> Self:
        """The passages that verdicts cite, and the best of their claims that are shown."""
        judged = {v.id for v in verdicts}
        cited = {c.passage_id for v in verdicts for c in v.evidence}
        best: set[str] = set()
        for claim, hits in self.claims:
            if claim.element_id in judged:
                best.update(self._names_of(hits)[:SECOND_LOOK])
        names = cited | best
        shown = {name: p for name, p in self.passages.items() if name in names}
        return replace(self, passages=shown)

    def _names_of(self, hits: Sequence[Hit]) -> list[str]:
        """The short ids under which hits are shown, the best first."""
        name_of = {
            hit.passage.id: name for name, p in self.passages.items() for hit in p.hits
        }
        names: dict[str, None] = {}
        for hit in hits:
            if hit.passage.id in name_of:
                names[name_of[hit.passage.id]] = None
        return list(names)

    def shown(self, name: str) -> dict[str, str]:
        """A passage as a task's input."""
        passage = self.passages[name]
        return {"id": name, "title": passage.title, "text": passage.text}

    def cited(self, evidence: Sequence[CitationItem]) -> tuple[Citation, ...]:
        """What a reply cites, by the pieces in which its words stand."""
        words: dict[str, list[str]] = {}
        for item in evidence:
            for quote in item.quotes:
                for piece, own in self.passages[item.passage_id].cite(quote):
                    words.setdefault(piece, []).append(own)
        return tuple(Citation(piece, "\n".join(own)) for piece, own in words.items())

    def hits_of(self, pieces: Collection[str]) -> list[Hit]:
        """The hits that are shown of these pieces, in the order of their passages."""
        hits = [hit for p in self.passages.values() for hit in p.hits]
        return [hit for hit in hits if hit.passage.id in pieces]


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
            seen,
            (
                *((v.id, v.evidence, v.false_by_passage) for v in reply.verdicts),
                *((v.id, v.harm_evidence, v.could_hurt) for v in reply.verdicts),
            ),
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
    second = _second_check(found, again) if again else None
    disputed = second is not None and not second.goes_against
    citations = found.cited(first.evidence)
    named = {c.passage_id for c in citations}
    nearest = None
    if first.nearest is not None:
        nearest = found.passages[first.nearest].hits[0].passage.id
        named.add(nearest)
    if second is not None:
        named |= {c.passage_id for c in (*second.citations, *second.harm_citations)}
    own = {h.passage.id for h in hits}
    # Passages of other claims that this verdict names follow the claim's own.
    others = found.hits_of(named - own)
    return ClaimVerdict(
        element_id=claim.element_id,
        claim=claim.statement,
        queries=claim.queries,
        verdict=Alignment.DISPUTED if disputed else first.verdict,
        hits=(
            *hits,
            *(
                replace(h, rank=len(hits) + n, sides=())
                for n, h in enumerate(others, 1)
            ),
        ),
        citations=citations,
        reason=first.reason,
        second=second,
        flag=claim.flag,
        # A reply that does not say so counts as on the subject.
        on_subject=first.verdict in _DECIDED or first.on_subject is not False,
        nearest=nearest,
    )


def _second_check(found: _Evidence, item: VetoItem) -> SecondCheck:
    return SecondCheck(
        false_by_passage=item.false_by_passage,
        could_hurt=item.could_hurt,
        citations=found.cited(item.evidence),
        harm_citations=found.cited(item.harm_evidence),
        reason=item.reason,
    )


def _nearest_fault(found: _Evidence, verdicts: Sequence[AlignmentItem]) -> str | None:
    for item in verdicts:
        if item.nearest is not None and item.nearest not in found.passages:
            return f"{item.id}: passage {item.nearest[:80]!r} was not given"
    return None


def lacks_evidence(claims: Sequence[ClaimVerdict]) -> bool:
    """Whether a case that is not aligned is so for want of evidence (docs/method.md §1, S_align).

    No claim is refuted, disputed or not standard, and for at least half of them no
    passage is on the subject.
    """
    harmless = (Alignment.SUPPORTED, Alignment.NEUTRAL)
    off_subject = [claim for claim in claims if not claim.on_subject]
    return (
        bool(claims)
        and all(claim.verdict in harmless for claim in claims)
        and 2 * len(off_subject) >= len(claims)
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
                if not found.passages[citation.passage_id].has(quote):
                    return f"{identity}: a quote is not in passage {name!r}: {quote[:80]!r}"
    return None
