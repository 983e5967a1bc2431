"""What an audit would take, before anybody is asked: calls, tokens, money and time. Nothing is sent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from medlive.evaluation.asking.plan import Call, Plan, Sample, measure_calls, plan_calls, sent_text
from medlive.evaluation.audit.audit import audit_request, auditor_digest, open_candidates
from medlive.evaluation.audit.root_causes import AUDIT, BOTTOM, Candidate, Finding, find_bottom, read_audit
from medlive.evaluation.scoring.graded import GradedRun
from medlive.llm.engine import EngineIdentity
from medlive.llm.wire import Price

OUTPUT_A_CAUSE: Final = 160
"""Tokens of a cause with its quote and reasoning, where none is on record."""


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """What auditing runs would take."""

    paths: tuple[Path, ...]
    candidates: int
    """Cases of all the runs together."""
    audited: int
    """Of these: found by this auditor already."""
    plan: Plan


def plan_audit(
    runs: Sequence[GradedRun],
    identity: EngineIdentity,
    *,
    bottom: int = BOTTOM,
    concurrency: int = 16,
    allow_unpinned: bool = False,
    price: Price | None = None,
) -> AuditPlan:
    """What `audit_run` would ask of all the runs, if no reply had to be asked for twice. Raises UsageError when
    nothing of one is graded."""
    chosen = [find_bottom(run, bottom).candidates for run in runs]
    found = [read_audit(run.run.path / AUDIT)[0] for run in runs]
    todo = [
        candidate
        for candidates, findings in zip(chosen, found, strict=True)
        for candidate in open_candidates(candidates, findings, identity, allow_unpinned=allow_unpinned)
    ]
    samples = (
        sample
        for candidates, findings in zip(chosen, found, strict=True)
        for sample in _samples(candidates, findings, auditor_digest(identity))
    )
    plan = plan_calls(
        (Call(one.score.case.language, _text(one)) for one in todo),
        price=price,
        concurrency=concurrency,
        measured=measure_calls(samples),
        output_tokens=OUTPUT_A_CAUSE,
    )
    n = sum(map(len, chosen))
    return AuditPlan(tuple(run.run.path for run in runs), n, n - len(todo), plan)


def _text(candidate: Candidate) -> str:
    return sent_text(audit_request(candidate))


def _samples(candidates: Sequence[Candidate], found: Sequence[Finding], auditor: str) -> Iterator[Sample]:
    """The auditor's calls about these candidates that were answered at once."""
    by_key = {candidate.key: candidate for candidate in candidates}
    for one in found:
        candidate = by_key.get(one.key)
        if candidate is not None and one.auditor == auditor and one.usage.get("calls") == 1:
            yield Sample(
                candidate.score.case.language,
                _text(candidate),
                one.usage.get("input_tokens") or 0,
                one.usage.get("output_tokens") or 0,
                one.usage.get("latency_ms"),
            )
