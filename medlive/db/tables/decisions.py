"""Tables of what is decided about a thread revision: filters, replies, curations and their parts."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    ARRAY,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Numeric,
    SmallInteger,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from medlive.curation.model import (
    Alignment,
    Answer,
    Check,
    ElementStatus,
    ElyCategory,
    Kind,
    Origin,
    Outcome,
    Reason,
    Side,
    Stage,
)
from medlive.db.tables.base import AnyText, Base, enum_column, is_digest, now_column, one_of
from medlive.llm.ask import CallOutcome
from medlive.llm.engine import Finish


class FilterResultRow(Base):
    """What the filter chain made of a revision."""

    __tablename__ = "filter_results"
    __table_args__ = (
        is_digest("chain_digest"),
        CheckConstraint("passed = (rejected_by IS NULL)", name="rejected_by_a_rule"),
        CheckConstraint("passed = (reason IS NULL)", name="rejected_with_reason"),
        {"comment": "Results of the filter chain: one a revision and chain"},
    )

    revision_id: Mapped[int] = mapped_column(
        ForeignKey("thread_revisions.id"), primary_key=True, comment="The revision"
    )
    chain_digest: Mapped[str] = mapped_column(primary_key=True, comment="The chain's rules and settings")
    passed: Mapped[bool] = mapped_column(comment="Whether every rule passed")
    rejected_by: Mapped[str | None] = mapped_column(comment="The first rule that failed")
    reason: Mapped[str | None] = mapped_column(comment="That rule's reason")
    decided_at: Mapped[datetime] = now_column("When it was decided")


class FilterVerdictRow(Base):
    """One rule's verdict."""

    __tablename__ = "filter_verdicts"
    __table_args__ = (
        ForeignKeyConstraint(
            ["revision_id", "chain_digest"], ["filter_results.revision_id", "filter_results.chain_digest"]
        ),
        CheckConstraint("passed = (reason IS NULL)", name="rejected_with_reason"),
        CheckConstraint("position >= 1", name="position_positive"),
        {"comment": "The verdict of every filter rule, passed or not, so that funnels add up"},
    )

    revision_id: Mapped[int] = mapped_column(primary_key=True, comment="The revision")
    chain_digest: Mapped[str] = mapped_column(primary_key=True, comment="The chain's rules and settings")
    rule: Mapped[str] = mapped_column(primary_key=True, comment="The rule's name")
    position: Mapped[int] = mapped_column(SmallInteger, comment="The rule's place in the chain, from 1")
    passed: Mapped[bool] = mapped_column(comment="Whether the rule passed")
    reason: Mapped[str | None] = mapped_column(comment="Why it failed")
    evidence: Mapped[dict[str, Any]] = mapped_column(server_default="{}", comment="What the verdict rests on")


class PromptRow(Base):
    """A task's instructions."""

    __tablename__ = "prompts"
    __table_args__ = (
        is_digest("digest"),
        {"comment": "The instructions that engines were given; rows are never changed"},
    )

    digest: Mapped[str] = mapped_column(primary_key=True, comment="The digest of the text")
    task: Mapped[str] = mapped_column(comment="The task it was first used for")
    text: Mapped[str] = mapped_column(comment="The instructions")
    created_at: Mapped[datetime] = now_column("When it was first used")


