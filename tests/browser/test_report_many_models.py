"""The report of more models than one part of a figure or table holds, on paper, on a desk and on a telephone."""

from pathlib import Path
from typing import Any

import pytest

from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.score import score_runs
from medlive.report.render import write_report
from tests.support.runs import made_cases, made_run


@pytest.fixture(scope="module")
def wide_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of more models than one part of a figure or table holds, with names as long as real ones."""
    root = tmp_path_factory.mktemp("wide")
    cases = made_cases(12, months=4)
    names = [f"A-Model-With-A-Name-Of-Usual-Length-{k}-2025-12-11" for k in range(13)]
    runs = [
        made_run(cases, root / f"run{k}", name, 0.8 - 0.05 * k)
        for k, name in enumerate(names)
    ]
    table = score_runs([load_graded(run) for run in runs], draws=20)
    return write_report(table, root / "out")


@pytest.mark.thorough
def test_many_models_fit_a_sheet_of_paper_with_all_that_is_shut_on_a_screen(
    browser: Any, wide_site: Path
) -> None:
    # A4 within margins of 12 mm.
    context = browser.new_context(viewport={"width": 703, "height": 1031})
    page = context.new_page()
    page.goto(wide_site.as_uri())
    sizes = """() => Array.from(document.querySelectorAll("table, figure")).map((e) => {
        const box = e.getBoundingClientRect();
        return [e.tagName, e.getAttribute("aria-label") || e.id, box.right, box.height, e.checkVisibility()]; })"""
    assert {seen for *_, seen in page.evaluate(sizes)} == {True, False}, (
        "further models are shut on a screen"
    )
    page.emulate_media(media="print")
    found = page.evaluate(sizes)
    for kind, name, right, height, seen in found:
        assert right <= 704, name
        assert seen, name
        assert kind == "TABLE" or height < 1031, name
    assert "Overall score" in {name for _, name, *_ in found}
    context.close()


NUMBERS = r"""() => { const found = [], main = document.querySelector("main");
    const walk = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
    for (let node; (node = walk.nextNode());) for (const number of node.data.matchAll(/\d+(-\d+)+/g)) {
        const range = document.createRange();
        range.setStart(node, number.index);
        range.setEnd(node, number.index + number[0].length);
        const lines = Array.from(range.getClientRects());
        if (node.parentElement.checkVisibility()) found.push([number[0], new Set(lines.map((r) => r.top)).size]);
    }
    return found; }"""


@pytest.mark.thorough
@pytest.mark.parametrize("width", [1400, 390])
def test_no_name_is_broken_inside_a_number(
    browser: Any, wide_site: Path, width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto(wide_site.as_uri())
    found = page.evaluate(NUMBERS)
    assert sum(number.endswith("-2025-12-11") for number, _ in found) > 20
    assert [number for number, lines in found if lines > 1] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
