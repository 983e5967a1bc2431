"""The Inspect AI task, run found by its entry point and run by the real `inspect eval`."""

import json
import shutil

import pytest

from medlive import load_snapshot
from medlive.errors import BadInput, CheckFailed
from medlive.evaluation.cases.load import from_snapshot
from medlive.evaluation.model import Answer, AnswerState
from medlive.evaluation.runs.folder import RESPONSES, open_run
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.metrics import Metric
from medlive.integrity.log import open_log
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
    assert ": ungraded " in scores["c004"]["explanation"]
    grades = scores["c004"]["metadata"]["grades"]
    assert [grade["met"] for grade in grades] == [True, None]
    assert scores["c004"]["metadata"]["low"] == pytest.approx(0.5)
    assert UNREADABLE not in scores["c004"]["answer"]
    assert log["eval"]["metadata"]["snapshot"] == "2026.W47"
    assert log["eval"]["metadata"]["snapshot_digest"].startswith("sha256:")


def test_a_log_becomes_a_run_and_a_run_a_log(place: Place) -> None:
    logs = pytest.importorskip("medlive.integrations.inspect_task")
    cases = from_snapshot(load_snapshot(place.snapshot))
    written = place.work / "exported.json"
    logs.export_run(place.work / "run", written)
    imported = place.work / "imported"
    for _ in range(2):
        logs.import_log(written, cases, imported)
    first, second = load_graded(place.work / "run"), load_graded(imported)
    for metric in Metric:
        before = [s.score for s in first.case_scores(metric)]
        assert [s.score for s in second.case_scores(metric)] == before
    with pytest.raises(BadInput):
        logs.import_log(place.work / "absent.eval", cases, imported)
    log = json.loads(written.read_text())
    del log["eval"]["metadata"]["snapshot_digest"]
    for sample in log["samples"]:
        sample["id"] = f"other-{sample['id']}"
    written.write_text(json.dumps(log))
    with pytest.raises(BadInput, match="answers no case"):
        logs.import_log(written, cases, place.work / "nothing")


def test_a_refusal_comes_back_as_one(place: Place) -> None:
    logs = pytest.importorskip("medlive.integrations.inspect_task")
    cases = from_snapshot(load_snapshot(place.snapshot))
    run = place.work / "refused"
    shutil.copytree(place.work / "run", run)
    first = cases.cases[0].case_id
    refused = Answer(first, AnswerState.REFUSED, "I cannot help.", "refusal", "m")
    import_path = place.work / "refused-again"
    with open_log(run / RESPONSES) as log:
        log.add(refused.row())
    logs.export_run(run, place.work / "refused.json")
    logs.import_log(place.work / "refused.json", cases, import_path)
    answers, _ = open_run(import_path).answers()
    assert answers[first].state is AnswerState.REFUSED


def test_the_commands_take_logs_and_write_them(place: Place) -> None:
    pytest.importorskip("inspect_ai")
    log, imported = place.work / "by-command.eval", place.work / "by-command"
    run = place.work / "run"
    place.run("medlive", "eval", "export", run, "--format", "inspect", "--out", log)
    place.run(
        "medlive",
        "eval",
        "import",
        "--format",
        "inspect",
        "--cases",
        place.snapshot,
        "--responses",
        log,
        "--out",
        imported,
    )
    first, second = load_graded(run), load_graded(imported)
    assert second.run.info.model == first.run.info.model
    before = [s.score for s in first.case_scores(Metric.COMPLETE)]
    assert [s.score for s in second.case_scores(Metric.COMPLETE)] == before


def test_what_must_not_be_published_is_refused(place: Place) -> None:
    task = pytest.importorskip("medlive.integrations.inspect_task")
    copied = place.work / "unpublishable"
    shutil.copytree(place.snapshot, copied)
    manifest = copied / "manifest.json"
    facts = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(facts | {"publishable": False, "why_not": ["x"]}))
    with pytest.raises(CheckFailed, match="not publishable"):
        task.medlive(str(copied), verify=False)
    allowed = task.medlive(str(copied), verify=False, allow_not_publishable=True)
    assert allowed.metadata["allowed_not_publishable"] is True