class ReplyRow(Base):
    """What an engine answered to one request."""

    __tablename__ = "replies"
    __table_args__ = (
        is_digest("request_digest"),
        is_digest("schema_digest"),
        one_of("finish", Finish),
        CheckConstraint("input_tokens >= 0 AND cached_tokens >= 0 AND output_tokens >= 0", name="tokens"),
        CheckConstraint("cost_usd >= 0", name="cost_not_negative"),
        CheckConstraint("latency_ms >= 0", name="latency_not_negative"),
        CheckConstraint("repair IS NULL OR jsonb_array_length(repair) = 2", name="repair_is_pair"),
        CheckConstraint("round >= 0", name="round_not_negative"),
        Index(None, "task", "created_at"),
        {"comment": "Replies of engines under their request's digest, so that none is paid for twice"},
    )

    request_digest: Mapped[str] = mapped_column(
        primary_key=True, comment="Task, prompt, schema, inputs, repair, engine, model and parameters"
    )
    task: Mapped[str] = mapped_column(comment="The task, <agent>.<what>")
    prompt_digest: Mapped[str] = mapped_column(ForeignKey("prompts.digest"), comment="Its instructions")
    engine: Mapped[str] = mapped_column(comment="The engine: rules or openai")
    model: Mapped[str] = mapped_column(comment="The pinned model id that was asked")
    parameters: Mapped[dict[str, Any]] = mapped_column(comment="The engine's parameters")
    inputs: Mapped[dict[str, Any]] = mapped_column(comment="The inputs: text of threads is only here")
    schema_digest: Mapped[str] = mapped_column(comment="The digest of the reply's JSON schema")
    repair: Mapped[list[Any] | None] = mapped_column(
        comment="On a second attempt: the raw first reply and what was wrong with it"
    )
    round: Mapped[int] = mapped_column(
        SmallInteger, server_default="0", comment="How often stored unusable replies were stepped over before"
    )
    text: Mapped[str] = mapped_column(comment="The reply, untouched")
    finish: Mapped[Finish] = enum_column(Finish, comment="Why the engine stopped: stop, length or refusal")
    reply_model: Mapped[str] = mapped_column(comment="The model as the endpoint named it")
    input_tokens: Mapped[int] = mapped_column(comment="Tokens read")
    cached_tokens: Mapped[int] = mapped_column(comment="Of these, tokens from the endpoint's cache")
    output_tokens: Mapped[int] = mapped_column(comment="Tokens written")
    cost_usd: Mapped[float | None] = mapped_column(
        Numeric(asdecimal=False), comment="The price in US dollars; NULL: unknown, not free"
    )
    latency_ms: Mapped[float] = mapped_column(comment="How long the reply took, in milliseconds")
    created_at: Mapped[datetime] = now_column("When it was stored")


_FAILURES = "('endpoint_unavailable', 'invalid_reply', 'refused', 'truncated', 'budget_spent')"
_PASSES = (
    "s_cc = 1 AND s_inf > threshold_sufficiency AND s_align > threshold_alignment "
    "AND index_digest IS NOT NULL AND narrative IS NOT NULL"
)


class EvidenceIndexRow(Base):
    """An index that verdicts were made with."""

    __tablename__ = "evidence_indexes"
    __table_args__ = (
        CheckConstraint("passages >= 0", name="passages_not_negative"),
        {"comment": "Evidence indexes that curations used"},
    )

    digest: Mapped[str] = mapped_column(primary_key=True, comment="The index's digest")
    retriever: Mapped[str] = mapped_column(comment="The kind of retriever, e.g. bm25")
    corpora: Mapped[dict[str, Any]] = mapped_column(comment="Corpus name to corpus digest")
    passages: Mapped[int] = mapped_column(comment="How many passages it holds")
    dense: Mapped[dict[str, Any] | None] = mapped_column(
        comment="Its dense side: encoder, kind, parameters, recall; NULL: it has none"
    )
    first_used_at: Mapped[datetime] = now_column("When a curation first used it")


