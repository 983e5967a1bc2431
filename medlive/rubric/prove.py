"""Proving a rubric: four answers are written, graded and compared; what fails is ruled on and revised.

Source: docs/method.md §1, Rubric, Proof. `proof` decides; here the engines are asked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from medlive.curation.agent import Agent
from medlive.curation.model import CaseText
from medlive.evidence.passage import Passage
from medlive.rubric.defend import rule_on
from medlive.rubric.lint import Finding
from medlive.rubric.model import Criterion, Rubric
from medlive.rubric.probe import write_probes
from medlive.rubric.proof import (
    Examination,
    GradedProbe,
    ProbeVerdict,
    Proof,
    ProofFault,
    ProofFinding,
    examine,
    without_criteria,
)
from medlive.rubric.write import Drafting, MadeRubric

MOST_REVISIONS: Final = 2
"""How often a rubric goes back to its writer."""

GradeProbe = Callable[
    [CaseText, Sequence[Criterion], str, Agent], Awaitable[Mapping[str, ProbeVerdict]]
]
"""Grades one answer by every criterion. Raises AgentFailure where one stays ungraded."""


@dataclass(slots=True)
class Proving:
    """The proof of one case's rubric."""

    drafting: Drafting
    passages: Sequence[Passage]  # Those that the claims' verdicts cite
    prober: Agent
    grader: Agent
    grade: GradeProbe
    findings: list[ProofFinding] = field(default_factory=list)

    async def prove(self, rubric: Rubric, faults: tuple[Finding, ...]) -> MadeRubric:
        """Prove a rubric, revising it at most twice.

        Criteria that a reviewer rules out are dropped, where the rubric can do without them; only what fails
        even so goes back to the writer. The figures stand in the rubric once it is proved.

        Raises:
            AgentFailure: If an engine gives no usable reply, an ungraded criterion included.
        """
        text = self.drafting.text
        probes = await write_probes(text, rubric.criteria, self.prober)
        for number in range(MOST_REVISIONS + 1):
            probes = await self._grade(rubric.criteria, probes)
            examination = examine(rubric.criteria, probes)
            doubts = await self._rule_on(examination, rubric, number)
            rubric, probes = self._drop(rubric, probes, doubts)
            examination = examine(rubric.criteria, probes)
            failures = _in_round(number, examination.failures)
            self.findings += [*doubts, *failures]
            hopeless = examination.grader_meets_all or number == MOST_REVISIONS
            if examination.passed or hopeless:
                break
            shown = _shown(failures, doubts, rubric)
            rubric, faults, _ = await self.drafting.revise(rubric, shown)
        figures = examination.figures
        proof = Proof(
            passed=examination.passed,
            rounds=number,
            figures=figures,
            probes=probes,
            criteria=rubric.criteria,
            findings=tuple(self.findings),
            engines={
                "prober": self.prober.identity.as_json(),
                "grader": self.grader.identity.as_json(),
            },
        )
        if examination.passed:
            rubric = replace(
                rubric,
                ceiling=figures.ceiling,
                floor=figures.floor,
                separation=figures.separation,
            )
        return MadeRubric(rubric, faults, proof)

    async def _grade(
        self, criteria: Sequence[Criterion], probes: Sequence[GradedProbe]
    ) -> tuple[GradedProbe, ...]:
        text = self.drafting.text
        calls = []
        for probe in probes:
            calls.append(self.grade(text, criteria, probe.answer, self.grader))
        verdicts = await asyncio.gather(*calls)
        graded = []
        for probe, given in zip(probes, verdicts, strict=True):
            graded.append(replace(probe, verdicts=given))
        return tuple(graded)

    async def _rule_on(
        self, examination: Examination, rubric: Rubric, number: int
    ) -> tuple[ProofFinding, ...]:
        earlier = {(f.fault, f.text): f for f in self.findings if f.needed}
        known, new = [], []
        for doubt in examination.doubts:
            ruled_before = earlier.get((doubt.fault, doubt.text))
            if ruled_before is None:
                new.append(doubt)
            else:
                known.append(replace(ruled_before, criterion=doubt.criterion))
        ruled = await rule_on(
            new,
            rubric.criteria,
            self.drafting.text,
            self.drafting.advice,
            self.passages,
            self.drafting.reviewer,
        )
        return tuple(_in_round(number, [*ruled, *known]))

    def _drop(
        self,
        rubric: Rubric,
        probes: tuple[GradedProbe, ...],
        doubts: Sequence[ProofFinding],
    ) -> tuple[Rubric, tuple[GradedProbe, ...]]:
        """The rubric without what the reviewer ruled out, unless it cannot do without."""
        out = {d.criterion for d in doubts if d.criterion and d.needed is False}
        if not out:
            return rubric, probes
        criteria, kept_probes = without_criteria(rubric.criteria, probes, out)
        smaller = replace(rubric, criteria=criteria)
        lint = self.drafting.lint
        if len(lint(smaller)) > len(lint(rubric)):
            return rubric, probes
        return smaller, kept_probes


def _in_round(number: int, findings: Sequence[ProofFinding]) -> list[ProofFinding]:
    return [replace(finding, round=number) for finding in findings]


def _shown(
    failures: Sequence[ProofFinding], doubts: Sequence[ProofFinding], rubric: Rubric
) -> list[dict[str, str]]:
    """What the writer is shown: the failures, and the rulings on criteria that are still there."""
    shown = []
    for failure in failures:
        shown.append({"criterion": "", "finding": _words(failure)})
    ids = {c.criterion: c.id for c in rubric.criteria}
    for doubt in doubts:
        if doubt.text in ids:
            shown.append({"criterion": ids[doubt.text], "finding": _words(doubt)})
    return shown


_ADVICE: Final = {
    ProofFault.SEPARATION: "the rubric must tell them apart",
    ProofFault.LONG_LOW: "points are for what an excellent answer must say, and for nothing else",
    ProofFault.SHORT_LOW: "what is only nice to know must weigh less, or go",
    ProofFault.WRONG_HIGH: "what a wrong answer says too must weigh less, be asked more exactly, or go;"
    " what it gets wrong may be a penalty",
}


def _words(finding: ProofFinding) -> str:
    """A finding as the writer reads it."""
    words = f"{finding.fault.value}: {finding.detail}"
    if finding.needed is None:
        advice = _ADVICE.get(finding.fault)
        return f"{words}; {advice}" if advice else words
    ruling = f"needed by {finding.basis}" if finding.needed else "not needed"
    return f"{words}; a reviewer: {ruling}: {finding.reason}"
