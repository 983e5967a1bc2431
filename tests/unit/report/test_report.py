"""The report: whole, offline, escaped, complete to the last case, honest about what may not be published."""

import csv
import errno
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from markupsafe import escape

from medlive.errors import BadInput, DiskFull
from medlive.evaluation.model import CaseSet, EvaluationCase
from medlive.evaluation.scoring.errata import (
    ErrataMode,
    ErrataUse,
    RunErrata,
)
from medlive.evaluation.scoring.graded import (
    GradedRun,
    load_graded,
)
from medlive.evaluation.scoring.score import (
    ScoreTable,
    score_runs,
)
from medlive.llm.registry import Registry
from medlive.report.html import file_name
from medlive.report.model import analyse
from medlive.report.render import write_report
from medlive.report.sections import SECTIONS, fisher_interval
from tests.support.reports import EVIL, hostile, table_of
from tests.support.runs import made_cases, made_run, made_runs

pytestmark = pytest.mark.whole

VOID = {"meta", "br", "img", "hr", "input", "link", "rect", "line", "path", "circle"}
LINK = re.compile(
    r"(#[\w-]+|(\.\./)?(cases/)?[A-Za-z0-9_-]+\.(html|json|csv|tsv)(#\w+)?)"
)


class Checker(HTMLParser):
    """Notes unbalanced tags, and everything that would leave the page or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.text: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "img" and (given["src"] or "").startswith("data:image/svg+xml;"):
            attrs = [(name, value) for name, value in attrs if name != "src"]
        elif tag in {"link", "img", "iframe", "object", "base"} or (
            tag == "script" and given.get("src")
        ):
            self.wrong.append(tag)
        self.wrong += [
            f"{name}={value}"
            for name, value in attrs
            if name in {"src", "style"} or name[:2] == "on"
        ]
        if (href := given.get("href")) is not None:
            self.links.append(href)
            if not LINK.fullmatch(href):
                self.wrong.append(f"href={href}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[ScoreTable, Path]:
    """Scores of two models, one with a known cutoff, and the folder of their report."""
    root = tmp_path_factory.mktemp("written")
    known = {"cutoff": "2025-02", "cutoff_source": "card", "confidence": "stated"}
    registry = Registry.model_validate({"candidates": {"=model<b>0": known}})
    table = table_of(root, models=2, n=40, registry=registry)
    return table, write_report(table, root / "out", registry=registry).parent


def test_every_page_is_whole_offline_escaped_and_linked_to_what_is_there(
    tmp_path: Path,
) -> None:
    registry = Registry.model_validate(
        {
            "candidates": {
                "=model<b>0": {
                    "cutoff": "2025-02",
                    "cutoff_source": EVIL,
                    "confidence": "stated",
                }
            }
        }
    )
    table = table_of(tmp_path, models=3, n=6, change=hostile, registry=registry)
    out = write_report(table, tmp_path / "out", registry=registry).parent
    pages = sorted(out.rglob("*.html"))
    assert len(pages) == 2 + 6
    for path in pages:
        html = path.read_bytes().decode("utf-8")
        checker = Checker()
        checker.feed(html)
        checker.close()
        assert checker.open == []
        assert checker.wrong == []
        assert "default-src 'none'" in html
        assert "unsafe" not in html
        assert html.replace("http-equiv", "").count("http") == html.count(
            "http://www.w3.org/2000/svg"
        )
        assert not re.search(r"url\(|@import", html)
        assert not any(ord(c) < 32 and c not in "\n\t" for c in html)
        if path.parent.name == "cases":
            # No mark that a case holds may take the place of ours, where the answers go.
            assert html.index("<article") > html.index("<h2>Models</h2>")
        for link in checker.links:
            assert (
                link.startswith("#")
                or (path.parent / unquote(link.partition("#")[0])).is_file()
            ), link
        for anchor in (link[1:] for link in checker.links if link.startswith("#")):
            assert f'id="{anchor}"' in html
    text = "".join(checker.text)
    assert "<script>alert(1)</script>" in text


def test_every_row_of_a_table_has_a_cell_under_each_head(
    written: tuple[ScoreTable, Path],
) -> None:
    html = (written[1] / "index.html").read_text("utf-8")
    tables = re.findall(r"<table aria-label=\"(.*?)\">(.*?)</table>", html, re.S)
    assert len(tables) > 10
    for name, table in tables:
        head, _, body = table.partition("<tbody>")
        rows = body.split("</tr>")[:-1]
        counts = {len(re.findall(r"<t[hd][ >]", row)) for row in rows}
        assert counts <= {head.count("<th ")}, name


def test_the_first_page_has_every_section_and_names_what_its_numbers_rest_on(
    written: tuple[ScoreTable, Path],
) -> None:
    html = (written[1] / "index.html").read_text("utf-8")
    for title in (
        "Ranking",
        "What is missing",
        "Over time",
        "Contamination",
        "Open and closed book",
        "By specialty",
        "By theme",
        "Criteria",
        "Cost and tokens",
        "Root causes",
        "Reliability of the grader",
        "How alike",
        "Pairs",
        "By language",
        "By source",
        "By first release",
    ):
        assert re.search(f"<h[23]>{title}", html), title
    about = html.split('<dl class="about">')[1].split("</dl>")[0]
    basis = (
        "2026.W47",
        "judge-<span",
        "complete score",
        "bootstrap over cases, 50 draws, seed 0",
    )
    assert all(words in about for words in basis), about
    assert html.count("seed 0") == 1
    assert html.count("<img") == 1


def test_what_cannot_be_shown_says_what_is_missing_and_how_to_have_it(
    tmp_path: Path,
) -> None:
    def bare(place: int, case: EvaluationCase) -> EvaluationCase:
        plain = tuple(replace(c, axis=None) for c in case.criteria)
        return replace(
            case, theme=None, specialty=None, month=None, post_time="", criteria=plain
        )

    html = write_report(
        table_of(tmp_path, models=1, change=bare), tmp_path / "out"
    ).read_text("utf-8")
    said = re.findall(r'<p class="missing">(.*?)</p>', html, re.DOTALL)
    for part in (
        "names an axis",
        "names a theme",
        "names a specialty",
        "names a month",
        "No cutoff",
        "--template open-book",
        "eval audit",
        "eval meta",
        "One run alone",
    ):
        assert sum(part in one for one in said) >= 1, part


def test_where_nothing_is_graded_the_ranking_says_so(tmp_path: Path) -> None:
    def ungraded(run: GradedRun) -> GradedRun:
        return replace(run, known_grades={}, met={}, grader=None)

    out = write_report(
        table_of(tmp_path, models=2, n=6, edit=ungraded), tmp_path / "out"
    ).parent
    html = (out / "index.html").read_text("utf-8")
    assert "No model has a score" in html


def test_a_run_on_cases_that_nobody_verified_is_flagged(tmp_path: Path) -> None:
    def unverified(run: GradedRun) -> GradedRun:
        cases = run.info.cases.model_copy(update={"verified": False})
        info = run.info.model_copy(update={"cases": cases})
        return replace(run, run=replace(run.run, info=info))

    table = table_of(tmp_path, models=1, n=3, edit=unverified)
    html = write_report(table, tmp_path / "out").read_text("utf-8")
    assert '<span class="open">not publishable</span>' in html


def test_the_figures_beside_the_page_agree_with_it(
    written: tuple[ScoreTable, Path],
) -> None:
    table, out = written
    scores = json.loads((out / "scores.json").read_text("utf-8"))
    assert (scores["metric"], scores["advice_only"]) == ("complete", True)
    assert [m["overall"]["mean"] for m in scores["models"]] == [
        m.overall.value for m in table.models
    ]
    with (out / "scores.csv").open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    overall = [row for row in rows if row["slice"] == "overall"]
    assert [float(row["mean"]) for row in overall] == [
        m.overall.value for m in table.models
    ]
    assert (out / "scores.tsv").read_text("utf-8") == table.tsv()
    html = (out / "index.html").read_text("utf-8")
    for model in table.models:
        mean, low, high = (
            100 * x
            for x in (model.overall.value, model.overall.low, model.overall.high)
        )
        assert f'>{mean:.1f}</td><td class="n">{low:.1f} to {high:.1f}</td>' in html


def test_people_read_scores_in_per_cent_and_programs_as_shares(
    written: tuple[ScoreTable, Path],
) -> None:
    table, out = written
    html = (out / "index.html").read_text("utf-8")
    # Coefficients and p alone are told with three decimals and more.
    html = re.sub(
        r'(?s)<section id="(overlap|costs|pairs|scale|length)">.*?</section>|<div class="summary">.*?</div>',
        "",
        html,
    )
    shown = re.sub(
        r"(?s)<style>.*?</style>| [xyd12]{1,2}=\"[^\"]*\"|<td class=\"n\">(< )?\d\.\d{4}( exact)?</td>",
        "",
        html,
    )
    assert re.findall(r"(?<![\d.])[01]\.\d{2,}", shown) == []
    best = table.models[0]
    some = next(
        score for score in best.cases if score.score is not None and 0 < score.score < 1
    )
    assert some.score is not None
    case = (out / "cases" / file_name(some.case.case_id)).read_text("utf-8")
    assert f"{100 * some.score:.1f} %" in case
    assert (
        json.loads((out / "scores.json").read_text("utf-8"))["models"][0]["overall"][
            "mean"
        ]
        <= 1
    )


def test_errata_are_told_in_words(tmp_path: Path) -> None:
    table = table_of(tmp_path, models=2, n=4)

    def told(
        mode: ErrataMode, *, path: Path | None = Path("errata.json"), **more: Any
    ) -> str:
        run = RunErrata("2026.W47", path, digest="sha256:ab")
        use = ErrataUse(mode, (replace(run, **more), run))
        html = "".join(SECTIONS[4](analyse(replace(table, errata=use))).parts)
        return html.split("Errata", 1)[1]

    assert "errata.json (sha256:ab; its signature not checked)" in told(ErrataMode.WARN)
    assert "<table" not in told(ErrataMode.WARN)
    assert "2026.W47: none at hand" in told(ErrataMode.WARN, path=None)
    warned = told(
        ErrataMode.WARN, cases=("case-0001",), criteria=(("case-0002", "k1"),)
    )
    assert "is scored all the same; --errata apply leaves it out" in warned
    assert '<td class="w">case-0001</td><td class="w">case-0002 k1</td>' in warned
    assert "is left out of every score here" in told(
        ErrataMode.APPLY, cases=("case-0003",)
    )


def test_a_second_report_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    write_report(table_of(tmp_path / "a", models=1, n=4), tmp_path / "out")
    (tmp_path / "out" / "mine.txt").write_text("kept")
    write_report(table_of(tmp_path / "b", models=1, n=2), tmp_path / "out")
    assert len(list((tmp_path / "out" / "cases").iterdir())) == 2
    assert (tmp_path / "out" / "mine.txt").read_text() == "kept"
    assert not list((tmp_path / "out").glob(".report-*"))


@pytest.mark.thorough
def test_every_model_is_in_every_table_however_many_there_are(
    tmp_path: Path,
) -> None:
    table = table_of(tmp_path, models=8, n=6)
    out = write_report(table, tmp_path / "out").parent
    html = (out / "index.html").read_text("utf-8")
    for kind in ("months", "specialties", "themes", "by-language"):
        part = html.split(f'<section id="{kind}">')[1].split("</section>")[0]
        assert all(part.count(f">{escape(m.label)}</th>") == 1 for m in table.models), (
            kind
        )
        assert "models 7 to 8 of 8" in part


def test_nothing_that_no_report_wrote_is_replaced(tmp_path: Path) -> None:
    table = table_of(tmp_path, models=1, n=2)
    (tmp_path / "mine" / "cases").mkdir(parents=True)
    (tmp_path / "mine" / "cases" / "a.txt").write_text("mine")
    with pytest.raises(BadInput, match="not a report"):
        write_report(table, tmp_path / "mine")
    assert (tmp_path / "mine" / "cases" / "a.txt").read_text() == "mine"
    with pytest.raises(BadInput):
        write_report(table, tmp_path / "run0")
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput):
        write_report(table, tmp_path / "file")
    with pytest.raises(BadInput):
        write_report(table, tmp_path / "file" / "out")


def test_a_full_disk_is_called_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("medlive.report.render.os.replace", fail)
    with pytest.raises(DiskFull):
        write_report(table_of(tmp_path, models=1, n=2), tmp_path / "out")


@pytest.mark.thorough
def test_the_digests_of_snapshots_of_one_name_are_on_the_page(tmp_path: Path) -> None:
    cases = made_cases(6, months=2)
    other = CaseSet(cases.cases, cases.origin, cases.name, "sha256:" + "ab" * 32, True)
    runs = [
        made_run(cases, tmp_path / "a", "a", 0.6),
        made_run(other, tmp_path / "b", "b", 0.5),
    ]
    html = write_report(
        score_runs([load_graded(r) for r in runs], draws=20), tmp_path / "out"
    ).read_text("utf-8")
    assert "sha256:" + "ab" * 32 in html


@pytest.mark.thorough
def test_correlations_have_an_interval_and_overlaps_their_mean(tmp_path: Path) -> None:
    table = table_of(tmp_path, models=5, n=60, missing=False)
    written = write_report(table, tmp_path / "out")
    part = written.read_text("utf-8").split('<section id="overlap">')[1]
    worst, themes, *_ = re.findall(r"<table.*?</table>", part, re.DOTALL)
    # Fisher's z by hand: r = 0.9 of 5 pairs lies within tanh(atanh(0.9) -/+ 1.96 / sqrt(2)).
    assert fisher_interval(0.9, 5) == " (0.086 to 0.993, n=5)"
    assert fisher_interval(1.0, 5) == " (n=5)"
    assert fisher_interval(0.5, 3) == " (n=3)"
    cell = re.compile(r'title="(-?[01]\.\d{3})( \((?:-?[01]\.\d{3} to .*?, )?n=5\))?"')
    titles = re.findall('title="[^"]*"', themes)
    assert len(titles) == 5 * 6 / 2
    assert all(cell.fullmatch(title) for title in titles)
    shared = [float(value) for value, _ in cell.findall(worst)]
    others = [value for value in shared if value != 1]
    assert len(others) == 10
    mean = re.search(r"mean over 10 pairs is ([\d.]+)\.", part)
    assert float(mean[1]) == pytest.approx(sum(others) / len(others), abs=0.001)


def test_a_grading_by_rules_is_flagged_and_every_table_says_what_was_overridden(
    tmp_path: Path,
) -> None:
    def ruled(run: GradedRun) -> GradedRun:
        assert run.grader is not None
        return replace(run, grader=replace(run.grader, engine="rules"))

    table = table_of(tmp_path, models=2, n=6, edit=ruled)
    out = write_report(table, tmp_path / "out").parent
    for page in ("index.html", f"cases/{file_name('case-0001')}"):
        captions = re.findall('<p class="caption">(.*?)</p>', (out / page).read_text())
        mark = "MISLEADING, shown by --allow not-publishable"
        unmarked = [caption for caption in captions if mark not in caption]
        assert set(unmarked) <= {"Verdicts"}
        assert len(captions) > len(unmarked)
    html = (out / "index.html").read_text()
    assert html.count("not publishable") >= 2
    assert "Read with care" in html
    rows = list(csv.DictReader((out / "scores.csv").read_text().splitlines()))
    assert {row["overridden"] for row in rows} == {"not-publishable"}


@pytest.mark.thorough
def test_two_runs_of_the_same_cases_make_the_same_bytes(tmp_path: Path) -> None:
    runs = made_runs(tmp_path, models=2, n=3)
    texts = []
    for name in ("one", "two"):
        out = write_report(
            score_runs([load_graded(r) for r in runs], draws=20), tmp_path / name
        ).parent
        texts.append(
            {
                p.relative_to(out): p.read_bytes()
                for p in sorted(out.rglob("*"))
                if p.is_file()
            }
        )
    assert texts[0] == texts[1]
