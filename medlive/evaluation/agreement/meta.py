"""Meta-evaluation of a run's grading against people, a direct judge, and itself.

docs/meta.md says what each figure is; `meta.json` is `Meta.as_json`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from medlive.errors import BadInput, UsageError
from medlive.evaluation.agreement.humans import HumanRatings, read_humans, read_scores
from medlive.evaluation.agreement.items import items_of, places_of
from medlive.evaluation.agreement.reliability import (
    ABSENT,
    INVALID,
    LEAST_ITEMS,
    MET,
    NOT_MET,
    Codes,
    Panel,
    Reliability,
    Repeated,
    code_of,
    grader_name,
    grader_of,
    mean_of,
    reliability,
    repeated,
    scores_of,
)
from medlive.evaluation.cases.benchmarks import Place
from medlive.evaluation.grading.direct import read_direct
from medlive.evaluation.grading.repeats import REPEATS, read_rounds
from medlive.evaluation.log import some
from medlive.evaluation.runs.folder import SETTLED, open_run
from medlive.evaluation.scoring.graded import GradedRun, load_graded
from medlive.statistics.bootstrap import Estimate
from medlive.statistics.correlation import (
    Correlation,
    Kind,
    correlate,
    pearson_difference,
)

DRAWS: Final = 1000


@dataclass(frozen=True, slots=True)
class CaseLevel:
    """One method of scoring whole cases, against the mean score of people."""

    method: str
    """"rubric", "direct", or the name of a baseline."""
    judge: str
    pearson: Correlation
    spearman: Correlation
    mean: Estimate
    """The method's mean score on the cases that people scored too."""
    mean_people: Estimate
    unscored: int
    """Cases scored by people and not by this method."""
    gain: Estimate | None
    """How much better the rubric correlates, on common cases; None for the rubric itself."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many criteria and cases can be compared."""

    criteria: int
    rated: int
    """Criteria of the run with at least one human rating."""
    rated_twice: int
    graded: int
    invalid: int
    """Rated criteria where the grader's reply had no verdict."""
    ungraded: int
    """Rated criteria without a reply by the grader, left out of every figure."""
    cases_rated: int
    adjudicated: int
    cases_scored_by_people: int
    people_scores: str
    """"given" by people for whole cases, or "derived" from their verdicts by Equation 1; "none"."""


