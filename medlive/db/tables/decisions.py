"""Tables of what is decided about a thread revision: filters, replies, curations and their parts."""

from datetime import date
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    ForeignKey,
    Index,
    Numeric,
    SmallInteger,
    text,
)
from sqlalchemy.orm import Mapped

from medlive.curation.model import (
    Alignment,
    Check,
    ElementStatus,
    ElyCategory,
    Kind,
    LeftOut,
    Outcome,
    Reason,
    Side,
    Stage,
)
from medlive.llm.ask import CallOutcome
from medlive.llm.engine import Finish

from .base import (
    Base,
    Digest,
    checks,
    column,
    flag_column,
    float_column,
    integer_column,
    integer_key,
    key_column,
    list_column,
    moment_column,
    now_column,
    number_column,
    object_column,
    optional_flag,
    optional_float,
    optional_integer,
    optional_object,
    optional_text,
    refers_to,
    text_column,
    text_key,
)


class FilterResultRow(Base):
    """Results of the filter chain: one a revision and chain."""

    __tablename__ = "filter_results"
    __table_args__ = checks(
        rejected_by_a_rule="passed = (rejected_by IS NULL)",
        rejected_with_reason="passed = (reason IS NULL)",
    )
    revision_id = integer_key("The revision", ForeignKey("thread_revisions.id"))
    chain_digest: Mapped[Digest] = key_column("The chain's rules and settings")
    passed = flag_column("Whether every rule passed")
    rejected_by = optional_text("The first rule that failed")
    reason = optional_text("That rule's reason")
    decided_at = now_column("When it was decided")
    verdicts = list_column(
        "In the chain's order: [{rule, passed, reason, evidence}]", server_default="[]"
    )


class PromptRow(Base):
    """The instructions that engines were given; rows are never changed."""

    __tablename__ = "prompts"

    digest: Mapped[Digest] = key_column("The digest of the text")
    task = text_column("The task it was first used for")
    text = text_column("The instructions")
    created_at = now_column("When it was first used")


class ReplyRow(Base):
    """Replies of engines under their request's digest, so that none is paid for twice."""

    __tablename__ = "replies"
    __table_args__ = checks(
        Index(None, "task", "created_at"),
        tokens="input_tokens >= 0 AND cached_tokens >= 0 AND output_tokens >= 0",
        cost_not_negative="cost_usd >= 0",
        latency_not_negative="latency_ms >= 0",
        repair_is_pair="repair IS NULL OR jsonb_array_length(repair) = 2",
        round_not_negative="round >= 0",
    )
    request_digest: Mapped[Digest] = key_column(
        "Task, prompt, schema, inputs, repair, engine, model and parameters"
    )
    task = text_column("The task, <agent>.<what>")
    prompt_digest = text_column("Its instructions", ForeignKey("prompts.digest"))
    engine = text_column("The engine: rules or openai")
    model = text_column("The pinned model id that was asked")
    parameters = object_column("The engine's parameters")
    inputs = object_column("The inputs: text of threads is only here")
    schema_digest: Mapped[Digest] = column("The digest of the reply's JSON schema")
    repair: Mapped[list[Any] | None] = column(
        "On a second attempt: the raw first reply and what was wrong with it"
    )
    round = integer_column(
        "How often stored unusable replies were stepped over before",
        type_=SmallInteger,
        server_default="0",
    )
    text = text_column("The reply, untouched")
    finish: Mapped[Finish] = column("Why the engine stopped: stop, length or refusal")
    reply_model = text_column("The model as the endpoint named it")
    input_tokens = integer_column("Tokens read")
    cached_tokens = integer_column("Of these, tokens from the endpoint's cache")
    output_tokens = integer_column("Tokens written")
    estimated = flag_column(
        "Whether the endpoint reported no usage, and the tokens are an upper bound: a byte each",
        server_default="false",
    )
    cost_usd: Mapped[float | None] = column(
        "The price in US dollars; NULL: unknown, not free", Numeric(asdecimal=False)
    )
    latency_ms = float_column("How long the reply took, in milliseconds")
    created_at = now_column("When it was stored")


# The reasons of failed attempts, and what a kept or held decision must fulfil
_FAILURES = (
    "('endpoint_unavailable', 'invalid_reply', 'refused', 'truncated', 'budget_spent')"
)
_PASSES = (
    "(cardinality(overruled) > 0 OR s_cc = 1 AND (s_inf > threshold_sufficiency OR answers_now)"
    " AND (s_align > threshold_alignment OR reason = 'disputed')) "
    "AND index_digest IS NOT NULL AND narrative IS NOT NULL"
)


