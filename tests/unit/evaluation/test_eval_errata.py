"""Errata in scores: what was withdrawn is told, or left out as if the snapshot had never held it."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from medlive.cli.main import build
from medlive.errors import BadInput, CheckFailed
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    CaseSet,
    EvaluationCase,
    Grade,
)
from medlive.evaluation.runs.folder import (
    CasesUse,
    ModelUse,
    RunFolder,
    RunInfo,
    TemplateUse,
    create_run,
)
from medlive.evaluation.scoring.errata import (
    ErrataMode,
    ErrataUse,
    RunErrata,
    affected_parts,
)
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.score import (
    score_runs,
)
from medlive.grader.judge import Mode
from medlive.integrity.digest import digest_file
from medlive.integrity.signing import PublicKey, SecretKey, generate, sign
from medlive.report.tables import scores_json
from medlive.snapshot.errata import (
    Errata,
    Erratum,
    WithdrawalKind,
    load_errata,
    trusted_comment,
    write_errata_file,
)
from tests.unit.evaluation.conftest import AT, Judge, Model, make_cases, verdict

pytestmark = pytest.mark.whole

CASES, CRITERIA = 6, 3


def named_cases(n: int = CASES) -> tuple[EvaluationCase, ...]:
    """The shared cases with criterion ids as snapshots have them."""
    return tuple(
        replace(
            case,
            criteria=tuple(
                replace(c, id=f"{case.case_id}-c{c.id[1:]}") for c in case.criteria
            ),
        )
        for case in make_cases(n, CRITERIA).cases
    )


def about(
    case_id: str, criterion_id: str | None = None, *, number: int = 1, **changes: Any
) -> Erratum:
    values: dict[str, Any] = {
        "id": number,
        "issued_at": datetime(2026, 11, 21, tzinfo=UTC),
        "kind": WithdrawalKind.ERRATUM,
        "case_id": case_id,
        "criterion_id": criterion_id,
        "reason": "It is wrong.",
        "revision": None if criterion_id is None else 1,
        "snapshots": ("2026.W47",),
        "fixed_in": None,
    }
    return Erratum(**values | changes)


def folder_of(
    cases: tuple[EvaluationCase, ...], name: str = "a", version: str = "2026.W47"
) -> RunFolder:
    use = CasesUse(
        origin="snapshot",
        name=version,
        digest="sha256:0",
        rows="sha256:1",
        count=max(1, len(cases)),
        publishable=True,
        notes=(),
    )
    info = RunInfo(
        created_at=AT,
        code_version="0",
        model=name,
        endpoint=None,
        engine="openai",
        parameters={},
        template=TemplateUse(name="t", digest=None),
        cases=use,
    )
    return RunFolder(Path(name), info, cases)


def graded_of(
    run: RunFolder, verdicts: dict[str, bool | None], answered: set[str]
) -> GradedRun:
    """A run with these verdicts by criterion, in memory."""
    answers = {
        case.case_id: Answer(
            case.case_id,
            AnswerState.OK if case.case_id in answered else AnswerState.FAILED,
            "Rest.",
            "stop",
            "m",
        )
        for case in run.cases
    }
    grades = {
        case.case_id: {
            c.id: Grade(
                case.case_id,
                c.id,
                "",
                verdicts[c.id],
                "",
                "",
                "",
                "",
                "j",
                "openai",
                "j",
                Mode.CRITERION,
                "",
                "judge",
            )
            for c in case.criteria
        }
        for case in run.cases
        if case.case_id in answered
    }
    return GradedRun(run, run.info.model, answers, grades, None, ())


IDS = [case.case_id for case in named_cases()]
PARTS = [c.id for case in named_cases() for c in case.criteria]
VERDICTS = st.fixed_dictionaries(
    {part: st.sampled_from([True, False, None]) for part in PARTS}
)


@settings(max_examples=20, deadline=None)
@given(
    st.sets(st.sampled_from(IDS), max_size=4),
    st.sets(st.sampled_from(PARTS), max_size=8),
    st.tuples(VERDICTS, VERDICTS),
    st.tuples(st.sets(st.sampled_from(IDS)), st.sets(st.sampled_from(IDS))),
    st.sampled_from(Metric),
)
@pytest.mark.thorough
def test_applying_is_scoring_runs_of_a_snapshot_that_never_held_it(
    cases: set[str],
    parts: set[str],
    verdicts: tuple[dict[str, bool | None], dict[str, bool | None]],
    answered: tuple[set[str], set[str]],
    metric: Metric,
) -> None:
    whole = named_cases()
    lessened = [
        replace(case, criteria=tuple(c for c in case.criteria if c.id not in parts))
        for case in whole
        if case.case_id not in cases
    ]
    left = tuple(case for case in lessened if any(c.points > 0 for c in case.criteria))
    entries = [about(case_id) for case_id in sorted(cases)]
    entries += [about(part.rsplit("-", 1)[0], part) for part in sorted(parts)]
    entries += [about("c000", snapshots=("2026.W40",)), about("elsewhere")]
    numbered = tuple(
        entry.model_copy(update={"id": i}) for i, entry in enumerate(entries, start=1)
    )
    full = [folder_of(whole, name) for name in "ab"]
    use = _use(full, Errata(entries=numbered), ErrataMode.APPLY)
    runs = [
        graded_of(f, v, a) for f, v, a in zip(full, verdicts, answered, strict=True)
    ]
    if not left:
        with pytest.raises(CheckFailed):
            score_runs(runs, metric=metric, draws=20, errata=use)
        return
    never = [
        graded_of(folder_of(left, n), v, a)
        for n, v, a in zip("ab", verdicts, answered, strict=True)
    ]
    found = score_runs(runs, metric=metric, draws=20, errata=use)
    expected = score_runs(never, metric=metric, draws=20)
    assert _plain(found) == _plain(expected)
    assert found.tsv() == expected.tsv()
    for run in use.runs:
        assert set(run.cases) == cases
        assert {part for _, part in run.criteria} == {
            p for p in parts if p.rsplit("-", 1)[0] not in cases
        }
        assert len(run.emptied) == len(lessened) - len(left)
    # Warned, the scores are those of the whole runs.
    warned = _use(full, Errata(entries=numbered), ErrataMode.WARN)
    as_is = score_runs(runs, metric=metric, draws=20, errata=warned)
    assert _plain(as_is) == _plain(score_runs(runs, metric=metric, draws=20))


def _use(runs: list[RunFolder], errata: Errata, mode: ErrataMode) -> Any:
    about = [RunErrata(run.info.cases.name, Path("errata.json")) for run in runs]
    return ErrataUse(mode, tuple(affected_parts(runs, about, errata.standing)))


def _plain(table: Any) -> Any:
    named = {
        name: value
        for name, value in scores_json(table).items()
        if name not in ("warnings", "errata")
    }
    # Sums over other rows, some without a score, may differ in their last bit.
    return json.loads(
        json.dumps(named), parse_float=lambda number: round(float(number), 12)
    )


def test_runs_of_two_releases_lose_the_same_and_only_what_theirs_hold() -> None:
    old, new = (
        folder_of(named_cases(), "a", "2026.W46"),
        folder_of(named_cases(), "b", "2026.W47"),
    )
    errata = Errata(
        entries=(
            about("c000", snapshots=("2026.W46",)),
            about(
                "c001",
                "c001-c0",
                number=2,
                snapshots=("2026.W46",),
                fixed_in="2026.W47",
            ),
            about("c002", number=3, snapshots=("2026.W45",)),
        )
    )
    first, second = _use([old, new], errata, ErrataMode.APPLY).runs
    # A case is withdrawn wherever it is; a criterion's id may be another criterion in the later release.
    assert (first.cases, first.criteria) == (("c000",), (("c001", "c001-c0"),))
    assert (second.cases, second.criteria) == (("c000",), ())


def test_a_file_of_cases_has_no_criterion_ids_and_loses_the_whole_case() -> None:
    run = folder_of(named_cases())
    info = run.info.model_copy(
        update={"cases": run.info.cases.model_copy(update={"origin": "livemedbench"})}
    )
    run = replace(run, info=info)
    errata = Errata(entries=(about("c000"), about("c001", "c001-c0", number=2)))
    use = _use([run], errata, ErrataMode.APPLY)
    assert (use.runs[0].cases, use.runs[0].criteria) == (("c000", "c001"), ())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a graded run of two models on a snapshot that lay in `snapshots/`."""
    home = tmp_path_factory.mktemp("home")
    (home / "snapshots").mkdir()

    async def work() -> None:
        for name in ("one", "two"):
            cases = CaseSet(
                named_cases(),
                "snapshot",
                "2026.W47",
                "sha256:" + "0" * 64,
                True,
                snapshots=home / "snapshots",
            )
            out = home / "runs" / name
            await run_model(cases, Model(), out, use=ModelUse(name), created_at=AT)
            await grade_run(
                out,
                Judge(
                    lambda request: verdict(len(request.inputs["criterion"]) % 2 == 1)
                ),
                mode=Mode.CRITERION,
            )

    asyncio.run(work())
    return home


