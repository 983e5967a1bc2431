"""Checklist scoring: the paper's mapping and figures, three rounds, conversations of own answers."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from medlive.errors import BadInput
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.cases.selection import Selection, select
from medlive.evaluation.protocols.checklist import (
    Checklist,
    Judged,
    compare_with_people,
    mapped,
    read_people,
)
from medlive.evaluation.protocols.registry import make_protocol
from medlive.evaluation.runs.folder import ModelUse
from medlive.evaluation.scoring.graded import load_graded
from medlive.llm.engine import Reply, Request
from tests.support.judged import read_findings, run_protocol
from tests.unit.evaluation.conftest import AT, Judge, make_cases, reply

CHECKLIST = [
    {"criterion": "内容要求：解释机制", "points": 1, "axis": "core", "id": "core_1"},
    {
        "criterion": "强调重要性。",
        "points": 1,
        "axis": "secondary",
        "id": "secondary_1",
    },
]


def question(theme: str, group: str, turn: int, query: str) -> dict[str, Any]:
    """A question of round `turn`, after the one before it."""
    return {
        "case_id": f"{group}-{turn}",
        "query": query,
        "advice": "标准答案",
        "theme": theme,
        "cluster": group,
        "after": f"{group}-{turn - 1}" if turn > 1 else None,
        "rubric": CHECKLIST,
    }


def dataset(path: Path) -> Path:
    rows = [
        question("Medical Knowledge", "mk-7", 1, "原因？"),
        question("Medical Knowledge", "mk-7", 2, "强弱？"),
        question("Medical Knowledge", "mk-7", 3, "注意什么？"),
        question("Medical Reasoning", "mr-7", 1, "诊断？"),
        question("Medical Language Understanding", "mlu-1", 1, "抽取。"),
    ]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), "utf-8")
    return path


class Speaker:
    """A model that answers with the number of turns it was shown, and fails on request."""

    def __init__(self, fails: str = "never") -> None:
        self.asked: list[list[Mapping[str, str]]] = []
        self._fails = fails

    async def __call__(self, messages: Sequence[Mapping[str, str]]) -> Reply:
        self.asked.append(list(messages))
        text = "" if self._fails in messages[-1]["content"] else f"回答{len(messages)}"
        return reply(text, model="m")


async def test_a_model_is_fed_its_own_answers_in_order(tmp_path: Path) -> None:
    cases = load_cases(dataset(tmp_path / "dataset.jsonl"))
    speaker = Speaker()
    await run_model(
        cases,
        speaker,
        tmp_path / "run",
        use=ModelUse("m"),
        created_at=AT,
        template="as-is",
    )
    longest = max(speaker.asked, key=len)
    said = ["原因？", "回答1", "强弱？", "回答3", "注意什么？"]
    assert [m["content"] for m in longest] == said
    assert [m["role"] for m in longest] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    run = load_graded(tmp_path / "run")
    shown = {case.case_id: case.question for case, _ in run.answered()}
    assert "assistant: 回答3" in shown["mk-7-3"]


def test_a_question_goes_on_from_an_earlier_one_alone(tmp_path: Path) -> None:
    rows = [question("Medical Knowledge", "g", turn, "？") for turn in (2, 1, 3)]
    path = tmp_path / "dataset.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cases = load_cases(path)
    assert [case.case_id for case in cases.cases] == ["g-1"]
    assert [note.partition("line ")[2] for note in cases.notes] == [
        "1: after: no case 'g-1' before it; left out",
        "3: after: no case 'g-2' before it; left out",
    ]


def test_a_part_holds_no_question_without_the_one_before_it(tmp_path: Path) -> None:
    cases = load_cases(dataset(tmp_path / "dataset.jsonl"))
    for limit in range(1, 6):
        ids = [c.case_id for c in select(cases, Selection(limit=limit)).cases]
        turns = [case_id for case_id in ids if case_id.startswith("mk-7")]
        assert turns == ["mk-7-1", "mk-7-2", "mk-7-3"][: len(turns)]
        assert len(ids) == limit


async def test_what_follows_a_missing_answer_waits_for_it(tmp_path: Path) -> None:
    cases = load_cases(dataset(tmp_path / "dataset.jsonl"))
    how: dict[str, Any] = {"use": ModelUse("m"), "created_at": AT, "template": "as-is"}
    first = await run_model(cases, Speaker(fails="强弱"), tmp_path / "run", **how)
    assert first.missing == 1
    again = Speaker()
    second = await run_model(cases, again, tmp_path / "run", **how)
    assert (second.missing, [len(m) for m in again.asked]) == (0, [3, 5])


async def test_three_rounds_make_a_mean_and_a_missing_one_no_score(
    tmp_path: Path,
) -> None:
    cases = load_cases(dataset(tmp_path / "dataset.jsonl"))
    await run_model(
        cases,
        Speaker(),
        tmp_path / "run",
        use=ModelUse("m"),
        created_at=AT,
        template="as-is",
    )
    material = [load_graded(tmp_path / "run")]
    given = {
        "原因？": [5, 4, 3],
        "强弱？": [5, 3, 3],
        "注意什么？": [4, 4, 4],
        "诊断？": [5, 5, 5],
        "抽取。": [1, 1, 0],
    }
    seen: dict[str, int] = {}

    def judge(request: Request) -> str:
        asked = str(request.inputs["question"]).rpartition("user: ")[2]
        place = seen[asked] = seen.get(asked, -1) + 1
        return json.dumps({"reasoning": "因此。", "score": given[asked][place % 3]})

    (people := tmp_path / "people.jsonl").write_text(
        '{"case_id": "mk-7-1", "rater": "a", "usable": false}'
    )
    protocol = Checklist(draws=50, people=people)
    engine = Judge(judge)
    done = await run_protocol(
        protocol, material, tmp_path, engine, max_retries=0, concurrency=1
    )
    assert (done.questions, done.settled) == (15, 14)
    results = protocol.results(
        material, read_findings(protocol, tmp_path, engine.identity)[0]
    )
    # Means 4, 3.67, 4 and 5; the fifth has a round without a score.
    row = dict(zip(results.tables[0].columns, results.tables[0].rows[0], strict=True))
    assert (row["answers"], row["usable"], row["ungraded"]) == (4, 0.75, 1)
    by = dict(zip(results.tables[1].columns, results.tables[1].rows[0], strict=True))
    assert by["Medical Knowledge"] == pytest.approx(2 / 3)
    assert (
        by["Medical Reasoning"],
        by["Medical Language Understanding"],
        by["plain mean"],
    ) == (1, None, None)
    assert results.notes == []
    assert results.tables[3].rows == [[0.0, "mk-7-1", 1, 0.0, 1.0]]


def by_the_paper(b: int, c: int, d: int, e: int) -> int:
    """Appendix D, read line by line."""
    if b * c * d * e == 0:
        return 0
    if b == 1 or c == 1 or d == 1 or e == 1:
        return 1
    if b + c + d + e == 20:
        return 7
    if b >= 5 and c >= 5 and d >= 4 and e >= 4:
        return 6
    if (b >= 5 and c >= 5 and d >= 3 and e >= 3) or (
        b >= 4 and c >= 4 and d >= 4 and e >= 4
    ):
        return 5
    if b >= 4 and c >= 4 and d >= 3 and e >= 3:
        return 4
    if b >= 3 and c >= 3 and d >= 2 and e >= 2:
        return 3
    return 2


def test_the_mapping_of_four_dimensions_is_the_papers() -> None:
    for dimensions in product(range(6), repeat=4):
        assert mapped(*dimensions) == by_the_paper(*dimensions)


def test_the_papers_overall_figures_are_plain_means_of_its_categories() -> None:
    # Table 2 (OP, then MK, MLU, MR, MSE, MTG); its README says means by count, which give 66.25 for the first.
    table = {
        "Deepseek-R1": (64.23, 84.16, 69.64, 63.40, 59.63, 44.33),
        "Qwen-72B": (51.53, 55.56, 47.42, 50.83, 60.55, 43.30),
        "Qwen-32B": (48.87, 52.25, 46.48, 42.24, 61.11, 42.27),
        "DISC-MedLLM": (11.34, 7.09, 10.02, 7.52, 23.24, 2.06),
    }
    counts = (141, 213, 102, 109, 102)
    for overall, *categories in table.values():
        plain = sum(categories) / 5
        weighted = sum(c * n for c, n in zip(categories, counts, strict=True)) / 667
        assert abs(plain - overall) < abs(weighted - overall)
        assert plain == pytest.approx(overall, abs=1.4)


PEOPLE = """case_id,rater,instructions,correctness,effectiveness,readability,safety,usable
c000,ann,5,5,4,4,5,
c000,bo,4,4,4,4,1,
c001,ann,4,4,3,3,5,
c001,bo,5,5,5,5,0,
c002,ann,,,,,,yes
c002,bo,,,,,,no
c003,ann,5,5,5,5,5,
elsewhere,ann,5,5,5,5,5,
"""


def test_people_and_judge_are_compared_on_what_both_labelled(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text(PEOPLE)
    cases = make_cases(5).cases
    given = {0: 5.0, 1: 4.0, 2: 5.0, 3: 3.0, 4: 5.0}
    judged = [Judged("m", cases[n], score >= 4) for n, score in given.items()]
    (agreement, refine), notes = compare_with_people(file, judged, draws=50, seed=0)
    # By people c000 is usable (6 and 5), c001 is not (4; 7 with no safety), c002 is a draw, c003 is usable.
    row = dict(zip(agreement.columns, agreement.rows[0], strict=True))
    assert [
        row[name]
        for name in ("answers", "both usable", "people only", "judge only", "neither")
    ] == [
        3,
        1,
        1,
        1,
        0,
    ]
    assert row["equal"] == pytest.approx(1 / 3)
    assert [list(one) for one in refine.rows] == [
        [0.0, "c001", 1, 0.0, 1.0],
        [0.0, "c003", 1, 1.0, 0.0],
    ]
    assert notes == [
        "people.csv: 1 answers are not among those that the judge scored; left out",
        "people.csv: on 1 answers as many people say usable as not; left out",
    ]
    header, *rows = PEOPLE.splitlines()
    named = [
        header + ",model",
        *(f"{row},{'m' if n else ''}" for n, row in enumerate(rows)),
    ]
    file.write_text("\n".join(named))
    (mixed, _), _ = compare_with_people(file, judged, draws=50, seed=0)
    assert mixed.rows == agreement.rows
    two = [*judged, Judged("n", cases[0], True)]
    with pytest.raises(BadInput, match="one of m, n"):
        compare_with_people(file, two, draws=50, seed=0)
    with pytest.raises(BadInput):
        compare_with_people(file, [], draws=50, seed=0)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("case_id,rater,usable\n", "has no ratings"),
        ("case_id,usable\nc,yes\n", "line 1: no column rater"),
        (
            "case_id,rater,usable\nc,a,maybe\n",
            "line 2: usable must be true or false, found 'maybe'",
        ),
        (
            "case_id,rater,instructions\nc,a,6\n",
            "line 2: instructions must be a whole number from 0 to 5",
        ),
        ("case_id,rater,usable\n,a,yes\n", "line 2: case_id and rater are required"),
        (
            "case_id,rater,usable\nc,a,yes\nc,a,no\n",
            "line 3: 'a' rated this answer otherwise before",
        ),
        (
            '{"case_id":"c","rater":"a","usable":true}\n{"case_id"\n',
            "line 2: not valid JSON",
        ),
    ],
)
def test_a_bad_line_is_named_before_anything_is_asked(
    tmp_path: Path, text: str, fault: str
) -> None:
    file = tmp_path / "people"
    file.write_text(text)
    with pytest.raises(BadInput, match=fault):
        read_people(file)
    with pytest.raises(BadInput):
        make_protocol("checklist", {"people": str(file)})
