"""Documents that a stranger wrote: each reader gives a value or a named problem, and no other exception."""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from medlive.errors import BadInput, MedliveError
from medlive.evaluation.agreement.humans import read_humans
from medlive.evaluation.cases.benchmarks import (
    answer_rows,
    format_of,
    read_benchmark,
)
from medlive.evaluation.cases.livemedbench import read_answers
from medlive.evaluation.grading.imports import _read_gradings
from medlive.evaluation.model import Answer, Grade
from medlive.evaluation.runs.folder import GRADES, RESPONSES, grades_of, open_run
from medlive.evaluation.runs.templates import Evidence
from medlive.integrity.digest import digest_bytes
from medlive.integrity.folder import parse_sums
from medlive.integrity.log import read_log
from medlive.integrity.signing import (
    PublicKey,
    SecretKey,
    check_signature,
    generate,
    sign,
)
from medlive.publishing.download import parse_manifest
from medlive.snapshot.errata import parse_errata, trusted_comment
from medlive.snapshot.load import load_snapshot
from medlive.snapshot.manifest import Ancestor
from medlive.snapshot.verify.steps import verify_snapshot
from medlive.sources.files import ImportedThread, ImportProblem, read_threads
from tests.support.fuzzing import DEEP, altered, as_json, damaged
from tests.support.publishing import a_snapshot
from tests.support.runs import made_cases, made_run

