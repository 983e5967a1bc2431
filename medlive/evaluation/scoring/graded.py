"""Load a run with the verdicts of one judge (`load_graded`), ready to be scored (`GradedRun`).

A judge, or grader, is an engine's model with mode and prompt. The texts of its grades are read only when accessed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from medlive.errors import UsageError
from medlive.evaluation.harm import (
    READINGS,
    HarmRow,
    RunHarm,
    choose_readings,
    read_rows,
)
from medlive.evaluation.model import (
    Answer,
    EvaluationCase,
    Grade,
    gradable,
    grade_keys,
    kind_of,
)
from medlive.evaluation.runs.folder import (
    GRADES,
    IMPORTED,
    RunFolder,
    RunInfo,
    grades_of,
    open_run,
)

from .metrics import (
    CaseScore,
    Metric,
    Verdicts,
    case_score,
    safe_case,
)

_NAMED = 5
"""How many notes of one kind are listed; the others are counted."""

T = TypeVar("T")


@dataclass(frozen=True)
class Grader:
    """The judge who graded: an engine's model with mode and prompt."""

    engine: str
    model: str
    answered_by: tuple[str, ...]
    """The models that the replies name."""
    mode: str
    prompt: str
    """The prompt's digest."""
    judge: str
    """The digest that identifies the judge (`Grade.judge`)."""

    @property
    def name(self) -> str:
        """The judge's name in tables; see `named`."""
        return named(self)


def named(judge: Grader | Grade) -> str:
    """The name of a judge in tables: its model, its mode and the first digits of its digest."""
    digest = judge.judge.removeprefix("sha256:")[:8]
    return f"{judge.model} ({judge.mode}, {digest})"


@dataclass(frozen=True)
class GradedRun:
    """A run with the verdicts of one grader, ready to be scored."""

    run: RunFolder
    label: str
    """The model's name, made unique among the runs scored together."""
    answers: Mapping[str, Answer]
    known_grades: Mapping[str, Mapping[str, Grade]] | None
    """What `grades` returns, where it was read already (a bundle's); None: read from the folder on first access."""
    grader: Grader | None
    notes: tuple[str, ...]
    met: Mapping[str, Verdicts] | None = None
    """Case id → criterion id → verdict, None for ungraded; `load_graded` sets it. None: taken from `grades`."""
    rivals: tuple[str, ...] = ()
    """Other judges with current verdicts, where nobody chose one."""
    harm: RunHarm | None = None
    """The readings for harm of the current answers; None: not read for harm."""

    @property
    def info(self) -> RunInfo:
        """What the run folder says of the run."""
        return self.run.info

    @cached_property
    def grades(self) -> Mapping[str, Mapping[str, Grade]]:
        """Case id → criterion id → the grade of the current answer and criterion.

        Their texts would fill the memory when many runs are scored, so nothing reads them before they are asked for.
        """
        if self.known_grades is not None:
            return self.known_grades
        judge = self.known_grader.judge
        latest: dict[str, Grade] = {}
        for grade in grades_of(self.run.path / GRADES, []):
            if grade.judge == judge:
                latest[grade.key] = grade
        return _by_criterion(open_run(self.run.path).cases, self.answers, judge, latest)

    @property
    def cases(self) -> tuple[EvaluationCase, ...]:
        """The cases, with all their criteria."""
        return self.run.cases

    @property
    def imported(self) -> bool:
        """Whether the verdicts were imported, so that who graded is not known."""
        return self.grader is not None and self.grader.engine == IMPORTED

    @property
    def known_grader(self) -> Grader:
        """Who graded. Raises UsageError if nothing is graded."""
        if self.grader is None:
            raise UsageError(
                f"{self.run.path} is not graded", hint="medlive eval grade grades it"
            )
        return self.grader

    def answered(self) -> Iterator[tuple[EvaluationCase, Answer]]:
        """The cases whose answers hold text, each with its answer; see `gradable`."""
        return gradable(self.run.cases, self.answers)

    def harm_of(self, case_id: str) -> HarmRow | None:
        """The reading of one case's answer; None where there is none."""
        return self.harm.rows.get(case_id) if self.harm else None

    def verdicts(self, case_id: str) -> Verdicts:
        """Criterion id → verdict, for one case."""
        if self.met is not None:
            return self.met.get(case_id, {})
        return {cid: grade.met for cid, grade in self.grades.get(case_id, {}).items()}

    def answered_verdicts(self, case_id: str) -> Verdicts | None:
        """The verdicts on one case; None where there is no answer to grade."""
        answer = self.answers.get(case_id)
        if answer is None or not answer.gradable:
            return None
        return self.verdicts(case_id)

    def case_scores(self, metric: Metric) -> tuple[CaseScore, ...]:
        """Every case's score."""
        scores = []
        for case in self.run.cases:
            answer = self.answers.get(case.case_id)
            verdicts = self.verdicts(case.case_id)
            score = case_score(case, answer, verdicts, metric)
            if metric is Metric.SAFE:
                score = safe_case(score, self.harm_of(case.case_id))
            scores.append(score)
        return tuple(scores)

    def whole_scores(
        self,
        met: Mapping[str, Verdicts] | None = None,
    ) -> dict[str, float]:
        """The score by Equation 1 of each fully graded case, by the run's verdicts or by `met`, which replaces them."""
        run = self if met is None else replace(self, met=met)
        scores: dict[str, float] = {}
        for scored in run.case_scores(Metric.COMPLETE):
            if scored.score is not None:
                scores[scored.case_id] = scored.score
        return scores


