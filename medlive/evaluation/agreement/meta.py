"""Meta-evaluation of a run's grading (`meta_run`): how far it agrees with people, and with itself when repeated.

A direct judge (`grading.direct`) is compared with people too. docs/meta.md says what each figure is; `meta.json` is
`Meta.as_json`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from medlive.errors import BadInput, UsageError
from medlive.evaluation.cases.benchmarks import Place
from medlive.evaluation.grading.direct import read_direct
from medlive.evaluation.grading.grade import REPEATS, later_grades
from medlive.evaluation.model import clusters_by_case, grade_keys
from medlive.evaluation.scoring.graded import GradedRun, load_graded
from medlive.evaluation.scoring.refusals import Allow, Objection, check_figures
from medlive.integrity.log import some
from medlive.statistics.bootstrap import Draws
from medlive.statistics.correlation import correlate
from medlive.statistics.estimate import Estimate
from medlive.statistics.raters import (
    ABSENT,
    INVALID,
    MET,
    NOT_MET,
    Codes,
    Reliability,
    code_of,
    equal_and_ac1,
    mean_of,
    reliability,
)

from .humans import HumanRatings, items_of, read_humans

DRAWS = 1000
Rounds = Mapping[Place, tuple[bool | None, ...]]
"""One grader's verdicts on every criterion of a run, one a round. The first round counts in scores; None is a round
without a verdict, which is invalid and not "not met"."""


@dataclass(frozen=True)
class CaseLevel:
    """One method of scoring whole cases, against the mean score of people."""

    method: str
    """"rubric" or "direct"."""
    judge: str
    pearson: Estimate
    spearman: Estimate
    mean: Estimate
    """The method's mean score on the cases that people scored too."""
    mean_people: Estimate


@dataclass(frozen=True)
class Meta:
    """The meta-evaluation of one run."""

    run: Mapping[str, Any]
    grader: Mapping[str, Any]
    human: Mapping[str, Any] | None
    coverage: Mapping[str, int | str] | None
    """How many criteria and cases can be compared.

    - `criteria` of the run; `rated` by a person at least;
    - of the rated ones `graded`, `invalid` (the grader's reply had no verdict), `ungraded` (no reply, left out of
      every figure);
    - `cases_rated`; `cases_scored_by_people`, whose `people_scores` are "given" for whole cases, or "derived" from
      verdicts by Equation 1; "none".
    """
    criteria: Reliability | None
    cases: tuple[CaseLevel, ...]
    repeated: Mapping[str, Any] | None
    """The stability of the grader over its rounds (`repeated`)."""
    draws: int
    seed: int
    notes: tuple[str, ...]
    overridden: tuple[Objection, ...] = ()
    """What would mislead and was allowed, to be printed with the figures."""

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON."""
        return {
            "format": "medlive-meta",
            "format_version": 1,
            "level": 0.95,
            **asdict(self),
            "overridden": [objection._asdict() for objection in self.overridden],
        }


def meta_run(
    run_dir: Path,
    *,
    human: Sequence[Path] = (),
    adjudicator: str | None = None,
    judge: str | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    allow: Collection[Allow] = (),
) -> Meta:
    """Evaluate the grading of a run.

    Args:
        run_dir: The graded run.
        human: Files of human ratings (`humans.read_humans`).
        adjudicator: The rater who decided disagreements, and is not counted otherwise.
        judge: Which grader's verdicts, as in `load_graded`.
        draws: Bootstrap draws.
        seed: Seed of the draws.
        allow: What would make figures mislead and is overridden; the result says so.

    Raises:
        CheckFailed: If the figures would mislead, and `allow` does not override why.
        UsageError: If nothing is graded, or there is nothing to compare.
        BadInput: If a file cannot be read.
    """
    run = load_graded(run_dir, judge=judge)
    grader, info = run.known_grader, run.info
    overridden = check_figures([run], allow)
    notes = [objection.why for objection in overridden]
    notes += run.notes
    how: Draws = {"draws": draws, "seed": seed}
    people = read_people(human, adjudicator, run)
    criteria = about = None
    coverage: dict[str, int | str] | None = None
    levels: list[CaseLevel] = []
    if people is not None:
        notes += [f"{people.name}: {note}" for note in people.notes]
        scores, origin = _people_scores(run, people)
        counts, criteria = _criteria(run, people, notes, **how)
        coverage = {
            **counts,
            "cases_scored_by_people": len(scores),
            "people_scores": origin if scores else "none",
        }
        if scores:
            own = run.whole_scores()
            levels.append(_level(scores, "rubric", grader.name, own, run, **how))
        by_direct = read_direct(run_dir, notes)
        if scores and by_direct[1]:
            levels.append(_level(scores, "direct", *by_direct, run, **how))
        about = {
            "file": people.name,
            "digest": people.digest,
            "raters": people.raters,
            "adjudicator": people.adjudicator,
        }
    again = None
    if (run_dir / REPEATS).exists():
        again = repeated(run, read_rounds(run, notes), **how)
    if people is None and again is None:
        raise UsageError(
            f"{run_dir} has no ratings and one round of its grader: nothing to compare",
            hint="--human FILE compares with people, medlive eval grade --repeats with itself, "
            "medlive eval judges compare with another grader",
        )
    return Meta(
        run={
            "model": info.model,
            "template": info.template.name,
            "cases": info.cases.name,
            "cases_digest": info.cases.digest,
        },
        grader={**asdict(grader), "name": grader.name},
        human=about,
        coverage=coverage,
        criteria=criteria,
        cases=tuple(levels),
        repeated=again,
        draws=draws,
        seed=seed,
        notes=tuple(notes),
        overridden=tuple(overridden),
    )


def read_people(
    files: Sequence[Path],
    adjudicator: str | None,
    run: GradedRun,
) -> HumanRatings | None:
    """People's ratings of a run, if there are files. Raises UsageError for an adjudicator who has none."""
    if not files:
        if adjudicator is not None:
            raise UsageError("an adjudicator needs people's ratings (--human FILE)")
        return None
    people = read_humans(*files, items=items_of(run.cases, run.answers))
    if adjudicator not in (None, *people.raters):
        raise UsageError(
            f"{people.name} has no ratings by {adjudicator!r}; its raters are {', '.join(people.raters)}"
        )
    return replace(people, adjudicator=adjudicator)


