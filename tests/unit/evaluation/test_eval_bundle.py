"""Bundles: the same run makes the same bytes, another party scores them again, and no change goes unnoticed."""

import io
import json
import random
import shutil
import stat
import zipfile
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from medlive.cli.main import build
from medlive.digest import canonical_json
from medlive.errors import BadInput, UsageError
from medlive.evaluation.agreement.settle import settle
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.bundles.bundle import make_bundle
from medlive.evaluation.bundles.files import (
    ANSWERS,
    FINDINGS,
    PROTOCOLS,
    archive,
    encode_document,
    write_bundle,
)
from medlive.evaluation.bundles.leaderboard import rank_bundles
from medlive.evaluation.bundles.verify import verify_bundle
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.model import Mode
from medlive.evaluation.protocols.checklist import Checklist
from medlive.evaluation.protocols.cross_examination import CrossExamine
from medlive.evaluation.protocols.model import Subject
from medlive.evaluation.protocols.pairwise import Pairwise
from medlive.evaluation.protocols.runner import run_protocol
from medlive.evaluation.runs.folder import GRADES, RESPONSES, ModelUse
from medlive.evaluation.scoring.errata import ErrataMode, ErrataSearch, use_errata
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.score import score_runs
from medlive.integrity.checks import Trust
from medlive.integrity.folder import SIGNATURE
from medlive.integrity.signing import SecretKey, generate
from medlive.llm.engine import Request
from medlive.snapshot.errata import Errata, Erratum, WithdrawalKind, write_errata_file
from tests.support.bundles import DRAWS, FORGERIES, Room, both, made_room, sealed
from tests.support.releases import case, release
from tests.support.runs import graded_by
from tests.unit.evaluation.conftest import AT, Judge, Model, reply, verdict

SECRET, PUBLIC = generate(None)
KEY = SecretKey.parse(SECRET, None)
OTHER = SecretKey.parse(generate(None)[0], None)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    return made_room(tmp_path_factory.mktemp("bundles"))


def test_a_bundle_verifies_and_its_score_is_equation_1(room: Room) -> None:
    report = room.verify(room.files)
    assert [s.state.value for s in report.steps] == ["skipped"] + ["passed"] * 13
    assert (report.ok, report.complete, report.trust) == (True, True, Trust.NOT_SIGNED)
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
        b"Drink" in data for name, data in room.files.items() if name not in ANSWERS
    )


def said(request: Request) -> str:
    """A judge's reply to a protocol's question, other ones about other answers; one of them none."""
    inputs = request.inputs
    if "questions" in inputs:
        yes = "yes" if "Drink" in inputs["text"] else "unknown"
        return json.dumps(
            {
                "answers": [
                    {"id": one["id"], "answer": yes} for one in inputs["questions"]
                ]
            }
        )
    if "count" in inputs:
        return json.dumps(
            {"questions": ["Is rest advised?", f"Is {len(inputs['text'])} its length?"]}
        )
    score = 1 + len(str(inputs["reference"])) % 5
    unclear = request.round == 2_000 and "0003" in str(inputs["question"])
    return "No score." if unclear else json.dumps({"reasoning": "Why.", "score": score})


