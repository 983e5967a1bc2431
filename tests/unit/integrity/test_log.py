"""A log keeps every row that was added, through kills, whatever its texts hold, and says what it cannot read."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.errors import DiskFull
from medlive.integrity.log import Locked, open_log, read_log

TEXTS = st.text(st.characters(codec=None, categories=None), max_size=12)
VALUES = st.recursive(
    st.one_of(
        TEXTS,
        st.integers(),
        st.booleans(),
        st.none(),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(TEXTS, VALUES, max_size=3), max_size=5))
@pytest.mark.thorough
def test_rows_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("log") / "rows.jsonl"
    with open_log(path) as log:
        for row in rows:
            log.add(row)
    assert path.read_bytes().count(b"\n") == len(rows)
    assert read_log(path) == (rows, [])


@settings(max_examples=30, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from(
            [
                b'{"a":1e999}',
                b'{"a":NaN}',
                b'{"a":"\\ud83d"}',
                b'{"a":1,"a":2}',
                b'{"a":1} x',
                b"[1]",
                b"",
                b"7",
                b"\xef\xbb\xbf{}",
                b'{"a":"\xff"}',
                b'{"a":01}',
                b'{"a":' + b"[" * 300 + b"]" * 300 + b"}",
                b'{"a":"\x01"}',
                b'{"a":123456789012345678901234567890}',
            ]
        ),
    )
)
def test_a_line_is_read_as_the_json_module_reads_it(
    tmp_path_factory: pytest.TempPathFactory, line: bytes
) -> None:
    line = line.replace(b"\n", b" ")
    path = tmp_path_factory.mktemp("log") / "rows.jsonl"
    path.write_bytes(line + b'\n{"last":true}\n')
    try:
        value = json.loads(line.decode("utf-8"))
    except ValueError:
        value = None
    found, notes = read_log(path)
    whole = [value] if isinstance(value, dict) else []
    assert repr(found) == repr([*whole, {"last": True}])
    assert [note.split(":")[1] for note in notes] == ([] if whole else ["1"])


ADDS = """
import sys
from pathlib import Path
from medlive.integrity.log import open_log
with open_log(Path(sys.argv[1])) as log:
    for number in range(10**9):
        log.add({"n": number, "text": "x" * (number % 50)})
        print(number, flush=True)
"""


def test_a_killed_writer_loses_no_row_that_was_added(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with subprocess.Popen(
        [sys.executable, "-c", ADDS, str(path)], stdout=subprocess.PIPE
    ) as writer:
        told = [int(writer.stdout.readline()) for _ in range(40)]
        with pytest.raises(Locked), open_log(path):
            pass
        os.kill(writer.pid, signal.SIGKILL)
        told += [int(line) for line in writer.stdout.read().splitlines()]
    # What a torn write would leave: the beginning of a row.
    with path.open("ab") as handle:
        handle.write(b'{"n": 99')
    torn, notes = read_log(path)
    assert [row["n"] for row in torn][: len(told)] == told
    assert notes == [f"rows.jsonl:{len(torn) + 1}: the last line is cut off"]
    with open_log(path) as log:
        log.add({"n": -1})
    assert read_log(path) == ([*torn, {"n": -1}], [])


def test_a_last_row_that_lacks_only_its_line_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"n": 1}\n{"n": 2}')
    with open_log(path) as log:
        log.add({"n": 3})
    assert read_log(path) == ([{"n": 1}, {"n": 2}, {"n": 3}], [])


def test_a_disk_that_is_full_at_the_end_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DiskFull), open_log(tmp_path / "rows.jsonl") as log:
        log.add({"n": 1})