def _criteria(
    run: GradedRun,
    people: HumanRatings,
    notes: list[str],
    **draws: Unpack[Draws],
) -> tuple[dict[str, int], Reliability | None]:
    """Counts of criteria, and the figures of those that people rated."""
    known: list[Place] = []
    for case in run.cases:
        known += [(case.case_id, criterion.id) for criterion in case.criteria]
    places = _rated_places(run, people, known, notes)
    decided_by = set[str]().union(*people.verdicts.values()) - {people.adjudicator}
    raters = [rater for rater in people.raters if rater in decided_by]
    codes = people.codes(places, raters)
    grader = np.array([_grader_code(run, place) for place in places], dtype=np.int_)
    cases = [case_id for case_id, _ in places]
    is_rated = (codes >= MET).sum(axis=1) > 0
    kinds = {
        "rated": is_rated,
        "graded": (grader >= MET) & (grader <= NOT_MET),
        "invalid": grader == INVALID,
        "ungraded": grader == ABSENT,
    }
    counts = {"criteria": len(known)}
    for kind, is_kind in kinds.items():
        counts[kind] = int((is_kind & is_rated).sum())
    counts["cases_rated"] = len(set(compress(cases, is_rated)))
    if not counts["rated"]:
        if people.verdicts:
            notes.append("no criterion of this run was rated: no figures by criterion")
        return counts, None
    figures = reliability(
        codes,
        grader,
        raters=raters,
        cases=cases,
        clusters=_clusters(run, cases),
        grader_name=run.known_grader.name,
        agreed=None if people.adjudicator is None else people.agreed(places),
        **draws,
    )
    return counts, figures


def _rated_places(
    run: GradedRun,
    people: HumanRatings,
    known: Sequence[Place],
    notes: list[str],
) -> list[Place]:
    """The run's criteria that people rated, of cases with an answer, and notes on all other ratings. Raises BadInput
    if nothing is known."""
    strange = sorted(people.scores.keys() - {case.case_id for case in run.cases})
    strange += sorted(map("/".join, people.verdicts.keys() - set(known)))
    if len(strange) == len(people.scores) + len(people.verdicts):
        raise BadInput(
            f"{people.name} has no ratings for this run",
            hint="use case_id and criterion_id of the run's cases.jsonl",
        )
    if strange:
        notes.append(f"{people.name}: not in this run, left out: {some(strange)}")
    answered = {case.case_id for case, _ in run.answered()}
    rated = [place for place in known if place in people.verdicts]
    places = [place for place in rated if place[0] in answered]
    if unanswered := len(rated) - len(places):
        notes.append(
            f"{unanswered} rated criteria belong to cases without an answer in this run; left out"
        )
    return places


def _grader_code(run: GradedRun, place: Place) -> int:
    """A verdict's code; INVALID for a reply without one, the grader's error; ABSENT for no reply, an error of ours."""
    grade = run.grades.get(place[0], {}).get(place[1])
    if grade is None or (grade.met is None and not grade.grader):
        return ABSENT
    return INVALID if grade.met is None else code_of(grade.met)


