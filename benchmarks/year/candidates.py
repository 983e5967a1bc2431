"""Twelve synthetic candidates on the year's last release; some remember what was posted by their cutoff."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np

from medlive.clock import now, parse_moment
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.runs.folder import ModelUse
from medlive.evaluation.runs.templates import load_template
from medlive.evaluation.scoring.contamination import ModelContamination, contamination
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.refusals import Allow
from medlive.evaluation.scoring.score import score_runs
from medlive.integrity.digest import canonical_json, digest_text
from medlive.llm.ask import Complete
from medlive.llm.engine import Finish, Reply, Usage
from medlive.llm.registry import Registry
from medlive.llm.rules.engine import RulesEngine
from medlive.statistics.comparison import holm
from medlive.statistics.contamination import drop, permutation_p

LEVEL = 0.05
"""The share of years in which any candidate without memory may be named."""
_TEMPLATE = "livemedbench-v1"
_HEADS = ("States: ", "指出")
"""How the rules engine begins a criterion that an answer meets by saying the rest."""
_LEAKS = {2: 0.20, 5: 0.25, 8: 0.30, 11: 0.22}
"""Candidate → how much likelier it meets a criterion of a case that it has seen."""
_WORLDS = 100


@dataclass(frozen=True, slots=True)
class Planted:
    """A candidate, with what is true of it."""

    name: str
    cutoff: date
    ability: float
    leak: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the analysis says of each candidate, and how often it errs on worlds like this one."""

    candidates: Sequence[Planted]
    found: Sequence[ModelContamination]
    cases: int
    false_worlds: float
    """The share of made worlds in which a candidate without memory was named."""
    missed: float
    """The share of planted memories that were not named, over all worlds."""

    def named(self, place: int) -> bool:
        """Whether the analysis names a candidate: an interval above 0, and a corrected p below LEVEL."""
        one = self.found[place]
        return one.drop is not None and _named(one.drop.low, one.p_holm)

    @property
    def right(self) -> bool:
        """Whether the planted are named and no others."""
        return all(self.named(k) == (c.leak > 0) for k, c in enumerate(self.candidates))


async def evaluate(release: Path, runs: Path, seed: int) -> Outcome:
    """Have every candidate answer a release's cases, grade the answers by the rules engine, and analyse them."""
    case_set = load_cases(release)
    chance = random.Random(seed)
    days = [_day(case) for case in case_set.cases]
    first, last = min(days), max(days)
    candidates = [
        # Cutoffs lie in the middle of the year, so that either side has its cases.
        Planted(
            f"candidate-{n:02}",
            first + (last - first) * (0.3 + 0.4 * (n - 1) / 11),
            chance.uniform(0.35, 0.6),
            _LEAKS.get(n, 0.0),
        )
        for n in range(1, 13)
    ]
    for one in candidates:
        folder = runs / one.name
        use = ModelUse(one.name, "openai", "http://127.0.0.1/v1")
        await run_model(
            case_set,
            _speaker(one, case_set.cases, seed),
            folder,
            use=use,
            created_at=now(),
            template=_TEMPLATE,
        )
        await grade_run(folder, RulesEngine())
    tables = {
        one.name: {
            "cutoff": one.cutoff.isoformat(),
            "cutoff_source": "planted",
            "confidence": "stated",
        }
        for one in candidates
    }
    registry = Registry.model_validate({"candidates": tables})
    table = contamination(
        score_runs(
            [load_graded(runs / one.name) for one in candidates],
            registry=registry,
            seed=seed,
            allow=[Allow.NOT_PUBLISHABLE],  # graded by the rules engine
        ),
        registry,
    )
    by_name = {one.label: one for one in table.models}
    false_worlds, missed = _error_rates(candidates, case_set.cases, seed)
    return Outcome(
        candidates,
        [by_name[one.name] for one in candidates],
        len(case_set.cases),
        false_worlds,
        missed,
    )


def _day(case: EvaluationCase) -> date:
    return parse_moment(case.post_time).date()


def _named(low: float | None, p: float | None) -> bool:
    return low is not None and low > 0 and p is not None and p < LEVEL


def _chance_of(one: Planted, case: EvaluationCase) -> float:
    """How likely it meets a criterion of a case; a case is as hard for all."""
    # The case's words stand for it: its id has the instance's own key in it.
    hard = random.Random(digest_text(case.narrative)).gauss(0, 0.08)
    return min(
        0.95, max(0.02, one.ability - hard + one.leak * (_day(case) <= one.cutoff))
    )


def _speaker(one: Planted, cases: Sequence[EvaluationCase], seed: int) -> Complete:
    """What answers as a candidate: it says each criterion's text with the chance that it has."""
    template, answers = load_template(_TEMPLATE), {}
    for case in cases:
        chance = random.Random(f"{seed} {one.name} {digest_text(case.narrative)}")
        p = _chance_of(one, case)
        said = [
            criterion.criterion.removeprefix(head)
            for criterion in case.criteria
            for head in _HEADS
            if criterion.criterion.startswith(head) and chance.random() < p
        ]
        answers[canonical_json(template.messages(case))] = (
            "\n\n".join(said) or "I do not know."
        )

    async def complete(messages: Sequence[Mapping[str, str]]) -> Reply:
        return Reply(
            answers[canonical_json([dict(m) for m in messages])],
            Finish.STOP,
            Usage(),
            one.name,
        )

    return complete


def _error_rates(
    candidates: Sequence[Planted], cases: Sequence[EvaluationCase], seed: int
) -> tuple[float, float]:
    """The same test over made worlds: these cases and candidates, other luck with each criterion."""
    rng = np.random.default_rng(seed)
    counts = np.array([sum(c.points > 0 for c in case.criteria) for case in cases])
    chances = np.array(
        [[_chance_of(one, case) for case in cases] for one in candidates]
    )
    sides = np.array(
        [[int(_day(case) > one.cutoff) for case in cases] for one in candidates]
    )
    planted = np.array([one.leak > 0 for one in candidates])
    wrong = misses = 0
    for world in range(_WORLDS):
        scores = rng.binomial(counts, chances) / counts
        drops = [
            drop(scores[k], sides[k], draws=200, seed=world)
            for k in range(len(candidates))
        ]
        corrected = holm(
            [
                permutation_p(scores[k], sides[k], 499, seed=world)
                for k in range(len(candidates))
            ]
        )
        named = np.array(
            [_named(one.low, p) for one, p in zip(drops, corrected, strict=True)]
        )
        wrong += bool((named & ~planted).any())
        misses += int((planted & ~named).sum())
    return wrong / _WORLDS, misses / (_WORLDS * int(planted.sum()))
