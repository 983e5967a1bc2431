"""A case's rubric in its steps: answers of known quality, written, completed by what the advice lacks, proved; last,
and nothing that the case depends on, its difficulty and dialogue register."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import ClassVar, Final

from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.model import CaseText, Curation, Side
from medlive.curation.tasks import Reason
from medlive.curation.validator import Library, cited_passages
from medlive.errors import CircuitOpen
from medlive.llm.ask import Loose, ReplyModel
from medlive.rubric.completion import Completing
from medlive.rubric.model import Difficulty, Register, Rubric
from medlive.rubric.probe import write_probes
from medlive.rubric.proof import MISTAKEN, GradedProbe
from medlive.rubric.prove import GradeProbes, Proving
from medlive.rubric.write import Drafting, MadeRubric

MOST_PASSAGES: Final = 8
"""Passages that the reviewer of a proof is shown."""


async def make_rubric(
    curation: Curation,
    text: CaseText,
    agents: Mapping[str, Agent],
    *,
    library: Library | None,
    grade: GradeProbes | None,
) -> MadeRubric:
    """Write, complete and prove the rubric of a case.

    The answers that prove it come first: penalties are drawn from their mistakes.

    Args:
        curation: What the chain made of the thread.
        text: The case's texts.
        agents: By role: "rubric" and "reader", "validator" with a library, "prober" and "grader" with `grade`.
        library: Where points that the advice lacks are searched; None: the rubric is not completed.
        grade: Grades the proof's answers; None makes no proof.

    Raises:
        AgentFailure: If an engine gives no usable reply.
    """
    probes: tuple[GradedProbe, ...] = ()
    errors: list[str] = []
    if grade is not None:
        probes = await write_probes(text, agents["prober"])
        written = [*probes]
        # Answers with a mistake by a second model, where one is configured; they are not graded.
        for role in ("rubric", "reader"):
            identity = agents[role].identity
            is_other = identity.model != agents["prober"].identity.model
            if is_other and identity.engine != "rules":
                written += await write_probes(text, agents[role], MISTAKEN)
                break
        errors = [p.note for p in written if p.probe in MISTAKEN]
    advice = curation.side(Side.ADVICE)
    drafting = Drafting(text, advice, agents["rubric"], agents["reader"], errors)

    rubric = await drafting.write()
    completing = None
    if library is not None:
        judge = agents["validator"]
        completing = Completing(drafting, curation, judge, library, rubric)
        rubric = await completing.run()
    if grade is None:
        return MadeRubric(rubric, drafting.lint(rubric))
    proving = Proving(
        drafting=drafting,
        passages=cited_passages(curation.claims)[:MOST_PASSAGES],
        completing=completing,
        prober=agents["prober"],
        grader=agents["grader"],
        grade=grade,
    )
    rubric, proof = await proving.prove(rubric, probes)
    return MadeRubric(rubric, drafting.lint(rubric), proof)


class ClassifyReply(ReplyModel):
    """Difficulty and dialogue register. Inputs: narrative, query, advice."""

    task: ClassVar = "rubric.classify"
    reason: Reason
    difficulty: Loose[Difficulty]
    dialogue_register: Loose[Register]


async def classify(text: CaseText, rubric: Rubric, agent: Agent) -> Rubric:
    """The rubric with its case's difficulty and register; both stay unknown where no usable reply came."""
    try:
        reply = await agent.ask(ClassifyReply, asdict(text))
    except (AgentFailure, CircuitOpen):
        return rubric
    return replace(
        rubric, difficulty=reply.difficulty, dialogue_register=reply.dialogue_register
    )
