"""The Inspect AI task, run found by its entry point and run by the real `inspect eval`."""

import json

import pytest

from tests.integrations.conftest import SCORE, UNREADABLE, Place


def test_inspect_scores_as_medlive_eval_does(place: Place) -> None:
    logs = place.work / "inspect-logs"
    place.run(
        "inspect",
        "eval",
        "medlive/medlive",
        "-T",
        f"snapshot={place.snapshot}",
        "--model",
        "openai-api/here/sample-generic",
        "--model-role",
        f"grader=openai-api/here/{place.grader}",
        "--log-dir",
        logs,
        "--log-format",
        "json",
        "--display",
        "plain",
        HERE_BASE_URL=place.url,
        HERE_API_KEY="none",
    )
    (log,) = (json.loads(path.read_text()) for path in logs.glob("*.json"))
    assert log["status"] == "success"
    results = {score["name"]: score for score in log["results"]["scores"]}
    expected = place.reference
    assert expected["overall"]["mean"] == pytest.approx(SCORE)
    assert results["score"]["metrics"]["mean"]["value"] == pytest.approx(
        expected["overall"]["mean"], abs=1e-12
    )
    assert results["score"]["metrics"]["stderr"]["value"] > 0
    assert (
        results["score"]["scored_samples"],
        results["score"]["unscored_samples"],
    ) == (3, 1)
    rates = expected["rates"]
    assert rates["ungraded"] == 1
    assert results["ungraded"]["metrics"]["medlive/ungraded_rate"][
        "value"
    ] == pytest.approx(1 / rates["criteria"])
    assert results["unanswered"]["metrics"]["mean"]["value"] == 0
    scores = {sample["id"]: sample["scores"]["rubric"] for sample in log["samples"]}
    assert scores["c002"]["value"]["score"] == 0
    grades = scores["c004"]["metadata"]["grades"]
    assert [grade["met"] for grade in grades] == [True, None]
    assert scores["c004"]["metadata"]["low"] == pytest.approx(0.5)
    assert UNREADABLE not in scores["c004"]["answer"]
    assert log["eval"]["metadata"]["snapshot"] == "2026.W47"
    assert log["eval"]["metadata"]["snapshot_digest"].startswith("sha256:")
