"""Bundles: the same run makes the same bytes, another party scores them again, and no change goes unnoticed."""

import io
import json
import random
import shutil
import stat
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from medlive.cli.main import build
from medlive.errors import BadInput, CheckFailed, UsageError
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.bundles import leaderboard
from medlive.evaluation.bundles.bundle import make_bundle
from medlive.evaluation.bundles.files import (
    archive,
    write_bundle,
)
from medlive.evaluation.bundles.leaderboard import rank_bundles
from medlive.evaluation.bundles.verify import verify_bundle
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.runs.folder import GRADES, RESPONSES, ModelUse
from medlive.evaluation.scoring.errata import ErrataMode, use_errata
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.refusals import Allow
from medlive.grader.judge import Mode
from medlive.integrity.folder import SIGNATURE
from medlive.integrity.signing import SecretKey, generate
from medlive.snapshot.errata import Errata, Erratum, WithdrawalKind, write_errata_file
from tests.support.bundles import (
    DRAWS,
    FORGERIES,
    Room,
    graded,
    made_room,
    run_json,
    sealed,
)
from tests.support.releases import case, release
from tests.unit.evaluation.conftest import AT, Judge, Model, reply, verdict

pytestmark = pytest.mark.whole

SECRET, PUBLIC = generate()
KEY = SecretKey.parse(SECRET)
OTHER = SecretKey.parse(generate()[0])


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    return made_room(tmp_path_factory.mktemp("bundles"))


def test_a_bundle_verifies_and_its_score_is_equation_1(room: Room) -> None:
    report = room.verify(room.files)
    assert [s.state for s in report.steps] == ["skipped"] + ["passed"] * 9
    assert (report.ok, report.why_not, report.trust) == (True, "", "not signed")
    points = {c.id: c.points for one in room.cases.cases for c in one.criteria}
    by_case: dict[str, list[tuple[float, bool | None]]] = {}
    for line in room.files[GRADES].splitlines():
        row = json.loads(line)
        by_case.setdefault(row["case_id"], []).append(
            (points[row["criterion_id"]], row["met"])
        )
    whole = [
        rows for rows in by_case.values() if all(met is not None for _, met in rows)
    ]
    each = [
        min(
            1.0,
            max(
                0.0, sum(p for p, met in rows if met) / sum(p for p, _ in rows if p > 0)
            ),
        )
        for rows in whole
    ]
    scores = json.loads(room.files["scores.json"])
    assert len(each) == scores["paper"]["overall"]["n"] == 4
    assert scores["paper"]["overall"]["mean"] == round(sum(each) / len(each), 6)
    assert (
        scores["rates"]["unanswered"],
        scores["rates"]["truncated"],
        scores["rates"]["ungraded"],
    ) == (1, 1, 1)
    assert "cases.jsonl" not in room.files
    assert not any(
        b"Drink" in data
        for name, data in room.files.items()
        if name not in (RESPONSES, GRADES)
    )


def test_what_shows_nothing_and_what_no_snapshot_holds_is_no_entry(
    room: Room, tmp_path: Path
) -> None:
    info = room.run.run.info
    raw = replace(
        room.run, run=replace(room.run.run, info=info.model_copy(update={"arm": "raw"}))
    )
    with pytest.raises(UsageError, match="own words"):
        make_bundle(raw, draws=DRAWS)
    shutil.copytree(room.run.run.path, tmp_path / "run")
    log = tmp_path / "run" / GRADES
    rows = [
        json.loads(line) | {"met": None, "quote": ""}
        for line in log.read_text().splitlines()
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UsageError):
        make_bundle(load_graded(tmp_path / "run"), draws=DRAWS)


