"""The site's other pages in a real browser: search, width, both themes, and axe-core's rules."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from medlive.site.live import write_site
from medlive.site.model import Content
from medlive.site.pages import site_files
from tests.support.releases import case
from tests.support.site import made_board, made_graded, static_server

axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-core is not installed"
)
MAIN = ("leaderboard.html", "cases/case-0001.html")
FURTHER = (
    "index.html",
    "scale.html",
    "lists/cases-2.html",
    "models/board-1-m1.html",
    "method.html",
    "weeks.html",
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("site")
    board = made_board(made_graded(root / "runs", models=2, cases=12))
    cases = {one.case_id: case(one.case_id) for one in board.cases}
    for place in range(110):
        later = f"later-{place:03d}"
        cases[later] = case(later, query="Does the knee need a scan?")
    cases["case-0003"] = case("case-0003", query="Why does the ankle swell?")
    content = Content(boards=[board], cases=cases, not_publishable=("a reason",))
    write_site(site_files(content), root / "out")
    with static_server(Path(root / "out")) as address:
        yield address


@pytest.fixture(scope="module")
def page(browser: Any) -> Any:
    """One page for all tests: a new one costs more than what most of them look at."""
    return browser.new_page()


@pytest.mark.parametrize(
    ("width", "scheme", "pages"),
    [
        (390, "light", MAIN),
        pytest.param(390, "light", FURTHER, marks=pytest.mark.thorough),
        pytest.param(1920, "dark", MAIN + FURTHER, marks=pytest.mark.thorough),
    ],
)
def test_pages_fit_and_axe_finds_nothing(
    url: str, page: Any, width: int, scheme: str, pages: tuple[str, ...]
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    for name in pages:
        page.goto(f"{url}/{name}")
        if name == "leaderboard.html":
            page.wait_for_selector("#ranking[aria-busy=false]")
        wider = "document.documentElement.scrollWidth - innerWidth"
        assert page.evaluate(wider) <= 0, name
        options = {"resultTypes": ["violations"]}
        found = axe.Axe().run(page, options=options).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], name


def test_cases_are_searched_and_the_address_keeps_the_words(
    url: str, page: Any
) -> None:
    def wait_for(status: str) -> list[str]:
        page.wait_for_function(
            "status => document.querySelector('#status').textContent === status",
            arg=status,
        )
        found: list[str] = page.locator("#cases tbody th").all_inner_texts()
        return found

    page.goto(f"{url}/lists/cases-2.html")
    assert len(wait_for("122 cases, here 101 to 122, the latest first")) == 22
    page.get_by_label("Words").fill("SWELL hurts")
    assert wait_for("1 of 122 cases") == ["case-0003"]
    assert page.locator("#pages").is_hidden()
    page.reload()
    assert wait_for("1 of 122 cases") == ["case-0003"]
    page.get_by_label("Words").fill("scan")
    assert len(wait_for("110 of 122 cases, here the first 100")) == 100
    page.get_by_role("button", name="Show more").press("Enter")
    assert len(set(wait_for("110 of 122 cases"))) == 110
    page.get_by_label("Words").fill("")
    assert len(wait_for("122 cases, here 101 to 122, the latest first")) == 22
    page.get_by_label("Words").fill("ankle")
    wait_for("1 of 122 cases")
    page.get_by_role("link", name="case-0003").click()
    page.wait_for_url("**/cases/case-0003.html")
    assert "Why does the ankle swell?" in page.locator("main").inner_text()


@pytest.mark.thorough
def test_without_scripts_every_case_is_on_one_page_of_the_list(
    url: str, browser: Any
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{url}/cases.html")
    first = page.locator("#cases tbody th").all_inner_texts()
    assert page.locator("#search").is_hidden()
    page.get_by_role("link", name="Page 2").click()
    page.wait_for_url("**/lists/cases-2.html")
    second = page.locator("#cases tbody th").all_inner_texts()
    assert (len(first), len(second), len({*first, *second})) == (100, 22, 122)
    context.close()
