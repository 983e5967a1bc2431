"""Grades answers of known quality by a rubric, as `eval grade` grades models' answers in rubric mode."""

from collections.abc import Mapping, Sequence

from medlive.curation.agent import Agent
from medlive.curation.model import CaseText
from medlive.grader.judge import GradingCall, Judge, Mode, Verdicts
from medlive.rubric.model import Criterion
from medlive.rubric.proof import ProbeVerdict


async def grade_probe(
    text: CaseText, criteria: Sequence[Criterion], answer: str, grader: Agent
) -> Mapping[str, ProbeVerdict]:
    """The verdict on every criterion, by its id.

    Args:
        text: The case; the grader sees its narrative and query.
        criteria: The rubric.
        answer: What is graded.
        grader: Asks the grader on behalf of the curation, which records the calls.

    Raises:
        AgentFailure: If a criterion stays ungraded, which is no verdict.
    """
    question = f"{text.narrative}\n\n{text.query}".strip()
    judge = Judge(grader.identity, Mode.RUBRIC)
    probe_verdicts: dict[str, ProbeVerdict] = {}
    for part in judge.parts(criteria):
        call = GradingCall(grader.language, question, answer, part)
        verdicts = Verdicts(judge, call)
        read = await grader.send(judge.request(call), verdicts.read)
        for criterion_id, (verdict, _) in read.items():
            probe_verdicts[criterion_id] = ProbeVerdict(verdict.met, verdict.quote)
    return probe_verdicts
