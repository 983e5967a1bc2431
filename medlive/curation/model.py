"""The results of curation: elements, verdicts, checks, and the case.

Source: LiveMedBench §3.2; the points the paper leaves open are settled in docs/method.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from medlive.evidence.passage import Hit, IndexIdentity
from medlive.llm.ask import CallOutcome
from medlive.llm.engine import UNPUBLISHABLE_ENGINES


class Side(StrEnum):
    """Which part of the triplet (L_N, Q, L_A) an element belongs to."""

    NARRATIVE = "narrative"
    QUERY = "query"
    ADVICE = "advice"


Kind = Literal["subjective", "objective", "assessment", "plan", "question"]
"""The SOAP section of an element; "question" for the query."""
LeftOut = Literal["not_standard", "refuted", "advertising"]
"""Why an advice is in the thread and not in A (docs/method.md §1): it is in no passage, and not standard or not safe;
contradicted, and a person overruled the veto of the case; or it offers a service or a product."""
Stage = Literal["screener", "validator", "controller", "rubric"]
"""Where a thread's curation ended."""
Origin = Literal["thread", "case"]
"""The text that a question of the cross-examination was made from."""


class ElementStatus(StrEnum):
    """The status of an element after the checks and its revisions."""

    KEPT = "kept"
    DROPPED = "dropped"  # An unsupported narrative element, or one that the Screener withdrew: in no text
    UNSUPPORTED = "unsupported"  # An unsupported advice element or query: in the texts, and the case is held


@dataclass(frozen=True)
class Element:
    """An atomic statement with its quote."""

    id: str  # `n1`, `n2`, … in L_N; `q` for Q; `a1`, `a2`, … in L_A; assigned by code
    side: Side
    kind: Kind
    message_id: str  # The message of the quote, or "title"
    quote: str  # Verbatim words of that message
    statement: str  # The statement that stands alone
    status: ElementStatus = ElementStatus.KEPT
    left_out: LeftOut | None = None  # Why a dropped advice is not in A; else None


class Outcome(StrEnum):
    """The outcome of a thread."""

    KEPT = "kept"
    REJECTED = "rejected"
    PARKED = "parked"  # Rejected for want of evidence alone: waits for another library
    HELD = "held"  # Curated, and held for a person, for the reasons in `Curation.holds`
    FAILED = "failed"  # A failure of ours (endpoint, malformed reply): retried, never a rejection


class Reason(StrEnum):
    """Why a thread was rejected, parked, held or failed; each belongs to one stage."""

    NO_NARRATIVE = "no_narrative"
    NO_QUERY = "no_query"
    NO_ADVICE = "no_advice"
    QUERY_NOT_CLINICAL = "query_not_clinical"
    INSUFFICIENT_NARRATIVE = "insufficient_narrative"
    CONTRADICTED = "contradicted"
    NOT_ALIGNED = "not_aligned"
    # Nothing is left of the advice that a clinician would sign
    NO_SOUND_ADVICE = "no_sound_advice"
    NO_EVIDENCE = "no_evidence"  # Not aligned, and nothing on the subject was found
    DISPUTED = "disputed"  # The second check does not confirm a contradiction
    UNSUPPORTED_ELEMENT = "unsupported_element"  # The thread does not support an advice element or the query
    NOT_STANDARD = "not_standard"  # An advice in no passage, which the engine knows as not standard or not safe
    # N or A differs from the elements after every revision
    TEXT_UNFAITHFUL = "text_unfaithful"
    # The second reading finds no clinical question
    QUESTION_DOUBTED = "question_doubted"
    HISTORY_DOUBTED = "history_doubted"  # The second reading finds the history too thin for the question
    ADVICE_WRONG = "advice_wrong"  # The second reading finds an advice false
    # The second reading finds an advice harmful for this patient
    ADVICE_HARMFUL = "advice_harmful"
    # An advice depends on a picture or a report that the text does not hold
    NOT_TEXT_ONLY = "not_text_only"
    DAMAGED_TEXT = "damaged_text"  # A machine swapped or garbled words
    DANGER_UNANSWERED = "danger_unanswered"  # The second reading finds an alarming sign that no advice answers
    # The second reading finds no answer in the advice
    QUESTION_UNANSWERED = "question_unanswered"
    NOT_UNDERSTANDABLE = "not_understandable"  # The second reading finds the case incomprehensible by itself
    # A criterion forbids what the advice recommends, or what another asks for
    ADVICE_CONTRADICTED = "advice_contradicted"
    RUBRIC_FAULTY = "rubric_faulty"  # The rubric still has faults after its revision
    RUBRIC_UNPROVEN = (
        "rubric_unproven"  # The rubric does not tell good answers from bad ones
    )
    IDENTIFIER = "identifier"  # A text still identifies a person
    ENDPOINT_UNAVAILABLE = "endpoint_unavailable"
    INVALID_REPLY = "invalid_reply"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    BUDGET_SPENT = "budget_spent"


