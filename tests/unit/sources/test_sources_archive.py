"""The archive: what goes in comes out, whatever it is; damage is found; an independent reader agrees."""

import contextlib
import gzip
import random
import resource
import tracemalloc
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from medlive.sources.archive import (
    ArchiveDamaged,
    ArchiveWriter,
    erase,
    pages,
    read_page,
    seal,
)
from medlive.sources.ledger import Place
from medlive.sources.source import Fetched

MOMENT = datetime(2026, 3, 1, 12, 30, 5, 123456, tzinfo=UTC)
FORM = (("branch", "病例"), ("page", "1"), ("", ""), ("a&b", "c=d\r\n"))


def a_page(number: int = 0, **changes: object) -> Fetched:
    values: dict[str, object] = {
        "url": f"https://example.org/threads/{number}",
        "status": 200,
        "headers": {"content-type": "text/html; charset=utf-8", "etag": f'"{number}"'},
        "body": f"<p>post number {number}</p>".encode() * 20,
        "fetched_at": MOMENT + timedelta(seconds=number),
        "form": None,
    }
    return Fetched(**{**values, **changes})  # type: ignore[arg-type]


def written(path: Path, pages: list[Fetched]) -> list[Place]:
    with closing(
        ArchiveWriter(
            path, software="medlive/1", operator="ops@example.org", created_at=MOMENT
        )
    ) as writer:
        places = writer.append(pages)
        assert writer.size == path.stat().st_size
    return places


RECORD = """\
WARC/1.1
WARC-Type: response
WARC-Record-ID: <urn:uuid:00a4543f-89a5-52e6-ace2-ba8549b76de0>
WARC-Date: 2026-11-21T08:30:00.000000Z
WARC-Target-URI: https://forum.example/%E7%97%85?page=1
WARC-X-Medlive-URL: "https://forum.example/\\u75c5?page=1"
WARC-X-Medlive-Form: [["page", "1"]]
WARC-Payload-Digest: sha1:2SM5OLWDPOMELTCLUMTQWPIK2JBRH7ZV
WARC-Block-Digest: sha1:PTPU6ZDBR7J7OSI6EZT5IXMR4TWL4YFS
Content-Type: application/http; msgtype=response
Content-Length: 89

HTTP/1.1 200 OK
content-type: text/html
etag: "é"
content-length: 13

<p>咳嗽</p>

""".replace("\n", "\r\n").encode()
"""A page's record as earlier versions wrote it."""


def test_records_are_read_and_written_as_earlier_versions_wrote_them(
    tmp_path: Path,
) -> None:
    page = Fetched(
        url="https://forum.example/病?page=1",
        headers={"content-type": "text/html", "etag": '"é"'},
        body="<p>咳嗽</p>".encode(),
        fetched_at=datetime(2026, 11, 21, 8, 30, tzinfo=UTC),
        form=(("page", "1"),),
    )
    earlier = tmp_path / "earlier.warc.gz"
    earlier.write_bytes(gzip.compress(RECORD))
    assert [read for _, read in pages(earlier)] == [page]
    written(tmp_path / "now.warc.gz", [page])
    assert members(tmp_path / "now.warc.gz")[1] == RECORD


def verify(path: Path) -> int:
    """How many records a file with pages has, each checked against its digest."""
    return 1 + sum(1 for _ in pages(path))


def members(path: Path) -> list[bytes]:
    """Each record of a file unpacked, by an independent reader's offsets."""
    raw = path.read_bytes()
    with path.open("rb") as file:
        iterator = ArchiveIterator(file)
        spans = [
            (iterator.get_record_offset(), iterator.get_record_length())
            for _ in iterator
        ]
    return [gzip.decompress(raw[offset : offset + length]) for offset, length in spans]


