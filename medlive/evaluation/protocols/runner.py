"""Puts a protocol's questions to a judge; `NAME.jsonl` in a folder for all runs is its log."""

from functools import partial
from pathlib import Path
from typing import Any

from medlive.evaluation.asking.plan import Plan
from medlive.evaluation.grading import questions
from medlive.evaluation.grading.questions import (
    JudgeReplies,
    QuestionsAsked,
    ask_questions,
    plan_questions,
)
from medlive.evaluation.protocols.model import Material, Protocol
from medlive.llm.engine import Engine, EngineIdentity


async def run_protocol(
    protocol: Protocol,
    material: Material,
    out: Path,
    engine: Engine,
    **how: Any,
) -> QuestionsAsked:
    """`ask_questions` about all that the protocol asks, its log in the folder `out`."""
    return await ask_questions(
        partial(protocol.questions, material), log_path(protocol, out), engine, **how
    )


def plan_protocol(
    protocol: Protocol,
    material: Material,
    out: Path,
    identity: EngineIdentity,
    **how: Any,
) -> Plan:
    """What `run_protocol` would ask now; questions that build on replies to come are not counted."""
    return plan_questions(
        partial(protocol.questions, material), log_path(protocol, out), identity, **how
    )


def log_path(protocol: Protocol, out: Path) -> Path:
    """Where a protocol's findings lie in a folder."""
    return out / f"{protocol.name}.jsonl"


def read_findings(
    protocol: Protocol,
    out: Path,
    identity: EngineIdentity,
) -> tuple[JudgeReplies, list[str]]:
    """What a log holds of a judge, and its lines that could not be parsed."""
    return questions.read_findings(log_path(protocol, out), identity)
