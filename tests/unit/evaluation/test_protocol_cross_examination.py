"""Cross-examination of advice and answer: hand-computed scores, stages, and what is missing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from medlive.evaluation.asking.run import run_model
from medlive.evaluation.model import Answer, AnswerState
from medlive.evaluation.protocols.cross_examination import CrossExamine
from medlive.evaluation.runs.folder import ModelUse
from medlive.evaluation.scoring.graded import GradedRun, load_graded
from medlive.llm.engine import Request
from tests.support.judged import (
    plan_protocol,
    read_findings,
    run_protocol,
)
from tests.support.runs import run_of
from tests.unit.evaluation.conftest import AT, Judge, Model, make_cases, reply

SAYS = {
    # Of the advice's four questions the answer says yes, yes, no and nothing; of its own two the advice knows one.
    ("advice", "a1"): ("yes", "yes"),
    ("advice", "a2"): ("yes", "yes"),
    ("advice", "a3"): ("yes", "no"),
    ("advice", "a4"): ("unknown", "unknown"),
    ("answer", "b1"): ("yes", "yes"),
    ("answer", "b2"): ("unknown", "yes"),
}


def judge(request: Request) -> str:
    text = str(request.inputs["text"])
    place = 0 if text.startswith("Rest.") else 1
    if request.task == "controller.questions":
        made = (
            ["Is a1 so?", "Is a2 so?", "Is a3 so?", "Is a4 so?"]
            if place == 0
            else ["Is b1 so?", "Is b2 so?"]
        )
        return json.dumps({"questions": made})
    known = {name: pair for (_, name), pair in SAYS.items()}
    answers = [
        {"id": q["id"], "answer": known[q["question"].split()[1]][place]}
        for q in request.inputs["questions"]
    ]
    return json.dumps({"answers": answers})


async def subject(folder: Path, cases: int = 6) -> GradedRun:
    said = Model(lambda _: reply("Take water and rest now and then.", model="m"))
    await run_model(
        make_cases(cases), said, folder / "run", use=ModelUse("m"), created_at=AT
    )
    return load_graded(folder / "run")


async def test_the_scores_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    one, engine, protocol = (
        await subject(tmp_path),
        Judge(judge),
        CrossExamine(draws=50),
    )
    # The four texts' questions first; their answers only then.
    assert plan_protocol(protocol, [one], tmp_path, engine.identity).calls < 24
    done = await run_protocol(protocol, [one], tmp_path, engine)
    assert (done.questions, done.settled) == (
        len(engine.requests),
        len(engine.requests),
    )
    case, answer = next(one.answered())
    found = read_findings(protocol, tmp_path, engine.identity)[0]
    scores = protocol.examined(case, answer, found)
    assert scores is not None
    assert (scores.coverage, scores.conformity, scores.conformity_strict) == (
        75,
        75,
        50,
    )
    assert scores.consistency == 50
    assert scores.stability == pytest.approx(100 * 5 / 6)
    assert scores.conciseness == pytest.approx(100 * (1 - 7 / 1))
    table = protocol.results([one], found).tables[0]
    assert table.rows[0][:3] == ["m", 6, pytest.approx(200 / 3)]


async def test_a_silent_answer_leaves_out_and_contradicts_nothing(
    tmp_path: Path,
) -> None:
    first, second = make_cases(2).cases
    cases = (first, replace(second, case_id="bad"))
    texts = {first.case_id: "Take rest.", "bad": "Nothing of it."}
    answers = {}
    for case_id, text in texts.items():
        answers[case_id] = Answer(case_id, AnswerState.OK, text, "stop", "m")
    subjects = [run_of("notes", cases, answers)]
    subjects.append(run_of("another", cases[:1], answers))

    def silent(request: Request) -> str:
        said = json.loads(judge(request))
        if "Nothing" in request.inputs["text"] and "answers" in said:
            said["answers"] = [
                {"id": a["id"], "answer": "unknown"} for a in said["answers"]
            ]
        return json.dumps(said)

    protocol, engine = CrossExamine(draws=10), Judge(silent)
    await run_protocol(protocol, subjects, tmp_path, engine)
    (means,) = protocol.results(
        subjects, read_findings(protocol, tmp_path, engine.identity)[0]
    ).tables
    # Silence is not contradiction: coverage 0, conformity 100, consistency by half.
    assert [row[:3] for row in means.rows] == [
        ["notes", 2, pytest.approx((50 + 200 / 3) / 2)],
        ["another", 1, pytest.approx(200 / 3)],
    ]


async def test_answers_that_leave_a_question_out_are_no_scores(tmp_path: Path) -> None:
    one = await subject(tmp_path, cases=2)
    lazy = Judge(
        lambda r: judge(r) if r.task == "controller.questions" else '{"answers": []}'
    )
    protocol = CrossExamine()
    done = await run_protocol(protocol, [one], tmp_path, lazy, max_retries=0)
    assert done.settled < done.questions
    results = protocol.results(
        [one], read_findings(protocol, tmp_path, lazy.identity)[0]
    )
    assert results.figures == {"m": None}
    assert results.tables[0].rows[0][-2] == 2