odd_texts = st.one_of(
    st.text(max_size=60),
    st.text(st.characters(codec=None), max_size=20),  # lone surrogates as well
    st.sampled_from(
        [
            "https://例子.cn/病例?q=é#x",
            "HTTP://A/b c",
            "https://h/\r\nWARC-Type: request\r\n\r\n",
            "<x>",
        ]
    ),
)
bodies = st.one_of(
    st.binary(max_size=300),
    st.sampled_from(
        [b"", b"\r\n\r\n", b"WARC/1.1\r\n\r\n", b"\x1f\x8b\x08" * 9, bytes(70_000)]
    ),
)
header_names = st.sampled_from(["content-type", "etag", "last-modified"])
forms = st.lists(st.tuples(odd_texts, odd_texts), max_size=4).map(tuple)
some_pages = st.builds(
    Fetched,
    url=odd_texts.map("https://example.org/a?{}".format),
    status=st.integers(100, 999),
    headers=st.dictionaries(header_names, odd_texts, max_size=4),
    body=bodies,
    fetched_at=st.builds(
        lambda micros, hours: (
            datetime.fromtimestamp(0, timezone(timedelta(hours=hours)))
            + timedelta(microseconds=micros)
        ),
        st.integers(-(10**15), 7 * 10**15),
        st.integers(-12, 14),
    ),
    form=st.one_of(st.none(), forms),
)


@settings(max_examples=8, deadline=None)
@given(given_pages=st.lists(some_pages, min_size=1, max_size=4))
def test_every_page_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, given_pages: list[Fetched]
) -> None:
    path = tmp_path_factory.mktemp("a") / "a.warc.gz"
    places = written(path, given_pages)
    for page, place in zip(given_pages, places, strict=True):
        back = read_page(path, place)
        assert (back.url, back.status, back.body, back.form) == (
            page.url,
            page.status,
            page.body,
            page.form,
        )
        assert back.fetched_at == page.fetched_at
        kept = page.headers.get("etag")
        if kept is not None and kept.isascii() and kept.isprintable():
            assert back.headers["etag"] == kept.strip()
    assert verify(path) == 1 + len(given_pages)
    records = members(path)
    assert len(records) == 1 + len(given_pages), (
        "no page's content makes a record of its own"
    )
    kinds = [record.split(b"\r\n")[1].partition(b": ")[2] for record in records]
    assert kinds.count(b"response") == len(given_pages)


def test_an_independent_reader_finds_pages_forms_and_sound_digests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "folder" / "a.warc.gz"
    stored = [
        a_page(1),
        a_page(
            2,
            url="https://example.org/list",
            form=FORM,
            body="列表".encode(),
            status=201,
        ),
        a_page(
            3,
            headers={
                "x-note": "caf\xe9 \u4e2d\r\nSet-Cookie: a=b",
                "content-encoding": "gzip",
            },
            body=b"",
        ),
    ]
    places = written(path, stored)
    found = []
    with path.open("rb") as file:
        iterator = ArchiveIterator(file, check_digests="raise")
        for record in iterator:
            body = record.content_stream().read()
            assert record.digest_checker.passed
            found.append(
                (
                    record,
                    body,
                    Place(iterator.get_record_offset(), iterator.get_record_length()),
                )
            )
    info, first, second, third = found
    assert info[0].rec_type == "warcinfo"
    assert b"software: medlive/1\r\noperator: ops@example.org\r\n" in info[1]
    assert [first[2], second[2], third[2]] == places
    assert first[0].rec_headers.get_header("WARC-Target-URI") == stored[0].url
    assert first[0].rec_headers.get_header("WARC-Date") == "2026-03-01T12:30:06.123456Z"
    assert (
        first[0].http_headers.get_header("content-type") == "text/html; charset=utf-8"
    )
    assert (first[1], second[1], third[1]) == tuple(page.body for page in stored)
    assert second[0].http_headers.get_statuscode() == "201"
    ids = [record.rec_headers.get_header("WARC-Record-ID") for record, _, _ in found]
    assert len(set(ids)) == 4
    # What a header says stays inside its value, and a transfer that is over is not claimed.
    assert third[0].http_headers.headers == [
        ("x-note", "café 中 Set-Cookie: a=b"),
        ("content-length", "0"),
    ]
    checker = Checker(type("Options", (), {"inputs": [str(path)], "verbose": False})())
    checker.process_all()
    assert checker.exit_value == 0
    assert capsys.readouterr().out == ""


