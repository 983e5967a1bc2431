"""Harmful errors that models' answers make and that no penalty of a frozen rubric covers: proposed, never added.

Source: docs/method.md §1, Rubric (Penalties of later revisions).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NamedTuple

from pydantic import Field, StringConstraints

from medlive.curation.tasks import Quote
from medlive.errors import UsageError
from medlive.evaluation.grading.questions import Question, read_findings
from medlive.evaluation.harm import READINGS, HarmRow, choose_readings, read_rows
from medlive.evaluation.runs.folder import RunFolder
from medlive.harm.controls import same_statement
from medlive.llm.ask import ReplyModel
from medlive.llm.engine import EngineIdentity
from medlive.rubric.lint import alike, lint
from medlive.rubric.model import Axis, Criterion
from medlive.snapshot.load import Snapshot
from medlive.snapshot.model import SnapshotCase
from medlive.text.quotes import shows

ERRORS: Final = "errors.jsonl"
TASK: Final = "rubric.errors"
MOST_ERRORS: Final = 2
"""Of one case."""
LEAST_MODELS: Final = 2
"""That make an error, where several runs are read."""
_NEW: Final = "new"


class QuoteItem(ReplyModel):
    """Words of one answer."""

    answer: str
    quote: Quote


class ErrorItem(ReplyModel):
    """An error, as the criterion that would cost points for it."""

    criterion: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)
    ]
    axis: Annotated[Axis, Field(strict=False)]
    points: Annotated[int, Field(ge=-10, le=-5)]
    quotes: Annotated[
        tuple[QuoteItem, ...], Field(min_length=1, max_length=20, strict=False)
    ]


class ErrorsReply(ReplyModel):
    """Errors that several answers make and no penalty covers; often none.

    Inputs: query, narrative, advice (a text), penalties [str], answers [{id, text}].
    """

    task: ClassVar = TASK
    errors: Annotated[
        tuple[ErrorItem, ...], Field(max_length=MOST_ERRORS, strict=False)
    ]


class ModelQuote(NamedTuple):
    """Words of a model's answer, or all of them."""

    model: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PenaltyProposal:
    """A penalty that a person may add to the case's next revision."""

    case_id: str
    criterion: str
    axis: Axis
    points: int
    quotes: tuple[ModelQuote, ...]

    @property
    def command(self) -> str:
        """The command that adds it, by a person's file (docs/evaluating.md)."""
        return f"medlive review edit {self.case_id} --file FILE --reason WHY"

    @property
    def models(self) -> tuple[str, ...]:
        """Whose answers make the error."""
        return tuple(sorted({quote.model for quote in self.quotes}))

    def as_json(self) -> dict[str, Any]:
        """The proposal as it is reported."""
        quotes = [quote._asdict() for quote in self.quotes]
        row = asdict(self) | {"quotes": quotes, "models": self.models}
        return row | {"command": self.command}


@dataclass(frozen=True, slots=True)
class AnsweredCase:
    """A case with the models' answers to it."""

    case: SnapshotCase
    answers: Mapping[str, ModelQuote]
    """By the id that the reader of the answers sees instead of the model's name."""
    least: int
    """Models that must make an error."""
    harms: Mapping[str, tuple[str, ...]] | None = None
    """The statements of each answer in which harm was confirmed; None where a run was not read for harm."""

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """The frozen rubric."""
        return tuple(criterion.written() for criterion in self.case.criteria)

    @property
    def question(self) -> Question:
        """Which errors the answers make."""
        answers = []
        for name, answer in self.answers.items():
            shown: dict[str, Any] = {"id": name, "text": answer.text}
            if self.harms is not None:
                shown["harmful"] = list(self.harms[name])
            answers.append(shown)
        inputs = {
            "language": self.case.language,
            "query": self.case.query,
            "narrative": self.case.narrative,
            "advice": self.case.advice,
            "penalties": [c.criterion for c in self.criteria if c.points < 0],
            "answers": answers,
        }
        return Question(
            case_id=self.case.case_id,
            part="errors",
            task=TASK,
            inputs=inputs,
            reply=ErrorsReply,
            check=self.find_fault,
        )

    def find_fault(self, reply: ErrorsReply) -> str | None:
        """Why a reply cannot be used: a quote that is in no answer, or what the linter refuses; None if it can."""
        for item in reply.errors:
            for quote in item.quotes:
                answer = self.answers.get(quote.answer)
                if answer is None:
                    return f"there is no answer {quote.answer[:80]!r}"
                if not shows(quote.quote, answer.text):
                    return f"no passage of answer {quote.answer}: {quote.quote[:80]!r}"
                if not self._is_confirmed(quote):
                    return f"not called harmful in answer {quote.answer}: {quote.quote[:80]!r}"
            new = Criterion(
                id=_NEW,
                position=len(self.criteria) + 1,
                criterion=item.criterion,
                axis=item.axis,
                points=item.points,
                advice_id=None,
            )
            for finding in lint(self.case.language, [*self.criteria, new], {}, ""):
                return f"{item.criterion[:80]!r}: {finding.detail}"
        return None

    def _is_confirmed(self, quote: QuoteItem) -> bool:
        """Whether a quote is of a statement in which harm was confirmed, where answers were read for harm."""
        if self.harms is None:
            return True
        confirmed = self.harms[quote.answer]
        return any(same_statement(quote.quote, other) for other in confirmed)

    def propose(self, reply: ErrorsReply) -> list[PenaltyProposal]:
        """The errors that enough models make, without those that a penalty covers already."""
        covered = [c.criterion for c in self.criteria if c.points < 0]
        proposals = []
        for item in reply.errors:
            quotes = []
            for quote in item.quotes:
                model = self.answers[quote.answer].model
                quotes.append(ModelQuote(model, quote.quote))
            proposal = PenaltyProposal(
                case_id=self.case.case_id,
                criterion=item.criterion,
                axis=item.axis,
                points=item.points,
                quotes=tuple(quotes),
            )
            known = any(alike(item.criterion, other) for other in covered)
            if not known and len(proposal.models) >= self.least:
                proposals.append(proposal)
                covered.append(item.criterion)
        return proposals


