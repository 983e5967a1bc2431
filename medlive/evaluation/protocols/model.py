"""What a protocol is: typed questions about cases and answers, and the tables that their replies come to.

A protocol asks nobody. `runner` puts its questions to a judge, keeps what was found in a log, and asks again only
what is open. What could not be had is never a figure: an answer that is missing is unanswered, a question without
a usable reply ungraded, and a model without any case that counts NA (None).
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, Final, Self, TypeVar

from pydantic import BaseModel, ConfigDict

from medlive.evaluation.model import Answer, EvaluationCase, LogRow, gradable
from medlive.evaluation.scoring.graded import GradedRun
from medlive.llm.engine import EngineIdentity, Request
from medlive.llm.prompts import load_prompt

R = TypeVar("R", bound=BaseModel)

A_ROUND: Final = 1_000
"""Attempts after unusable replies lie between two rounds of the same question."""

Cell = str | int | float | None
"""None: NA, or not defined."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One typed question to a judge."""

    case_id: str
    part: str
    """Which question of the case, for people: "round 2", "document 3"."""
    task: str
    """The prompt's name, "protocol.checklist"."""
    inputs: Mapping[str, Any]
    """`language` among them."""
    reply: type[BaseModel]
    check: Callable[[Any], str | None] = lambda _: None
    """What is wrong with a reply that fits its schema, or None."""
    round: int = 0
    """Raised where the same question is asked several times on purpose."""
    package: str = "medlive.evaluation"
    """Where the prompt lies."""

    @cached_property
    def request(self) -> Request:
        """What is asked."""
        return Request(
            self.task, load_prompt(self.package, self.task), self.inputs, self.reply.model_json_schema(),
            round=self.round * A_ROUND,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding(LogRow):
    """What came of a question, as a line of a protocol's log."""

    case_id: str
    part: str
    task: str
    key: str
    """The digest of all that the reply rests on: task, prompt, schema, inputs, round and judge."""
    value: Mapping[str, Any] | None
    """The reply; None: ungraded, with its reason."""
    reason: str
    raw: str
    """The judge's reply, cut at 20,000 characters."""
    grader: str
    """The model as the reply names it; "" where no reply came."""
    engine: str
    model: str
    usage: Mapping[str, Any] = field(default_factory=dict)


class Findings:
    """What one judge was found to say, by question."""

    def __init__(self, identity: EngineIdentity, *, allow_unpinned: bool = False) -> None:
        """`identity` is the judge's; `allow_unpinned` lets replies of other models count."""
        self.identity, self._allow = identity, allow_unpinned
        self._latest: dict[str, Finding] = {}
        self._read: dict[str, BaseModel] = {}
        self._unusable: Counter[str] = Counter()

    def put(self, finding: Finding) -> None:
        """The newest finding of its key."""
        self._latest[finding.key] = finding
        self._read.pop(finding.key, None)
        self._unusable[finding.key] += finding.value is None and bool(finding.grader)

    def key(self, question: Question) -> str:
        """What a question's finding is kept under."""
        return question.request.digest(self.identity)

    def find(self, question: Question) -> Finding | None:
        """What is on record about a question, usable or not."""
        return self._latest.get(self.key(question))

    def get(self, question: Question, kind: type[R]) -> R | None:
        """The reply to a question; None: there is none that counts."""
        key = self.key(question)
        if (read := self._read.get(key)) is None:
            found = self._latest.get(key)
            if found is None or found.value is None or not self.identity.accepts(found.grader, self._allow):
                return None
            read = self._read[key] = kind.model_validate(found.value)
        if not isinstance(read, kind):
            raise TypeError(f"{question.task} is answered by {type(read).__name__}, not {kind.__name__}")
        return read

    def settled(self, question: Question) -> bool:
        """Whether a question has a reply that counts."""
        return self.get(question, question.reply) is not None

    def unusable(self, question: Question) -> int:
        """How many replies to a question could not be used."""
        return self._unusable[self.key(question)]


@dataclass(frozen=True, slots=True)
class Subject:
    """One model's answers to its cases, with the verdicts of one grader where a grader was there."""

    label: str
    """The model's name, made unique among those evaluated together."""
    cases: tuple[EvaluationCase, ...]
    answers: Mapping[str, Answer]
    verdicts: Callable[[str], Mapping[str, bool | None]] = lambda _: {}
    """Case id → criterion id → met, not met, or None for ungraded."""

    @classmethod
    def of(cls, graded: GradedRun) -> Self:
        """A run's."""
        return cls(graded.label, graded.run.cases, graded.answers, graded.verdicts)

    def answered(self) -> Iterator[tuple[EvaluationCase, Answer]]:
        """The cases whose answers hold text, each with its answer."""
        return gradable(self.cases, self.answers)


Material = Sequence[Subject]
"""What a protocol works on, in the order given."""


@dataclass(frozen=True, slots=True)
class Table:
    """Figures to be printed, drawn and stored."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    """What a reader must know to read it: the source of the formula, what None stands for."""


@dataclass(frozen=True, slots=True)
class Results:
    """What a protocol found."""

    tables: Sequence[Table]
    figures: Mapping[str, float | None]
    """Model → the protocol's one figure, higher being better; None: NA."""
    notes: Sequence[str] = ()


class Side(StrEnum):
    """What a protocol's figure says of a model, for the gaps of a portfolio."""

    KNOWLEDGE = "knowledge"
    EXECUTION = "execution"
    PASSIVE = "passive safety"
    ACTIVE = "active safety"


class Protocol(BaseModel, ABC):
    """A method of evaluation. Its fields are its options, described and checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: ClassVar[str]
    about: ClassVar[str]
    """One line: what it finds out, and the paper."""
    figure: ClassVar[str]
    """What the one figure is, with its unit."""
    asks: ClassVar[bool] = True
    """Whether it puts questions to a judge of its own."""
    side: ClassVar[Side | None] = None
    """What the figure, 0 to 1, is compared with in a portfolio; None: with nothing."""

    @classmethod
    @abstractmethod
    def fits(cls, material: Material) -> bool:
        """Whether these runs are of the kind that it works on: what a portfolio asks before it applies it."""

    def questions(self, material: Material, found: Findings) -> Iterable[Question]:
        """All questions that can be asked, given what was found: again whenever something was.

        Those that build on earlier replies come once these are there.
        """
        return ()

    @abstractmethod
    def results(self, material: Material, found: Findings) -> Results:
        """The tables. Raises UsageError for material that the protocol cannot work on."""


def is_planted(case: EvaluationCase) -> bool:
    """Whether a case was made to find an error in (`errors.plant`)."""
    return any(tag.startswith("error:") for tag in case.tags)


def has_reference(cases: Sequence[EvaluationCase]) -> bool:
    """Whether most cases have a physician's answer, and none an error planted in it."""
    found = [bool(case.advice.strip()) for case in cases if not is_planted(case)]
    return bool(found) and 2 * sum(found) > len(found) and len(found) == len(cases)
