"""The three agents and the second reader in their order; every decision is a value, and a failure of ours is never
a rejection."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from medlive.curation import controller, screener, validator
from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.controller import ElementControl
from medlive.curation.cross_examination import cross_examine
from medlive.curation.model import (
    Alignment,
    Call,
    Curation,
    Hold,
    Outcome,
    Reason,
    Side,
    Stage,
    Standing,
    Thresholds,
)
from medlive.curation.second_reader import holds_of, read_case
from medlive.curation.shown import shown_text
from medlive.errors import UsageError
from medlive.evidence.passage import Retriever
from medlive.llm.engine import Engine
from medlive.threads.model import Thread

ROLES = ("screener", "validator", "controller", "reader")


@dataclass(frozen=True, slots=True)
class CurationSettings:
    """What a decision depends on besides the thread and the engines."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    top_k: int = 6
    """Passages retrieved for each claim; fewer where a case has many."""
    confirm_veto: bool = True
    cross_questions: int = 5
    """Questions from each text in the cross-examination of thread and case; 0: it is not done."""
    strict: bool = False
    """The paper's rule: any unsupported element discards the case."""
    exhaustive: bool = False
    """Compute all three of V even when the first fails, for study; the decision is the same."""

    def as_json(self) -> dict[str, Any]:
        """The settings as they enter a pipeline's digest."""
        return {
            "sufficiency": self.thresholds.sufficiency,
            "alignment": self.thresholds.alignment,
            "top_k": self.top_k,
            "confirm_veto": self.confirm_veto,
            "cross_questions": self.cross_questions,
            "strict": self.strict,
            "exhaustive": self.exhaustive,
        }


async def curate(
    thread: Thread,
    language: str,
    respondents: Mapping[str, Engine],
    retriever: Retriever,
    settings: CurationSettings,
    *,
    run_date: date,
) -> Curation:
    """What the agents decide about a thread.

    `respondents` has one entry per role of ROLES; `language` is "en" or "zh"; `run_date` bounds the evidence
    (nothing published after it is cited). Never raises for what an engine or a thread does: the outcome says it.
    """
    journal: list[Call] = []
    agents = {role: Agent(respondents[role], journal) for role in ROLES}
    state = Curation(
        outcome=Outcome.FAILED,
        stage=Stage.SCREENER,
        reason=None,
        detail="",
        thresholds=settings.thresholds,
        engines={role: agent.identity.as_json() for role, agent in agents.items()},
    )
    chain = _Chain(thread, language, agents, retriever, settings, run_date, state)
    try:
        state = await chain.run()
    except AgentFailure as failure:
        state = replace(chain.state, outcome=Outcome.FAILED, reason=failure.reason, detail=failure.detail)
    return replace(state, calls=tuple(journal))


async def curate_without(
    curation: Curation,
    element_id: str,
    thread: Thread,
    language: str,
    respondents: Mapping[str, Engine],
    settings: CurationSettings,
) -> Curation:
    """A held curation written anew without one of its advice elements, as a person asked.

    Nothing that was judged is judged again: S_align is that of the claims that are left, and the texts are written
    and read anew. Raises UsageError where the case cannot do without the element.
    """
    dropped = next((e for e in curation.side(Side.ADVICE) if e.id == element_id), None)
    if dropped is None:
        ids = ", ".join(e.id for e in curation.side(Side.ADVICE))
        raise UsageError(f"the case has no advice element {element_id}", hint=f"its advice elements are {ids}")
    claims = tuple(c for c in curation.claims if c.element_id != element_id)
    s_align = sum(c.verdict.value_of for c in claims) / len(claims) if claims else 0.0
    if not s_align > curation.thresholds.alignment:
        raise UsageError(
            f"without {element_id} S_align is {s_align:.3f}, not above {curation.thresholds.alignment}",
            hint="reject the case instead",
        )
    journal: list[Call] = []
    agents = {role: Agent(respondents[role], journal) for role in ROLES}
    state = replace(
        curation,
        outcome=Outcome.FAILED,
        reason=None,
        detail="",
        elements=tuple(replace(e, standing=Standing.DROPPED) if e is dropped else e for e in curation.elements),
        claims=claims,
        s_align=s_align,
        text=None,
        cross_examination=None,
        second_reading=None,
        holds=(),
    )
    chain = _Chain(thread, language, agents, None, settings, None, state)
    try:
        state = await chain.write()
    except AgentFailure as failure:
        state = replace(chain.state, outcome=Outcome.FAILED, reason=failure.reason, detail=failure.detail)
    return replace(state, calls=tuple(journal))


