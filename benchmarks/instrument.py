"""Does a rubric measure? Answers of known quality to real cases, graded by their rubrics and rated by blind readers.

Run: `python benchmarks/instrument.py` prints the figures of benchmarks/data/instrument.jsonl, with `--data FILE` those
of another study; `--json` as JSON.

The cases are of real threads (`../shared/realdata`) on which no prompt of a rubric was tried before; their
texts are not copied. Four answers to each were written from narrative and question alone by a reader who saw
no rubric: excellent short (about 90 words), excellent long (about 300), vague, and plausibly wrong. Another
reader graded them in rubric mode as `medlive eval grade` does, two more rated the answers from 0 to 1 and the
rubrics on the paper's scales, each blind to all that the others made. All readers are language models and
none is a physician, so agreement among them is a generous ceiling. `before` is the rubric that earlier
prompts made of the same advice, where one is on record.
"""

import argparse
import json
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from scipy.stats import pearsonr, spearmanr

DATA: Final = Path(__file__).resolve().parent / "data" / "instrument.jsonl"
KINDS: Final = ("short", "long", "vague", "wrong")
GOOD: Final = ("short", "long")
MODELS: Final = {
    "always long": {"long": 1.0},
    "always short": {"short": 1.0},
    "short, a tenth wrong": {"short": 0.9, "wrong": 0.1},
    "half long, half vague": {"long": 0.5, "vague": 0.5},
    "half short, half vague": {"short": 0.5, "vague": 0.5},
    "long, a third wrong": {"long": 0.67, "wrong": 0.33},
    "mostly vague": {"vague": 0.8, "short": 0.2},
    "always wrong": {"wrong": 1.0},
}
"""Made-up models: how often each gives which kind of answer."""
SEED: Final = 25


class Case(NamedTuple):
    """A case of the study as its line holds it."""

    name: str
    readers: int  # How many readers shared the parts of rubric and proof
    criteria: Sequence[Mapping[str, Any]]  # id, criterion, axis, points, origin
    before: Sequence[Mapping[str, Any]]  # The same of the earlier rubric; may be empty
    answers: Mapping[str, Mapping[str, Any]]  # Kind → text, ratings, grades
    reviews: Sequence[Mapping[str, Any]]  # Each rater's look at the rubric


def read_cases(path: Path) -> list[Case]:
    """The study's cases."""
    cases = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        cases.append(
            Case(
                name=row["case"],
                readers=row["readers"],
                criteria=row["criteria"],
                before=row["before"],
                answers={answer["kind"]: answer for answer in row["answers"]},
                reviews=row["reviews"],
            )
        )
    return cases


def score(criteria: Iterable[Mapping[str, Any]], met: Mapping[str, bool]) -> float:
    """Equation 1 of LiveMedBench over the criteria given."""
    criteria = list(criteria)
    most = sum(c["points"] for c in criteria if c["points"] > 0)
    if most == 0:
        return 0.0
    reached = sum(c["points"] for c in criteria if met[c["id"]])
    share: float = reached / most
    return min(max(share, 0.0), 1.0)


def complete_score(case: Case, kind: str) -> float:
    """Over criteria of every origin."""
    return score(case.criteria, case.answers[kind]["grades"])


def paper_score(case: Case, kind: str) -> float:
    """Over criteria of the advice alone."""
    advice = [c for c in case.criteria if c["origin"] == "advice"]
    return score(advice, case.answers[kind]["grades"])


def before_score(case: Case, kind: str) -> float:
    """By the rubric of the earlier prompts."""
    return score(case.before, case.answers[kind]["grades_before"])


def rating(case: Case, kind: str) -> float:
    """The raters' mean score of an answer."""
    return statistics.fmean(case.answers[kind]["ratings"])


Scorer = Callable[[Case, str], float]


def graded(cases: Sequence[Case], kinds: Sequence[str]) -> list[tuple[Case, str]]:
    """The answers of some kinds that have a verdict on every criterion."""
    answers = []
    for case in cases:
        for kind in kinds:
            if case.answers[kind]["grades"] is not None:
                answers.append((case, kind))
    return answers


def correlation(cases: Sequence[Case], scorer: Scorer, kinds: Sequence[str]) -> float:
    """Pearson's correlation of scores and ratings over answers of some kinds."""
    answers = graded(cases, kinds)
    scores = [scorer(case, kind) for case, kind in answers]
    ratings = [rating(case, kind) for case, kind in answers]
    return float(pearsonr(scores, ratings).statistic)


def figures_of(cases: Sequence[Case], scorer: Scorer) -> dict[str, float]:
    """How a scorer sees the four kinds of answers, and how it agrees with the raters."""
    figures = {
        kind: statistics.fmean(scorer(case, kind) for case, _ in graded(cases, [kind]))
        for kind in KINDS
    }
    figures["pearson"] = correlation(cases, scorer, KINDS)
    figures["pearson among good"] = correlation(cases, scorer, GOOD)
    return figures


