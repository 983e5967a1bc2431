"""Range and conditions of a file over HTTP, beside a reading of RFC 9110 that knows nothing of the program's."""

import asyncio
import hashlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from fastapi import Request
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.types import Message

from medlive.web.downloads.files import send_file

pytestmark = [pytest.mark.security, pytest.mark.thorough]

CONTENT = b"0123456789"
ETAG = f'"{hashlib.sha256(CONTENT).hexdigest()}"'
Headers = list[tuple[str, str]]


class Answer(NamedTuple):
    """What the client gets."""

    status: int
    body: bytes
    content_range: str | None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    (root / "file.txt").write_bytes(CONTENT)
    return root


async def ask(folder: Path, method: str, headers: Headers) -> Answer:
    """Ask for the file as a server would hand the request on."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    scope = {
        "type": "http",
        "method": method,
        "path": "/file.txt",
        "query_string": b"",
        "headers": raw,
        "http_version": "1.1",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    answer = await send_file(Request(scope), folder, "file.txt")
    await answer(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    known = dict(sent[0]["headers"])
    content_range = known.get(b"content-range")
    return Answer(
        sent[0]["status"],
        body,
        None if content_range is None else content_range.decode(),
    )


def expected(method: str, headers: Headers) -> Answer:
    """RFC 9110 §13.2.2 and §14.2, where several ranges are answered with the whole."""
    whole = Answer(200, CONTENT if method == "GET" else b"", None)
    match, none_match, ranges, if_range = (
        [value for name, value in headers if name == wanted]
        for wanted in ("if-match", "if-none-match", "range", "if-range")
    )
    if match and not ({"*", ETAG} & _tags(match)):
        return Answer(412, b"", None)
    if none_match and {"*", ETAG} & {
        tag.removeprefix("W/") for tag in _tags(none_match)
    }:
        return Answer(304, b"", None)
    if method != "GET" or len(ranges) != 1 or if_range not in ([], [ETAG]):
        return whole
    parts = re.fullmatch(r"bytes=(\d*)-(\d*)", ranges[0])
    if parts is None or parts.groups() == ("", ""):
        return whole
    size = len(CONTENT)
    if not parts[1]:
        first, last = max(size - int(parts[2]), 0), size - 1
        if int(parts[2]) == 0:
            first = size
    else:
        first, last = int(parts[1]), int(parts[2] or size - 1)
        if parts[2] and last < first:
            return whole
    if first >= size:
        return Answer(416, b"", f"bytes */{size}")
    last = min(last, size - 1)
    return Answer(206, CONTENT[first : last + 1], f"bytes {first}-{last}/{size}")


def _tags(values: list[str]) -> set[str]:
    return {tag.strip() for value in values for tag in value.split(",")}


NUMBERS = st.sampled_from(
    ["", "0", "1", "4", "9", "10", "11", "00", "999999999999999999"]
)
RANGES = st.one_of(
    st.builds("bytes={}-{}".format, NUMBERS, NUMBERS),
    st.sampled_from(
        ["bytes=0-1,3-4", "bytes=0-,", "lines=0-1", "bytes", "bytes=a-b", "bytes=--1"]
    ),
)
TAGS = st.sampled_from([ETAG, f"W/{ETAG}", '"other"', 'W/"other"', '"a,b"', '""'])
CONDITIONS = st.one_of(
    st.just("*"), st.lists(TAGS, min_size=1, max_size=3).map(" , ".join)
)
VALID = st.lists(
    st.one_of(
        st.tuples(st.just("range"), RANGES),
        st.tuples(st.sampled_from(["if-match", "if-none-match"]), CONDITIONS),
        st.tuples(st.just("if-range"), TAGS),
    ),
    max_size=4,
    unique_by=lambda header: header[0],
)
METHODS = st.sampled_from(["GET", "HEAD"])


@given(METHODS, VALID)
@example("GET", [("range", "bytes=0-")])
@example("GET", [("range", "bytes=-0")])
@example("GET", [("range", "bytes=-3")])
@example("GET", [("range", "bytes=9-0")])
@example("HEAD", [("range", "bytes=0-1")])
@example("GET", [("if-range", f"W/{ETAG}"), ("range", "bytes=0-1")])
def test_ranges_and_conditions_are_those_of_rfc_9110(
    folder: Path, method: str, headers: Headers
) -> None:
    assert asyncio.run(ask(folder, method, headers)) == expected(method, headers)


NAMES = st.sampled_from(
    ["range", "if-match", "if-none-match", "if-range", "if-modified-since"]
)
LATIN = st.characters(max_codepoint=255)
ANYTHING = st.text(LATIN, max_size=40) | st.text(
    st.sampled_from('bytes=-,0123456789 *"W/\t'), max_size=30
)


@given(METHODS, st.lists(st.tuples(NAMES, ANYTHING), max_size=5))
@example("GET", [("range", "bytes=" + "9" * 5_000 + "-")])
@example("GET", [("range", "bytes=" + "0-0," * 5_000)])
@example("GET", [("range", "bytes=0-1"), ("range", "bytes=2-3")])
@example("GET", [("range", "bytes=\xb2-\xb3")])
@example("GET", [("if-none-match", ",".join(['"x"'] * 5_000))])
def test_no_header_gives_anything_but_the_file_or_a_part_of_it(
    folder: Path, method: str, headers: Headers
) -> None:
    answer = asyncio.run(ask(folder, method, headers))
    assert answer.status in (200, 206, 304, 412, 416)
    assert (
        answer.body == {206: answer.body, 200: CONTENT}.get(answer.status, b"")
        or method == "HEAD"
    )
    assert answer.body in CONTENT
