"""A frozen week's rubrics are proved again by any models; what was asked is not asked again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from medlive.__main__ import run
from medlive.errors import UsageError
from medlive.evaluation.proving import (
    CaseProof,
    SnapshotProof,
    prove_snapshot,
)
from medlive.llm.budget import Budget
from medlive.rubric.proof import Figures, Probe
from medlive.snapshot.load import Snapshot
from tests.support.proving import (
    ASKS,
    answer,
    case,
    frozen,
    graded,
    measures,
    probed,
)
from tests.support.scripted import Scripted

STATES, ERROR = "States that it is a cough.", "Denies that a tablet can cause a cough."
TRIVIAL = "States that a cough is a frequent complaint."
FIGURES = Figures(ceiling=0.9, floor=0.1, separation=0.7)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """Three cases: one measures, one pays for what nobody says, one cannot be mended."""
    rows = [
        case("a", (STATES, 5), (ASKS[0], 5), (ERROR, -9)),
        case("b", (STATES, 5), (ASKS[0], 5), (TRIVIAL, 5), (ERROR, -9)),
        replace(
            case("c", (TRIVIAL, 5), (ERROR, -5)),
            ceiling=None,
            floor=None,
            separation=None,
        ),
    ]
    return frozen(rows, tmp_path_factory.mktemp("snapshot"))


def engine(**tasks: Any) -> Scripted:
    replies = {"rubric.probe": probed, "grader.rubric": graded(measures)}
    return Scripted({**replies, **tasks})


def by_id(done: SnapshotProof) -> dict[str, CaseProof]:
    return {proof.case_id: proof for proof in done.cases}


async def test_figures_are_computed_again_and_what_moved_is_said(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    asked = engine()
    done = await prove_snapshot(snapshot, tmp_path, asked, asked)
    proofs = by_id(done)
    assert {i: proof.passed for i, proof in proofs.items()} == {
        "a": True,
        "b": False,
        "c": False,
    }
    assert proofs["a"].frozen == FIGURES
    assert proofs["a"].now == Figures(
        ceiling=1.0, floor=0.0, separation=1.0, ordinary=0.5
    )
    assert proofs["a"].moved == {"ceiling": 0.1, "floor": -0.1, "separation": 0.3}
    assert proofs["c"].moved is None
    assert done.means()["frozen"]["ceiling"] == 0.9
    assert done.means()["now"]["ceiling"] == 0.5556
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report == json.loads(json.dumps(done.as_json()))
    assert (report["passed"], report["failed"], report["unfinished"]) == (1, 2, 0)
    # The report may be passed on; the answers may not.
    assert answer("wrong")[:20] not in json.dumps(report)


async def test_errata_are_proposed_where_they_would_mend(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    asked = engine()
    done = await prove_snapshot(snapshot, tmp_path, asked, asked)
    assert [(p.case_id, p.criterion_id) for p in done.proposals] == [
        ("b", "b-c3"),
        ("c", None),
    ]
    single, whole = done.proposals
    assert "two excellent answers leave out" in single.reason
    assert "does not tell good answers from bad" in whole.reason
    assert single.command.startswith(
        "medlive snapshot withdraw b --kind erratum --criterion b-c3 --reason"
    )


async def test_a_stopped_run_goes_on_and_pays_once(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    asked = engine()
    before = await prove_snapshot(
        snapshot, tmp_path, asked, asked, budget=Budget(max_calls=14), concurrency=1
    )
    assert before.unfinished > 0
    assert any(part.stopped for part in before.work)
    done = await prove_snapshot(snapshot, tmp_path, asked, asked)
    assert done.unfinished == 0
    assert len(asked.requests) == 3 * 2 * len(Probe)
    again = await prove_snapshot(snapshot, tmp_path, asked, asked)
    assert again.cases == done.cases
    assert len(asked.requests) == 3 * 2 * len(Probe)


async def test_an_ungraded_criterion_leaves_the_case_unfinished(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    def forgets(inputs: Any) -> dict[str, Any]:
        return {"grades": graded(measures)(inputs)["grades"][1:]}

    asked = engine(**{"grader.rubric": forgets})
    done = await prove_snapshot(snapshot, tmp_path, asked, asked)
    assert by_id(done)["a"].now is None
    assert by_id(done)["a"].missing == "6 verdicts are missing"
    assert done.proposals == ()


async def test_no_answer_is_written_into_a_snapshot(snapshot: Snapshot) -> None:
    asked = engine()
    with pytest.raises(UsageError):
        await prove_snapshot(snapshot, snapshot.path / "proof", asked, asked)


def test_the_rules_engine_proves_nothing(
    snapshot: Snapshot, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert run(["snapshot", "prove", str(snapshot.path), "--out", out]) == 2
    assert "makes no clinical judgement" in capsys.readouterr().err
