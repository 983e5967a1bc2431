"""Bundles: the same run makes the same bytes, another party scores them again, and no change goes unnoticed."""

import asyncio
import hashlib
import io
import json
import random
import shutil
import stat
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from medlive.cli.main import build
from medlive.errors import BadInput, UsageError
from medlive.evaluation.bundle import ANSWERS, BUNDLE, archive, make_bundle, pretty, sums_of, write_bundle
from medlive.evaluation.bundle_verify import BundleReport, verify_bundle
from medlive.evaluation.cases import load_cases
from medlive.evaluation.errata import ErrataMode, ErrataSearch, use_errata
from medlive.evaluation.grade import grade_run
from medlive.evaluation.graded import GradedRun, load_graded
from medlive.evaluation.leaderboard import rank_bundles
from medlive.evaluation.model import CaseSet, Mode
from medlive.evaluation.run import GRADES, RESPONSES, ModelUse, run_model
from medlive.llm.engine import Finish, Reply, Request
from medlive.snapshot.checks import Trust
from medlive.snapshot.errata import Errata, Erratum, WithdrawalKind, write_errata_file
from medlive.snapshot.folder import SIGNATURE, SUMS
from medlive.snapshot.signing import SecretKey, generate
from tests.support.releases import case, criterion, release
from tests.unit.evaluation.conftest import AT, Judge, Model, reply, verdict

SECRET, PUBLIC = generate(None)
KEY = SecretKey.parse(SECRET, None)
OTHER = SecretKey.parse(generate(None)[0], None)
DRAWS = 20
Files = dict[str, bytes]


@dataclass
class Room:
    """A snapshot, a run on it and its bundle."""

    root: Path
    snapshot: Path
    run: GradedRun
    files: Files
    cases: CaseSet

    def verify(self, files: Files | bytes, **options: Any) -> BundleReport:
        """The report on an archive of these files, or of these bytes."""
        path = self.root / "tried.zip"
        path.write_bytes(files if isinstance(files, bytes) else archive(files))
        return verify_bundle(path, **{"snapshot": self.cases} | options)


def graded(
    snapshot: Path, out: Path, model: str = "cand-1", *, share: float = 0.5, mode: Mode = Mode.CRITERION
) -> GradedRun:
    """A run on a snapshot: one case unanswered, one cut, one with an ungraded criterion, the rest by chance."""
    cases = load_cases(snapshot)
    luck = random.Random(f"{model} {share}")

    def answer(prompt: str) -> Reply:
        if "ml-0000000000000001" in prompt:
            return reply("", model=model)
        finish = Finish.LENGTH if "ml-0000000000000002" in prompt else Finish.STOP
        return reply("Drink water. 请多喝水。", finish, model)

    def one(text: str) -> dict[str, Any]:
        return json.loads(verdict(luck.random() < share))  # type: ignore[no-any-return]

    def grade(request: Request) -> str:
        if mode is Mode.RUBRIC:
            listed = request.inputs["criteria"]
            return json.dumps({"grades": [{"id": c["id"], **one(c["criterion"])} for c in listed]})
        text = request.inputs["criterion"]
        return "?" if text == "Names 3" else json.dumps(one(text))

    async def make() -> None:
        await run_model(cases, Model(answer), out, use=ModelUse(model), created_at=AT)
        await grade_run(out, Judge(grade), mode=mode, concurrency=3)

    asyncio.run(make())
    return load_graded(out)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    root = tmp_path_factory.mktemp("bundles")
    held = []
    for n in range(1, 7):
        case_id = f"ml-{n:016d}"
        rubric = [criterion(case_id, 1, f"Advises {n}"), criterion(case_id, 2, f"Harms {n}", -3),
                  criterion(case_id, 3, f"Names {n}", 2)]  # fmt: skip
        held.append(case(case_id, criteria=tuple(rubric), first_release="2026.W47"))
    snapshot = release(root / "snapshots" / "medlive-2026.W47", "2026.W47", held).path
    run = graded(snapshot, root / "run")
    return Room(root, snapshot, run, make_bundle(run, draws=DRAWS), load_cases(snapshot))


