"""Forgeries that fit in every digest and score, what gives them away, and what is only told."""

import asyncio
import json
import random
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from medlive.errors import BadInput, UsageError
from medlive.evaluation.asking.open_book import OpenBook
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.bundles import files as bundle_read
from medlive.evaluation.bundles.bundle import find_secret, make_bundle, public_name
from medlive.evaluation.bundles.files import (
    BUNDLE,
    RUN,
    SCORES,
    archive,
    encode_document,
)
from medlive.evaluation.bundles.verdicts import PASSED_OVER
from medlive.evaluation.bundles.verify import BundleReport, unbundle, verify_bundle
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.cases.selection import Selection
from medlive.evaluation.grading.grade import grade_run
from medlive.evaluation.grading.imports import export_run
from medlive.evaluation.runs.folder import GRADES, RESPONSES, ModelUse
from medlive.evaluation.runs.templates import EVIDENCE
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.published import keep_figures
from medlive.evidence.passage import Hit, IndexIdentity, Passage, Phrases, Retriever
from medlive.grader.judge import Mode
from medlive.integrity.digest import digest_bytes
from medlive.llm.ask import Unusable, read_checked
from medlive.llm.engine import Finish, Request
from tests.support.bundles import (
    DRAWS,
    Files,
    Room,
    graded,
    lines_of,
    made_room,
    rescored,
    run_json,
    sealed,
    with_lines,
)
from tests.support.releases import case, criterion, release
from tests.unit.evaluation.conftest import AT, Judge, Model, reply, verdict

pytestmark = pytest.mark.whole

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    return made_room(tmp_path_factory.mktemp("bundles"))


@pytest.fixture(scope="module")
def rubric(room: Room) -> Files:
    return make_bundle(
        graded(room.snapshot, room.root / "rubric", "cand-3", mode=Mode.RUBRIC),
        draws=DRAWS,
    )


class Shelf:
    """One passage for every query, older than the cases."""

    identity = IndexIdentity("bm25", "sha256:1", {"demo": "sha256:2"}, 9)

    async def search(
        self,
        queries: Sequence[Phrases],
        *,
        k: int,
        not_after: date | None = None,
        corpora: Collection[str] | None = None,
    ) -> list[list[Hit]]:
        found = Passage(
            "demo:0:0", "demo", "Title", "", "Text 0", "en", date(2020, 1, 1), "", ""
        )
        return [[Hit(found, 1.0, 1)] for _ in queries]


@pytest.fixture(scope="module")
def opened(room: Room) -> Files:
    async def shelf() -> Retriever:
        return Shelf()

    book = OpenBook("default", 2, False, shelf)
    run = graded(
        room.snapshot,
        room.root / "book",
        "cand-4",
        template="open-book",
        open_book=book,
    )
    return make_bundle(run, draws=DRAWS)


def forged(
    room: Room, files: Files, name: str, change: Callable[[Rows], object]
) -> BundleReport:
    """The report on a bundle with changed rows, its scores worked out anew and every digest fitting."""
    listed = lines_of(files, name)
    change(listed)
    return room.verify(rescored(room, with_lines(files, name, listed)))


def numbers(report: BundleReport) -> list[int]:
    return [step.number for step in report.failed]


def later(rows: Rows) -> dict[str, Any]:
    """An unmet criterion's verdict whose reply stands with another one of its case."""
    return next(row for row in rows if row["met"] is False and not row["raw"])


def test_a_verdict_of_a_reply_that_stands_with_another_one_is_read_there(
    room: Room, rubric: Files
) -> None:
    assert room.verify(rescored(room, rubric)).ok
    assert not any("no reply beside" in note for note in room.verify(rubric).notes)
    quote = {"met": True, "quote": "Drink water", "reasoning": "It does."}
    assert numbers(
        forged(room, rubric, GRADES, lambda rows: later(rows).update(quote))
    ) == [7]
    cached = {**quote, "origin": "cache"}
    assert numbers(
        forged(room, rubric, GRADES, lambda rows: later(rows).update(cached))
    ) == [7]
    ungraded = {"met": None, "reason": "no verdict"}
    shown = next(
        r for r in lines_of(rubric, GRADES) if r["met"] is not None and r["raw"]
    )["key"]
    hidden = forged(
        room,
        rubric,
        GRADES,
        lambda rows: next(r for r in rows if r["key"] == shown).update(ungraded),
    )
    assert numbers(hidden) == [7]
    assert "called ungraded" in str(hidden.failed[0].findings[0])


