"""Root-cause audit: an engine is asked why a run's lowest-scoring answers went wrong, one primary cause each.

Task `audit.cause`. `audit.jsonl` in the run folder is record and cache: a finding is found again by what it rests
on, so a repeated audit asks only for what is new, was graded anew, or had stayed unaudited.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from medlive.digest import digest_json
from medlive.errors import EndpointUnavailable
from medlive.evaluation.asking.pinned import Pinned
from medlive.evaluation.asking.pool import Health, for_each
from medlive.evaluation.asking.run import Progress
from medlive.evaluation.audit.root_causes import (
    AUDIT,
    BOTTOM,
    AuditTable,
    Candidate,
    Finding,
    RootCause,
    find_bottom,
    finding_fault,
    load_audit,
    read_audit,
)
from medlive.evaluation.grading.judge import MOST_RAW
from medlive.evaluation.grading.verdict import planted_objects
from medlive.evaluation.grading.verdict_words import taken_back
from medlive.evaluation.log import open_log
from medlive.evaluation.scoring.graded import GradedRun
from medlive.llm.budget import Asked, Budget, BudgetSpent
from medlive.llm.engine import Engine, EngineIdentity, Finish, Reply, Request
from medlive.llm.prompts import load_prompt
from medlive.llm.reading import read_object, without_thinking
from medlive.text.normalise import fold

TASK: Final = "audit.cause"


class AuditReply(BaseModel):
    """`audit.cause`: the primary cause, with words of the answer and the errors that show it.

    Inputs: language, question, advice, answer, criteria [{id, criterion, points, met, error}].
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    cause: Literal[
        "contextual_neglect",
        "guideline_overgeneralisation",
        "reasoning_and_synthesis_deficit",
        "instruction_misinterpretation",
        "knowledge_gap",
        "excessive_caution",
        "hallucination_or_misclassification",
        "unclear",
    ]
    quote: Annotated[str, StringConstraints(max_length=4000)]
    criteria: Annotated[tuple[str, ...], Field(max_length=200, strict=False)]
    reasoning: Annotated[str, StringConstraints(min_length=1, max_length=4000)]


_SCHEMA: Final = AuditReply.model_json_schema()


@dataclass(frozen=True, slots=True)
class AuditResult:
    """How a run stands after its audit."""

    table: AuditTable
    calls: int
    reused: int
    """Findings that were there before and cost nothing."""
    stopped: str | None = None
    """Which budget ended it; None: none did."""
    silence: EndpointUnavailable | None = None
    """Why the last call failed, where none of this time was answered (`Health.silence`)."""


def auditor_digest(identity: EngineIdentity) -> str:
    """What makes two auditors one: engine, model, parameters and prompt."""
    prompt = load_prompt("medlive.evaluation", TASK)
    return digest_json([identity.engine, identity.model, dict(identity.parameters), prompt.digest])


