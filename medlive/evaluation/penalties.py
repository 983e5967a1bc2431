"""Check the penalties (criteria of negative points) of frozen rubrics against models' answers.

`find_candidates` and `read_penalties` propose penalties, which are never added here, for harmful errors that several
models make and no penalty covers. `count_penalties` counts how often models commit each: an error that no model makes
tells no models apart.

Source: docs/method.md §1, Rubric (Penalties of later revisions).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field, StringConstraints

from medlive.curation.tasks import Quote
from medlive.errors import UsageError
from medlive.harm.read import same_statement
from medlive.llm.ask import Loose, ReplyModel
from medlive.llm.engine import EngineIdentity
from medlive.rubric.lint import alike, lint
from medlive.rubric.model import Axis, Criterion
from medlive.snapshot.load import Snapshot
from medlive.snapshot.model import SnapshotCase
from medlive.text.quotes import shows

from .grading.questions import Question, read_findings
from .harm import NOT_READ, READINGS, choose_readings, read_rows
from .runs.folder import RunFolder
from .scoring.graded import GradedRun

ERRORS = "errors.jsonl"
MOST_ERRORS = 2
"""Errors that a reply may name of one case."""
LEAST_MODELS = 2
"""Models that must make an error before a penalty is proposed for it."""
LEAST_ASKED = 3
"""Models whose answers must have a verdict before a penalty counts as idle."""


class QuoteItem(ReplyModel):
    """Words of one answer."""

    answer: str
    quote: Quote


class ErrorItem(ReplyModel):
    """An error, as the criterion that would cost points for it."""

    criterion: Annotated[
        str,
        StringConstraints(
            strip_whitespace=True,
            min_length=1,
            max_length=1000,
        ),
    ]
    axis: Loose[Axis]
    points: int = Field(ge=-10, le=-5)
    quotes: tuple[QuoteItem, ...] = Field(
        min_length=1,
        max_length=20,
        strict=False,
    )


class ErrorsReply(ReplyModel):
    """Errors that several answers make and no penalty covers; often none.

    Inputs: query, narrative, advice (a text), penalties [str], answers [{id, text}].
    """

    task = "rubric.errors"
    errors: tuple[ErrorItem, ...] = Field(max_length=MOST_ERRORS, strict=False)


class HarmfulAnswer(NamedTuple):
    """A model's answer in which harm was confirmed."""

    model: str
    text: str
    harms: tuple[str, ...]
    """The harmful statements."""


class ModelQuote(NamedTuple):
    """Words of a model's answer."""

    model: str
    text: str


@dataclass(frozen=True, kw_only=True)
class PenaltyProposal:
    """A penalty that a person may add to the case's next revision."""

    case_id: str
    criterion: str
    axis: Axis
    points: int
    quotes: tuple[ModelQuote, ...]

    @property
    def models(self) -> set[str]:
        """Whose answers make the error."""
        return {quote.model for quote in self.quotes}


@dataclass(frozen=True)
class AnsweredCase:
    """A case with the models' answers to it."""

    case: SnapshotCase
    answers: Mapping[str, HarmfulAnswer]
    """By the id that the engine sees instead of the model's name."""

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """The frozen rubric."""
        return tuple(criterion.written() for criterion in self.case.criteria)

    @property
    def penalties(self) -> list[str]:
        """The errors that cost points already."""
        return [c.criterion for c in self.case.criteria if c.points < 0]

    @property
    def question(self) -> Question:
        """Which errors the answers make."""
        answers = []
        for name, answer in self.answers.items():
            harmful = list(answer.harms)
            answers.append({"id": name, "text": answer.text, "harmful": harmful})
        return Question(
            case_id=self.case.case_id,
            part="errors",
            inputs={
                "language": self.case.language,
                "query": self.case.query,
                "narrative": self.case.narrative,
                "advice": self.case.advice,
                "penalties": self.penalties,
                "answers": answers,
            },
            reply=ErrorsReply,
            check=self.find_fault,
        )

    def find_fault(self, reply: ErrorsReply) -> str | None:
        """Why a reply cannot be used; None if it can.

        A quote must be in its answer and of a statement confirmed as harmful; the linter must accept each criterion.
        """
        criteria = self.criteria
        for item in reply.errors:
            for quoted in item.quotes:
                name, quote = quoted.answer, quoted.quote
                answer = self.answers.get(name)
                if answer is None:
                    return f"there is no answer {name[:80]!r}"
                if not shows(quote, answer.text):
                    return f"no passage of answer {name}: {quote[:80]!r}"
                if not any(same_statement(quote, harm) for harm in answer.harms):
                    return f"not called harmful in answer {name}: {quote[:80]!r}"
            new = Criterion(
                id="new",
                position=len(criteria) + 1,
                criterion=item.criterion,
                axis=item.axis,
                points=item.points,
                advice_id=None,
            )
            for finding in lint(
                self.case.language,
                [*criteria, new],
                {},
                "",
            ):
                return f"{item.criterion[:80]!r}: {finding.detail}"
        return None

    def propose(self, reply: ErrorsReply) -> list[PenaltyProposal]:
        """The errors that `LEAST_MODELS` models make and that no penalty covers."""
        covered = self.penalties
        proposals = []
        for item in reply.errors:
            quotes = []
            for quoted in item.quotes:
                model = self.answers[quoted.answer].model
                quotes.append(ModelQuote(model, quoted.quote))
            proposal = PenaltyProposal(
                case_id=self.case.case_id,
                criterion=item.criterion,
                axis=item.axis,
                points=item.points,
                quotes=tuple(quotes),
            )
            known = any(alike(item.criterion, other) for other in covered)
            if not known and len(proposal.models) >= LEAST_MODELS:
                proposals.append(proposal)
                covered.append(item.criterion)
        return proposals


