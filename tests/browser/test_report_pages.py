"""The report as a reader meets it: in a real browser, wide and narrow, light and dark, printed, without scripts.

Skipped where `browser` is.
"""

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.metrics import CaseState
from medlive.evaluation.scoring.score import (
    ScoreTable,
    score_runs,
)
from medlive.llm.engine import Usage
from medlive.llm.registry import Registry
from medlive.report.html import file_name
from medlive.report.render import write_report
from tests.support.runs import made_cases, made_run

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: no browser is driven"
)

EVIL = (
    "</script></p></td><script>window.pwned=1</script><img src=http://127.0.0.1:9/x onerror=window.pwned=2>"
    "<style>*{display:none}</style><a href=javascript:window.pwned=3>x</a> ‮مرحبا \u2028 \x00"
)
HOSTILE, LONG = "case-0007", "case-0008"
MODELS, CASES = 3, 90
TOOK = Usage(100, 0, 300, 0.01)
CUTOFFS = {
    "model-1": {
        "cutoff": "2025-02",
        "cutoff_source": "its card",
        "confidence": "stated",
    }
}


@dataclass(frozen=True, slots=True)
class Site:
    """A report on disk and what it was made of."""

    folder: Path
    table: ScoreTable

    def url(self, page: str) -> str:
        return (self.folder / page).as_uri()

    def case(self, case_id: str) -> str:
        return f"cases/{file_name(case_id)}"


def spoilt(place: int, case: EvaluationCase) -> EvaluationCase:
    if case.case_id == HOSTILE:
        worse = tuple(
            replace(c, criterion=c.criterion + EVIL, axis=c.axis) for c in case.criteria
        )
        return replace(
            case, narrative=EVIL, query=EVIL, advice=EVIL, criteria=worse, source=EVIL
        )
    if case.case_id == LONG:
        return replace(case, narrative="W" * 300_000)
    return case


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    root = tmp_path_factory.mktemp("report")
    cases = made_cases(CASES, months=6, change=spoilt)
    names = [f"model-0{EVIL[:40]}", "model-1", "model-2"]
    runs = [
        made_run(
            cases,
            root / f"run{k}",
            name,
            0.7 - 0.2 * k,
            drop=0.2,
            cutoff="2025-03",
            usage=TOOK,
        )
        for k, name in enumerate(names)
    ]
    registry = Registry.model_validate({"candidates": CUTOFFS})
    table = score_runs([load_graded(run) for run in runs], draws=100, registry=registry)
    write_report(table, root / "out", registry=registry)
    return Site(root / "out", table)


@dataclass(frozen=True, slots=True)
class Reader:
    """A browser's page, and the requests, dialogs, errors and messages since it was opened."""

    page: Any
    wrong: list[str]


def made_reader(browser: Any, *, scripts: bool) -> Reader:
    page = browser.new_context(java_script_enabled=scripts).new_page()
    wrong: list[str] = []

    def dismissed(dialog: Any) -> None:
        wrong.append(dialog.message)
        dialog.dismiss()

    page.on(
        "request",
        lambda r: None if r.url.startswith(("file:", "blob:")) else wrong.append(r.url),
    )
    page.on("console", lambda m: wrong.append(m.text))
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.on("dialog", dismissed)
    return Reader(page, wrong)


@pytest.fixture(scope="module")
def reader(browser: Any) -> Reader:
    """One page for all tests: a new one costs more than what most of them look at."""
    return made_reader(browser, scripts=True)


@pytest.fixture
def opened(browser: Any, reader: Reader, site: Site) -> Callable[..., Any]:
    """`with opened(page, …) as page` fails on any request, dialog, error or message."""

    @contextmanager
    def _open(name: str, scripts: bool = True) -> Iterator[Any]:
        own = reader if scripts else made_reader(browser, scripts=False)
        own.page.set_viewport_size({"width": 1280, "height": 800})
        own.page.emulate_media(media="null", color_scheme="null")
        own.wrong.clear()
        own.page.goto(site.url(name))
        yield own.page
        assert own.wrong == []
        if not scripts:
            own.page.context.close()

    return _open


