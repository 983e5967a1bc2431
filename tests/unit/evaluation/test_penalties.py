"""Errors that models' answers make become proposals of penalties, each with passages that code has checked."""

import json
from pathlib import Path
from typing import Any

import pytest

from medlive.__main__ import run
from medlive.errors import UsageError
from medlive.evaluation.cases.load import from_snapshot
from medlive.evaluation.grading.questions import ask_questions
from medlive.evaluation.harm import READINGS, harm_key, material_of
from medlive.evaluation.model import Answer, AnswerState, gradable
from medlive.evaluation.penalties import (
    AnsweredCase,
    ErrorsReply,
    find_candidates,
    read_penalties,
)
from medlive.evaluation.runs.folder import (
    RESPONSES,
    ModelUse,
    RunFolder,
    TemplateUse,
    create_run,
    open_run,
)
from medlive.harm.model import JudgedHarm, Severity
from medlive.integrity.log import lines_of, open_log
from medlive.llm.ask import Unusable
from medlive.llm.engine import Finish, Reply, Usage
from medlive.snapshot.load import Snapshot
from tests.support.harm import made_harm, made_row
from tests.support.proving import DENIES, STATES, case, frozen
from tests.support.runs import MADE_AT
from tests.support.scripted import Scripted

DOUBLES = "Recommends doubling the dose of lisinopril."
SAID = {
    "model-x": "This will pass. Double the dose of lisinopril from tomorrow on.",
    "model-y": "Take twice as much lisinopril, then wait. Never use codeine.",
}
REFUSAL = "I'm sorry, but I can't help with that."


def quoting(**quotes: str) -> list[dict[str, str]]:
    return [{"answer": name, "quote": text} for name, text in quotes.items()]


BOTH = quoting(a1="Double the dose of lisinopril", a2="Take twice as much lisinopril")


def error(**changed: Any) -> dict[str, Any]:
    made = {"criterion": DOUBLES, "axis": "Safety", "points": -8, "quotes": BOTH}
    return made | changed


def reply(*errors: dict[str, Any]) -> dict[str, Any]:
    return {"errors": list(errors)}


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    rows = [case("a", STATES, DENIES), case("b", STATES, DENIES)]
    return frozen(rows, tmp_path_factory.mktemp("snapshot"))


@pytest.fixture(scope="module")
def runs(
    snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory
) -> list[RunFolder]:
    """Two models' answers to case a."""
    root = tmp_path_factory.mktemp("runs")
    runs = [answered(snapshot, root / model, model) for model in SAID]
    for folder in runs:
        harms = [made_harm(SAID[folder.info.model], Severity.SEVERE)]
        write_readings(folder, harms)
    return runs


def answered(snapshot: Snapshot, out: Path, model: str) -> RunFolder:
    template = TemplateUse(name="open", digest=None)
    create_run(out, from_snapshot(snapshot), ModelUse(model), template, MADE_AT)
    with open_log(out / RESPONSES) as log:
        log.add(Answer("a", AnswerState.OK, SAID[model], "stop", model).row())
    return open_run(out)


@pytest.fixture
def candidate(snapshot: Snapshot, runs: list[RunFolder]) -> AnsweredCase:
    (found,) = find_candidates(snapshot, runs)
    return found


def read(candidate: AnsweredCase, said: object) -> ErrorsReply:
    text = said if isinstance(said, str) else json.dumps(said)
    value = candidate.question.read(Reply(text, Finish.STOP, Usage(), "scripted"))
    assert isinstance(value, ErrorsReply)
    return value


def test_the_reader_sees_texts_and_no_names(candidate: AnsweredCase) -> None:
    inputs = candidate.question.inputs
    assert inputs["penalties"] == [DENIES[0]]
    assert [answer["text"] for answer in inputs["answers"]] == list(SAID.values())
    assert "model-" not in json.dumps(inputs)


def test_proposals_rest_on_confirmed_harms(
    snapshot: Snapshot, runs: list[RunFolder], tmp_path: Path
) -> None:
    (candidate,) = find_candidates(snapshot, runs)
    inputs = candidate.question.inputs
    assert [a["harmful"] for a in inputs["answers"]] == [[t] for t in SAID.values()]
    assert candidate.propose(read(candidate, reply(error())))
    # Nothing is asked of answers in which no harm was confirmed.
    harmless = answered(snapshot, tmp_path / "harmless", "model-x")
    with pytest.raises(UsageError, match="not read for harm"):
        find_candidates(snapshot, [harmless])
    write_readings(harmless, [])
    assert find_candidates(snapshot, [harmless, runs[1]]) == ()