class ElyCategory(StrEnum):
    """Ely's taxonomy of clinical questions, top level (BMJ 2000;321:429), and what is not a clinical question."""

    DIAGNOSIS = "diagnosis"
    TREATMENT = "treatment"
    MANAGEMENT = "management"
    EPIDEMIOLOGY = "epidemiology"  # Includes prognosis and aetiology
    NONCLINICAL = "nonclinical"


class Alignment(StrEnum):
    """v(a_j): supported 1.0, contradicted 0.0, else 0.5 (LiveMedBench §3.2.2)."""

    SUPPORTED = "supported"
    NEUTRAL = "neutral"  # In no passage, but clinically standard and safe
    # In no passage, and not standard or not safe: the case is held
    NOT_STANDARD = "not_standard"
    # Contradicted, and the second check does not confirm it: the case is held
    DISPUTED = "disputed"
    CONTRADICTED = "contradicted"

    @property
    def value_of(self) -> float:
        """The number that enters S_align."""
        return {Alignment.SUPPORTED: 1.0, Alignment.CONTRADICTED: 0.0}.get(self, 0.5)


class Lack(StrEnum):
    """What a passage would have to say in addition to decide a claim for this patient."""

    DRUG = "drug"  # It speaks of another drug, test or cause
    SITUATION = "situation"  # Another indication or stage
    POPULATION = "population"  # Another age, sex, pregnancy or illness
    STRENGTH = "strength"  # It says less


@dataclass(frozen=True)
class Requirement:
    """An item of the minimal checklist derived from Q, and whether L_N entails it."""

    requirement: str
    present: bool
    # Narrative elements, or "q", that entail it; never empty when present
    element_ids: tuple[str, ...]
    prudent: bool = False  # Whether it is only good to know; not counted in S_inf


@dataclass(frozen=True)
class Citation:
    """Words of a passage that support a verdict."""

    passage_id: str
    quote: str  # Verbatim words of that passage


@dataclass(frozen=True)
class SecondCheck:
    """The second, differently worded check of a contradicted claim: two questions."""

    false_by_passage: bool  # Whether a passage states that the claim is false
    could_hurt: bool  # Whether a passage forbids it or calls it harmful
    citations: tuple[Citation, ...]  # Never empty when it is false
    harm_citations: tuple[Citation, ...]  # Never empty when it could hurt
    reason: str

    @property
    def goes_against(self) -> bool:
        """Whether it confirms the contradiction."""
        return self.false_by_passage or self.could_hurt


