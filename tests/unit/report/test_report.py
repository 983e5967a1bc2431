"""The report: whole, offline, escaped, honest about what may not be published."""

import csv
import json
import random
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from medlive.errors import BadInput
from medlive.evaluation.grade import grade_run
from medlive.evaluation.model import CaseSet, EvaluationCase, EvaluationCriterion
from medlive.evaluation.run import ModelUse, run_model
from medlive.evaluation.score import ScoreTable, load_graded, score_runs
from medlive.llm.engine import EngineIdentity, Finish, Reply, Request, Usage
from medlive.report.render import write_report

AT = datetime(2026, 11, 21, tzinfo=UTC)
EVIL = '<script>alert(1)</script><img src=x onerror=alert(2)> & "quoted" \x00\x07 \ud800 مرحبا \u202e'
VOID = {"meta", "br", "img", "hr", "input", "link", "rect", "line"}


class Judge:
    """Grades by chance, or leaves a part ungraded."""

    def __init__(self, engine: str) -> None:
        self.identity = EngineIdentity(engine, "judge<1>", {})
        self._rng = random.Random(3)

    async def answer(self, request: Request) -> Reply:
        text = json.dumps({"met": self._rng.random() < 0.5, "quote": "多喝水", "reasoning": EVIL})
        if request.inputs["criterion"].endswith("9.1"):
            text = "no idea " + EVIL
        return Reply(text, Finish.STOP, Usage(), "judge<1>")

    async def aclose(self) -> None:
        return None


def cases(n: int) -> CaseSet:
    made = tuple(
        EvaluationCase(
            case_id=f"c{i}",
            language="zh" if i % 2 else "en",
            narrative=f"病史 {i} {EVIL}",
            query="怎么办？",
            advice="休息",
            criteria=(
                EvaluationCriterion("k0", f"Says it {i}.0 {EVIL}", 5.0, "Accuracy"),
                EvaluationCriterion("k1", f"Errs {i}.1", -3.0, "Safety"),
            ),
            post_time="2025-01-01T00:00:00",
            month="2025-01",
            theme="Response Depth",
        )
        for i in range(n)
    )
    return CaseSet(made, "snapshot", "2026.W47", "sha256:" + "0" * 64, True)


async def table_of(tmp_path: Path, engine: str = "openai", models: int = 2, n: int = 12) -> ScoreTable:
    runs = []
    for number in range(models):

        async def complete(messages: Any) -> Reply:
            if "病史 3 " in messages[0]["content"]:
                return Reply("", Finish.STOP, Usage(), "m")
            return Reply(f"多喝水 {EVIL}", Finish.STOP, Usage(), "m")

        folder = tmp_path / f"run{number}"
        use = ModelUse(f"=model<b>{number}")
        await run_model(cases(n), complete, folder, use=use, created_at=AT)
        await grade_run(folder, Judge(engine), concurrency=1)
        runs.append(load_graded(folder))
    return score_runs(runs, draws=50)


class Checker(HTMLParser):
    """Notes unbalanced tags, and everything that would leave the page or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        if tag in {"script", "link", "img", "iframe", "object"}:
            self.wrong.append(tag)
        self.wrong += [f"{name}={value}" for name, value in attrs if name in {"src", "href"} or name[:2] == "on"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


async def test_the_page_is_whole_offline_and_escapes_everything(tmp_path: Path) -> None:
    page = write_report(await table_of(tmp_path), tmp_path / "out")
    html = page.read_bytes().decode("utf-8")
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    assert checker.wrong == []
    assert "http" not in html.replace("http-equiv", "")
    assert not re.search(r"url\(|@import", html)
    assert not any(ord(c) < 32 and c not in "\n\t" for c in html)
    text = "".join(checker.text)
    assert "<script>alert(1)</script>" in text
    for word in (
        "Ranking",
        "Pairs",
        "What is missing",
        "Errors by axis",
        "By month",
        "95 %",
        "多喝水",
        "怎么办？",
    ):
        assert word in text
    assert "not publishable" not in text
    assert "empty" in text
    assert "ungraded" in text
    assert 'name="viewport"' in html


async def test_a_grading_by_rules_is_flagged(tmp_path: Path) -> None:
    page = write_report(await table_of(tmp_path, engine="rules", models=1, n=3), tmp_path / "out")
    html = page.read_text("utf-8", "replace")
    assert html.count("not publishable") >= 2
    assert "Read with care" in html


async def test_the_figures_beside_the_page_agree_with_it(tmp_path: Path) -> None:
    table = await table_of(tmp_path)
    out = write_report(table, tmp_path / "out").parent
    scores = json.loads((out / "scores.json").read_text("utf-8"))
    assert scores["metric"] == "paper"
    assert [m["overall"]["mean"] for m in scores["models"]] == [m.overall.mean for m in table.models]
    assert scores["models"][0]["rates"]["unanswered"] == 1
    with (out / "scores.csv").open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    overall = [row for row in rows if row["slice"] == "overall"]
    assert [float(row["mean"]) for row in overall] == [m.overall.mean for m in table.models]
    assert all(row["model"].startswith("'=") for row in rows)
    assert (out / "scores.tsv").read_text("utf-8") == table.tsv()
    html = (out / "index.html").read_text("utf-8", "replace")
    assert f"{table.models[0].overall.mean:.4f}" in html


async def test_long_lists_of_cases_are_cut_and_the_page_says_so(tmp_path: Path) -> None:
    table = await table_of(tmp_path, models=1)
    html = write_report(table, tmp_path / "out", most_cases=5).read_text("utf-8", "replace")
    assert html.count("<details") == 5
    assert "7 more cases are not shown" in html


async def test_a_place_that_cannot_be_written_is_a_plain_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput):
        write_report(await table_of(tmp_path, models=1, n=2), tmp_path / "file" / "out")
