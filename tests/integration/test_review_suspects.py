"""A criterion that better models miss is listed, disputed once, and kept out of the next freeze."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from medlive.db.session import Database
from medlive.evaluation.model import EvaluationCase, EvaluationCriterion
from tests.support.decisions import make_case
from tests.support.instance import Instance
from tests.support.runs import graded_by, made_cases, made_run

MODELS, CASES = 10, 60
JUDGE = "second-judge"


def make_runs(root: Path, wrong: EvaluationCase) -> list[str]:
    """Ten models that differ in skill; the wrong case's first criterion is met by the worse half alone."""
    cases = made_cases(CASES)
    cases = replace(cases, cases=(wrong, *cases.cases[1:]))
    runs = []
    for number in range(MODELS):
        name = f"m{number}"
        skill = 0.3 + number / MODELS / 2
        run = made_run(cases, root / name, name, skill, missing=False)
        met = verdicts(f"{wrong.case_id}-c1", number, skill)
        runs.append(str(graded_by(JUDGE, run, met)))
    return runs


def verdicts(
    wrong_criterion: str, number: int, skill: float
) -> Callable[[EvaluationCase, EvaluationCriterion], bool]:
    """The judge's verdicts of one model."""
    rng = random.Random(number)

    def met(case: EvaluationCase, criterion: EvaluationCriterion) -> bool:
        if criterion.id == wrong_criterion:
            return number < MODELS // 2
        return (rng.random() < skill) == (criterion.points > 0)

    return met


def renamed(case: EvaluationCase, case_id: str) -> EvaluationCase:
    criteria = []
    for number, criterion in enumerate(case.criteria, start=1):
        criteria.append(replace(criterion, id=f"{case_id}-c{number}"))
    return replace(case, case_id=case_id, criteria=tuple(criteria))


@pytest.mark.thorough
async def test_a_suspect_is_disputed_once(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    case_id = (await make_case(database)).case_id
    instance = Instance(tmp_path / "home", database_url)
    wrong = renamed(made_cases(1).cases[0], case_id)
    runs = await asyncio.to_thread(make_runs, tmp_path / "runs", wrong)
    asked = ("review", "suspects", *runs, "--judge", JUDGE, "--json")

    def work() -> None:
        listed = instance.here(*asked).json
        first = listed[0]
        assert first["criterion_id"] == f"{case_id}-c1"
        assert set(first["good_models"]) == {f"m{n}" for n in range(MODELS // 2)}
        assert first["bad_models"][0] == f"m{MODELS - 1}"
        said = instance.here(*asked, "--dispute").err
        assert "1 disputes opened" in said
        again = instance.here(*asked, "--dispute").err
        assert "0 disputes opened" in again
        (dispute,) = instance.here("review", "disputes", "--json").json
        assert dispute["criterion_id"] == "c1"
        assert f"missed by m{MODELS - 1}" in dispute["reason"]

    await asyncio.to_thread(work)
