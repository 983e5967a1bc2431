"""The page of protocols as a reader meets it: wide and narrow, light and dark, NA where a model could not run."""

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from medlive.cli.main import build
from medlive.evaluation.grading.questions import JudgeReplies
from medlive.evaluation.protocols.coverage import Coverage
from medlive.evaluation.protocols.model import Protocol, Results
from medlive.evaluation.protocols.pairwise import CRITERIA, Pairwise
from medlive.evaluation.protocols.portfolio import Portfolio, TaskResults, portfolio
from medlive.evaluation.protocols.safety import ActiveSafety, PassiveSafety
from medlive.evaluation.scoring.graded import load_graded
from medlive.llm.engine import EngineIdentity, Request
from medlive.report.render import read_portfolio
from tests.support.judged import read_findings, run_protocol
from tests.support.runs import made_cases, made_run
from tests.unit.evaluation.conftest import Judge

axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-core is not installed"
)

NAMES = [
    "model-0 <script>window.pwned=1</script>",
    "A-Model-With-A-Name-Of-Usual-Length-1-2025-12-11",
    "m2",
    "m3",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A portfolio's page by itself, and a report with it: made before the browser takes the thread's loop."""
    root = tmp_path_factory.mktemp("protocols")
    cases = made_cases(12, months=3)
    runs = [
        made_run(cases, root / f"run{k}", name, 0.7 - 0.15 * k)
        for k, name in enumerate(NAMES)
    ]
    material = [load_graded(run) for run in runs]
    # What a model says must differ from what the next one does, or there is one question for all pairs.
    differing = [
        replace(
            run,
            answers={
                cid: replace(a, response=f"{a.response} {k}")
                for cid, a in run.answers.items()
            },
        )
        for k, run in enumerate(material)
    ]
    rng = random.Random(1)

    def compared(_: Request) -> str:
        better = rng.choice(["first", "second", "equal"])
        return json.dumps(
            {"reasoning": "Why."} | dict.fromkeys((*CRITERIA, "better"), better)
        )

    pairs = Pairwise(draws=50)
    for name in ("judge-a", "judge-b"):
        judge = Judge(compared, model=name)
        done = asyncio.run(run_protocol(pairs, differing, root / "out", judge))
    found, _ = read_findings(pairs, root / "out", judge.identity)
    figures = {
        PassiveSafety: dict(zip(NAMES, (0.9, 0.8, None, 0.9), strict=True)),
        ActiveSafety: dict(zip(NAMES, (0.4, 0.7, 0.5, None), strict=True)),
    }
    nobody = JudgeReplies(EngineIdentity("", ""))
    tasks: list[tuple[Protocol, Results, Any]] = [
        (Coverage(draws=50), Coverage(draws=50).results(material, nobody), None),
        (pairs, pairs.results(differing, found), done),
        *((kind(), Results([], figure), None) for kind, figure in figures.items()),
    ]
    results = tuple(
        TaskResults.from_results(one.name, one, value, asked)
        for one, value, asked in tasks
    )
    whole = Portfolio(
        tasks=results,
        tables=portfolio({task.task: task.figures for task in results}),
    )
    (root / "all").mkdir()
    (root / "all" / "portfolio.json").write_text(whole.model_dump_json())
    words = [
        "eval",
        "report",
        *map(str, runs),
        "--out",
        str(root / "report"),
        "--draws",
        "50",
    ]
    words += ["--protocols", str(root / "all")]
    made = CliRunner().invoke(build(words), words)
    assert made.exit_code == 0, made.output
    assert read_portfolio(root / "all").model_dump_json() == whole.model_dump_json()
    return root / "report" / "index.html"


@pytest.mark.thorough
@pytest.mark.matrix
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_read_by_everyone(site: Path, browser: Any, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.goto(site.as_uri())
    page.click("nav >> text=Protocols")
    assert page.locator("h1").inner_text() == "Protocols: 4 models on 4 tasks"
    # Of four models' ranks on four tasks two are missing, and two of their means.
    ranks = page.locator("#ranks td")
    assert ranks.all_text_contents().count("NA") == 4
    shades = page.locator("#ranks td:not([class='n ']):not(:text('NA'))")
    assert shades.count() > 8
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "Judge: judge-b. Questions: " in page.locator("#pairwise").inner_text()
    page.evaluate(
        "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("window.pwned ?? null") is None
    assert wrong == []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = (
            axe.Axe()
            .run(page, options={"resultTypes": ["violations"]})
            .response["violations"]
        )
        assert [(one["id"], one["nodes"][0]["html"][:120]) for one in found] == [], (
            scheme
        )
    context.close()
