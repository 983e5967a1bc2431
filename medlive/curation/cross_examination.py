"""Cross-examination: two texts asked about each other, and the scores computed in code.

Source: MEDIC; docs/method.md §5. The document is the thread, the other text the case written from it (N + A):
coverage finds omissions, consistency finds inventions. An engine asks and answers; code computes the scores.
"""

import asyncio
import re
from collections.abc import Sequence

from medlive.curation.agent import Agent, AgentFailure, check_ids
from medlive.curation.model import Answer, CrossExamination, CrossQuestion, Origin, Reason
from medlive.curation.tasks import AnswersReply, QuestionsReply

MAX_TEXT = 24_000  # Characters of each text that are used; a longer thread is cut
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_]+")


async def cross_examine(thread: str, case: str, agent: Agent, *, count: int) -> CrossExamination | None:
    """Ask both texts `count` questions (at least 1) of each; None when a reply was unusable.

    Raises AgentFailure when the engine is unavailable or the budget is spent.
    """
    texts = {Origin.THREAD: thread[:MAX_TEXT], Origin.CASE: case[:MAX_TEXT]}
    try:
        made = await asyncio.gather(*(_questions(texts[source], agent, count) for source in Origin))
        asked = [(source, question) for source, found in zip(Origin, made, strict=True) for question in found]
        thread_says, case_says = await asyncio.gather(
            *(_answers(texts[source], [question for _, question in asked], agent) for source in Origin)
        )
    except AgentFailure as failure:
        if failure.reason in (Reason.ENDPOINT_UNAVAILABLE, Reason.BUDGET_SPENT):
            raise
        return None
    return score(
        [
            CrossQuestion(source, question, *((ours, theirs) if source is Origin.THREAD else (theirs, ours)))
            for (source, question), ours, theirs in zip(asked, thread_says, case_says, strict=True)
        ],
        thread_words=count_words(thread),
        case_words=count_words(case),
    )


def score(questions: Sequence[CrossQuestion], *, thread_words: int, case_words: int) -> CrossExamination:
    """Score answered questions, at least one from each text (docs/method.md §5)."""
    of_thread = [q.other for q in questions if q.made_from is Origin.THREAD]
    of_case = [q.other for q in questions if q.made_from is Origin.CASE]
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


async def _questions(text: str, agent: Agent, count: int) -> tuple[str, ...]:
    def check(reply: QuestionsReply) -> str | None:
        if len(reply.questions) > count:
            return f"{len(reply.questions)} questions, at most {count} were asked for"
        folded = {question.casefold() for question in reply.questions}
        return "a question stands twice" if len(folded) < len(reply.questions) else None

    return (await agent.ask(QuestionsReply, {"count": count, "text": text}, check)).questions


async def _answers(text: str, questions: Sequence[str], agent: Agent) -> list[Answer]:
    by_id = {f"q{number}": question for number, question in enumerate(questions, 1)}
    inputs = {"text": text, "questions": [{"id": i, "question": question} for i, question in by_id.items()]}
    reply = await agent.ask(
        AnswersReply, inputs, lambda reply: check_ids([a.id for a in reply.answers], list(by_id))
    )
    answers = {a.id: a.answer for a in reply.answers}
    return [answers[identity] for identity in by_id]