def sealed(files: Files) -> Files:
    """The files as a forger leaves them: every digest fits again."""
    info = json.loads(files[BUNDLE])
    info["files"] = {
        name: {"bytes": len(data), "digest": "sha256:" + hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
        if name not in (BUNDLE, SUMS, SIGNATURE)
    }
    files = {**files, BUNDLE: pretty(info)}
    return files | {SUMS: sums_of({n: d for n, d in files.items() if n not in (SUMS, SIGNATURE)})}


def test_a_bundle_verifies_and_its_score_is_equation_1(room: Room) -> None:
    report = room.verify(room.files)
    assert [s.state.value for s in report.steps] == ["skipped"] + ["passed"] * 11
    assert (report.ok, report.complete, report.trust) == (True, True, Trust.NOT_SIGNED)
    points = {c.id: c.points for one in room.cases.cases for c in one.criteria}
    by_case: dict[str, list[tuple[float, bool | None]]] = {}
    for line in room.files[GRADES].splitlines():
        row = json.loads(line)
        by_case.setdefault(row["case_id"], []).append((points[row["criterion_id"]], row["met"]))
    whole = [rows for rows in by_case.values() if all(met is not None for _, met in rows)]
    each = [
        min(1.0, max(0.0, sum(p for p, met in rows if met) / sum(p for p, _ in rows if p > 0))) for rows in whole
    ]
    scores = json.loads(room.files["scores.json"])
    assert len(each) == scores["paper"]["overall"]["n"] == 4
    assert scores["paper"]["overall"]["mean"] == round(sum(each) / len(each), 6)
    assert (scores["rates"]["unanswered"], scores["rates"]["truncated"], scores["rates"]["ungraded"]) == (1, 1, 1)
    assert "cases.jsonl" not in room.files
    assert not any(b"Drink" in data for name, data in room.files.items() if name not in ANSWERS)


def test_the_same_run_makes_the_same_bytes_whatever_order_its_logs_are_in(room: Room, tmp_path: Path) -> None:
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
        with pytest.raises(UsageError, match="another bundle"):
            write_bundle(make_bundle(room.run, draws=3), out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "b.zip", "run"]
    with zipfile.ZipFile(tmp_path / "b.zip") as packed:
        assert {e.filename: packed.read(e) for e in packed.infolist()} == again
        assert {e.date_time for e in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_a_signature_proves_origin_to_whoever_has_the_key(room: Room) -> None:
    signed = make_bundle(room.run, draws=DRAWS, key=KEY)
    assert signed == make_bundle(room.run, draws=DRAWS, key=KEY)
    assert room.verify(signed, public_key=KEY.public).trust is Trust.ORIGIN
    assert room.verify(signed).trust is Trust.INTEGRITY
    assert room.verify(signed, public_key=OTHER.public).failed[0].number == 1
    assert room.verify(room.files, public_key=KEY.public).failed[0].number == 1
    stripped = {n: d for n, d in signed.items() if n != SIGNATURE}
    assert room.verify(stripped).failed[0].number == 1
    by_other = make_bundle(room.run, draws=DRAWS, key=OTHER)
    assert room.verify(signed | {SIGNATURE: by_other[SIGNATURE]}).failed[0].number == 1
    assert room.verify(by_other, public_key=KEY.public).failed[0].number == 1


def test_every_byte_of_an_archive_counts(room: Room) -> None:
    whole = archive(make_bundle(room.run, draws=DRAWS, key=KEY))
    before = {p: p.stat().st_mtime_ns for p in room.root.rglob("*") if p.name != "tried.zip"}
    rng = random.Random(7)
    for _ in range(80):
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
    assert {p: p.stat().st_mtime_ns for p in room.root.rglob("*") if p.name != "tried.zip"} == before


def lines_of(files: Files, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files[name].splitlines()]


def with_lines(files: Files, name: str, rows: list[dict[str, Any]]) -> Files:
    spelt = [json.dumps(r, ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n" for r in rows]
    return files | {name: "".join(spelt).encode()}


def edited(
    name: str, change: Callable[[list[dict[str, Any]], random.Random], object]
) -> Callable[[Files, random.Random], Files]:
    def mutate(files: Files, rng: random.Random) -> Files:
        rows = lines_of(files, name)
        change(rows, rng)
        return with_lines(files, name, rows)

    return mutate


def set_to(key: str, value: Callable[[Any], Any]) -> Callable[[list[dict[str, Any]], random.Random], object]:
    def change(rows: list[dict[str, Any]], rng: random.Random) -> None:
        row = rng.choice([r for r in rows if r.get("met") is not None or "response" in r])
        row[key] = value(row[key])

    return change


def swapped(rows: list[dict[str, Any]], rng: random.Random) -> None:
    a, b = rng.sample(range(len(rows)), 2)
    rows[a], rows[b] = rows[b], rows[a]


def document(
    name: str, change: Callable[[dict[str, Any], random.Random], object]
) -> Callable[[Files, random.Random], Files]:
    def mutate(files: Files, rng: random.Random) -> Files:
        value = json.loads(files[name])
        change(value, rng)
        return files | {name: pretty(value)}

    return mutate


def nudge(value: Any, rng: random.Random) -> None:
    """Change one number of a document."""
    places: list[tuple[Any, Any]] = []
    pending = [value]
    while pending:
        one = pending.pop()
        for key, item in one.items() if isinstance(one, dict) else enumerate(one):
            if isinstance(item, dict | list):
                pending.append(item)
            elif (
                isinstance(item, int | float)
                and not isinstance(item, bool)
                and key not in ("format_version", "level")
            ):
                places.append((one, key))
    holder, key = rng.choice(places)
    holder[key] += 1 if isinstance(holder[key], int) else 0.000001


def both(change: Callable[[dict[str, Any]], object]) -> Callable[[Files, random.Random], Files]:
    """The same change to run.json and bundle.json, so that they agree."""

    def mutate(files: Files, rng: random.Random) -> Files:
        for file in ("run.json", BUNDLE):
            value = json.loads(files[file])
            change(value)
            files = files | {file: pretty(value)}
        return files

    return mutate


FORGERIES: dict[str, Callable[[Files, random.Random], Files]] = {
    "an answer": edited(RESPONSES, set_to("response", lambda v: v + " Also rest.")),
    "an answer's case": edited(RESPONSES, set_to("case_id", lambda _: "ml-9999999999999999")),
    "an answer's state": edited(RESPONSES, set_to("state", lambda v: "failed" if v != "failed" else "ok")),
    "no answer": edited(RESPONSES, lambda rows, rng: rows.pop(rng.randrange(1, len(rows)))),
    "an answer twice": edited(RESPONSES, lambda rows, rng: rows.append(rng.choice(rows))),
    "answers out of order": edited(RESPONSES, swapped),
    "an answer's field": edited(RESPONSES, lambda rows, rng: rng.choice(rows).update(bonus=1)),
    "an answer that is no text": edited(RESPONSES, set_to("response", lambda _: 5)),
    "a verdict": edited(GRADES, set_to("met", lambda v: not v)),
    "a verdict that is no boolean": edited(GRADES, set_to("met", lambda v: 1 if v else "yes")),
    "a verdict undone": edited(GRADES, set_to("met", lambda _: None)),
    "a quote": edited(GRADES, set_to("quote", lambda _: "Take antibiotics")),
    "a reasoning": edited(GRADES, set_to("reasoning", lambda _: "It is met.")),
    "a key": edited(GRADES, set_to("key", lambda v: v[:-1] + ("0" if v[-1] != "0" else "1"))),
    "a verdict's case": edited(GRADES, set_to("case_id", lambda _: "ml-0000000000000001")),
    "a verdict's criterion": edited(GRADES, set_to("criterion_id", lambda v: v[:-1] + str(int(v[-1]) % 3 + 1))),
    "a verdict's grader": edited(GRADES, set_to("grader", lambda _: "judge-2")),
    "a verdict's judge": edited(GRADES, set_to("judge", lambda _: "sha256:" + "0" * 64)),
    "a verdict's prompt": edited(GRADES, set_to("prompt", lambda _: "sha256:" + "0" * 64)),
    "a verdict's mode": edited(GRADES, set_to("mode", lambda _: "rubric")),
    "no verdict": edited(GRADES, lambda rows, rng: rows.pop(rng.randrange(len(rows)))),
    "a verdict twice": edited(GRADES, lambda rows, rng: rows.append(rng.choice(rows))),
    "verdicts out of order": edited(GRADES, swapped),
    "a number of the scores": document("scores.json", nudge),
    "another number of the scores": document("scores.json", nudge),
    "a month table": document("scores.json", lambda v, _: v["published"].update(table="Date\tcand-1\t# case\n")),
    "a rate left out": document("scores.json", lambda v, _: v["rates"].pop("ungraded")),
    "a warning left out": document("scores.json", lambda v, _: v.update(warnings=["none"])),
    "a million draws": document("scores.json", lambda v, _: v["bootstrap"].update(draws=10**6)),
    "draws that are none": document("scores.json", lambda v, _: v.update(bootstrap=["x"])),
    "a hard case left out": document(
        "scores.json",
        lambda v, rng: v.update(
            errata={
                "mode": "apply",
                "withdrawn_cases": [f"ml-000000000000000{rng.randrange(1, 7)}"],
                "withdrawn_criteria": [],
            }
        ),
    ),
    "errata that are none": document("scores.json", lambda v, _: v.update(errata=[{}])),
    "a case's digest": document("cases.json", lambda v, rng: rng.choice(v["cases"]).__setitem__(1, "sha256:0")),
    "a case left out": document("cases.json", lambda v, rng: v["cases"].pop(rng.randrange(6))),
    "a case twice": document("cases.json", lambda v, rng: v["cases"].append(rng.choice(v["cases"]))),
    "cases that are none": document("cases.json", lambda v, _: v.update(cases=5)),
    "another snapshot's digest": both(lambda v: v["cases"].update(digest="sha256:" + "0" * 64)),
    "another snapshot's name": both(lambda v: v["cases"].update(name="2026.W46")),
    "a part of the cases": both(lambda v: v["cases"].update(selection={"limit": 3})),
    "a selection that is none": both(lambda v: v["cases"].update(selection={"limit": "x"})),
    "a model in bundle.json alone": document(BUNDLE, lambda v, _: v.update(model="cand-2")),
    "a grader in bundle.json": document(BUNDLE, lambda v, _: v["grader"].update(model="judge-9")),
    "another judge": document(BUNDLE, lambda v, _: v["grader"].update(judge="sha256:" + "1" * 64)),
    "answers denied": document(BUNDLE, lambda v, _: v.update(answers=False)),
    "a key that is none": document(BUNDLE, lambda v, _: v.update(signing={"key_id": "0", "public_key": "RW"})),
    "a field too many": document(BUNDLE, lambda v, _: v.update(rank=1)),
    "a run's hint": document("run.json", lambda v, _: v.update(snapshots="../x")),
    "a run's template": document("run.json", lambda v, _: v["template"].update(name="other")),
    "NaN": lambda files, _: files | {"scores.json": files["scores.json"].replace(b'"n": ', b'"n": NaN, "m": ', 1)},
    "a key twice": lambda files, _: files | {"cases.json": files["cases.json"].replace(b"{", b'{"cases": [],', 1)},
    "deep brackets": lambda files, _: files | {"scores.json": b"[" * 100_000},
    "an empty log": lambda files, _: files | {GRADES: b""},
    "a cut log": lambda files, _: files | {GRADES: files[GRADES][:-9]},
    "Windows line ends": lambda files, _: files | {RESPONSES: files[RESPONSES].replace(b"\n", b"\r\n")},
    "a file too many": lambda files, _: files | {"notes.txt": b"hello"},
    "a file of another folder": lambda files, _: files | {"../../escaped.json": b"{}"},
}


def test_what_a_forger_changes_is_found_though_every_digest_fits(room: Room) -> None:
    assert room.verify(sealed(room.files)).ok
    rng, tried = random.Random(3), 0
    for _ in range(3):
        for name, mutate in FORGERIES.items():
            forged = mutate(dict(room.files), rng)
            if forged == room.files:
                continue
            report = room.verify(sealed(forged))
            assert not report.ok, name
            assert report.run is None
            assert all(step.findings for step in report.failed)
            tried += 1
    assert tried >= 150
    assert not list(room.root.parent.rglob("escaped.json"))


def test_an_archive_that_is_made_to_harm_is_refused(room: Room) -> None:
    def packed(*extra: tuple[zipfile.ZipInfo | str, bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
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
    for data, told in (
        (packed(("../escaped", b"x")), "../escaped"),
        (packed(("/etc/escaped", b"x")), "/etc/escaped"),
        (packed((link, b"/etc/passwd")), "a symbolic link"),
        (packed(("data/", b"")), "a folder"),
        (packed(("odd\n\u202ename", b"")), "\\u000a"),
        (squeezed, "compressed"),
        (bomb, "compressed"),
        (twice, "one entry of that name"),
        (archive(room.files) + b"more", "other bytes"),
        (b"#!/bin/sh\n" + archive(room.files), "other bytes"),
        (archive(room.files)[:-30], "zip"),
        (b"", "zip"),
        (b"PK\3\4" * 1000, "zip"),
    ):
        (found,) = [s for s in room.verify(data).steps if s.number == 2]
        assert any(told in str(finding) for finding in found.findings), (told, found)


def test_a_folder_holds_plain_files_alone(room: Room, tmp_path: Path) -> None:
    write_bundle(room.files, tmp_path / "b")
    (tmp_path / "b" / "more").mkdir()
    (tmp_path / "b" / "data").mkdir()
    (tmp_path / "elsewhere").write_bytes(room.files[GRADES])
    (tmp_path / "b" / GRADES).unlink()
    (tmp_path / "b" / GRADES).symlink_to(tmp_path / "elsewhere")
    report = verify_bundle(tmp_path / "b", snapshot=room.snapshot)
    (step,) = [s for s in report.steps if s.number == 2]
    assert {"more", "data", GRADES} <= {finding.file for finding in step.findings}
    with pytest.raises(BadInput):
        verify_bundle(tmp_path / "none.zip")


def test_without_answers_or_snapshot_the_steps_are_skipped_and_it_says_so(room: Room) -> None:
    bare = make_bundle(room.run, answers=False, draws=DRAWS)
    assert not {*ANSWERS} & set(bare)
    report = room.verify(bare)
    assert (report.ok, report.complete, report.run) == (True, False, None)
    assert [s.number for s in report.steps if s.state.value == "skipped"] == [1, 7, 8, 9, 11, 12]
    assert "without answers" in report.why_not
    spoilt = dict(bare)
    spoilt[RESPONSES] = b""
    assert not room.verify(sealed(spoilt)).ok


def test_rubric_mode_verifies_and_bundles_rank_with_the_others_apart(room: Room, tmp_path: Path) -> None:
    better = graded(room.snapshot, tmp_path / "better", "cand-2", share=0.95)
    rubric = graded(room.snapshot, tmp_path / "rubric", "cand-3", mode=Mode.RUBRIC)
    better_files = make_bundle(better, draws=DRAWS)
    reports = []
    for name, files in (
        ("rubric", make_bundle(rubric, draws=DRAWS)),
        ("first", room.files),
        ("again", make_bundle(room.run, draws=DRAWS + 1)),
        ("better", better_files),
        ("forged", sealed(FORGERIES["a verdict"](dict(room.files), random.Random(1)))),
    ):
        path = tmp_path / f"{name}.zip"
        path.write_bytes(archive(files))
        reports.append(verify_bundle(path, snapshot=room.snapshot))
    assert [r.ok for r in reports] == [True, True, True, True, False]
    found = rank_bundles(reports, draws=DRAWS)
    assert found.table is not None
    means = [m.overall.mean or 0.0 for m in found.table.models]
    assert sorted(m.label for m in found.table.models) == ["cand-1", "cand-2"]
    assert means == sorted(means, reverse=True)
    both_files = (room.files, better_files)
    own = [json.loads(files["scores.json"])["paper"]["overall"]["mean"] for files in both_files]
    assert [round(mean, 6) for mean in means] == sorted(own, reverse=True)
    why = {report.path.stem: text for report, text in found.apart}
    assert "grader is another" in why["rubric"]
    assert why["again"] == "the same run as first.zip"
    assert why["forged"].startswith("step ")


def test_errata_are_left_out_where_the_snapshot_has_them(room: Room, tmp_path: Path) -> None:
    gone = "ml-0000000000000004"
    entry = Erratum(
        id=1, issued_at=datetime(2026, 11, 21, tzinfo=UTC), kind=WithdrawalKind.ERRATUM, case_id=gone,
        criterion_id=None, reason="It is wrong.", revision=None, snapshots=("2026.W47",), fixed_in=None,
    )  # fmt: skip
    file = write_errata_file(tmp_path, Errata(entries=(entry,)), None)
    use = use_errata([room.run.run], ErrataMode.APPLY, ErrataSearch(file)).runs[0]
    files = make_bundle(room.run, draws=DRAWS, errata=(ErrataMode.APPLY, use))
    scores = json.loads(files["scores.json"])
    assert scores["rates"]["cases"] == 5
    assert room.verify(files, errata_file=file).complete
    assert [s.number for s in room.verify(files).failed] == [10]
    found = rank_bundles([room.verify(files, errata_file=file)], draws=DRAWS)
    assert found.left_out.cases == (gone,)
    assert found.table is not None
    assert found.table.models[0].rates.cases == 5


async def test_verdicts_by_another_model_than_the_pinned_one_are_found(room: Room, tmp_path: Path) -> None:
    await run_model(room.cases, Model(), tmp_path / "run", use=ModelUse("cand-1"), created_at=AT)
    judge = Judge(lambda _: reply(verdict(True), model="judge-2"))
    await grade_run(tmp_path / "run", judge, allow_unpinned=True)
    report = room.verify(make_bundle(load_graded(tmp_path / "run"), draws=DRAWS))
    assert [(s.number, s.findings[0].got) for s in report.failed] == [(9, "some of judge-2")]


def test_a_bundle_names_a_version_and_no_path_of_this_machine(room: Room) -> None:
    forged = both(lambda v: v["cases"].update(name=str(room.snapshot)))(dict(room.files), random.Random(1))
    (step,) = room.verify(sealed(forged), snapshot=None).failed
    assert (step.number, step.findings[0].expected) == (5, "the version of a snapshot")


def test_another_snapshot_than_the_one_named_is_found(room: Room, tmp_path: Path) -> None:
    other = release(
        tmp_path / "medlive-2026.W47", "2026.W47", [case("ml-0000000000000001", first_release="2026.W47")]
    )
    assert room.verify(room.files, snapshot=other.path).failed[0].number == 5
    spoilt = tmp_path / "spoilt"
    shutil.copytree(room.snapshot, spoilt)
    (spoilt / "data" / "cases.jsonl").chmod(0o644)
    (spoilt / "data" / "cases.jsonl").write_bytes(b"")
    assert room.verify(room.files, snapshot=spoilt).failed[0].number == 5


def test_the_commands_tell_it_in_words_and_exit_statuses(room: Room, tmp_path: Path) -> None:
    (tmp_path / "medlive.key").write_text(SECRET)
    (tmp_path / "medlive.key").chmod(0o600)
    (tmp_path / "medlive.pub").write_text(PUBLIC)
    out = tmp_path / "entry.zip"
    home = {"MEDLIVE_HOME": str(tmp_path / "home"), "MEDLIVE_SNAPSHOTS": str(room.snapshot.parent)}

    def call(*words: Any) -> Any:
        line = ["eval", *map(str, words)]
        return CliRunner().invoke(build(line), line, env=home)

    made = call(
        "bundle", room.run.run.path, "--out", out, "--signing-key", tmp_path / "medlive.key", "--draws", 20
    )
    assert made.exit_code == 0, made.output
    good = call("verify-bundle", out, "--public-key", tmp_path / "medlive.pub", "--json")
    assert json.loads(good.stdout)["trust"] == "origin"
    ranked = call("leaderboard", out, "--draws", 20, "--json")
    assert [m["model"] for m in json.loads(ranked.stdout)["scores"]["models"]] == ["cand-1"]
    out.write_bytes(out.read_bytes()[:-1])
    assert call("verify-bundle", out).exception is not None
    nothing = call("leaderboard", out)
    assert nothing.exception is not None
    assert "step 1" in nothing.stdout
