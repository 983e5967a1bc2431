"""`grade_probes` grades probes, answers of known quality that test a rubric: in one call, then singly what is missing.

The instructions on what "met" means are those of `grader.rubric`, by which `eval grade` grades models' answers.
"""

from collections.abc import Mapping, Sequence

from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.model import CaseText
from medlive.integrity.digest import digest_text
from medlive.llm.ask import AtMost20, AtMost60, ReplyModel, Unusable
from medlive.llm.engine import Reply, Request
from medlive.llm.prompts import load_prompt
from medlive.rubric.model import Criterion
from medlive.rubric.proof import ProbeVerdict

from .judge import GradingCall, Judge, Mode
from .reply import (
    RubricGradeItem,
    Verdict,
    echo_of,
    one_value,
    read_grades,
)

PACKAGE = "medlive.grader"

Grades = Mapping[str, ProbeVerdict]
"""The verdict on every criterion, by its id."""


class GradedAnswer(ReplyModel):
    """One answer's grades."""

    id: str
    grades: AtMost60[RubricGradeItem]


class GradedAnswersReply(ReplyModel):
    """`grader.answers`: for each answer a grade for each criterion.

    Inputs: language, question, criteria [{id, criterion}], answers [{id, answer}].
    """

    task = "grader.answers"
    answers: AtMost20[GradedAnswer]


async def grade_probes(
    text: CaseText,
    criteria: Sequence[Criterion],
    answers: Sequence[str],
    grader: Agent,
) -> list[Grades]:
    """The verdicts on each answer, in their order.

    Args:
        text: The case; the grader sees its narrative and query.
        criteria: The rubric.
        answers: What is graded.
        grader: Asks the grader on behalf of the curation, which records the calls.

    Raises:
        AgentFailure: If a criterion stays ungraded.
    """
    # Under ids whose order says nothing of their quality
    shuffled = sorted(set(answers), key=digest_text)
    by_id = {f"r{number}": answer for number, answer in enumerate(shuffled, 1)}
    try:
        together = await _grade_together(text, criteria, by_id, grader)
    except AgentFailure as failure:
        if failure.is_outage:
            raise
        together = {}
    grades: list[Grades] = []
    for answer in answers:
        known = dict(together.get(answer, {}))
        left = [c for c in criteria if c.id not in known]
        if left:
            known |= await grade_singly(text, left, answer, grader)
        grades.append(known)
    return grades


async def _grade_together(
    text: CaseText,
    criteria: Sequence[Criterion],
    answers: Mapping[str, str],
    grader: Agent,
) -> dict[str, dict[str, ProbeVerdict]]:
    """The verdicts that one call gives, by answer and criterion; verdicts that cannot be read are left out.

    `answers` are by the id that the grader sees.
    """
    question = text.question
    inputs = {
        "language": grader.language,
        "question": question,
        "criteria": [{"id": c.id, "criterion": c.criterion} for c in criteria],
        "answers": [{"id": name, "answer": answer} for name, answer in answers.items()],
    }
    schema = GradedAnswersReply.model_json_schema()
    prompt = load_prompt(PACKAGE, GradedAnswersReply.task)
    request = Request(GradedAnswersReply.task, prompt, inputs, schema)
    # What a reply may repeat of its task; other words make the verdict unusable
    echoes = {c.id: echo_of(question, c) for c in criteria}

    def read(reply: Reply) -> dict[str, dict[str, ProbeVerdict]]:
        value, _ = one_value(reply.text)
        items = value.get("answers") if isinstance(value, dict) else None
        if not isinstance(items, list):
            raise Unusable("the reply holds no list `answers`")
        verdicts: dict[str, dict[str, ProbeVerdict]] = {}
        for item in items:
            name = item.get("id") if isinstance(item, dict) else None
            if not isinstance(name, str) or name not in answers:
                continue
            listed = {"grades": item.get("grades")}
            graded = read_grades(listed, list(echoes), answers[name], echoes)
            own = verdicts[answers[name]] = {}
            for criterion_id, verdict in graded.items():
                if isinstance(verdict, Verdict):
                    own[criterion_id] = ProbeVerdict(verdict.met, verdict.quote)
        if len(verdicts) < len(items) or len(items) < len(answers):
            raise Unusable("one entry for each answer's id, no more, no fewer")
        return verdicts

    return await grader.send(request, read)


async def grade_singly(
    text: CaseText,
    criteria: Sequence[Criterion],
    answer: str,
    grader: Agent,
) -> Grades:
    """The verdicts on one answer, as `eval grade` asks for them in rubric mode.

    Args:
        text: The case; the grader sees its narrative and query.
        criteria: The rubric.
        answer: What is graded.
        grader: Asks the grader on behalf of the curation, which records the calls.

    Raises:
        AgentFailure: If a criterion stays ungraded.
    """
    judge = Judge(grader.identity, Mode.RUBRIC)
    probe_verdicts: dict[str, ProbeVerdict] = {}
    for part in judge.parts(criteria):
        call = GradingCall(judge, grader.language, text.question, answer, part)
        read = await grader.send(call.request, call.read)
        for criterion_id, (verdict, _) in read.items():
            probe_verdicts[criterion_id] = ProbeVerdict(verdict.met, verdict.quote)
    return probe_verdicts