def test_equal_pages_make_equal_files_and_a_file_is_never_overwritten(
    tmp_path: Path,
) -> None:
    one, two = tmp_path / "one.warc.gz", tmp_path / "two.warc.gz"
    for path in (one, two):
        written(path, [a_page(1), a_page(2, form=FORM)])
    assert one.read_bytes() == two.read_bytes()
    with pytest.raises(FileExistsError):
        ArchiveWriter(one, software="medlive", operator=None)
    assert one.read_bytes() == two.read_bytes()


def test_a_full_disk_leaves_the_file_as_it_was_and_it_can_be_closed(
    tmp_path: Path,
) -> None:
    path, noise = tmp_path / "a.warc.gz", random.Random(0).randbytes(64)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(ArchiveWriter(path, software="medlive/1", operator=None)) as writer:
        (place,) = writer.append([a_page()])
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (writer.size + 100, hard))
            with pytest.raises(OSError, match="too large"):
                writer.append([a_page(1, body=noise)])
            writer.close()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.stat().st_size == writer.size
    assert read_page(path, place) == a_page()


def test_a_big_page_comes_back(tmp_path: Path) -> None:
    body = random.Random(1).randbytes(3 * 1024 * 1024)
    path = tmp_path / "a.warc.gz"
    places = written(path, [a_page(1, body=body), a_page(2)])
    assert read_page(path, places[0]).body == body
    assert read_page(path, places[1]) == a_page(2)
    assert verify(path) == 3