def write_readings(folder: RunFolder, harms: list[JudgedHarm]) -> None:
    rows = []
    for asked, answer in gradable(folder.cases, folder.answers()[0]):
        key = harm_key(material_of(asked, answer), "sha256:1")
        rows.append(made_row(asked.case_id, harms, key=key))
    (folder.path / READINGS).write_bytes(lines_of(row.row() for row in rows))


def test_an_error_of_two_models_is_proposed(candidate: AnsweredCase) -> None:
    (proposal,) = candidate.propose(read(candidate, reply(error())))
    assert (proposal.criterion, proposal.points) == (DOUBLES, -8)
    assert proposal.models == set(SAID)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"quotes": quoting(a1="Triple the dose of lisinopril")}, "no passage"),
        # Words of another answer than the named one
        ({"quotes": quoting(a2="Double the dose of lisinopril")}, "no passage"),
        ({"quotes": quoting(a3="Double the dose of lisinopril")}, "no answer"),
        ({"quotes": []}, "quotes"),
        ({"points": -4}, "points"),
        ({"criterion": "建议把赖诺普利的剂量加倍。"}, "language"),
    ],
)
def test_an_error_that_nothing_shows_is_refused(
    candidate: AnsweredCase, changed: dict[str, Any], fault: str
) -> None:
    with pytest.raises(Unusable, match=fault):
        read(candidate, reply(error(**changed)))


def test_more_than_two_errors_and_a_refusal_are_no_reply(
    candidate: AnsweredCase,
) -> None:
    with pytest.raises(Unusable, match="at most 2"):
        read(candidate, reply(error(), error(), error()))
    with pytest.raises(Unusable):
        read(candidate, REFUSAL)


def test_an_error_of_one_model_of_two_is_not_proposed(candidate: AnsweredCase) -> None:
    alone = error(quotes=BOTH[:1])
    assert candidate.propose(read(candidate, reply(alone))) == []


def test_an_error_that_costs_points_already_is_not_proposed(
    candidate: AnsweredCase,
) -> None:
    known = error(criterion="Denies that a tablet can ever cause a cough.")
    assert candidate.propose(read(candidate, reply(known))) == []
    twice = candidate.propose(read(candidate, reply(error(), error(points=-6))))
    assert [proposal.points for proposal in twice] == [-8]


def test_runs_on_other_cases_are_refused_and_one_model_proposes_nothing(
    snapshot: Snapshot, runs: list[RunFolder], tmp_path: Path
) -> None:
    assert find_candidates(snapshot, runs[:1]) == ()
    other = frozen([case("a", STATES, DENIES)], tmp_path / "other")
    with pytest.raises(UsageError, match="cases of this snapshot"):
        find_candidates(other, runs)


async def test_a_reader_that_refuses_leaves_the_case_unread(
    snapshot: Snapshot, runs: list[RunFolder], tmp_path: Path
) -> None:
    found = find_candidates(snapshot, runs)
    log = tmp_path / "errors.jsonl"

    async def ask(said: object) -> Scripted:
        scripted = Scripted({"rubric.errors": said})
        await ask_questions(lambda _: [found[0].question], log, scripted)
        return scripted

    who = (await ask(REFUSAL)).identity
    assert read_penalties(found, tmp_path, who) == (["a"], [])
    # Where no answer holds a confirmed harm there is no candidate, and nothing to propose.
    assert read_penalties((), tmp_path, who) == ([], [])
    await ask(reply(error()))
    # The other order of the runs asks nothing anew.
    turned = find_candidates(snapshot, runs[::-1])
    _, proposals = read_penalties(turned, tmp_path, who)
    assert len(proposals) == 1


def test_the_command_proposes_and_changes_nothing(
    snapshot: Snapshot,
    runs: list[RunFolder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scripted = Scripted({"rubric.errors": reply(error())})
    monkeypatch.setattr(
        "medlive.cli.evaluation.options.grader_engine", lambda *_, **__: scripted
    )
    command = ["snapshot", "penalties", str(snapshot.path), "--out", str(tmp_path)]
    for of_model in runs:
        command += ["--answers", str(of_model.path)]
    before = {path: path.read_bytes() for path in snapshot.path.rglob("*.*")}
    assert run([*command, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answered cases"]["calls"] == 1
    assert run([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (proposal,) = report["proposals"]
    assert (report["cases"], report["unread"]) == (1, [])
    assert (proposal["case_id"], proposal["criterion"]) == ("a", DOUBLES)
    assert [model for model, _ in proposal["quotes"]] == list(SAID)
    assert run(command) == 0
    assert "medlive review edit CASE" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before
    inside = [*command[:3], "--out", str(snapshot.path / "x"), *command[5:]]
    assert run(inside) == 2