class EvidenceIndexRow(Base):
    """Evidence indexes that curations used."""

    __tablename__ = "evidence_indexes"
    __table_args__ = checks(passages_not_negative="passages >= 0")
    index_digest = text_key("The index's digest", "digest")
    retriever = text_column("The kind of retriever, e.g. bm25")
    corpora = object_column("Corpus name to corpus digest")
    passages = integer_column("How many passages it holds")
    dense = optional_object(
        "Its dense side: encoder, kind, parameters, recall; NULL: it has none"
    )
    first_used_at = now_column("When a curation first used it")


class CurationRow(Base):
    """Decisions about thread revisions, one row an attempt; rows are never changed."""

    __tablename__ = "curations"
    __table_args__ = checks(
        Index(None, "revision_id", "pipeline_digest", "attempt", unique=True),
        Index(None, "revision_id", "id"),
        Index(
            "uq_curations_decided",
            "revision_id",
            "pipeline_digest",
            unique=True,
            postgresql_where=text("outcome <> 'failed'"),
        ),
        attempt_positive="attempt >= 1",
        kept_has_no_reason="(outcome = 'kept') = (reason IS NULL)",
        failure_is_no_rejection=f"reason IS NULL OR (outcome = 'failed') = (reason IN {_FAILURES})",
        kept_passed=f"outcome NOT IN ('kept', 'held') OR ({_PASSES}) IS TRUE",
        kept_at_the_end="outcome NOT IN ('kept', 'held') OR stage = 'rubric'",
        parked_for_want_of_evidence="(outcome = 'parked') = (reason IS NOT DISTINCT FROM 'no_evidence')",
        s_cc_range="s_cc IN (0, 1)",
        s_inf_range="s_inf BETWEEN 0 AND 1",
        s_align_range="s_align BETWEEN 0 AND 1",
        # Without BETWEEN, which a restored database would show with other parentheses.
        threshold_range="threshold_sufficiency >= 0 AND threshold_sufficiency <= 1"
        " AND threshold_alignment >= 0 AND threshold_alignment <= 1",
        text_whole="num_nonnulls(narrative, query, advice) IN (0, 3)",
        in_order="finished_at >= started_at",
    )
    id = number_column("The curation's number")
    revision_id = integer_column("The revision", ForeignKey("thread_revisions.id"))
    pipeline_digest: Mapped[Digest] = column(
        "Engines, prompts, evidence and settings: what a decision depends on besides the thread"
    )
    attempt = integer_column("From 1; only a failed attempt is followed by another")
    outcome: Mapped[Outcome] = column("kept, rejected, parked, held or failed")
    stage: Mapped[Stage] = column("Where it ended")
    reason: Mapped[Reason | None] = column("Why; NULL exactly when kept")
    detail = text_column("The reason in words")
    threshold_sufficiency = float_column("S_inf had to exceed this")
    threshold_alignment = float_column("S_align had to exceed this")
    query_category: Mapped[ElyCategory | None] = column(
        "The question's kind in Ely's taxonomy; NULL: not judged"
    )
    s_cc = optional_integer(
        "Clinical meaningfulness; NULL: not judged", type_=SmallInteger
    )
    s_inf = optional_float("Sufficiency of the narrative; NULL: not judged")
    answers_now = optional_flag(
        "Whether a careful physician would answer by it, if with conditions; NULL: not judged"
    )
    of_its_time = optional_flag(
        "Whether the right answer depends on when it was asked; NULL: not judged"
    )
    s_align = optional_float("Alignment with evidence; NULL: not judged")
    index_digest = optional_text(
        "The evidence index; NULL: none was asked",
        ForeignKey("evidence_indexes.digest"),
    )
    narrative = optional_text("N as written; NULL: it was not")
    query = optional_text("Q as released; NULL: the texts were not written")
    advice = optional_text("A as written; NULL: it was not")
    engines = object_column("Agent to its engine, model and parameters")
    overruled: Mapped[list[str]] = column(
        "Reasons of rejection that a person overruled before",
        server_default="{}",
    )
    started_at = moment_column("When the attempt began")
    finished_at = moment_column("When it ended")