@pytest.fixture
def command(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[dict[str, Any], str]]:
    """`medlive eval score` of both runs: (its JSON, its stderr). Errors are raised."""
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path / "another-home"))
    monkeypatch.chdir(tmp_path)
    (made / "snapshots" / "errata.json").unlink(missing_ok=True)

    def score(*options: str) -> tuple[dict[str, Any], str]:
        words = [
            "eval",
            "score",
            *(str(made / "runs" / name) for name in ("one", "two")),
            "--format",
            "json",
            "--draws",
            "20",
        ]
        done = CliRunner().invoke(
            build(words), [*words, *options], catch_exceptions=True
        )
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return json.loads(done.stdout), done.stderr

    return score


ENTRIES = (
    about("c001"),
    about("c002", "c002-c0", number=2),
    about("c002", "c002-c2", number=3),
)


def test_the_command_warns_applies_or_ignores(
    made: Path, command: Callable[..., tuple[dict[str, Any], str]]
) -> None:
    nothing, _ = command()
    assert nothing["errata"]["mode"] == "warn"
    assert [run["file"] for run in nothing["errata"]["runs"]] == [None, None]
    assert nothing["warnings"] == []
    written = write_errata_file(made / "snapshots", Errata(entries=ENTRIES), None)
    warned, _ = command()
    assert [
        w for w in warned["warnings"] if w.startswith("one: withdrawn since 2026.W47")
    ] == [
        "one: withdrawn since 2026.W47 was frozen: 1 cases (c001), 2 criteria (c002-c0, c002-c2); "
        "--errata apply leaves them out"
    ]
    assert len(warned["warnings"]) == 2
    # Of case c002 nothing positive is left: it goes too.
    applied, _ = command("--errata", "apply")
    assert [m["rates"]["cases"] for m in applied["models"]] == [CASES - 2] * 2
    assert applied["common_cases"] == CASES - 2
    assert applied["errata"]["mode"] == "apply"
    [one, two] = applied["errata"]["runs"]
    assert (one["model"], two["model"]) == ("one", "two")
    assert (one["file"], one["digest"]) == ("errata.json", digest_file(written))
    assert one["cases"] == ["c001"]
    assert one["emptied"] == ["c002"]
    assert [criterion for _, criterion in one["criteria"]] == [
        "c002-c0",
        "c002-c2",
    ]
    assert any(
        "errata of 2026.W47 applied: without 1 cases (c001), 2 criteria" in w
        for w in applied["warnings"]
    )
    ignored, _ = command("--errata", "ignore")
    assert ignored["warnings"] == []
    assert ignored["errata"] is None
    assert (
        ignored["models"] == warned["models"] == nothing["models"] != applied["models"]
    )


