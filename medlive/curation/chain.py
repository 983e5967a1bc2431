"""Curate a thread: `curate` runs the three agents and the second reader in order; our own failures never reject it.

`curate_without_element` writes a held case again without one piece of its advice.
"""

from calendar import monthrange
from collections.abc import Awaitable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from typing import Any

from medlive.errors import LiteratureUnavailable, UsageError
from medlive.evidence.passage import Retriever
from medlive.harm.model import Material
from medlive.harm.read import read_harm, shown_passages
from medlive.llm.engine import UNPUBLISHABLE_ENGINES, Engine
from medlive.threads.model import Thread

from . import controller, screener, validator
from .agent import Agent, AgentFailure, by_id, ids_of
from .controller import ElementControl
from .cross_examination import cross_examine
from .elements import Brief
from .holds import (
    claims_with,
    describe_alignment,
    hold_on,
    join_details,
    with_holds,
)
from .model import (
    Alignment,
    Call,
    Curation,
    ElementStatus,
    ElyCategory,
    Hold,
    LeftOut,
    Outcome,
    Reason,
    SecondReading,
    Side,
)
from .model import Thresholds as Thresholds
from .second_reading import hear_voice, read_case, reading_holds, settle
from .tasks import ComplaintReply

# The roles that engines play in the chain
ROLES = ("screener", "validator", "controller", "reader")
MOST_GARBLED = 2
"""The most garbled words in an understandable case, none in any other; with more the thread is rejected."""
_EMPTY_SIDES = {
    Side.QUERY: (Reason.NO_QUERY, "no medical question was found"),
    Side.NARRATIVE: (Reason.NO_NARRATIVE, "the patient states no clinical fact"),
    Side.ADVICE: (Reason.NO_ADVICE, "no verified physician gives advice"),
}
"""Side of the triplet → why a thread without it is rejected."""
_QUOTE_SHOWN = 500  # Characters of a disputed quote in the reason of a hold


