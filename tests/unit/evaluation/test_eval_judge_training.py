"""Lines to fine-tune a judge on: what the grader is sent and reads, split by model, and nothing withdrawn."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from medlive.cli.evaluation.group import app
from medlive.errors import UsageError
from medlive.evaluation.agreement.settle import settle
from medlive.evaluation.agreement.training import SPLITS, export_training, split_models
from medlive.evaluation.grading.judge import Judge, Work
from medlive.evaluation.grading.verdict import Verdict, read_criterion, read_rubric
from medlive.evaluation.model import Mode, gradable
from medlive.evaluation.runs.folder import GRADES, open_run
from medlive.evaluation.scoring.errata import ErrataSearch, FoundErrata
from medlive.llm.engine import EngineIdentity
from medlive.llm.fence import render
from medlive.snapshot.errata import Errata, Erratum, WithdrawalKind
from tests.support.runs import graded_by, made_cases, made_run

MODELS = ("a1", "b2", "c3", "d4")


def erratum(case_id: str, number: int, criterion_id: str | None = None) -> Erratum:
    return Erratum.model_construct(
        id=number,
        issued_at=datetime(2026, 11, 22, tzinfo=UTC),
        kind=WithdrawalKind.PRIVACY,
        case_id=case_id,
        criterion_id=criterion_id,
        reason="Names a person.",
        revision=1,
        snapshots=("2026.W47",),
        fixed_in=None,
        reinstated_at=None,
    )


WITHDRAWN: Any = SimpleNamespace(
    find=lambda run: FoundErrata(
        Path("errata.json"),
        Errata.model_construct(
            entries=(erratum("case-0001", 1), erratum("case-0002", 2, "k1"))
        ),
    )
)
NOTHING = ErrataSearch()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four models' runs on four cases, settled: the judges differ on each case's last criterion."""
    root = tmp_path_factory.mktemp("runs")
    made = []
    for n, model in enumerate(MODELS):
        run = made_run(
            made_cases(4), root / model, model, 0.5, missing=False, words=8 * (n + 1)
        )
        (run / GRADES).unlink()
        graded_by("mild", run, lambda _, c: c.id in ("k0", "k4"))
        graded_by("strict", run, lambda _, c: c.id == "k0")
        settle(run)
        made.append(run)
    return made


