"""The data of an evaluation: cases with their criteria, answers, and grades with their keys (`grade_keys`)."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import StrictBool, TypeAdapter, ValidationError

from medlive.errors import EndpointUnavailable, first_fault
from medlive.grader.judge import Mode
from medlive.integrity.digest import digest_bytes, digest_json, digest_text
from medlive.integrity.log import lines_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


ADVICE = "advice"
"""The origin of a criterion that is based on what the physician advised."""


class LogRow:
    """A frozen dataclass that is a line of a log; enums are written by value."""

    __slots__ = ()
    left_out: ClassVar[tuple[str, ...]] = ()
    """Fields that are not written where they are empty."""

    def row(self) -> dict[str, Any]:
        """The line as JSON."""
        row = {name: getattr(self, name) for name in _shape(type(self))[1]}
        for name in self.left_out:
            if not row[name]:
                del row[name]
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Parse a line; unknown fields are ignored. Raises ValueError if it is invalid."""
        try:
            parsed: Self = _shape(cls)[0].validate_python(row)
        except ValidationError as exc:
            raise ValueError(first_fault(exc)) from exc
        return parsed


_shape: Callable[[type], tuple[TypeAdapter[Any], tuple[str, ...]]] = cache(
    lambda cls: (TypeAdapter(cls), tuple(field.name for field in fields(cls)))
)
"""A dataclass's parser, and the names of its fields."""


@dataclass(frozen=True, slots=True)
class EvaluationCriterion(LogRow):
    """One criterion to grade by."""

    id: str
    """Unique within its case."""
    criterion: str
    points: float
    """Finite; negative where meeting it is an error."""
    axis: str | None = None
    """None where the file names none."""
    tags: tuple[str, ...] = ()
    """As the file has them, such as HealthBench's `level:example`."""
    origin: str = ADVICE
    """"advice", "evidence" or "consensus" (docs/method.md §1); advice where the file names none."""

    left_out: ClassVar = ("tags",)

    def row(self) -> dict[str, Any]:
        """The criterion as JSON; tags, and an origin other than advice, only where there are some."""
        row = LogRow.row(self)
        if self.origin == ADVICE:
            del row["origin"]
        return row


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation that a model is asked to go on with."""

    role: str
    """"system", "user" or "assistant"."""
    content: str


@dataclass(frozen=True, slots=True)
class EvaluationCase(LogRow):
    """A case as a model is asked about it and graded on it."""

    case_id: str
    language: str
    """"en" or "zh"."""
    narrative: str
    query: str
    advice: str
    criteria: tuple[EvaluationCriterion, ...]
    post_time: str
    """As the file spells it; "" when it does not say."""
    month: str | None
    """`YYYY-MM`, None where `post_time` cannot be read."""
    source: str | None = None
    theme: str | None = None
    specialty: str | None = None
    first_release: str | None = None
    cluster: str | None = None
    """Cases of one cluster are drawn together by every interval; None: the case is a cluster of its own."""
    turns: tuple[Turn, ...] = ()
    """A conversation, sent in place of narrative and query, which hold the case's own part of it; () elsewhere."""
    after: str | None = None
    """The id of an earlier case that this one continues: its question and the model's answer to it are sent first."""
    tags: tuple[str, ...] = ()
    difficulty: str | None = None
    """"low", "medium" or "high"; None where nobody said."""
    dialogue_register: str | None = None
    """"lay" or "professional"; None where nobody said."""
    left_out: ClassVar = (
        "cluster",
        "turns",
        "after",
        "tags",
        "difficulty",
        "dialogue_register",
    )

    @property
    def question(self) -> str:
        """What the grader sees of the question: the conversation, or narrative, an empty line, query."""
        if self.turns:
            return conversation(self.turns)
        return f"{self.narrative}\n\n{self.query}".strip()

    @property
    def positive_points(self) -> float:
        """The most points an answer can have: Σ_{w_k>0} w_k."""
        return sum(c.points for c in self.criteria if c.points > 0)

    @property
    def advice_only(self) -> "EvaluationCase":
        """The case with the criteria that are based on the advice; the same object where all are."""
        return self.with_criteria(lambda c: c.origin == ADVICE)

    def with_criteria(
        self,
        keep: Callable[[EvaluationCriterion], bool],
    ) -> "EvaluationCase":
        """The case with some of its criteria; the same object where all are kept."""
        kept = tuple(c for c in self.criteria if keep(c))
        if len(kept) == len(self.criteria):
            return self
        return replace(self, criteria=kept)

    def row(self) -> dict[str, Any]:
        """The case as JSON; what not every case has is left out where it is empty."""
        row = LogRow.row(self)
        row["criteria"] = [criterion.row() for criterion in self.criteria]
        if self.turns:
            row["turns"] = list(map(asdict, self.turns))
        return row


