"""The benchmark of the judge on people's labels: what it shows, what it stores, and how it counts."""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted import Scripted, second_look

pytestmark = pytest.mark.whole

SUPPORTED = "Zinc lozenges shorten a cold by one day."
REFUTED = "Does chewing bark cure asthma?"
OPEN = "Does humming help sleep? (Reader inquiry)"
LONG = " ".join(f"Sentence {n} of the passage is on something else." for n in range(20))
PASSAGES = {
    SUPPORTED: "In trials zinc lozenges shortened colds by about a day.",
    REFUTED: f"{LONG} Chewing bark does not seem to help people with asthma.",
    OPEN: "Whether humming helps is unclear.",
}
LABELS = {SUPPORTED: "supported", REFUTED: "contradicted", OPEN: "neutral"}


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    module = importlib.import_module("claims")
    rows = [
        {
            "set": "healthfc",
            "id": f"secret-id-{number}",
            "claim": claim,
            "evidence": PASSAGES[claim],
            "question": "",
            "label": LABELS[claim],
        }
        for number, claim in enumerate(PASSAGES)
    ]
    file = tmp_path / "claims.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    monkeypatch.setattr(module, "FILE", file)
    return module


def align(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Judge as people did, by the words of the claim."""
    (claim,), (passage,) = inputs["claims"], inputs["passages"]
    verdict, quote = "neutral", ""
    if "Zinc" in claim["statement"]:
        verdict, quote = "supported", "zinc lozenges shortened colds"
    if "bark" in claim["statement"]:
        verdict, quote = "contradicted", "does not seem to help people"
    evidence = [{"passage_id": passage["id"], "quotes": [quote]}] if quote else []
    return {
        "verdicts": [
            {
                "id": claim["id"],
                "verdict": verdict,
                "evidence": evidence,
                "reason": "So.",
            }
        ]
    }


def overturn(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A second check that finds no contradiction."""
    (claim,) = inputs["claims"]
    return {"verdicts": [second_look(claim["id"], reason="So.")]}


@pytest.fixture
def engine(claims: Any, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    scripted = Scripted({"validator.alignment": align, "validator.veto": overturn})
    monkeypatch.setattr(claims, "build_engine", lambda _: scripted)
    return scripted


def test_requests_hold_the_whole_passage_and_nothing_of_the_label(
    claims: Any, engine: Scripted
) -> None:
    assert claims.main(["--part", "all"]) == 0
    asked = [json.dumps(request.inputs) for request in engine.requests]
    assert len(asked) == len(PASSAGES) + 1  # One contradiction has a second check
    assert any(PASSAGES[REFUTED] in inputs for inputs in asked)
    for inputs in asked:
        assert not any(
            word in inputs
            for word in ("secret-id", "healthfc", "label", "contradicted")
        )
    statements = {
        request.inputs["claims"][0]["statement"] for request in engine.requests
    }
    asked_as_yes = f'The answer to "{REFUTED}" is yes.'
    assert statements == {
        SUPPORTED,
        asked_as_yes,
        'The answer to "Does humming help sleep?" is yes.',
    }


def test_the_excerpt_is_cut_as_curation_cuts_it(claims: Any, engine: Scripted) -> None:
    assert claims.main(["--part", "all", "--passage", "excerpt"]) == 0
    texts = [request.inputs["passages"][0]["text"] for request in engine.requests]
    assert max(map(len, texts)) < len(PASSAGES[REFUTED])


def test_the_second_check_is_stored_apart_and_a_second_run_asks_nobody(
    claims: Any, engine: Scripted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    assert claims.main(["--part", "all", "--out", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    said = sorted((row["first"], row["second"], row["after"]) for row in rows)
    assert said == [
        ("contradicted", "disputed", "disputed"),
        ("neutral", "", "neutral"),
        ("supported", "", "supported"),
    ]
    assert not any(
        text[:20] in out.read_text(encoding="utf-8")
        for text in (*PASSAGES, *PASSAGES.values())
    )
    asked = len(engine.requests)
    capsys.readouterr()
    assert claims.main(["--part", "all", "--out", str(out), "--compare", str(out)]) == 0
    assert len(engine.requests) == asked
    printed = capsys.readouterr().out
    # F1 by hand: all right before it; after it supported 1, neutral 1, contradicted 0.
    assert "first verdict: macro-F1 1.000" in printed
    assert "after the second check: macro-F1 0.667" in printed


def test_the_parts_and_the_sample_depend_on_ids_alone(claims: Any) -> None:
    parts = [claims.part_of(f"healthfc {number}") for number in range(3000)]
    assert 900 < parts.count("held_out") < 1100
    first, *_ = claims.read_claims(claims.FILE)
    labels = [*claims.Alignment] * 5
    rows = [
        first._replace(key=str(number), label=label)
        for number, label in enumerate(labels)
    ]
    relabelled = [row._replace(label=claims.Alignment.NEUTRAL) for row in rows]
    chosen = [
        [
            claim.key
            for claim in claims.choose(
                some, sets=claims.SETS, part="all", limit=6, seed=5
            )
        ]
        for some in (rows, relabelled)
    ]
    assert len(chosen[0]) == 6
    assert chosen[0] == chosen[1]


def test_without_the_claims_it_says_so(
    claims: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(claims, "FILE", tmp_path / "none.jsonl")
    assert claims.main([]) == 3
    assert "shared/realdata/claims" in capsys.readouterr().err


def test_recorded_verdicts_hold_no_text(claims: Any) -> None:
    for line in claims.RECORDED.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        assert set(row) == set(claims.Verdict.__dataclass_fields__)
        assert max(map(len, row.values())) <= 40
