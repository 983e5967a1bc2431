"""What curation makes of a thread: elements, verdicts, checks, and the case that survives them.

Source: LiveMedBench §3.2; the points the paper leaves open are settled in docs/method.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from medlive.evidence.passage import Hit, IndexIdentity


class Side(StrEnum):
    """Which part of the triplet (L_N, Q, L_A) an element belongs to."""

    NARRATIVE = "narrative"
    QUERY = "query"
    ADVICE = "advice"


class Kind(StrEnum):
    """The SOAP section of an element."""

    SUBJECTIVE = "subjective"
    OBJECTIVE = "objective"
    ASSESSMENT = "assessment"
    PLAN = "plan"
    QUESTION = "question"


@dataclass(frozen=True, slots=True)
class Element:
    """An atomic statement with the words it rests on."""

    id: str
    """`n1`, `n2`, … in L_N; `q` for Q; `a1`, `a2`, … in L_A; given by code, never by a model."""
    side: Side
    kind: Kind
    message_id: str
    """The message the quote stands in; "title" where the question stands in the title."""
    quote: str
    """Verbatim words of that message."""
    statement: str
    """The statement that stands alone."""


class Stage(StrEnum):
    """Where a thread's curation ended."""

    SCREENER = "screener"
    VALIDATOR = "validator"
    CONTROLLER = "controller"
    RUBRIC = "rubric"


class Outcome(StrEnum):
    """What became of a thread."""

    KEPT = "kept"
    REJECTED = "rejected"
    HELD = "held"
    """Curated, but its rubric did not pass the linter: waits for a person."""
    FAILED = "failed"
    """A failure of ours (endpoint, malformed reply): retried, never a rejection."""


class Reason(StrEnum):
    """Why a thread was not kept; each belongs to one stage."""

    NO_NARRATIVE = "no_narrative"
    NO_QUERY = "no_query"
    NO_ADVICE = "no_advice"
    QUERY_NOT_CLINICAL = "query_not_clinical"
    INSUFFICIENT_NARRATIVE = "insufficient_narrative"
    CONTRADICTED = "contradicted"
    NOT_ALIGNED = "not_aligned"
    UNSUPPORTED_ELEMENT = "unsupported_element"
    NUMBERS_CHANGED = "numbers_changed"
    NEGATION_CHANGED = "negation_changed"
    RUBRIC_LINT = "rubric_lint"
    ENDPOINT_UNAVAILABLE = "endpoint_unavailable"
    INVALID_REPLY = "invalid_reply"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    BUDGET_SPENT = "budget_spent"


class ElyCategory(StrEnum):
    """Ely's taxonomy of clinical questions, top level (BMJ 2000;321:429), and what is none of it."""

    DIAGNOSIS = "diagnosis"
    TREATMENT = "treatment"
    MANAGEMENT = "management"
    EPIDEMIOLOGY = "epidemiology"
    """Includes prognosis and aetiology."""
    NONCLINICAL = "nonclinical"


class Alignment(StrEnum):
    """v(a_j): supported 1.0, neutral 0.5, contradicted 0.0 (LiveMedBench §3.2.2)."""

    SUPPORTED = "supported"
    NEUTRAL = "neutral"
    CONTRADICTED = "contradicted"

    @property
    def value_of(self) -> float:
        """The number that enters S_align."""
        return {Alignment.SUPPORTED: 1.0, Alignment.NEUTRAL: 0.5, Alignment.CONTRADICTED: 0.0}[self]


@dataclass(frozen=True, slots=True)
class Requirement:
    """An item of the minimal checklist derived from Q, and whether L_N entails it."""

    requirement: str
    present: bool
    element_ids: tuple[str, ...]
    """The narrative elements that entail it; never empty when present."""


@dataclass(frozen=True, slots=True)
class Citation:
    """Words of a passage that a verdict rests on."""

    passage_id: str
    quote: str
    """Verbatim words of that passage."""


@dataclass(frozen=True, slots=True)
class SecondCheck:
    """The differently worded look at a claim that a first one called contradicted."""

    goes_against: bool
    """Whether it confirms the contradiction."""
    citations: tuple[Citation, ...]
    """Never empty when it does."""
    reason: str


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """How one advice element stands to the evidence that was retrieved for it."""

    element_id: str
    claim: str
    """The element as a statement that stands alone: what was searched for and judged."""
    english: str | None
    """The claim in English, for evidence in English; None when it is English, or could not be translated."""
    verdict: Alignment
    hits: tuple[Hit, ...]
    """What was retrieved, best first."""
    citations: tuple[Citation, ...]
    """What the verdict rests on, each passage once and out of the hits; empty only when neutral."""
    reason: str
    second: SecondCheck | None = None
    """None when no second check was asked for."""

    @property
    def overturned(self) -> bool:
        """Whether a first "contradicted" did not survive the second check; `verdict` is then neutral."""
        return self.second is not None and not self.second.goes_against


