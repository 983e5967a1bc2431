"""Pipes, devices, folders and endless lines where a file should be end with a named error, and never hang."""

import io
import os
import shutil
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from medlive.errors import BadInput, IndexCorrupt
from medlive.evaluation.bundles.files import read_bundle
from medlive.evidence.corpora.jsonl import GUIDELINES, PASSAGES
from medlive.evidence.corpora.model import Reader, ReadLog
from medlive.evidence.corpora.nih import MEDQUAD
from medlive.evidence.corpora.pubmed import READER as PUBMED
from medlive.evidence.manifest import MANIFEST, read_manifest
from medlive.filters.codebooks import read_terms
from medlive.integrity import log
from medlive.snapshot.load import load_snapshot
from medlive.sources.files import read_threads
from tests.support.instance import Instance
from tests.support.releases import case, release
from tests.support.runs import made_cases, made_run

pytestmark = pytest.mark.whole

KINDS = ("fifo", "zero", "link", "folder", "line")


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """Whatever hangs is a failure and not a wait."""

    def give_up(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release(tmp_path_factory.mktemp("frozen"), "2026.W46", [case("a1")]).path


def put(path: Path, kind: str) -> None:
    """Replace a file by what a stranger may have put there."""
    kept = path.with_name(f".{path.name}.kept")
    if path.exists():
        path.rename(kept)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "link":
        path.symlink_to(kept)
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as handle:
            handle.truncate(1 << 40)  # sparse: a line without an end


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", ["run.json", "cases.jsonl", "responses.jsonl", "grades.jsonl"]
)
def test_no_file_of_a_run_makes_scoring_hang(
    instance: Instance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    kind: str,
) -> None:
    monkeypatch.setattr(log, "LOG_LINE_BYTES", 1 << 20)
    run = made_run(made_cases(3, months=1), tmp_path / "run", "a model", 0.5)
    put(run / name, kind)
    done = instance.here("eval", "score", run, "--draws", "20", status=None)
    assert done.status in (1, 2)
    assert "internal error" not in done.err
    assert name in done.err


@pytest.mark.parametrize("kind", KINDS)
def test_no_log_is_written_through_what_lies_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(log, "LOG_LINE_BYTES", 1 << 20)
    path = tmp_path / "grades.jsonl"
    path.write_bytes(b'{"a": 1}\n')
    put(path, kind)
    with (
        pytest.raises(BadInput),
        log.open_log(path) as out,
    ):
        out.add({"b": 2})
    if kind == "link":
        assert path.resolve().read_bytes() == b'{"a": 1}\n'


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_of_a_snapshot_a_bundle_or_an_index_makes_reading_hang(
    frozen: Path, tmp_path: Path, kind: str
) -> None:
    snapshot = Path(shutil.copytree(frozen, tmp_path / frozen.name))
    put(snapshot / "manifest.json", kind)
    with pytest.raises(BadInput):
        load_snapshot(snapshot, verify=False)
    put(tmp_path / "bundle.zip", kind)
    with pytest.raises(BadInput):
        read_bundle(tmp_path / "bundle.zip")
    put(tmp_path / MANIFEST, kind)
    with pytest.raises(IndexCorrupt):
        read_manifest(tmp_path)


@pytest.mark.parametrize("kind", ["fifo", "zero", "link", "folder"])
@pytest.mark.parametrize(
    ("reader", "name", "content"),
    [
        (
            PASSAGES,
            "b.jsonl",
            b'{"id": "1", "title": "t", "text": "words of evidence"}\n',
        ),
        (
            GUIDELINES,
            "b.jsonl",
            b'{"id": "1", "source": "who", "title": "t", "clean_text": "words"}\n',
        ),
        (
            MEDQUAD,
            "b.xml",
            b"<Document><QAPair pid='1'><Question>q</Question><Answer>a</Answer></QAPair></Document>",
        ),
        (PUBMED, "b.xml", b"<PubmedArticleSet></PubmedArticleSet>"),
    ],
    ids=lambda value: value.kind if isinstance(value, Reader) else "",
)
def test_no_file_in_a_corpus_hides_the_others(
    tmp_path: Path, reader: Reader, name: str, content: bytes, kind: str
) -> None:
    (tmp_path / name).write_bytes(content)
    put(tmp_path / f"a{name[1:]}", kind)
    log = ReadLog()
    reader.sniff(tmp_path)
    found = list(reader.documents(tmp_path, log))
    assert len(found) == (0 if reader is PUBMED else 1)


@pytest.mark.parametrize(
    "encoding",
    ["utf-7", "gb2312", "gb18030", "UTF-32", "hex", "unicode_escape", "x" * 500],
)
def test_a_member_of_a_charset_that_is_not_read_is_named_and_the_rest_is_read(
    tmp_path: Path, encoding: str
) -> None:
    page = "<Document><QAPair pid='1'><Question>q</Question><Answer>an answer</Answer></QAPair></Document>"
    with tarfile.open(tmp_path / "corpus.tar", "w") as tar:
        for name, head in (
            ("x/1.xml", f"<?xml version='1.0' encoding='{encoding}'?>"),
            ("x/2.xml", ""),
        ):
            data = (head + page).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    log = ReadLog()
    [document] = MEDQUAD.documents(tmp_path / "corpus.tar", log)
    assert document.id == "x/2-1"
    assert [
        problem
        for problem in log.problems
        if "x/1.xml" in str(problem) and "encoding" in str(problem)
    ]


def test_what_a_user_names_may_be_a_link_or_a_pipe_and_is_no_device(
    tmp_path: Path,
) -> None:
    book = tmp_path / "book.tsv"
    book.write_text("code\ttitle\nA00\tCholera\n", "utf-8")
    link = tmp_path / "link.tsv"
    link.symlink_to(book)
    assert [code for code, _ in read_terms(link)] == ["link:A00"]
    ours, theirs = os.pipe()
    with open(theirs, "wb") as out:
        out.write(b"")
    with open(ours, "rb"):
        assert list(read_threads(Path(f"/dev/fd/{ours}"), handle_key=b"k" * 32)) == []
    for read in (
        read_terms,
        lambda path: read_threads(path, handle_key=b"k" * 32),
        lambda path: [log.read_bytes(path)],
    ):
        with pytest.raises(BadInput, match="device"):
            list(read(Path("/dev/zero")))