CONTRAST = """() => {
    const light = (rgb) => { const [r, g, b] = rgb.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
        .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const back = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (!c.startsWith("rgba(0, 0, 0, 0)")) return c; } return "rgb(255,255,255)"; };
    const worst = {};
    const all = "p, td, th, dt, dd, a, label, button, figcaption, span, strong, small";
    document.querySelectorAll(all).forEach((e) => {
        if (!e.checkVisibility() || e.className === "skip") return;
        const [a, b] = [light(getComputedStyle(e).color), light(back(e))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05), key = e.tagName + "." + e.className;
        if (ratio < 4.5) worst[key] = ratio;
    });
    return worst;
}"""


@pytest.mark.matrix
@pytest.mark.parametrize(
    "page_name", ["index", "cases", "case-0001", "case-0003", HOSTILE, LONG]
)
def test_no_page_scrolls_sideways_and_every_text_stands_out(
    opened: Callable[..., Any], site: Site, page_name: str
) -> None:
    name = (
        f"{page_name}.html" if page_name in ("index", "cases") else site.case(page_name)
    )
    with opened(name) as page:
        if page_name == LONG:
            assert (
                "cut here: 300,000 characters in all"
                in page.locator("p.text").first.text_content()
            )
        for width, scheme in ((1280, "light"), (360, "dark")):
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme=scheme)
            wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert wide[0] <= wide[1], width
            assert page.locator("h1").is_visible()
            back = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (back == "rgb(255, 255, 255)") is (scheme == "light")
            assert page.evaluate(CONTRAST) == {}, scheme


BROKEN = """() => Array.from(document.querySelectorAll("th, td")).flatMap((cell) => {
    const found = [], walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node; (node = walk.nextNode());) for (const word of node.data.matchAll(/[^\\s-]+/g)) {
        if (!/^[a-z]+$/i.test(word[0])) continue;
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        const lines = Array.from(range.getClientRects());
        if (new Set(lines.map((r) => r.top)).size > 1 && lines.reduce((sum, r) => sum + r.width, 0) < 130)
            found.push(word[0]);
    }
    return found;
})"""
SCROLLED = """() => Array.from(document.querySelectorAll("body *")).filter((e) => e.checkVisibility() &&
    e.scrollWidth > e.clientWidth + 1 && ["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX)).map(
    (e) => [e.className, e.tabIndex, e.getAttribute("aria-label"), getComputedStyle(e, "::after").position])"""


@pytest.mark.thorough
def test_on_a_telephone_no_word_is_broken_and_what_scrolls_shows_it(
    opened: Callable[..., Any],
) -> None:
    with opened("index.html") as page:
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate(BROKEN) == []
        boxes = page.evaluate(SCROLLED)
        assert len(boxes) > 5
        for kind, tab, label, hint in boxes:
            assert (kind, tab, hint) == ("scroll", 0, "sticky"), label
            assert label
        box = page.locator("#ranking .scroll").last
        box.scroll_into_view_if_needed()
        at = box.bounding_box()
        edge = {
            "x": at["x"] + at["width"] - 4,
            "y": at["y"],
            "width": 4,
            "height": at["height"],
        }

        def shadowed() -> bool:
            seen = page.screenshot(clip=edge)
            # The page's own policy lets no other style in; its own may be added to.
            page.evaluate(
                "document.styleSheets[0].insertRule('.scroll::after { visibility: hidden }', 0)"
            )
            page.evaluate(
                "document.styleSheets[0].cssRules[0].style.setProperty('visibility', 'hidden', 'important')"
            )
            without = page.screenshot(clip=edge)
            page.evaluate("document.styleSheets[0].deleteRule(0)")
            return bool(seen != without)

        assert shadowed(), "there is more to the right"
        box.evaluate("(e) => { e.scrollLeft = e.scrollWidth; }")
        assert not shadowed(), "this is the end"
        kept = "(all) => all.map((e) => e.getBoundingClientRect().left)"
        held = page.locator(
            "#ranking tbody th, #ranking thead th:first-child"
        ).evaluate_all(kept)
        assert held == pytest.approx([at["x"]] * len(held), abs=1), (
            "the model stays in view"
        )
        page.set_viewport_size({"width": 1400, "height": 800})
        assert {tuple(one[:2]) for one in page.evaluate(SCROLLED)} <= {("scroll", 0)}


