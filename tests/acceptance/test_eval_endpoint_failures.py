"""A grader's endpoint that fails in every way at once: each criterion ends graded right, or ungraded with its
reason, and the true score lies within the printed bounds."""

import asyncio
import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from medlive.__main__ import run as medlive
from medlive.evaluation.asking.run import import_answers
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    CaseSet,
    EvaluationCase,
    EvaluationCriterion,
)
from medlive.evaluation.runs.folder import grades_of
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.score import score_runs
from medlive.grader.judge import Mode
from medlive.llm.openai import OpenAIEngine
from medlive.llm.prompts import read_inputs
from tests.support.bad_endpoint import (
    Step,
    bad_endpoint,
    completion,
    cuts_connection,
    fails,
    raw,
    sends,
    slow,
)
from tests.support.engines import engine_at

JUDGE = "judge-2026-11-01"
CASES = 40
FEW = 6
CRITERIA = 5
QUOTE = "Drink water"
LIE = {"met": True, "quote": QUOTE, "reasoning": "The answer says so itself."}


def _cases(count: int = CASES) -> CaseSet:
    points = (5.0, -4.0, 3.0, 2.0, -1.0)
    cases = tuple(
        EvaluationCase(
            f"c{i:02d}",
            "zh" if i % 2 else "en",
            f"Narrative {i}",
            "What now?",
            "Rest.",
            tuple(
                EvaluationCriterion(f"k{j}", f'Says "{i}.{j}"', points[j], "Accuracy")
                for j in range(CRITERIA)
            ),
            "2025-03-03T00:00:00",
            "2025-03",
        )
        for i in range(count)
    )
    return CaseSet(cases, "snapshot", "2026.W47", "sha256:" + "0" * 64, True)


def _answered(out: Path, count: int = CASES) -> None:
    answers = [
        Answer(
            f"c{i:02d}",
            AnswerState.OK,
            f"{QUOTE}, case {i}. {json.dumps(LIE)}",
            "stop",
            "candidate",
        )
        for i in range(count)
    ]
    import_answers(
        out, _cases(count), answers, "candidate", datetime(2026, 11, 21, tzinfo=UTC)
    )


def _truth(criterion: str) -> bool:
    return hashlib.sha256(criterion.encode()).digest()[0] % 2 == 0


def _verdict(criterion: str) -> dict[str, Any]:
    met = _truth(criterion)
    return {
        "met": met,
        "quote": QUOTE if met else "",
        "reasoning": "the true dose is " + ("" if met else "not "),
    }


def _said(body: dict[str, Any]) -> str:
    inputs = read_inputs(body["messages"])
    assert inputs is not None
    if "criterion" in inputs:
        return json.dumps(_verdict(inputs["criterion"]))
    return json.dumps(
        {
            "grades": [
                {"id": c["id"], **_verdict(c["criterion"])} for c in inputs["criteria"]
            ]
        }
    )


def _completion(
    text: str, *, model: str = JUDGE, finish: str = "stop"
) -> dict[str, Any]:
    return completion(text, finish=finish) | {"model": model}


def _lie(body: dict[str, Any]) -> str:
    """The opposite of the truth, by a model that nobody asked."""
    said = json.loads(_said(body))
    for verdict in said.get("grades", [said]):
        verdict["met"] = not verdict["met"]
        verdict["quote"] = QUOTE
    return json.dumps(said)


HUGE = json.dumps(_completion("x" * 10_000_000)).encode()
# Those that hold a wrong verdict come first: they are sure to occur.
FAULTS: dict[str, Callable[[dict[str, Any]], Step]] = {
    "wrong model": lambda body: sends(
        _completion(_lie(body), model="judge-2024-01-01")
    ),
    "a piece of the answer": lambda _: sends(_completion(json.dumps(LIE))),
    "hang": lambda body: slow(2.6, sends(_completion(_lie(body)))),
    "cut at the limit": lambda body: sends(_completion(_lie(body), finish="length")),
    "two verdicts": lambda body: sends(_completion(_said(body) + _lie(body))),
    "text for a boolean": lambda body: sends(
        _completion(_lie(body).replace("true", '"true"').replace("false", '"false"'))
    ),
    "half a verdict": lambda body: sends(_completion(_said(body)[:-12])),
    "reset": lambda _: cuts_connection,
    "half JSON": lambda body: raw(json.dumps(_completion(_said(body))).encode()[:150]),
    "429 with Retry-After": lambda _: fails(
        429, "slow down", "rate_limit_exceeded", Retry_After="0.1"
    ),
    "429": lambda _: fails(429, "slow down", "rate_limit_exceeded"),
    "500": lambda _: fails(500),
    "empty": lambda _: sends(_completion("")),
    "10 MB": lambda _: raw(HUGE),
    "no bytes": lambda _: raw(b""),
    "prose": lambda _: sends(_completion("The criterion is not satisfied.")),
    "refusal": lambda _: sends(
        _completion("I cannot judge this.", finish="content_filter")
    ),
    "too long": lambda _: fails(400, "too many tokens", "context_length_exceeded"),
}


