"""A run is graded without being held, and its verdicts are written as any row of a log is."""

import gc
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.digest import canonical_json
from medlive.errors import BadInput
from medlive.evaluation.asking.run import import_answers
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.grading.grade_line import grade_line
from medlive.evaluation.model import Answer, AnswerState, EvaluationCase, Grade, Mode, Origin
from medlive.evaluation.runs.folder import open_run
from medlive.evaluation.runs.reader import stored_run
from tests.unit.evaluation.conftest import AT, Judge, make_cases, verdict

TEXTS = st.text(st.characters(codec=None, categories=None), max_size=12)
NUMBERS = st.one_of(st.none(), st.integers(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False))
COUNTED = st.fixed_dictionaries(
    dict.fromkeys(["cached_tokens", "cost_usd", "input_tokens", "latency_ms", "output_tokens"], NUMBERS)
)
GRADES = st.builds(
    Grade, TEXTS, TEXTS, TEXTS, st.sampled_from([True, False, None]), *[TEXTS] * 7, st.sampled_from(list(Mode)),
    TEXTS, TEXTS, st.one_of(COUNTED, st.dictionaries(TEXTS, NUMBERS, max_size=2)), st.sampled_from(list(Origin)),
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(GRADES)
def test_a_verdicts_line_is_its_row_as_canonical_json(grade: Grade) -> None:
    assert grade_line(grade) == canonical_json(grade.row()).encode("utf-8", "backslashreplace") + b"\n"


def held() -> int:
    return sum(isinstance(one, EvaluationCase) for one in gc.get_objects())


def answer(case: EvaluationCase, text: str = "Drink water", state: AnswerState = AnswerState.OK) -> Answer:
    return Answer(case.case_id, state, text, "stop", "cand-1")


async def test_of_a_run_only_what_is_asked_about_is_held(run_dir: Path) -> None:
    cases = make_cases(60, 2)
    import_answers(run_dir, cases, [answer(case) for case in cases.cases], "cand-1", AT)
    before, seen = held(), []
    judge = Judge(lambda request: verdict(met=True) if len(judge.requests) % 40 else look())

    def look() -> str:
        seen.append(held() - before)
        return verdict(met=True)

    result = await grade_run(run_dir, judge, concurrency=4)
    assert (result.criteria, result.met) == (120, 120)
    assert len(seen) == 3
    assert max(seen) <= 8


def test_a_stored_run_is_the_run(run_dir: Path) -> None:
    cases = make_cases(6)
    known = [replace(cases.cases[0], narrative="lone \ud83d half\x00 \u2028 end"), *cases.cases[1:]]
    given_ = replace(cases, cases=tuple(known))
    answers = [answer(known[0], "first"), answer(known[1], "\ud83d 水"), answer(known[2])]
    import_answers(run_dir, given_, answers, "cand-1", AT)
    with (run_dir / "responses.jsonl").open("ab") as log:
        log.write(b"[1]\nnot json\n" + canonical_json({"case_id": "c001"}).encode() + b"\n")
        for late in (
            answer(known[0], "second"), answer(known[2], "", AnswerState.FAILED),
            replace(answer(known[3]), case_id="unknown"),
        ):  # fmt: skip
            log.write(canonical_json(late.row()).encode() + b"\n")
        log.write(b'{"case_id":"c004","state":"ok"')
    whole = open_run(run_dir)
    latest, notes = whole.answers()
    with stored_run(run_dir) as run:
        assert tuple(run.cases) == whole.cases
        assert run.cases[-2:] == whole.cases[-2:]
        assert dict(run.answers) == {cid: one for cid, one in latest.items() if one.gradable}
        assert set(run.answers) == {"c000", "c001"}
        assert run.answers["c000"].response == "second"
        assert run.notes == tuple(notes)


def test_a_stored_run_that_was_changed_is_refused(run_dir: Path) -> None:
    cases = make_cases(2)
    import_answers(run_dir, cases, [answer(cases.cases[0])], "cand-1", AT)
    with stored_run(run_dir) as run:
        (run_dir / "cases.jsonl").write_bytes(b"")
        with pytest.raises(BadInput, match="was cut"):
            run.cases[0]
    with pytest.raises(BadInput, match="was changed since"), stored_run(run_dir):
        pass
    (run_dir / "cases.jsonl").unlink()
    with pytest.raises(BadInput, match="holds no run"), stored_run(run_dir):
        pass
    (run_dir / "run.json").write_text(json.dumps({"format": "another"}))
    with pytest.raises(BadInput, match=r"run\.json is no run"), stored_run(run_dir):
        pass
