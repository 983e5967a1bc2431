"""The agents' tasks: what each is given and the shape its reply must have.

Inputs are plain JSON, the language first; replies are strict, closed pydantic models with bounded lists. An
`EachItem` is one item of a reply that has one for each thing in the inputs.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints, model_validator

from medlive.llm.ask import (
    AtMost6,
    AtMost10,
    AtMost20,
    AtMost40,
    AtMost60,
    AtMost120,
    EachItem,
    Loose,
    ReplyModel,
)

from .model import (
    AdviceFault,
    Alignment,
    Answer,
    ElyCategory,
    Soundness,
)
from .model import Lack as LackKind

# Bounded texts of replies
Text = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)
]
Quote = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
Reason = Annotated[str, StringConstraints(max_length=2000)]
SearchPhrase = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=2, max_length=120)
]
Question = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=4, max_length=500)
]
Written = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20000)
]


class NarrativeItem(ReplyModel):
    """A fact the patient states."""

    message_id: str  # A patient's message, or "title"
    quote: Quote
    statement: Text
    kind: Literal["subjective", "objective"]


class QueryItem(ReplyModel):
    """The question asked, explicit and self-contained."""

    message_id: str  # A patient's message, or "title"
    quote: Quote
    question: Text


class AdviceItem(ReplyModel):
    """A diagnostic or management statement of a verified physician."""

    message_id: str  # A verified physician's message
    quote: Quote
    statement: Text
    kind: Literal["assessment", "plan"]


class ExtractReply(ReplyModel):
    """L_N, Q and L_A; a side is empty, or null, where the thread holds nothing of it.

    Inputs: title, messages [{id, role "patient"|"physician", text}], of patients and verified physicians only.
    """

    task: ClassVar = "screener.extract"
    narrative: AtMost60[NarrativeItem]
    query: QueryItem | None
    advice: AtMost40[AdviceItem]


class ComplaintReply(ReplyModel):
    """Whether the query is a meaningful clinical question (S_cc). Inputs: query."""

    task: ClassVar = "validator.query"
    category: Loose[ElyCategory]
    meaningful: bool
    of_its_time: bool  # Whether the right answer depends on when it was asked
    reason: Reason


class RevisedItem(EachItem):
    """An element that a control objected to: mended, or taken back where nothing of it can be kept.

    Inputs: as `screener.extract`, and elements [{id, side, message_id, quote, statement, finding}].
    """

    task: ClassVar = "screener.revise"
    each: ClassVar = "elements"
    most: ClassVar = 120
    keep: bool
    message_id: str
    quote: Annotated[str, StringConstraints(max_length=2000)]
    statement: Annotated[str, StringConstraints(strip_whitespace=True, max_length=2000)]

    @model_validator(mode="after")
    def _whole(self) -> "RevisedItem":
        """Refuse an element that is kept without quote or statement."""
        if self.keep and not (self.quote.strip() and self.statement):
            raise ValueError(
                f"{self.id}: an element that is kept needs a quote and a statement"
            )
        return self


class RequirementItem(ReplyModel):
    """One item of the checklist."""

    requirement: Text
    present: bool
    # "q": the query itself says it
    element_ids: AtMost20[str]


class SufficiencyReply(ReplyModel):
    """What the question cannot be answered without, and what would be prudent to know.

    Inputs: query, narrative [{id, statement}]. Code computes the ratio from `required` alone; none is enough.
    """

    task: ClassVar = "validator.sufficiency"
    consult: Reason  # Whether a physician would answer now or ask back first: thought through before the lists
    answers_now: bool
    required: AtMost6[RequirementItem]
    prudent: AtMost6[RequirementItem]


class ClaimItem(EachItem):
    """An advice element as a statement that can be looked up by itself, and what to search the literature for.

    Inputs: query, narrative [{id, statement}], advice [{id, kind, statement}].
    """

    task: ClassVar = "validator.claims"
    each: ClassVar = "claims"
    statement: Text
    queries: Annotated[
        tuple[SearchPhrase, ...], Field(min_length=2, max_length=4, strict=False)
    ]  # English
    advertising: bool = False  # It offers a service or a product, and advises nothing


class CitationItem(ReplyModel):
    """A passage that was given, and sentences copied from it."""

    passage_id: str
    quotes: Annotated[
        tuple[Quote, ...], Field(min_length=1, max_length=3, strict=False)
    ]


Citations = AtMost10[CitationItem]


Lack = Loose[LackKind]

# DISPUTED is for code, after the second check.
FirstVerdict = Literal[
    Alignment.SUPPORTED,
    Alignment.NEUTRAL,
    Alignment.NOT_STANDARD,
    Alignment.CONTRADICTED,
]


class AlignmentItem(EachItem):
    """The verdict on one claim by the passages that were retrieved for all claims.

    Inputs: query, narrative [{id, statement}], claims [{id, statement}], passages [{id, title, text}].
    """

    task: ClassVar = "validator.alignment"
    verdict: FirstVerdict
    evidence: Citations  # Empty only when neutral or not_standard
    reason: Reason
    # What the passages would have to say in addition
    lacks: Annotated[tuple[Lack, ...], Field(max_length=4, strict=False)] = ()
    on_subject: bool | None = (
        None  # Whether any passage is on the claim's disease, drug or procedure
    )
    nearest: str | None = None  # The passage nearest to that subject


class VetoItem(EachItem):
    """Whether one claim is false by the passages, and whether it could hurt this patient.

    A differently worded second look before contradicted claims discard a case; inputs as for alignment.
    """

    task: ClassVar = "validator.veto"
    false_by_passage: bool
    evidence: Citations  # That it is false
    could_hurt: bool
    harm_evidence: Citations  # That it could hurt
    reason: Reason


class SoundnessItem(EachItem):
    """The third voice, unaware of objections: whether an advice, or its silence on something, is sound.

    Inputs: month where it matters, query, narrative [{id, statement}], passages [{id, title, text}], items [{id,
    kind advice|unsaid, text}].
    """

    task: ClassVar = "validator.soundness"
    case_for: Reason
    case_against: Reason
    verdict: Loose[Soundness]
    sure: bool
    standard: Reason


class SupportItem(EachItem):
    """Whether a statement says no more than its quote, read within its message.

    Inputs: title, messages [{id, role, text}], elements [{id, message_id, quote, statement}].
    """

    task: ClassVar = "controller.support"
    most: ClassVar = 120
    supported: bool
    reason: Reason


class WriteReply(ReplyModel):
    """N and A written from the kept elements.

    Inputs: query, narrative [{id, statement}], advice [{id, kind, statement}], and on a revision `earlier`
    {narrative, advice} with `findings` [str].
    """

    task: ClassVar = "controller.write"
    narrative: Written
    advice: Written


class QuestionsReply(ReplyModel):
    """At most `count` questions that a text answers with yes. Inputs: count, text."""

    task: ClassVar = "controller.questions"
    questions: Annotated[
        tuple[Question, ...], Field(min_length=1, max_length=20, strict=False)
    ]


class AnswerItem(ReplyModel):
    """What a text answers to one question."""

    id: str
    answer: Loose[Answer]


class AnswersReply(ReplyModel):
    """What a text by itself answers. Inputs: text, questions [{id, question}]."""

    task: ClassVar = "controller.answers"
    answers: AtMost40[AnswerItem]


class TextProblem(ReplyModel):
    """Words of a written text that its elements do not bear out."""

    text: Literal["narrative", "advice"]
    words: Quote  # Copied from that text
    problem: Reason


class TextReply(ReplyModel):
    """Whether N and A say what their elements say, no more and no less.

    Inputs: query, narrative {elements, text}, advice {elements, text} with elements [{id, statement, quote}].
    """

    task: ClassVar = "reader.text"
    problems: AtMost40[TextProblem]
    # Elements that the texts leave out
    missing: AtMost120[str]


class WrongAdviceItem(ReplyModel):
    """An advice element that is not right for this patient."""

    id: str
    kind: Loose[AdviceFault]
    reason: Reason
    standard: Reason = ""  # What it offends, by name
    sure: bool


class BroughtItem(ReplyModel):
    """A complaint, finding or worry that the patient comes with."""

    what: Text
    leading: bool  # What brought them, or what they ask about by name
    by: str  # The advice element that takes it up; "" if none


class UnseenItem(ReplyModel):
    """An advice element that depends on a picture or report whose content no message states."""

    id: str
    quote: Quote  # Of a message


class CaseReply(ReplyModel):
    """The second reading of thread and case as a whole, by the reader's own knowledge.

    Inputs: month where the medicine of that time matters, title, messages [{id, role, text}], case {narrative, query,
    advice}, advice [{id, statement}].
    """

    task: ClassVar = "reader.case"
    # What the patient brings, thought through before the answers; a reply may lack it.
    brought: AtMost20[BroughtItem] = ()
    asked: bool
    clinical: bool
    enough: bool
    answered: bool
    wrong: AtMost40[WrongAdviceItem]
    danger: Reason  # An alarming sign that no advice answers; empty where there is none
    sure: bool  # Of danger and of answered
    unseen: AtMost40[UnseenItem]
    # Words that a machine garbled
    damaged: AtMost10[Quote]
    understandable: bool
    reason: Reason


class IdentifierItem(ReplyModel):
    """Words that name a person or lead to one."""

    text_id: str
    words: Quote  # Copied from that text
    kind: Literal["name", "place", "contact", "number", "date_of_birth", "other"]


class IdentifiersReply(ReplyModel):
    """What in the texts of a release would name a person or lead to one. Inputs: texts [{id, text}]."""

    task: ClassVar = "reader.identifiers"
    found: AtMost40[IdentifierItem]