@dataclass(frozen=True, slots=True)
class Penalties:
    """What models' answers say about the penalties of a snapshot."""

    least: int
    """Models that must make an error."""
    cases: int
    """Cases with the answers of so many models."""
    unread: tuple[str, ...]
    """Cases of them whose answers were not read yet."""
    proposals: tuple[PenaltyProposal, ...]

    def as_json(self) -> dict[str, Any]:
        """What is reported."""
        proposals = [proposal.as_json() for proposal in self.proposals]
        return asdict(self) | {"proposals": proposals}


def find_candidates(
    snapshot: Snapshot, runs: Sequence[RunFolder]
) -> tuple[AnsweredCase, ...]:
    """The cases that enough models answered; where every run was read for harm, only the answers in which harm was
    confirmed count.

    Args:
        snapshot: The frozen cases.
        runs: Runs on it; with one alone, the errors of a single model count.

    Raises:
        UsageError: If a run is on other cases, or no case was answered by enough models.
    """
    answers = _Answers()
    for run in runs:
        if run.info.cases.digest != snapshot.digest or run.info.raw:
            raise UsageError(
                f"{run.path}: expected answers to the cases of this snapshot",
                hint="name runs that were made with it, none of --raw",
            )
        answers.add(run)
    least = LEAST_MODELS if len(runs) > 1 else 1
    if not any(_models(quotes) >= least for quotes in answers.by_case.values()):
        raise UsageError(
            f"no case of the snapshot has answers of {least} models",
            hint="give runs of other models, or one run alone",
        )
    candidates = []
    for case in snapshot:
        chosen = answers.of(case.case_id)
        if chosen and _models(chosen) >= least:
            candidates.append(answers.candidate(case, chosen, least))
    return tuple(candidates)


def _models(answers: Iterable[ModelQuote]) -> int:
    return len({answer.model for answer in answers})


@dataclass(slots=True)
class _Answers:
    """The answers of several runs, and the harms that were confirmed in them."""

    by_case: dict[str, set[ModelQuote]] = field(default_factory=dict)
    harms: dict[tuple[str, ModelQuote], tuple[str, ...]] = field(default_factory=dict)
    are_read: bool = True
    """Whether every run was read for harm."""

    def add(self, run: RunFolder) -> None:
        """Take a run's answers."""
        answers, _ = run.answers()
        harm = choose_readings(read_rows(run.path / READINGS)[0], run.cases, answers)
        self.are_read = self.are_read and harm is not None
        for answer in answers.values():
            if answer.gradable:
                quote = ModelQuote(run.info.model, answer.response)
                self.by_case.setdefault(answer.case_id, set()).add(quote)
                row = harm.rows.get(answer.case_id) if harm else None
                self.harms[answer.case_id, quote] = _confirmed(row)

    def of(self, case_id: str) -> list[ModelQuote]:
        """A case's answers that count, sorted, so that the order of the runs asks nothing anew."""
        answers = sorted(self.by_case.get(case_id, ()))
        if not self.are_read:
            return answers
        return [answer for answer in answers if self.harms[case_id, answer]]

    def candidate(
        self, case: SnapshotCase, answers: Sequence[ModelQuote], least: int
    ) -> AnsweredCase:
        """A case with these answers under names that hide their models."""
        named = {f"a{place}": quote for place, quote in enumerate(answers, start=1)}
        if not self.are_read:
            return AnsweredCase(case, named, least)
        quotes = {
            name: self.harms[case.case_id, quote] for name, quote in named.items()
        }
        return AnsweredCase(case, named, least, quotes)


def _confirmed(row: HarmRow | None) -> tuple[str, ...]:
    """The statements of an answer in which harm was confirmed."""
    if row is None or not row.reading.is_read:
        return ()
    return tuple(harm.finding.quote for harm in row.reading.confirmed)


def read_penalties(
    candidates: Sequence[AnsweredCase],
    out: Path,
    reader: EngineIdentity,
    *,
    allow_unpinned: bool = False,
) -> Penalties:
    """What is on record, by one reader of the answers."""
    findings, _ = read_findings(out / ERRORS, reader, allow_unpinned=allow_unpinned)
    unread, proposals = [], list[PenaltyProposal]()
    for candidate in candidates:
        reply = findings.get(candidate.question, ErrorsReply)
        if reply is None:
            unread.append(candidate.case.case_id)
        else:
            proposals += candidate.propose(reply)
    return Penalties(
        candidates[0].least, len(candidates), tuple(unread), tuple(proposals)
    )