def test_what_a_forum_or_a_model_wrote_is_shown_and_runs_nowhere(
    opened: Callable[..., Any], site: Site
) -> None:
    for name in ("index.html", "cases.html", site.case(HOSTILE)):
        with opened(name) as page:
            assert page.evaluate("window.pwned") is None
            assert page.locator("iframe, object, link, base").count() == 0
            assert page.locator("img:not([src^='data:image/svg+xml;'])").count() == 0
            assert page.locator("a[href^='javascript'], a[href^='http']").count() == 0
            if name == site.case(HOSTILE):
                shown = page.locator("p.text").first.inner_text()
                assert "<script>window.pwned=1</script>" in shown
                assert "</script></p></td>" in shown


@pytest.mark.parametrize("page_name", ["cases.html", "index.html"])
def test_the_pages_own_policy_stops_markup_that_would_slip_through(
    reader: Reader, site: Site, tmp_path: Path, page_name: str
) -> None:
    slipped = (
        '<script>window.pwned = 1</script><script src="evil.js"></script>'
        '<img src="http://127.0.0.1:9/x.png" onerror="window.pwned = 2"><p onclick="window.pwned = 3" id="p">x</p>'
        '<a href="javascript:window.pwned = 4" id="a">x</a><style>h1 { display: none }</style>'
    )
    html = (site.folder / page_name).read_text("utf-8")
    (tmp_path / page_name).write_text(
        html.replace("</h1>", f"</h1>{slipped}", 1), "utf-8"
    )
    (tmp_path / "evil.js").write_text("window.pwned = 5")
    page = reader.page
    requests: list[str] = []

    def finished(request: Any) -> None:
        requests.append(request.url)

    page.on("requestfinished", finished)
    page.goto((tmp_path / page_name).as_uri())
    page.click("#p")
    page.click("#a")
    assert page.evaluate("window.pwned ?? null") is None
    assert page.locator("h1").is_visible()
    assert requests == [(tmp_path / page_name).as_uri()]
    page.remove_listener("requestfinished", finished)


@pytest.mark.thorough
def test_every_figure_is_seen_by_day_and_by_night(
    opened: Callable[..., Any],
) -> None:
    seen = """() => Array.from(document.querySelectorAll("figure img")).map((e) =>
        [e.alt.split(".")[0], e.complete && e.naturalWidth > 400])"""
    with opened("index.html", scripts=False) as page:
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(seen) == [["Overall score", True]]


def rows(page: Any) -> list[str]:
    return page.locator("#cases tbody tr:visible td:first-child").all_inner_texts()


def test_filters_show_just_what_they_say_and_save_just_that(
    opened: Callable[..., Any], site: Site, tmp_path: Path
) -> None:
    best = site.table.models[0]
    scores = {c.case.case_id: c for c in best.cases}
    every = sorted(scores)
    with opened("cases.html") as page:
        assert rows(page) == every
        page.select_option("select[name=language]", "zh")
        chinese = [cid for cid in every if scores[cid].case.language == "zh"]
        assert rows(page) == chinese
        assert f"{len(chinese)} of {len(every)}" in page.locator("#count").inner_text()
        page.select_option("select[name=theme]", "Response Depth")
        assert rows(page) == [
            cid for cid in chinese if scores[cid].case.theme == "Response Depth"
        ]
        page.click("button[type=reset]")
        sync_api.expect(page.locator("#cases tbody tr[hidden]")).to_have_count(0)

        page.select_option("select[name=model]", label=best.label)
        page.select_option("select[name=state]", "unanswered")
        assert (
            rows(page)
            == [cid for cid in every if scores[cid].state is CaseState.UNANSWERED]
            != []
        )
        page.select_option("select[name=state]", "partly graded")
        assert (
            rows(page)
            == [cid for cid in every if scores[cid].state is CaseState.PARTLY_GRADED]
            != []
        )
        page.select_option("select[name=state]", "")
        page.fill("input[name=least]", "50")
        page.fill("input[name=most]", "75")
        within = [
            cid
            for cid in every
            if (s := scores[cid].score) is not None and 0.5 <= s <= 0.75
        ]
        assert rows(page) == within != []
        page.select_option("select[name=sort]", "low")
        shown = page.locator("#cases tbody tr:visible td.score").all_inner_texts()
        assert shown == [f"{100 * scores[cid].score:.1f}" for cid in rows(page)]
        ordered = [scores[cid].score for cid in rows(page)]
        assert ordered == sorted(ordered, key=lambda s: s or 0.0)

        with page.expect_download() as taken:
            page.click("#csv")
        taken.value.save_as(tmp_path / "shown.csv")
        with (tmp_path / "shown.csv").open(newline="", encoding="utf-8") as handle:
            saved = list(csv.DictReader(handle))
        assert sorted(row["case_id"] for row in saved) == within
        for row in saved:
            assert float(row[f"score: {best.label}"]) == pytest.approx(
                scores[row["case_id"]].score, abs=1e-4
            )
        with page.expect_download() as taken:
            page.click("#json")
        taken.value.save_as(tmp_path / "shown.json")
        whole = json.loads((tmp_path / "shown.json").read_text(encoding="utf-8"))
        assert sorted(case["case_id"] for case in whole["cases"]) == within
        assert whole["shown"] == len(within)
        assert "grader judge-2026-01-01" in whole["about"]

        page.click("button[type=reset]")
        sync_api.expect(page.locator("#cases tbody tr[hidden]")).to_have_count(0)