def find_candidates(
    snapshot: Snapshot,
    runs: Sequence[RunFolder],
) -> tuple[AnsweredCase, ...]:
    """The cases in which harm was confirmed in the answers of `LEAST_MODELS` models, with these answers.

    Args:
        snapshot: The frozen cases.
        runs: Runs on it that were read for harm.

    Raises:
        UsageError: If a run is on other cases, or was not read for harm.
    """
    harmful: dict[str, set[HarmfulAnswer]] = {}
    for run in runs:
        if run.info.cases.digest != snapshot.digest or run.info.raw:
            raise UsageError(
                f"{run.path}: expected answers to the cases of this snapshot",
                hint="name runs that were made with it, none of --raw",
            )
        answers, _ = run.answers()
        harm = choose_readings(read_rows(run.path / READINGS)[0], run.cases, answers)
        if harm is None:
            raise UsageError(
                f"{run.path}: {NOT_READ}",
                hint="`medlive eval grade --harm-only RUN` reads it",
            )
        for case_id, row in harm.rows.items():
            if confirmed := row.reading.confirmed:
                answer = HarmfulAnswer(
                    model=run.info.model,
                    text=answers[case_id].response,
                    harms=tuple(judged.finding.quote for judged in confirmed),
                )
                harmful.setdefault(case_id, set()).add(answer)
    candidates = []
    for case in snapshot:
        # Sorted, so that another order of the runs makes the same questions.
        own = sorted(harmful.get(case.case_id, ()))
        if len({answer.model for answer in own}) >= LEAST_MODELS:
            named = {f"a{place}": answer for place, answer in enumerate(own, start=1)}
            candidates.append(AnsweredCase(case, named))
    return tuple(candidates)


def read_penalties(
    candidates: Sequence[AnsweredCase],
    out: Path,
    reader: EngineIdentity,
) -> tuple[list[str], list[PenaltyProposal]]:
    """What the log in `out` holds by one engine: the cases without a reply, and the proposals of the others."""
    findings, _ = read_findings(out / ERRORS, reader)
    unread: list[str] = []
    proposals: list[PenaltyProposal] = []
    for candidate in candidates:
        reply = findings.get(candidate.question, ErrorsReply)
        if reply is None:
            unread.append(candidate.case.case_id)
        else:
            proposals += candidate.propose(reply)
    return unread, proposals


@dataclass(kw_only=True)
class PenaltyUse:
    """How often one penalty was committed."""

    case_id: str
    criterion_id: str
    criterion: str
    points: float
    models: list[str] = field(default_factory=list)
    """Models whose answer has a verdict on the penalty."""
    committed: list[str] = field(default_factory=list)
    """Of `models`, those that committed it."""

    @property
    def is_idle(self) -> bool:
        """Whether enough models were asked, and none committed it."""
        return not self.committed and len(set(self.models)) >= LEAST_ASKED


def count_penalties(runs: Sequence[GradedRun]) -> tuple[PenaltyUse, ...]:
    """How often each penalty was committed, over graded runs on the same or on different cases.

    An ungraded penalty was neither committed nor avoided. Under the same id another revision of a rubric may have
    another criterion: that is another penalty.
    """
    uses: dict[tuple[str, str], PenaltyUse] = {}
    for run in runs:
        for case in run.cases:
            verdicts = run.verdicts(case.case_id)
            for criterion in case.criteria:
                if criterion.points >= 0:
                    continue
                use = PenaltyUse(
                    case_id=case.case_id,
                    criterion_id=criterion.id,
                    criterion=criterion.criterion,
                    points=criterion.points,
                )
                use = uses.setdefault((case.case_id, criterion.criterion), use)
                met = verdicts.get(criterion.id)
                if met is not None:
                    use.models.append(run.info.model)
                if met:
                    use.committed.append(run.info.model)
    return tuple(uses.values())
