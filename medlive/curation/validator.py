"""The Validator: S_inf (`judge_sufficiency`, `sufficiency`) and S_align (`state_claims`, `judge_alignment`).

Source: LiveMedBench §3.2.2; docs/method.md §1. The engine judges item by item, and code computes V = (S_cc, S_inf,
S_align); `chain` has S_cc. Short English phrases find the passages; the complete claim is judged. A verdict must quote
its passages, and a quote that is not in its passage makes the reply invalid. A contradiction rejects a case, so a
second, differently worded check must confirm it; else people settle it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Self

from medlive.evidence.excerpts.selection import SEARCHED, ShownPassage, select
from medlive.evidence.passage import Hit, Passage, Retriever
from medlive.text.quantities import numbers_missing

from .agent import Agent, by_id, ids_of
from .elements import Brief, element_inputs
from .model import (
    Alignment,
    Citation,
    ClaimVerdict,
    Element,
    Lack,
    Requirement,
    SecondCheck,
)
from .tasks import (
    AlignmentItem,
    CitationItem,
    ClaimItem,
    SufficiencyReply,
    VetoItem,
)

QUERY_ID = "q"  # The id in a checklist item that the query itself states
SECOND_LOOK = 3  # How many of a claim's own best passages the second check sees beside the cited ones
# The verdicts that need a citation
_DECIDED = (Alignment.SUPPORTED, Alignment.CONTRADICTED)
_BARRING = frozenset((Lack.DRUG, Lack.SITUATION))
"""A claim for which the passages lack one of them is neutral, not supported."""
LEAST_QUOTE = 4  # Fewest words (Chinese: characters) in a quote of evidence
_WORDS = re.compile(r"[\u3400-\u9fff]|[^\W\d_]+")
_NAME = re.compile(r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9-]*\d[A-Za-z0-9-]*(?!\.?\d)")
"""A name that contains a digit ("SARS-CoV-2", "HbA1c") and states no number."""


@dataclass(frozen=True)
class Library:
    """Where claims are searched, and how much of it a judge is given."""

    retriever: Retriever
    passages: int  # Most passages of each claim
    tokens: int  # Most tokens of the passages of all claims together
    not_after: date | None  # Nothing published later is cited


async def judge_sufficiency(
    brief: Brief, agent: Agent
) -> tuple[tuple[Requirement, ...], SufficiencyReply]:
    """Return Q's checklist, required items first, and the reply, which says whether a physician would answer now.

    Raises AgentFailure.
    """
    known = {*ids_of(brief.narrative), QUERY_ID}

    def check(reply: SufficiencyReply) -> str | None:
        items = (*reply.required, *reply.prudent)
        for item in items:
            if item.present and not item.element_ids:
                return f'{item.requirement[:60]!r} is present without a statement that says it ("q": the query)'
            if not item.present and item.element_ids:
                return f"{item.requirement[:60]!r} names statements and is not present"
            if not known.issuperset(item.element_ids):
                return f"{item.requirement[:60]!r} names a statement that was not given"
        names = {item.requirement.casefold() for item in items}
        return "a requirement stands twice" if len(names) < len(items) else None

    reply = await agent.ask(SufficiencyReply, brief.inputs(), check)
    requirements: list[Requirement] = []
    for item in (*reply.required, *reply.prudent):
        prudent = len(requirements) >= len(reply.required)
        requirements.append(Requirement(**item.model_dump(), prudent=prudent))
    return tuple(requirements), reply


def sufficiency(requirements: Sequence[Requirement], kept: Sequence[Element]) -> float:
    """S_inf = |present ∩ required| / |required|, without prudent items; 1.0 where nothing is required.

    An item is present while a kept element or the query states it.
    """
    known = {*ids_of(kept), QUERY_ID}
    required = [item for item in requirements if not item.prudent]
    present = [item for item in required if not known.isdisjoint(item.element_ids)]
    return len(present) / len(required) if required else 1.0


async def state_claims(
    brief: Brief, agent: Agent
) -> tuple[list[ClaimItem], dict[str, str]]:
    """State the advice elements as self-contained claims with search phrases, in order.

    Claims that add a number to the case, or omit one of their advice, are sent back once and then flagged.
    Raises AgentFailure.

    Returns:
        The claims, each searched by its own words too if it is not English; and claim id → what is still wrong with
        its numbers, where anything is.
    """
    advice = by_id(brief.advice)
    stated_of = [brief.query, *brief.narrative, *brief.advice]
    case = "\n".join(element.statement for element in stated_of)
    inputs = brief.inputs()
    inputs["advice"] = element_inputs(brief.advice, "kind", "statement")
    for _ in range(2):
        stated = await agent.ask_each(ClaimItem, inputs, advice)
        flags: dict[str, str] = {}
        for name, claim in stated.items():
            added = numbers_missing(_NAME.sub(" ", claim.statement), case)
            lost = numbers_missing(advice[name].statement, claim.statement)
            own = [f"the case does not state {', '.join(added)}"] if added else []
            own += [f"the claim leaves out {', '.join(lost)}"] if lost else []
            if own:
                flags[name] = "; ".join(own)
        if not flags:
            break
        inputs["findings"] = [f"{name}: {flag}" for name, flag in flags.items()]
    claims = []
    for name in advice:
        claim = stated[name]
        if agent.language != "en":
            queries = (*claim.queries, claim.statement)
            claim = claim.model_copy(update={"queries": queries})
        claims.append(claim)
    return claims, flags


async def judge_alignment(
    brief: Brief,
    claims: Sequence[ClaimItem],
    library: Library,
    agent: Agent,
    *,
    confirm_veto: bool,
) -> tuple[ClaimVerdict, ...]:
    """Return the verdict on each claim.

    One call judges all claims, each passage given once. A claim without passages is judged too: the engine says
    whether it is standard.

    Args:
        brief: The case.
        claims: Its advice.
        library: Where they are searched.
        agent: The Validator.
        confirm_veto: Whether a contradiction needs a second check.

    Raises:
        AgentFailure: If there is no usable reply.
    """
    hits = await library.retriever.search(
        [tuple(dict.fromkeys(claim.queries)) for claim in claims],
        k=SEARCHED * library.passages,
        not_after=library.not_after,
    )
    words = [(*claim.queries, claim.statement) for claim in claims]
    passages, hits = select(words, hits, most=library.passages, tokens=library.tokens)
    wanted = ids_of(claims)
    evidence = _Evidence(
        hits=dict(zip(wanted, hits, strict=True)),
        passages={f"p{n}": p for n, p in enumerate(passages, 1)},
    )
    inputs = brief.inputs()
    inputs["claims"] = element_inputs(claims)
    shown = []
    for name, passage in evidence.passages.items():
        shown.append({"id": name, "title": passage.title, "text": passage.text})
    inputs["passages"] = shown

    def fault_of(item: AlignmentItem) -> str | None:
        needed = item.verdict in _DECIDED
        if fault := evidence.fault_of(item.id, item.evidence, needed=needed):
            return fault
        if item.nearest is not None and item.nearest not in evidence.passages:
            return f"{item.id}: passage {item.nearest[:80]!r} was not given"
        return None

    first = await agent.ask_each(AlignmentItem, inputs, wanted, fault_of)
    against = [v for v in first.values() if v.verdict is Alignment.CONTRADICTED]
    second: dict[str, VetoItem] = {}
    if against and confirm_veto:
        # On the passages cited against them and their best hits
        seen = evidence.against(against)
        asked = ids_of(against)
        for name, kept in (("claims", asked), ("passages", seen.passages)):
            inputs[name] = [each for each in inputs[name] if each["id"] in kept]
        second = await agent.ask_each(VetoItem, inputs, asked, seen.fault_of_veto)
    verdicts = []
    for claim in claims:
        verdicts.append(evidence.verdict(claim, first[claim.id], second.get(claim.id)))
    return tuple(verdicts)


def mean_alignment(verdicts: Sequence[ClaimVerdict]) -> float:
    """S_align: the mean v(a_j) (LiveMedBench §3.2.2); 0 without a verdict."""
    total = sum(verdict.verdict.value_of for verdict in verdicts)
    return total / len(verdicts) if verdicts else 0.0


@dataclass(frozen=True)
class _Evidence:
    """The hits of claims and what is shown of them; checks and resolves the citations in replies."""

    hits: Mapping[str, Sequence[Hit]]  # By the claim's id, best first
    passages: Mapping[str, ShownPassage]  # Short id → section

    def against(self, verdicts: Sequence[AlignmentItem]) -> Self:
        """The same, with no passages but those that the verdicts cite and the best shown ones of their claims."""
        name_of: dict[str, str] = {}
        for name, passage in self.passages.items():
            for hit in passage.hits:
                name_of[hit.passage.id] = name
        names: set[str] = set()
        for verdict in verdicts:
            names |= _passages_of(verdict.evidence)
            shown = [
                i for h in self.hits[verdict.id] if (i := name_of.get(h.passage.id))
            ]
            names.update(list(dict.fromkeys(shown))[:SECOND_LOOK])
        passages = {name: p for name, p in self.passages.items() if name in names}
        return replace(self, passages=passages)

    def cited(self, evidence: Sequence[CitationItem]) -> tuple[Citation, ...]:
        """A reply's citations, by the indexed pieces of passages that hold the quoted words."""
        words: dict[str, list[str]] = {}
        for item in evidence:
            for quote in item.quotes:
                for piece, own in self.passages[item.passage_id].cite(quote):
                    words.setdefault(piece, []).append(own)
        return tuple(Citation(piece, "\n".join(own)) for piece, own in words.items())

    def fault_of(
        self, identity: str, evidence: Sequence[CitationItem], *, needed: bool
    ) -> str | None:
        """Return the first fault in the evidence of a verdict on this claim, which may need some; None without one."""
        if needed and not evidence:
            return f"{identity}: this verdict needs a passage id and a quote of that passage"
        if len(_passages_of(evidence)) < len(evidence):
            return f"{identity}: a passage is cited twice; give it once, with all its quotes"
        for citation in evidence:
            name = citation.passage_id[:80]
            if citation.passage_id not in self.passages:
                return f"{identity}: passage {name!r} was not given"
            for quote in citation.quotes:
                if len(_WORDS.findall(quote)) < LEAST_QUOTE:
                    return f"{identity}: a quote of passage {name!r} is too short to decide anything"
                if not self.passages[citation.passage_id].has(quote):
                    return f"{identity}: a quote is not in passage {name!r}: {quote[:80]!r}"
        return None

    def fault_of_veto(self, item: VetoItem) -> str | None:
        """Return the first fault in the evidence of a second look; None without one."""
        return self.fault_of(
            item.id, item.evidence, needed=item.false_by_passage
        ) or self.fault_of(item.id, item.harm_evidence, needed=item.could_hurt)

    def verdict(
        self, claim: ClaimItem, first: AlignmentItem, again: VetoItem | None
    ) -> ClaimVerdict:
        """The verdict on a claim by the first judgement and, of a contradicted claim, the second check (`again`)."""
        verdict: Alignment = first.verdict
        if verdict is Alignment.SUPPORTED and not _BARRING.isdisjoint(first.lacks):
            verdict = Alignment.NEUTRAL
        citations = self.cited(first.evidence)
        named = _passages_of(citations)
        nearest = None
        if first.nearest is not None:
            nearest = self.passages[first.nearest].hits[0].passage.id
            named.add(nearest)
        second = None
        if again is not None:
            second = SecondCheck(
                false_by_passage=again.false_by_passage,
                could_hurt=again.could_hurt,
                citations=self.cited(again.evidence),
                harm_citations=self.cited(again.harm_evidence),
                reason=again.reason,
            )
            if not second.goes_against:
                verdict = Alignment.DISPUTED
            named |= _passages_of((*second.citations, *second.harm_citations))
        hits = list(self.hits[claim.id])
        # Passages of other claims that this verdict names follow the claim's own.
        named -= {hit.passage.id for hit in hits}
        for passage in self.passages.values():
            for hit in passage.hits:
                if hit.passage.id in named:
                    hits.append(replace(hit, rank=len(hits) + 1, sides=()))
        return ClaimVerdict(
            element_id=claim.id,
            claim=claim.statement,
            queries=claim.queries,
            verdict=verdict,
            hits=tuple(hits),
            citations=citations,
            reason=first.reason,
            second=second,
            # A reply that does not say so counts as on the subject.
            on_subject=first.verdict in _DECIDED or first.on_subject is not False,
            nearest=nearest,
            lacks=first.lacks,
        )


def _passages_of(citations: Iterable[Citation | CitationItem]) -> set[str]:
    """The ids of the cited passages."""
    return {citation.passage_id for citation in citations}


def cited_passages(claims: Iterable[ClaimVerdict]) -> tuple[Passage, ...]:
    """The passages that the verdicts on a case's claims cite, each once."""
    passages: dict[str, Passage] = {}
    for claim in claims:
        cited = _passages_of(claim.citations)
        for hit in claim.hits:
            if hit.passage.id in cited:
                passages[hit.passage.id] = hit.passage
    return tuple(passages.values())


def lacks_evidence(claims: Sequence[ClaimVerdict]) -> bool:
    """Whether a case is not aligned only for want of evidence (docs/method.md §1, S_align).

    No claim is contradicted, disputed or not standard, and for at least half of them no passage is on the subject.
    """
    off_subject = 0
    for claim in claims:
        if claim.verdict not in (Alignment.SUPPORTED, Alignment.NEUTRAL):
            return False
        off_subject += not claim.on_subject
    return bool(claims) and 2 * off_subject >= len(claims)
