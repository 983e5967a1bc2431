"""What would make a figure mislead is refused, and marked where a flag overrides it."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from medlive.errors import CheckFailed
from medlive.evaluation.runs.folder import GRADES, open_run
from medlive.evaluation.scoring.graded import GradedRun, load_graded
from medlive.evaluation.scoring.refusals import (
    Allow,
    check_figures,
    objections,
)
from medlive.evaluation.scoring.score import score_runs
from medlive.integrity.digest import digest_json
from tests.support.instance import Instance
from tests.support.runs import graded_by, made_cases, made_run

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A sound run, one of another grader, one of two graders, and one that is not publishable."""
    root, cases = tmp_path_factory.mktemp("runs"), made_cases(12)
    made = {
        name: made_run(cases, root / name, name, 0.6, missing=False)
        for name in ("sound", "other", "twice")
    }
    (made["other"] / GRADES).unlink()
    for name in ("other", "twice"):
        graded_by("a second judge", made[name], lambda case, criterion: True)
    draft = replace(cases, publishable=False, notes=("too few cases",))
    made["draft"] = made_run(draft, root / "draft", "draft", 0.6, missing=False)
    return made


NEEDED = {
    "other": {Allow.MIXED_GRADERS},
    "twice": {Allow.SEVERAL_JUDGES},
    "draft": {Allow.NOT_PUBLISHABLE},
}


def test_a_sound_run_needs_no_flag(runs: dict[str, Path]) -> None:
    table = score_runs([load_graded(runs["sound"])], draws=2)
    assert table.overridden == ()


@pytest.mark.parametrize("bad", NEEDED)
def test_only_the_flag_of_that_reason_overrides_it(
    runs: dict[str, Path], bad: str
) -> None:
    graded = [load_graded(runs["sound"]), load_graded(runs[bad])]
    needed = {objection.allow for objection in objections(graded)}
    # A second judge that was chosen by default is another grader as well.
    assert needed >= NEEDED[bad]
    every = [set(some) for n in range(4) for some in combinations(Allow, n)]
    for allowed in every:
        if needed <= allowed:
            overridden = check_figures(graded, allowed)
            assert {objection.allow for objection in overridden} == needed
        else:
            with pytest.raises(CheckFailed, match="would mislead"):
                check_figures(graded, allowed)


def test_a_judge_that_is_named_is_no_surprise(runs: dict[str, Path]) -> None:
    silent = load_graded(runs["twice"])
    assert silent.rivals
    chosen: GradedRun = load_graded(
        runs["twice"], judge=digest_json(["a second judge"])
    )
    assert not chosen.rivals
    assert not list(objections([chosen]))


def test_commands_refuse_and_print_what_is_overridden(
    instance: Instance, runs: dict[str, Path]
) -> None:
    paths = [str(runs["sound"]), str(runs["draft"])]
    allowed = ("--allow", "not-publishable")
    commands = (
        ("score", "--draws", "5"),
        ("power",),
        ("protocol", "run", "coverage"),
        ("audit", "--table"),
        ("contamination", "--draws", "5"),
    )
    for words in commands:
        refused = instance.here("eval", *words, *paths, status=1)
        assert refused.out == ""
        assert "--allow not-publishable" in " ".join(refused.err.split())
        done = instance.here("eval", *words, *paths, *allowed, status=None)
        assert done.status in (0, 1)
        assert "MISLEADING" in done.out or "MISLEADING" in done.err
    printed = instance.here(
        "eval", "score", *paths, *allowed, "--draws", "5", "--format", "json"
    )
    (overridden,) = json.loads(printed.out)["overridden"]
    assert overridden["allow"] == "not-publishable"
    assert "too few cases" in overridden["why"]
    instance.here("eval", "score", paths[0], "--allow", "anything", status=2)


@pytest.mark.parametrize("bad", ["twice", "draft"])
def test_a_grading_that_misleads_is_not_compared_with_people(
    instance: Instance, runs: dict[str, Path], tmp_path: Path, bad: str
) -> None:
    people = tmp_path / "people.csv"
    rows = ["case_id,rater,score"]
    for place, case in enumerate(open_run(runs[bad]).cases):
        rows.append(f"{case.case_id},ann,{place % 2}")
    people.write_text("\n".join(rows))
    (allow,) = NEEDED[bad]
    words = ["eval", "meta", str(runs[bad]), "--human", str(people), "--draws", "100"]
    refused = instance.here(*words, status=1)
    assert refused.out == ""
    assert f"--allow {allow}" in " ".join(refused.err.split())
    titles = instance.here(*words, "--allow", allow).out.count("MISLEADING")
    assert titles == 2
    value = instance.here(*words, "--allow", allow, "--json").json
    assert [one["allow"] for one in value["overridden"]] == [allow]