def conversation(turns: Iterable[Turn]) -> str:
    """The turns as a text, each after its role, as HealthBench's grader is shown them."""
    return "\n\n".join(f"{turn.role}: {turn.content}" for turn in turns)


def clusters_by_case(cases: Iterable[EvaluationCase]) -> dict[str, int]:
    """Case id → the number of its cluster, from 0 in order of appearance; a case without one is its own."""
    places: dict[object, int] = {}
    numbers = {}
    for case in cases:
        own = ("case", case.case_id)
        name = own if case.cluster is None else ("cluster", case.cluster)
        numbers[case.case_id] = places.setdefault(name, len(places))
    return numbers


def cluster_array(cases: Sequence[EvaluationCase]) -> "NDArray[np.int_]":
    """The number of each case's cluster, from 0: (cases)."""
    import numpy as np

    clusters = clusters_by_case(cases)
    return np.array([clusters[case.case_id] for case in cases], dtype=np.int_)


def cluster_numbers(cases: Sequence[EvaluationCase]) -> "NDArray[np.int_] | None":
    """As `cluster_array`; None where every case is a cluster of its own."""
    clusters = cluster_array(cases)
    return None if len(set(clusters)) == len(clusters) else clusters


@dataclass(frozen=True, slots=True)
class CaseSet:
    """The cases of an evaluation and where they came from."""

    cases: tuple[EvaluationCase, ...]
    origin: str
    """"snapshot", or the format of the file ("livemedbench", "healthbench" …)."""
    name: str
    """The snapshot's version, or the file's name."""
    digest: str
    """The digest of SHA256SUMS, or of the file."""
    publishable: bool | None
    """None where the file does not say."""
    notes: tuple[str, ...] = ()
    """What was irregular in the file and how it was read, a line each."""
    snapshots: Path | None = None
    """Where the snapshot's folder lies, and errata beside it; None: the cases are of no snapshot's folder."""
    verified: bool | None = None
    """Whether the snapshot was verified; None where there is nothing to verify."""
    selection: Mapping[str, Any] | None = None
    """Which part of the cases these are (`Selection.as_json`); None: all."""

    def __len__(self) -> int:
        return len(self.cases)

    @property
    def count(self) -> int:
        """How many cases, as `run.json` has it."""
        return len(self)

    @property
    def rows(self) -> str:
        """The digest of `cases.jsonl`, as `run.json` has it."""
        return digest_bytes(self.data())

    def data(self) -> bytes:
        """`cases.jsonl`."""
        return lines_of(case.row() for case in self.cases)


class AnswerState(StrEnum):
    """The result of asking the model."""

    OK = "ok"
    TRUNCATED = "truncated"
    """Cut at the token limit; graded as far as it goes."""
    REFUSED = "refused"
    """The model or its filter declined; what text there is is graded."""
    EMPTY = "empty"
    FAILED = "failed"
    """No answer came: it is asked for again, and is not the model's fault."""


@dataclass(frozen=True, slots=True)
class Answer(LogRow):
    """A model's answer to a case, as a line of `responses.jsonl`."""

    case_id: str
    state: AnswerState
    response: str
    finish_reason: str
    model: str
    """The model as the endpoint named it; "" when it did not answer."""
    reason: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    thinking: str = ""
    """What a reasoning model thought before it answered, where its endpoint shows it; never graded."""
    left_out: ClassVar = ("thinking",)

    @property
    def gradable(self) -> bool:
        """Whether there is text to grade; otherwise the case is unanswered."""
        has_none = self.state in (AnswerState.FAILED, AnswerState.EMPTY)
        return not has_none and bool(self.response.strip())

    @property
    def digest(self) -> str:
        """The digest of the answer's text."""
        return digest_text(self.response)


