"""Ask a judge typed questions, stage after stage (`ask_questions`), and read its replies from a log (`read_findings`).

A line of the log is a finding: a question's reply, or why it has none. It is kept under the digest of all that the
reply depends on, so a repeated run asks only what is new or stayed ungraded.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from medlive.evaluation.asking.plan import Plan, plan_calls, sent_text
from medlive.evaluation.model import CallsMade, LogRow, kind_of
from medlive.integrity.digest import digest_json
from medlive.integrity.log import open_log, values_of
from medlive.llm.ask import MOST_RAW, Asker, ReplyModel, Unusable, read_as
from medlive.llm.budget import Budget
from medlive.llm.engine import (
    Engine,
    EngineIdentity,
    Prompt,
    Reply,
    Request,
)
from medlive.llm.pool import Progress, work_through
from medlive.llm.prompts import prompt_beside
from medlive.llm.registry import Price
from medlive.llm.statements import taken_back, words_before

R = TypeVar("R", bound=ReplyModel)

A_ROUND = 1_000
"""`Request.round` of two rounds of a question differ by this; attempts after unusable replies lie between."""
OUTPUT_A_QUESTION = 120
"""Tokens that a plan assumes of a reply."""


@cache
def schema_of(reply: type[ReplyModel]) -> Mapping[str, Any]:
    """The schema of a reply, made once."""
    return reply.model_json_schema()


@dataclass(frozen=True, kw_only=True)
class Question:
    """One typed question to a judge."""

    case_id: str
    part: str
    """Which question of the case, for people: "round 2", "document 3"."""
    inputs: Mapping[str, Any]
    """The inputs of the task, `language` among them."""
    reply: type[ReplyModel]
    """The type of the reply; its task, as "protocol.checklist", names the prompt."""
    check: Callable[[Any], str | None] = lambda _: None
    """What is wrong with a reply that fits its schema, or None."""
    check_text: Callable[[str, Any], str | None] = lambda *_: None
    """As `check`, given the reply's whole text too."""
    round: int = 0
    """Raised where the same question is asked several times on purpose."""
    prompt: Prompt | None = None
    """The instructions; None: the prompt that is named after the task, in the package of the reply's type.

    A module in a folder of plug-ins has no package with prompts beside it.
    """

    @cached_property
    def request(self) -> Request:
        """The request to the judge, without repairs."""
        return Request(
            self.reply.task,
            self.prompt or prompt_beside(self.reply, self.reply.task),
            self.inputs,
            schema_of(self.reply),
            round=self.round * A_ROUND,
        )

    def read(self, reply: Reply) -> ReplyModel:
        """The reply, checked. Raises Unusable."""
        value = read_as(self.reply, self.request, self.check)(reply)
        if taken_back(words_before(reply.text)):
            raise Unusable("the words before the JSON object deny it")
        if fault := self.check_text(reply.text, value):
            raise Unusable(fault)
        return value


@dataclass(frozen=True, slots=True)
class QuestionRow(LogRow):
    """A finding: the reply to a question, or why it has none, as a line of the log."""

    case_id: str
    part: str
    task: str
    key: str
    """The digest of all that the reply depends on: task, prompt, schema, inputs, round and judge."""
    value: Mapping[str, Any] | None
    """The reply; None: ungraded, with its reason."""
    reason: str
    raw: str
    """The judge's reply, cut at 20,000 characters."""
    grader: str
    """The model as the reply names it; "" where no reply came."""
    engine: str
    model: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)


class JudgeReplies:
    """One judge's replies on record, by question."""

    def __init__(self, identity: EngineIdentity) -> None:
        self.identity = identity
        self.others: Sequence[JudgeReplies] = ()
        """The replies of the other judges on record."""
        self._latest: dict[str, QuestionRow] = {}
        self._unusable: Counter[str] = Counter()

    def put(self, finding: QuestionRow) -> None:
        """Add a finding, the newest of its key."""
        self._latest[finding.key] = finding
        self._unusable[finding.key] += finding.value is None and bool(finding.grader)

    def key(self, question: Question) -> str:
        """The key that a question's finding is kept under."""
        return question.request.digest(self.identity)

    def find(self, question: Question) -> QuestionRow | None:
        """What is on record about a question, usable or not."""
        return self._latest.get(self.key(question))

    def row(self, question: Question) -> QuestionRow:
        """What is on record about a question that has a reply. Raises KeyError where there is nothing."""
        return self._latest[self.key(question)]

    def get(
        self,
        question: Question,
        kind: type[R],
    ) -> R | None:
        """The reply to a question, of its type; None: there is none that counts, or the log was changed."""
        finding = self.find(question)
        if finding is None or not self.identity.accepts(finding.grader):
            return None
        try:
            reply = kind.model_validate(finding.value)
        except ValidationError:
            return None
        return reply if question.check(reply) is None else None

    def get_all(
        self,
        questions: Iterable[Question],
        kind: type[R],
    ) -> list[R] | None:
        """The replies to questions; None while one is missing."""
        replies = []
        for question in questions:
            if (reply := self.get(question, kind)) is None:
                return None
            replies.append(reply)
        return replies

    def settled(self, question: Question) -> bool:
        """Whether a question has a reply that counts."""
        return self.get(question, question.reply) is not None

    def why_open(self, question: Question) -> str:
        """Why a question has no reply that counts."""
        if (finding := self.find(question)) is None:
            return "not asked yet"
        if finding.value is None:
            return kind_of(finding.reason)
        return "another model answered, or the record does not hold"

    def fullest(self, questions: Collection[Question]) -> "JudgeReplies":
        """The judge with the most replies to these questions, of equals the one that wrote last."""
        judges = self, *self.others
        return max(judges, key=lambda judge: sum(map(judge.settled, questions)))

    def unusable(self, question: Question) -> int:
        """How many replies to a question could not be used."""
        return self._unusable[self.key(question)]