@dataclass(frozen=True, slots=True)
class Meta:
    """The meta-evaluation of one run."""

    run: Mapping[str, Any]
    grader: Mapping[str, Any]
    human: Mapping[str, Any] | None
    coverage: Coverage | None
    criteria: Reliability | None
    cases: tuple[CaseLevel, ...]
    repeated: Repeated | None
    draws: int
    seed: int
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON."""
        return {
            "format": "medlive-meta",
            "format_version": 1,
            "level": 0.95,
            **asdict(self),
        }


def meta_run(
    run_dir: Path,
    *,
    human: Path | Sequence[Path] = (),
    adjudicator: str | None = None,
    judge: str | None = None,
    baselines: Sequence[Path] = (),
    draws: int = DRAWS,
    seed: int = 0,
) -> Meta:
    """Evaluate the grading of a run.

    Args:
        run_dir: The graded run.
        human: Files of human ratings (`humans.read_humans`).
        adjudicator: The rater who decided disagreements; counts for nothing else.
        judge: The grader, as in `load_graded`.
        baselines: Runs judged by `judge_direct` or files of scores by case, besides the run's own `direct.jsonl`.
        draws: Bootstrap draws.
        seed: Seed of the draws.

    Raises:
        UsageError: If nothing is graded, there is nothing to compare, or people settled the grading itself.
        BadInput: If a file cannot be read.
    """
    run = load_graded(run_dir, judge=judge)
    grader = grader_of(run)
    if grader.engine == SETTLED and human:
        raise UsageError(
            f"{grader.model} holds people's own verdicts",
            hint="--judge names one of its two judges",
        )
    name = grader_name(grader)
    notes = list(run.notes)
    people = read_people(
        [human] if isinstance(human, Path) else human, adjudicator, run
    )
    coverage, criteria = None, None
    levels: tuple[CaseLevel, ...] = ()
    if people is not None:
        notes += [f"{people.name}: {note}" for note in people.notes]
        truth, how = _people_scores(run, people, adjudicator)
        counts, criteria = _criteria(
            run, people, adjudicator, name, notes, draws=draws, seed=seed
        )
        coverage = Coverage(
            **counts,
            cases_scored_by_people=len(truth),
            people_scores=how if truth else "none",
        )
        ways = {
            "rubric": (name, scores_of(run)),
            **_baselines(run_dir, baselines, notes),
        }
        levels = _levels(truth, ways, notes, draws, seed) if truth else ()
    rounds = (
        read_rounds(run_dir, judge=grader.judge)
        if (run_dir / REPEATS).exists()
        else None
    )
    again = None if rounds is None else repeated(run, rounds, draws=draws, seed=seed)
    if people is None and again is None:
        raise UsageError(
            f"{run_dir} has no ratings and one round of its grader: nothing to compare",
            hint="--human FILE compares with people, medlive eval grade --repeats with itself, "
            "medlive eval judges compare with another grader",
        )
    info = run.run.info
    about = {
        "folder": run_dir.absolute().name,
        "model": info.model,
        "template": info.template.name,
        "cases": info.cases.name,
        "cases_digest": info.cases.digest,
        "n": len(run.run.cases),
    }
    described = None if people is None else _about(people, adjudicator)
    grading = {**asdict(grader), "name": name}
    return Meta(
        about,
        grading,
        described,
        coverage,
        criteria,
        levels,
        again,
        draws,
        seed,
        tuple(notes),
    )


def read_people(
    files: Sequence[Path], adjudicator: str | None, run: GradedRun
) -> HumanRatings | None:
    """People's ratings of a run, if there are files. Raises UsageError for an adjudicator who has none."""
    if not files:
        if adjudicator is not None:
            raise UsageError(
                "an adjudicator needs a file of human ratings", hint="add --human FILE"
            )
        return None
    people = read_humans(*files, items=places_of(items_of(run.run.cases, run.answers)))
    if adjudicator not in (None, *people.raters):
        raise UsageError(
            f"{people.name} has no ratings by {adjudicator!r}; its raters are {', '.join(people.raters)}"
        )
    return people


def _single_verdict_notes(criteria: Reliability) -> list[str]:
    """Notes on pairs whose macro-F1 includes a verdict that neither rater used."""
    found = []
    for pair in (*criteria.people, *criteria.grader):
        c = pair.confusion
        apart = c.first_only + c.second_only
        used = bool(c.both_met + apart + c.invalid_met) + bool(
            c.neither + apart + c.invalid_not_met
        )
        if pair.macro_f1.value is not None and used == 1:
            found.append(
                f"{pair.first} and {pair.second} used only one verdict: the other counts as 0 in their macro-F1"
            )
    return found


def _about(people: HumanRatings, adjudicator: str | None) -> dict[str, Any]:
    verdicts = Counter(
        r
        for given in people.verdicts.values()
        for r, met in given.items()
        if met is not None
    )
    scores = Counter(rater for given in people.scores.values() for rater in given)
    raters = [
        {"name": r, "verdicts": verdicts[r], "scores": scores[r]} for r in people.raters
    ]
    return {
        "file": people.name,
        "digest": people.digest,
        "format": people.format,
        "raters": raters,
        "adjudicator": adjudicator,
    }