class CurationRow(Base):
    """What the agents decided about a revision."""

    __tablename__ = "curations"
    __table_args__ = (
        one_of("outcome", Outcome),
        one_of("stage", Stage),
        one_of("reason", Reason),
        one_of("query_category", ElyCategory),
        is_digest("pipeline_digest"),
        CheckConstraint("attempt >= 1", name="attempt_positive"),
        CheckConstraint("(outcome = 'kept') = (reason IS NULL)", name="kept_has_no_reason"),
        CheckConstraint(
            f"reason IS NULL OR (outcome = 'failed') = (reason IN {_FAILURES})", name="failure_is_no_rejection"
        ),
        CheckConstraint(f"outcome NOT IN ('kept', 'held') OR ({_PASSES}) IS TRUE", name="kept_passed"),
        CheckConstraint("outcome NOT IN ('kept', 'held') OR stage = 'rubric'", name="kept_at_the_end"),
        CheckConstraint("s_cc IN (0, 1)", name="s_cc_range"),
        CheckConstraint("s_inf BETWEEN 0 AND 1", name="s_inf_range"),
        CheckConstraint("s_align BETWEEN 0 AND 1", name="s_align_range"),
        CheckConstraint(
            "threshold_sufficiency BETWEEN 0 AND 1 AND threshold_alignment BETWEEN 0 AND 1", name="threshold_range"
        ),
        CheckConstraint("num_nonnulls(narrative, query, advice) IN (0, 3)", name="text_whole"),
        CheckConstraint("finished_at >= started_at", name="in_order"),
        Index(None, "revision_id", "pipeline_digest", "attempt", unique=True),
        Index(
            "uq_curations_decided",
            "revision_id",
            "pipeline_digest",
            unique=True,
            postgresql_where=text("outcome <> 'failed'"),
        ),
        {"comment": "Decisions about thread revisions, one row an attempt; rows are never changed"},
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="The curation's number")
    revision_id: Mapped[int] = mapped_column(ForeignKey("thread_revisions.id"), comment="The revision")
    pipeline_digest: Mapped[str] = mapped_column(
        comment="Engines, prompts, evidence and settings: what a decision depends on besides the thread"
    )
    attempt: Mapped[int] = mapped_column(comment="From 1; only a failed attempt is followed by another")
    outcome: Mapped[Outcome] = enum_column(Outcome, comment="kept, rejected, held or failed")
    stage: Mapped[Stage] = enum_column(Stage, comment="Where it ended")
    reason: Mapped[Reason | None] = enum_column(Reason, nullable=True, comment="Why; NULL exactly when kept")
    detail: Mapped[str] = mapped_column(comment="The reason in words")
    threshold_sufficiency: Mapped[float] = mapped_column(comment="S_inf had to exceed this")
    threshold_alignment: Mapped[float] = mapped_column(comment="S_align had to exceed this")
    query_category: Mapped[ElyCategory | None] = enum_column(
        ElyCategory, nullable=True, comment="The question's kind in Ely's taxonomy; NULL: not judged"
    )
    s_cc: Mapped[int | None] = mapped_column(SmallInteger, comment="Clinical meaningfulness; NULL: not judged")
    s_inf: Mapped[float | None] = mapped_column(comment="Sufficiency of the narrative; NULL: not judged")
    s_align: Mapped[float | None] = mapped_column(comment="Alignment with evidence; NULL: not judged")
    index_digest: Mapped[str | None] = mapped_column(
        ForeignKey("evidence_indexes.digest"), comment="The evidence index; NULL: none was asked"
    )
    narrative: Mapped[str | None] = mapped_column(comment="N as written; NULL: it was not")
    query: Mapped[str | None] = mapped_column(comment="Q as released; NULL: the texts were not written")
    advice: Mapped[str | None] = mapped_column(comment="A as written; NULL: it was not")
    engines: Mapped[dict[str, Any]] = mapped_column(comment="Agent to its engine, model and parameters")
    started_at: Mapped[datetime] = mapped_column(comment="When the attempt began")
    finished_at: Mapped[datetime] = mapped_column(comment="When it ended")


_CURATION = "The curation"


class AgentCallRow(Base):
    """One call of an agent."""

    __tablename__ = "agent_calls"
    __table_args__ = (
        one_of("outcome", CallOutcome),
        is_digest("request_digest"),
        CheckConstraint("attempt IN (1, 2)", name="attempt_range"),
        CheckConstraint("reply_digest = request_digest", name="reply_answers_request"),
        CheckConstraint(
            "(outcome IN ('unavailable', 'over_budget')) = (reply_digest IS NULL)", name="answer_is_kept"
        ),
        Index(None, "reply_digest"),
        {"comment": "Calls of the agents, in order; rows are never changed"},
    )

    curation_id: Mapped[int] = mapped_column(ForeignKey("curations.id"), primary_key=True, comment=_CURATION)
    position: Mapped[int] = mapped_column(primary_key=True, comment="The call's place, from 1")
    task: Mapped[str] = mapped_column(comment="The task")
    prompt_digest: Mapped[str] = mapped_column(comment="Its instructions; in prompts when it was answered")
    engine: Mapped[str] = mapped_column(comment="The engine asked")
    model: Mapped[str] = mapped_column(comment="The model asked")
    request_digest: Mapped[str] = mapped_column(comment="The request's digest, answered or not")
    reply_digest: Mapped[str | None] = mapped_column(
        ForeignKey("replies.request_digest"), comment="The stored reply; NULL exactly when there was none"
    )
    attempt: Mapped[int] = mapped_column(SmallInteger, comment="1, or 2 for the repair")
    outcome: Mapped[CallOutcome] = enum_column(CallOutcome, comment="What became of it")
    problem: Mapped[str] = mapped_column(comment="What was wrong; empty when nothing was")
    replayed: Mapped[bool] = mapped_column(comment="Whether the stored reply was used and nothing was paid")


