"""Import files of every condition: each line is a thread, or a problem with its line and reason."""

import json
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.db.threads.threads import message_of
from medlive.errors import BadInput
from medlive.sources import files
from medlive.sources.files import (
    ImportedThread,
    ImportProblem,
    ProblemReason,
    read_threads,
)

KEY = b"test-key"
GOOD: dict[str, Any] = {
    "source": "icliniq",
    "thread_id": "a1",
    "url": "https://x.example/a1",
    "title": "Knee pain",
    "language": "en",
    "tags": ["knee pain"],
    "posted_at": "2025-03-01T08:00:00Z",
    "messages": [
        {
            "author": "jane_doe",
            "role": "patient",
            "verified": False,
            "posted_at": None,
            "text": "My knee hurts.",
        },
        {
            "author": "Dr. Who",
            "role": "physician",
            "verified": True,
            "text": "Rest it.",
            "media": ["image"],
        },
    ],
}


def read(
    tmp_path: Path, data: bytes, **options: Any
) -> list[ImportedThread | ImportProblem]:
    path = tmp_path / "threads.jsonl"
    path.write_bytes(data)
    return list(read_threads(path, handle_key=KEY, **options))


def line(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}, ensure_ascii=False).encode() + b"\n"


def one(tmp_path: Path, data: bytes, **options: Any) -> ImportedThread:
    (item,) = read(tmp_path, data, **options)
    assert isinstance(item, ImportedThread), item
    return item


def test_a_thread_is_read_with_hashed_authors(tmp_path: Path) -> None:
    item = one(tmp_path, line(unknown_key=1))
    thread = item.thread
    assert (thread.source, thread.thread_id, thread.language, thread.tags) == (
        "icliniq",
        "a1",
        "en",
        ("knee pain",),
    )
    assert thread.posted_at == datetime(2025, 3, 1, 8, tzinfo=UTC)
    assert [m.id for m in thread.messages] == ["m0", "m1"]
    assert all(m.author.startswith("u_") for m in thread.messages)
    assert "Who" not in repr([m.author for m in thread.messages])
    assert thread.messages[1].media == ("image",)
    assert thread.messages[1].is_advice_source
    assert not item.date_assumed


BAD_IDS = (
    "..",
    ".",
    "../2",
    "1/../2",
    "1/./2",
    "1/..",
    "./1",
    "1//2",
    "/1",
    "1/",
    "1\\..\\2",
    "..\\2",
    "%2e%2e/2",
    "1/%2E./2",
    "1%2f..%2f2",
    "1/ .. /2",
    "1\t/2",
    "1\u202e2",
    "1\x7f",
)
"""Ids that in an address are the way to another thread's page, or show as another id."""


def test_a_stored_role_that_is_none_is_refused() -> None:
    stored = {"id": "m0", "posted_at": None, "media": [], **GOOD["messages"][0]}
    assert message_of(stored).role == "patient"
    with pytest.raises(ValueError, match="'nurse' is not a valid Role"):
        message_of(stored | {"role": "nurse"})


def test_role_words_stay_and_a_missing_author_takes_the_role(tmp_path: Path) -> None:
    messages = [
        {"author": "asker", "role": "patient", "text": "a"},
        {"role": "physician", "text": "b"},
    ]
    assert [
        m.author for m in one(tmp_path, line(messages=messages)).thread.messages
    ] == ["asker", "physician"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"source": "x", \n', "not_json"),
        (b"[1, 2]\n", "invalid"),
        (b"[" * 100_000 + b"\n", "not_json"),
        (line(source=None), "invalid"),
        (line(source="No such Source!"), "invalid"),
        (line(source=3), "invalid"),
        (line(thread_id="q" * 600), "invalid"),
        (line(thread_id=10**600), "invalid"),
        *((line(thread_id=text), "invalid") for text in BAD_IDS),
        (line(posted_at=0), "invalid"),
        (line(posted_at=False), "invalid"),
        (line(posted_at={}), "invalid"),
        (line(posted_at=[]), "invalid"),
        (line(messages={"a": 1}), "invalid"),
        (line(messages=["text"]), "invalid"),
        (line(messages=[{"role": "nurse", "text": "x"}]), "invalid"),
        (line(messages=[{"text": "x"}]), "invalid"),
        (line(messages=[{"role": "patient", "text": 5}]), "invalid"),
        (
            line(messages=[{"role": "patient", "text": "x", "verified": "yes"}]),
            "invalid",
        ),
        (line(tags="cough"), "invalid"),
        (line(posted_at="yesterday"), "invalid"),
        (line(posted_at="0001-01-01T00:00:00+14:00"), "invalid"),
        (line(posted_at=1740816000), "invalid"),
        (b'{"source": "\xff\xff"}\n', "not_json"),
        (
            line(title="咳嗽发烧头痛三天了怎么办").replace("怎".encode(), b"\xe6"),
            "not_json",
        ),
    ],
)
def test_a_bad_line_is_a_problem_and_stops_nothing(
    tmp_path: Path, data: bytes, reason: ProblemReason
) -> None:
    before, problem, after = read(tmp_path, line() + data + line(thread_id="a2"))
    assert isinstance(before, ImportedThread)
    assert isinstance(after, ImportedThread)
    assert after.line == 3
    assert isinstance(problem, ImportProblem)
    assert (problem.line, problem.reason) == (2, reason)
    assert problem.detail
    assert len(problem.excerpt) <= 120