def test_verdicts_without_a_reply_are_counted(room: Room, rubric: Files) -> None:
    def strip(rows: Rows) -> None:
        for row in rows:
            row["raw"] = "" if row["met"] is not None else row["raw"]

    report = forged(room, room.files, GRADES, strip)
    assert report.ok
    (note,) = [note for note in report.notes if "no stored reply" in note]
    assert "; 14 of 15 verdicts have no stored reply" in note


def test_imported_verdicts_have_neither_quotes_nor_replies(room: Room) -> None:
    rows = lines_of(room.files, GRADES)
    for row in rows:
        row.update(engine="import", raw="", quote="", reasoning="")
    report = room.verify(rescored(room, with_lines(room.files, GRADES, rows)))
    assert report.why_not == ""
    assert any(
        "14 of 15 verdicts have no stored reply" in note or "15 of 15" in note
        for note in report.notes
    )


@pytest.mark.thorough
def test_criteria_of_the_same_words_share_what_a_reply_says_of_one(
    tmp_path: Path,
) -> None:
    case_id = "ml-0000000000000007"
    words = ["Advises rest", "Advises water", "Advises water"]
    rubric = tuple(
        criterion(case_id, place, text) for place, text in enumerate(words, start=1)
    )
    held = case(case_id, criteria=rubric, first_release="2026.W47")
    place = release(tmp_path / "medlive-2026.W47", "2026.W47", [held]).path

    def grade(request: Request) -> str:
        listed = [c["id"] for c in request.inputs["criteria"]]
        met = [json.loads(verdict(number == 1)) for number in range(len(listed))]
        return json.dumps(
            {"grades": [{"id": c, **one} for c, one in zip(listed, met, strict=True)]}
        )

    async def make() -> None:
        model = Model(lambda _: reply("Drink water.", model="m"))
        await run_model(
            load_cases(place), model, tmp_path / "run", use=ModelUse("m"), created_at=AT
        )
        await grade_run(tmp_path / "run", Judge(grade), mode=Mode.RUBRIC)

    asyncio.run(make())
    files = make_bundle(load_graded(tmp_path / "run"), draws=DRAWS)
    (tmp_path / "b.zip").write_bytes(archive(files))
    report = verify_bundle(tmp_path / "b.zip", snapshot=place)
    assert (report.why_not, report.notes) == ("", ())


def test_files_beside_the_run_have_no_say(room: Room, tmp_path: Path) -> None:
    shutil.copytree(room.run.run.path, tmp_path / "run")
    benchmark, _, gradings = export_run(room.run, tmp_path / "files")
    rows = json.loads(gradings.read_bytes())
    for row in rows:
        for entry in row["evaluations"].values():
            entry["score"] = entry["weighted_score"] = 0
    keep_figures(tmp_path / "run", room.run.grader.judge, benchmark, rows)
    assert make_bundle(load_graded(tmp_path / "run"), draws=DRAWS) == room.files


def test_usage_is_numbers(room: Room) -> None:
    bad: list[dict[str, Any]] = [
        {"input_tokens": "x"},
        {"input_tokens": -1},
        {"cost_usd": 1e300},
        {"a": {}},
        {"a": True},
    ]
    for usage in bad:
        rows = lines_of(room.files, RESPONSES)
        rows[0]["usage"] = usage
        files = sealed(with_lines(room.files, RESPONSES, rows))
        assert 3 in numbers(room.verify(files, snapshot=None)), usage


def test_the_graders_excuses_are_those_that_a_judge_gives() -> None:
    for one, start in (
        (reply(verdict(True), model="x"), PASSED_OVER[0]),
        (reply(verdict(True), Finish.LENGTH, "judge-1"), PASSED_OVER[1]),
        (reply(verdict(True), Finish.REFUSAL, "judge-1"), PASSED_OVER[2]),
    ):
        with pytest.raises(Unusable, match=start):
            read_checked(one, "judge-1", "grader", lambda reply: reply)


def test_the_evidence_of_an_open_book_goes_with_it(
    room: Room, opened: Files, tmp_path: Path
) -> None:
    report = room.verify(opened)
    assert report.why_not == ""
    assert opened[EVIDENCE] == (room.root / "book" / EVIDENCE).read_bytes()
    run = unbundle(report, tmp_path / "run")
    book = run.evidence()
    assert book is not None
    assert book.data() == opened[EVIDENCE]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: rows[0].update(date="2026-01-01"), "dated after 2025-03-03"),
        (lambda rows: rows[0].update(date=None), "dated after 2025-03-03"),
        (lambda rows: rows.extend([rows[-1]] * 2), "at most 2 snippets"),
        (lambda rows: rows[0].update(bonus=1), "canonical form"),
        (lambda rows: rows[0].update(title=5), "expected snippets"),
        (lambda rows: rows.pop(), "every case of the run"),
    ],
)
def test_evidence_that_could_not_have_been_is_found(
    room: Room, opened: Files, change: Callable[[Rows], object], told: str
) -> None:
    rows = lines_of(opened, EVIDENCE)
    change(rows)
    files = with_lines(opened, EVIDENCE, rows)

    def fit(value: dict[str, Any]) -> None:
        if "evidence" in value:
            value["evidence"].update(
                rows=digest_bytes(files[EVIDENCE]), snippets=len(rows)
            )

    run = json.loads(files[RUN])
    fit(run)
    report = room.verify(sealed(files | {RUN: encode_document(run)}))
    (step,) = [s for s in report.steps if s.number == 5]
    assert told in " ".join(map(str, step.findings))


