"""A case's rubric in its three steps: written, completed by what the advice lacks, proved by answers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from medlive.curation.agent import Agent
from medlive.curation.model import CaseText, Curation, Side
from medlive.rubric.completion import Library, Voices, complete_rubric
from medlive.rubric.defend import cited_passages
from medlive.rubric.lint import Finding
from medlive.rubric.model import Rubric
from medlive.rubric.proof import Proof
from medlive.rubric.prove import GradeProbe, Proving, Revision
from medlive.rubric.write import lint_case, revise_rubric, write_rubric


class MadeRubric(NamedTuple):
    """A rubric, and what still speaks against it."""

    rubric: Rubric
    faults: tuple[Finding, ...]
    proof: Proof | None  # None where none was made


async def make_rubric(
    curation: Curation,
    text: CaseText,
    agents: Mapping[str, Agent],
    *,
    library: Library | None,
    grade: GradeProbe | None,
) -> MadeRubric:
    """Write, complete and prove the rubric of a case.

    Args:
        curation: What the chain made of the thread.
        text: The case's texts.
        agents: By role: "rubric" and "reader", "validator" with a library, "prober" and "grader" with `grade`.
        library: Where points that the advice lacks are searched; None: the rubric is not completed.
        grade: Grades the proof's answers; None makes no proof.

    Raises:
        AgentFailure: If an engine gives no usable reply.
    """
    advice = curation.side(Side.ADVICE)
    writer, reader = agents["rubric"], agents["reader"]
    rubric, faults = await write_rubric(text, advice, writer=writer, reviewer=reader)
    if library is not None:
        voices = Voices(first=reader, second=writer, judge=agents["validator"])
        rubric = await complete_rubric(text, curation, rubric, voices, library)
    if grade is None:
        return MadeRubric(rubric, faults, None)
    proving = _proving(curation, text, agents, grade)
    return MadeRubric(*await proving.prove(rubric, faults))


def _proving(
    curation: Curation, text: CaseText, agents: Mapping[str, Agent], grade: GradeProbe
) -> Proving:
    advice = curation.side(Side.ADVICE)
    writer, reader = agents["rubric"], agents["reader"]

    async def revise(rubric: Rubric, findings: Sequence[Mapping[str, str]]) -> Revision:
        revised = await revise_rubric(
            text, advice, rubric, findings, writer=writer, reviewer=reader
        )
        return Revision(*revised)

    def lint_rubric(rubric: Rubric) -> tuple[Finding, ...]:
        return lint_case(
            writer.language, rubric.criteria, text, advice, rubric.no_negative
        )

    return Proving(
        text=text,
        advice=advice,
        passages=cited_passages(curation.claims),
        prober=agents["prober"],
        grader=agents["grader"],
        reviewer=reader,
        grade=grade,
        revise=revise,
        lint=lint_rubric,
    )