@pytest.mark.thorough
def test_without_scripts_every_case_is_there_and_no_control_is_dead(
    opened: Callable[..., Any], site: Site
) -> None:
    with opened("cases.html", scripts=False) as page:
        assert len(rows(page)) == CASES
        assert not page.locator("#filters").is_visible()
        page.click("text=case-0003")
        assert page.locator("h1").inner_text() == "Case case-0003"
        assert page.locator("article").count() == MODELS


@pytest.mark.thorough
def test_chinese_is_marked_as_chinese_and_english_as_english(
    opened: Callable[..., Any], site: Site
) -> None:
    said = "(e) => e.closest('[lang]').lang"
    with opened(site.case("case-0003")) as page:
        assert {page.locator("p.text").nth(k).evaluate(said) for k in range(4)} == {
            "zh-Hans"
        }
        assert "膝关节疼痛" in page.locator("p.text").first.inner_text()
        assert page.locator("h2").first.evaluate(said) == "en"
        assert page.locator("q").first.evaluate(said) == "zh-Hans"
    with opened(site.case("case-0001")) as page:
        assert page.locator("p.text").first.evaluate(said) == "en"


@pytest.mark.thorough
def test_it_prints(opened: Callable[..., Any], site: Site) -> None:
    for name in ("index.html", site.case("case-0003")):
        with opened(name) as page:
            page.emulate_media(media="print")
            assert page.locator("nav").first.is_hidden()
            assert (
                page.evaluate(
                    "getComputedStyle(document.querySelector('.scroll')).overflowX"
                )
                == "visible"
            )
            if name == "index.html":
                paper = page.pdf(format="A4")
                assert paper.startswith(b"%PDF-")
                sheets = paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page ")
                assert 5 <= sheets < 20, "no sheet is left blank"


@pytest.mark.thorough
def test_the_keyboard_reaches_everything_and_every_control_has_a_name(
    opened: Callable[..., Any],
) -> None:
    with opened("cases.html") as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        reached = set()
        for _ in range(19):
            page.keyboard.press("Tab")
            reached.add(
                page.evaluate(
                    "document.activeElement.name || document.activeElement.id || document.activeElement.className"
                )
            )
        controls = "model language specialty theme source month state least most csv json scroll"
        assert set(controls.split()) <= reached
        nameless = """() => Array.from(document.querySelectorAll("select, input, button")).filter(
            (e) => !(e.labels?.[0]?.textContent || e.textContent).trim()).length"""
        assert page.evaluate(nameless) == 0
    with opened("index.html") as page:
        boxes = page.locator(".scroll")
        assert boxes.evaluate_all(
            "all => all.every((e) => e.tabIndex === 0 && e.getAttribute('aria-label'))"
        )
        assert page.locator("figure img[alt]").count() == 1
