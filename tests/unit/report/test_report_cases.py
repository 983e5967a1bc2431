"""The pages of cases: each answer, verdict and reason, the list of them, and texts of any length."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from markupsafe import escape

from medlive.evaluation.harm import RunHarm
from medlive.evaluation.model import CaseSet, EvaluationCase
from medlive.evaluation.scoring.graded import (
    load_graded,
)
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.score import (
    score_runs,
)
from medlive.harm.model import Check, JudgedHarm, Severity
from medlive.report.cases import entries
from medlive.report.html import file_name
from medlive.report.model import analyse
from medlive.report.render import write_report
from tests.support.harm import made_harm, made_row
from tests.support.reports import table_of
from tests.support.runs import made_cases, made_run

pytestmark = pytest.mark.whole


def test_a_name_that_turns_its_line_does_not_turn_ours(tmp_path: Path) -> None:
    name = "m\u202eodel"
    cases = made_cases(
        2, months=2, change=lambda k, case: replace(case, narrative="a \u202eb\u202c c")
    )
    table = score_runs(
        [load_graded(made_run(cases, tmp_path / "run", name, 0.6))], draws=20
    )
    out = write_report(table, tmp_path / "out").parent
    assert "\u202e" not in (out / "index.html").read_text("utf-8")
    assert "m\ufffdodel" in (out / "index.html").read_text("utf-8")
    case = (out / "cases" / file_name("case-0001")).read_text("utf-8")
    assert '<p class="text">a \u202eb\u202c c</p>' in case, (
        "a text in a box of its own stays as it was"
    )


def test_the_list_links_every_case_to_each_answer_verdict_quote_and_reason(
    tmp_path: Path,
) -> None:
    table = table_of(tmp_path, models=2, n=24)
    out = write_report(table, tmp_path / "out").parent
    text = (out / "cases.html").read_text("utf-8")
    found = re.findall(r"<tr><td><a [^>]*>(case-\d+)</a></td>", text)
    assert found == [f"case-{k:04d}" for k in range(24)]
    seen = set()
    for model in table.models:
        for score in model.cases:
            html = (out / "cases" / file_name(score.case.case_id)).read_text("utf-8")
            at = [m.label for m in table.models].index(model.label)
            part = html.split(f'<article id="m{at}">')[1].split("</article>")[0]
            answer = model.run.answers[score.case.case_id]
            assert (answer.response if answer.gradable else answer.state.value) in part
            seen.add(score.state)
            assert (
                part.count("ungraded</span>") == score.ungraded
                if score.met
                else "not graded" in part
            )
            for grade in model.run.grades.get(score.case.case_id, {}).values():
                assert escape(grade.quote or grade.reason or "not met") in part
            assert all(
                part.count(escape(c.criterion)) == 1 for c in score.case.criteria
            )
    assert len(seen) == 3


def test_every_state_of_the_list_has_a_name_that_its_files_use(tmp_path: Path) -> None:
    run = load_graded(made_run(made_cases(4, months=2), tmp_path / "run", "a", 0.6))
    table = score_runs([run], metric=Metric.SAFE, draws=20)
    out = write_report(table, tmp_path / "out").parent
    html = (out / "cases.html").read_text("utf-8")
    found = re.search(r'id="data">(.*?)</script>', html, re.S)
    assert found is not None
    data = json.loads(found[1])
    marks = [mark for case in data["cases"] for mark in case["marks"]]
    states = {mark[0] for mark in marks if isinstance(mark, list)}
    assert "not read" in states
    assert all(f'<option value="{state}">' in html for state in states)


def test_a_text_of_megabytes_is_cut_and_the_page_says_so(tmp_path: Path) -> None:
    def long(place: int, case: EvaluationCase) -> EvaluationCase:
        return replace(case, narrative="<心" * 500_000)

    table = table_of(tmp_path, models=1, n=1, change=long)
    write_report(table, tmp_path / "out")
    (page,) = (tmp_path / "out" / "cases").iterdir()
    assert "cut here: 1,000,000 characters in all" in page.read_text("utf-8")
    assert page.stat().st_size < 1_000_000


@pytest.mark.thorough
def test_a_model_that_lacks_a_case_has_no_answer_to_it(tmp_path: Path) -> None:
    whole = made_cases(6, months=2)
    part = CaseSet(whole.cases[:4], whole.origin, whole.name, whole.digest, True)
    runs = [
        made_run(whole, tmp_path / "a", "a", 0.6),
        made_run(part, tmp_path / "b", "b", 0.5),
    ]
    table = score_runs([load_graded(run) for run in runs], draws=20)
    found = entries(analyse(table))
    assert [sum(s is not None for s in entry.scores) for entry in found] == [
        2,
        2,
        2,
        2,
        1,
        1,
    ]
    out = write_report(table, tmp_path / "out").parent
    last = (out / "cases" / file_name("case-0005")).read_text("utf-8")
    assert last.count("<article") == 1
    assert "scored for others only" in (out / "index.html").read_text("utf-8")


def test_the_page_says_what_each_judge_of_harm_said(tmp_path: Path) -> None:
    cases = made_cases(2, months=1)
    run = load_graded(made_run(cases, tmp_path / "run", "m", 0.6))
    first = cases.cases[0].case_id
    harms: list[JudgedHarm] = []
    for ruling in ("cleared", "unconfirmed"):
        check = Check(ruling=ruling, severity=None, reason=f"since {ruling}")
        harms.append(replace(made_harm(ruling, Severity.SEVERE), check=check))
    slight = replace(made_harm("slight", Severity.SLIGHT), check=None)
    harms = [made_harm("confirmed", Severity.SEVERE), *harms, slight]
    harm = RunHarm({first: made_row(first, harms)}, (), "sha256:1", "r", "c")
    table = score_runs([replace(run, harm=harm)], draws=20)
    out = write_report(table, tmp_path / "out").parent
    html = (out / "cases" / file_name(first)).read_text("utf-8")
    cells = re.findall(r"<tr><td>(?:<span[^>]*>)?([^<]+)", html)
    said = ["✗ confirmed", "cleared", "unconfirmed", "not counted"]
    assert [cell for cell in cells if cell in said] == said
    assert "since cleared" in html
