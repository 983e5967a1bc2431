"""What commands ask of a judge, in one call each: protocols, root causes, direct scores."""

from pathlib import Path
from typing import Any

from medlive.evaluation.asking.plan import Plan
from medlive.evaluation.grading import questions
from medlive.evaluation.grading.direct import direct_work
from medlive.evaluation.grading.questions import (
    JudgeReplies,
    QuestionsAsked,
    ask_questions,
    plan_questions,
)
from medlive.evaluation.protocols.model import Material, Protocol
from medlive.evaluation.root_causes import audit_work
from medlive.evaluation.scoring.graded import GradedRun
from medlive.llm.engine import Engine, EngineIdentity


async def run_protocol(
    protocol: Protocol, material: Material, out: Path, engine: Engine, **how: Any
) -> QuestionsAsked:
    return await ask_questions(*protocol.work(material, out), engine, **how)


def plan_protocol(
    protocol: Protocol,
    material: Material,
    out: Path,
    identity: EngineIdentity,
    **how: Any,
) -> Plan:
    return plan_questions(*protocol.work(material, out), identity, **how)


def read_findings(
    protocol: Protocol, out: Path, identity: EngineIdentity
) -> tuple[JudgeReplies, list[str]]:
    return questions.read_findings(protocol.work([], out)[1], identity)


async def audit_run(
    run: GradedRun, engine: Engine, *, bottom: int = 100, **how: Any
) -> QuestionsAsked:
    work = audit_work(run, bottom=bottom)
    return await ask_questions(*work, engine, **how)


def plan_audit(
    run: GradedRun, identity: EngineIdentity, *, bottom: int = 100, **how: Any
) -> Plan:
    return plan_questions(*audit_work(run, bottom=bottom), identity, **how)


async def judge_direct(run_dir: Path, engine: Engine, **how: Any) -> QuestionsAsked:
    work = direct_work(run_dir, engine.identity)
    return await ask_questions(*work, engine, **how)


def plan_direct(run_dir: Path, identity: EngineIdentity, **how: Any) -> Plan:
    return plan_questions(*direct_work(run_dir, identity), identity, **how)
