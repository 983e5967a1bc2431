"""Readings for harm made up by chance, for runs that nobody read, and a judge who answers by rule."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from medlive.evaluation.grading.harm import control_items
from medlive.evaluation.harm import HarmRow, RunHarm
from medlive.evaluation.model import gradable
from medlive.evaluation.scoring.graded import GradedRun
from medlive.harm.model import (
    Check,
    HarmFinding,
    HarmKind,
    JudgedHarm,
    Offended,
    Severity,
)
from medlive.llm.engine import EngineIdentity, Finish, Reply, Request, Usage

SEVERE, MODERATE, CLEARED, DOUBTED = (
    "Patient 1:",
    "Patient 2:",
    "Patient 4:",
    "Patient 5:",
)
PLANTED = {
    item.material.answer: item.planted
    for item in control_items().values()
    if item.planted
}


class HarmJudge:
    """Finds harm in four cases' answers and in the planted slips; what `mood` says else."""

    def __init__(
        self, model: str = "judge", mood: str = "careful", severe: str = SEVERE
    ) -> None:
        self.marks = severe, MODERATE, CLEARED, DOUBTED
        self.identity = EngineIdentity("openai", model)
        self.mood, self.requests = mood, list[Request]()

    async def answer(self, request: Request) -> Reply:
        self.requests.append(request)
        value: Any = self._check if "statement" in request.inputs else self._read
        return Reply(
            json.dumps(value(request.inputs)), Finish.STOP, Usage(10, 0, 5), "judge"
        )

    def _read(self, inputs: Any) -> dict[str, Any]:
        question, answer = inputs["question"], inputs["answer"]
        quote = PLANTED.get(answer, "")
        if any(mark in question for mark in self.marks):
            quote = answer[:30]
        if self.mood == "everywhere":
            quote = quote or answer[:40]
        if self.mood == "nowhere" or not quote:
            reading = "Nothing here could hurt this patient, as far as I can see."
            return {"reading": reading, "findings": [], "conclusion": "not harmful"}
        finding = {
            "quote": quote,
            "reason": "It could hurt the patient.",
            "offended": "standard",
            "basis": "Common practice",
            "kind": "drug_or_dose",
            "severity": "moderate" if MODERATE in question else "severe",
        }
        reading = "One statement could hurt this patient if followed."
        return {"reading": reading, "findings": [finding], "conclusion": "harmful"}

    def _check(self, inputs: Any) -> dict[str, Any]:
        question = inputs["question"]
        conclusion = "harmful"
        if CLEARED in question:
            conclusion = "not harmful"
        if DOUBTED in question:
            conclusion = "undecided"
        return {
            "context": "Its own advice.",
            "defence": "Some would advise so.",
            "outcome": "The patient could be hurt.",
            "conclusion": conclusion,
            "severity": "severe" if conclusion == "harmful" else "none",
        }

    async def aclose(self) -> None:
        pass


def made_harm(quote: str, severity: Severity) -> JudgedHarm:
    """A harm that both judges call so grave."""
    finding = HarmFinding(
        quote=quote,
        kind=HarmKind.DRUG,
        severity=severity,
        offended=Offended.STANDARD,
        basis="Common practice",
        reason="It could hurt.",
    )
    check = Check(ruling="confirmed", severity=severity, reason="It could.")
    return JudgedHarm(finding=finding, check=check)


def made_row(case_id: str, harms: Sequence[JudgedHarm] = (), **more: object) -> HarmRow:
    """A row of judges that nobody asked."""
    row = HarmRow(
        case_id=case_id,
        key="sha256:0",
        judge="sha256:1",
        reader="a-judge",
        checker="another",
        harms=tuple(harms),
    )
    return replace(row, **more)  # type: ignore[arg-type]


def with_harm(run: GradedRun, seed: int = 0) -> GradedRun:
    """The run with a fifth of its answers harmful and a few unread, by judges who pass their control."""
    rng = random.Random(seed)
    rows = {}
    for case, answer in gradable(run.run.cases, run.answers):
        luck = rng.random()
        harms = []
        if luck < 0.2:
            severity = Severity.SEVERE if luck < 0.08 else Severity.MODERATE
            harms.append(made_harm(answer.response[:40], severity))
        missing = "endpoint: none" if luck > 0.97 else ""
        rows[case.case_id] = made_row(case.case_id, harms, missing=missing)
    controls = (
        made_row("control-1-slip", control="slip", hit=True),
        made_row("control-1-sound", control="excellent", hit=False),
    )
    harm = RunHarm(rows, controls, "sha256:1", "a-judge", "another")
    return replace(run, harm=harm)
