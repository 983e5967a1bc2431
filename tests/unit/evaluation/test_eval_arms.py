"""Which runs of one model are compared: as their `arm` says, since no template of that name can be asked."""

from pathlib import Path

import pytest

from medlive.evaluation.model import (
    Answer,
    AnswerState,
    CaseSet,
    Grade,
    grade_keys,
)
from medlive.evaluation.runs.folder import (
    GRADES,
    RESPONSES,
    ModelUse,
    TemplateUse,
    create_run,
)
from medlive.evaluation.scoring.contamination import contamination, score_arms
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.score import score_runs
from medlive.grader.judge import Mode
from medlive.integrity.log import open_log
from medlive.llm.registry import Registry
from tests.support.runs import JUDGE, MADE_AT, made_cases

CASES = made_cases(4, criteria=2)


def asked(
    out: Path, cases: CaseSet, met: bool, *, arm: str | None, template: str = "open"
) -> Path:
    """A run whose every positive criterion is met or not, so that its score tells which run was taken."""
    pinned = TemplateUse(name=template, digest="sha256:" + "1" * 64)
    run = create_run(out, cases, ModelUse("m", arm=arm), pinned, MADE_AT)
    with open_log(out / RESPONSES) as answers, open_log(out / GRADES) as grades:
        for case in run.cases:
            answer = Answer(case.case_id, AnswerState.OK, "Rest.", "stop", "m")
            answers.add(answer.row())
            for one in case.criteria:
                grade = Grade(
                    case.case_id,
                    one.id,
                    grade_keys(case, answer, JUDGE)[one.id],
                    met and one.points > 0,
                    "",
                    "",
                    "",
                    "",
                    "judge",
                    "openai",
                    "judge",
                    Mode.CRITERION,
                    "p",
                    JUDGE,
                )
                grades.add(grade.row())
    return out


def test_a_run_in_the_threads_own_words_is_no_closed_book(tmp_path: Path) -> None:
    paths = [
        asked(tmp_path / "closed", CASES, False, arm=None),
        asked(tmp_path / "raw", CASES, True, arm="raw"),
        asked(tmp_path / "opened", CASES, True, arm=None, template="open-book"),
        asked(tmp_path / "rawopen", CASES, False, arm="raw", template="open-book"),
    ]
    arms = score_arms(score_runs([load_graded(path) for path in paths], draws=10))
    found = {(arm.pair.first, arm.pair.second): arm.pair for arm in arms}
    assert set(found) == {("m (opened)", "m (closed)"), ("m (rawopen)", "m (raw)")}
    assert found["m (opened)", "m (closed)"].difference == pytest.approx(1.0)
    assert found["m (rawopen)", "m (raw)"].difference == pytest.approx(-1.0)


def test_the_raw_arm_is_held_against_what_was_asked_the_same_way(
    tmp_path: Path,
) -> None:
    paths = [
        asked(tmp_path / "raw", CASES, True, arm="raw"),
        asked(tmp_path / "rewritten", CASES, False, arm=None),
        asked(tmp_path / "terse", CASES, False, arm=None, template="livemedbench-v1"),
        asked(tmp_path / "opened", CASES, False, arm=None, template="open-book"),
    ]
    registry = Registry.model_validate(
        {"candidates": {"m": {"released": "2024-12-31"}}}
    )
    table = contamination(
        score_runs([load_graded(path) for path in paths], draws=10),
        registry,
    )
    assert [(arm.raw, arm.rewritten) for arm in table.arms] == [
        ("m (raw)", "m (rewritten)")
    ]
