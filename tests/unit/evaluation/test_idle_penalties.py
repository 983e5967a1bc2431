"""How often each penalty was committed: an idle one is named once enough models were asked."""

from dataclasses import replace
from pathlib import Path

from medlive.evaluation.asking.run import run_model
from medlive.evaluation.model import EvaluationCriterion
from medlive.evaluation.penalties import LEAST_ASKED, PenaltyUse, count_penalties
from medlive.evaluation.scoring.graded import GradedRun, load_graded
from tests.unit.evaluation.conftest import AT, USE, Model, make_cases, reply


async def run_of(folder: Path, model: str, met: bool | None) -> GradedRun:
    """A run of one case whose penalty has this verdict."""
    cases = make_cases(1)
    penalty = EvaluationCriterion("p1", "Recommends waiting.", -7)
    (case,) = cases.cases
    cases = replace(cases, cases=(replace(case, criteria=(*case.criteria, penalty)),))
    await run_model(
        cases,
        Model(lambda _: reply("Wait.", model=model)),
        folder / model,
        use=replace(USE, model=model),
        created_at=AT,
    )
    verdicts = {case.case_id: {"p1": met}}
    return replace(load_graded(folder / model), met=verdicts)


async def uses_of(folder: Path, *met: bool | None) -> PenaltyUse:
    runs = [await run_of(folder, f"m{n}", each) for n, each in enumerate(met)]
    (use,) = [use for use in count_penalties(runs) if use.criterion_id == "p1"]
    return use


async def test_a_penalty_that_no_model_commits_is_idle(tmp_path: Path) -> None:
    use = await uses_of(tmp_path, *[False] * LEAST_ASKED)
    assert (use.is_idle, use.committed, len(use.models)) == (True, [], LEAST_ASKED)


async def test_one_that_is_committed_or_ungraded_or_asked_of_few_is_not(
    tmp_path: Path,
) -> None:
    committed = await uses_of(tmp_path / "a", False, True, False)
    assert (committed.is_idle, committed.committed) == (False, ["m1"])
    assert not (await uses_of(tmp_path / "b", False, False, None)).is_idle


async def test_another_criterion_under_the_same_id_is_not_counted(
    tmp_path: Path,
) -> None:
    runs = [await run_of(tmp_path, f"m{n}", False) for n in range(LEAST_ASKED)]
    (case,) = runs[0].cases
    others = []
    for criterion in case.criteria:
        changed = criterion.criterion + " At once."
        others.append(replace(criterion, criterion=changed))
    changed_case = replace(case, criteria=tuple(others))
    runs[0] = replace(runs[0], run=replace(runs[0].run, cases=(changed_case,)))
    older, use = [use for use in count_penalties(runs) if use.criterion_id == "p1"]
    assert (older.models, use.models) == (["m0"], ["m1", "m2"])
    assert not use.is_idle