def _people_scores(
    run: GradedRun,
    people: HumanRatings,
) -> tuple[dict[str, float], str]:
    """People's mean score of each case, in the run's order and whether they are "given" or "derived".

    The scores are those that people gave, or if there are none, Equation 1 from the verdicts of those who decided
    every criterion of a case. The adjudicator is left out.
    """
    raters = [rater for rater in people.raters if rater != people.adjudicator]
    by_case: dict[str, list[float]] = {case.case_id: [] for case in run.cases}
    for case_id, scores in by_case.items():
        by_rater = people.scores.get(case_id, {})
        scores += [by_rater[rater] for rater in by_rater if rater in raters]
    origin = "given"
    if not any(by_case.values()):
        origin = "derived"
        for rater in raters:
            met: dict[str, dict[str, bool | None]] = {}
            for (case_id, criterion_id), by_raters in people.verdicts.items():
                met.setdefault(case_id, {})[criterion_id] = by_raters.get(rater)
            for case_id, score in run.whole_scores(met).items():
                by_case[case_id].append(score)
    means = {}
    for case_id, scores in by_case.items():
        if scores:
            means[case_id] = sum(scores) / len(scores)
    return means, origin


def _level(
    truth: Mapping[str, float],
    name: str,
    judge: str,
    by_case: Mapping[str, float | None],
    run: GradedRun,
    **draws: Unpack[Draws],
) -> CaseLevel:
    """Compare a method with people's scores; `by_case` has None where it was asked without a score."""
    people = np.array(list(truth.values()))
    scores = list(map(by_case.get, truth))
    column = np.array(scores, dtype=np.float64)
    both = ~np.isnan(column)
    clusters = _clusters(run, truth)
    return CaseLevel(
        method=name,
        judge=judge,
        pearson=correlate("pearson", column, people, clusters=clusters, **draws),
        spearman=correlate("spearman", column, people, clusters=clusters, **draws),
        mean=mean_of(column[both], clusters[both], **draws),
        mean_people=mean_of(people[both], clusters[both], **draws),
    )


def _clusters(run: GradedRun, case_ids: Iterable[str]) -> Codes:
    """The cluster of each of these cases, which are drawn together."""
    clusters = clusters_by_case(run.run.cases)
    return np.array([clusters[case_id] for case_id in case_ids], dtype=np.int_)


def read_rounds(run: GradedRun, notes: list[str]) -> Rounds:
    """The rounds of the run's grader: verdicts about the answers and criteria as they are now.

    Damaged lines are listed in `notes`.
    """
    judge = run.known_grader.judge
    later = later_grades(run.run.path, judge, notes)
    n = max((round_ for _, round_ in later), default=1)
    rounds: dict[Place, tuple[bool | None, ...]] = {}
    for case, answer in run.answered():
        keys = grade_keys(case, answer, judge)
        for criterion_id, met in run.verdicts(case.case_id).items():
            verdicts = [met]
            for round_ in range(2, n + 1):
                grade = later.get((keys[criterion_id], round_))
                verdicts.append(grade.met if grade else None)
            rounds[case.case_id, criterion_id] = tuple(verdicts)
    return rounds


def repeated(
    run: GradedRun,
    rounds: Rounds,
    **draws: Unpack[Draws],
) -> dict[str, Any] | None:
    """Compute the stability of the run's grader, whose rounds these are; None if it graded only once.

    - `rounds`, and `invalid`: rounds of a criterion without a verdict;
    - `equal`: the mean over criteria of the share of equal pairs of rounds; `ac1`: with the rounds as raters;
    - `score_range`: the mean of highest minus lowest score over the rounds, for cases fully graded in every round.
    """
    n = max(map(len, rounds.values()), default=0)
    if n < 2:
        return None
    scores = []
    for number in range(n):
        met: dict[str, dict[str, bool | None]] = {}
        for (case_id, criterion_id), verdicts in rounds.items():
            met.setdefault(case_id, {})[criterion_id] = verdicts[number]
        scores.append(run.whole_scores(met))
    codes = np.array([list(map(code_of, verdicts)) for verdicts in rounds.values()])
    clusters = _clusters(run, [case_id for case_id, _ in rounds])
    equal, ac1 = equal_and_ac1(codes, 2, clusters, **draws)
    whole = sorted(set.intersection(*map(set, scores)))
    ranges = []
    for case_id in whole:
        ranges.append(np.ptp([own[case_id] for own in scores]))
    return {
        "rounds": n,
        "invalid": int((codes == ABSENT).sum()),
        "equal": equal,
        "ac1": ac1,
        "score_range": mean_of(np.array(ranges), _clusters(run, whole), **draws),
    }
