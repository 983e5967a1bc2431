"""`medlive eval score` and `medlive eval contamination` on run folders, as a user calls them."""

import csv
import io
import json
from pathlib import Path

import pytest

from medlive.cli.main import build
from medlive.errors import CheckFailed
from medlive.llm.engine import Usage
from tests.support.instance import Instance
from tests.support.runs import made_cases, made_run

pytestmark = pytest.mark.whole

MODELS = """
[candidates."older"]
cutoff = "2024-06"
cutoff_source = "its model card"
confidence = "stated"
[candidates."newer"]
released = 2025-06-30
"""


def runs_of(root: Path, number: int) -> Path:
    """Runs of three models, of which the registry does not know one, and one asked with evidence too."""
    cases = made_cases(number, months=24)
    made_run(cases, root / "older", "older", 0.6, missing=False)
    made_run(cases, root / "newer", "newer", 0.7, drop=0.4, cutoff="2025-07")
    made_run(cases, root / "book", "newer", 0.7, template="open-book")
    fewer = made_cases(number * 4 // 15, months=24)
    made_run(fewer, root / "stranger", "stranger", 0.5)
    (root / "models.toml").write_text(MODELS, "utf-8")
    return root


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of enough cases to see a drop."""
    return runs_of(tmp_path_factory.mktemp("runs"), 150)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of few cases."""
    return runs_of(tmp_path_factory.mktemp("small"), 30)


def test_score_prints_tables_slices_and_files(instance: Instance, small: Path) -> None:
    runs = [str(small / name) for name in ("older", "newer", "stranger")]
    few = ("--draws", "10")
    own = ("--config", str(small))
    table = instance.here(*own, "eval", "score", *runs, *few)
    assert "own cases" in table.out
    assert "bootstrap of 10 draws, seed 0" in table.out
    assert "--cases common takes the" in table.out
    common = instance.here(
        *own, "eval", "score", *runs, *few, "--cases", "common", "--format", "json"
    )
    scored = {m["model"]: m["overall"]["n"] for m in json.loads(common.out)["models"]}
    assert len(set(scored.values())) == 1
    assert max(scored.values()) <= 8
    cutoff = instance.here(*own, "eval", "score", *runs, *few, "--slice", "cutoff")
    assert "after the cutoff" in cutoff.out
    assert "stranger: cutoff unknown" in cutoff.out
    errors = instance.here(
        *own, "eval", "score", runs[0], *few, "--slice", "errors-by-axis"
    )
    assert "error rate %" in errors.out
    spelt = []
    for name in ("first release", "first_release"):
        done = instance.here(*own, "eval", "score", runs[0], *few, "--slice", name)
        spelt.append(done.out)
    assert spelt[0]
    assert spelt == [spelt[0]] * 2
    printed = instance.here(*own, "eval", "score", runs[0], *few, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(printed.out)))
    assert "first release" in {r["slice"] for r in rows}
    assert (
        instance.here(
            *own, "eval", "score", *runs, *few, "--cases", "common", "--json"
        ).out
        == common.out
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--slice", "colour"), "choose month"),
        (("--format", "xlsx"), "choose table"),
        (("--format", "json", "--slice", "month"), "--slice"),
        (("--cases", "all"), "is not one of"),
        (("--metric", "best"), "is not one of"),
        (("--judge", "nobody"), "judges match 'nobody'"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, tuple) else "",
)
def test_score_refuses_what_it_cannot_do(
    instance: Instance, small: Path, options: tuple[str, ...], said: str
) -> None:
    done = instance.here("eval", "score", str(small / "older"), *options, status=None)
    assert done.status == 2
    assert said in " ".join(done.err.split())
    assert done.out == ""


def test_runs_without_a_grade_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blank = made_run(made_cases(3), tmp_path / "blank", "blank", 0.5)
    (blank / "grades.jsonl").unlink()
    for options in ((), ("--format", "json"), ("--slice", "month")):
        with pytest.raises(CheckFailed):
            called("eval", "score", str(blank), "--draws", "10", *options)
        assert "blank" in capsys.readouterr().out


def called(*words: str) -> None:
    build(words)(list(words), standalone_mode=False)


def test_a_run_given_twice_is_refused_and_one_with_odd_logs_is_named(
    instance: Instance, small: Path, tmp_path: Path
) -> None:
    older = small / "older"
    twice = instance.here("eval", "score", str(older), str(older / "."), status=None)
    assert (twice.status, "more than once" in twice.err) == (2, True)
    run = made_run(made_cases(5), tmp_path / "odd", "odd", 0.5, missing=False)
    with (run / "responses.jsonl").open("a", encoding="utf-8") as log:
        log.write(
            '{"case_id":"nowhere","state":"ok","response":"x","finish_reason":"stop","model":"m"}\n{"case_'
        )
    done = instance.here("eval", "score", str(run), "--draws", "10")
    assert f"{run}: responses.jsonl: case 'nowhere' is not in the cases" in " ".join(
        done.err.split()
    )