def test_an_overlong_line_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "IMPORT_LINE_BYTES", 5_000)
    found = read(tmp_path, line() + b"x" * 3_000_000 + b"\n" + line(thread_id="a2"))
    assert [getattr(i, "reason", None) for i in found] == [
        None,
        "too_long",
        None,
    ]
    assert [i.line for i in found] == [1, 2, 3]


def test_the_line_end_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "IMPORT_LINE_BYTES", len(line().rstrip(b"\n")))
    for end in (b"", b"\n", b"\r\n"):
        assert one(tmp_path, line().rstrip(b"\n") + end).line == 1
    (problem,) = read(tmp_path, line(title="longer than it may be"))
    assert isinstance(problem, ImportProblem)
    assert problem.reason == "too_long"


def test_an_overlong_line_is_not_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "IMPORT_LINE_BYTES", 5_000)
    (tmp_path / "threads.jsonl").write_bytes(b"x" * 20_000_000 + b"\n" + line())
    tracemalloc.start()
    found = list(read_threads(tmp_path / "threads.jsonl", handle_key=KEY))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [i.line for i in found] == [1, 2]
    assert peak < 5_000_000


def test_five_megabytes_of_text_are_a_thread(tmp_path: Path) -> None:
    messages = [{"role": "patient", "text": "cough " * 900_000}]
    assert (
        len(one(tmp_path, line(messages=messages)).thread.messages[0].text) == 5_400_000
    )


def test_what_postgresql_cannot_hold_is_stripped(tmp_path: Path) -> None:
    data = line(title="A\x00B").replace(
        b"Rest it.", rb"Rest \ud83d\ude00 \udc00it.\u0000"
    )
    item = one(tmp_path, data)
    assert item.thread.title == "AB"
    assert item.thread.messages[1].text == "Rest 😀 it."


def test_surrogate_halves_encoded_one_by_one_are_joined(tmp_path: Path) -> None:
    item = one(
        tmp_path, line().replace(b"Rest it.", b"Rest it. \xed\xa0\xbd\xed\xb8\x80")
    )
    assert item.thread.messages[1].text == "Rest it. 😀"


def test_marks_and_empty_lines(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        b"\xef\xbb\xbf" + line() + b"\r\n \n\x00\n" + line(title="a\tb"),
    )
    assert [type(i) for i in found] == [ImportedThread] * 2
    assert found[1].line == 5


def test_dates_unknown_assumed_future_and_without_a_zone(tmp_path: Path) -> None:
    assert one(tmp_path, line(posted_at=None)).thread.posted_at is None
    assumed = one(
        tmp_path,
        line(posted_at=None),
        assume_posted_at=datetime(2025, 1, 1, tzinfo=UTC),
    )
    assert assumed.thread.posted_at == datetime(2025, 1, 1, tzinfo=UTC)
    assert assumed.date_assumed
    assert one(
        tmp_path, line(), assume_posted_at=datetime(2020, 1, 1, tzinfo=UTC)
    ).thread.posted_at == datetime(2025, 3, 1, 8, tzinfo=UTC)
    assert one(tmp_path, line(posted_at="2999-01-01")).thread.posted_at == datetime(
        2999, 1, 1, tzinfo=UTC
    )
    unzoned = one(tmp_path, line(posted_at="2025-03-01T08:00:00"))
    assert unzoned.thread.posted_at == datetime(2025, 3, 1, 8, tzinfo=UTC)
    assert not unzoned.date_assumed


def test_a_thread_without_messages_or_id_is_kept(tmp_path: Path) -> None:
    assert one(tmp_path, line(messages=None)).thread.messages == ()
    first, second = (one(tmp_path, line(thread_id=None)) for _ in range(2))
    assert first.thread.thread_id == second.thread.thread_id != ""
    assert one(tmp_path, line(thread_id=7)).thread.thread_id == "7"


def test_an_absent_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        list(read_threads(tmp_path / "absent.jsonl", handle_key=KEY))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda c: st.lists(c, max_size=3),
)


@pytest.mark.thorough
@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from(sorted(GOOD)), _JSON), st.binary(max_size=60))
def test_no_line_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any], raw: bytes
) -> None:
    path = tmp_path_factory.mktemp("import") / "threads.jsonl"
    path.write_bytes(line(**changes) + raw.replace(b"\n", b"") + b"\n" + line())
    found = list(read_threads(path, handle_key=KEY))
    assert isinstance(found[-1], ImportedThread)
    assert all(isinstance(i, ImportedThread | ImportProblem) for i in found)
    for item in found:
        if isinstance(item, ImportedThread):
            json.dumps(item.thread.content(), ensure_ascii=False).encode("utf-8")
