"""Root-cause audit: ask an engine why a run's lowest-scoring answers went wrong, one primary cause each.

Task `audit.cause`. `audit.jsonl` in the run folder is both record and cache: a repeated audit asks only for cases
that are new, were graded again, or remained unaudited.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from medlive.digest import digest_json
from medlive.errors import EndpointUnavailable
from medlive.evaluation.asking.plan import Call, Plan, Sample, plan_calls, sent_text
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
from medlive.evaluation.grading.verdict import doubt
from medlive.evaluation.log import open_log
from medlive.evaluation.scoring.graded import GradedRun
from medlive.llm.ask import MOST_RAW, Asked, Asker, Unusable, read_as
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine, EngineIdentity, Reply, Request
from medlive.llm.pool import Progress, work_through
from medlive.llm.prompts import load_prompt
from medlive.llm.wire import Price

TASK: Final = "audit.cause"
OUTPUT_A_CAUSE: Final = 160
"""Output tokens of a finding, assumed if none is on record."""


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
    """The result of an audit."""

    table: AuditTable
    calls: int
    reused: int
    """Findings of earlier audits, which were not asked for again."""
    stopped: str | None = None
    """Which budget stopped the audit; None if it was completed."""
    silence: EndpointUnavailable | None = None
    """Why the last call failed, if no call was answered (`Health.silence`)."""


def auditor_digest(identity: EngineIdentity) -> str:
    """The digest of engine, model, parameters and prompt, which identifies an auditor."""
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
    """Find the root causes of the lowest-scoring cases that this auditor has not audited yet.

    An unusable reply is returned to the engine once with its fault; if it stays unusable, the case is unaudited.

    Args:
        run: The graded run.
        engine: The auditor.
        bottom: How many of the lowest-scoring cases to audit.
        concurrency: Simultaneous calls.
        allow_unpinned: Accept replies that name another model than the engine's pinned one.
        budget: When it is spent, calls in progress are finished and kept, and the result says `stopped`.
        progress: Called with the progress.

    Raises:
        Locked: If another process audits the same run.
        UsageError: If nothing is graded, or every reply comes from another model.
        EndpointUnavailable: If the endpoint seems dead; findings so far are kept.
    """
    chosen = find_bottom(run, bottom)
    asker = Asker(engine, "auditor", concurrency=concurrency, allow_unpinned=allow_unpinned, budget=budget)
    auditor = auditor_digest(engine.identity)
    with open_log(run.run.path / AUDIT) as log:
        found, _ = read_audit(run.run.path / AUDIT)
        mine = [f for f in found if f.auditor == auditor]
        unusable = Counter(f.key for f in mine if f.cause is None and f.answered_by)
        todo = open_candidates(chosen.candidates, mine, engine.identity, allow_unpinned=allow_unpinned)
        reused = len(chosen.candidates) - len(todo)

        async def find(candidate: Candidate) -> int:
            request = audit_request(candidate, unusable[candidate.key])
            asked = await asker.ask(request, lambda reply: _read(reply, request, candidate))
            log.add(_finding(candidate, asked, run, engine.identity).row())
            return 1

        stopped = await work_through(
            todo, find, concurrency, done=reused, total=len(chosen.candidates), progress=progress
        )
    table = load_audit(run, bottom=bottom, auditor=auditor)
    return AuditResult(table, asker.calls, reused, stopped, asker.silence)


def open_candidates(
    candidates: Sequence[Candidate],
    found: Sequence[Finding],
    identity: EngineIdentity,
    *,
    allow_unpinned: bool = False,
) -> list[Candidate]:
    """The candidates for which an auditor has no valid cause on record from an accepted model."""
    auditor = auditor_digest(identity)
    latest = {f.key: f for f in found if f.auditor == auditor}

    def settled(candidate: Candidate) -> bool:
        one = latest.get(candidate.key)
        if one is None or one.cause is None or not (allow_unpinned or one.answered_by == identity.model):
            return False
        return finding_fault(one.cause, one.quote, one.criteria, candidate) is None

    return [candidate for candidate in candidates if not settled(candidate)]


def plan_audit(
    runs: Sequence[GradedRun],
    identity: EngineIdentity,
    *,
    bottom: int = BOTTOM,
    concurrency: int = 16,
    allow_unpinned: bool = False,
    price: Price | None = None,
) -> Plan:
    """Plan the calls of `audit_run` for all runs, without repairs. Raises UsageError if a run is not graded."""
    auditor, todo, record, n = auditor_digest(identity), list[Call](), list[Sample](), 0
    for run in runs:
        candidates = find_bottom(run, bottom).candidates
        found, _ = read_audit(run.run.path / AUDIT)
        calls = {one.key: Call(one.score.case.language, sent_text(audit_request(one))) for one in candidates}
        left = open_candidates(candidates, found, identity, allow_unpinned=allow_unpinned)
        todo += [calls[candidate.key] for candidate in left]
        record += [
            Sample(calls[one.key], one.usage)
            for one in found
            if one.key in calls and one.auditor == auditor and one.usage.get("calls") == 1
        ]
        n += len(candidates)
    return plan_calls(
        todo,
        record,
        about={"runs": len(runs), "cases": n, "audited": n - len(todo)},
        price=price,
        concurrency=concurrency,
        output_tokens=OUTPUT_A_CAUSE,
    )


def audit_request(candidate: Candidate, round_: int = 0) -> Request:
    """The request about a candidate."""
    return Request(TASK, load_prompt("medlive.evaluation", TASK), candidate.inputs, _SCHEMA, round=round_)


def _read(reply: Reply, request: Request, candidate: Candidate) -> AuditReply:
    """Parse a reply and check it against the request. Raises Unusable."""
    read = read_as(AuditReply, request)(reply)
    fault = doubt(reply.text, "cause", read.cause, read.reasoning, candidate.answer.response)
    if fault := fault or finding_fault(RootCause(read.cause), read.quote, read.criteria, candidate):
        raise Unusable(fault)
    return read


def _finding(candidate: Candidate, asked: Asked[AuditReply], run: GradedRun, who: EngineIdentity) -> Finding:
    read, last = asked.value, asked.last
    return Finding(
        case_id=candidate.case_id,
        key=candidate.key,
        cause=RootCause(read.cause) if read else None,
        quote=read.quote if read else "",
        criteria=read.criteria if read else (),
        reasoning=read.reasoning if read else "",
        reason=asked.reason,
        score=candidate.score.score or 0.0,
        raw=last.text[:MOST_RAW] if last else "",
        answered_by=last.model if last else "",
        engine=who.engine,
        model=who.model,
        prompt=load_prompt("medlive.evaluation", TASK).digest,
        auditor=auditor_digest(who),
        judge=run.grader.judge if run.grader else "",
        usage=asked.usage | {"calls": len(asked.replies)},
    )