@pytest.mark.thorough
def test_contamination_prints_and_writes_what_it_found(
    instance: Instance, folder: Path, tmp_path: Path
) -> None:
    runs = [str(folder / name) for name in ("older", "newer", "book", "stranger")]
    given = ("--draws", "60")
    own = ("--config", str(folder))
    shown = instance.here(*own, "eval", "contamination", *runs, *given)
    assert "unknown" in shown.out
    assert "open book against closed" in shown.out
    assert "stranger: the cutoff is unknown" in shown.err
    found = instance.here(*own, "eval", "contamination", *runs, *given, "--json").json
    newer = next(m for m in found["models"] if m["model"].startswith("newer (newer"))
    assert newer["cutoff"] == {
        "cutoff": "2025-06-30",
        "basis": "released",
        "source": None,
    }
    assert newer["drop"]["low"] > 0.05
    assert newer["p_holm"] < 0.05
    assert newer["held_against"] == ["older"]
    assert (
        newer["post_against_full_set_as_in_the_paper"]["difference"]
        < newer["drop"]["drop"]
    )
    (book,) = found["open_book_against_closed"]
    assert book["cutoff"] is not None
    assert next(m for m in found["models"] if m["model"] == "stranger")["drop"] is None


@pytest.mark.thorough
def test_what_no_model_can_have_seen_is_printed_first(
    instance: Instance, folder: Path, tmp_path: Path
) -> None:
    runs = [str(folder / name) for name in ("older", "newer", "stranger")]
    few = ("--draws", "50")
    own = ("--config", str(folder))
    printed = instance.here(*own, "eval", "score", *runs, *few)
    # The drop of 0.4 past newer's cutoff is planted.
    assert "before it," in printed.out
    assert "p=0" in printed.out
    assert printed.out.index("cases posted after 2025-06-30") < printed.out.index(
        "bootstrap of 50 draws"
    )
    assert "not ranked on cases after every cutoff: stranger" in printed.out
    window = instance.here(
        *own,
        "eval",
        "score",
        runs[0],
        *few,
        "--since",
        "2025-01-01",
        "--until",
        "2025-03-31",
    )
    assert "posted since 2025-01-01 until 2025-03-31" in " ".join(window.out.split())
    for odd in ("yesterday", "20250101", "2025-W01-1"):
        instance.here(*own, "eval", "score", runs[0], "--since", odd, status=2)
    reversed_ = instance.here(
        *own,
        "eval",
        "score",
        runs[0],
        "--since",
        "2025-02-01",
        "--until",
        "2025-01-31",
        status=2,
    )
    assert "no day is since 2025-02-01 until 2025-01-31" in reversed_.err
    instance.here(*own, "eval", "report", *runs, *few, "--out", tmp_path / "report")
    page = (tmp_path / "report" / "index.html").read_text("utf-8")
    assert page.index("On cases posted after 2025-06-30") < page.index("On all cases")
    assert "not ranked on cases after every cutoff: stranger" in page
    assert "before its cutoff, p 0" in page


def test_power_from_runs_and_assumed(instance: Instance, small: Path) -> None:
    seen = json.loads(
        instance.here(
            "eval", "power", str(small / "older"), str(small / "newer"), "--json"
        ).out
    )
    assert seen["spread"] == "seen in 2 runs"
    wide = json.loads(
        instance.here(
            "eval", "power", "--points", "5", "--per-week", "50", "--json"
        ).out
    )
    (row,) = wide["needed"]
    assert row["to tell two models apart"] == 285
    assert row["weeks to tell two models apart"] == 6
    for name, odd in (
        ("points", "0"),
        ("points", "nan"),
        ("spread", "1e300"),
        ("spread", "0"),
        ("per-week", "nan"),
        ("alpha", "0"),
    ):
        instance.here("eval", "power", f"--{name}", odd, status=2)


@pytest.mark.thorough
def test_a_plan_says_whom_to_ask_again(instance: Instance, folder: Path) -> None:
    runs = [str(folder / "older"), str(folder / "newer")]
    said = instance.here("eval", "plan", *runs, "--cases", "50", "--error", "60")
    assert "models to ask again for an error of 60 points: 1" in said.err
    plan = json.loads(
        instance.here(
            "eval", "plan", *runs, "--cases", "50", "--error", "0.01", "--json"
        ).out
    )
    assert [row["answers"] for row in plan["anchors"]] == [50, 50]
    assert plan["models_to_ask_again"] is None
    assert plan["old_cases_to_keep"] is None
    instance.here("eval", "plan", runs[0], "--cases", "50", status=2)


def test_a_plan_has_each_models_own_costs(instance: Instance, tmp_path: Path) -> None:
    cases, runs = made_cases(20), []
    for model, skill, usd in (
        ("cheap", 0.3, 0.001),
        ("dear", 0.8, 0.01),
        ("from a file", 0.5, None),
    ):
        usage = None if usd is None else Usage(cost_usd=usd)
        run = made_run(cases, tmp_path / model, model, skill, usage=usage)
        runs.append(str(run))
    said = instance.here("eval", "plan", *runs, "--cases", "50", "--json")
    usd_of = {row["model"]: row["usd"] for row in json.loads(said.out)["anchors"]}
    assert usd_of == {"cheap": 0.05, "dear": 0.5, "from a file": None}