class ElementRow(Base):
    """An atomic statement of L_N, Q or L_A."""

    __tablename__ = "elements"
    __table_args__ = (
        one_of("side", Side),
        one_of("kind", Kind),
        one_of("standing", ElementStatus),
        CheckConstraint("quote <> ''", name="quote_not_empty"),
        {"comment": "Statements the Screener took from threads, with their words"},
    )

    curation_id: Mapped[int] = mapped_column(ForeignKey("curations.id"), primary_key=True, comment=_CURATION)
    element_id: Mapped[str] = mapped_column(primary_key=True, comment="n1, n2, …, q, a1, a2, …")
    position: Mapped[int] = mapped_column(comment="Its place among all, from 1")
    side: Mapped[Side] = enum_column(Side, comment="narrative, query or advice")
    kind: Mapped[Kind] = enum_column(Kind, comment="The SOAP section")
    message_id: Mapped[str] = mapped_column(comment="The message its quote stands in, or title")
    quote: Mapped[str] = mapped_column(comment="Verbatim words of that message")
    statement: Mapped[str] = mapped_column(comment="The statement that stands alone")
    standing: Mapped[ElementStatus] = enum_column(
        ElementStatus, comment="kept, dropped (in no text) or unsupported (in the texts, and the case is held)"
    )


class RequirementRow(Base):
    """An item of the checklist that Q needs."""

    __tablename__ = "requirements"
    __table_args__ = (
        CheckConstraint("NOT present OR cardinality(element_ids) > 0", name="present_has_elements"),
        {"comment": "The Validator's checklists, item by item"},
    )

    curation_id: Mapped[int] = mapped_column(ForeignKey("curations.id"), primary_key=True, comment=_CURATION)
    position: Mapped[int] = mapped_column(primary_key=True, comment="The item's place, from 1")
    requirement: Mapped[str] = mapped_column(comment="What a physician needs to know")
    present: Mapped[bool] = mapped_column(comment="Whether the narrative entails it")
    element_ids: Mapped[list[str]] = mapped_column(
        ARRAY(AnyText), comment="The elements that entail it; q for the query"
    )
    prudent: Mapped[bool] = mapped_column(comment="Whether it is only good to know, and not counted in S_inf")


class PassageRow(Base):
    """A piece of evidence as it was retrieved."""

    __tablename__ = "passages"
    __table_args__ = (
        is_digest("key"),
        is_digest("digest"),
        {"comment": "Passages that were retrieved for a claim; rows are never changed"},
    )

    key: Mapped[str] = mapped_column(primary_key=True, comment="The digest of the whole row")
    digest: Mapped[str] = mapped_column(comment="The digest of title, section and text")
    passage_id: Mapped[str] = mapped_column(comment="<corpus>:<document>:<section>")
    corpus: Mapped[str] = mapped_column(comment="The corpus it is from")
    title: Mapped[str] = mapped_column(comment="The document's title")
    section: Mapped[str] = mapped_column(comment="The section's heading")
    text: Mapped[str] = mapped_column(comment="The passage")
    language: Mapped[str] = mapped_column(comment="The passage's language")
    published: Mapped[date | None] = mapped_column(comment="When it was published; NULL: unknown")
    url: Mapped[str] = mapped_column(comment="Where the document is")
    licence: Mapped[str] = mapped_column(comment="Its licence")


