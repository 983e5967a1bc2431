"""The agents' tasks: what each is given and the shape its reply must have.

Inputs are plain JSON; replies are pydantic models, strict and closed, so that a reply which says too much
is as invalid as one that says too little. The lists are bounded: a reply of a thousand elements is no reply.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from medlive.curation.model import Alignment, Answer, ElyCategory

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
Quote = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
Reason = Annotated[str, StringConstraints(max_length=2000)]


class ReplyModel(BaseModel):
    """Base of every reply: no extra keys, no silent conversions, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NarrativeItem(ReplyModel):
    """A fact the patient states."""

    message_id: str
    quote: Quote
    statement: Text
    kind: Literal["subjective", "objective"]


class NarrativeReply(ReplyModel):
    """`screener.narrative`: L_N; empty when the patient states no clinical fact.

    Inputs: language, title, messages [{id, role "patient"|"physician", text}] (verified physicians only,
    given so that a bare "yes" can be understood; quotes come from patients' messages).
    """

    elements: Annotated[tuple[NarrativeItem, ...], Field(max_length=60, strict=False)]


class QueryItem(ReplyModel):
    """The question asked, explicit and self-contained."""

    message_id: str
    """A patient's message, or "title"."""
    quote: Quote
    question: Text


class QueryReply(ReplyModel):
    """`screener.query`: Q, or null when nothing medical is asked. Inputs as `screener.narrative`."""

    query: QueryItem | None


class AdviceItem(ReplyModel):
    """A diagnostic or management statement of a verified physician."""

    message_id: str
    quote: Quote
    statement: Text
    kind: Literal["assessment", "plan"]


class AdviceReply(ReplyModel):
    """`screener.advice`: L_A; empty when no verified physician advises. Inputs as `screener.narrative`;
    quotes come from physicians' messages."""

    elements: Annotated[tuple[AdviceItem, ...], Field(max_length=40, strict=False)]


class ComplaintReply(ReplyModel):
    """`validator.query`: S_cc. Inputs: language, query."""

    category: Annotated[ElyCategory, Field(strict=False)]
    meaningful: bool
    reason: Reason


class RequirementItem(ReplyModel):
    """One item of the minimal checklist."""

    requirement: Text
    present: bool
    element_ids: Annotated[tuple[str, ...], Field(max_length=20, strict=False)]


class SufficiencyReply(ReplyModel):
    """`validator.sufficiency`: the checklist that Q needs, each item marked.

    Inputs: language, query, narrative [{id, statement}]. The ratio is computed in code; fewer than three items are
    no checklist, since one that is met would pass anything.
    """

    items: Annotated[tuple[RequirementItem, ...], Field(min_length=3, max_length=15, strict=False)]


class ClaimItem(ReplyModel):
    """An advice element as a statement that stands alone."""

    id: str
    statement: Text


class ClaimsReply(ReplyModel):
    """`validator.claims`: each advice element as a statement that can be looked up by itself.

    Inputs: language, query, narrative [{id, statement}], advice [{id, kind, statement}]. One claim for each
    element, no more, no fewer.
    """

    claims: Annotated[tuple[ClaimItem, ...], Field(max_length=40, strict=False)]


class TranslationItem(ReplyModel):
    """A claim in English; empty when it cannot be translated."""

    id: str
    english: Annotated[str, StringConstraints(strip_whitespace=True, max_length=2000)]


class TranslationReply(ReplyModel):
    """`validator.translate`: claims in English, to search evidence in English with.

    Inputs: language, claims [{id, statement}]. One translation for each claim, no more, no fewer.
    """

    translations: Annotated[tuple[TranslationItem, ...], Field(max_length=40, strict=False)]


class CitationItem(ReplyModel):
    """A passage that was given, and words copied from it."""

    passage_id: str
    quote: Annotated[str, StringConstraints(max_length=2000)]


Citations = Annotated[tuple[CitationItem, ...], Field(max_length=10, strict=False)]


class AlignmentReply(ReplyModel):
    """`validator.alignment`: how a claim stands to the passages retrieved for it.

    Inputs: language, query, narrative [{id, statement}], claim {id, statement},
    passages [{id, title, text}]. `evidence` is empty only when neutral.
    """

    verdict: Annotated[Alignment, Field(strict=False)]
    evidence: Citations
    reason: Reason


class VetoReply(ReplyModel):
    """`validator.veto`: whether following the claim would go against the passages for this patient.

    Inputs as `validator.alignment`. A differently worded second look before a case is discarded.
    """

    goes_against: bool
    evidence: Citations
    reason: Reason


class SupportItem(ReplyModel):
    """Whether a statement says no more than its quote."""

    id: str
    supported: bool
    reason: Reason


class SupportReply(ReplyModel):
    """`controller.support`: one verdict for each element given, no more, no fewer.

    Inputs: language, elements [{id, statement, quote, context}] where context is the message before.
    """

    verdicts: Annotated[tuple[SupportItem, ...], Field(max_length=120, strict=False)]


class WriteReply(ReplyModel):
    """`controller.write`: N and A written from the kept elements.

    Inputs: language, query, narrative [{id, statement}], advice [{id, kind, statement}].
    """

    narrative: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20000)]
    advice: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20000)]


class QuestionsReply(ReplyModel):
    """`controller.questions`: questions that a text answers with yes.

    Inputs: language, count, text. At most `count` questions; fewer when the text holds no more.
    """

    questions: Annotated[
        tuple[Annotated[str, StringConstraints(strip_whitespace=True, min_length=4, max_length=500)], ...],
        Field(min_length=1, max_length=20, strict=False),
    ]


class AnswerItem(ReplyModel):
    """What a text answers to one question."""

    id: str
    answer: Annotated[Answer, Field(strict=False)]


class AnswersReply(ReplyModel):
    """`controller.answers`: what a text by itself answers. Inputs: language, text, questions [{id, question}].
    One answer for each question, no more, no fewer."""

    answers: Annotated[tuple[AnswerItem, ...], Field(max_length=40, strict=False)]