async def test_what_protocols_found_is_verified_from_the_replies(
    room: Room, tmp_path: Path
) -> None:
    material = [Subject.of(room.run)]
    for protocol in (Checklist(), CrossExamine(), Pairwise()):
        if protocol.fits(material):
            judge = Judge(said, model=f"judge of {protocol.name}")
            done = await run_protocol(
                protocol, material, tmp_path, judge, max_retries=0
            )
            assert done.settled > 1
    # A reply about another model's same answer, as a folder of several runs holds it.
    log = tmp_path / "cross-examination.jsonl"
    log.write_text(
        log.read_text().replace("ml-0000000000000006", "ml-0000000000000001")
    )
    files = make_bundle(room.run, draws=DRAWS, protocols=tmp_path)
    assert room.verify(files).complete
    document = json.loads(files[PROTOCOLS])
    assert [one["protocol"] for one in document["protocols"]] == [
        "coverage",
        "checklist",
        "cross-examination",
    ]
    assert [one["judge"] and one["judge"]["model"] for one in document["protocols"]][
        1
    ] == "judge of checklist"
    rows = [json.loads(line) for line in files[FINDINGS].splitlines()]
    scored = next(
        place
        for place, row in enumerate(rows)
        if row["value"] and "score" in row["value"]
    )
    failed = next(place for place, row in enumerate(rows) if row["value"] is None)
    better, unpinned = deepcopy(document), deepcopy(document)
    better["protocols"][1]["figures"] = {"cand-1": 1.0}
    unpinned["protocols"][1]["judge"]["pinned"] = False

    def forged(
        place: int = 0, change: dict[str, Any] | None = None, **other: Any
    ) -> Any:
        changed = [
            row | (change or {}) if place == n else row for n, row in enumerate(rows)
        ]
        text = "".join(
            canonical_json(row) + "\n" for row in other.get("rows", changed)
        ).encode()
        found = {
            **files,
            FINDINGS: text,
            PROTOCOLS: encode_document(other.get("document", document)),
        }
        return room.verify(
            sealed(
                {
                    name: data
                    for name, data in found.items()
                    if name not in other.get("less", ())
                }
            )
        )

    assert forged().ok
    for report, words in (
        (forged(scored, {"value": {"reasoning": "Why.", "score": 5}}), "another value"),
        (
            forged(scored, {"value": None, "reason": "score: no"}),
            "a usable reply that is ungraded",
        ),
        (forged(failed, {"reason": ""}), "an ungraded question without a reason"),
        (forged(scored, {"part": "round 9"}), "another case, part or task"),
        (forged(scored, {"grader": "other"}), "tables[0]"),
        (forged(scored, {"key": "sha256:0"}), "one finding of each question"),
        (forged(scored, {"raw": "", "value": {"score": "much"}}), "tables[0]"),
        (forged(rows=[*rows, rows[0]]), "one finding of each question"),
        (
            forged(rows=[row for row in rows if row["task"] != "controller.answers"]),
            "protocols",
        ),
        (forged(document=better), "protocols[1].figures.cand-1"),
        (forged(document=unpinned), "valid replies"),
        (forged(document={"protocols": 1}), "valid replies"),
    ):
        assert [step.number for step in report.failed] == [14], words
        assert any(words in str(finding) for finding in report.failed[0].findings), (
            report.failed[0].findings
        )
    assert forged(less=[FINDINGS]).failed[0].number == 2
    with pytest.raises(UsageError, match="no judge's reply"):
        make_bundle(room.run, protocols=tmp_path / "none")
    with pytest.raises(UsageError, match="left out"):
        make_bundle(room.run, answers=False, protocols=tmp_path)


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
    with pytest.raises(UsageError, match="every criterion is ungraded"):
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
    for out in (tmp_path / "b.zip", tmp_path / "b"):
        write_bundle(again, out)
        write_bundle(again, out)
        assert verify_bundle(out, snapshot=room.snapshot).complete
        with pytest.raises(UsageError, match="not this bundle"):
            write_bundle(make_bundle(room.run, draws=3), out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "b.zip", "run"]
    with zipfile.ZipFile(tmp_path / "b.zip") as packed:
        assert {e.filename: packed.read(e) for e in packed.infolist()} == again
        assert {e.date_time for e in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_a_signature_proves_origin_to_whoever_has_the_key(room: Room) -> None:
    signed = make_bundle(room.run, draws=DRAWS, key=KEY)
    assert signed == make_bundle(room.run, draws=DRAWS, key=KEY)
    assert room.verify(signed, public_keys=[KEY.public]).trust is Trust.ORIGIN
    assert room.verify(signed).trust is Trust.INTEGRITY
    assert room.verify(signed, public_keys=[OTHER.public]).failed[0].number == 1
    assert room.verify(room.files, public_keys=[KEY.public]).failed[0].number == 1
    stripped = {n: d for n, d in signed.items() if n != SIGNATURE}
    assert room.verify(stripped).failed[0].number == 1
    by_other = make_bundle(room.run, draws=DRAWS, key=OTHER)
    assert room.verify(signed | {SIGNATURE: by_other[SIGNATURE]}).failed[0].number == 1
    assert room.verify(by_other, public_keys=[KEY.public]).failed[0].number == 1


def test_every_byte_of_an_archive_counts(room: Room) -> None:
    whole = archive(make_bundle(room.run, draws=DRAWS, key=KEY))
    before = {
        p: p.stat().st_mtime_ns for p in room.root.rglob("*") if p.name != "tried.zip"
    }
    rng = random.Random(7)
    for _ in range(40):
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
            assert not room.verify(bytes(data)).ok, (at, kind)
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
            if forged == room.files:
                continue
            report = room.verify(sealed(forged))
            assert not report.ok, name
            assert report.run is None
            assert all(step.findings for step in report.failed)
            tried += 1
    assert tried >= 55
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
        (twice, "one entry with that name"),
        (crowd, "entries"),
        (archive(room.files) + b"more", "in another form"),
        (b"#!/bin/sh\n" + archive(room.files), "in another form"),
        (archive(room.files)[:-30], "zip"),
        (b"", "zip"),
        (b"PK\3\4" * 1000, "zip"),
    ):
        (found,) = [s for s in room.verify(data).steps if s.number == 2]
        assert any(told in str(finding) for finding in found.findings), (told, found)