pytestmark = [pytest.mark.security, pytest.mark.thorough]
# A file of the same name is written anew for each example.
same_folder = settings(
    max_examples=settings.default.max_examples // 4,  # of each of many readers
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class Reader(NamedTuple):
    """A reader of a file, and a document that it reads."""

    read: Callable[[Path], Any]
    document: Any
    name: str = "document.json"


def _lines(rows: list[Any]) -> bytes:
    return b"".join(as_json(row) + b"\n" for row in rows)


THREAD = {
    "source": "icliniq",
    "thread_id": "7",
    "url": "https://a.example/7",
    "title": "Knee",
    "language": "en",
    "tags": ["knee"],
    "posted_at": "2026-11-20T10:00:00Z",
    "messages": [
        {
            "role": "patient",
            "author": "a",
            "verified": False,
            "text": "It hurts.",
            "posted_at": "2026-11-20",
        },
        {
            "role": "physician",
            "author": "b",
            "verified": True,
            "text": "Rest.",
            "media": ["image"],
        },
    ],
}
CASE = {
    "case_id": "c1",
    "post_time": "2026-01-02",
    "narrative": "My knee hurts.",
    "core_request": "What now?",
    "doctor_advice": "Rest.",
    "rubric_items": [{"criterion": "Advises rest", "points": 5, "axe": "Accuracy"}],
}
GRADING = {
    "case_id": "c1",
    "model_response": "Rest.",
    "evaluations": [{"criterion": "Advises rest", "met": True}],
}
HEALTHBENCH = {
    "prompt_id": "p1",
    "prompt": [{"role": "user", "content": "My knee hurts."}],
    "rubrics": [{"criterion": "Advises rest", "points": 5, "tags": ["axis:accuracy"]}],
    "example_tags": ["theme:x"],
}
KQA = {
    "Question": "What?",
    "Must_have": ["Rest"],
    "Nice_to_have": ["Ice"],
    "Free_form_answer": "Rest.",
    "Sources": [],
}
LLMEVAL = {"groupCode": 1, "question": "What now?", "sanswer": "Rest.", "round": 1}
RATING = {
    "case_id": "c1",
    "criterion_id": "c1-1",
    "rater": "r",
    "met": True,
    "score": 1.0,
}
ERRATA = {
    "format": "medlive-errata",
    "format_version": 1,
    "entries": [
        {
            "id": 1,
            "issued_at": "2026-11-20T10:00:00Z",
            "kind": "erratum",
            "case_id": "ml-0000000000000001",
            "criterion_id": None,
            "reason": "wrong",
            "revision": None,
            "snapshots": ["2026.W47"],
            "fixed_in": None,
        }
    ],
}
LATEST = {"version": "2026.W47", "digest": "sha256:" + "0" * 64}


def threads(path: Path) -> None:
    for row in read_threads(path, handle_key=b"k" * 32):
        assert isinstance(row, ImportedThread | ImportProblem)


def responses(path: Path) -> None:
    rows = answer_rows(path, "livemedbench", [])
    read_answers(rows, path.name, "m", [])


def errata(path: Path) -> None:
    found = parse_errata(path.read_bytes())
    trusted_comment(found)
    found.text().encode("utf-8")


def benchmark(path: Path) -> None:
    read_benchmark(path, format_of(path))


READERS: dict[str, Reader] = {
    "threads": Reader(threads, THREAD, "threads.jsonl"),
    "cases": Reader(lambda path: read_benchmark(path, "livemedbench"), [CASE]),
    "responses": Reader(responses, [{"case_id": "c1", "model_response": "Rest."}]),
    "responses by id": Reader(responses, {"c1": {"response": "Rest."}}),
    "grades": Reader(lambda path: _read_gradings(path, "livemedbench", []), [GRADING]),
    "healthbench": Reader(benchmark, HEALTHBENCH, "cases.jsonl"),
    "kqa": Reader(benchmark, KQA, "cases.jsonl"),
    "answers": Reader(
        lambda path: answer_rows(path, "healthbench", []),
        GRADING,
        "answers.jsonl",
    ),
    "questions": Reader(benchmark, {"a": [LLMEVAL]}),
    "ratings": Reader(read_humans, RATING, "ratings.jsonl"),
    "rating list": Reader(read_humans, [RATING]),
    "errata": Reader(errata, ERRATA),
    "log": Reader(read_log, {"case_id": "c1"}, "log.jsonl"),
}


def _set_digest(run: Path, rows: bytes) -> None:
    """State the digest of these rows in `run.json`, as whoever forges a run does."""
    info = json.loads((run / "run.json").read_bytes())
    info["cases"]["rows"] = digest_bytes(rows)
    (run / "run.json").write_text(json.dumps(info))


def _try(read: Callable[[Path], Any], path: Path) -> None:
    with contextlib.suppress(MedliveError):
        read(path)


@pytest.mark.parametrize("name", READERS)
@same_folder
@given(st.data())
def test_a_document_is_read_or_refused_by_name(
    name: str, tmp_path: Path, data: st.DataObject
) -> None:
    reader = READERS[name]
    whole = as_json(reader.document)
    content = data.draw(
        altered(reader.document).map(as_json) | damaged(whole) | st.binary(max_size=80)
    )
    path = tmp_path / reader.name
    path.write_bytes(content + b"\n" if data.draw(st.booleans()) else content)
    _try(reader.read, path)
    assert os.listdir(tmp_path) == [reader.name]


@pytest.mark.parametrize(
    "content",
    [DEEP.encode(), b"9" * 10_000, b"\xff\xfe[", b"", b"null", b'"\\ud800"', b"NaN"],
)
@pytest.mark.parametrize("name", READERS)
def test_no_reader_fails_on_what_no_document_is(
    name: str, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / READERS[name].name
    for spelt in (
        content,
        b"[" + content + b"]",
        b'{"case_id": ' + content + b"}",
    ):
        path.write_bytes(spelt)
        _try(READERS[name].read, path)


@given(st.data())
def test_lists_of_digests_and_manifests_are_read_or_refused(
    data: st.DataObject,
) -> None:
    sums = b"".join(
        b"0" * 64 + b"  " + name.encode() + b"\n"
        for name in ("manifest.json", "cases.parquet")
    )
    for read, strategy in (
        (parse_sums, damaged(sums)),
        (
            lambda content: parse_manifest(content, "2026.W47"),
            altered(LATEST).map(as_json) | st.binary(max_size=40),
        ),
        (
            lambda content: Ancestor.model_validate_json(content),
            altered(LATEST).map(as_json),
        ),
    ):
        with contextlib.suppress(
            MedliveError, ValueError if read is not parse_sums else MedliveError
        ):
            read(data.draw(strategy))


@given(st.data())
def test_keys_and_signatures_are_read_or_refused(data: st.DataObject) -> None:
    secret_text, public_text = KEYS
    key = SecretKey.parse(secret_text)
    signature = sign(b"data", key, "comment", "comment")
    public = PublicKey.parse(public_text)
    hurt = data.draw(
        damaged(signature.encode()).map(
            lambda raw: raw.decode("utf-8", "surrogateescape")
        )
    )
    with contextlib.suppress(MedliveError):
        assert check_signature(b"data", hurt, public) == "comment"
    for text, parse in (
        (secret_text, SecretKey.parse),
        (public_text, PublicKey.parse),
    ):
        spoilt = data.draw(
            damaged(text.encode()).map(
                lambda raw: raw.decode("utf-8", "surrogateescape")
            )
        )
        with contextlib.suppress(MedliveError):
            parse(spoilt)


KEYS = generate()[:2]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_run(made_cases(3), tmp_path_factory.mktemp("run") / "run", "m", 0.5)


@pytest.mark.parametrize("name", ["run.json", "cases.jsonl", RESPONSES, GRADES])
@same_folder
@given(st.data())
def test_a_run_folder_is_opened_or_refused(
    name: str, run: Path, data: st.DataObject
) -> None:
    path = run / name
    whole = path.read_bytes()
    try:
        if name == "run.json":
            content = data.draw(
                altered(json.loads(whole)).map(as_json) | damaged(whole)
            )
        else:
            first = json.loads(whole.splitlines()[0])
            content = data.draw(altered(first).map(as_json) | damaged(whole))
        path.write_bytes(content)
        if name == "cases.jsonl":
            _set_digest(run, content)
        with contextlib.suppress(MedliveError):
            opened = open_run(run)
            for case in opened.cases:
                case.question.strip()
            answers, _ = opened.answers()
            assert all(isinstance(answer, Answer) for answer in answers.values())
            for grade in grades_of(run / GRADES, []):
                assert isinstance(grade, Grade)
    finally:
        path.write_bytes(whole)
        if name == "cases.jsonl":
            _set_digest(run, whole)


@pytest.mark.parametrize("row", [DEEP, "5", "null", "{}", '{"criteria": 5}'])
def test_no_row_of_a_run_folder_is_an_internal_error(run: Path, row: str) -> None:
    path, whole = run / "cases.jsonl", (run / "cases.jsonl").read_bytes()
    try:
        path.write_text(row)
        _set_digest(run, row.encode())
        with pytest.raises(BadInput):
            open_run(run)
        with pytest.raises(BadInput):
            Evidence.read(row.encode())
    finally:
        path.write_bytes(whole)
        _set_digest(run, whole)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_snapshot(tmp_path_factory.mktemp("snapshots"))


@settings(max_examples=max(settings.default.max_examples // 20, 1))
@given(st.data())
def test_a_snapshot_is_verified_and_loaded_or_refused(
    snapshot: Path, data: st.DataObject
) -> None:
    path = data.draw(
        st.sampled_from(sorted(path for path in snapshot.rglob("*") if path.is_file()))
    )
    whole = path.read_bytes()
    strategy = damaged(whole)
    if path.suffix == ".json":
        strategy |= altered(json.loads(whole)).map(
            lambda value: json.dumps(value, indent=2).encode()
        )
    try:
        path.write_bytes(data.draw(strategy))
        assert verify_snapshot(snapshot).ok == (path.read_bytes() == whole)
        with contextlib.suppress(MedliveError):
            list(load_snapshot(snapshot, verify=False))
    finally:
        path.write_bytes(whole)