def rater_figures(cases: Sequence[Case]) -> dict[str, float]:
    """The raters' own means, and how they agree with one another."""
    figures = {
        kind: statistics.fmean(rating(case, kind) for case in cases) for kind in KINDS
    }
    for name, kinds in (("pearson", KINDS), ("pearson among good", GOOD)):
        pairs = [case.answers[kind]["ratings"] for case in cases for kind in kinds]
        first, second = zip(*pairs, strict=True)
        figures[name] = float(pearsonr(first, second).statistic)
    return figures


def review_figures(cases: Sequence[Case]) -> dict[str, list[float]]:
    """Of each rater: the share of cases and criteria that the paper's scales accept."""
    figures: dict[str, list[float]] = {}
    for rater in range(2):
        reviews = [case.reviews[rater] for case in cases]
        marks = [mark for review in reviews for mark in review["criteria"].values()]
        shares = {
            "narrative and query at least acceptable": [
                review["narrative_query"] >= 1 for review in reviews
            ],
            "advice at least acceptable": [review["advice"] >= 1 for review in reviews],
            "criteria valid": [mark["valid"] for mark in marks],
            "criteria minor": [mark["minor"] for mark in marks],
            "decisive point missing": [bool(review["missing"]) for review in reviews],
        }
        for name, values in shares.items():
            figures.setdefault(name, []).append(statistics.fmean(values))
    return figures


def ranking(cases: Sequence[Case], scorer: Scorer) -> list[float]:
    """The score of each made-up model: the expected mean over the wholly graded cases."""
    cases = [case for case in cases if len(graded([case], KINDS)) == len(KINDS)]
    scores = []
    for mixture in MODELS.values():
        means = [
            sum(share * scorer(case, kind) for kind, share in mixture.items())
            for case in cases
        ]
        scores.append(statistics.fmean(means))
    return scores


def interval(
    cases: Sequence[Case], statistic: Callable[[Sequence[Case]], float]
) -> tuple[float, float]:
    """A 95 % bootstrap interval over cases, seeded."""
    chance = random.Random(SEED)
    values = sorted(statistic(chance.choices(cases, k=len(cases))) for _ in range(1000))
    return values[25], values[974]


def report(cases: Sequence[Case]) -> dict[str, Any]:
    """All figures of the study."""
    earlier = [case for case in cases if case.before]
    one = [case for case in cases if case.readers == 1]
    scorers: dict[str, tuple[Sequence[Case], Scorer]] = {
        "complete": (cases, complete_score),
        "paper": (cases, paper_score),
        "complete, one reader in all parts": (one, complete_score),
        "complete, where there is a rubric before": (earlier, complete_score),
        "before": (earlier, before_score),
    }
    tables = {"raters": rater_figures(cases)}
    for name, (some, scorer) in scorers.items():
        if some:
            tables[name] = figures_of(some, scorer)
    rated = ranking(cases, rating)
    ranks = {}
    for name, scorer in (("complete", complete_score), ("paper", paper_score)):
        ranks[name] = float(spearmanr(ranking(cases, scorer), rated).statistic)
    low, high = interval(cases, lambda some: correlation(some, complete_score, KINDS))
    return {
        "cases": len(cases),
        "answers without a verdict": len(cases) * len(KINDS)
        - len(graded(cases, KINDS)),
        "criteria": statistics.fmean(len(case.criteria) for case in cases),
        "scores": tables,
        "pearson of complete, 95 %": [low, high],
        "rubrics": review_figures(cases),
        "made-up models": {
            "raters": dict(zip(MODELS, rated, strict=True)),
            "complete": dict(zip(MODELS, ranking(cases, complete_score), strict=True)),
            "paper": dict(zip(MODELS, ranking(cases, paper_score), strict=True)),
            "spearman with raters": ranks,
        },
    }


def print_report(figures: Mapping[str, Any]) -> None:
    """The figures as a person reads them."""
    print(f"{figures['cases']} cases, {figures['criteria']:.1f} criteria a case")
    print(f"answers without a verdict: {figures['answers without a verdict']}")
    columns = (*KINDS, "pearson", "pearson among good")
    print(f"{'':<42}" + "".join(f"{name:>20}" for name in columns))
    for name, row in figures["scores"].items():
        print(f"{name:<42}" + "".join(f"{row[column]:>20.3f}" for column in columns))
    low, high = figures["pearson of complete, 95 %"]
    print(f"pearson of complete, 95 % interval over cases: {low:.3f} to {high:.3f}")
    for name, values in figures["rubrics"].items():
        print(f"{name:<42}" + "".join(f"{value:>8.3f}" for value in values))
    models = figures["made-up models"]
    for model in MODELS:
        cells = [models[scorer][model] for scorer in ("raters", "complete", "paper")]
        print(f"{model:<42}" + "".join(f"{cell:>8.3f}" for cell in cells))
    for name, value in models["spearman with raters"].items():
        print(f"ranking by {name}: Spearman {value:.3f} with the raters'")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = report(read_cases(arguments.data))
    if arguments.json:
        print(json.dumps(figures, indent=1, ensure_ascii=False))
    else:
        print_report(figures)


if __name__ == "__main__":
    main()
