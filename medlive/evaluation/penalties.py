"""Penalties of frozen rubrics, held against models' answers.

Harmful errors that no penalty covers are proposed, never added. How often models commit what a penalty punishes is
counted: an error that nobody makes tells nobody apart.

Source: docs/method.md §1, Rubric (Penalties of later revisions).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from medlive.curation.tasks import Quote
from medlive.errors import UsageError
from medlive.evaluation.grading.questions import Question, read_findings
from medlive.evaluation.harm import READINGS, choose_readings, read_rows
from medlive.evaluation.runs.folder import RunFolder
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.metrics import shared_verdicts
from medlive.harm.read import same_statement
from medlive.llm.ask import Loose, ReplyModel
from medlive.llm.engine import EngineIdentity
from medlive.rubric.lint import alike, lint
from medlive.rubric.model import Axis, Criterion
from medlive.snapshot.load import Snapshot
from medlive.snapshot.model import SnapshotCase
from medlive.text.quotes import shows

ERRORS = "errors.jsonl"
MOST_ERRORS = 2
"""Of one case."""
LEAST_MODELS = 2
"""That make an error, where several runs are read."""
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
    quotes: tuple[QuoteItem, ...] = Field(min_length=1, max_length=20, strict=False)


class ErrorsReply(ReplyModel):
    """Errors that several answers make and no penalty covers; often none.

    Inputs: query, narrative, advice (a text), penalties [str], answers [{id, text}].
    """

    task = "rubric.errors"
    errors: tuple[ErrorItem, ...] = Field(max_length=MOST_ERRORS, strict=False)


ModelText = tuple[str, str]
"""A model, and words of its answer or all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PenaltyProposal:
    """A penalty that a person may add to the case's next revision."""

    case_id: str
    criterion: str
    axis: Axis
    points: int
    quotes: tuple[ModelText, ...]

    @property
    def command(self) -> str:
        """The command that adds it, by a person's file (docs/evaluating.md)."""
        return f"medlive review edit {self.case_id} --file FILE --reason WHY"

    @property
    def models(self) -> tuple[str, ...]:
        """Whose answers make the error."""
        return tuple(sorted({model for model, _ in self.quotes}))

    def as_json(self) -> dict[str, Any]:
        """The proposal as it is reported."""
        quotes = [{"model": model, "text": text} for model, text in self.quotes]
        more = {
            "quotes": quotes,
            "models": self.models,
            "command": self.command,
        }
        return asdict(self) | more


@dataclass(frozen=True, slots=True)
class AnsweredCase:
    """A case with the models' answers to it."""

    case: SnapshotCase
    answers: Mapping[str, ModelText]
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
    def penalties(self) -> list[str]:
        """The errors that cost points already."""
        return [c.criterion for c in self.case.criteria if c.points < 0]

    @property
    def question(self) -> Question:
        """Which errors the answers make."""
        answers = []
        for name, (_, text) in self.answers.items():
            shown: dict[str, Any] = {"id": name, "text": text}
            if self.harms is not None:
                shown["harmful"] = list(self.harms[name])
            answers.append(shown)
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
        """Why a reply cannot be used: a quote that is in no answer or, where these were read for harm, of no confirmed
        statement; or what the linter refuses. None if it can."""
        criteria = self.criteria
        for item in reply.errors:
            for quoted in item.quotes:
                name, quote = quoted.answer, quoted.quote
                if name not in self.answers:
                    return f"there is no answer {name[:80]!r}"
                if not shows(quote, self.answers[name][1]):
                    return f"no passage of answer {name}: {quote[:80]!r}"
                if self.harms is None:
                    continue
                if not any(same_statement(quote, harm) for harm in self.harms[name]):
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
        """The errors that enough models make, without those that a penalty covers already."""
        covered = self.penalties
        proposals = []
        for item in reply.errors:
            quotes = [(self.answers[q.answer][0], q.quote) for q in item.quotes]
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