def test_a_folder_holds_plain_files_alone(room: Room, tmp_path: Path) -> None:
    write_bundle(room.files, tmp_path / "b")
    (tmp_path / "b" / "more").mkdir()
    (tmp_path / "elsewhere").write_bytes(room.files[GRADES])
    (tmp_path / "b" / GRADES).unlink()
    (tmp_path / "b" / GRADES).symlink_to(tmp_path / "elsewhere")
    report = verify_bundle(tmp_path / "b", snapshot=room.snapshot)
    (step,) = [s for s in report.steps if s.number == 2]
    assert {"more", GRADES} <= {finding.file for finding in step.findings}
    with pytest.raises(BadInput):
        verify_bundle(tmp_path / "none.zip")


def test_without_answers_or_snapshot_the_steps_are_skipped_and_it_says_so(
    room: Room,
) -> None:
    bare = make_bundle(room.run, answers=False, draws=DRAWS)
    assert not {*ANSWERS} & set(bare)
    report = room.verify(bare)
    assert (report.ok, report.complete, report.run) == (True, False, None)
    assert [s.number for s in report.steps if s.state.value == "skipped"] == [
        1,
        8,
        9,
        10,
        12,
        13,
    ]
    assert "without answers" in report.why_not
    spoilt = dict(bare)
    spoilt[RESPONSES] = b""
    assert not room.verify(sealed(spoilt)).ok


def test_errata_are_left_out_where_the_snapshot_has_them(
    room: Room, tmp_path: Path
) -> None:
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
    use = use_errata([room.run.run], ErrataMode.APPLY, ErrataSearch(file)).runs[0]
    files = make_bundle(room.run, draws=DRAWS, errata=(ErrataMode.APPLY, use))
    scores = json.loads(files["scores.json"])
    assert scores["rates"]["cases"] == 5
    assert room.verify(files, errata_file=file).complete
    assert [s.number for s in room.verify(files).failed] == [11]
    (found,) = rank_bundles(
        [room.verify(files, errata_file=file)], draws=DRAWS, most_unscored=1
    ).rankings
    assert found.left_out.cases == (gone,)
    assert found.table.models[0].rates.cases == 5


