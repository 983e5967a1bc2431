"""Verification: what is as frozen passes, plain tools agree, and nothing hostile makes it crash, wait or swell."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from medlive import load_snapshot
from medlive.errors import MedliveError
from medlive.guard import bounds
from medlive.integrity.folder import REQUIRED, SIGNATURE, SUMS, list_files, sha256
from medlive.integrity.paths import open_plain
from medlive.snapshot.verify.steps import STEPS, VerificationReport, verify_snapshot
from tests.support.snapshots import Line, build_line
from tests.support.spoiling import seal

pytestmark = pytest.mark.whole

CANARY = "5c6b1f0e-7d3a-4c5e-9a41-6d65646c6976"


def failed(report: VerificationReport) -> set[int]:
    return {s.number for s in report.steps if s.state == "failed"}


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Line:
    return build_line(tmp_path_factory.mktemp("line"))


def test_a_line_of_signed_releases_passes_every_step(releases: Line) -> None:
    for release in releases.releases:
        report = verify_snapshot(release.path, public_key=releases.key.public)
        assert report.ok, report.summary()
        assert report.complete
        assert report.trust == "origin"
        assert len(report.steps) == len(STEPS) == 19
    report = verify_snapshot(releases.last)
    assert report.trust == "integrity"
    assert "not who signed it" in report.steps[0].why


def test_an_unsigned_release_says_so_and_a_parent_that_is_not_here_is_no_fault(
    copied: Callable[[int], Path], releases: Line, tmp_path: Path
) -> None:
    report = verify_snapshot(copied(7))
    assert report.ok, report.summary()
    assert report.trust == "not signed"
    assert [s.number for s in report.steps if s.state == "skipped"] == [1]
    assert not report.complete
    assert failed(verify_snapshot(report.path, public_key=releases.key.public)) == {1}

    alone = Path(shutil.copytree(releases.last, tmp_path / "elsewhere" / "renamed"))
    report = verify_snapshot(alone)
    assert report.ok
    assert [s.number for s in report.steps if s.state == "skipped"] == [19]
    parent = releases.releases[1].path
    beside = alone.parent / parent.name
    shutil.copytree(parent, beside)
    assert verify_snapshot(alone).complete
    shutil.rmtree(beside)
    shutil.copytree(releases.releases[0].path, beside)
    assert failed(verify_snapshot(alone)) == {19}


def test_a_file_that_cannot_be_read_is_named(
    copied: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(7)

    def read(file: Path) -> str:
        if file.name == "livemedbench.json":
            raise OSError
        return sha256(file)

    monkeypatch.setattr("medlive.snapshot.verify.steps.sha256", read)
    (step,) = [s for s in verify_snapshot(path).steps if "size and digest" in s.name]
    (finding,) = step.findings
    assert finding.file == "livemedbench.json"
    assert finding.got.endswith(", an unreadable file")


@pytest.mark.thorough
def test_a_parent_that_is_spoilt_is_named(releases: Line, tmp_path: Path) -> None:
    root = Path(shutil.copytree(releases.root, tmp_path / "line"))
    parent, child = root / "medlive-2026.W44", root / "medlive-2026.W45"
    for name in (
        "data/cases.jsonl",
        "data/criteria.jsonl",
        "holdouts.json",
        "manifest.json",
        SUMS,
    ):
        good = (parent / name).read_bytes()
        (parent / name).write_bytes(good[:-9] + b"x" + good[-8:])
        report = verify_snapshot(child)
        assert failed(report) == {19}
        assert any(
            f.file == f"medlive-2026.W44/{name}"
            for step in report.steps
            for f in step.findings
        ), report.summary()
        (parent / name).unlink()
        assert failed(verify_snapshot(child)) == {19}
        (parent / name).write_bytes(good)
    assert verify_snapshot(child).complete


def test_coreutils_and_minisign_agree(releases: Line, tmp_path: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "-c", SUMS], cwd=releases.last, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": OK") == len(REQUIRED)
    key = tmp_path / "minisign.pub"
    key.write_text(releases.key.public.text())
    try:
        done = subprocess.run(
            ["minisign", "-Vm", SUMS, "-p", str(key)],
            cwd=releases.last,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        pytest.skip("minisign is not installed")
    assert done.returncode == 0, done.stderr
    assert "version:2026.W45" in done.stdout


@pytest.mark.thorough
def test_without_pyarrow_only_the_parquet_step_is_left_out(
    releases: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own, in which nothing of the service extra can be imported."""
    code = (
        "import sys; from pathlib import Path\n"
        "class No:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'pyarrow', 'pandas', 'sqlalchemy', 'psycopg', 'httpx2', 'tantivy'}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda n, p=None: None if n == 'pyarrow' else real(n, p)\n"
        "from medlive.snapshot.verify.steps import verify_snapshot\n"
        "r = verify_snapshot(Path(sys.argv[1]))\n"
        "assert r.ok, r.summary()\n"
        "print([s.number for s in r.steps if s.state == 'skipped'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(releases.last)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout == "[13]\n", done.stderr


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("data/cases.jsonl", b'{"a":' * 20_000),
        ("data/cases.jsonl", b'{"revision":' + b"9" * 10_000 + b"}\n"),
        ("data/cases.jsonl", b"\xff\xfe\n"),
        ("data/cases.jsonl", b""),
        ("data/cases.jsonl", b"\n" * 30_000),
        ("data/cases.jsonl", b'{"advice":"' + b"\\" * 100_001),
        ("data/criteria.jsonl", b"[]\nnull\n1\n"),
        ("data/cases.parquet", b"PAR1" + b"\xff" * 64 + b"PAR1"),
        ("livemedbench.json", b"["),
        ("changes.json", b'{"added":[1],"revised":{},"withdrawn":null}'),
        ("changes.json", b"[" * 100_000),
        ("holdouts.json", b"{}\n" * 1_000),
        ("manifest.json", b"[" * 100_000),
        ("manifest.json", b'{"files":{"../x":{"size":1,"sha256":"0","rows":1}}}'),
        (SUMS, b"0" * 64 + b"  ../../../etc/hostname\n"),
        (SUMS, b"\xff"),
        (SIGNATURE, b"untrusted comment: \xff\n" * 4),
        ("README.md", b"\0" * 100),
    ],
)
def test_hostile_content_is_a_finding(
    copied: Callable[[int], Path], name: str, data: bytes
) -> None:
    path = copied(3)
    (path / name).write_bytes(data)
    report = verify_snapshot(path)
    assert not report.ok
    report.summary().encode("utf-8", "strict")


