"""The lm-evaluation-harness task, run by the real `lm_eval`."""

import json

import pytest

import medlive.integrations
from tests.integrations.conftest import SCORE, Place


def test_lm_eval_scores_as_medlive_eval_does(place: Place) -> None:
    out = place.work / "lm-eval"
    place.run(
        "lm_eval",
        "--tasks",
        "medlive",
        "--include_path",
        medlive.integrations.__path__[0],
        "--apply_chat_template",
        "--model",
        "local-chat-completions",
        "--model_args",
        f"model=sample-generic,base_url={place.url}/chat/completions,num_concurrent=1",
        "--metadata",
        json.dumps({"snapshot": str(place.snapshot)}),
        "--output_path",
        out,
        "--log_samples",
        MEDLIVE_ROLES__GRADER__MODEL=place.grader,
        MEDLIVE_ROLES__GRADER__BASE_URL=place.url,
    )
    (path,) = out.rglob("results_*.json")
    found = json.loads(path.read_text())["results"]["medlive"]
    expected = place.reference
    assert expected["overall"]["mean"] == pytest.approx(SCORE)
    assert found["score,none"] == pytest.approx(expected["overall"]["mean"], abs=1e-12)
    assert found["score_error,none"] > 0
    assert expected["rates"]["ungraded"] == 1
    assert found["ungraded_rate,none"] == pytest.approx(
        1 / expected["rates"]["criteria"]
    )
    assert found["unanswered_rate,none"] == 0
    (path,) = out.rglob("samples_*.jsonl")
    samples = {
        row["doc"]["case_id"]: row
        for row in map(json.loads, path.read_text().splitlines())
    }
    assert samples["c002"]["score"]["score"] == 0
    assert samples["c004"]["score"]["score"] is None
    assert [grade["met"] for grade in samples["c004"]["score"]["grades"]] == [
        True,
        None,
    ]
    asked = samples["c000"]["arguments"]["gen_args_0"]["arg_0"]
    assert "$3 weeks" in str(asked)
    assert "{should}" in str(asked)
