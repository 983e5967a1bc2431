"""Grades answers of known quality by a rubric, as `eval grade` grades models' answers in rubric mode."""

from collections.abc import Mapping, Sequence

from medlive.curation.agent import Agent
from medlive.curation.model import CaseText
from medlive.evaluation.grading.judge import Judge, Verdicts, Work
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    EvaluationCase,
    EvaluationCriterion,
    Mode,
)
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
    case = probed_case(text, criteria, grader.language)
    probe_answer = Answer(case.case_id, AnswerState.OK, answer, "stop", "")
    judge = Judge(grader.identity, Mode.RUBRIC)
    probe_verdicts: dict[str, ProbeVerdict] = {}
    for part in judge.parts(case.criteria):
        work = Work(case, probe_answer, part)
        verdicts = Verdicts(judge, work)
        read = await grader.send(judge.request(work), verdicts.read)
        for criterion_id, (verdict, _) in read.items():
            probe_verdicts[criterion_id] = ProbeVerdict(verdict.met, verdict.quote)
    return probe_verdicts


def probed_case(
    text: CaseText, criteria: Sequence[Criterion], language: str
) -> EvaluationCase:
    """A case as the grader sees it, before it has an id."""
    return EvaluationCase(
        case_id="proof",
        language=language,
        narrative=text.narrative,
        query=text.query,
        advice=text.advice,
        criteria=tuple(
            EvaluationCriterion(c.id, c.criterion, c.points, c.axis.value)
            for c in criteria
        ),
        post_time="",
        month=None,
    )