class ClaimVerdictRow(Base):
    """How an advice element stands to the evidence."""

    __tablename__ = "claim_verdicts"
    __table_args__ = (
        ForeignKeyConstraint(["curation_id", "element_id"], ["elements.curation_id", "elements.element_id"]),
        one_of("verdict", Alignment),
        CheckConstraint(
            "value = CASE verdict WHEN 'supported' THEN 1.0 WHEN 'contradicted' THEN 0.0 ELSE 0.5 END",
            name="value_of_verdict",
        ),
        CheckConstraint("verdict IN ('neutral', 'not_standard') OR cited > 0", name="verdict_has_quote"),
        CheckConstraint("cardinality(queries) > 0", name="queries_asked"),
        CheckConstraint("(second_goes_against IS NULL) = (second_reason IS NULL)", name="second_check_whole"),
        CheckConstraint(
            "second_goes_against IS NULL OR verdict = CASE WHEN second_goes_against THEN 'contradicted' "
            "ELSE 'neutral' END",
            name="second_check_decides",
        ),
        {"comment": "The Validator's verdicts on advice elements"},
    )

    curation_id: Mapped[int] = mapped_column(primary_key=True, comment=_CURATION)
    element_id: Mapped[str] = mapped_column(primary_key=True, comment="The advice element")
    position: Mapped[int] = mapped_column(comment="Its place among the claims, from 1")
    verdict: Mapped[Alignment] = enum_column(Alignment, comment="supported, neutral, not_standard or contradicted")
    value: Mapped[Decimal] = mapped_column(Numeric(2, 1), comment="v(a_j): 1.0, 0.5 or 0.0")
    claim: Mapped[str] = mapped_column(comment="The element as a statement that stands alone: what was judged")
    queries: Mapped[list[str]] = mapped_column(
        ARRAY(AnyText), comment="The phrases that evidence was searched for"
    )
    flag: Mapped[str] = mapped_column(comment="What code doubts of the claim's wording; empty for nothing")
    cited: Mapped[int] = mapped_column(SmallInteger, comment="How many passages the verdict quotes")
    reason: Mapped[str] = mapped_column(comment="Why")
    second_goes_against: Mapped[bool | None] = mapped_column(
        comment="Whether the second check confirmed a contradiction; NULL: none was made"
    )
    second_reason: Mapped[str | None] = mapped_column(comment="Why; NULL: no second check was made")


class ClaimEvidenceRow(Base):
    """A passage that was retrieved for a claim."""

    __tablename__ = "claim_evidence"
    __table_args__ = (
        ForeignKeyConstraint(
            ["curation_id", "element_id"], ["claim_verdicts.curation_id", "claim_verdicts.element_id"]
        ),
        CheckConstraint("position >= 1 AND rank >= 1", name="positive"),
        CheckConstraint("cited_as >= 1", name="cited_as_positive"),
        CheckConstraint("(cited_as IS NULL) = (quote IS NULL)", name="cited_with_words"),
        CheckConstraint("quote <> '' AND second_quote <> ''", name="quotes_not_empty"),
        Index(None, "passage_key"),
        {"comment": "What was retrieved for each claim, and what of it the verdict cites"},
    )

    curation_id: Mapped[int] = mapped_column(primary_key=True, comment=_CURATION)
    element_id: Mapped[str] = mapped_column(primary_key=True, comment="The claim")
    position: Mapped[int] = mapped_column(SmallInteger, primary_key=True, comment="Its place, best first")
    passage_key: Mapped[str] = mapped_column(ForeignKey("passages.key"), comment="The passage")
    rank: Mapped[int] = mapped_column(comment="The retriever's rank, from 1")
    score: Mapped[float] = mapped_column(comment="The retriever's own score, higher is nearer")
    cited_as: Mapped[int | None] = mapped_column(
        SmallInteger, comment="Its place among the passages the verdict cites, from 1; NULL: not cited"
    )
    quote: Mapped[str | None] = mapped_column(comment="Its words that the verdict rests on; NULL: not cited")
    second_quote: Mapped[str | None] = mapped_column(
        comment="Its words that the second check rests on; NULL: not cited there"
    )
    sides: Mapped[list[Any]] = mapped_column(
        server_default="[]", comment="Where each side of the search put it: [{side, phrase, rank, score}]"
    )


class ControllerCheckRow(Base):
    """One check of the Controller."""

    __tablename__ = "controller_checks"
    __table_args__ = (
        one_of("check_name", Check),
        {"comment": "The Controller's checks of elements and written texts"},
    )

    curation_id: Mapped[int] = mapped_column(ForeignKey("curations.id"), primary_key=True, comment=_CURATION)
    position: Mapped[int] = mapped_column(primary_key=True, comment="The check's place, from 1")
    check_name: Mapped[Check] = enum_column(Check, comment="What was checked")
    subject: Mapped[str] = mapped_column(comment="The element, or narrative or advice")
    round: Mapped[int] = mapped_column(SmallInteger, comment="0: what was given first; 1 and 2: its revisions")
    passed: Mapped[bool] = mapped_column(comment="Whether it passed; false for every suspicion")
    detail: Mapped[str] = mapped_column(comment="What was found; empty when there is nothing to say")


