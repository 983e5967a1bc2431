"""Zip archives that unpack to more than they hold: refused before anything of them is unpacked."""

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from medlive.evidence.corpora.model import ReadLog
from medlive.evidence.corpora.parsing import files
from medlive.evidence.corpora.parsing.files import check_zip
from medlive.evidence.corpora.registry import open_corpus

MEMBER = b" " * 100_000


def packed(data: bytes = MEMBER, kind: int = zipfile.ZIP_DEFLATED, n: int = 1) -> bytes:
    """An archive of n members."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", kind) as archive:
        for number in range(n):
            archive.writestr(f"{number}.xml", data)
    return whole.getvalue()


def listed(data: bytes, times: int, *, step: int = 0) -> bytes:
    """An archive whose list names its one member again and again, each `step` bytes further on."""
    at, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    entries = bytearray()
    for number in range(times):
        entry = bytearray(data[at:end])
        entry[42:46] = struct.pack("<L", number * step)
        entries += entry
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, times, times, len(entries), at, 0)
    return data[:at] + bytes(entries) + tail


def stating(size: int, data: bytes) -> bytes:
    """An archive that states another size of its first member."""
    changed = bytearray(data)
    for at in (data.index(b"PK\3\4") + 22, data.index(b"PK\1\2") + 24):
        changed[at : at + 4] = struct.pack("<L", size)
    return bytes(changed)


BOMBS = {
    "one member, listed 3,000 times": listed(packed(), 3_000),
    "members within another": listed(packed(), 5, step=7),
    "bzip2": packed(kind=zipfile.ZIP_BZIP2),
    "bzip2 that states ten bytes": stating(10, packed(kind=zipfile.ZIP_BZIP2)),
    "LZMA": packed(kind=zipfile.ZIP_LZMA),
    "too much together": packed(n=30),
    "a size of four gigabytes": stating(2**32 - 2, packed()),
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_an_archive_that_unpacks_to_more_than_it_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(zipfile.ZipFile, "read", _unpacks)
    monkeypatch.setattr(files, "ARCHIVE_BYTES", 2_000_000)
    with (
        zipfile.ZipFile(io.BytesIO(data)) as archive,
        pytest.raises(zipfile.BadZipFile),
    ):
        check_zip(archive, 2_000_000)
    (tmp_path / "labels.zip").write_bytes(data)
    log = ReadLog()
    room = 2_000_000
    with (tmp_path / "labels.zip").open("rb") as handle:
        labels = files.CorpusFiles((".xml",), largest=2**40)
        members = labels._zip(handle, "labels.zip", log, room)
        assert list(members) == []
    assert log.problem_count == 1


def _unpacks(*_: object) -> bytes:
    raise AssertionError("it was unpacked")


def test_archives_in_an_archive_share_its_room() -> None:
    log = ReadLog()
    inner = packed(n=10)
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for number in range(5):
            archive.writestr(f"{number}.zip", inner)
    labels = files.CorpusFiles((".xml", ".zip"), largest=2**40)
    members = labels._zip(whole, "labels.zip", log, 3_000_000)
    assert len(list(members)) == 20
    assert log.problem_count == 3


@pytest.mark.parametrize("make", [packed, lambda: packed(kind=zipfile.ZIP_STORED)])
def test_an_honest_archive_is_read(tmp_path: Path, make: Callable[[], bytes]) -> None:
    path = tmp_path / "labels.zip"
    path.write_bytes(make())
    log = ReadLog()
    list(open_corpus(path, "dailymed").passages(log))
    assert ["zip archive" in problem[1] for problem in log.problems] == [False]