def _criteria(
    run: GradedRun,
    people: HumanRatings,
    adjudicator: str | None,
    name: str,
    notes: list[str],
    **draws: int,
) -> tuple[dict[str, int], Reliability | None]:
    """Counts of criteria, and the figures of those that people rated."""
    known = [(case.case_id, c.id) for case in run.run.cases for c in case.criteria]
    _note_unknown(run, people, set(known), notes)
    places = _rated_places(run, people, known, notes)
    raters = _raters_of_criteria(people, adjudicator)
    codes = codes_of(people, places, raters)
    decisions = codes_of(
        people, places, () if adjudicator is None else (adjudicator,)
    ).max(axis=1, initial=ABSENT)
    grader = np.array([_grader_code(run, place) for place in places], dtype=np.int_)
    counts = _counts(codes, grader, decisions)
    some = (codes >= MET).any(axis=1)
    rated_cases = {places[i][0] for i in np.flatnonzero(some)}
    coverage = {"criteria": len(known), **counts, "cases_rated": len(rated_cases)}
    if not some.any():
        if people.verdicts:
            notes.append("no criterion of this run was rated: no figures by criterion")
        return coverage, None
    for rater, n in zip(raters, (codes >= MET).sum(axis=0).tolist(), strict=True):
        if n < LEAST_ITEMS:
            notes.append(
                f"rater {rater!r} decided {n} criteria of this run: too few for figures of their own"
            )
    numbers = {
        name: n
        for n, name in enumerate(dict.fromkeys(case_id for case_id, _ in places))
    }
    clusters = np.array([numbers[case_id] for case_id, _ in places], dtype=np.int_)
    agreed = None if adjudicator is None else agreed_codes(codes, decisions)
    found = reliability(
        Panel(raters, codes, clusters, tuple(numbers), name, agreed), grader, **draws
    )
    notes += _single_verdict_notes(found)
    return coverage, found


def _raters_of_criteria(
    people: HumanRatings, adjudicator: str | None
) -> tuple[str, ...]:
    rated_by = {rater for by in people.verdicts.values() for rater in by} - {
        adjudicator
    }
    return tuple(rater for rater in people.raters if rater in rated_by)


def _counts(codes: Codes, grader: Codes, decisions: Codes) -> dict[str, int]:
    rated = (codes >= MET).sum(axis=1)
    graded = (grader >= MET) & (grader <= NOT_MET)
    of_rated = {
        "graded": graded,
        "invalid": grader == INVALID,
        "ungraded": grader == ABSENT,
    }
    return {
        "rated": int((rated > 0).sum()),
        "rated_twice": int((rated > 1).sum()),
        **{name: int((which & (rated > 0)).sum()) for name, which in of_rated.items()},
        "adjudicated": int(((decisions >= MET) & (rated > 0)).sum()),
    }


def _rated_places(
    run: GradedRun, people: HumanRatings, known: list[Place], notes: list[str]
) -> list[Place]:
    """The run's criteria that people rated, of cases with an answer."""
    rated = [place for place in known if place in people.verdicts]
    gradable = {case_id for case_id, answer in run.answers.items() if answer.gradable}
    places = [place for place in rated if place[0] in gradable]
    if unanswered := len(rated) - len(places):
        notes.append(
            f"{unanswered} rated criteria belong to cases without an answer in this run; left out"
        )
    return places


def codes_of(
    people: HumanRatings, places: Sequence[Place], raters: Sequence[str]
) -> Codes:
    """The verdicts of raters (places x raters)."""
    codes = [
        [code_of(people.verdicts[place].get(rater)) for rater in raters]
        for place in places
    ]
    return np.array(codes, dtype=np.int_).reshape(len(places), len(raters))


def agreed_codes(codes: Codes, decisions: Codes) -> Codes:
    """The adjudicator's decision, else the unanimous verdict of two or more raters; else ABSENT (items)."""
    met, not_met = (codes == MET).sum(axis=1), (codes == NOT_MET).sum(axis=1)
    unanimous = np.where(
        (met > 1) & (not_met == 0),
        MET,
        np.where((not_met > 1) & (met == 0), NOT_MET, ABSENT),
    )
    return np.where(decisions >= MET, decisions, unanimous)


def _note_unknown(
    run: GradedRun, people: HumanRatings, known: set[Place], notes: list[str]
) -> None:
    """Add notes on ratings of unknown cases or criteria. Raises BadInput if nothing is known."""
    ids = {case.case_id for case in run.run.cases}
    unknown: dict[str, list[str]] = {
        "cases": [
            f"{key!r} ({people.lines[key]})" for key in people.scores if key not in ids
        ],
        "criteria": [
            f"{'/'.join(key)!r} ({people.lines[key]})"
            for key in people.verdicts
            if key not in known
        ],
    }
    if sum(map(len, unknown.values())) == len(people.scores) + len(people.verdicts):
        raise BadInput(
            f"{people.name} has no ratings for this run",
            hint="use case_id and criterion_id of the run's cases.jsonl",
        )
    for what, keys in unknown.items():
        if keys:
            notes.append(
                f"{people.name}: {what} that are not in this run, left out: {some(keys)}"
            )


