"""A case's rubric in its three steps: written, completed by what the advice lacks, proved by answers."""

from collections.abc import Mapping

from medlive.curation.agent import Agent
from medlive.curation.model import CaseText, Curation, Side
from medlive.rubric.completion import Completing, Library
from medlive.rubric.defend import cited_passages
from medlive.rubric.prove import GradeProbe, Proving
from medlive.rubric.write import Drafting, MadeRubric


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
    writer, reader = agents["rubric"], agents["reader"]
    drafting = Drafting(text, curation.side(Side.ADVICE), writer, reader)
    made = await drafting.write()
    rubric = made.rubric
    if library is not None:
        completing = Completing(
            text=text,
            curation=curation,
            rubric=rubric,
            first=reader,
            second=writer,
            judge=agents["validator"],
            library=library,
        )
        rubric = await completing.run()
    if grade is None:
        return MadeRubric(rubric, made.faults)
    proving = Proving(
        drafting=drafting,
        passages=cited_passages(curation.claims),
        prober=agents["prober"],
        grader=agents["grader"],
        grade=grade,
    )
    return await proving.prove(rubric, made.faults)
