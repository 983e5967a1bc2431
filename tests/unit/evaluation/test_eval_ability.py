"""Runs of differing weeks on one scale: weeks apart from models, wrong keys found, hard cases by the others."""

from dataclasses import replace

import numpy as np
import pytest

from medlive.evaluation.model import AnswerState, EvaluationCase, EvaluationCriterion
from medlive.evaluation.scoring.ability import AbilityTable, abilities
from medlive.evaluation.scoring.metrics import CaseScore, CaseState

MODELS = 16
WRONG = "week 3 case 7"


def make_case(week: int, number: int) -> EvaluationCase:
    criteria = tuple(
        EvaluationCriterion(id=str(place), criterion=f"States {place}.", points=5.0)
        for place in range(5)
    )
    return EvaluationCase(
        case_id=f"week {week} case {number}",
        language="en",
        narrative="Text.",
        query="What?",
        advice="Rest.",
        post_time="2026-10-01",
        month="2026-10",
        criteria=criteria,
        first_release=f"2026.W{week:02}",
    )


def make_table(drop: float = 0.0) -> AbilityTable:
    """Six weeks that become harder; the last model loses `drop` in the last week of three in a row."""
    rng = np.random.default_rng(0)
    scored: list[list[CaseScore]] = [[] for _ in range(MODELS)]
    levels = np.linspace(-1.5, 1.5, MODELS)
    for week in range(6):
        for number in range(40):
            case = make_case(week, number)
            easiness = 1.5 - week / 2 + rng.normal(0, 0.7)
            for model, level in enumerate(levels):
                if not model % 4 <= week < model % 4 + 3:
                    continue
                chance = 1 / (1 + np.exp(-(level + easiness)))
                if model == MODELS - 1 and week == 5:
                    chance *= 1 - drop
                met = rng.random(5) < chance
                if case.case_id == WRONG:
                    met[0] = level < 0
                scored[model].append(
                    CaseScore(
                        case=case,
                        state=CaseState.SCORED,
                        answer=AnswerState.OK,
                        met={str(place): bool(one) for place, one in enumerate(met)},
                        score=float(met.mean()),
                        low=float(met.mean()),
                        high=float(met.mean()),
                    )
                )
    return abilities({f"m{k}": own for k, own in enumerate(scored)}, draws=100)


@pytest.fixture(scope="module")
def table() -> AbilityTable:
    """The table in which no model drops."""
    return make_table()


def test_weeks_become_harder_and_models_do_not(table: AbilityTable) -> None:
    easiness = [week.easiness for week in table.weeks]
    assert easiness == sorted(easiness, reverse=True)
    rows = [row for week in table.weeks for row in week.models]
    assert len(rows) == 3 * MODELS
    assert np.mean([row.beyond for row in rows]) < 0.15


@pytest.mark.thorough
def test_a_model_that_drops_is_told_from_a_week_that_is_hard() -> None:
    last = make_table(drop=0.5).weeks[-1].models
    beyond = {row.model for row in last if row.beyond and row.score < row.expected}
    assert beyond == {f"m{MODELS - 1}"}


def test_a_wrong_key_is_first_among_the_suspects(table: AbilityTable) -> None:
    suspects = table.suspects
    assert suspects[0].case.case_id == WRONG
    assert suspects[0].criterion is not None
    assert suspects[0].criterion.id == "0"
    assert len(suspects) < 12


def test_another_criterion_under_the_same_id_tells_nothing_of_a_criterion() -> None:
    case = make_case(1, 1)
    first, *rest = case.criteria
    edited = replace(first, criterion="States something else.")
    revised = replace(case, criteria=(edited, *rest))
    scored = []
    for own in (case, case, revised):
        score = CaseScore(
            case=own,
            state=CaseState.SCORED,
            answer=AnswerState.OK,
            met={criterion.id: True for criterion in own.criteria},
            score=1.0,
            low=1.0,
            high=1.0,
        )
        scored.append([score])
    table = abilities(dict(zip("abc", scored, strict=True)), draws=10)
    assert [item.figures.models for item in table.criteria] == [2, 3, 3, 3, 3]