def test_the_same_run_makes_the_same_bytes_whatever_order_its_logs_are_in(
    room: Room, tmp_path: Path
) -> None:
    shutil.copytree(room.run.run.path, tmp_path / "run")
    rows = (tmp_path / "run" / GRADES).read_bytes().splitlines(keepends=True)
    random.Random(1).shuffle(rows)
    (tmp_path / "run" / GRADES).write_bytes(b"".join(rows))
    again = make_bundle(load_graded(tmp_path / "run"), draws=DRAWS)
    assert again == room.files
    assert archive(again) == archive(room.files)
    out = tmp_path / "b.zip"
    write_bundle(again, out)
    write_bundle(again, out)
    assert not verify_bundle(out, snapshot=room.snapshot).why_not
    for other in (out, tmp_path / "run"):
        with pytest.raises(UsageError):
            write_bundle(make_bundle(room.run, draws=3), other)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.zip", "run"]
    with zipfile.ZipFile(tmp_path / "b.zip") as packed:
        assert {e.filename: packed.read(e) for e in packed.infolist()} == again
        assert {e.date_time for e in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_a_signature_proves_origin_to_whoever_has_the_key(room: Room) -> None:
    signed = make_bundle(room.run, draws=DRAWS, key=KEY)
    assert signed == make_bundle(room.run, draws=DRAWS, key=KEY)
    assert room.verify(signed, public_keys=[KEY.public]).trust == "origin"
    assert room.verify(signed).trust == "integrity"
    stripped = {n: d for n, d in signed.items() if n != SIGNATURE}
    by_other = make_bundle(room.run, draws=DRAWS, key=OTHER)
    for files, keys in (
        (signed, [OTHER.public]),
        (room.files, [KEY.public]),
        (stripped, []),
        (signed | {SIGNATURE: by_other[SIGNATURE]}, []),
        (by_other, [KEY.public]),
    ):
        report = room.verify(files, snapshot=None, public_keys=keys)
        assert report.failed[0].number == 1


def test_every_byte_of_an_archive_counts(room: Room) -> None:
    whole = archive(make_bundle(room.run, draws=DRAWS, key=KEY))
    before = {
        p: p.stat().st_mtime_ns for p in room.root.rglob("*") if p.name != "tried.zip"
    }
    rng = random.Random(7)
    for _ in range(15):
        data = bytearray(whole)
        at, kind = rng.randrange(len(data)), rng.randrange(5)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at : at + rng.randrange(1, 40)]
        elif kind == 2:
            data[at:at] = rng.randbytes(rng.randrange(1, 40))
        elif kind == 3:
            del data[at:]
        else:
            end = min(len(data), at + rng.randrange(2, 60))
            data[at:end] = bytes(reversed(data[at:end]))
        if data != whole:
            assert not room.verify(bytes(data), snapshot=None).ok, (at, kind)
    assert {
        p: p.stat().st_mtime_ns for p in room.root.rglob("*") if p.name != "tried.zip"
    } == before


@pytest.mark.thorough
def test_what_a_forger_changes_is_found_though_every_digest_fits(room: Room) -> None:
    assert room.verify(sealed(room.files)).ok
    rng, tried = random.Random(3), 0
    for _ in range(1):
        for name, mutate in FORGERIES.items():
            forged = mutate(dict(room.files), rng)
            report = room.verify(sealed(forged))
            assert not report.ok, name
            assert report.run is None
            assert all(step.findings for step in report.failed)
            tried += 1
    assert tried == len(FORGERIES)
    assert not list(room.root.parent.rglob("escaped.json"))


def test_an_archive_that_is_made_to_harm_is_refused(room: Room) -> None:
    def packed(
        *extra: tuple[zipfile.ZipInfo | str, bytes], kind: int = zipfile.ZIP_STORED
    ) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", kind) as made:
            for name, data in [*sorted(room.files.items()), *extra]:
                made.writestr(name, data)
        return out.getvalue()

    link = zipfile.ZipInfo("link")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr(GRADES, b"\0" * 10**7)
    bomb = held.getvalue()
    squeezed = packed(kind=zipfile.ZIP_DEFLATED)
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = packed((GRADES, b""))
    crowd = packed(*((f"{n}.json", b"") for n in range(30)))
    for data, told in (
        (packed(("../escaped", b"x")), "../escaped"),
        (packed(("/etc/escaped", b"x")), "/etc/escaped"),
        (packed((link, b"/etc/passwd")), "only the files of a bundle"),
        (packed(("data/", b"")), "only the files of a bundle"),
        (packed(("odd\n\u202ename", b"")), "\\u000a"),
        (squeezed, "compressed"),
        (bomb, "compressed"),
        (twice, "in another form"),
        (crowd, "entries"),
        (archive(room.files) + b"more", "in another form"),
        (b"#!/bin/sh\n" + archive(room.files), "in another form"),
        (archive(room.files)[:-30], "zip"),
        (b"", "zip"),
        (b"PK\3\4" * 1000, "zip"),
    ):
        steps = room.verify(data, snapshot=None).steps
        (found,) = [step for step in steps if step.number == 2]
        assert any(told in str(finding) for finding in found.findings), (told, found)


