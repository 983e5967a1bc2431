"""A case's difficulty and dialogue register: asked last, and nothing that the case depends on."""

from dataclasses import asdict, replace
from typing import ClassVar

from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.model import CaseText
from medlive.curation.tasks import Reason
from medlive.errors import CircuitOpen
from medlive.llm.ask import Loose, ReplyModel
from medlive.rubric.model import Difficulty, Register, Rubric


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
