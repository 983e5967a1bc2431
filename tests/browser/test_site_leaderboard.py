"""The site's leaderboard in a real browser: its figures are those of `eval score`, whatever the window."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.score import score_runs
from medlive.llm.registry import Registry
from medlive.site.live import write_site
from medlive.site.model import Content
from medlive.site.pages import generator_start, site_files
from medlive.statistics.intervals import Floats, sign_p, too_few
from tests.support.harm import with_harm
from tests.support.leaderboard import (
    expected,
    interval,
    printed,
    settle,
    shown,
    watched_page,
    window_of,
)
from tests.support.site import files_of, made_board, made_graded, static_server

WINDOWS = [
    ("2025-01-05", "2025-03-09"),
    (None, None),
    ("2025-02-01", "2026-02-01"),
    ("2024-12-01", "2026-12-01"),
    ("2025-03-15", "2025-04-20"),
    ("2025-06-10", "2025-12-24"),
    ("2025-08-01", "2026-06-30"),
    ("2026-01-01", "2026-03-31"),
    (None, "2025-07-01"),
    ("2026-02-02", None),
]


@dataclass(frozen=True, slots=True)
class Served:
    """A served site and its runs."""

    url: str
    runs: list[GradedRun]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("site")
    runs = made_graded(root / "runs")
    write_site(files_of(made_board(runs)), root / "out")
    with static_server(root / "out") as url:
        yield Served(url, runs)


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """One page for all tests: a new one costs more than what most of them look at."""
    with watched_page(browser) as opened:
        yield opened


@pytest.mark.parametrize(
    ("since", "until"),
    [
        pytest.param(*ends, marks=[pytest.mark.thorough] if place > 1 else [])
        for place, ends in enumerate(WINDOWS)
    ],
)
def test_a_window_has_the_figures_of_eval_score(
    site: Served, page: Any, since: str | None, until: str | None
) -> None:
    query = urlencode({k: v for k, v in (("since", since), ("until", until)) if v})
    page.goto(f"{site.url}/leaderboard.html?{query}")
    assert shown(page) == expected(site.runs, window=window_of(since, until))


@pytest.mark.matrix
@pytest.mark.parametrize("metric", [m for m in Metric if m is not Metric.SAFE])
def test_a_metric_has_the_figures_of_eval_score(
    site: Served, page: Any, metric: Metric
) -> None:
    page.goto(f"{site.url}/leaderboard.html?until=2025-11-11")
    settle(page)
    page.get_by_label("Metric").select_option(metric.value)
    window = window_of(None, "2025-11-11")
    assert shown(page) == expected(site.runs, metric=metric, window=window)
    other = Metric.COMPLETE if metric is Metric.PAPER else Metric.PAPER
    assert page.locator("#beside").text_content() == f"{other.value} %"
    beside = expected(site.runs, metric=other, window=window)
    last = "rows => Object.fromEntries(rows.map(r => [r.cells[1].textContent, r.cells[10].textContent]))"
    found = page.locator("#ranking tbody tr").evaluate_all(last)
    assert found == {model: cells[0] for model, cells in beside.items()}


@pytest.mark.thorough
def test_runs_that_were_read_for_harm_are_ranked_by_safe(
    page: Any, tmp_path: Path
) -> None:
    runs = []
    for place, run in enumerate(made_graded(tmp_path / "runs", models=3)):
        runs.append(with_harm(run, seed=place))
    write_site(files_of(made_board(runs)), tmp_path / "out")
    window = window_of(None, "2025-11-11")
    with static_server(tmp_path / "out") as url:
        page.goto(f"{url}/leaderboard.html?until=2025-11-11")
        assert shown(page) == expected(runs, metric=Metric.SAFE, window=window)
        assert page.locator("#beside").text_content() == "complete %"
        rates = "rows => Object.fromEntries(rows.map(r => [r.cells[1].textContent, r.cells[11].textContent]))"
        found = page.locator("#ranking tbody tr").evaluate_all(rates)
    for model in score_runs(runs, window=window).models:
        severe = model.harm.severe
        bounds = "" if severe.low is None else f" ({interval(severe)})"
        assert found[model.label] == f"{printed(severe.value)}{bounds}"


def test_signs_and_reasons_are_those_of_the_statistics(site: Served, page: Any) -> None:
    """Of few differences, all signs are tried; of many, the same random ones are drawn."""
    rng = np.random.default_rng(5)
    columns: list[Floats] = []
    for n in (0, 1, 9, 12, 30, 31, 64, 150):
        columns.append(rng.choice([-1.0, -0.5, 0.0, 0.25, 1.0], n))
        columns.append(rng.normal(0.02, 0.2, n))
        columns.append(rng.normal(0.0, 1.0, n) ** 5)
        columns.append(np.zeros(n))
        columns.append(np.full(n, 1.25 / max(n, 1)))
    page.goto(f"{site.url}/leaderboard.html")
    seed = 3
    given = [[column.tolist() for column in columns], generator_start(seed)]
    found = page.evaluate(
        """async ([columns, start]) => {
          const { signP, whyNone } = await import("./assets/intervals.js");
          return columns.map((own) => [signP(own, start), whyNone(own.map(Math.abs), own.length)]);
        }""",
        given,
    )
    for column, (p, why) in zip(columns, found, strict=True):
        assert p == pytest.approx(sign_p(column, seed), abs=1e-12)
        sums = np.abs(column)[:, None]
        assert why == too_few(sums, np.array([len(column)]))[0]


@pytest.mark.thorough
def test_without_its_verdicts_the_table_stays_as_it_was(
    site: Served, page: Any
) -> None:
    page.route("**/*.bin", lambda route: route.fulfill(status=404, body="x" * 10_000))
    page.goto(f"{site.url}/leaderboard.html")
    page.get_by_text("The figures cannot be recomputed here").wait_for()
    for model in score_runs(site.runs).models:
        row = page.locator(f"tr[data-model={model.label}]")
        figure = row.locator("[data-figure=mean]")
        assert figure.text_content() == printed(model.overall.value)
    page.unroute("**/*.bin")


@pytest.mark.thorough
def test_a_filter_has_the_figures_of_the_slice(site: Served, page: Any) -> None:
    page.goto(f"{site.url}/leaderboard.html?language=zh")
    table = score_runs(site.runs)
    for label, cells in shown(page).items():
        (model,) = [m for m in table.models if m.label == label]
        part = model.slice("language", "zh")
        assert cells[:3] == [printed(part.value), interval(part), str(part.n)]


@pytest.mark.thorough
def test_the_window_moves_by_keyboard_and_mouse_and_the_address_keeps_it(
    site: Served, page: Any
) -> None:
    page.goto(f"{site.url}/leaderboard.html")
    settle(page)
    since = page.locator("input[name=since]")
    since.focus()
    for _ in range(3):
        since.press("PageUp")
    after_keys = page.locator("#since-day").inner_text()
    assert f"since={after_keys}" in page.url
    assert shown(page) == expected(site.runs, window=window_of(after_keys, None))
    box = page.locator("input[name=until]").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] - 8, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, middle, steps=5)
    page.mouse.up()
    day = page.locator("#until-day").inner_text()
    assert f"until={day}" in page.url
    wanted = expected(site.runs, window=window_of(after_keys, day))
    assert shown(page) == wanted
    page.reload()
    assert shown(page) == wanted


@pytest.mark.thorough
def test_another_board_has_its_own_caption_cases_and_models(
    tmp_path: Path, page: Any
) -> None:
    boards = [made_board(made_graded(tmp_path / "four", cases=60))]
    alone = made_board(made_graded(tmp_path / "one", models=1, cases=20))
    boards.append(replace(alone, slug="board-2", title="another"))
    write_site(site_files(Content(boards=boards)), tmp_path / "out")
    with static_server(tmp_path / "out") as url:
        page.goto(f"{url}/leaderboard.html")
        settle(page)
        page.select_option("[name=board]", index=1)
        page.locator("#ranking tbody tr").nth(1).wait_for(state="detached")
        settle(page)
        page.select_option("[name=metric]", "paper")
        settle(page)
        caption = page.locator("#ranking caption").inner_text()
        assert caption.startswith("another")
        assert "paper score" in caption
        text = page.locator("#status").inner_text()
        assert text.startswith("20 cases, 1 of them without a date.")


@pytest.mark.thorough
def test_ranks_come_from_cases_after_every_cutoff_shown(
    site: Served, page: Any, tmp_path: Path
) -> None:
    cutoffs = {
        "model-0": "2025-03",
        "model-1": "2025-09",
        "model-2": "2025-02",
    }
    registry = Registry.model_validate(
        {
            "candidates": {
                name: {
                    "cutoff": day,
                    "cutoff_source": "its card",
                    "confidence": "stated",
                }
                for name, day in cutoffs.items()
            }
        }
    )
    write_site(files_of(made_board(site.runs, registry)), tmp_path / "out")
    fresh = score_runs(site.runs, registry=registry).fresh
    wanted = {
        one.label: [str(one.standing.group)] for one in fresh.models if one.standing
    }
    with static_server(tmp_path / "out") as url:
        page.goto(f"{url}/leaderboard.html")
        cells = shown(page)
        board = made_board(site.runs, registry)
        written = {m.name: [str(m.standing.group)] for m in board.models if m.standing}
        assert written == wanted
        assert {n: c[3:4] for n, c in cells.items() if c[3] != "–"} == wanted
        assert cells["model-3"][3] == "–"
        # Without the model of the latest cutoff, more cases are fresh.
        page.get_by_label("Show model-1", exact=True).press("Space")
        page.keyboard.press("Tab")
        settle(page)
        status = page.locator("#status").inner_text()
        assert "2025-03-31" in status
        assert "models of unknown cutoff are not ranked" in status
        # The table was drawn again twice, and whoever uses the keyboard is where they were.
        assert page.evaluate("document.activeElement.textContent") == "model-1"


@pytest.mark.thorough
def test_without_scripts_the_page_is_a_table_of_the_same_figures(
    site: Served, browser: Any
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site.url}/leaderboard.html")
    rows = page.locator("#ranking tbody tr").all_inner_texts()
    for model, (score, *_) in expected(site.runs).items():
        assert any(row.startswith(model) and score in row for row in rows)
    assert not page.locator("#choice").is_visible()
    context.close()
