"""Numbers and queries: scored without a judge; queries of answers can read one file and nothing else."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from medlive.errors import BadInput, UsageError
from medlive.evaluation.grading.questions import JudgeReplies
from medlive.evaluation.model import Answer, AnswerState
from medlive.evaluation.protocols.coverage import Coverage
from medlive.evaluation.protocols.exact import (
    Number,
    Query,
    close,
    final_number,
    query_of,
    run_query,
)
from medlive.evaluation.protocols.model import (
    format_cell,
)
from medlive.evaluation.protocols.portfolio import Portfolio, portfolio, ranks
from medlive.evaluation.protocols.registry import fitting, make_protocol
from medlive.evaluation.scoring.graded import GradedRun
from medlive.llm.engine import EngineIdentity
from medlive.report.render import portfolio_page, read_portfolio
from tests.support.runs import run_of
from tests.unit.evaluation.conftest import make_cases

NOBODY = JudgeReplies(EngineIdentity("", ""))


def subject(pairs: list[tuple[str, str]]) -> GradedRun:
    """References and answers as a model's."""
    cases = [
        replace(c, advice=pair[0])
        for c, pair in zip(make_cases(len(pairs)).cases, pairs, strict=True)
    ]
    answers = {
        c.case_id: Answer(c.case_id, AnswerState.OK, p[1], "stop", "m")
        for c, p in zip(cases, pairs, strict=True)
    }
    return run_of("m", tuple(cases), answers)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("First 3, then 4.\nAnswer: 12.5 mg", 12.5),
        ("约2周后剂量为500毫克", 500),
        ("Of 2 steps. The answer is 5. It lies between 3 and 7.", 5),
        ("My first answer was 4 mg; the answer is 6 mg, from 2 doses.", 6),
        ("答案是 7\n（共 3 步）", 7),
        ("none", None),
    ],
)
def test_the_number_an_answer_ends_on(text: str, value: float | None) -> None:
    found = final_number(text)
    assert (found.value if found else None) == value


@pytest.mark.parametrize(
    ("given", "reference", "right"),
    [
        ("104.9", "100", True),
        ("105.1", "100", False),
        ("0.5 g", "500 mg", True),
        ("5 g", "500 mg", False),
        ("500", "500 mg", True),
        ("500 ml", "500 mg", False),
        ("-", "500 mg", False),
    ],
)
def test_five_percent_with_units(given: str, reference: str, right: bool) -> None:
    table = Number().results([subject([(reference, given)])], NOBODY).tables[0]
    assert table.rows[0][2] == float(right)
    number, wanted = final_number("5"), final_number("5.01")
    assert number is not None
    assert wanted is not None
    assert not close(number, wanted, 0.0)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "ehr.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE patients (id INTEGER, age INTEGER)")
        connection.executemany(
            "INSERT INTO patients VALUES (?, ?)", [(1, 40), (2, 50), (3, 50)]
        )
    connection.close()
    return path


def test_reliability_scores_by_hand(database: Path) -> None:
    wanted = "SELECT id FROM patients WHERE age = 50"
    model = subject(
        [
            (
                wanted,
                "```sql\nSELECT id FROM patients WHERE age > 45 ORDER BY id DESC;\n```",
            ),  # right, in any order
            (wanted, "SELECT id FROM patients"),  # wrong
            (wanted, "SELECT nothing FROM nowhere"),  # failed
            (wanted, "null"),  # abstained without need
            ("null", "Cannot be answered from these tables."),  # abstained rightly
            ("null", "SELECT 1"),  # answered what has no answer
            (
                wanted,
                "There are two patients of that age.",
            ),  # neither a query nor an abstention
            ("null", "I have looked at the tables."),
        ]
    )
    soft = Query(database=database).results([model], NOBODY)
    assert soft.figures["m"] == pytest.approx(2 / 8)
    assert soft.tables[0].rows[0][3:] == [1, 4, 1, 2, 0]


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM patients",
        "ATTACH DATABASE '/etc/passwd' AS x",
        "PRAGMA writable_schema = 1",
        "SELECT load_extension('x')",
        "CREATE TABLE x (y)",
        "SELECT 1; DROP TABLE patients",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000) SELECT i FROM n",
    ],
)
def test_a_query_can_only_read_and_ends(database: Path, query: str) -> None:
    before = database.read_bytes()
    with pytest.raises((sqlite3.Error, sqlite3.Warning)):
        run_query(database, query, seconds=0.3)
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == ["ehr.sqlite"]