@dataclass(frozen=True)
class CurationSettings:
    """Settings that affect a decision, besides the thread and the engines."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    # Passages retrieved for each claim
    top_k: int = 6
    evidence_tokens: int = 4000
    """The most tokens of the passages that the alignment is shown for all claims together."""
    confirm_veto: bool = True
    # Questions from each text in the cross-examination; 0 skips it
    cross_questions: int = 5
    strict: bool = False  # The paper's rule: any unsupported element discards the case
    exhaustive: bool = False  # Compute all of V even when one fails, for study; the decision is the same

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
    overruled: Collection[Reason] = (),
) -> Curation:
    """Curate a thread. Failures of an engine are outcomes, not errors.

    Args:
        language: "en" or "zh".
        respondents: An engine for each role of ROLES.
        run_date: Evidence published later is not cited.
        overruled: Reasons for which a person does not want the thread rejected: the chain goes on.
    """
    engines = {role: respondents[role].identity.as_json() for role in ROLES}
    state = Curation(
        thresholds=settings.thresholds,
        engines=engines,
        overruled=tuple(sorted(overruled)),
    )
    chain = _Chain(thread, language, respondents, settings, state)
    return await chain.finish(chain.run(retriever, run_date))


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
    ids = ids_of(curation.side(Side.ADVICE))
    if element_id not in ids:
        hint = f"its advice elements are {', '.join(ids)}"
        raise UsageError(f"the case has no advice element {element_id}", hint=hint)
    claims = tuple(c for c in curation.claims if c.element_id != element_id)
    s_align = validator.mean_alignment(claims)
    if not s_align > curation.thresholds.alignment:
        raise UsageError(
            f"without {element_id} S_align is {s_align:.3f}, not above {curation.thresholds.alignment}",
            hint="reject the case instead",
        )
    elements = by_id(curation.elements)
    elements[element_id] = replace(elements[element_id], status=ElementStatus.DROPPED)
    engines = dict(curation.engines)
    for role in ("controller", "reader", "validator"):
        # An engine that may not be published stays named, since the case holds its decisions.
        if engines[role]["engine"] not in UNPUBLISHABLE_ENGINES:
            engines[role] = respondents[role].identity.as_json()
    state = replace(
        curation,
        outcome=Outcome.FAILED,
        reason=None,
        detail="",
        elements=tuple(elements.values()),
        claims=claims,
        s_align=s_align,
        text=None,
        cross_examination=None,
        second_reading=None,
        holds=(),
        engines=engines,
    )
    chain = _Chain(thread, language, respondents, settings, state)
    return await chain.finish(chain.write())


def cited_until(curation: Curation, thread: Thread, run_date: date) -> date:
    """The last day of evidence that is cited: the run's or, if the answer depends on time, the thread month's last."""
    posted = thread.posted_at
    if not curation.of_its_time or posted is None:
        return run_date
    last = monthrange(posted.year, posted.month)[1]
    return min(run_date, date(posted.year, posted.month, last))


@dataclass
class _Chain:
    """One thread's curation; `state` is what is known so far, kept when a step fails."""

    thread: Thread
    language: str
    respondents: Mapping[str, Engine]
    settings: CurationSettings
    state: Curation
    calls: list[Call] = field(default_factory=list)
    # Whether a physician would answer now or ask back first, in the validator's words
    consult: str = ""

    def _agent(self, role: str) -> Agent:
        """An agent for a role, which records its calls here."""
        return Agent(self.respondents[role], self.calls, self.language)

    async def finish(self, work: Awaitable[Curation]) -> Curation:
        """Await the work; a failure of an agent or a service becomes the outcome, and the calls are added."""
        try:
            result = await work
        except AgentFailure as failure:
            result = self._end(Outcome.FAILED, failure.reason, failure.detail)
        except LiteratureUnavailable as error:
            reason = Reason.ENDPOINT_UNAVAILABLE
            result = self._end(Outcome.FAILED, reason, error.message)
        return replace(result, calls=tuple(self.calls))

    def _end(self, outcome: Outcome, reason: Reason, detail: str) -> Curation:
        """The curation so far, ended with an outcome and why."""
        return replace(
            self.state,
            outcome=outcome,
            reason=reason,
            detail=detail[:2000],
        )

    async def run(self, retriever: Retriever, run_date: date) -> Curation:
        """Run the steps; each but the last returns a rejection or a parked case, which ends the chain, or None."""
        agent = self._agent("screener")
        self._set(elements=await screener.screen(self.thread, agent))
        elements = by_id(self.state.elements)
        judge = self._agent("controller")
        control = ElementControl(self.thread, elements, agent, judge)
        rejection = (
            self._reject_empty_side()
            # Exact checks, before anything else is paid for
            or await self._check_elements(control, judged=False)
            or await self._judge_question()
            or await self._check_elements(control, judged=True)
            or await self._judge_alignment(retriever, run_date)
        )
        # Where all of V is computed, what would have ended the chain before still decides.
        if self.settings.exhaustive:
            earlier = self._reject_question_or_history(at_last=True)
            if earlier is not None:
                return replace(earlier, stage="validator")
        return rejection or await self.write()

    def _set(self, **known: Any) -> None:
        """Add results to the state."""
        self.state = replace(self.state, **known)

    def _reject(self, reason: Reason, detail: str) -> Curation | None:
        """The rejection; None where a person has overruled that reason."""
        if reason in self.state.overruled:
            return None
        return self._end(Outcome.REJECTED, reason, detail)

    @property
    def _case(self) -> Brief:
        """The case as it is judged and written: the elements that were not dropped."""
        posted = self.thread.posted_at
        month = f"{posted:%Y-%m}" if self.state.of_its_time and posted else ""
        (query,) = self.state.side(Side.QUERY)
        narrative, advice = map(self.state.side, (Side.NARRATIVE, Side.ADVICE))
        return Brief(query, narrative, advice, month)

    async def _check_elements(
        self, control: ElementControl, *, judged: bool
    ) -> Curation | None:
        """Check the elements: an unsupported one rejects the case under the strict rule, else holds it in the end."""
        self._set(stage="controller")
        try:
            await control.run(judged=judged)
        finally:
            self._set(elements=control.elements, checks=tuple(control.checks))
        if self.settings.strict:
            failed = self._failed(ElementStatus.DROPPED, ElementStatus.UNSUPPORTED)
            why = join_details(failed)
            if failed and (rejection := self._reject(Reason.UNSUPPORTED_ELEMENT, why)):
                return rejection
        return self._reject_empty_side() or (
            self._reject_insufficient() if judged else None
        )

    def _reject_empty_side(self) -> Curation | None:
        """The rejection of a thread without query, narrative or advice."""
        for side, (reason, detail) in _EMPTY_SIDES.items():
            if not self.state.side(side):
                return self._reject(reason, detail)
        return None

    async def _judge_question(self) -> Curation | None:
        """Judge the question, then whether the history is enough for it."""
        self._set(stage="validator")
        agent = self._agent("validator")
        query = self._case.query.statement
        reply = await agent.ask(ComplaintReply, {"query": query})
        clinical = reply.category is not ElyCategory.NONCLINICAL
        self._set(
            s_cc=int(reply.meaningful and clinical),
            query_category=reply.category,
            of_its_time=reply.of_its_time,
        )
        if rejection := self._reject_question_or_history():
            return rejection
        requirements, judged = await validator.judge_sufficiency(self._case, agent)
        self.consult = judged.consult
        self._set(requirements=requirements, answers_now=judged.answers_now)
        return self._reject_insufficient()

    def _reject_insufficient(self) -> Curation | None:
        """Compute S_inf over the current narrative, and the rejection if it is too low."""
        requirements = self.state.requirements
        narrative = self.state.side(Side.NARRATIVE)
        self._set(s_inf=validator.sufficiency(requirements, narrative))
        return self._reject_question_or_history()

    def _reject_question_or_history(self, *, at_last: bool = False) -> Curation | None:
        """The rejection for S_cc or S_inf, if known. An exhaustive run computes all of V first, and asks `at_last`."""
        if self.settings.exhaustive and not at_last:
            return None
        if self.state.s_cc == 0:
            query = by_id(self.state.elements)[validator.QUERY_ID]
            category = self.state.query_category
            detail = f"S_cc = 0: {category}: {query.statement[:200]}"
            if rejection := self._reject(Reason.QUERY_NOT_CLINICAL, detail):
                return rejection
        # Where the checklist (S_inf) and the judgement (`answers_now`) differ, the second reading decides.
        if self.state.s_inf is None or self._listed_enough or self.state.answers_now:
            return None
        return self._reject(Reason.INSUFFICIENT_NARRATIVE, self._insufficient())

    @property
    def _listed_enough(self) -> bool:
        """Whether the history is enough by the checklist."""
        s_inf = self.state.s_inf
        return s_inf is not None and s_inf > self.settings.thresholds.sufficiency

    def _insufficient(self) -> str:
        """Why the history is not enough, in words."""
        absent = []
        for requirement in self.state.requirements:
            if not (requirement.present or requirement.prudent):
                absent.append(requirement.requirement)
        score = f"S_inf = {self.state.s_inf:.3f}"
        limit = f"limit {self.settings.thresholds.sufficiency}"
        return f"{score} ({limit}); missing: {'; '.join(absent)}; {self.consult}"

    async def _judge_alignment(
        self, retriever: Retriever, run_date: date
    ) -> Curation | None:
        """State the advice as claims, judge them by evidence, and compute S_align."""
        self._set(stage="validator")
        agent = self._agent("validator")
        stated, flags = await validator.state_claims(self._case, agent)
        if Reason.NO_SOUND_ADVICE not in self.state.overruled:
            offers = [claim.id for claim in stated if claim.advertising]
            self._leave_out(dict.fromkeys(offers, "advertising"))
            stated = [claim for claim in stated if not claim.advertising]
        if not stated:
            return self._reject(
                Reason.NO_SOUND_ADVICE, "every advice offers a service or a product"
            )
        library = validator.Library(
            retriever=retriever,
            passages=self.settings.top_k,
            tokens=self.settings.evidence_tokens,
            not_after=cited_until(self.state, self.thread, run_date),
        )
        verdicts = await validator.judge_alignment(
            self._case,
            stated,
            library,
            agent,
            confirm_veto=self.settings.confirm_veto,
        )
        claims = tuple(replace(v, flag=flags.get(v.element_id, "")) for v in verdicts)
        s_align = validator.mean_alignment(claims)
        self._set(s_align=s_align, claims=claims, index=retriever.identity)
        against = self._reasons_of(Alignment.CONTRADICTED)
        if against and (
            rejection := self._reject(Reason.CONTRADICTED, join_details(against))
        ):
            return rejection
        is_open = against or self._reasons_of(Alignment.DISPUTED)
        if not (is_open or s_align > self.settings.thresholds.alignment):
            return self._reject_not_aligned()
        # Where supported advice remains, advice that is not standard, or is refuted, leaves A.
        if self._reasons_of(Alignment.SUPPORTED):
            unsound = self._reasons_of(Alignment.NOT_STANDARD)
            self._leave_out(dict.fromkeys(unsound, "not_standard"))
            self._leave_out(dict.fromkeys(against, "refuted"))
        return None

    def _reasons_of(self, verdict: Alignment) -> dict[str, str]:
        """Element → why its claim has this verdict."""
        claims = claims_with(self.state.claims, verdict)
        return {claim.element_id: claim.reason for claim in claims}

    def _reject_not_aligned(self) -> Curation | None:
        """Reject the case for its low S_align, or park it where only evidence is lacking."""
        claims = self.state.claims
        detail = describe_alignment(self.state)
        if not validator.lacks_evidence(claims):
            return self._reject(Reason.NOT_ALIGNED, detail)
        if {Reason.NOT_ALIGNED, Reason.NO_EVIDENCE}.intersection(self.state.overruled):
            return None
        missing = ", ".join(c.element_id for c in claims if not c.on_subject)
        detail = f"{detail}; no passage on the subject of {missing}"
        return self._end(Outcome.PARKED, Reason.NO_EVIDENCE, detail)

    def _leave_out(self, reasons: Mapping[str, LeftOut]) -> None:
        """Drop advice elements (id → why) from A."""
        elements = []
        for element in self.state.elements:
            if reason := reasons.get(element.id):
                dropped = ElementStatus.DROPPED
                element = replace(element, status=dropped, left_out=reason)
            elements.append(element)
        self._set(elements=tuple(elements))

    async def write(self) -> Curation:
        """Write N and A, have the case read again and judged for harm, cross-examine it, and collect its holds."""
        self._set(stage="controller")
        case = self._case
        writer, reader, voice = map(self._agent, ("controller", "reader", "validator"))
        text, checks, problem = await controller.write(
            case, writer=writer, judge=reader
        )
        if case.month:
            text = controller.dated(text, case.month, self.language)
        self._set(checks=self.state.checks + checks, text=text)
        reading = await read_case(
            self.thread, text, case.advice, reader, month=case.month
        )
        self._set(second_reading=reading)
        if rejection := self._reject_as_read(reading):
            return rejection
        # The advice as an answer to the patient, with the passages that verdicts on it cite.
        material = Material(
            language=self.language,
            question=text.question,
            answer=text.advice,
            passages=validator.cited_passages(self.state.claims),
        )
        passages = shown_passages(material.passages)
        reading = await hear_voice(reading, case, self.state.claims, passages, voice)
        self._set(second_reading=reading)
        rejected, why, holds = settle(reading)
        for reason in rejected:
            if rejection := self._reject(reason, why):
                return rejection
        harm = await read_harm(material, reader, voice)
        harms = []
        for judged in harm.confirmed:
            harms.append(f"“{judged.finding.quote}” {judged.finding.reason}")
        why = "; ".join(harms)
        if harms and (rejection := self._reject(Reason.ADVICE_HARMFUL, why)):
            return rejection
        if count := self.settings.cross_questions:
            examined = await cross_examine(self.thread, text, writer, count=count)
            self._set(cross_examination=examined)
        kept = replace(self.state, outcome=Outcome.KEPT, stage="rubric")
        holds = [*self._dispute_holds(), *holds, *reading_holds(reading)]
        holds += hold_on(Reason.NOT_STANDARD, self._reasons_of(Alignment.NOT_STANDARD))
        unsupported = self._failed(ElementStatus.UNSUPPORTED)
        holds += hold_on(Reason.UNSUPPORTED_ELEMENT, unsupported)
        holds += hold_on(Reason.TEXT_UNFAITHFUL, {"": problem} if problem else {})
        return with_holds(kept, tuple(holds))

    def _reject_as_read(self, reading: SecondReading) -> Curation | None:
        """The reader's rejection: garbled words, things not in text, or the history where list and judgement differ."""
        read_as_meant = MOST_GARBLED if reading.understandable else 0
        if len(reading.damaged) > read_as_meant:
            words = ", ".join(reading.damaged)
            if rejection := self._reject(Reason.DAMAGED_TEXT, f"garbled: {words}"):
                return rejection
        if reading.unseen:
            words = join_details(reading.unseen)
            if rejection := self._reject(Reason.NOT_TEXT_ONLY, words):
                return rejection
        if reading.enough or self._listed_enough == self.state.answers_now:
            return None
        detail = f"{self._insufficient()}; second reading: {reading.reason}"
        return self._reject(Reason.INSUFFICIENT_NARRATIVE, detail)

    def _dispute_holds(self) -> list[Hold]:
        """The hold for contradictions that the second check did not confirm, with both sentences."""
        details = {}
        for claim in claims_with(self.state.claims, Alignment.DISPUTED):
            quote = " / ".join(c.quote for c in claim.citations)[:_QUOTE_SHOWN]
            second = claim.second.reason if claim.second else ""
            words = f"“{quote}” ({claim.reason}); second check: {second}"
            details[claim.element_id] = words
        return hold_on(Reason.DISPUTED, details)

    def _failed(self, *statuses: ElementStatus) -> dict[str, str]:
        """Id of each element of these statuses → what its last failed check says."""
        last = {c.subject: c.detail for c in self.state.checks if not c.passed}
        failed = {}
        for element in self.state.elements:
            if element.status in statuses:
                failed[element.id] = last[element.id]
        return failed
