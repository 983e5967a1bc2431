"""Archives that a stranger made: every member is read within its bound or reported."""

import gzip
import io
import os
import tarfile
import zipfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from medlive.errors import BadInput
from medlive.evaluation.bundles import files as bundle_files
from medlive.evaluation.bundles.files import archive, read_bundle
from medlive.evidence.corpora.model import ReadLog
from medlive.evidence.corpora.parsing import files as corpus_files
from medlive.evidence.corpora.parsing.files import CorpusFiles, head_of
from medlive.evidence.corpora.registry import READERS
from medlive.sources import archive as warc
from medlive.sources.archive import ArchiveDamaged, ArchiveWriter, pages
from medlive.sources.source import Fetched
from tests.support.fuzzing import as_json, damaged

pytestmark = [pytest.mark.security, pytest.mark.thorough]
# A file of the same name is written anew for each example.
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

NAMES = st.text(max_size=10) | st.sampled_from(
    [
        "a.xml",
        "../a.xml",
        "/etc/a.xml",
        "b/../../a.xml",
        "sub/a.xml",
        "a\x1b[2J.xml",
        "\udcff.xml",
        "x" * 300 + ".xml",
        "C:\\a.xml",
        "a.txt",
        "",
        ".",
    ]
)
KINDS = st.sampled_from(
    [
        tarfile.REGTYPE,
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.FIFOTYPE,
        tarfile.CHRTYPE,
        tarfile.DIRTYPE,
        tarfile.GNUTYPE_SPARSE,
        tarfile.CONTTYPE,
        b"Z",
    ]
)
MEMBERS = st.lists(st.tuples(NAMES, KINDS, st.binary(max_size=60)), max_size=4)


def tar_of(entries: list[tuple[str, bytes, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape"
    ) as tar:
        for name, kind, data in entries:
            info = tarfile.TarInfo(name.replace("\x00", "0"))
            info.type, info.size, info.linkname = kind, len(data), "/etc/passwd"
            try:
                tar.addfile(info, io.BytesIO(data))
            except (ValueError, UnicodeError):
                continue
    return out.getvalue()


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    data = draw(MEMBERS.map(tar_of).flatmap(damaged))
    return gzip.compress(data) if draw(st.booleans()) else data


@same_folder
@given(archives() | st.binary(max_size=600))
@example(
    tar_of([("../a.xml", tarfile.REGTYPE, b"<a/>"), ("a.xml", tarfile.SYMTYPE, b"")])
)
@example(gzip.compress(tar_of([("a.xml", tarfile.REGTYPE, b"<a/>")]))[:-9])
def test_members_are_read_within_their_bounds_or_reported(
    tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "corpus.tar"
    path.write_bytes(data)
    log = ReadLog()
    try:
        found = list(CorpusFiles((".xml", ".txt"), largest=40).members(path, log))
        CorpusFiles((".xml",), ("a",)).recognise(path)
    except BadInput:
        return
    for name, content in found:
        assert len(content) <= 40
        assert not PurePosixPath(name).is_absolute()
        assert ".." not in PurePosixPath(name).parts
    assert len(head_of(path)) <= corpus_files.HEAD
    assert sorted(os.listdir(tmp_path)) == ["corpus.tar"]


CODECS = (
    "utf-8",
    "utf-7",
    "gb2312",
    "gb18030",
    "utf-16",
    "utf-32",
    "idna",
    "punycode",
    "hz",
    "none",
)
ENCODINGS = st.sampled_from([*CODECS, "\udcff", "x" * 200, ""])
XML = st.builds(
    '<?xml version="1.0" encoding="{}"?>{}<{}>{}</{}>'.format,
    ENCODINGS,
    st.sampled_from(
        [
            "",
            '<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]>',
            "<!DOCTYPE article>",
        ]
    ),
    st.sampled_from(["article", "Document", "PubmedArticleSet", "book", "html"]),
    st.sampled_from(
        [
            "&e;",
            "<body><p>words +AGE- \xe9\u4e2d</p></body>",
            "<QAPairs><QAPair/></QAPairs>",
            "<a" * 300,
        ]
    ),
    st.sampled_from(["article", "Document", "PubmedArticleSet", "book", "html"]),
).map(lambda text: text.encode("utf-8", "surrogateescape"))
ROWS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.text(max_size=5) | st.integers(),
            "title": st.text(max_size=5) | st.none(),
            "text": st.text(max_size=30) | st.lists(st.integers(), max_size=2),
            "date": st.sampled_from(
                ["2026-01-01", "0000-00-00", "9" * 5_000, 20260101, None, "\ud800"]
            ),
            "licence": st.text(max_size=5),
        },
    ),
    max_size=3,
).map(lambda rows: b"\n".join(map(as_json, rows)))
CONTENTS = st.one_of(XML, ROWS, st.binary(max_size=200), XML.flatmap(damaged))
FILES = st.sampled_from(
    ["a.xml", "a.nxml", "a.xml.gz", "a.jsonl", "a.json", "a.txt", "a.md", "a.html"]
)


