"""What a run is: its part of the cases, its arm, whether the snapshot was verified; runs of yesterday go on."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.errors import BadInput, CheckFailed, UsageError
from medlive.evaluation.asking.run import plan_run, run_model
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.cases.selection import Selection, day_of, select
from medlive.evaluation.model import CaseSet, EvaluationCase
from medlive.evaluation.runs.folder import ModelUse, TemplateUse, create_run, open_run
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.score import score_runs
from tests.support.releases import case, release
from tests.unit.evaluation.conftest import AT, USE, Model, make_cases

CASES = make_cases(24)


def mixed() -> CaseSet:
    cases = tuple(
        replace(c, first_release=f"2026.W{40 + i % 3}", source=("a", "b", None)[i % 3])
        for i, c in enumerate(CASES.cases)
    )
    return replace(CASES, cases=cases)


def test_a_part_is_what_its_conditions_say_each_by_itself_and_together() -> None:
    cases = mixed()
    tried: list[tuple[Selection, Callable[[EvaluationCase], bool]]] = [
        (Selection(language=["zh"]), lambda c: c.language == "zh"),
        (Selection(source=["a", "b"]), lambda c: c.source in ("a", "b")),
        (
            Selection(first_release_after="2026.W40"),
            lambda c: c.first_release in ("2026.W41", "2026.W42"),
        ),
        (
            Selection(first_release=["2026.W42"]),
            lambda c: c.first_release == "2026.W42",
        ),
        (
            Selection(posted_from="2025-06-03"),
            lambda c: (day_of(c) or "") >= "2025-06-03",
        ),
        (
            Selection(posted_before="2025-06-03"),
            lambda c: (day_of(c) or "") < "2025-06-03",
        ),
        (
            Selection(language=["en"], source=["a"]),
            lambda c: c.language == "en" and c.source == "a",
        ),
    ]
    for selection, fits in tried:
        part = select(cases, selection)
        assert part.cases == tuple(c for c in cases.cases if fits(c))
        assert 0 < len(part) < len(cases)
        assert part.selection == selection.as_json()
    assert select(cases, Selection()).selection is None


@given(small=st.integers(1, 30), more=st.integers(0, 30), order=st.randoms())
def test_a_limit_draws_always_the_same_cases_and_smaller_ones_lie_in_larger(
    small: int, more: int, order: object
) -> None:
    shuffled = list(CASES.cases)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    few = select(CASES, Selection(limit=small))
    many = select(replace(CASES, cases=tuple(shuffled)), Selection(limit=small + more))
    assert len(few) == min(small, 24)
    assert {c.case_id for c in few.cases} <= {c.case_id for c in many.cases}
    assert [c.case_id for c in few.cases] == sorted(c.case_id for c in few.cases)


def test_what_leaves_no_case_or_is_no_condition_is_said() -> None:
    with pytest.raises(UsageError, match="language fr"):
        select(CASES, Selection(language=["fr"]))
    for version, said in (
        ("2026.W99", "such as 2026.W47"),
        ("2026-47", "such as 2026.W47"),
    ):
        with pytest.raises(UsageError, match=said):
            Selection(first_release=[version])
    for wrong in (
        {"posted_from": "soon"},
        {"first_release_after": "2026-40"},
        {"limit": 0},
    ):
        with pytest.raises(UsageError):
            Selection(**wrong)


async def test_a_part_is_part_of_what_a_run_is(run_dir: Path) -> None:
    part = select(CASES, Selection(language=["zh"], limit=3))
    await run_model(part, Model(), run_dir, use=USE, created_at=AT)
    assert open_run(run_dir).info.cases.selection == {"language": ["zh"], "limit": 3}
    with pytest.raises(
        UsageError,
        match=r"limit 4$",
    ):
        await run_model(
            select(CASES, Selection(language=["zh"], limit=4)),
            Model(),
            run_dir,
            use=USE,
            created_at=AT,
        )
    again = await run_model(part, Model(), run_dir, use=USE, created_at=AT)
    assert again.calls == 0


async def test_an_arm_is_the_template_s_or_as_it_is_named(
    run_dir: Path, tmp_path: Path
) -> None:
    await run_model(make_cases(1), Model(), run_dir, use=USE, created_at=AT)
    assert open_run(run_dir).info.arm == "closed"
    raw = ModelUse("cand-1", arm="raw")
    await run_model(make_cases(1), Model(), tmp_path / "raw", use=raw, created_at=AT)
    assert open_run(tmp_path / "raw").info.arm == "raw"


async def test_a_run_folder_of_before_goes_on(run_dir: Path) -> None:
    await run_model(make_cases(3), Model(), run_dir, use=USE, created_at=AT)
    info = json.loads((run_dir / "run.json").read_text("utf-8"))
    for name in ("arm", "asked_as", "evidence"):
        del info[name]
    for name in ("verified", "selection"):
        del info["cases"][name]
    (run_dir / "run.json").write_text(json.dumps(info), "utf-8")
    (run_dir / "responses.jsonl").unlink()
    done = await run_model(make_cases(3), Model(), run_dir, use=USE, created_at=AT)
    assert done.calls == 3


async def test_a_snapshot_that_does_not_verify_is_refused_unless_told(
    tmp_path: Path, run_dir: Path
) -> None:
    made = release(tmp_path, "2026.W46", [case("ml-0001"), case("ml-0002")])
    (made.path / "README.md").write_bytes(
        (made.path / "README.md").read_bytes() + b"more\n"
    )
    with pytest.raises(CheckFailed):
        load_cases(made.path)
    loose = load_cases(made.path, verify=False)
    await run_model(loose, Model(), run_dir, use=USE, created_at=AT)
    assert open_run(run_dir).info.cases.verified is False
    assert (
        await run_model(
            replace(loose, verified=True), Model(), run_dir, use=USE, created_at=AT
        )
    ).calls == 0


def test_a_snapshot_s_file_of_cases_is_as_publishable_as_the_snapshot(
    tmp_path: Path,
) -> None:
    made = release(
        tmp_path,
        "2026.W46",
        [case("ml-0001"), case("ml-0002")],
        why_not=("made by the rules engine",),
    )
    file = made.path / "livemedbench.json"
    found = load_cases(file)
    assert (found.publishable, found.notes) == (False, ("made by the rules engine",))
    assert load_cases(made.path).notes == found.notes
    other = file.rename(tmp_path / "mine.json")
    assert load_cases(other).publishable is None
    file.write_bytes(other.read_bytes() + b" ")
    with pytest.raises(CheckFailed):
        load_cases(file)
    assert load_cases(file, verify=False).verified is False


def test_cases_that_are_not_there_are_called_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as failed:
        load_cases(tmp_path / "none.json")
    assert "LiveMedBench's JSON" in (failed.value.hint or "")


@pytest.mark.parametrize(
    ("files", "fits"),
    [
        (["notes.txt"], False),
        (["responses.jsonl"], False),
        (["cases.jsonl", ".run.lock", ".DS_Store"], True),
        ([], True),
    ],
)
async def test_a_folder_of_something_else_is_not_made_a_run(
    tmp_path: Path, files: list[str], fits: bool
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in files:
        (out / name).write_text("mine")
    model = Model()
    if fits:
        assert (
            await run_model(make_cases(1), model, out, use=USE, created_at=AT)
        ).calls == 1
        return
    for command in (
        run_model(make_cases(1), model, out, use=USE, created_at=AT),
        _planned(out),
    ):
        with pytest.raises(UsageError, match=files[0]):
            await command
    assert model.prompts == []
    assert sorted(path.name for path in out.iterdir()) == files


async def _planned(out: Path) -> None:
    await plan_run(make_cases(1), out, use=USE, created_at=AT)


async def test_another_model_under_the_same_name_is_another_run(tmp_path: Path) -> None:
    first = replace(USE, asked_as="vendor/cand-2026-01")
    await run_model(make_cases(1), Model(), tmp_path, use=first, created_at=AT)
    for other in (USE, replace(USE, asked_as="vendor/cand-2026-06")):
        with pytest.raises(UsageError, match="vendor/cand-2026-01"):
            await run_model(make_cases(1), Model(), tmp_path, use=other, created_at=AT)
    assert (
        await run_model(make_cases(1), Model(), tmp_path, use=first, created_at=AT)
    ).calls == 0


def test_the_arm_says_what_stood_before_the_model_whatever_the_template(
    tmp_path: Path,
) -> None:
    pinned = {
        name: TemplateUse(name=name, digest="sha256:" + "1" * 64)
        for name in ("open", "open-book")
    }
    made = {
        (arm, template): create_run(
            tmp_path / f"{arm}-{template}",
            make_cases(1),
            ModelUse("m", arm=arm),
            use,
            AT,
        ).info
        for arm in (None, "raw", "open-book")
        for template, use in pinned.items()
    }
    assert {key for key, info in made.items() if info.raw} == {
        (arm, template) for arm, template in made if arm == "raw"
    }
    assert {key for key, info in made.items() if info.open_book} == {
        (arm, template) for arm, template in made if "open-book" in (arm, template)
    }


async def test_a_run_of_an_earlier_medlive_is_read_as_it_was_meant(
    run_dir: Path,
) -> None:
    await run_model(make_cases(1), Model(), run_dir, use=USE, created_at=AT)
    path = run_dir / "run.json"
    info = json.loads(path.read_text("utf-8"))
    info["cases"]["newer"] = "it is newer than this medlive"
    info["template"]["name"] = "raw"
    path.write_text(json.dumps(info), "utf-8")
    graded = load_graded(run_dir)
    assert graded.info.raw
    warnings = score_runs([graded], draws=2).warnings
    assert any("it is newer than this medlive" in said for said in warnings)


async def test_a_file_of_cases_may_be_renamed_and_may_not_change(
    tmp_path: Path,
) -> None:
    cases = make_cases(1)
    await run_model(cases, Model(), tmp_path, use=USE, created_at=AT)
    moved = replace(cases, name="other.json")
    assert (
        await run_model(moved, Model(), tmp_path, use=USE, created_at=AT)
    ).calls == 0
    with pytest.raises(UsageError, match="digest"):
        await run_model(
            replace(moved, digest="sha256:" + "1" * 64),
            Model(),
            tmp_path,
            use=USE,
            created_at=AT,
        )