def test_an_open_book_without_its_evidence_and_a_closed_one_with_some_fail(
    room: Room, opened: Files
) -> None:
    gone = {name: data for name, data in opened.items() if name != EVIDENCE}
    assert 5 in numbers(room.verify(sealed(gone)))
    assert 5 in numbers(room.verify(sealed(room.files | {EVIDENCE: opened[EVIDENCE]})))
    run = json.loads(opened[RUN])
    for change in ({"arm": "closed"}, {"evidence": None}):
        assert 5 in numbers(
            room.verify(sealed(opened | {RUN: encode_document(run | change)}))
        ), change


def test_a_bundle_says_nothing_of_the_machine(room: Room, tmp_path: Path) -> None:
    use = ModelUse(
        "cand-1",
        endpoint="http://gpu7.corp.example:8000/v1",
        asked_as="/srv/models/cand-1",
    )
    run = graded(room.snapshot, tmp_path / "run", use=use)
    path = tmp_path / "run" / RESPONSES
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    rows[0] |= {
        "reason": "http://gpu7.corp.example:8000/v1: refused (10.0.0.7)",
        "state": "failed",
        "response": "",
    }
    rows[1] |= {
        "model": "/srv/models/cand-1",
        "usage": {"host": "gpu7", "input_tokens": 3},
    }
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = load_graded(tmp_path / "run")
    case_id, grades = next((k, v) for k, v in run.grades.items() if v)
    one = next(iter(grades.values()))
    failed = replace(
        one,
        met=None,
        raw="",
        grader="",
        reason="endpoint: gpu7.corp.example is away",
        quote="",
    )
    run = replace(
        run, known_grades={**run.grades, case_id: {**grades, one.criterion_id: failed}}
    )
    files = make_bundle(run, draws=DRAWS)
    for private in (
        b"gpu7",
        b"10.0.0.7",
        b"/srv",
        b"corp.example",
        str(tmp_path).encode(),
    ):
        assert not [name for name, data in files.items() if private in data], private
    assert b"endpoint: no reply came" in files[GRADES]
    assert find_secret(
        files, {"A_KEY": "Drink water. 请", "NAME": "Drink water. 请"}
    ) == (RESPONSES, "A_KEY")
    assert find_secret(files, {"A_KEY": "water"}) is None
    assert [
        public_name(n) for n in ("/a/b/c-1/", "org/c-1", "C:\\m\\c-1", "~/c-1")
    ] == [
        "c-1",
        "org/c-1",
        "c-1",
        "c-1",
    ]


@pytest.mark.parametrize(
    "parameters",
    [
        {"extra_headers": {"Authorization": "x"}},
        {"apiKey": "x"},
        {"extra_body": {"access_token": "x"}},
        {"extra_body": {"proxy": "http://me:pass@host/"}},
        {"extra_body": {"adapter": "/home/me/adapter"}},
    ],
)
def test_parameters_that_look_like_secrets_are_not_published(
    room: Room, parameters: dict[str, Any]
) -> None:
    info = room.run.run.info.model_copy(update={"parameters": parameters})
    run = replace(room.run, run=replace(room.run.run, info=info))
    with pytest.raises(UsageError):
        make_bundle(run, draws=DRAWS)


def test_parameters_that_look_like_no_secrets_are_published(room: Room) -> None:
    harmless = {"max_tokens": 5, "stop": ["/"], "top_p": 1}
    info = room.run.run.info.model_copy(update={"parameters": harmless})
    run = replace(room.run, run=replace(room.run.run, info=info))
    assert json.loads(make_bundle(run, draws=DRAWS)[RUN])["parameters"] == harmless


