"""Run the three agents and the second reader in order; a failure of ours is never a rejection."""

from collections.abc import Awaitable, Mapping
from dataclasses import asdict, dataclass, field, replace
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
    ElementStatus,
    Hold,
    Outcome,
    Reason,
    Side,
    Stage,
    Thresholds,
)
from medlive.curation.second_reader import read_case, reading_holds
from medlive.curation.visible import visible_text
from medlive.errors import UsageError
from medlive.evidence.passage import Retriever
from medlive.llm.engine import Engine
from medlive.threads.model import Thread

ROLES = ("screener", "validator", "controller", "reader")


@dataclass(frozen=True, slots=True)
class CurationSettings:
    """Settings that affect a decision, besides the thread and the engines."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    top_k: int = 6
    """Passages retrieved for each claim; fewer where a case has many claims."""
    confirm_veto: bool = True
    cross_questions: int = 5
    """Questions from each text in the cross-examination; 0 skips it."""
    strict: bool = False
    """The paper's rule: any unsupported element discards the case."""
    exhaustive: bool = False
    """Compute all of V even when one fails, for study; the decision is the same."""

    def as_json(self) -> dict[str, Any]:
        """The settings as part of a pipeline's digest."""
        values = asdict(self)
        thresholds: dict[str, Any] = values.pop("thresholds")
        return thresholds | values


async def curate(
    thread: Thread,
    language: str,
    respondents: Mapping[str, Engine],
    retriever: Retriever,
    settings: CurationSettings,
    *,
    run_date: date,
) -> Curation:
    """Curate a thread. Failures of an engine are outcomes, not errors.

    Args:
        language: "en" or "zh".
        respondents: An engine for each role of ROLES.
        run_date: Evidence published later is not cited.
    """
    state = Curation(
        outcome=Outcome.FAILED,
        stage=Stage.SCREENER,
        reason=None,
        detail="",
        thresholds=settings.thresholds,
        engines={role: respondents[role].identity.as_json() for role in ROLES},
    )
    chain = _Chain(thread, language, respondents, retriever, settings, run_date, state)
    return await chain.finish(chain.run())


