"""The three agents in their order; every decision is a value, and a failure of ours is never a rejection."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from medlive.curation import controller, screener, validator
from medlive.curation.agent import Agent, AgentFailure, Respondent
from medlive.curation.cross_examination import cross_examine
from medlive.curation.model import (
    Alignment,
    Call,
    Check,
    Curation,
    Outcome,
    Reason,
    Side,
    Stage,
    Thresholds,
)
from medlive.evidence.passage import Retriever
from medlive.threads.model import Thread

ROLES = ("screener", "validator", "controller")


@dataclass(frozen=True, slots=True)
class CurationSettings:
    """What a decision depends on besides the thread and the engines."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    top_k: int = 8
    """Passages retrieved for each claim."""
    confirm_veto: bool = True
    cross_questions: int = 5
    """Questions from each text in the cross-examination of thread and case; 0: it is not done."""
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
            "exhaustive": self.exhaustive,
        }


async def curate(
    thread: Thread,
    language: str,
    respondents: Mapping[str, Respondent],
    retriever: Retriever,
    settings: CurationSettings,
    *,
    run_date: date,
) -> Curation:
    """What the three agents decide about a thread.

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
        engines={
            role: {"engine": a.identity.engine, "model": a.identity.model,
                   "parameters": dict(a.identity.parameters)}
            for role, a in agents.items()
        },
    )  # fmt: skip
    chain = _Chain(thread, language, agents, retriever, settings, run_date, state)
    try:
        state = await chain.run()
    except AgentFailure as failure:
        state = replace(chain.state, outcome=Outcome.FAILED, reason=failure.reason, detail=failure.detail)
    return replace(state, calls=tuple(journal))


class _Chain:
    """One thread's way; `state` is what is known so far, so that a failure keeps it."""

    def __init__(
        self,
        thread: Thread,
        language: str,
        agents: Mapping[str, Agent],
        retriever: Retriever,
        settings: CurationSettings,
        run_date: date,
        state: Curation,
    ) -> None:
        self._thread = thread
        self._language = language
        self._agents = agents
        self._retriever = retriever
        self._settings = settings
        self._run_date = run_date
        self.state = state

    async def run(self) -> Curation:
        return await self._screen() or await self._validate() or await self._control()

    def _reject(self, reason: Reason, detail: str) -> Curation:
        return replace(self.state, outcome=Outcome.REJECTED, reason=reason, detail=detail)

    async def _screen(self) -> Curation | None:
        elements = await screener.screen(self._thread, self._language, self._agents["screener"])
        self.state = replace(self.state, elements=elements)
        for side, reason, what in (
            (Side.QUERY, Reason.NO_QUERY, "no medical question was found"),
            (Side.NARRATIVE, Reason.NO_NARRATIVE, "the patient states no clinical fact"),
            (Side.ADVICE, Reason.NO_ADVICE, "no verified physician gives advice"),
        ):
            if not self.state.side(side):
                return self._reject(reason, what)
        return None

    async def _validate(self) -> Curation | None:
        """S_cc, S_inf, S_align, cheapest first; the first failure decides."""
        self.state = replace(self.state, stage=Stage.VALIDATOR)
        agent, limits = self._agents["validator"], self._settings.thresholds
        query = self.state.side(Side.QUERY)[0]
        narrative, advice = self.state.side(Side.NARRATIVE), self.state.side(Side.ADVICE)
        verdict: Curation | None = None

        s_cc, category = await validator.judge_query(self._language, query, agent)
        self.state = replace(self.state, s_cc=s_cc, query_category=category)
        if s_cc != 1:
            verdict = self._reject(
                Reason.QUERY_NOT_CLINICAL, f"S_cc = 0: {category.value}: {query.statement[:200]}"
            )
            if not self._settings.exhaustive:
                return verdict

        s_inf, items = await validator.judge_sufficiency(self._language, query, narrative, agent)
        self.state = replace(self.state, s_inf=s_inf, requirements=items)
        if verdict is None and not s_inf > limits.sufficiency:
            present = sum(i.present for i in items)
            missing = "; ".join(i.requirement for i in items if not i.present)
            verdict = self._reject(
                Reason.INSUFFICIENT_NARRATIVE,
                f"S_inf = {present}/{len(items)}, not above {limits.sufficiency}; missing: {missing}",
            )
        if verdict is not None and not self._settings.exhaustive:
            return verdict

        stated = await validator.state_claims(self._language, query, narrative, advice, agent)
        hits = await self._retriever.search(
            [claim.query for claim in stated], k=self._settings.top_k, not_after=self._run_date
        )
        s_align, claims = await validator.judge_alignment(
            self._language, query, narrative, stated, hits, agent, confirm_veto=self._settings.confirm_veto
        )
        self.state = replace(self.state, s_align=s_align, claims=claims, index=self._retriever.identity)
        against = [c for c in claims if c.verdict is Alignment.CONTRADICTED]
        if verdict is None and against:
            verdict = self._reject(
                Reason.CONTRADICTED, "; ".join(f"{c.element_id}: {c.reason}" for c in against)[:2000]
            )
        if verdict is None and not s_align > limits.alignment:
            supported = sum(c.verdict is Alignment.SUPPORTED for c in claims)
            verdict = self._reject(
                Reason.NOT_ALIGNED,
                f"S_align = {s_align:.3f}, not above {limits.alignment}: {supported} of {len(claims)} supported",
            )
        if verdict is None:
            return None
        return replace(self.state, outcome=verdict.outcome, reason=verdict.reason, detail=verdict.detail)

    async def _control(self) -> Curation:
        self.state = replace(self.state, stage=Stage.CONTROLLER)
        agent, elements = self._agents["controller"], self.state.elements
        self.state = replace(self.state, checks=controller.check_in_code(self._thread, elements))
        if failed := [c for c in self.state.checks if not c.passed]:
            return self._reject(Reason.UNSUPPORTED_ELEMENT, _told(failed))
        support = await controller.check_by_engine(self._thread, self._language, elements, agent)
        self.state = replace(self.state, checks=self.state.checks + support)
        if failed := [c for c in support if not c.passed]:
            return self._reject(Reason.UNSUPPORTED_ELEMENT, _told(failed))
        text, written = await controller.write(self._language, elements, agent)
        self.state = replace(self.state, checks=self.state.checks + written, text=text)
        if failed := [c for c in written if not c.passed]:
            reasons = {
                Check.NUMBERS_IN_ELEMENTS: Reason.NUMBERS_CHANGED,
                Check.NEGATION_KEPT: Reason.NEGATION_CHANGED,
                Check.SAYS_NO_MORE: Reason.UNSUPPORTED_ELEMENT,
            }
            return self._reject(reasons[failed[0].check], _told(failed))
        if self._settings.cross_questions:
            examined = await cross_examine(
                self._language,
                screener.shown_text(self._thread),
                f"{text.narrative}\n{text.advice}",
                agent,
                count=self._settings.cross_questions,
            )
            self.state = replace(self.state, cross_examination=examined)
        return replace(self.state, outcome=Outcome.KEPT, stage=Stage.RUBRIC)


def _told(failed: list[Any]) -> str:
    names = {
        Check.QUOTE_IN_THREAD: "the quote is not in its message",
        Check.NUMBERS_IN_THREAD: "numbers that the thread does not state",
        Check.NEGATION_KEPT: "denies what its source states, or states what it denies",
        Check.SAYS_NO_MORE: "says more than its quote",
        Check.NUMBERS_IN_ELEMENTS: "numbers that no kept element states",
    }
    return "; ".join(f"{c.subject}: {names[c.check]}: {c.detail}" for c in failed)[:2000]