class SecondReadingRow(Base):
    """What a second reader says of thread and case as a whole."""

    __tablename__ = "second_readings"
    __table_args__ = ({"comment": "Second readings of threads and the cases made of them"},)

    curation_id: Mapped[int] = mapped_column(ForeignKey("curations.id"), primary_key=True, comment=_CURATION)
    asked: Mapped[bool] = mapped_column(comment="Whether something is asked")
    clinical: Mapped[bool] = mapped_column(comment="Whether it is a clinical question")
    enough: Mapped[bool] = mapped_column(comment="Whether the history is enough to answer it")
    answered: Mapped[bool] = mapped_column(comment="Whether the advice answers the main thing asked")
    understandable: Mapped[bool] = mapped_column(comment="Whether a stranger would make sense of the case")
    wrong: Mapped[list[Any]] = mapped_column(
        comment="Advice found wrong: [{element_id, kind harmful|false|minor, reason}]"
    )
    danger: Mapped[str] = mapped_column(comment="An alarming sign that no advice answers; empty for none")
    reason: Mapped[str] = mapped_column(comment="What decides, in words")
    engine: Mapped[dict[str, Any]] = mapped_column(comment="The reader's engine, model and parameters")


class HoldRow(Base):
    """A reason why a case waits for a person."""

    __tablename__ = "holds"
    __table_args__ = (
        one_of("reason", Reason),
        {"comment": "Why curated cases wait for a person, the gravest reason first"},
    )

    curation_id: Mapped[int] = mapped_column(ForeignKey("curations.id"), primary_key=True, comment=_CURATION)
    position: Mapped[int] = mapped_column(SmallInteger, primary_key=True, comment="Its place, from 1")
    reason: Mapped[Reason] = enum_column(Reason, comment="Why")
    detail: Mapped[str] = mapped_column(comment="The reason in words")
    elements: Mapped[list[str]] = mapped_column(
        ARRAY(AnyText), comment="The advice elements or criteria it rests on"
    )


class CrossExaminationRow(Base):
    """The scores of a thread and its case, asked about each other."""

    __tablename__ = "cross_examinations"
    __table_args__ = (
        *(
            CheckConstraint(f"{name} BETWEEN 0 AND 100", name=f"{name}_percent")
            for name in ("coverage", "conformity", "conformity_strict", "consistency", "summary", "stability")
        ),
        CheckConstraint("conciseness <= 100", name="conciseness_percent"),
        {"comment": "Cross-examinations of threads and the cases written from them, in percent"},
    )

    curation_id: Mapped[int] = mapped_column(ForeignKey("curations.id"), primary_key=True, comment=_CURATION)
    coverage: Mapped[float] = mapped_column(comment="What of the thread the case speaks of")
    conformity: Mapped[float] = mapped_column(comment="What of the thread the case does not deny")
    conformity_strict: Mapped[float] = mapped_column(comment="What of the thread the case confirms")
    consistency: Mapped[float] = mapped_column(comment="What of the case the thread speaks of")
    conciseness: Mapped[float] = mapped_column(comment="By how much the case is shorter; below 0: longer")
    summary: Mapped[float] = mapped_column(comment="The summary score")
    stability: Mapped[float] = mapped_column(comment="Questions that their own text answers with yes")


class CrossQuestionRow(Base):
    """A question of a cross-examination."""

    __tablename__ = "cross_questions"
    __table_args__ = (
        one_of("made_from", Origin),
        one_of("own_answer", Answer),
        one_of("other_answer", Answer),
        {"comment": "The questions of cross-examinations, and what both texts answered"},
    )

    curation_id: Mapped[int] = mapped_column(
        ForeignKey("cross_examinations.curation_id"), primary_key=True, comment=_CURATION
    )
    position: Mapped[int] = mapped_column(primary_key=True, comment="The question's place, from 1")
    made_from: Mapped[Origin] = enum_column(Origin, comment="The text that answers it with yes: thread or case")
    question: Mapped[str] = mapped_column(comment="The question")
    own_answer: Mapped[Answer] = enum_column(Answer, comment="What that text answered when asked again")
    other_answer: Mapped[Answer] = enum_column(Answer, comment="What the other text answered")