@pytest.mark.parametrize(
    "what", ["nothing", "a file", "an empty folder", "a link", "a pipe"]
)
def test_what_is_no_snapshot_fails_without_a_crash(
    tmp_path: Path, copied: Callable[[int], Path], what: str
) -> None:
    path = tmp_path / "x"
    if what == "a file":
        path.write_text("x")
    elif what == "an empty folder":
        path.mkdir()
    elif what == "a link":
        path.symlink_to(copied(2))
    elif what == "a pipe":
        os.mkfifo(path)
    assert not verify_snapshot(path).ok


def test_files_and_lines_beyond_measure_are_not_read(
    copied: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(3)
    with (path / "data/cases.jsonl").open("r+b") as handle:
        handle.truncate(bounds.SNAPSHOT_FILE_BYTES + 1)
    report = verify_snapshot(path)
    assert 2 in failed(report)
    assert any(
        f.file == "data/cases.jsonl" and "at most" in f.expected
        for step in report.steps
        for f in step.findings
    )
    with (path / "data/cases.jsonl").open("r+b") as handle:
        handle.truncate(bounds.SNAPSHOT_LINE_BYTES * 3)
    seal(path, None)
    report = verify_snapshot(path)
    assert 7 in failed(report)
    with (path / "README.md").open("r+b") as handle:
        handle.truncate(100_000_000)
    assert not verify_snapshot(path).ok


@pytest.mark.matrix
@pytest.mark.parametrize(
    "text",
    [b"[" * 5_000_000, b"\0" * 5_000_000, b"\xff" * 100, b"", b"0" * 64 + b"  .\n"],
)
@pytest.mark.parametrize("name", [SUMS, "manifest.json", SIGNATURE])
def test_a_spoilt_list_of_digests_fails_and_gives_no_snapshot(
    copied: Callable[[int], Path], name: str, text: bytes
) -> None:
    path = copied(3)
    (path / name).write_bytes(text)
    assert not verify_snapshot(path).ok
    with pytest.raises(MedliveError):
        load_snapshot(path)


def test_links_and_pipes_are_neither_listed_nor_opened(tmp_path: Path) -> None:
    root, outside = tmp_path / "in", tmp_path / "out"
    root.mkdir()
    outside.mkdir()
    (outside / "x").write_text("secret")
    (root / "data").symlink_to(outside)
    (root / "y").symlink_to(outside / "x")
    os.mkfifo(root / "z")
    assert list_files(root)[0] == {}
    for name in ("y", "z"):
        with pytest.raises(OSError, match="not a regular file"):
            open_plain(root / name)
    link = tmp_path / "link"
    link.symlink_to(root)
    assert [str(fault) for fault in list_files(link)[1]] == [
        ".: expected a folder, got a symbolic link"
    ]


def test_a_folder_called_like_another_version_is_not_that_version(
    copied: Callable[[int], Path],
) -> None:
    folder = copied(3)
    other = folder.rename(folder.with_name("medlive-2026.W48"))
    report = verify_snapshot(other)
    assert [
        (s.number, str(s.findings[0].expected)) for s in report.steps if s.findings
    ] == [(5, "version 2026.W48, as in its folder's name")]
    assert verify_snapshot(other.rename(folder.with_name("kept"))).ok