@dataclass(frozen=True)
class ClaimVerdict:
    """The verdict on one advice element, given the retrieved evidence."""

    element_id: str
    claim: str  # The element as a self-contained statement, which was judged
    # The searches: short English phrases, and the claim itself where it is not English
    queries: tuple[str, ...]
    verdict: Alignment
    hits: tuple[Hit, ...]  # The retrieved passages, best first
    # Support the verdict; empty only if neutral or not_standard
    citations: tuple[Citation, ...]
    reason: str
    second: SecondCheck | None = None  # None without a second check
    flag: str = ""  # A fault of the claim's numbers; empty if none
    on_subject: bool = True  # Whether a passage is on its disease, drug or procedure
    nearest: str | None = (
        None  # The nearest passage, among the hits; None: none is named
    )
    lacks: tuple[Lack, ...] = ()  # What the passages would have to say in addition


class Check(StrEnum):
    """The checks of elements and written texts (docs/method.md §1, Controller)."""

    QUOTE_IN_MESSAGE = "quote_in_message"  # Exact: the quote is in its message
    NUMBERS_AGREE = "numbers_agree"  # Exact: no number conflicts with its source
    SUSPICION = "suspicion"  # No longer made (decision 44); stored decisions hold it
    SUPPORTED = "supported"  # The engine's judgement: the statement or text says no more than its source
    SUPPORTED_AGAIN = "supported_again"  # Likewise: the second look at a suspicion
    WITHDRAWN = "withdrawn"  # The Screener withdrew the element when asked to revise it


@dataclass(frozen=True)
class ControllerCheck:
    """One check of an element, or of a written text ("narrative" or "advice")."""

    check: Check
    subject: str
    passed: bool  # False for every suspicion
    detail: str = ""
    round: int = 0  # 0 for the first version; 1 and 2 for its revisions


@dataclass(frozen=True)
class Hold:
    """A reason why a case waits for a person."""

    reason: Reason
    detail: str
    elements: tuple[
        str, ...
    ] = ()  # The advice elements or criteria concerned; empty for the case as a whole


class AdviceFault(StrEnum):
    """How an advice is wrong for its patient."""

    HARMFUL = "harmful"  # Following or believing it may hurt this patient
    FALSE = "false"  # It is wrong in what it mainly says
    MINOR = "minor"  # Imprecise, dated or over-cautious: recorded, and no reason to hold a case


@dataclass(frozen=True)
class FaultyAdvice:
    """An advice element that the second reading finds wrong."""

    element_id: str
    kind: AdviceFault
    reason: str
    standard: str = ""  # The medical standard that it offends, by name
    sure: bool = True  # Whether the reader is sure


class Soundness(StrEnum):
    """The third voice's verdict on an advice, or on what the advice does not say."""

    SOUND = "sound"
    WRONG = "wrong"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Voice:
    """The third voice's judgement of what one objection is about, unaware of the objection."""

    reason: Reason  # That of the objection
    element_id: str  # "" for the case as a whole
    verdict: Soundness
    sure: bool
    standard: str  # The medical standard that is offended, by name
    case_for: str  # What speaks for the advice or its silence
    case_against: str


@dataclass(frozen=True)
class SecondReading:
    """The second reader's judgement of the thread and the case as a whole."""

    asked: bool  # Whether the patient asks something
    clinical: bool  # Whether it is a clinical question
    enough: bool  # Whether the history is enough to answer it
    answered: bool  # Whether the advice answers the main thing asked
    understandable: bool  # Whether the case is comprehensible by itself
    wrong: tuple[FaultyAdvice, ...]
    danger: str  # An alarming sign that no advice answers; empty where there is none
    reason: str
    engine: Mapping[str, Any]  # The reader's engine, model and parameters
    sure: bool = True  # Of danger and of answered
    # Advice element → words of a physician who saw what the text does not hold
    unseen: Mapping[str, str] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()  # Words that a machine garbled
    voices: tuple[Voice, ...] = ()  # On what it objects to
    voices_note: str = ""
    """Why a voice does not count, or that it is the same model's; empty for nothing to say."""


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of a decision, stored with it (LiveMedBench §3.2.2: both 0.5, strictly exceeded)."""

    sufficiency: float = 0.5
    alignment: float = 0.5


@dataclass(frozen=True)
class Call:
    """One call of an agent as stored; the reply is stored under the request's digest."""

    task: str
    prompt_digest: str
    engine: str
    model: str
    request_digest: str
    attempt: int  # 1, or 2 for the repair
    outcome: CallOutcome
    problem: str = ""
    replayed: bool = False  # Whether a stored reply was used and nothing was paid