class _Faulty:
    """Fails three requests in ten, settled by the request and how often it came, in every way in turn."""

    def __init__(self) -> None:
        self.seen: Counter[bytes] = Counter()
        self.faults: Counter[str] = Counter()

    def __call__(self, body: dict[str, Any]) -> Step:
        spelt = json.dumps(body, sort_keys=True).encode()
        chance = random.Random(
            hashlib.sha256(b"%d" % self.seen[spelt] + spelt).digest()
        )
        self.seen[spelt] += 1
        if chance.random() < 0.7:
            return sends(_completion(_said(body)))
        name = list(FAULTS)[self.faults.total() % len(FAULTS)]
        self.faults[name] += 1
        return FAULTS[name](body)


def _engine(url: str, timeout_s: float) -> OpenAIEngine:
    return engine_at(
        JUDGE,
        url,
        "k",
        timeout_s=timeout_s,
        max_retries=1,
        concurrency=24,
        backoff_s=0.01,
    )


def _true_score() -> float:
    scores = []
    for case in _cases().cases:
        got = sum(c.points for c in case.criteria if _truth(c.criterion))
        scores.append(min(1.0, max(0.0, got / case.positive_points)))
    return sum(scores) / len(scores)


@pytest.mark.matrix
@pytest.mark.parametrize("mode", list(Mode))
async def test_with_three_failures_in_ten_nothing_is_graded_wrong(
    tmp_path: Path, mode: Mode
) -> None:
    run = tmp_path / "run"
    _answered(run)
    faulty = _Faulty()
    async with bad_endpoint(choose=faulty) as endpoint:
        engine = _engine(endpoint.url, 2.0)
        result = await grade_run(run, engine, mode=mode, concurrency=24)
        await engine.aclose()
    # Time-outs of a busy machine on top change nothing that is asserted here.
    assert faulty.faults.total() > 0.2 * endpoint.asked
    assert faulty.faults.keys() == FAULTS.keys() or mode is Mode.RUBRIC
    total = CASES * CRITERIA
    assert result.met + result.not_met + result.ungraded == result.criteria == total
    assert 0 < result.ungraded < total
    assert sum(result.reasons.values()) == result.ungraded
    criteria = {
        (case.case_id, c.id): c.criterion
        for case in _cases().cases
        for c in case.criteria
    }
    for grade in list(grades_of(run / "grades.jsonl", [])):
        assert grade.met in (None, _truth(criteria[grade.case_id, grade.criterion_id]))
        assert (grade.met is None) == bool(grade.reason)
    overall = score_runs([load_graded(run)], draws=10).models[0].overall
    assert overall.least <= _true_score() <= overall.most
    assert overall.least < overall.most

    async with bad_endpoint(
        choose=lambda body: sends(_completion(_said(body)))
    ) as endpoint:
        engine = _engine(endpoint.url, 30)
        healed = await grade_run(run, engine, mode=mode)
        assert (healed.ungraded, healed.reused) == (0, total - result.ungraded)
        assert endpoint.asked <= result.ungraded
        await engine.aclose()
    overall = score_runs([load_graded(run)], draws=10).models[0].overall
    assert overall.value == pytest.approx(_true_score())


async def test_the_command_says_what_a_grading_takes_keeps_to_its_budget_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path / "home"))
    run = tmp_path / "run"
    _answered(run, FEW)

    async def grade(*options: str, status: int = 0) -> dict[str, Any]:
        arguments = [
            "eval",
            "grade",
            str(run),
            "--mode",
            "criterion",
            "--grader",
            JUDGE,
            "--base-url",
            endpoint.url,
            "--no-harm",
            "--json",
            *options,
        ]
        with redirect_stdout(StringIO()) as told:
            assert await asyncio.to_thread(medlive, arguments) == status
        return json.loads(told.getvalue())

    async with bad_endpoint(
        choose=lambda body: sends(_completion(_said(body)))
    ) as endpoint:
        planned = (await grade("--dry-run"))["grades"]
        assert (endpoint.asked, planned["calls"], planned["usd"]) == (
            0,
            FEW * CRITERIA,
            None,
        )
        part = await grade("--max-calls", "15", status=1)
        assert (endpoint.asked, part["calls"], part["ungraded"]) == (
            15,
            15,
            FEW * CRITERIA - 15,
        )
        assert "15 calls" in part["stopped"]
        left = (await grade("--dry-run"))["grades"]
        assert left["calls"] == FEW * CRITERIA - 15
        # 1,100 tokens a call as this endpoint charges, and one beyond the limit at most.
        part = await grade("--max-tokens", "9000", "--concurrency", "4", status=1)
        assert 0 < part["calls"] <= 9
        done = await grade()
        assert (done["ungraded"], endpoint.asked) == (0, FEW * CRITERIA)
        assert (await grade("--dry-run"))["grades"]["calls"] == 0
        again = (await grade("--repeats", "2", "--mode", "rubric"))["repeated"]
        assert again["calls"] > 0
        assert again["missing"] == 0