class OverruleRow(Base):
    """Rejections that people overruled: the thread goes on from there; rows are never changed."""

    __tablename__ = "overrules"
    __table_args__ = checks(
        Index(None, "revision_id"),
        reason_length="char_length(reason) BETWEEN 1 AND 2000",
        people_positive="people >= 1",
    )
    number = number_column("The entry's number", "id")
    revision_id = integer_column(
        "The rejected revision", ForeignKey("thread_revisions.id")
    )
    curation_id = optional_integer(
        "The decision that is overruled; NULL: that of the filters",
        ForeignKey("curations.id"),
    )
    overruled = text_column("Why the thread had been rejected")
    reason = text_column("Why it should not have been")
    decided_by = optional_text("Who; NULL: not said")
    decided_at = now_column("When")
    people = integer_column(
        "How many people have to overrule it; fewer change nothing",
        type_=SmallInteger,
        server_default="1",
    )


CURATION = "The curation"


def curation_key() -> Mapped[int]:
    """The column `curation_id` of the primary key of a curation's parts; mostly others follow."""
    return key_column(CURATION, ForeignKey("curations.id"))


class AgentCallRow(Base):
    """Calls of the agents, in order; rows are never changed."""

    __tablename__ = "agent_calls"
    __table_args__ = checks(
        Index(None, "reply_digest"),
        attempt_range="attempt IN (1, 2)",
        reply_answers_request="reply_digest = request_digest",
        answer_is_kept="(outcome IN ('unavailable', 'over_budget')) = (reply_digest IS NULL)",
    )
    curation_id = curation_key()
    position = integer_key("The call's place, from 1")
    task = text_column("The task")
    prompt_digest = text_column("Its instructions; in prompts when it was answered")
    engine = text_column("The engine asked")
    model = text_column("The model asked")
    request_digest: Mapped[Digest] = column("The request's digest, answered or not")
    reply_digest = optional_text(
        "The stored reply; NULL exactly when there was none",
        ForeignKey("replies.request_digest"),
    )
    attempt = integer_column("1, or 2 for the repair", type_=SmallInteger)
    outcome: Mapped[CallOutcome] = column("What became of it")
    problem = text_column("What was wrong; empty when nothing was")
    replayed = flag_column("Whether the stored reply was used and nothing was paid")


class ElementRow(Base):
    """Statements the Screener took from threads, with their words."""

    __tablename__ = "elements"
    __table_args__ = checks(
        quote_not_empty="quote <> ''",
        left_out_is_advice="left_out IS NULL OR (standing = 'dropped' AND side = 'advice')",
    )
    curation_id = curation_key()
    id = text_key("n1, n2, …, q, a1, a2, …", "element_id")
    position = integer_column("Its place among all, from 1")
    side: Mapped[Side] = column("narrative, query or advice")
    kind: Mapped[Kind] = column("The SOAP section")
    message_id = text_column("The message its quote stands in, or title")
    quote = text_column("Verbatim words of that message")
    statement = text_column("The statement that stands alone")
    status: Mapped[ElementStatus] = column(
        "kept, dropped (in no text) or unsupported (in the texts, and the case is held)",
        "standing",
    )
    left_out: Mapped[LeftOut | None] = column(
        "Why this advice is not in A: not_standard, refuted or advertising; NULL: it is, or a person dropped it"
    )


class RequirementRow(Base):
    """The Validator's checklists, item by item."""

    __tablename__ = "requirements"
    __table_args__ = checks(
        present_has_elements="NOT present OR cardinality(element_ids) > 0"
    )
    curation_id = curation_key()
    position = integer_key("The item's place, from 1")
    requirement = text_column("What a physician needs to know")
    present = flag_column("Whether the narrative entails it")
    element_ids: Mapped[list[str]] = column(
        "The elements that entail it; q for the query"
    )
    prudent = flag_column("Whether it is only good to know, and not counted in S_inf")


class PassageRow(Base):
    """Passages that were retrieved for a claim; rows are never changed."""

    __tablename__ = "passages"

    key: Mapped[Digest] = key_column("The digest of the whole row")
    digest: Mapped[Digest] = column("The digest of title, section and text")
    id = text_column("<corpus>:<document>:<section>", "passage_id")
    corpus = text_column("The corpus it is from")
    title = text_column("The document's title")
    section = text_column("The section's heading")
    text = text_column("The passage")
    language = text_column("The passage's language")
    published: Mapped[date | None] = column("When it was published; NULL: unknown")
    url = text_column("Where the document is")
    licence = text_column("Its licence")