def test_a_killed_write_is_cut_off_at_every_point(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    with closing(
        ArchiveWriter(path, software="medlive", operator=None, created_at=MOMENT)
    ) as writer:
        (first,) = writer.append([a_page(1, form=FORM)])
        size = writer.size
        (second,) = writer.append([a_page(2)])
    whole = path.read_bytes()
    for end in (
        *range(size, size + 30),
        *range(size + 30, len(whole), 17),
        len(whole) - 1,
    ):
        path.write_bytes(whole[:end])
        if end > size:
            with pytest.raises(ArchiveDamaged, match=f"offset {size}"):
                verify(path)
        with pytest.raises(ArchiveDamaged):
            read_page(path, second)
        seal(path, size)
        assert path.read_bytes() == whole[:size]
        assert verify(path) == 2
        assert read_page(path, first) == a_page(1, form=FORM)
    path.write_bytes(whole[: size - 1])
    with pytest.raises(ArchiveDamaged):
        seal(path, size)
    with pytest.raises(ArchiveDamaged) as caught:
        seal(tmp_path / "none", 0)
    assert caught.value.hint


@pytest.mark.thorough
def test_no_flipped_byte_goes_unseen(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    stored = [a_page(1, body=b"<p>short</p>"), a_page(2, form=FORM[:1])]
    places = written(path, stored)
    whole = path.read_bytes()
    unseen = 0
    for at in range(0, len(whole), 3):
        path.write_bytes(
            whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :]
        )
        with contextlib.suppress(ArchiveDamaged):
            verify(path)
            unseen += 1
        for page, place in zip(stored, places, strict=True):
            with contextlib.suppress(ArchiveDamaged):
                assert read_page(path, place) == page, at
    assert unseen <= 4 * 3, (
        "only bytes of a gzip member's head that say nothing of its content: time, system, text"
    )


@pytest.mark.parametrize(
    "old",
    [
        b"post number 1",
        b"HTTP/1.1 200",
        b"WARC-Block-Digest: sha1:",
        b"WARC/1.1",
        b"Content-Length: ",
    ],
)
def test_a_record_that_was_packed_again_does_not_match_its_digest(
    tmp_path: Path, old: bytes
) -> None:
    path = tmp_path / "a.warc.gz"
    (place,) = written(path, [a_page(1)])
    whole = path.read_bytes()
    record = gzip.decompress(whole[place.offset :]).replace(
        old, old[:-1] + b"x" if old[-1:] != b" " else old + b"9", 1
    )
    changed = gzip.compress(record)
    path.write_bytes(whole[: place.offset] + changed)
    with pytest.raises(ArchiveDamaged):
        read_page(path, Place(place.offset, len(changed)))


def test_a_wrong_place_is_no_page(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    first, second = written(path, [a_page(1), a_page(2, form=FORM)])
    wrong = [
        Place(0, first.offset),
        Place(first.offset + 1, first.length),
        Place(first.offset, first.length - 1),
        Place(first.offset, first.length + second.length),
        Place(path.stat().st_size, 10),
    ]
    for place in wrong:
        with pytest.raises(ArchiveDamaged):
            read_page(path, place)
    with pytest.raises(ArchiveDamaged):
        read_page(tmp_path / "none", first)


def test_nothing_of_an_erased_page_is_left(tmp_path: Path) -> None:
    path, target = tmp_path / "a.warc.gz", tmp_path / "new" / "b.warc.gz"
    stored = [
        a_page(n, form=(("q", f"query-{n}-end"),) if n % 3 == 0 else None)
        for n in range(12)
    ]
    places = written(path, stored)
    before = path.read_bytes()
    gone = {0, 5, 6, 11}
    moved = erase(path, target, [places[n] for n in gone])
    assert path.read_bytes() == before
    assert set(moved) == {place for n, place in enumerate(places) if n not in gone}
    everything = b"".join(members(target))
    for n, page in enumerate(stored):
        traces = [
            page.url.encode() + b"\r\n",
            f"number {n}<".encode(),
            f"query-{n}-end".encode(),
        ]
        if n in gone:
            assert not any(trace in everything for trace in traces)
        else:
            assert read_page(target, moved[places[n]]) == page
            assert traces[0] in everything
    assert verify(target) == 1 + 8
    with pytest.raises(FileExistsError):
        erase(path, target, [])
    none_left = tmp_path / "c.warc.gz"
    assert erase(path, none_left, places) == {}
    assert verify(none_left) == 1


def test_erasing_leaves_no_half_copy(tmp_path: Path) -> None:
    path, target = tmp_path / "a.warc.gz", tmp_path / "b.warc.gz"
    places = written(path, [a_page(1), a_page(2)])
    with pytest.raises(ArchiveDamaged):
        erase(path, target, [places[0], Place(3, 4)])
    assert not target.exists()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    with pytest.raises(ArchiveDamaged):
        erase(path, target, [places[0]])
    assert not target.exists()


@pytest.mark.thorough
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    noise = random.Random(2)
    path, target = tmp_path / "a.warc.gz", tmp_path / "b.warc.gz"
    places: list[Place] = []
    tracemalloc.start()
    with closing(ArchiveWriter(path, software="medlive", operator=None)) as writer:
        for batch in range(20):
            places += writer.append(
                [a_page(batch, body=noise.randbytes(50_000)) for _ in range(10)]
            )
    verify(path)
    erase(path, target, places[::2])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 9_000_000
    assert peak < 2_500_000


def test_a_file_of_someone_else_is_damaged_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    for content in (
        b"plain",
        gzip.compress(b""),
        gzip.compress(b"WARC/1.1\r\n\r\n\r\n"),
        gzip.compress(b"no record"),
    ):
        path.write_bytes(content)
        with pytest.raises(ArchiveDamaged, match="offset 0"):
            verify(path)
