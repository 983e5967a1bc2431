"""What a direct judge would take, before it is asked: calls, tokens, money and time. Nothing is sent."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from medlive.errors import UsageError
from medlive.evaluation.asking.plan import Call, Plan, Sample, measure_calls, plan_calls, sent_text
from medlive.evaluation.grading.direct import direct_request, judge_digest, open_cases, score_key, scores_on_record
from medlive.evaluation.runs.folder import open_run
from medlive.llm.engine import EngineIdentity
from medlive.llm.wire import Price

OUTPUT_A_SCORE: Final = 90
"""Tokens of a score with its reasoning, where none is on record."""


@dataclass(frozen=True, slots=True)
class DirectPlan:
    """What judging would take."""

    path: Path
    answers: int
    """That can be judged."""
    scored: int
    plan: Plan


def plan_direct(
    run_dir: Path,
    identity: EngineIdentity,
    *,
    concurrency: int = 16,
    allow_unpinned: bool = False,
    price: Price | None = None,
) -> DirectPlan:
    """What `judge_direct` would ask, if no reply had to be asked for twice. Raises UsageError for an engine that
    has no such task, BadInput for a damaged log."""
    if identity.engine == "rules":
        raise UsageError(
            "the rules engine gives no score of a whole answer", hint="name a model: --grader and --base-url"
        )
    run = open_run(run_dir)
    answers, _ = run.answers()
    there = scores_on_record(run_dir, identity)
    todo = open_cases(run.cases, answers, there, identity, allow_unpinned=allow_unpinned)
    judged = open_cases(run.cases, answers, {}, identity)
    texts = {case.case_id: sent_text(direct_request(case, answers[case.case_id])) for case in judged}
    judge = judge_digest(identity)
    # A score of an answer as it was before tells nothing of what this one's call would take.
    samples = (
        Sample(
            case.language,
            texts[case.case_id],
            score.usage.get("input_tokens") or 0,
            score.usage.get("output_tokens") or 0,
            score.usage.get("latency_ms"),
        )
        for case in judged
        if (score := there.get(score_key(case, answers[case.case_id], judge))) is not None
    )
    plan = plan_calls(
        [Call(case.language, texts[case.case_id]) for case in todo],
        price=price,
        concurrency=concurrency,
        measured=measure_calls(samples),
        output_tokens=OUTPUT_A_SCORE,
    )
    return DirectPlan(run_dir, len(judged), len(judged) - len(todo), plan)