@same_folder
@given(FILES, CONTENTS, st.booleans())
@example(
    "a.xml", b'<?xml version="1.0" encoding="utf-7"?><Document>+AGE-</Document>', True
)
@example(
    "a.nxml",
    '<?xml version="1.0" encoding="gb2312"?><article>\u4e2d</article>'.encode("gb2312"),
    True,
)
@example("a.jsonl", b"[" * 100_000, False)
def test_every_reader_of_evidence_gives_passages_or_problems(
    tmp_path: Path, name: str, content: bytes, packed: bool
) -> None:
    path = tmp_path / ("corpus.tar" if packed else name)
    path.write_bytes(tar_of([(name, tarfile.REGTYPE, content)]) if packed else content)
    try:
        for reader in READERS:
            log = ReadLog()
            try:
                reader.sniff(path)
                for document in reader.documents(path, log):
                    assert document is not None
            except BadInput:
                continue
    finally:
        path.unlink()


def zip_of(entries: list[tuple[str, bytes, bytes]]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name, kind, data in entries:
            info = zipfile.ZipInfo(name.replace("\x00", "0") or "a")
            info.compress_type = (
                zipfile.ZIP_DEFLATED if kind == tarfile.SYMTYPE else zipfile.ZIP_STORED
            )
            info.external_attr = (
                0o120777 if kind == tarfile.LNKTYPE else 0o100644
            ) << 16
            try:
                packed.writestr(info, data)
            except (
                UserWarning,
                UnicodeError,
            ):  # a name twice; a name that zip has no spelling for
                continue
    return out.getvalue()


BUNDLE = archive(
    {
        "bundle.json": b"{}\n",
        "run.json": b'{"a": 1}\n',
        "SHA256SUMS": b"",
        "responses.jsonl": b"{}\n",
    }
)
KNOWN = st.sampled_from(
    ["bundle.json", "run.json", "../run.json", "/etc/passwd", "SHA256SUMS"]
)
ENTRIES = st.lists(st.tuples(KNOWN | NAMES, KINDS, st.binary(max_size=60)), max_size=4)


@same_folder
@given(
    damaged(BUNDLE)
    | ENTRIES.map(zip_of)
    | ENTRIES.map(zip_of).flatmap(damaged)
    | st.binary(max_size=300)
)
@example(BUNDLE)
@example(zip_of([("run.json", tarfile.SYMTYPE, b"0" * 100_000)]))
def test_a_bundle_gives_known_files_within_its_size_or_faults(
    tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "bundle.zip"
    path.write_bytes(data)
    found, faults = read_bundle(path)
    assert found.keys() <= bundle_files._KNOWN
    assert sum(map(len, found.values())) <= len(data)
    assert faults.count or archive(found) == data
    assert sorted(os.listdir(tmp_path)) == ["bundle.zip"]


AT = datetime(2026, 11, 23, tzinfo=UTC)


def warc_of(folder: Path) -> bytes:
    path = folder / "made.warc.gz"
    page = Fetched(
        url="https://a.example/1",
        body=b"<p>page</p>",
        headers={"content-type": "text/html"},
        fetched_at=AT,
    )
    form = Fetched(
        url="https://a.example/\u4e2d",
        body=b"{}",
        headers={},
        fetched_at=AT,
        form=(("page", "1"),),
    )
    with closing(
        ArchiveWriter(path, software="test", operator=None, created_at=AT)
    ) as writer:
        writer.append([page, form])
    data = path.read_bytes()
    path.unlink()
    return data


def repacked(data: bytes) -> st.SearchStrategy[bytes]:
    """The archive's records damaged inside, and packed as they should be."""
    plain = gzip.decompress(data)
    return damaged(plain).map(lambda content: gzip.compress(content, 1, mtime=0))


def url_record(url: bytes) -> bytes:
    """An archive with one whole record, whose own field for an address holds this JSON."""
    block = b"HTTP/1.1 200 OK\r\n\r\nx"
    about = {
        "WARC-Type": "response",
        "WARC-Date": "2026-11-23T00:00:00Z",
        "Content-Length": str(len(block)),
    }
    about["WARC-Block-Digest"] = warc._digest(block)
    head = "".join(f"{name}: {value}\r\n" for name, value in about.items()).encode()
    return gzip.compress(
        b"WARC/1.1\r\n"
        + head
        + f"{warc._URL_HEADER}: ".encode()
        + url
        + b"\r\n\r\n"
        + block
        + b"\r\n\r\n"
    )


@same_folder
@given(st.data())
@example(None)
def test_a_web_archive_gives_pages_or_says_where_it_is_damaged(
    tmp_path: Path, data: Any
) -> None:
    whole = warc_of(tmp_path)
    strategy = (
        damaged(whole)
        | repacked(whole)
        | st.binary(max_size=200)
        | st.binary(max_size=40).map(url_record)
    )
    _read_pages(tmp_path, whole if data is None else data.draw(strategy))


@pytest.mark.parametrize(
    "url", [b"[" * 100_000, b"5", b'{"a": 1}', b"null", b'"\\ud800"']
)
def test_an_address_in_a_web_archive_is_a_text(tmp_path: Path, url: bytes) -> None:
    _read_pages(tmp_path, url_record(url))


def test_a_record_that_unpacks_without_end_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warc, "RECORD_BYTES", 1_000_000)
    path = tmp_path / "bomb.warc.gz"
    path.write_bytes(gzip.compress(b"WARC/1.1\r\n" + b"0" * 50_000_000))
    with pytest.raises(ArchiveDamaged, match="unpacks"):
        list(pages(path))


def _read_pages(folder: Path, content: bytes) -> None:
    path = folder / "tried.warc.gz"
    path.write_bytes(content)
    try:
        for place, page in pages(path):
            assert place.offset + place.length <= len(content)
            assert isinstance(page.url, str)
    except ArchiveDamaged:
        pass
    assert sorted(os.listdir(folder)) == ["tried.warc.gz"]