def test_without_a_snapshot_the_steps_are_skipped_and_it_says_so(
    room: Room, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path))
    report = room.verify(room.files, snapshot=None)
    assert (report.ok, report.complete, report.run) == (True, False, None)
    states = [step.state for step in report.steps]
    # A closed book needs no snapshot to show that it has no evidence.
    assert states == [
        "skipped",
        *["passed"] * 2,
        "skipped",
        "passed",
        *["skipped"] * 5,
    ]
    assert "no snapshot was given" in report.why_not
    with pytest.raises(BadInput):
        verify_bundle(tmp_path / "none.zip")


def test_what_would_mislead_is_no_bundle_unless_it_is_allowed(
    room: Room, tmp_path: Path
) -> None:
    cases = room.run.run.info.cases.model_copy(update={"publishable": False})
    info = room.run.run.info.model_copy(update={"cases": cases})
    run = replace(room.run, run=replace(room.run.run, info=info))
    with pytest.raises(CheckFailed, match="would mislead"):
        make_bundle(run, draws=DRAWS)
    assert make_bundle(run, draws=DRAWS, allow=[Allow.NOT_PUBLISHABLE])
    with pytest.raises(CheckFailed, match="would mislead"):
        make_bundle(replace(room.run, rivals=("judge-2",)), draws=DRAWS)


def test_the_commands_refuse_what_would_mislead_unless_it_is_allowed(
    tmp_path: Path,
) -> None:
    held = [case("ml-0000000000000005", first_release="2026.W47")]
    folder = tmp_path / "medlive-2026.W47"
    snapshot = release(folder, "2026.W47", held, why_not=("made by rules",)).path
    graded(snapshot, tmp_path / "run")
    out = tmp_path / "entry.zip"
    allow = ("--allow", "not-publishable")

    def call(*words: Any) -> Any:
        line = ["eval", *map(str, words)]
        home = {"MEDLIVE_HOME": str(tmp_path / "home")}
        return CliRunner().invoke(build(line), line, env=home)

    make = ("bundle", tmp_path / "run", "--out", out, "--draws", DRAWS)
    verify = ("verify-bundle", out, "--snapshot", snapshot)
    rank = ("leaderboard", out, "--snapshot", snapshot, "--draws", DRAWS)
    assert "would mislead" in str(call(*make).exception)
    assert call(*make, *allow).exit_code == 0
    for line in (verify, rank):
        assert "would mislead" in str(call(*line).exception)
    allowed = call(*rank, *allow)
    assert allowed.exit_code == 4
    assert "MISLEADING" in allowed.output
    refused = call(*verify, "--to-run", tmp_path / "again")
    assert "would mislead" in str(refused.exception)
    assert not (tmp_path / "again").exists()


def test_errata_are_left_out_where_the_snapshot_has_them(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaderboard, "MOST_UNSCORED", 1)
    gone = "ml-0000000000000004"
    entry = Erratum(
        id=1,
        issued_at=datetime(2026, 11, 21, tzinfo=UTC),
        kind=WithdrawalKind.ERRATUM,
        case_id=gone,
        criterion_id=None,
        reason="It is wrong.",
        revision=None,
        snapshots=("2026.W47",),
        fixed_in=None,
    )
    file = write_errata_file(tmp_path, Errata(entries=(entry,)), None)
    use = use_errata([room.run.run], ErrataMode.APPLY, file=file).runs[0]
    files = make_bundle(room.run, draws=DRAWS, left_out=use)
    scores = json.loads(files["scores.json"])
    assert scores["rates"]["cases"] == 5
    assert not room.verify(files, errata_file=file).why_not
    assert [s.number for s in room.verify(files).failed] == [9]
    (found,) = rank_bundles([room.verify(files, errata_file=file)], draws=DRAWS)[0]
    assert found.left_out.cases == (gone,)
    assert found.table.models[0].rates.cases == 5