def with_holds(curation: Curation, holds: tuple[Hold, ...]) -> Curation:
    """A curation that waits for a person, for the reasons it had and these; unchanged without any."""
    holds = curation.holds + holds
    if not holds:
        return curation
    told = "; ".join(f"{h.reason.value}: {h.detail}" for h in holds)
    return replace(curation, outcome=Outcome.HELD, reason=holds[0].reason, detail=told[:2000], holds=holds)


class _Chain:
    """One thread's way; `state` is what is known so far, so that a failure keeps it."""

    def __init__(
        self,
        thread: Thread,
        language: str,
        agents: Mapping[str, Agent],
        retriever: Retriever | None,
        settings: CurationSettings,
        run_date: date | None,
        state: Curation,
    ) -> None:
        self._thread = thread
        self._language = language
        self._agents = agents
        self._retriever = retriever
        self._settings = settings
        self._run_date = run_date
        self._control: ElementControl | None = None
        self._consult = ""
        self.state = state

    async def run(self) -> Curation:
        """Each step gives the rejection that ends the way, or None."""
        for step in (
            self._screen,
            self._check_exactly,
            self._judge_query,
            self._judge_sufficiency,
            self._judge_elements,
            self._judge_alignment,
        ):
            verdict = await step()
            if verdict is not None:
                return verdict
        return await self.write()

    def _reject(self, reason: Reason, detail: str) -> Curation:
        return replace(self.state, outcome=Outcome.REJECTED, reason=reason, detail=detail[:2000])

    async def _screen(self) -> Curation | None:
        elements = await screener.screen(self._thread, self._language, self._agents["screener"])
        self.state = replace(self.state, elements=elements)
        return self._empty_side()

    def _empty_side(self) -> Curation | None:
        for side, reason, what in (
            (Side.QUERY, Reason.NO_QUERY, "no medical question was found"),
            (Side.NARRATIVE, Reason.NO_NARRATIVE, "the patient states no clinical fact"),
            (Side.ADVICE, Reason.NO_ADVICE, "no verified physician gives advice"),
        ):
            if not self.state.side(side):
                return self._reject(reason, what)
        return None

    async def _check_exactly(self) -> Curation | None:
        """What code can see for certain, before anything else is paid for."""
        self.state = replace(self.state, stage=Stage.CONTROLLER)
        self._control = ElementControl(
            self._thread,
            self._language,
            self.state.elements,
            screener=self._agents["screener"],
            judge=self._agents["controller"],
        )
        await self._controlled(self._control.check_exactly())
        return self._unsupported() or self._empty_side()

    async def _judge_elements(self) -> Curation | None:
        self.state = replace(self.state, stage=Stage.CONTROLLER)
        assert self._control is not None
        await self._controlled(self._control.judge())
        return self._unsupported() or self._empty_side() or self._insufficient()

    async def _controlled(self, work: Any) -> None:
        """Take over what the controls found, also when they fail half-way."""
        assert self._control is not None
        try:
            await work
        finally:
            self.state = replace(self.state, elements=self._control.elements, checks=tuple(self._control.checks))

    def _unsupported(self) -> Curation | None:
        """The rejection of the strict rule; without it what stays unsupported holds the case in the end."""
        failed = [c for c in self.state.checks if c.subject in self._lost() and not c.passed]
        if not (self._settings.strict and failed):
            return None
        return self._reject(Reason.UNSUPPORTED_ELEMENT, "; ".join(f"{c.subject}: {c.detail}" for c in failed))

    def _lost(self) -> set[str]:
        return {e.id for e in self.state.elements if e.standing is not Standing.KEPT}

    async def _judge_query(self) -> Curation | None:
        self.state = replace(self.state, stage=Stage.VALIDATOR)
        query = self.state.side(Side.QUERY)[0]
        s_cc, category = await validator.judge_query(self._language, query, self._agents["validator"])
        self.state = replace(self.state, s_cc=s_cc, query_category=category)
        if s_cc == 1 or self._settings.exhaustive:
            return None
        return self._not_clinical()

    def _not_clinical(self) -> Curation | None:
        if self.state.s_cc == 1 or self.state.query_category is None:
            return None
        query = self.state.side(Side.QUERY)[0]
        return self._reject(
            Reason.QUERY_NOT_CLINICAL, f"S_cc = 0: {self.state.query_category.value}: {query.statement[:200]}"
        )

    async def _judge_sufficiency(self) -> Curation | None:
        narrative, query = self.state.side(Side.NARRATIVE), self.state.side(Side.QUERY)[0]
        requirements, self._consult = await validator.judge_sufficiency(
            self._language, query, narrative, self._agents["validator"]
        )
        self.state = replace(self.state, requirements=requirements)
        return self._insufficient()

    def _insufficient(self) -> Curation | None:
        """S_inf over the narrative as it stands now, and the rejection that it asks for."""
        items, kept = self.state.requirements, self.state.side(Side.NARRATIVE)
        s_inf = validator.sufficiency(items, kept)
        self.state = replace(self.state, s_inf=s_inf)
        limit = self._settings.thresholds.sufficiency
        if s_inf > limit or self._settings.exhaustive:
            return None
        return self._too_thin()

    def _too_thin(self) -> Curation | None:
        limit, s_inf = self._settings.thresholds.sufficiency, self.state.s_inf
        if s_inf is None or s_inf > limit:
            return None
        missing = "; ".join(i.requirement for i in self.state.requirements if not (i.present or i.prudent))
        return self._reject(
            Reason.INSUFFICIENT_NARRATIVE,
            f"S_inf = {s_inf:.3f}, not above {limit}; missing: {missing}; {self._consult}",
        )

    async def _judge_alignment(self) -> Curation | None:
        self.state = replace(self.state, stage=Stage.VALIDATOR)
        agent, query = self._agents["validator"], self.state.side(Side.QUERY)[0]
        narrative, advice = self.state.side(Side.NARRATIVE), self.state.side(Side.ADVICE)
        stated = await validator.state_claims(self._language, query, narrative, advice, agent)
        assert self._retriever is not None
        hits = await self._retriever.search(
            [claim.query for claim in stated],
            k=validator.passages_each(len(stated), self._settings.top_k),
            not_after=self._run_date,
        )
        s_align, claims = await validator.judge_alignment(
            self._language,
            query,
            narrative,
            stated,
            hits,
            agent,
            confirm_veto=self._settings.confirm_veto,
        )
        self.state = replace(self.state, s_align=s_align, claims=claims, index=self._retriever.identity)
        if self._settings.exhaustive and (earlier := self._not_clinical() or self._too_thin()):
            return earlier
        against = [c for c in claims if c.verdict is Alignment.CONTRADICTED]
        if against:
            return self._reject(Reason.CONTRADICTED, "; ".join(f"{c.element_id}: {c.reason}" for c in against))
        limit = self._settings.thresholds.alignment
        if not s_align > limit:
            supported = sum(c.verdict is Alignment.SUPPORTED for c in claims)
            return self._reject(
                Reason.NOT_ALIGNED,
                f"S_align = {s_align:.3f}, not above {limit}: {supported} of {len(claims)} supported",
            )
        return None

    async def write(self) -> Curation:
        """N and A, the cross-examination and the second reading of what the validator would keep."""
        self.state = replace(self.state, stage=Stage.CONTROLLER)
        elements = tuple(e for e in self.state.elements if e.standing is not Standing.DROPPED)
        text, checks, problem = await controller.write(
            self._language,
            elements,
            writer=self._agents["controller"],
            judge=self._agents["reader"],
            doubter=self._agents["validator"],
        )
        self.state = replace(self.state, checks=self.state.checks + checks, text=text)
        if self._settings.cross_questions:
            examined = await cross_examine(
                self._language,
                shown_text(self._thread),
                f"{text.narrative}\n{text.advice}",
                self._agents["controller"],
                count=self._settings.cross_questions,
            )
            self.state = replace(self.state, cross_examination=examined)
        reading = await read_case(self._thread, self._language, text, elements, self._agents["reader"])
        self.state = replace(self.state, second_reading=reading)
        kept = replace(self.state, outcome=Outcome.KEPT, stage=Stage.RUBRIC)
        return with_holds(kept, (*holds_of(reading), *self._own_holds(problem)))

    def _own_holds(self, problem: str) -> list[Hold]:
        """What the chain itself leaves to a person."""
        holds = []
        odd = [c for c in self.state.claims if c.verdict is Alignment.NOT_STANDARD]
        if odd:
            told = "; ".join(f"{c.element_id}: {c.reason}" for c in odd)
            holds.append(Hold(Reason.NOT_STANDARD, told, tuple(c.element_id for c in odd)))
        doubted = [e for e in self.state.elements if e.standing is Standing.UNSUPPORTED]
        if doubted:
            last = {c.subject: c.detail for c in self.state.checks if not c.passed}
            told = "; ".join(f"{e.id}: {last[e.id]}" for e in doubted)
            holds.append(Hold(Reason.UNSUPPORTED_ELEMENT, told, tuple(e.id for e in doubted)))
        if problem:
            holds.append(Hold(Reason.TEXT_UNFAITHFUL, problem))
        return holds