class ClaimVerdictRow(Base):
    """The Validator's verdicts on advice elements."""

    __tablename__ = "claim_verdicts"
    __table_args__ = checks(
        refers_to("elements", "curation_id", "element_id"),
        value_of_verdict="value = CASE verdict WHEN 'supported' THEN 1.0 WHEN 'contradicted' THEN 0.0 ELSE 0.5 END",
        verdict_has_quote="verdict IN ('neutral', 'not_standard') OR cited > 0",
        queries_asked="cardinality(queries) > 0",
        second_check_whole="(second_false_by_passage IS NULL) = (second_reason IS NULL)",
        # An earlier decision has "neutral" where people would settle it today.
        second_check_decides="second_false_by_passage IS NULL OR (verdict = 'contradicted')"
        " = (second_false_by_passage OR coalesce(second_could_hurt, false))",
        disputed_by_second_check="verdict <> 'disputed' OR second_false_by_passage IS NOT NULL",
        decided_on_subject="on_subject OR verdict NOT IN ('supported', 'contradicted')",
    )
    curation_id = integer_key(CURATION)
    element_id = text_key("The advice element")
    position = integer_column("Its place among the claims, from 1")
    verdict: Mapped[Alignment] = column(
        "supported, neutral, not_standard, disputed or contradicted"
    )
    value: Mapped[Decimal] = column("v(a_j): 1.0, 0.5 or 0.0", Numeric(2, 1))
    claim = text_column("The element as a statement that stands alone: what was judged")
    queries: Mapped[list[str]] = column("The phrases that evidence was searched for")
    flag = text_column("What code doubts of the claim's wording; empty for nothing")
    cited = integer_column("How many passages the verdict quotes", type_=SmallInteger)
    reason = text_column("Why")
    second_false_by_passage = optional_flag(
        "Whether the second check finds the claim false by a passage; NULL: none was made"
    )
    second_reason = optional_text("Why; NULL: no second check was made")
    second_could_hurt = optional_flag(
        "Whether a passage says it could hurt; NULL: not asked apart from whether it is false"
    )
    on_subject = flag_column(
        "Whether any passage is on its disease, drug or procedure",
        server_default="true",
    )
    nearest = optional_text(
        "The id of the passage nearest to that subject; NULL: none is named"
    )
    lacks: Mapped[list[str]] = column(
        "What the passages would have to say in addition: drug, situation, population, strength",
        server_default="{}",
    )


class ClaimEvidenceRow(Base):
    """What was retrieved for each claim, and what of it the verdict cites."""

    __tablename__ = "claim_evidence"
    __table_args__ = checks(
        refers_to("claim_verdicts", "curation_id", "element_id"),
        Index(None, "passage_key"),
        positive="position >= 1 AND rank >= 1",
        cited_as_positive="cited_as >= 1",
        cited_with_words="(cited_as IS NULL) = (quote IS NULL)",
        quotes_not_empty="quote <> '' AND second_quote <> '' AND harm_quote <> ''",
    )
    curation_id = integer_key(CURATION)
    element_id = text_key("The claim")
    position = integer_key("Its place, best first", type_=SmallInteger)
    passage_key = text_column("The passage", ForeignKey("passages.key"))
    rank = integer_column("The retriever's rank, from 1")
    score = float_column("The retriever's own score, higher is nearer")
    cited_as = optional_integer(
        "Its place among the passages the verdict cites, from 1; NULL: not cited",
        type_=SmallInteger,
    )
    quote = optional_text("Its words that the verdict rests on; NULL: not cited")
    second_quote = optional_text(
        "Its words by which the second check finds the claim false; NULL: not cited there"
    )
    sides = list_column(
        "Where each side of the search put it: [{side, phrase, rank, score}]",
        server_default="[]",
    )
    harm_quote = optional_text(
        "Its words by which the second check finds that it could hurt; NULL: not cited there"
    )
    shown = text_column(
        "What the judge was given of it; empty for nothing", server_default=""
    )


class ControllerCheckRow(Base):
    """The Controller's checks of elements and written texts."""

    __tablename__ = "controller_checks"

    curation_id = curation_key()
    position = integer_key("The check's place, from 1")
    check: Mapped[Check] = column("What was checked", "check_name")
    subject = text_column("The element, or narrative or advice")
    round = integer_column(
        "0: what was given first; 1 and 2: its revisions", type_=SmallInteger
    )
    passed = flag_column("Whether it passed; false for every suspicion")
    detail = text_column("What was found; empty when there is nothing to say")