def _grader_code(run: GradedRun, place: Place) -> int:
    """INVALID for a reply without a verdict, the grader's error; ABSENT for no reply, an error of ours."""
    grade = run.grades.get(place[0], {}).get(place[1])
    if grade is None or (grade.met is None and not grade.grader):
        return ABSENT
    return INVALID if grade.met is None else code_of(grade.met)


def _people_scores(
    run: GradedRun, people: HumanRatings, adjudicator: str | None
) -> tuple[dict[str, float], str]:
    """People's mean score of each case, in the run's order so that draws do not depend on the file's order.

    The scores are those that people gave, or if there are none, Equation 1 from the verdicts of those who decided
    every criterion of a case. The adjudicator is left out.
    """
    ids = [case.case_id for case in run.run.cases]
    given = {
        case_id: [
            score
            for rater, score in people.scores.get(case_id, {}).items()
            if rater != adjudicator
        ]
        for case_id in ids
    }
    how = "given" if any(given.values()) else "derived"
    for rater in people.raters if how == "derived" else ():
        met: dict[str, dict[str, bool | None]] = {}
        for (case_id, criterion_id), by in people.verdicts.items():
            met.setdefault(case_id, {})[criterion_id] = by.get(rater)
        for case_id, score in (
            scores_of(run, met).items() if rater != adjudicator else ()
        ):
            given[case_id].append(score)
    return {
        case_id: sum(scores) / len(scores)
        for case_id, scores in given.items()
        if scores
    }, how


def _baselines(
    run_dir: Path, paths: Sequence[Path], notes: list[str]
) -> dict[str, tuple[str, dict[str, float]]]:
    """By method: the rater's name and the scores by case."""
    found: dict[str, tuple[str, dict[str, float]]] = {}
    for path in (run_dir, *paths):
        if path.is_dir():
            direct = read_direct(path)
            if direct is None:
                if path is not run_dir:
                    raise BadInput(
                        f"{path} has no direct scores",
                        hint="run medlive eval judge-direct first",
                    )
                continue
            notes += direct.notes
            kept = {
                case_id: score
                for case_id, score in direct.scores.items()
                if score is not None
            }
            if path is not run_dir and _answers(path) != _answers(run_dir):
                notes.append(f"baseline {path.name}: its answers differ from the run's")
            found[_unique("direct", found)] = (direct.model, kept)
        else:
            scores, raters = read_scores(path)
            found[_unique(path.stem, found)] = (raters, scores)
    return found


def _unique(name: str, taken: Mapping[str, object]) -> str:
    names = (name if n == 1 else f"{name}-{n}" for n in range(1, len(taken) + 3))
    return next(free for free in names if free not in taken and free != "rubric")


def _answers(path: Path) -> dict[str, str]:
    return {
        case_id: answer.digest
        for case_id, answer in open_run(path).answers()[0].items()
    }


def _levels(
    truth: Mapping[str, float],
    ways: Mapping[str, tuple[str, Mapping[str, float]]],
    notes: list[str],
    draws: int,
    seed: int,
) -> tuple[CaseLevel, ...]:
    ids = list(truth)
    people = np.array([truth[case_id] for case_id in ids])
    columns = {
        way: np.array([scores.get(name, np.nan) for name in ids])
        for way, (_, scores) in ways.items()
    }
    found = []
    for way, (judge, scores) in ways.items():
        column = columns[way]
        both = ~np.isnan(column)
        if unknown := len(set(scores) - set(ids)):
            notes.append(f"{way}: {unknown} cases have no score by people; left out")
        better = pearson_difference(
            columns["rubric"], column, people, draws=draws, seed=seed
        )
        level = CaseLevel(
            method=way,
            judge=judge,
            pearson=correlate(Kind.PEARSON, column, people, draws=draws, seed=seed),
            spearman=correlate(Kind.SPEARMAN, column, people, draws=draws, seed=seed),
            mean=mean_of(column[both], draws=draws, seed=seed),
            mean_people=mean_of(people[both], draws=draws, seed=seed),
            unscored=int((~both).sum()),
            gain=None if way == "rubric" else better,
        )
        found.append(level)
    return tuple(found)