def test_errata_that_cannot_be_used_are_an_error(
    made: Path, tmp_path: Path, command: Callable[..., tuple[dict[str, Any], str]]
) -> None:
    with pytest.raises(BadInput):
        command("--errata-file", str(tmp_path / "missing.json"))
    errata = Errata(entries=ENTRIES)
    path = write_errata_file(tmp_path / "elsewhere", errata, None)
    named, _ = command("--errata", "apply", "--errata-file", str(path))
    assert named["common_cases"] == CASES - 2
    secret, public = generate()
    key = PublicKey.parse(public)
    with pytest.raises(CheckFailed):
        command("--errata-file", str(path), "--public-key", key.line())
    write_errata_file(
        path.parent,
        errata,
        lambda data: sign(data, SecretKey.parse(secret), trusted_comment(errata), "x"),
    )
    checked, _ = command("--errata-file", str(path), "--public-key", key.line())
    assert checked["errata"]["runs"][0]["key"] == key.id_text()
    assert load_errata(path, public_key=key) == errata
    beside = made / "snapshots" / "errata.json"
    beside.write_bytes(b"{}")
    for options in ((), ("--errata", "apply")):
        with pytest.raises(BadInput):
            command(*options)
    ignored, _ = command("--errata", "ignore")
    assert ignored["errata"] is None


def test_errata_of_home_are_taken_where_the_snapshot_has_none_beside_it(
    tmp_path: Path, command: Callable[..., tuple[dict[str, Any], str]]
) -> None:
    write_errata_file(
        tmp_path / "another-home" / "snapshots", Errata(entries=ENTRIES), None
    )
    applied, _ = command("--errata", "apply")
    assert applied["common_cases"] == CASES - 2


def test_where_the_snapshot_lay_is_a_hint_and_not_what_a_run_is(tmp_path: Path) -> None:
    cases = CaseSet(
        named_cases(),
        "snapshot",
        "2026.W47",
        "sha256:0",
        True,
        snapshots=tmp_path / "here",
    )
    template = TemplateUse(name="t", digest=None)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    first = create_run(tmp_path / "link" / "run", cases, ModelUse("m"), template, AT)
    assert first.info.snapshots == "../../here"
    moved = replace(cases, snapshots=tmp_path / "there")
    assert (
        create_run(tmp_path / "link" / "run", moved, ModelUse("m"), template, AT).info
        == first.info
    )
    none = create_run(
        tmp_path / "other", replace(cases, snapshots=None), ModelUse("m"), template, AT
    )
    assert none.info.snapshots is None
    # A run of before has no such line.
    written = json.loads((tmp_path / "real" / "run" / "run.json").read_text())
    del written["snapshots"]
    assert RunInfo.model_validate_json(json.dumps(written)) == none.info


def test_a_report_says_what_was_withdrawn() -> None:
    long = RunErrata("2026.W47", cases=tuple(f"c{i:03d}" for i in range(40)))
    [told] = _told(ErrataMode.WARN, long)
    assert "40 cases (c000, c001" in told
    assert "and 35 more" in told
    [none] = _told(ErrataMode.APPLY, RunErrata("2026.W47"))
    assert "no errata of 2026.W47 were found" in none


def _told(mode: ErrataMode, run: RunErrata) -> list[str]:
    return list(ErrataUse(mode, (run,)).warnings(["m"]))
