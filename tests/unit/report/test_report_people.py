"""What people and auditors add to a report: agreement with a grader, and root causes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from medlive.errors import BadInput, UsageError
from medlive.evaluation.root_causes import RootCause, find_bottom
from medlive.llm.engine import Request
from medlive.report.html import file_name
from medlive.report.model import read_meta
from medlive.report.render import write_report
from tests.support.judged import audit_run
from tests.support.reports import EVIL, table_of
from tests.unit.evaluation.conftest import Judge

pytestmark = pytest.mark.whole


def test_agreement_with_people_is_read_from_its_file_and_a_wrong_one_is_named(
    tmp_path: Path,
) -> None:
    def value(x: float, **more: Any) -> dict[str, Any]:
        return {
            "value": x,
            "low": x - 0.1,
            "high": x + 0.1,
            "n": 199,
            "why": "",
            **more,
        }

    def case(method: str, judge: str, r: float, p: float) -> dict[str, Any]:
        return {
            "method": method,
            "judge": judge,
            "pearson": value(r, p=p, kind="pearson"),
            "spearman": value(r, p=p, kind="spearman"),
            "mean": value(0.5),
            "mean_people": value(0.5),
            "gain": None,
        }

    keys = ("people_ac1", "people_macro_f1", "grader_ac1", "grader_macro_f1")
    criteria: dict[str, Any] = {key: value(0.5 + 0.1 * k) for k, key in enumerate(keys)}
    criteria |= {"people": [], "grader": [], "majority": None, "majority_ties": 0}
    meta = {
        "format": "medlive-meta",
        "format_version": 1,
        "run": {"model": "m", "cases": "c"},
        "coverage": None,
        "repeated": None,
        "draws": 100,
        "seed": 0,
        "notes": [EVIL[:20]],
        "grader": {"name": "judge", "engine": "openai", "judge": "sha256:a"},
        "human": {"file": "people.csv"},
        "unknown": 1,
        "overridden": [{"allow": "several-judges", "why": "two judges"}],
        "criteria": criteria | {"by_case": None, "strictness": None},
        "cases": [
            case("rubric", "j", 0.54, 0.0001),
            case("direct", "d", 0.26, 0.07),
        ],
    }
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    read = read_meta(tmp_path / "meta.json", {"sha256:a", "sha256:b"})
    with pytest.raises(UsageError):
        read_meta(tmp_path / "meta.json", {"sha256:b"})
    html = write_report(
        table_of(tmp_path, models=1, n=2), tmp_path / "out", metas=(read,)
    ).read_text("utf-8")
    part = html.split('<section id="reliability">')[1].split("</section>")[0]
    for text in (
        "0.600 (0.500 to 0.700), n=199",
        "0.800 (",
        "0.540 (",
        "0.0001",
        "direct judge: d",
        "0.07",
        "people.csv; MISLEADING, shown by --allow several-judges",
    ):
        assert text in part, text
    for wrong, named in (
        ({"grader": []}, "grader"),
        ({"grader": {"judge": "sha256:a"}}, "no grader.name"),
        ({"format": "medlive-scores"}, "format"),
        ({"format_version": 2}, "format_version"),
    ):
        (tmp_path / "meta.json").write_text(json.dumps(meta | wrong))
        with pytest.raises(BadInput, match=f"is not a meta.json of medlive: {named}"):
            read_meta(tmp_path / "meta.json", {"sha256:a"})


def test_root_causes_are_counted_and_quoted_and_a_rules_audit_says_so(
    tmp_path: Path,
) -> None:
    table = table_of(tmp_path, models=2, n=8)
    audited = table.models[1].run
    candidates = find_bottom(audited).candidates
    assert len(candidates) > 4
    places = {one.question.request.inputs["question"]: one for one in candidates}

    def says(request: Request) -> str:
        one = places[request.inputs["question"]]
        place = candidates.index(one)
        return json.dumps(
            {
                "cause": "knowledge_gap" if place < 3 else "excessive_caution",
                "quote": one.answer.response[:12],
                "criteria": [min(one.errors)],
                "reasoning": f"Because <b>{place}",
            }
        )

    asyncio.run(audit_run(audited, Judge(says, engine="rules")))
    html = write_report(table, tmp_path / "out").read_text("utf-8")
    part = html.split('<section id="causes">')[1].split("</section>")[0]
    assert part.split("</table>")[0].count('<th scope="row">') == len(RootCause)
    row = part.split('<th scope="row">knowledge gap')[1].split("</tr>")[0]
    assert f"3 of {len(candidates)}" in row
    assert "no clinical judgement, not publishable" in part
    assert "Because &lt;b&gt;0" in part
    assert file_name(candidates[0].case_id) in part
