"""Cross-examination: two texts asked about each other, and the scores computed in code.

Source: MEDIC; docs/method.md §5. In curation the document is the thread and the other text is the case written
from it (N + A): what the thread says and the case does not is left out, what the case says and the thread does not
is invention. The questions and the answers are an engine's, the shares are not.
"""

import asyncio
import re
from collections.abc import Sequence

from medlive.curation.agent import Agent, AgentFailure
from medlive.curation.model import Answer, CrossExamination, CrossQuestion, Made, Reason
from medlive.curation.tasks import PACKAGE, AnswersReply, QuestionsReply

MAX_TEXT = 24_000
"""Characters of each text that are shown; a longer thread is examined by its beginning."""
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_]+")


async def cross_examine(
    language: str, thread: str, case: str, agent: Agent, *, count: int
) -> CrossExamination | None:
    """Each text's questions answered by both; None when a reply was unusable, which says nothing about the case.

    `count` is the number of questions from each text, at least 1. Raises AgentFailure when the engine cannot be
    had or the budget is spent.
    """
    texts = {Made.THREAD: thread[:MAX_TEXT], Made.CASE: case[:MAX_TEXT]}
    try:
        made = await asyncio.gather(*(_questions(language, texts[source], agent, count) for source in Made))
        asked = [(source, question) for source, found in zip(Made, made, strict=True) for question in found]
        thread_says, case_says = await asyncio.gather(
            *(_answers(language, texts[source], [question for _, question in asked], agent) for source in Made)
        )
    except AgentFailure as failure:
        if failure.reason in (Reason.ENDPOINT_UNAVAILABLE, Reason.BUDGET_SPENT):
            raise
        return None
    return score(
        [
            CrossQuestion(source, question, *((ours, theirs) if source is Made.THREAD else (theirs, ours)))
            for (source, question), ours, theirs in zip(asked, thread_says, case_says, strict=True)
        ],
        thread_words=count_words(thread),
        case_words=count_words(case),
    )


def score(questions: Sequence[CrossQuestion], *, thread_words: int, case_words: int) -> CrossExamination:
    """The scores of questions that were answered; at least one from each text (docs/method.md §5)."""
    of_thread = [q.other for q in questions if q.made_from is Made.THREAD]
    of_case = [q.other for q in questions if q.made_from is Made.CASE]
    coverage = 100.0 - _share(of_thread, Answer.UNKNOWN)
    conformity = 100.0 - _share(of_thread, Answer.NO)
    consistency = 100.0 - _share(of_case, Answer.UNKNOWN)
    conciseness = 100.0 * (1 - case_words / thread_words) if thread_words else 0.0
    balance = 2 * coverage * conciseness / (coverage + conciseness) if coverage > 0 and conciseness > 0 else 0.0
    return CrossExamination(
        questions=tuple(questions),
        coverage=coverage,
        conformity=conformity,
        conformity_strict=_share(of_thread, Answer.YES),
        consistency=consistency,
        conciseness=conciseness,
        summary=(coverage + conformity + consistency + balance) / 4,
        stability=_share([q.own for q in questions], Answer.YES),
    )


def count_words(text: str) -> int:
    """Words of a text; a Chinese character counts as one."""
    return len(_WORD.findall(text))


def _share(answers: Sequence[Answer], wanted: Answer) -> float:
    return 100.0 * sum(a is wanted for a in answers) / len(answers)


async def _questions(language: str, text: str, agent: Agent, count: int) -> tuple[str, ...]:
    def check(reply: QuestionsReply) -> str | None:
        if len(reply.questions) > count:
            return f"{len(reply.questions)} questions, at most {count} were asked for"
        folded = {question.casefold() for question in reply.questions}
        return "a question stands twice" if len(folded) < len(reply.questions) else None

    inputs = {"language": language, "count": count, "text": text}
    reply = await agent.ask(PACKAGE, "controller.questions", inputs, QuestionsReply, check)
    return reply.questions


async def _answers(language: str, text: str, questions: Sequence[str], agent: Agent) -> list[Answer]:
    listed = [{"id": f"q{number}", "question": question} for number, question in enumerate(questions, 1)]
    wanted = [item["id"] for item in listed]

    def check(reply: AnswersReply) -> str | None:
        given = sorted(a.id for a in reply.answers)
        return None if given == sorted(wanted) else "one answer for each question, no more, no fewer"

    inputs = {"language": language, "text": text, "questions": listed}
    reply = await agent.ask(PACKAGE, "controller.answers", inputs, AnswersReply, check)
    answers = {a.id: a.answer for a in reply.answers}
    return [answers[identity] for identity in wanted]