async def test_verdicts_by_another_model_than_the_pinned_one_are_found(
    room: Room, tmp_path: Path
) -> None:
    await run_model(
        room.cases, Model(), tmp_path / "run", use=ModelUse("cand-1"), created_at=AT
    )
    judge = Judge(lambda _: reply(verdict(True), model="judge-2"))
    await grade_run(tmp_path / "run", judge, allow_unpinned=True, mode=Mode.CRITERION)
    report = room.verify(make_bundle(load_graded(tmp_path / "run"), draws=DRAWS))
    assert [(s.number, s.findings[0].got) for s in report.failed] == [
        (10, "verdicts by judge-2")
    ]


def test_a_settled_grading_is_verified_without_replies_of_its_own(
    room: Room, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(room.run.run.path, tmp_path / "run"))
    graded_by("second", run, lambda *_: False)
    found = settle(run)
    people = tmp_path / "people.csv"
    rows = [
        f"{case},{criterion},{who},yes"
        for case, criterion in found.open
        for who in ("ann", "bo")
    ]
    people.write_text("\n".join(["case_id,criterion_id,rater,met", *rows]))
    assert settle(run, human=[people]).people == len(found.open) > 1
    report = room.verify(make_bundle(load_graded(run, judge=found.judge), draws=DRAWS))
    assert report.ok
    with pytest.raises(UsageError, match="different engines"):
        score_runs([load_graded(run, judge=found.judge), room.run])


def test_a_bundle_names_a_version_and_no_path_of_this_machine(room: Room) -> None:
    forged = both(lambda v: v["cases"].update(name=str(room.snapshot)))(
        dict(room.files), random.Random(1)
    )
    (step,) = [
        s for s in room.verify(sealed(forged), snapshot=None).failed if s.number == 5
    ]
    assert (step.number, step.findings[0].expected) == (5, "a snapshot version")


def test_another_snapshot_than_the_one_named_is_found(
    room: Room, tmp_path: Path
) -> None:
    other = release(
        tmp_path / "medlive-2026.W47",
        "2026.W47",
        [case("ml-0000000000000001", first_release="2026.W47")],
    )
    assert room.verify(room.files, snapshot=other.path).failed[0].number == 5
    spoilt = tmp_path / "spoilt"
    shutil.copytree(room.snapshot, spoilt)
    (spoilt / "data" / "cases.jsonl").chmod(0o644)
    (spoilt / "data" / "cases.jsonl").write_bytes(b"")
    assert room.verify(room.files, snapshot=spoilt).failed[0].number == 5


def test_the_commands_tell_it_in_words_and_exit_statuses(
    room: Room, tmp_path: Path
) -> None:
    (tmp_path / "medlive.key").write_text(SECRET)
    (tmp_path / "medlive.key").chmod(0o600)
    (tmp_path / "medlive.pub").write_text(PUBLIC)
    out = tmp_path / "entry.zip"
    home = {
        "MEDLIVE_HOME": str(tmp_path / "home"),
        "MEDLIVE_SNAPSHOTS": str(room.snapshot.parent),
    }

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
    (tmp_path / "other.pub").write_text(generate(None)[1])
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
    assert (
        call("leaderboard", tmp_path / "unsigned.zip", "--most-unscored", 0.5).exit_code
        == 4
    )
    again = call(
        "verify-bundle", out, "--snapshot", "2026.W47", "--to-run", tmp_path / "run"
    )
    assert again.exit_code == 0, again.output
    assert load_graded(tmp_path / "run").met == room.run.met
    assert isinstance(
        call("verify-bundle", out, "--snapshot", "nowhere").exception, BadInput
    )
    ranked = call("leaderboard", out, "--draws", 20, "--most-unscored", 0.5, "--json")
    (ranking,) = json.loads(ranked.stdout)["rankings"]
    assert [m["model"] for m in ranking["scores"]["models"]] == ["cand-1"]
    out.write_bytes(out.read_bytes()[:-1])
    assert call("verify-bundle", out).exception is not None
    nothing = call("leaderboard", out)
    assert nothing.exception is not None
    assert "step 1" in nothing.stdout
