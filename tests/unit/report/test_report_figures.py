"""The report's figures: images that run nothing, with any name."""

import base64
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.refusals import EVERYTHING
from medlive.evaluation.scoring.score import score_runs
from medlive.llm.registry import Registry
from medlive.report.render import write_report
from tests.support.runs import made_cases, made_run

pytestmark = pytest.mark.whole

EVIL = "$\\frac</text><script>x</script>\x00\u202e 心" + "-long" * 30
MARK = "; MISLEADING, shown by --allow not-publishable"
CUTOFF = {"cutoff": "2025-02", "cutoff_source": "card", "confidence": "stated"}


def test_figures_hold_any_name_as_text_and_nothing_that_runs(tmp_path: Path) -> None:
    cases = made_cases(4, months=2)
    names = [f"{EVIL} 1", "b", f"{EVIL} 3"]
    runs = []
    for place, name in enumerate(names):
        run = load_graded(made_run(cases, tmp_path / f"{place}", name, 0.6))
        assert run.grader is not None
        runs.append(replace(run, grader=replace(run.grader, engine="rules")))
    registry = Registry.model_validate({"candidates": {"b": CUTOFF}})
    table = score_runs(runs, draws=20, registry=registry, allow=EVERYTHING)
    page = write_report(table, tmp_path / "out", registry=registry).read_text("utf-8")
    images = re.findall(
        r'<img src="data:image/svg\+xml;base64,([^"]+)" alt="([^"]+)">', page
    )
    assert [alt.split(".")[0] for _, alt in images] == [f"Overall score{MARK}"]
    for data, _ in images:
        root = ElementTree.fromstring(base64.b64decode(data))
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert not tags & {"script", "foreignObject", "a"}
        texts = [(e.text or "").strip() for e in root.iter() if e.tag.endswith("}text")]
        assert "b" in texts
        assert MARK in " ".join(texts)
        assert sum("frac" in text for text in texts) == 2