class Answer(StrEnum):
    """What a text answers to a question about it."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"  # The text does not say: MEDIC's "I don't know"


@dataclass(frozen=True)
class CrossQuestion:
    """A question that its own text answers with yes, and both texts' answers."""

    made_from: Origin
    question: str
    own: Answer  # The answer of its own text when asked again; other than yes, the question measures little
    other: Answer


@dataclass(frozen=True)
class CrossExamination:
    """The thread T and the written case N + A, each asked about the other (docs/method.md §5); all in percent."""

    questions: tuple[CrossQuestion, ...]
    # 100 - the share of the thread's questions on which the case is silent
    coverage: float
    # 100 - the share of the thread's questions that the case answers with no
    conformity: float
    conformity_strict: float  # The same, counting silence as no
    consistency: float  # 100 - the share of the case's questions on which the thread is silent: inventions
    conciseness: float  # How much shorter the case is than the thread, in words; negative if it is longer
    summary: float  # The mean of coverage, conformity, consistency, and coverage's balance with conciseness
    stability: float  # The share of all questions that their own text answered with yes when asked again


@dataclass(frozen=True)
class CaseText:
    """The triplet (N, Q, A) as released."""

    narrative: str
    query: str
    advice: str

    @property
    def question(self) -> str:
        """What a grader, and a judge of harm, see of the question."""
        return f"{self.narrative}\n\n{self.query}".strip()


@dataclass(frozen=True)
class Curation:
    """Every decision about one thread revision; all of it is stored."""

    outcome: Outcome = Outcome.FAILED
    stage: Stage = "screener"  # Where it ended; "rubric" when kept
    # None only when kept; that of the first hold when held
    reason: Reason | None = None
    detail: str = ""
    thresholds: Thresholds = field(default_factory=Thresholds)
    elements: tuple[Element, ...] = ()
    query_category: ElyCategory | None = None
    # The scores of V; None if not reached
    s_cc: int | None = None
    # Whether the right answer depends on when it was asked; None if not reached
    of_its_time: bool | None = None
    s_inf: float | None = None
    s_align: float | None = None
    # Whether a careful physician would answer; None if not reached
    answers_now: bool | None = None
    requirements: tuple[Requirement, ...] = ()
    claims: tuple[ClaimVerdict, ...] = ()
    index: IndexIdentity | None = None  # The library that was searched
    checks: tuple[ControllerCheck, ...] = ()
    text: CaseText | None = None
    # None if not reached, disabled, or without a usable reply
    cross_examination: CrossExamination | None = None
    second_reading: SecondReading | None = None  # None if not reached
    holds: tuple[Hold, ...] = ()  # Why a person must review it; empty unless held
    calls: tuple[Call, ...] = ()
    # Agent → engine identity as JSON
    engines: Mapping[str, Any] = field(default_factory=dict)
    overruled: tuple[
        Reason, ...
    ] = ()  # Reasons that a person overruled: the chain went on in spite of them

    @property
    def publishable(self) -> bool:
        """Whether every agent was a model: neither the rules engine nor a recording."""
        engines = [engine["engine"] for engine in self.engines.values()]
        return bool(engines) and UNPUBLISHABLE_ENGINES.isdisjoint(engines)

    def side(self, side: Side) -> tuple[Element, ...]:
        """The elements of one side that were not dropped, in order."""
        elements = []
        for element in self.elements:
            if element.side is side and element.status is not ElementStatus.DROPPED:
                elements.append(element)
        return tuple(elements)