def find_candidates(
    snapshot: Snapshot,
    runs: Sequence[RunFolder],
) -> tuple[AnsweredCase, ...]:
    """The cases that enough models answered; where every run was read for harm, only the answers in which harm was
    confirmed count.

    Args:
        snapshot: The frozen cases.
        runs: Runs on it; with one alone, the errors of a single model count.

    Raises:
        UsageError: If a run is on other cases, or no case was answered by enough models.
    """
    answers, are_read = _answers_of(snapshot, runs)
    least = LEAST_MODELS if len(runs) > 1 else 1
    if not any(_models(own) >= least for own in answers.values()):
        raise UsageError(
            f"no case of the snapshot has answers of {least} models",
            hint="give runs of other models, or one run alone",
        )
    candidates = []
    for case in snapshot:
        by_text = answers.get(case.case_id, {})
        # Sorted, so that the order of the runs asks nothing anew.
        chosen = [text for text in sorted(by_text) if by_text[text] or not are_read]
        if chosen and _models(chosen) >= least:
            named = {f"a{place}": text for place, text in enumerate(chosen, start=1)}
            harms = {name: by_text[text] for name, text in named.items()}
            candidate = AnsweredCase(
                case,
                named,
                least,
                harms if are_read else None,
            )
            candidates.append(candidate)
    return tuple(candidates)


def _models(answers: Iterable[ModelText]) -> int:
    return len({model for model, _ in answers})


def _answers_of(
    snapshot: Snapshot,
    runs: Sequence[RunFolder],
) -> tuple[dict[str, dict[ModelText, tuple[str, ...]]], bool]:
    """The answers by case, each with the statements in which harm was confirmed; whether every run was read for
    harm."""
    answers: dict[str, dict[ModelText, tuple[str, ...]]] = {}
    are_read = True
    for run in runs:
        if run.info.cases.digest != snapshot.digest or run.info.raw:
            raise UsageError(
                f"{run.path}: expected answers to the cases of this snapshot",
                hint="name runs that were made with it, none of --raw",
            )
        own, _ = run.answers()
        harm = choose_readings(read_rows(run.path / READINGS)[0], run.cases, own)
        are_read = are_read and harm is not None
        for case_id, answer in own.items():
            if not answer.gradable:
                continue
            row = harm.rows.get(case_id) if harm else None
            harmful: tuple[str, ...] = ()
            if row is not None and row.reading.is_read:
                harmful = tuple(
                    judged.finding.quote for judged in row.reading.confirmed
                )
            key = run.info.model, answer.response
            answers.setdefault(case_id, {})[key] = harmful
    return answers, are_read


def read_penalties(
    candidates: Sequence[AnsweredCase],
    out: Path,
    reader: EngineIdentity,
) -> tuple[list[str], list[PenaltyProposal]]:
    """What is on record by one reader of the answers: cases that are unread, and what is proposed."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PenaltyUse:
    """How often one penalty was committed."""

    case_id: str
    criterion_id: str
    criterion: str
    points: float
    models: tuple[str, ...]
    """Those whose answer has a verdict on it."""
    committed: tuple[str, ...]
    """Those of them that committed it."""

    @property
    def is_idle(self) -> bool:
        """Whether enough models were asked, and none committed it."""
        return not self.committed and len(set(self.models)) >= LEAST_ASKED

    @property
    def command(self) -> str:
        """The command that takes it out of this release and of the case's next revision."""
        reason = f"none of {len(set(self.models))} models committed it"
        return (
            f"medlive snapshot withdraw {self.case_id} --kind erratum"
            f' --criterion {self.criterion_id} --reason "{reason}"'
        )

    def as_json(self) -> dict[str, Any]:
        """The count, with the command where it is idle."""
        command = self.command if self.is_idle else ""
        more = {
            "models": len(self.models),
            "idle": self.is_idle,
            "command": command,
        }
        return asdict(self) | more


def count_penalties(runs: Sequence[GradedRun]) -> tuple[PenaltyUse, ...]:
    """How often each penalty was committed, over graded runs on the same or on different cases.

    An ungraded penalty was neither committed nor avoided. A case counts as the last run that has it holds it: what
    its id meant in another revision of the rubric is another criterion.
    """
    cases = {case.case_id: case for run in runs for case in run.cases}
    rubrics = [{case.case_id: case for case in run.cases} for run in runs]
    uses = []
    for case_id, case in cases.items():
        for criterion in case.criteria:
            if criterion.points >= 0:
                continue
            models, committed = [], []
            for run, own in zip(runs, rubrics, strict=True):
                verdicts = shared_verdicts(
                    case,
                    own.get(case_id),
                    run.verdicts(case_id),
                )
                met = verdicts.get(criterion.id)
                if met is not None:
                    models.append(run.info.model)
                if met:
                    committed.append(run.info.model)
            use = PenaltyUse(
                case_id=case_id,
                criterion_id=criterion.id,
                criterion=criterion.criterion,
                points=criterion.points,
                models=tuple(models),
                committed=tuple(committed),
            )
            uses.append(use)
    return tuple(uses)
