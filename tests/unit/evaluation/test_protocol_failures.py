"""Failure types: what is asked, the worked example of docs/protocols.md, and what has no type."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medlive.evaluation.grading.questions import Findings
from medlive.evaluation.model import Answer, AnswerState, EvaluationCriterion
from medlive.evaluation.protocols.failures import Failures, FailureType, failed_criteria
from medlive.evaluation.protocols.model import Subject, Table
from medlive.evaluation.protocols.registry import fitting
from medlive.evaluation.protocols.runner import read_findings, run_protocol
from medlive.llm.engine import EngineIdentity, Request
from tests.unit.evaluation.conftest import Judge, make_cases

MET: dict[str, dict[str, bool | None]] = {
    # A positive criterion unmet or a negative one met has failed; None was never decided.
    "c0": {"c1": False, "c2": False, "c3": True, "c4": True},
    "c1": {"c1": True, "c2": False, "c3": False, "c4": None},
    "c2": {"c1": True, "c2": True, "c3": False, "c4": False},
}
CRITERIA = tuple(
    EvaluationCriterion(f"c{n}", f"Criterion {n}", points)
    for n, points in ((1, 8.0), (2, 5.0), (3, 3.0), (4, -6.0))
)
TYPES = {
    "c1": FailureType.EMERGENCY,
    "c2": FailureType.MEDICATION,
    "c3": FailureType.MEDICATION,
    "c4": FailureType.NONE,
}


def subject(label: str = "m") -> Subject:
    cases = tuple(
        replace(case, case_id=f"c{n}", criteria=CRITERIA)
        for n, case in enumerate(make_cases(4).cases)
    )
    answers = {
        c.case_id: Answer(
            c.case_id, AnswerState.OK, f"{label} {c.case_id}", "stop", "m"
        )
        for c in cases[:3]
    }
    return Subject(label, cases, answers, lambda case_id: MET.get(case_id, {}))


def says(request: Request) -> str:
    failed: list[dict[str, Any]] = list(request.inputs["failed"])
    return json.dumps(
        {
            "failed": [
                {"id": c["id"], "reason": "r", "type": TYPES[c["id"]].value}
                for c in failed
            ]
        }
    )


def row(table: Table, place: int = 0) -> dict[str, Any]:
    return dict(zip(table.columns, table.rows[place], strict=True))


def test_a_criterion_fails_by_its_sign_and_a_missing_verdict_does_not() -> None:
    one = subject()
    failed = [[c.id for c in failed_criteria(one, case)] for case in one.cases]
    assert failed == [["c1", "c2", "c4"], ["c2", "c3"], ["c3"], []]
    assert "failures" not in {name for name, _, _ in fitting([one])}


async def test_the_worked_example(tmp_path: Path) -> None:
    runs, protocol, judge = [subject(), subject("other")], Failures(), Judge(says)
    done = await run_protocol(protocol, runs, tmp_path, judge)
    assert (done.questions, done.settled, len(judge.requests)) == (
        6,
        6,
        6,
    )  # one call an answer
    results = protocol.results(
        runs, read_findings(protocol, tmp_path, judge.identity)[0]
    )
    assert row(results.tables[0]) == {
        "model": "m",
        "graded": 11,
        "failed": 6,
        "typed": 6,
        "ungraded": 0,
        "no verdict": 1,
        "unanswered": 1,
    }
    shares = {label: share for label, share, _ in results.tables[1].rows}
    assert {label: share for label, share in shares.items() if share} == {
        "missing emergency trigger": 1 / 6,
        "medication boundary omission": 4 / 6,
        "none fits": 1 / 6,
    }
    assert results.figures == {
        "m": pytest.approx(5 / 11),
        "other": pytest.approx(5 / 11),
    }


async def test_what_is_not_typed_is_in_no_share(tmp_path: Path) -> None:
    def forgets(request: Request) -> str:
        kept = json.loads(says(request))["failed"]
        return json.dumps({"failed": kept[:1]})

    one, protocol, judge = subject(), Failures(), Judge(forgets)
    done = await run_protocol(protocol, [one], tmp_path, judge)
    # Of three answers the one with a single failure is typed; each other was sent back once.
    assert (done.settled, len(judge.requests)) == (1, 5)
    results = protocol.results(
        [one], read_findings(protocol, tmp_path, judge.identity)[0]
    )
    assert [
        row(results.tables[0])[name] for name in ("failed", "typed", "ungraded")
    ] == [6, 1, 5]
    assert [share for _, share in results.tables[1].rows] == [0, 1, 0, 0, 0, 0, 0, 0]
    empty = protocol.results([one], Findings(EngineIdentity("", "")))
    assert {share for _, share in empty.tables[1].rows} == {None}
