"""The agents' tasks: what each is given and the shape its reply must have.

Inputs are plain JSON, the language first; replies are strict, closed pydantic models with bounded lists. A reply
about things that were given holds one item for each of them.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from medlive.curation.model import AdviceFault, Alignment, Answer, ElyCategory

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


class ReplyModel(BaseModel):
    """Base of every reply: no extra keys, no silent conversions, frozen."""

    task: ClassVar[str] = ""  # The task that it answers; "" for a part of a reply
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


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
    narrative: Annotated[tuple[NarrativeItem, ...], Field(max_length=60, strict=False)]
    query: QueryItem | None
    advice: Annotated[tuple[AdviceItem, ...], Field(max_length=40, strict=False)]


class ComplaintReply(ReplyModel):
    """S_cc. Inputs: query."""

    task: ClassVar = "validator.query"
    category: Annotated[ElyCategory, Field(strict=False)]
    meaningful: bool
    reason: Reason


class RevisedItem(ReplyModel):
    """An element that was sent back: mended, or taken back where nothing of it can be kept."""

    id: str
    keep: bool
    message_id: str
    quote: Annotated[str, StringConstraints(max_length=2000)]
    statement: Annotated[str, StringConstraints(strip_whitespace=True, max_length=2000)]

    @model_validator(mode="after")
    def _whole(self) -> "RevisedItem":
        if self.keep and not (self.quote.strip() and self.statement):
            raise ValueError(
                f"{self.id}: an element that is kept needs a quote and a statement"
            )
        return self


class RevisionReply(ReplyModel):
    """The elements that a control objected to, each mended or taken back.

    Inputs: as `screener.extract`, and elements [{id, side, message_id, quote, statement, finding}].
    """

    task: ClassVar = "screener.revise"
    elements: Annotated[tuple[RevisedItem, ...], Field(max_length=120, strict=False)]


class RequirementItem(ReplyModel):
    """One item of the checklist."""

    requirement: Text
    present: bool
    element_ids: Annotated[
        tuple[str, ...], Field(max_length=20, strict=False)
    ]  # "q": the query itself says it


class SufficiencyReply(ReplyModel):
    """What the question cannot be answered without, and what would be prudent to know.

    Inputs: query, narrative [{id, statement}]. Code computes the ratio from `required` alone; fewer than three
    items are no checklist.
    """

    task: ClassVar = "validator.sufficiency"
    consult: Reason  # Whether a physician would answer now or ask back first: thought through before the lists
    required: Annotated[
        tuple[RequirementItem, ...], Field(min_length=3, max_length=6, strict=False)
    ]
    prudent: Annotated[tuple[RequirementItem, ...], Field(max_length=6, strict=False)]


class ClaimItem(ReplyModel):
    """An advice element as a statement that stands alone, and what to search the literature for."""

    id: str
    statement: Text
    queries: Annotated[
        tuple[SearchPhrase, ...], Field(min_length=2, max_length=4, strict=False)
    ]  # English
    advertising: bool = False  # It offers a service or a product, and advises nothing


class ClaimsReply(ReplyModel):
    """Each advice element as a statement that can be looked up by itself.

    Inputs: query, narrative [{id, statement}], advice [{id, kind, statement}].
    """

    task: ClassVar = "validator.claims"
    claims: Annotated[tuple[ClaimItem, ...], Field(max_length=40, strict=False)]


class CitationItem(ReplyModel):
    """A passage that was given, and sentences copied from it."""

    passage_id: str
    quotes: Annotated[
        tuple[Quote, ...], Field(min_length=1, max_length=3, strict=False)
    ]


Citations = Annotated[tuple[CitationItem, ...], Field(max_length=10, strict=False)]


class AlignmentItem(ReplyModel):
    """How one claim stands to the passages."""

    id: str
    verdict: Annotated[Alignment, Field(strict=False)]
    evidence: Citations  # Empty only when neutral or not_standard
    reason: Reason


class AlignmentReply(ReplyModel):
    """How claims stand to the passages that were retrieved for them.

    Inputs: query, narrative [{id, statement}], claims [{id, statement}], passages [{id, title, text}].
    """

    task: ClassVar = "validator.alignment"
    verdicts: Annotated[tuple[AlignmentItem, ...], Field(max_length=40, strict=False)]


class VetoItem(ReplyModel):
    """Whether following one claim would go against the passages for this patient."""

    id: str
    goes_against: bool
    evidence: Citations
    reason: Reason


class VetoReply(ReplyModel):
    """A differently worded second look before contradicted claims discard a case; inputs as for alignment."""

    task: ClassVar = "validator.veto"
    verdicts: Annotated[tuple[VetoItem, ...], Field(max_length=40, strict=False)]


class SupportItem(ReplyModel):
    """Whether a statement says no more than its quote, read within its message."""

    id: str
    supported: bool
    reason: Reason


class SupportReply(ReplyModel):
    """Whether each element is supported.

    Inputs: title, messages [{id, role, text}], elements [{id, message_id, quote, statement}].
    """

    task: ClassVar = "controller.support"
    verdicts: Annotated[tuple[SupportItem, ...], Field(max_length=120, strict=False)]


class DoubtItem(ReplyModel):
    """What somebody who has only the statement would believe or do otherwise than the source says."""

    id: str
    difference: Reason  # Empty where there is none that matters


class DoubtReply(ReplyModel):
    """A differently worded second look at statements under suspicion.

    Inputs: sources [{id, text}], statements [{id, statement, quote, source_id, suspicions}].
    """

    task: ClassVar = "controller.doubt"
    items: Annotated[tuple[DoubtItem, ...], Field(max_length=120, strict=False)]


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
    answer: Annotated[Answer, Field(strict=False)]


class AnswersReply(ReplyModel):
    """What a text by itself answers. Inputs: text, questions [{id, question}]."""

    task: ClassVar = "controller.answers"
    answers: Annotated[tuple[AnswerItem, ...], Field(max_length=40, strict=False)]


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
    problems: Annotated[tuple[TextProblem, ...], Field(max_length=40, strict=False)]
    missing: Annotated[
        tuple[str, ...], Field(max_length=120, strict=False)
    ]  # Elements that the texts leave out


class WrongAdviceItem(ReplyModel):
    """An advice element that is not right for this patient."""

    id: str
    kind: Annotated[AdviceFault, Field(strict=False)]
    reason: Reason


class CaseReply(ReplyModel):
    """The second reading of thread and case as a whole, by the reader's own knowledge.

    Inputs: title, messages [{id, role, text}], case {narrative, query, advice}, advice [{id, statement}].
    """

    task: ClassVar = "reader.case"
    asked: bool
    clinical: bool
    enough: bool
    answered: bool
    wrong: Annotated[tuple[WrongAdviceItem, ...], Field(max_length=40, strict=False)]
    danger: Reason  # An alarming sign that no advice answers; empty where there is none
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
    found: Annotated[tuple[IdentifierItem, ...], Field(max_length=40, strict=False)]