async def curate_without_element(
    curation: Curation,
    element_id: str,
    thread: Thread,
    language: str,
    respondents: Mapping[str, Engine],
    settings: CurationSettings,
) -> Curation:
    """Rewrite a held curation without one of its advice elements, as a person asked.

    Earlier verdicts stay: S_align is computed over the remaining claims, and the texts are written and read again.
    Raises UsageError where the case cannot do without the element.
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
    state = replace(
        curation,
        outcome=Outcome.FAILED,
        reason=None,
        detail="",
        elements=tuple(replace(e, status=ElementStatus.DROPPED) if e is dropped else e for e in curation.elements),
        claims=claims,
        s_align=s_align,
        text=None,
        cross_examination=None,
        second_reading=None,
        holds=(),
    )
    chain = _Chain(thread, language, respondents, None, settings, None, state)
    return await chain.finish(chain.write())


def with_holds(curation: Curation, holds: tuple[Hold, ...]) -> Curation:
    """Add reasons to hold a curation; unchanged if it has none."""
    holds = curation.holds + holds
    if not holds:
        return curation
    details = "; ".join(f"{h.reason.value}: {h.detail}" for h in holds)
    return replace(curation, outcome=Outcome.HELD, reason=holds[0].reason, detail=details[:2000], holds=holds)


class _Chain:
    """One thread's curation; `state` is what is known so far, kept when a step fails."""

    def __init__(
        self,
        thread: Thread,
        language: str,
        respondents: Mapping[str, Engine],
        retriever: Retriever | None,
        settings: CurationSettings,
        run_date: date | None,
        state: Curation,
    ) -> None:
        self._thread = thread
        self._language = language
        self._calls: list[Call] = []
        self._agents = {role: Agent(respondents[role], self._calls) for role in ROLES}
        self._retriever = retriever
        self._settings = settings
        self._run_date = run_date
        self._control: ElementControl | None = None
        self._consult = ""
        self.state = state

    async def finish(self, work: Awaitable[Curation]) -> Curation:
        """Await the work; a failure of an agent becomes the outcome, and the calls are added."""
        try:
            result = await work
        except AgentFailure as failure:
            result = replace(self.state, outcome=Outcome.FAILED, reason=failure.reason, detail=failure.detail)
        return replace(result, calls=tuple(self._calls))

    async def run(self) -> Curation:
        """Run the steps; each returns a rejection, which ends the chain, or None."""
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
        return self._empty_side_rejection()

    def _empty_side_rejection(self) -> Curation | None:
        for side, reason, what in (
            (Side.QUERY, Reason.NO_QUERY, "no medical question was found"),
            (Side.NARRATIVE, Reason.NO_NARRATIVE, "the patient states no clinical fact"),
            (Side.ADVICE, Reason.NO_ADVICE, "no verified physician gives advice"),
        ):
            if not self.state.side(side):
                return self._reject(reason, what)
        return None

    async def _check_exactly(self) -> Curation | None:
        """Run the exact checks before anything else is paid for."""
        self.state = replace(self.state, stage=Stage.CONTROLLER)
        self._control = ElementControl(
            self._thread,
            self._language,
            self.state.elements,
            screener=self._agents["screener"],
            judge=self._agents["controller"],
        )
        await self._run_control(self._control.check_exactly())
        return self._strict_rejection() or self._empty_side_rejection()

    async def _judge_elements(self) -> Curation | None:
        self.state = replace(self.state, stage=Stage.CONTROLLER)
        assert self._control is not None
        await self._run_control(self._control.judge())
        return self._strict_rejection() or self._empty_side_rejection() or self._insufficient()

    async def _run_control(self, work: Any) -> None:
        """Await a control step and store what it found, also when it fails."""
        assert self._control is not None
        try:
            await work
        finally:
            self.state = replace(self.state, elements=self._control.elements, checks=tuple(self._control.checks))

    def _strict_rejection(self) -> Curation | None:
        """The rejection under the strict rule; otherwise an unsupported element holds the case in the end."""
        failed = [c for c in self.state.checks if c.subject in self._failed_elements() and not c.passed]
        if not (self._settings.strict and failed):
            return None
        return self._reject(Reason.UNSUPPORTED_ELEMENT, "; ".join(f"{c.subject}: {c.detail}" for c in failed))

    def _failed_elements(self) -> set[str]:
        return {e.id for e in self.state.elements if e.status is not ElementStatus.KEPT}

    async def _judge_query(self) -> Curation | None:
        self.state = replace(self.state, stage=Stage.VALIDATOR)
        query = self.state.side(Side.QUERY)[0]
        s_cc, category = await validator.judge_query(self._language, query, self._agents["validator"])
        self.state = replace(self.state, s_cc=s_cc, query_category=category)
        if s_cc == 1 or self._settings.exhaustive:
            return None
        return self._query_rejection()

    def _query_rejection(self) -> Curation | None:
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
        """Compute S_inf over the current narrative, and the rejection if it is too low."""
        items, kept = self.state.requirements, self.state.side(Side.NARRATIVE)
        s_inf = validator.sufficiency(items, kept)
        self.state = replace(self.state, s_inf=s_inf)
        limit = self._settings.thresholds.sufficiency
        if s_inf > limit or self._settings.exhaustive:
            return None
        return self._sufficiency_rejection()

    def _sufficiency_rejection(self) -> Curation | None:
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
            self._language, query, narrative, stated, hits, agent, confirm_veto=self._settings.confirm_veto
        )
        self.state = replace(self.state, s_align=s_align, claims=claims, index=self._retriever.identity)
        if self._settings.exhaustive and (earlier := self._query_rejection() or self._sufficiency_rejection()):
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
        """Write N and A, cross-examine and read them a second time."""
        self.state = replace(self.state, stage=Stage.CONTROLLER)
        elements = tuple(e for e in self.state.elements if e.status is not ElementStatus.DROPPED)
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
                visible_text(self._thread),
                f"{text.narrative}\n{text.advice}",
                self._agents["controller"],
                count=self._settings.cross_questions,
            )
            self.state = replace(self.state, cross_examination=examined)
        reading = await read_case(self._thread, self._language, text, elements, self._agents["reader"])
        self.state = replace(self.state, second_reading=reading)
        kept = replace(self.state, outcome=Outcome.KEPT, stage=Stage.RUBRIC)
        return with_holds(kept, (*reading_holds(reading), *self._chain_holds(problem)))

    def _chain_holds(self, problem: str) -> list[Hold]:
        """The reasons to hold the case that the chain itself found."""
        holds = []
        not_standard = [c for c in self.state.claims if c.verdict is Alignment.NOT_STANDARD]
        if not_standard:
            details = "; ".join(f"{c.element_id}: {c.reason}" for c in not_standard)
            holds.append(Hold(Reason.NOT_STANDARD, details, tuple(c.element_id for c in not_standard)))
        doubted = [e for e in self.state.elements if e.status is ElementStatus.UNSUPPORTED]
        if doubted:
            last = {c.subject: c.detail for c in self.state.checks if not c.passed}
            details = "; ".join(f"{e.id}: {last[e.id]}" for e in doubted)
            holds.append(Hold(Reason.UNSUPPORTED_ELEMENT, details, tuple(e.id for e in doubted)))
        if problem:
            holds.append(Hold(Reason.TEXT_UNFAITHFUL, problem))
        return holds