def read(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    return map(json.loads, (folder / f"{name}.jsonl").read_text().splitlines())


@pytest.mark.parametrize("mode", Mode)
def test_lines_are_the_graders_own_and_its_reader_takes_them(
    runs: list[Path], tmp_path: Path, mode: Mode
) -> None:
    manifest = export_training(runs, tmp_path / "out", NOTHING, mode=mode)
    judge = Judge(EngineIdentity("openai", "any"), mode)
    asked: dict[str, tuple[str, str, list[str]]] = {}
    for path in runs:
        run = open_run(path)
        for case, answer in gradable(run.cases, run.answers()[0]):
            for part in judge.parts(case.criteria[:4]):
                messages = render(judge.request(Work(case, answer, part)))
                asked[json.dumps(messages)] = (
                    run.info.model,
                    answer.response,
                    [c.id for c in part],
                )
    split_of: dict[str, set[str]] = {split: set() for split in SPLITS}
    for split in SPLITS:
        for line in read(tmp_path / "out", split):
            *request, reply = [
                dict(sorted(m.items(), reverse=True)) for m in line["messages"]
            ]
            model, text, ids = asked.pop(json.dumps(request))
            split_of[split].add(model)
            assert reply["role"] == "assistant"
            if mode is Mode.RUBRIC:
                found = read_rubric(reply["content"], ids, text)
                assert {
                    cid: isinstance(v, Verdict) and v.met for cid, v in found.items()
                } == {cid: cid == "k0" for cid in ids}
            else:
                assert read_criterion(reply["content"], text).met is (ids == ["k0"])
    assert asked == {}  # Every settled criterion is in a line
    assert sorted(model for of in split_of.values() for model in of) == sorted(MODELS)
    assert {run["model"]: run["split"] for run in manifest["runs"]} == {
        model: split for split, of in split_of.items() for model in of
    }
    files = manifest["files"]
    assert sum(files[f"{split}.jsonl"]["criteria"] for split in SPLITS) == 4 * 4 * 4
    assert sum(files[f"{split}.jsonl"]["met"] for split in SPLITS) == 4 * 4
    assert manifest["left_out"] == {
        "the judges disagree, and people have not settled it": 16
    }
    assert {row["criterion_id"] for row in read(tmp_path / "out", "left_out")} == {"k4"}
    assert (
        export_training(runs, tmp_path / "out", NOTHING, mode=mode) == manifest
    )  # The same again
    with pytest.raises(UsageError, match="holds something else"):
        export_training(runs, tmp_path / "out", WITHDRAWN, mode=mode)
    export_training(runs, tmp_path / "out", WITHDRAWN, mode=mode, replace=True)


def test_what_is_withdrawn_unreleased_repeated_or_unreadable_is_left_out(
    runs: list[Path], tmp_path: Path
) -> None:
    secret = made_run(
        replace(made_cases(4), publishable=False),
        tmp_path / "secret",
        "e5",
        0.5,
        missing=False,
        words=80,
    )
    # The same answers as a1's by another model, and verdicts without words to show for them.
    twin = made_run(made_cases(4), tmp_path / "twin", "f6", 0.5, missing=False, words=8)
    bare = made_run(
        made_cases(4), tmp_path / "bare", "g7", 0.5, missing=False, words=88
    )
    on_file = replace(made_cases(4), origin="livemedbench", name="cases.json")
    file = made_run(on_file, tmp_path / "file", "h8", 0.5, missing=False, words=96)
    for run in (secret, twin, bare, file):
        for name in ("mild", "strict"):
            graded_by(name, run, lambda _, c: c.id == "k0")
    log = (
        (bare / GRADES)
        .read_text()
        .replace('"quote":"rest the knee"', '"quote":""')
        .replace("先休息", "")
    )
    (bare / GRADES).write_text(log)
    for run in (secret, twin, bare, file):
        settle(run, ("mild", "strict"))
    out = tmp_path / "out"
    manifest = export_training(
        [*runs, secret, twin, bare, file],
        out,
        WITHDRAWN,
        validation=["b2"],
        test=["a1"],
    )
    why = manifest["left_out"]
    assert why["its snapshot is not released"] == 20
    assert why["another run in these files has the same answer"] == 20
    # Of the five runs whose answers are their own, a case of five criteria and a criterion of another; on a file
    # of cases nobody knows which.
    assert why["withdrawn"] == 5 * 5 + 5 + 5
    assert (
        why[
            "the grader's reader refuses the reply: met without words of the answer to show for it"
        ]
        == 3
    )
    assert (
        why[
            "a criterion of its case was withdrawn, and the file of cases does not tell which"
        ]
        == 5
    )
    # Every criterion of every answer is in a line or left out.
    lines = sum(manifest["files"][f"{split}.jsonl"]["criteria"] for split in SPLITS)
    assert lines + manifest["files"]["left_out.jsonl"]["lines"] == 8 * 4 * 5
    written = "".join((out / f"{split}.jsonl").read_text() for split in SPLITS)
    assert open_run(runs[0]).cases[1].narrative not in written
    assert open_run(runs[0]).cases[2].narrative in written
    splits = {run["model"]: run["split"] for run in manifest["runs"]}
    assert splits == {"a1": "test", "b2": "validation", "e5": None} | dict.fromkeys(
        ("c3", "d4", "f6", "g7", "h8"), "train"
    )
    with pytest.raises(UsageError, match="no run is on released cases"):
        export_training([secret], out, NOTHING)


def test_a_run_that_is_not_settled_is_named(runs: list[Path], tmp_path: Path) -> None:
    plain = made_run(made_cases(4), tmp_path / "plain", "h8", 0.5, missing=False)
    with pytest.raises(
        UsageError, match="plain: expected one settled grading, found 0"
    ):
        export_training([*runs, plain], tmp_path / "out", NOTHING)
    assert not (tmp_path / "out").exists()


names = st.sets(st.text("abcdefgh", min_size=1, max_size=3), min_size=3, max_size=30)


@given(names, st.integers(0, 5))
def test_every_model_is_in_one_file_and_no_file_is_empty(
    models: set[str], seed: int
) -> None:
    found = split_models(models, seed=seed)
    assert set(found) == models
    assert set(found.values()) == set(SPLITS)
    assert found == split_models(sorted(models, reverse=True), seed=seed)


@pytest.mark.parametrize(
    ("models", "validation", "test", "fault"),
    [
        ("ab", "", "", "needs answers of three models or more, found a, b"),
        ("abc", "x", "a", "no run is of x"),
        ("abc", "a", "a", "cannot be in both"),
        ("abc", "a", "", "no model is left for test"),
        ("abc", "ab", "c", "no model is left for train"),
    ],
)
def test_a_split_that_cannot_be_is_refused(
    models: str, validation: str, test: str, fault: str
) -> None:
    with pytest.raises(UsageError, match=fault):
        split_models(models, list(validation), list(test))


def test_the_command_says_what_it_wrote(runs: list[Path], tmp_path: Path) -> None:
    words = [
        "judges",
        "export",
        *map(str, runs),
        "--out",
        str(tmp_path / "out"),
        "--seed",
        "1",
    ]
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert json.loads(done.stdout)["files"]["left_out.jsonl"]["lines"] == 16
    assert (
        "validation.jsonl"
        in CliRunner().invoke(app, words, catch_exceptions=False).stdout
    )