@pytest.mark.thorough
def test_the_versions_that_made_it_are_named(room: Room) -> None:
    info = json.loads(room.files[BUNDLE]) | {"code_version": "0.0.9", "numpy": "1.0"}
    files = room.files | {BUNDLE: encode_document(info)}
    report = room.verify(sealed(files))
    assert report.why_not == ""
    made_with = "made with medlive 0.0.9, numpy 1.0, verified with medlive"
    assert any(made_with in note for note in report.notes)
    scores = json.loads(files[SCORES])
    scores["paper"]["overall"]["mean"] += 0.01
    spoilt = room.verify(sealed(files | {SCORES: encode_document(scores)}))
    assert numbers(spoilt) == [10]
    (found,) = spoilt.failed[0].findings
    assert found.file.startswith("scores.json:")
    assert '"mean": ' in found.got
    assert any(made_with in note for note in spoilt.notes)


@pytest.mark.parametrize("name", ["\x1b[2J", "a\u202eb", " ", "a\nb"])
def test_names_that_cannot_be_printed_are_refused_and_spelt_out(
    room: Room, name: str
) -> None:
    rows = [row | {"model": name} for row in lines_of(room.files, GRADES)]
    for files in (
        run_json(lambda v: v.update(model=name))(dict(room.files), random.Random(1)),
        with_lines(room.files, GRADES, rows),
    ):
        report = room.verify(sealed(files), snapshot=None)
        assert numbers(report)
        assert all(
            str(finding).isprintable()
            for step in report.failed
            for finding in step.findings
        )


def test_a_run_of_a_bundle_scores_and_is_graded_as_the_run_it_was_made_of(
    room: Room, tmp_path: Path
) -> None:
    unbundle(room.verify(room.files), tmp_path / "run")
    again = load_graded(tmp_path / "run")
    assert make_bundle(again, draws=DRAWS) == room.files
    with pytest.raises(BadInput):
        unbundle(room.verify(room.files), tmp_path / "run")
    with pytest.raises(UsageError):
        unbundle(room.verify(sealed(room.files | {GRADES: b""})), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_snapshot_is_as_publishable_as_it_says(room: Room) -> None:
    files = run_json(lambda v: v["cases"].update(publishable=False))(
        dict(room.files), random.Random(1)
    )
    assert 4 in numbers(room.verify(sealed(files)))


def test_documents_and_rows_that_would_fill_the_memory_are_not_read(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_read, "BUNDLE_DOCUMENT_BYTES", 100_000)
    assert room.verify(room.files).ok
    many = b'{"a":[' + b"[]," * 50_000 + b"[]]}\n"
    for name in (RUN, GRADES):
        report = room.verify(sealed(room.files | {name: many}))
        (step,) = [s for s in report.steps if s.number == 3]
        assert "100000 bytes" in str(step.findings[0])


def test_a_file_in_another_form_is_named_with_the_place(room: Room) -> None:
    rows = lines_of(room.files, GRADES)
    rows[1]["usage"]["host"] = "gpu7"
    run = json.loads(room.files[RUN]) | {"endpoint": "http://gpu7:8000/v1"}
    for files, file in (
        (with_lines(room.files, GRADES, rows), f"{GRADES}:2"),
        (room.files | {RUN: encode_document(run)}, f"{RUN}:"),
        (
            room.files | {RUN: json.dumps(json.loads(room.files[RUN])).encode()},
            f"{RUN}:1",
        ),
        (room.files | {RUN: room.files[RUN] + b"\n"}, f"{RUN}:"),
        (room.files | {GRADES: room.files[GRADES][:-1]}, f"{GRADES}:"),
        (room.files | {SCORES: room.files[SCORES] + b"\n"}, f"{SCORES}:"),
    ):
        step, *_ = room.verify(sealed(files)).failed
        (finding,) = step.findings
        assert finding.file.startswith(file)


def test_another_snapshot_is_named_though_it_lacks_the_selected_cases(
    room: Room,
) -> None:
    english = Selection(language=["en"])
    run = graded(room.snapshot, room.root / "english", selection=english)
    cases = tuple(replace(case, language="zh") for case in room.cases.cases)
    other = replace(room.cases, digest="sha256:another", cases=cases)
    report = room.verify(make_bundle(run, draws=DRAWS), snapshot=other)
    (step,) = report.failed
    assert [finding.got for finding in step.findings] == ["sha256:another"]


def test_the_canary_is_in_every_row(room: Room) -> None:
    canary = json.loads(room.files[BUNDLE])["canary"]
    assert all(
        row["canary"] == canary
        for name in (RESPONSES, GRADES)
        for row in lines_of(room.files, name)
    )
    for other in ({}, {"canary": "x"}):
        rows = lines_of(room.files, GRADES)
        del rows[0]["canary"]
        rows[0] |= other
        assert 3 in numbers(room.verify(sealed(with_lines(room.files, GRADES, rows))))