class Check(StrEnum):
    """The Controller's checks, all of them in code; `says_no_more` by the engine as well."""

    QUOTE_IN_THREAD = "quote_in_thread"
    NUMBERS_IN_THREAD = "numbers_in_thread"
    NEGATION_KEPT = "negation_kept"
    SAYS_NO_MORE = "says_no_more"
    NUMBERS_IN_ELEMENTS = "numbers_in_elements"


@dataclass(frozen=True, slots=True)
class ControllerCheck:
    """One check of one element, or of a written text ("narrative" or "advice")."""

    check: Check
    subject: str
    passed: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds a decision met, stored with it (LiveMedBench §3.2.2: both 0.5, strictly exceeded)."""

    sufficiency: float = 0.5
    alignment: float = 0.5


class CallOutcome(StrEnum):
    """What became of one call to an engine."""

    OK = "ok"
    INVALID = "invalid"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    UNAVAILABLE = "unavailable"
    OVER_BUDGET = "over_budget"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an agent, as it is stored: the reply itself lies under its request's digest."""

    task: str
    prompt_digest: str
    engine: str
    model: str
    request_digest: str
    attempt: int
    """1, or 2 for the repair."""
    outcome: CallOutcome
    problem: str = ""
    replayed: bool = False
    """True when the stored reply was used and nothing was paid."""


class Answer(StrEnum):
    """What a text answers to a question about it."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    """The text does not say: MEDIC's "I don't know"."""


class Made(StrEnum):
    """Which of the two texts a question of the cross-examination was made from."""

    THREAD = "thread"
    CASE = "case"


@dataclass(frozen=True, slots=True)
class CrossQuestion:
    """A question that its own text answers with yes, and what both texts answered."""

    made_from: Made
    question: str
    own: Answer
    """What its own text answered when asked again: other than yes, the question measures little."""
    other: Answer


@dataclass(frozen=True, slots=True)
class CrossExamination:
    """The thread T and the written case N + A, each asked about the other (docs/method.md §5); all in percent."""

    questions: tuple[CrossQuestion, ...]
    coverage: float
    """100 - the share of the thread's questions on which the case is silent."""
    conformity: float
    """100 - the share of the thread's questions that the case answers with no."""
    conformity_strict: float
    """The same, where silence counts as no."""
    consistency: float
    """100 - the share of the case's questions on which the thread is silent: what is left is invention."""
    conciseness: float
    """By how much the case is shorter than the thread, in words; below 0 where it is longer."""
    summary: float
    """The mean of coverage, conformity, consistency, and the harmonic mean of coverage and conciseness or 0."""
    stability: float
    """The share of all questions that their own text answered with yes when asked again."""


@dataclass(frozen=True, slots=True)
class CaseText:
    """The triplet (N, Q, A) as released."""

    narrative: str
    query: str
    advice: str


@dataclass(frozen=True, slots=True)
class Curation:
    """Everything that was decided about one thread revision; nothing of it is thrown away."""

    outcome: Outcome
    stage: Stage
    """Where it ended; RUBRIC when kept."""
    reason: Reason | None
    """None only when kept."""
    detail: str
    thresholds: Thresholds
    elements: tuple[Element, ...] = ()
    query_category: ElyCategory | None = None
    s_cc: int | None = None
    s_inf: float | None = None
    s_align: float | None = None
    requirements: tuple[Requirement, ...] = ()
    claims: tuple[ClaimVerdict, ...] = ()
    index: IndexIdentity | None = None
    checks: tuple[ControllerCheck, ...] = ()
    text: CaseText | None = None
    cross_examination: CrossExamination | None = None
    """None when it was not reached, is switched off, or gave no usable reply."""
    calls: tuple[Call, ...] = ()
    engines: Mapping[str, Any] = field(default_factory=dict)
    """Agent → engine identity as JSON."""

    @property
    def publishable(self) -> bool:
        """Whether no agent was the rules engine."""
        return bool(self.engines) and all(e["engine"] != "rules" for e in self.engines.values())

    def side(self, side: Side) -> tuple[Element, ...]:
        """The elements of one side, in order."""
        return tuple(e for e in self.elements if e.side is side)
