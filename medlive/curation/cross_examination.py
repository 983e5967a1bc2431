"""Cross-examination: two texts asked about each other, and the scores computed in code.

Source: MEDIC; docs/method.md §5. The document is the thread, the other text the case written from it (N + A):
coverage finds omissions, consistency finds inventions. An engine asks and answers; code computes the scores.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from medlive.threads.model import Thread

from .agent import Agent, AgentFailure, by_id, check_ids
from .elements import visible_texts
from .model import (
    Answer,
    CaseText,
    CrossExamination,
    CrossQuestion,
    Origin,
)
from .tasks import AnswersReply, QuestionsReply

MAX_TEXT = 24_000  # Characters of each text that are used; a longer thread is cut
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_]+")


async def cross_examine(
    thread: Thread, case: CaseText, agent: Agent, *, count: int
) -> CrossExamination | None:
    """Have `count` questions (at least 1) made of the thread and of N + A, answered by each of the two, and scored.

    None when a reply was unusable. Raises AgentFailure when the engine is unavailable or the budget is spent.
    """
    document = "\n\n".join(visible_texts(thread)).strip()
    other = f"{case.narrative}\n{case.advice}"
    texts = (document[:MAX_TEXT], other[:MAX_TEXT])

    async def question(text: str) -> QuestionsReply:
        """Have questions made of a text."""
        inputs = {"count": count, "text": text}
        return await agent.ask(
            QuestionsReply, inputs, lambda reply: check_questions(reply, count)
        )

    async def answer(text: str) -> AnswersReply:
        """Have all questions answered by a text."""
        inputs = {"text": text, "questions": asked}
        return await agent.ask(
            AnswersReply, inputs, lambda reply: check_answers(reply, asked)
        )

    try:
        made = await asyncio.gather(*map(question, texts))
        asked = number_questions(made)
        replies = await asyncio.gather(*map(answer, texts))
    except AgentFailure as failure:
        if failure.is_outage:
            raise
        return None
    return compare(made, replies, document, other)


def number_questions(made: Sequence[QuestionsReply]) -> list[dict[str, str]]:
    """The questions of both texts, the document's first, as the inputs of `controller.answers`."""
    numbered: list[dict[str, str]] = []
    for reply in made:
        for question in reply.questions:
            numbered.append({"id": f"q{len(numbered) + 1}", "question": question})
    return numbered


def check_questions(reply: QuestionsReply, count: int) -> str | None:
    """What is wrong with a reply; None if nothing."""
    if len(reply.questions) > count:
        return f"{len(reply.questions)} questions, at most {count} were asked for"
    folded = {question.casefold() for question in reply.questions}
    return "a question stands twice" if len(folded) < len(reply.questions) else None


def check_answers(
    reply: AnswersReply,
    asked: Sequence[dict[str, Any]],
) -> str | None:
    """What is wrong with a reply; None if nothing."""
    return check_ids(reply.answers, [question["id"] for question in asked])


def compare(
    made: Sequence[QuestionsReply],
    replies: Sequence[AnswersReply],
    document: str,
    other: str,
) -> CrossExamination:
    """Score the document against the other text.

    Args:
        made: The questions made of each text, the document's first.
        replies: Each text's answers to all of them.
        document: The text that may be longer.
        other: The text that is measured.
    """
    by_document, by_other = (by_id(reply.answers) for reply in replies)
    of_document = len(made[0].questions)
    questions = []
    for place, asked in enumerate(number_questions(made)):
        identity = asked["id"]
        own = by_document[identity].answer
        its = by_other[identity].answer
        source: Origin = "thread"
        if place >= of_document:
            source, own, its = "case", its, own
        questions.append(CrossQuestion(source, asked["question"], own, its))
    return score(
        questions, thread_words=count_words(document), case_words=count_words(other)
    )


def score(
    questions: Sequence[CrossQuestion], *, thread_words: int, case_words: int
) -> CrossExamination:
    """Score answered questions, at least one from each text (docs/method.md §5)."""
    of_thread: list[Answer] = []
    of_case: list[Answer] = []
    for question in questions:
        own = of_thread if question.made_from == "thread" else of_case
        own.append(question.other)
    coverage = 100.0 - _share(of_thread, Answer.UNKNOWN)
    conformity = 100.0 - _share(of_thread, Answer.NO)
    consistency = 100.0 - _share(of_case, Answer.UNKNOWN)
    conciseness = 100.0 * (1 - case_words / thread_words) if thread_words else 0.0
    balance = 0.0
    if coverage > 0 and conciseness > 0:
        balance = 2 * coverage * conciseness / (coverage + conciseness)
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
    """How many of the answers are `wanted`, in percent."""
    return 100.0 * sum(a is wanted for a in answers) / len(answers)