Origin = Literal["call", "cache", "batch", "import"]
"""Where a verdict came from: a call; a cache that runs of earlier versions shared, which cost nothing; the result
file of a batch; an imported file of verdicts that the user said are this grader's."""


_PARTICULAR = re.compile(
    r"(?<=letter for letter): .*|(?<=show anything): .*|(?<=did): .*|: line \d+ col.*",
    re.S,
)
"""The parts of a reason that are about one reply alone."""
_ATTEMPTS = re.compile(r" in \d+ attempts?: ")


def kind_of(reason: str) -> str:
    """Why a criterion is ungraded, without what is particular to one reply, so that equal reasons can be counted."""
    kind, _, detail = reason.partition(": ")
    if kind == "endpoint":
        # "<endpoint> gave no answer for model <id> in <n> attempts: <cause>"
        return f"{kind}: {_ATTEMPTS.split(detail)[-1][:80]}"
    return _PARTICULAR.sub("", reason)[:300]


@dataclass(frozen=True, slots=True)
class Grade(LogRow):
    """The verdict on one criterion, as a line of `grades.jsonl`."""

    case_id: str
    criterion_id: str
    key: str
    """The digest of all that the verdict depends on; see `grade_keys`."""
    met: StrictBool | None
    """None is ungraded: neither met nor unmet, with its reason."""
    quote: str
    reasoning: str
    reason: str
    """Why it is ungraded, else ""."""
    raw: str
    """What the grader said, cut at 20,000 characters."""
    grader: str
    """The model as the reply names it; "" where no reply came."""
    engine: str
    model: str
    mode: Mode
    prompt: str
    judge: str
    """The digest of engine, model, parameters, mode and prompt: graders with the same digest are one."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    """The call's cost; in rubric mode on the first criterion of the call alone."""
    origin: Origin = "call"
    whole: bool = False
    """Whether the criterion is about what the answer leaves out or its manner as a whole, and needs no quote."""
    left_out: ClassVar = ("whole",)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsMade:
    """How a series of calls to a model ended."""

    calls: int
    left: int
    """How much of it is not done: cases without an answer, criteria without a verdict."""
    notes: tuple[str, ...] = ()
    stopped: str | None = None
    """Which budget ended it; None: none did."""
    silence: EndpointUnavailable | None = None
    """Why the last call failed, where none of these calls was answered (`Health.silence`)."""


def grade_keys(
    case: EvaluationCase,
    answer: Answer,
    judge: str,
    criteria: Iterable[EvaluationCriterion] | None = None,
) -> dict[str, str]:
    """The key of the grade of each criterion of a case, or of some of them, by its id.

    A key is the digest of all that a grade depends on: language, question, answer, criterion and grader
    (`Grade.judge`). A criterion that was edited has another key and is graded again alone; its points are not part
    of it.
    """
    head = [case.language, digest_text(case.question), answer.digest]
    keys = {}
    for criterion in case.criteria if criteria is None else criteria:
        keys[criterion.id] = digest_json([*head, criterion.criterion, judge])
    return keys


def gradable(
    cases: Iterable[EvaluationCase],
    answers: Mapping[str, Answer],
) -> Iterator[tuple[EvaluationCase, Answer]]:
    """Yield each case whose answer holds text to grade, with that answer.

    A case that continues another comes with the turns before it (`in_context`).
    """
    known: dict[str, EvaluationCase] = {}
    for case in cases:
        known[case.case_id] = case
        answer = answers.get(case.case_id)
        if answer is None or not answer.gradable:
            continue
        asked = in_context(case, known, answers)
        if asked is not None:
            yield asked, answer


def in_context(
    case: EvaluationCase,
    known: Mapping[str, EvaluationCase],
    answers: Mapping[str, Answer],
) -> EvaluationCase | None:
    """A case as a conversation: the questions that it continues, the model's own answers to them, its question.

    A case that continues none is returned unchanged; None where an earlier answer is missing. `known` holds the
    earlier cases, by id.
    """
    turns: list[Turn] = []
    earlier = case.after
    while earlier is not None:
        before, answer = known.get(earlier), answers.get(earlier)
        if before is None or answer is None or not answer.gradable:
            return None
        turns[:0] = [Turn("user", before.question), Turn("assistant", answer.response)]
        earlier = before.after
    return replace(case, turns=(*turns, Turn("user", case.question))) if turns else case