def test_a_reference_that_cannot_be_run_is_named(database: Path) -> None:
    with pytest.raises(BadInput, match="c000"):
        Query(database=database).results(
            [subject([("SELECT x FROM y", "SELECT 1")])], NOBODY
        )
    with pytest.raises(BadInput):
        Query(database=database / "x").results([], NOBODY)
    with pytest.raises(BadInput, match="neither"):
        Query(database=database).results([subject([("two", "SELECT 1")])], NOBODY)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("I would run select 1", "select 1"),
        ("with x as (select 1) select y;", "with x as (select 1) select y"),
        ("```sql\nSELECT 1,\nNULL\n```", "SELECT 1,\nNULL"),
        ("It cannot be answered: select is vague.", ""),
        ("Null.", ""),
        ("```\nnull\n```", ""),
        ("This question cannot be answered with the given tables.", ""),
        ("根据这些表无法回答这个问题", ""),
        ("None of them smokes; I looked with care.", None),
        ("", None),
    ],
)
def test_a_query_an_abstention_or_neither(text: str, query: str | None) -> None:
    assert query_of(text) == query


def test_options_are_checked_and_named() -> None:
    assert make_protocol("number", {"tolerance": "0.1"}) == Number(tolerance=0.1)
    assert make_protocol("coverage", {"people": ["a"]}) == Coverage(people=("a",))
    for name, options, words in (
        ("number", {"tolerance": "2"}, "tolerance"),
        ("query", {}, "database"),
        ("number", {"x": "1"}, "x"),
        ("no", {}, "no protocol"),
    ):
        with pytest.raises(UsageError, match=words):
            make_protocol(name, options)


def test_a_portfolio_has_na_and_never_a_last_place_for_it() -> None:
    assert [format_cell(cell) for cell in (None, -1e-9, -0.25, 75.04)] == [
        "NA",
        "0.000",
        "-0.250",
        "75.0",
    ]
    figures = {
        "coverage": {"a": 0.9, "b": 0.5, "c": 0.7, "d": 0.5},
        "query": {"a": 0.4, "b": 0.5, "c": None, "d": 0.1},
        "passive-safety": {"a": 1.0, "b": 0.9},
        "active-safety": {"a": 0.3, "b": 0.6},
    }
    assert ranks(figures["coverage"], "abcd") == [1, 3.5, 2, 3.5]
    tables = {table.title: table for table in portfolio(figures)}
    by_model = {row[0]: row[1:] for row in tables["Ranks"].rows}
    assert by_model["c"] == [2, None, None, None, None]
    assert by_model["a"] == [1, 2, 1, 2, 1.5]
    alike = tables["How alike tasks rank models (Spearman)"].rows
    assert alike[0][1] == pytest.approx(1)
    assert alike[2][1] is None  # two models are too few


def test_a_portfolio_without_a_figure_is_read_and_shown(tmp_path: Path) -> None:
    # One model alone, nowhere run: no rank, no matrix, no gap.
    whole = Portfolio(tasks=(), tables=portfolio({"number": {"a": None}}))
    assert "NA</td>" in portfolio_page(whole)
    (tmp_path / "portfolio.json").write_text(whole.model_dump_json())
    found = read_portfolio(tmp_path)
    assert [list(row) for row in found.tables[0].rows] == [["a", None]]
    assert read_portfolio(tmp_path / "portfolio.json") == found
    (tmp_path / "other.json").write_text(
        '{"format": "medlive-portfolio", "tasks": [], "tables": []}'
    )
    with pytest.raises(BadInput, match="tables"):
        read_portfolio(tmp_path / "other.json")


def test_two_runs_of_one_model_on_the_same_cases_are_not_one() -> None:
    one = subject([("500 mg", "500 mg")])
    with pytest.raises(UsageError):
        list(fitting([one, one]))
    assert {name for name, _, _ in fitting([one])} == {
        "checklist",
        "cross-examination",
        "number",
    }
    # The same ids with other questions, as cases with a planted error have, are another set.
    cases = tuple(replace(c, query="Which sentence is wrong?") for c in one.cases)
    other = run_of("m", cases, one.answers)
    assert {name for name, _, _ in fitting([one, other])} >= {
        "checklist:1",
        "checklist:2",
    }
    cases = tuple(replace(c, advice="Take 500 mg daily.") for c in one.cases)
    wordy = run_of("m", cases, one.answers)
    assert "number" not in {name for name, _, _ in fitting([wordy])}