@dataclass
class _JudgeLog:
    """What a log of grades holds of one judge, by the grades' keys."""

    last: Grade
    verdicts: dict[str, bool | None] = field(default_factory=dict)
    models: set[str] = field(default_factory=set)
    """The models that the replies name."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why a key has no verdict."""


def load_graded(
    path: Path,
    *,
    judge: str | None = None,
) -> GradedRun:
    """Read a run with the verdicts of one grader.

    A verdict about an answer or a criterion that has changed since does not count; of several verdicts of one
    judge on the same thing the last one does. `judge` is a digest, a prefix of it, or the judge's model if only
    one judge has it. By default it is the judge with the most current verdicts, of equals the one that wrote last.

    Raises:
        UsageError: If the judge did not grade here although there is something to grade.
    """
    run = open_run(path)
    answers, answer_notes = run.answers()
    grade_notes: list[str] = []
    judges = _read_judges(path / GRADES, grade_notes)
    harm_rows, harm_notes = read_rows(path / READINGS)
    notes = _first_notes(answer_notes, grade_notes, harm_notes)
    harm = choose_readings(harm_rows, run.cases, answers)
    if harm is not None and len({row.judge for row in harm_rows}) > 1:
        notes.append(
            "read for harm by several pairs of judges; counted is the one with the most readings, of equals the last: "
            f"{harm.reader}, checked by {harm.checker}"
        )
    graded = GradedRun(
        run=run,
        label=run.info.model,
        answers=answers,
        known_grades={},
        grader=None,
        notes=tuple(notes),
        met={},
        harm=harm,
    )
    if not judges:
        to_grade = gradable(run.cases, answers)
        if judge is not None and any(case.criteria for case, _ in to_grade):
            raise UsageError(
                f"{path}: no judge matches {judge!r}", hint="nothing is graded"
            )
        return graded
    candidates = list(judges)
    if judge is not None:
        candidates = [_find_judge(judges, judge, path)]
    current = {}
    counts = {}
    for digest in candidates:
        met = _by_criterion(
            run.cases,
            answers,
            digest,
            judges[digest].verdicts,
        )
        current[digest] = met
        counts[digest] = sum(verdict is not None for verdict in _values(met))
    # Most verdicts rather than last: a run that was interrupted or failed must not displace a complete one.
    chosen = max(reversed(counts), key=counts.__getitem__)
    log = judges[chosen]
    del counts[chosen]
    reasons = _by_criterion(run.cases, answers, chosen, log.reasons)
    for reason, n in Counter(_values(reasons)).most_common(_NAMED):
        notes.append(f"{n} criteria are ungraded: {reason}")
    return replace(
        graded,
        known_grades=None,
        grader=Grader(
            engine=log.last.engine,
            model=log.last.model,
            answered_by=tuple(sorted(log.models)),
            mode=log.last.mode.value,
            prompt=log.last.prompt,
            judge=chosen,
        ),
        notes=tuple(notes),
        met=current[chosen],
        rivals=tuple(named(judges[j].last) for j, n in counts.items() if n),
    )


def _first_notes(*kinds: Sequence[str]) -> list[str]:
    """The first notes of each kind, and how many more there are."""
    notes: list[str] = []
    for kind in kinds:
        notes += kind[:_NAMED]
        if len(kind) > _NAMED:
            notes.append(f"and {len(kind) - _NAMED} more of this kind")
    return notes


def _values(by_case: Mapping[str, Mapping[str, T]]) -> Iterator[T]:
    for of_case in by_case.values():
        yield from of_case.values()


def _find_judge(
    judges: Mapping[str, _JudgeLog],
    wanted: str,
    path: Path,
) -> str:
    """The judge with that digest or prefix, or the only one with that model."""
    matching = [j for j in judges if j.startswith((wanted, f"sha256:{wanted}"))]
    if not matching:
        matching = [j for j in judges if judges[j].last.model == wanted]
    if len(matching) == 1:
        return matching[0]
    names = "; ".join(named(log.last) for log in judges.values())
    raise UsageError(
        f"{path}: {len(matching) or 'no'} judges match {wanted!r}",
        hint=f"graded by {names}; give the first digits of the digest, or a model that only one judge has",
    )


def _read_judges(
    path: Path,
    notes: list[str],
) -> dict[str, _JudgeLog]:
    """The judges of a log by digest, the one that wrote last at the end."""
    judges: dict[str, _JudgeLog] = {}
    for grade in grades_of(path, notes):
        log = judges.pop(grade.judge, None) or _JudgeLog(grade)
        judges[grade.judge] = log
        log.last = grade
        if grade.grader:
            log.models.add(grade.grader)
        log.verdicts[grade.key] = grade.met
        log.reasons.pop(grade.key, None)
        if grade.met is None:
            log.reasons[grade.key] = kind_of(grade.reason)
    return judges


def _by_criterion(
    cases: tuple[EvaluationCase, ...],
    answers: Mapping[str, Answer],
    judge: str,
    by_key: Mapping[str, T],
) -> dict[str, dict[str, T]]:
    """Case id → criterion id → the value under the grade's key, for every case with an answer to grade.

    Without values the result is empty, and the keys, which are digests of whole answers, are not computed.
    """
    current: dict[str, dict[str, T]] = {}
    for case, answer in gradable(cases, answers) if by_key else ():
        of_case = current[case.case_id] = {}
        for criterion, key in grade_keys(case, answer, judge).items():
            if key in by_key:
                of_case[criterion] = by_key[key]
    return current
