"""What an audit would take, before anybody is asked: calls, tokens, money and time. Nothing is sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Final

from medlive.evaluation.audit import audit_request, auditor_digest, open_candidates
from medlive.evaluation.causes import AUDIT, BOTTOM, Candidate, Finding, find_bottom, read_audit
from medlive.evaluation.graded import GradedRun
from medlive.evaluation.plan import ENOUGH, Call, Measured, Plan, estimate_tokens, plan_calls, sent_text
from medlive.llm.engine import EngineIdentity
from medlive.llm.wire import Price

OUTPUT_A_CAUSE: Final = 160
"""Tokens of a cause with its quote and reasoning, where none is on record."""


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """What auditing a run would take."""

    path: Path
    candidates: int
    settled: int
    """Of these: found by this auditor already."""
    plan: Plan


def plan_audit(
    run: GradedRun,
    identity: EngineIdentity,
    *,
    bottom: int = BOTTOM,
    concurrency: int = 16,
    allow_unpinned: bool = False,
    price: Price | None = None,
) -> AuditPlan:
    """What `audit_run` would ask, if no reply had to be asked for twice. Raises UsageError when nothing is
    graded."""
    chosen = find_bottom(run, bottom)
    found, _ = read_audit(run.run.path / AUDIT)
    todo = open_candidates(chosen, found, identity, allow_unpinned=allow_unpinned)
    plan = plan_calls(
        (Call(one.score.case.language, _text(one)) for one in todo),
        # The rules are this machine's: they cost nothing, whatever serves them.
        price=Price(0.0, 0.0) if identity.engine == "rules" else price,
        concurrency=concurrency,
        measured=_measured(chosen.candidates, found, auditor_digest(identity)),
        output_tokens=OUTPUT_A_CAUSE,
    )
    return AuditPlan(run.run.path, len(chosen.candidates), len(chosen.candidates) - len(todo), plan)


def _text(candidate: Candidate) -> str:
    return sent_text(audit_request(candidate))


def _measured(candidates: Sequence[Candidate], found: Sequence[Finding], auditor: str) -> Measured:
    """What the auditor's calls about these candidates took that were answered at once, against the estimate."""
    by_key = {candidate.key: candidate for candidate in candidates}
    ratios: dict[str, list[float]] = {}
    outputs: dict[str, list[float]] = {}
    latencies: list[float] = []
    for one in found:
        candidate = by_key.get(one.key)
        asked, answered = one.usage.get("input_tokens") or 0, one.usage.get("output_tokens") or 0
        if candidate is None or one.auditor != auditor or one.usage.get("calls") != 1 or not asked or not answered:
            continue
        language = candidate.score.case.language
        ratios.setdefault(language, []).append(asked / max(1, estimate_tokens(_text(candidate))))
        outputs.setdefault(language, []).append(answered)
        if latency := one.usage.get("latency_ms"):
            latencies.append(latency)
    known = [language for language, values in ratios.items() if len(values) >= ENOUGH]
    return Measured(
        scale={language: median(ratios[language]) for language in known},
        output={language: fmean(outputs[language]) for language in known},
        calls={language: len(ratios[language]) for language in known},
        latency_ms=median(latencies) if len(latencies) >= ENOUGH else None,
    )