async def test_verdicts_by_another_model_than_the_pinned_one_are_found(
    room: Room, tmp_path: Path
) -> None:
    await run_model(
        room.cases, Model(), tmp_path / "run", use=ModelUse("cand-1"), created_at=AT
    )
    judge = Judge(lambda _: reply(verdict(True), model="judge-2"))
    judge.pinned = False
    await grade_run(tmp_path / "run", judge, mode=Mode.CRITERION)
    report = room.verify(make_bundle(load_graded(tmp_path / "run"), draws=DRAWS))
    assert [(s.number, s.findings[0].got) for s in report.failed] == [
        (8, "verdicts by judge-2")
    ]


def test_a_bundle_names_a_version_and_no_path_of_this_machine(room: Room) -> None:
    forged = run_json(lambda v: v["cases"].update(name=str(room.snapshot)))(
        dict(room.files), random.Random(1)
    )
    (step,) = [
        s for s in room.verify(sealed(forged), snapshot=None).failed if s.number == 4
    ]
    assert step.findings[0].file == "run.json"
    assert "is not a snapshot version" in step.findings[0].got


def test_another_snapshot_than_the_one_named_is_found(
    room: Room, tmp_path: Path
) -> None:
    other = release(
        tmp_path / "medlive-2026.W47",
        "2026.W47",
        [case("ml-0000000000000001", first_release="2026.W47")],
    )
    assert room.verify(room.files, snapshot=other.path).failed[0].number == 4
    spoilt = tmp_path / "spoilt"
    shutil.copytree(room.snapshot, spoilt)
    (spoilt / "data" / "cases.jsonl").chmod(0o644)
    (spoilt / "data" / "cases.jsonl").write_bytes(b"")
    step = room.verify(room.files, snapshot=spoilt).failed[0]
    assert (step.number, step.findings[0].file) == (4, "spoilt")


@pytest.mark.thorough
def test_the_commands_tell_it_in_words_and_exit_statuses(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaderboard, "MOST_UNSCORED", 0.5)
    (tmp_path / "medlive.key").write_text(SECRET)
    (tmp_path / "medlive.key").chmod(0o600)
    (tmp_path / "medlive.pub").write_text(PUBLIC)
    out = tmp_path / "entry.zip"
    home = {"MEDLIVE_HOME": str(tmp_path / "home")}
    monkeypatch.chdir(room.snapshot.parent)

    def call(*words: Any) -> Any:
        line = ["eval", *map(str, words)]
        return CliRunner().invoke(build(line), line, env=home)

    made = call(
        "bundle",
        room.run.run.path,
        "--out",
        out,
        "--signing-key",
        tmp_path / "medlive.key",
        "--draws",
        20,
    )
    assert made.exit_code == 0, made.output
    good = call(
        "verify-bundle", out, "--public-key", tmp_path / "medlive.pub", "--json"
    )
    assert json.loads(good.stdout)["trust"] == "origin"
    assert (good.exit_code, call("verify-bundle", out).exit_code) == (0, 0)
    (tmp_path / "other.pub").write_text(generate()[1])
    keys = ("--public-key", tmp_path / "other.pub")
    assert call("verify-bundle", out, *keys).exit_code == 1
    assert (
        call(
            "verify-bundle", out, *keys, "--public-key", tmp_path / "medlive.pub"
        ).exit_code
        == 0
    )
    write_bundle(room.files, tmp_path / "unsigned.zip")
    unsigned = call("verify-bundle", tmp_path / "unsigned.zip")
    assert unsigned.exit_code == 4
    assert "Unsigned: its origin cannot be verified" in unsigned.stderr
    assert call("verify-bundle", tmp_path / "unsigned.zip", *keys).exit_code == 1
    assert call("leaderboard", tmp_path / "unsigned.zip").exit_code == 4
    again = call(
        "verify-bundle", out, "--snapshot", "2026.W47", "--to-run", tmp_path / "run"
    )
    assert again.exit_code == 0, again.output
    assert load_graded(tmp_path / "run").met == room.run.met
    assert isinstance(
        call("verify-bundle", out, "--snapshot", "nowhere").exception, BadInput
    )
    ranked = call("leaderboard", out, "--draws", 20, "--json")
    (ranking,) = json.loads(ranked.stdout)["rankings"]
    assert [m["model"] for m in ranking["scores"]["models"]] == ["cand-1"]
    out.write_bytes(out.read_bytes()[:-1])
    assert call("verify-bundle", out).exception is not None
    nothing = call("leaderboard", out)
    assert nothing.exception is not None
    assert "step 1" in nothing.stdout