Source = Callable[[JudgeReplies], Iterable[Question]]
"""Returns all questions that can be asked, given the replies so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionsAsked(CallsMade):
    """How `ask_questions` ended."""

    path: Path
    """The log."""
    judge: str
    """The model that was asked."""
    questions: int
    """How many questions could be asked, those that build on earlier replies included."""
    reasons: Mapping[str, int]
    """Why questions are ungraded."""

    @property
    def settled(self) -> int:
        """Questions that have a reply which counts."""
        return self.questions - self.left


async def ask_questions(
    source: Source,
    path: Path,
    engine: Engine,
    *,
    concurrency: int = 16,
    max_retries: int = 1,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> QuestionsAsked:
    """Ask every question that has no reply yet by this engine, stage after stage.

    `path` is the log, its folder made if missing. Arguments and errors are those of `grade_run`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    who = engine.identity
    asker = Asker(
        engine,
        "judge",
        repairs=max_retries,
        concurrency=concurrency,
        budget=budget,
    )
    asked: set[str] = set()
    stopped: str | None = None
    with open_log(path) as log:
        findings, notes = read_findings(path, who)

        async def ask(question: Question) -> int:
            request = replace(
                question.request,
                round=question.request.round + findings.unusable(question),
            )
            asked.add(key := findings.key(question))
            answer = await asker.ask(request, question.read)
            last = answer.last
            finding = QuestionRow(
                case_id=question.case_id,
                part=question.part,
                task=question.reply.task,
                key=key,
                value=answer.value.model_dump(mode="json") if answer.value else None,
                reason=answer.reason,
                raw=last.text[:MOST_RAW] if last else "",
                grader=last.model if last else "",
                usage=answer.usage,
                **who.as_json(),
            )
            log.add(finding.row())
            findings.put(finding)
            return 1

        while stopped is None:
            left, total = _open(source, findings)
            todo = [question for key, question in left.items() if key not in asked]
            if not todo:
                break
            stopped = await work_through(
                todo,
                ask,
                concurrency,
                done=total - len(todo),
                total=total,
                progress=progress,
            )
    left, total = _open(source, findings)
    reasons = Counter(map(findings.why_open, left.values()))
    return QuestionsAsked(
        path=path,
        judge=who.model,
        questions=total,
        left=len(left),
        calls=asker.calls,
        reasons=dict(reasons.most_common()),
        notes=tuple(notes),
        stopped=stopped,
        silence=asker.silence,
    )


def plan_questions(
    source: Source,
    path: Path,
    identity: EngineIdentity,
    *,
    price: Price | None = None,
) -> Plan:
    """What `ask_questions` would ask now, if no reply had to be asked for twice.

    Questions that build on replies which are not there yet are not counted.
    """
    findings, _ = read_findings(path, identity)
    left, _ = _open(source, findings)
    return plan_calls(
        [(sent_text(question.request), 1) for question in left.values()],
        price=price,
        output_tokens=OUTPUT_A_QUESTION,
    )


def read_findings(
    path: Path,
    identity: EngineIdentity | None = None,
) -> tuple[JudgeReplies, list[str]]:
    """Read one judge's replies from a log, and notes on lines that could not be parsed.

    `others` of the replies holds the other judges', those that wrote last first. Without an identity the judge is the
    one that wrote last, and replies of other models count too. A missing log holds nothing.
    """
    notes, judges = list[str](), dict[str, JudgeReplies]()
    pinned = identity is not None and identity.pinned
    for finding in values_of(path, QuestionRow.from_row, notes):
        who = EngineIdentity(
            finding.engine,
            finding.model,
            finding.parameters,
            pinned,
        )
        mark = digest_json(who.as_json())
        # The judge that wrote last is last.
        judges[mark] = judge = judges.pop(mark, None) or JudgeReplies(who)
        judge.put(finding)
    who = identity or EngineIdentity("", "")
    mark = digest_json(who.as_json()) if identity else next(reversed(judges), "")
    own = judges.pop(mark, None) or JudgeReplies(who)
    own.others = tuple(reversed(judges.values()))
    return own, notes


def _open(
    source: Source,
    findings: JudgeReplies,
) -> tuple[dict[str, Question], int]:
    """The questions without a reply that counts, by key, and the number of all; equal questions count once."""
    questions = {findings.key(question): question for question in source(findings)}
    left = {}
    for key, question in questions.items():
        if not findings.settled(question):
            left[key] = question
    return left, len(questions)