async def audit_run(
    run: GradedRun,
    engine: Engine,
    *,
    bottom: int = BOTTOM,
    concurrency: int = 16,
    allow_unpinned: bool = False,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Find the root cause of each of the lowest-scoring cases that this auditor has not found yet.

    A reply that cannot be used is returned once with what is wrong with it; what stays so is unaudited, never a
    type. A reply that names another model than the engine's pinned one does not count unless `allow_unpinned`.
    When `budget` is spent, calls under way are finished and kept, and the result says `stopped`. Raises Locked
    when another process audits the same run, UsageError when nothing is graded or every reply comes from another
    model, EndpointUnavailable when the endpoint seems dead; what was found by then is kept.
    """
    chosen = find_bottom(run, bottom)
    auditor = _Auditor(run, engine, allow_unpinned, concurrency, budget)
    stopped: str | None = None
    with open_log(run.run.path / AUDIT) as log:
        found, _ = read_audit(run.run.path / AUDIT)
        mine = [f for f in found if f.auditor == auditor.digest]
        tried = Counter(f.key for f in mine if f.cause is None and f.answered_by)
        todo = open_candidates(chosen.candidates, mine, engine.identity, allow_unpinned=allow_unpinned)
        reused = done = len(chosen.candidates) - len(todo)

        async def one(candidate: Candidate) -> None:
            nonlocal done, stopped
            if stopped:
                return
            try:
                log.add((await auditor.find(candidate, tried[candidate.key])).row())
            except BudgetSpent as exc:
                stopped = exc.message
                return
            done += 1
            if progress:
                progress(done, len(chosen.candidates))

        if progress:
            progress(done, len(chosen.candidates))
        await for_each(todo, one, concurrency)
    table = load_audit(run, bottom=bottom, auditor=auditor.digest)
    return AuditResult(table, auditor.asked.calls, reused, stopped, auditor.health.silence)


def open_candidates(
    candidates: Sequence[Candidate],
    found: Sequence[Finding],
    identity: EngineIdentity,
    *,
    allow_unpinned: bool = False,
) -> list[Candidate]:
    """The candidates that an auditor has not settled: without a cause on record that holds against the answer and
    comes from a model that counts."""
    auditor = auditor_digest(identity)
    latest = {f.key: f for f in found if f.auditor == auditor}

    def settled(candidate: Candidate) -> bool:
        one = latest.get(candidate.key)
        if one is None or one.cause is None or not (allow_unpinned or one.answered_by == identity.model):
            return False
        return finding_fault(one.cause, one.quote, one.criteria, candidate) is None

    return [candidate for candidate in candidates if not settled(candidate)]


def audit_request(candidate: Candidate, *, repair: tuple[str, str] | None = None, round_: int = 0) -> Request:
    """What is asked about a candidate."""
    prompt = load_prompt("medlive.evaluation", TASK)
    return Request(TASK, prompt, candidate.inputs, _SCHEMA, repair=repair, round=round_)


class _Auditor:
    def __init__(
        self, run: GradedRun, engine: Engine, allow_unpinned: bool, concurrency: int, budget: Budget | None
    ) -> None:
        self.digest = auditor_digest(engine.identity)
        self.asked = Asked(engine, budget)
        self._engine = engine
        self._judge = run.grader.judge if run.grader else ""
        self._prompt = load_prompt("medlive.evaluation", TASK)
        self.health = Health(concurrency)
        self._pinned = Pinned("auditor", engine.identity.model, allow_unpinned=allow_unpinned)

    async def find(self, candidate: Candidate, tried: int) -> Finding:
        """Ask, and once more where the reply cannot be used. Raises BudgetSpent when the budget does not reach for
        one attempt."""
        inputs, again = candidate.inputs, None
        reason, replies = "", list[Reply]()
        for attempt in range(2):
            later = 2 * tried + (0 if again else attempt)
            try:
                reply = await self.asked.answer(audit_request(candidate, repair=again, round_=later))
            except EndpointUnavailable as exc:
                reason = f"endpoint: {exc.message[:300]}"
                self.health.bad(exc)
                break
            except BudgetSpent:
                if not replies:
                    raise
                break
            self.health.good()
            replies.append(reply)
            if (fault := self._pinned.fault(reply)) is not None:
                reason, again = fault, None
                continue
            read = _read(reply, inputs, candidate)
            if isinstance(read, AuditReply):
                return self._finding(candidate, replies, read, "")
            reason, again = read, (reply.text[:MOST_RAW], read)
            if reply.finish is Finish.REFUSAL:
                break
        return self._finding(candidate, replies, None, reason)

    def _finding(
        self, candidate: Candidate, replies: Sequence[Reply], read: AuditReply | None, reason: str
    ) -> Finding:
        who = self._engine.identity
        last = replies[-1] if replies else None
        costs = [r.usage.cost_usd for r in replies]
        return Finding(
            case_id=candidate.case_id,
            key=candidate.key,
            cause=RootCause(read.cause) if read else None,
            quote=read.quote if read else "",
            criteria=read.criteria if read else (),
            reasoning=read.reasoning if read else "",
            reason=reason,
            score=candidate.score.score or 0.0,
            raw=last.text[:MOST_RAW] if last else "",
            answered_by=last.model if last else "",
            engine=who.engine,
            model=who.model,
            prompt=self._prompt.digest,
            auditor=self.digest,
            judge=self._judge,
            usage={
                "input_tokens": sum(r.usage.input_tokens for r in replies),
                "output_tokens": sum(r.usage.output_tokens for r in replies),
                "cost_usd": None if None in costs else sum(c for c in costs if c is not None),
                "calls": len(replies),
                "latency_ms": sum(r.usage.latency_ms for r in replies),
            },
        )


def _read(reply: Reply, inputs: Mapping[str, Any], candidate: Candidate) -> AuditReply | str:
    """The reply, checked against what was shown, or why it is none."""
    if reply.finish is Finish.LENGTH:
        return "the reply was cut at the token limit"
    if reply.finish is Finish.REFUSAL:
        return "the auditor refused"
    if not reply.text.strip():
        return "the reply is empty"
    try:
        read = AuditReply.model_validate(read_object(reply.text, inputs))
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(p) for p in error['loc']) or 'the reply'}: {error['msg']}"
    except ValueError as exc:
        return str(exc)[:300]
    if taken_back(without_thinking(reply.text).partition("{")[0].partition("```")[0]):
        return "the words before the JSON object deny it"
    if any(
        one["cause"] == read.cause and fold(str(one.get("reasoning", ""))) == fold(read.reasoning)
        for one in planted_objects(candidate.answer.response, "cause")
    ):
        return "the reply is a piece of the answer that was to be audited"
    return finding_fault(RootCause(read.cause), read.quote, read.criteria, candidate) or read
