"""Ratings by item, as a study exports them: read, adjudicated, and left out where the rated text has changed."""

import csv
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from medlive.errors import BadInput, UsageError
from medlive.evaluation.agreement.humans import items_of, read_humans
from medlive.evaluation.agreement.meta import meta_run
from medlive.evaluation.asking.run import import_answers
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.model import (
    Answer,
    AnswerState,
)
from medlive.evaluation.runs.folder import open_run
from medlive.grader.judge import Mode
from tests.unit.evaluation.conftest import AT, Judge, make_cases, verdict

N = 6


@pytest.fixture
async def run(run_dir: Path) -> Path:
    """Five answers of six, whose grader finds the first criterion of three met."""
    answers = [
        Answer(f"c{i:03d}", AnswerState.OK, f"Drink water {i}.", "stop", "m")
        for i in range(N - 1)
    ]
    answers.append(Answer(f"c{N - 1:03d}", AnswerState.EMPTY, "", "stop", "m"))
    import_answers(run_dir, make_cases(N), answers, "m", AT)
    judge = Judge(lambda r: verdict(r.inputs["criterion"].endswith(".0")))
    await grade_run(run_dir, judge, mode=Mode.CRITERION)
    return run_dir


def items_in(run: Path) -> dict[str, str]:
    """Item id → text of the criterion."""
    folder = open_run(run)
    texts = {(c.case_id, k.id): k.criterion for c in folder.cases for k in c.criteria}
    items = items_of(folder.cases, folder.answers()[0])
    return {item: texts[place] for item, place in items.items()}


def write(
    path: Path, items: Mapping[str, str], met: Callable[[str], str], encoding: str
) -> Path:
    with path.open("w", encoding=encoding, newline="") as handle:
        table = csv.writer(handle)
        table.writerow(["item", "rater", "met"])
        for item, criterion in items.items():
            table.writerow([item, path.stem, met(criterion)])
    return path


def ann_says(criterion: str) -> str:
    return "是" if criterion.endswith((".0", ".1")) else "否"


def bo_says(criterion: str) -> str:
    if criterion == "criterion 4.2":
        return ""
    return "yes" if criterion.endswith(".0") else "no"


@pytest.fixture
def people(run: Path, tmp_path: Path) -> list[Path]:
    items = items_in(run)
    return [
        write(tmp_path / "ann.csv", items, ann_says, "utf-8"),
        write(tmp_path / "bo.csv", items, bo_says, "utf-8-sig"),
    ]


def test_ratings_are_read_and_what_changed_since_is_left_out(
    run: Path, people: list[Path]
) -> None:
    found = meta_run(run, human=people, draws=100)
    assert found.criteria is not None
    assert found.coverage is not None
    assert found.coverage["rated"] == 15
    ann, bo = found.criteria.grader
    assert (bo.equal.value, bo.equal.n, bo.ac1.value) == (1.0, 14, 1.0)
    assert ann.equal.value == pytest.approx(10 / 15)
    case = make_cases(N).cases[0]
    answer = Answer("c000", AnswerState.OK, "Drink water 0.", "stop", "m")
    edited = replace(case.criteria[1], criterion="another wording")
    changed = replace(case, criteria=(case.criteria[0], edited))
    items = items_of([changed], {"c000": answer})
    kept = read_humans(people[0], items=items)
    assert list(kept.verdicts) == [("c000", "k0")]
    other = items_of([changed], {"c000": replace(answer, response="Other.")})
    with pytest.raises(BadInput):
        read_humans(people[0], items=other)


def test_an_adjudicator_decides_what_two_disagree_on_and_nothing_else(
    run: Path, people: list[Path], tmp_path: Path
) -> None:
    disputed = {
        item: criterion
        for item, criterion in items_in(run).items()
        if criterion.endswith((".1", "4.2"))
    }
    cy = write(
        tmp_path / "cy.csv",
        disputed,
        lambda criterion: "" if criterion == "criterion 0.1" else "yes",
        "utf-8",
    )
    found = meta_run(run, human=[*people, cy], adjudicator="cy", draws=100)
    alone = meta_run(run, human=people, draws=100)
    assert found.criteria is not None
    assert alone.criteria is not None
    # The adjudicator counts in no figure but the majority's.
    assert found.criteria.people == alone.criteria.people
    assert found.criteria.people_ac1 == alone.criteria.people_ac1
    assert found.criteria.grader == alone.criteria.grader
    assert found.criteria.by_case == alone.criteria.by_case
    assert found.criteria.strictness == alone.criteria.strictness
    assert found.cases == alone.cases
    assert found.criteria.majority_ties == 1
    truth = found.criteria.majority
    assert truth is not None
    assert truth.first == "adjudicated"
    # Both raters and the grader meet the first criteria; cy four of the second and one third; c000's is open.
    counts = truth.confusion
    assert (counts.both_met, counts.first_only) == (5, 5)
    assert (counts.second_only, counts.neither) == (0, 4)
    with pytest.raises(UsageError):
        meta_run(run, human=people, adjudicator="dee")
    with pytest.raises(UsageError, match="--human"):
        meta_run(run, adjudicator="dee")


def test_ratings_of_another_run_alone_are_refused(people: list[Path]) -> None:
    why = "no ratings of this run"
    with pytest.raises(BadInput, match=why):
        read_humans(*people, items={})
