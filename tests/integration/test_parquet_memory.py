"""A parquet file that unpacks to 0.7 GB and says that it is small is refused within a limit that the system sets."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from medlive.errors import CheckFailed
from medlive.snapshot.load import load_snapshot
from medlive.snapshot.verify.steps import verify_snapshot
from tests.support.releases import case, release
from tests.support.spoiling import seal

pytestmark = pytest.mark.usefixtures("parquet_in_own_process")

FILE = "data/cases.parquet"
MOST_KB = 300_000
SWOLLEN = 30_000_000
"""Bytes of each of three rows in each of eight columns: 0.7 GB."""


def varint(value: int, width: int = 0) -> bytes:
    """A number as Thrift's compact protocol has it, made as long as `width` by empty groups."""
    rest, out = value << 1, bytearray()
    while rest > 0x7F or len(out) < width - 1:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def swell(path: Path) -> None:
    """Three rows whose texts are huge, in a file whose footer states a thousand bytes instead."""
    schema = pq.read_schema(path)
    table = pq.read_table(path)
    text = pa.array(["x" * SWOLLEN] * len(table))
    swollen = [f.name for f in schema if pa.types.is_string(f.type)][:8]
    for name in swollen:
        place = schema.get_field_index(name)
        table = table.set_column(place, schema.field(name), text)
    pq.write_table(
        table,
        path,
        compression="zstd",
        data_page_version="1.0",
        use_dictionary=False,
        write_statistics=False,
    )
    group = pq.ParquetFile(path).metadata.row_group(0)
    sizes = {group.total_byte_size}
    for number in range(group.num_columns):
        sizes.add(group.column(number).total_uncompressed_size)
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:]
    for size in sizes:
        if size > 1_000_000:
            exact = varint(size)
            footer = footer.replace(exact, varint(1000, len(exact)))
    path.write_bytes(data[:start] + footer)


def frozen(root: Path) -> Path:
    """A snapshot of three cases."""
    version = "2026.W47"
    cases = [case(f"c00{n}", first_release=version) for n in range(3)]
    return release(root, version, cases).path


@pytest.fixture(scope="module")
def swollen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot with such a file, made in a process of its own."""
    folder = frozen(tmp_path_factory.mktemp("snapshots"))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, __file__, str(folder / FILE)]
    subprocess.run(command, check=True, env=environment)
    assert pq.ParquetFile(folder / FILE).metadata.row_group(0).total_byte_size < 10_000
    return folder


@pytest.fixture
def forged(swollen: Path, tmp_path: Path) -> Path:
    """A copy of it, whose digests of that file do not fit until `seal` makes them."""
    return Path(shutil.copytree(swollen, tmp_path / swollen.name))


def peak_kb(folder: Path) -> tuple[int, str]:
    """The most memory that `medlive snapshot verify` or a process of its own took, and what it printed."""
    code = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run([sys.executable, '-m', 'medlive', 'snapshot', 'verify', sys.argv[1]],"
        " capture_output=True, text=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
        "print(done.returncode, done.stdout, done.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    first, _, rest = done.stdout.partition("\n")
    return int(first), rest


@pytest.mark.thorough
def test_verify_stays_within_its_memory_where_a_footer_lies(forged: Path) -> None:
    seal(forged, None)
    peak, printed = peak_kb(forged)
    assert peak < MOST_KB, printed
    assert printed.startswith("1 ")
    with pytest.raises(CheckFailed, match="step 13"):
        load_snapshot(forged)
    step = verify_snapshot(forged).steps[12]
    assert "cannot be read" in step.findings[0].got


@pytest.mark.thorough
def test_no_file_is_opened_that_its_digest_has_refused(
    forged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    monkeypatch.setattr(
        "medlive.snapshot.verify.steps.compare_twins",
        lambda asked: opened.append(asked),
    )
    report = verify_snapshot(forged)
    assert [step.number for step in report.steps if step.findings] == [4, 6]
    assert "does not have the digest" in report.steps[12].why
    assert opened == []


@pytest.mark.thorough
def test_frames_of_an_unverified_snapshot_come_from_its_rows(forged: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    frame = load_snapshot(forged, verify=False).to_arrow()
    assert frame.column("case_id").to_pylist() == ["c000", "c001", "c002"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + MOST_KB


def test_the_process_that_compares_knows_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    run = subprocess.run

    def seen(*command: Any, **how: Any) -> Any:
        started.append(how["env"])
        return run(*command, **how)

    monkeypatch.setattr(subprocess, "run", seen)
    monkeypatch.setenv("MEDLIVE_SIGNING_KEY", "a secret that no child needs")
    assert verify_snapshot(frozen(tmp_path)).steps[12].state == "passed"
    (environment,) = started
    assert "PYTHONPATH" in environment
    assert "MEDLIVE_SIGNING_KEY" not in environment


if __name__ == "__main__":
    swell(Path(sys.argv[1]))
