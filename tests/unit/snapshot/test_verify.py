"""Verification: what is as frozen passes, plain tools agree, and nothing hostile makes it crash, wait or swell."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive.integrity import folder as folder_module
from medlive.integrity.folder import REQUIRED, SIGNATURE, SUMS, list_files, open_inside
from medlive.snapshot.model import CASE_FIELDS, CRITERION_FIELDS, line, row_fault
from medlive.snapshot.rows import CASES, CRITERIA, Reader
from medlive.snapshot.verify import run as verify_module
from medlive.snapshot.verify.disguise import find_disguise
from medlive.snapshot.verify.leaks import find_contact, find_unstorable
from medlive.snapshot.verify.parquet_pages import PageFault, unpacked_size
from medlive.snapshot.verify.run import STEPS, StepState, Trust, VerificationReport, verify_snapshot
from tests.support.snapshots import Line, build_line, small_case

CANARY = "5c6b1f0e-7d3a-4c5e-9a41-6d65646c6976"


def failed(report: VerificationReport) -> set[int]:
    return {s.number for s in report.steps if s.state is StepState.FAILED}


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Line:
    return build_line(tmp_path_factory.mktemp("line"))


def test_a_line_of_signed_releases_passes_every_step(releases: Line) -> None:
    for release in releases.releases:
        report = verify_snapshot(release.path, public_key=releases.key.public)
        assert report.ok, report.summary()
        assert report.complete
        assert report.trust is Trust.ORIGIN
        assert len(report.steps) == len(STEPS) == 19
    report = verify_snapshot(releases.last)
    assert report.trust is Trust.INTEGRITY
    assert "not who signed it" in report.steps[0].why


def test_an_unsigned_release_says_so_and_a_parent_that_is_not_here_is_no_fault(
    copied: Callable[[int], Path], releases: Line, tmp_path: Path
) -> None:
    report = verify_snapshot(copied(7))
    assert report.ok, report.summary()
    assert report.trust is Trust.NOT_SIGNED
    assert [s.number for s in report.steps if s.state is StepState.SKIPPED] == [1]
    assert not report.complete
    assert failed(verify_snapshot(report.path, public_key=releases.key.public)) == {1}

    alone = Path(shutil.copytree(releases.last, tmp_path / "elsewhere" / "renamed"))
    report = verify_snapshot(alone)
    assert report.ok
    assert [s.number for s in report.steps if s.state is StepState.SKIPPED] == [19]
    parent = releases.releases[1].path
    assert verify_snapshot(alone, parent=parent).complete
    other = releases.releases[0].path
    assert failed(verify_snapshot(alone, parent=other)) == {19}
    assert failed(verify_snapshot(other, parent=parent)) == {19}


def test_a_parent_that_is_spoilt_is_named(releases: Line, tmp_path: Path) -> None:
    root = Path(shutil.copytree(releases.root, tmp_path / "line"))
    parent, child = root / "medlive-2026.W44", root / "medlive-2026.W45"
    for name in ("data/cases.jsonl", "data/criteria.jsonl", "holdouts.json", "manifest.json", SUMS):
        good = (parent / name).read_bytes()
        (parent / name).write_bytes(good[:-9] + b"x" + good[-8:])
        report = verify_snapshot(child)
        assert failed(report) == {19}
        assert any(f.file == f"medlive-2026.W44/{name}" for f in report.findings), report.summary()
        (parent / name).unlink()
        assert failed(verify_snapshot(child)) == {19}
        (parent / name).write_bytes(good)
    assert verify_snapshot(child).complete


def test_coreutils_and_minisign_agree(releases: Line, tmp_path: Path) -> None:
    done = subprocess.run(["sha256sum", "-c", SUMS], cwd=releases.last, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": OK") == len(REQUIRED)
    key = tmp_path / "minisign.pub"
    key.write_text(releases.key.public.text())
    try:
        done = subprocess.run(
            ["minisign", "-Vm", SUMS, "-p", str(key)], cwd=releases.last, capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("minisign is not installed")
    assert done.returncode == 0, done.stderr
    assert "version:2026.W45" in done.stdout


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
        "from medlive.snapshot.verify.run import verify_snapshot\n"
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


def test_threads_find_the_same_in_a_large_folder(
    releases: Line, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(verify_module, "_APART", 0)
    before = threading.active_count()
    assert verify_snapshot(releases.last).complete
    spoilt = Path(shutil.copytree(releases.last, tmp_path / "x" / "y"))
    for name in ("data/cases.jsonl", "data/criteria.parquet", "LICENSE"):
        good = (spoilt / name).read_bytes()
        (spoilt / name).write_bytes(good[:-9] + b"x" + good[-8:])
        apart = verify_snapshot(spoilt)
        monkeypatch.setattr(verify_module, "_APART", 1 << 40)
        assert apart == verify_snapshot(spoilt)
        assert not apart.ok
        monkeypatch.setattr(verify_module, "_APART", 0)
        (spoilt / name).write_bytes(good)
    assert threading.active_count() == before


def test_what_changes_while_it_is_read_is_named(
    copied: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(3)
    steps = list(STEPS)

    def touch(folder: object, out: object) -> None:
        data = (path / "LICENSE").read_bytes()
        (path / "LICENSE").unlink()
        (path / "LICENSE").write_bytes(data)

    steps[-1] = ("the last", touch)
    monkeypatch.setattr(verify_module, "STEPS", tuple(steps))
    report = verify_snapshot(path)
    assert failed(report) == {4}
    assert report.findings[0].file == "LICENSE"


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
def test_hostile_content_is_a_finding(copied: Callable[[int], Path], name: str, data: bytes) -> None:
    path = copied(3)
    (path / name).write_bytes(data)
    report = verify_snapshot(path)
    assert not report.ok
    report.summary().encode("utf-8", "strict")


@pytest.mark.parametrize("what", ["nothing", "a file", "an empty folder", "a link", "a pipe"])
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
        handle.truncate(folder_module.MOST_FILE + 1)
    report = verify_snapshot(path)
    assert 2 in failed(report)
    assert any(f.file == "data/cases.jsonl" and "at most" in f.expected for f in report.findings)
    with (path / "data/cases.jsonl").open("r+b") as handle:
        handle.truncate(folder_module.MOST_LINE * 3)
    report = verify_snapshot(path)
    assert 7 in failed(report)
    with (path / "README.md").open("r+b") as handle:
        handle.truncate(100_000_000)
    assert not verify_snapshot(path).ok


def test_no_part_of_a_name_is_a_link(tmp_path: Path) -> None:
    """Not even one that was put there after the folder was listed."""
    root, outside = tmp_path / "in", tmp_path / "out"
    (root / "data").mkdir(parents=True)
    outside.mkdir()
    (outside / "x").write_text("secret")
    assert list_files(root).files == frozenset()
    (root / "data").rmdir()
    (root / "data").symlink_to(outside)
    (root / "y").symlink_to(outside / "x")
    os.mkfifo(root / "z")
    for name in ("data/x", "y", "z"):
        with pytest.raises(OSError, match=r".") as caught:
            open_inside(root, name)
        assert caught.value.filename == name
    link = tmp_path / "link"
    link.symlink_to(root)
    with pytest.raises(OSError, match=r"."):
        open_inside(link, "y")


# The rows' grammar against the plain rules

ODD = (
    'aZ 0.,:/@wW\n\t\r\b\f\\"{}[]\x00\x07\x1f\x7f\x85\u00a0\u00ad\u3000\u3164\u2028\ufeff\u200b\U00020000'
    "膝，。αΟ\u0435“℃éＡ🙂"
)
TEXTS = st.text(alphabet=st.sampled_from(list(ODD)), max_size=12)
IDS = st.text(alphabet=st.sampled_from(list('ab0-_.:"\\/ @é膝')), max_size=6)
DATES = st.sampled_from(["2025-03-03", "2025-02-30", "20250303", "", "9999-99-99"])
WEEKS = st.sampled_from(["2026.W46", "2026.W99", "2026-W46", ""])


@st.composite
def case_rows(draw: st.DrawFn) -> dict[str, object]:
    row = {**small_case("a", "2026.W46").row(), "canary": CANARY}
    for name in draw(st.sets(st.sampled_from(list(row)), max_size=3)):
        pick = {"case_id": IDS, "posted_at": DATES, "first_release": WEEKS, "revision": st.integers(-1, 2**40)}
        row[name] = draw(pick.get(name, TEXTS))
    return row


@st.composite
def criterion_rows(draw: st.DrawFn) -> dict[str, object]:
    row = {**small_case("a", "2026.W46").criteria[0].row(), "canary": CANARY}
    for name in draw(st.sets(st.sampled_from(list(row)), max_size=3)):
        numbers = st.integers(-12, 12) | st.integers()
        ids = IDS | st.sampled_from(["a-c1", "a-c0", "a-c10", "a-c1 ", "b-c1"])
        row[name] = draw(numbers if CRITERION_FIELDS[name] is int else ids if name == "criterion_id" else TEXTS)
    return row


def _read(tmp: Path, kind: str, data: bytes) -> tuple[list[tuple[bytes, tuple[bytes, ...], bool, int]], list[str]]:
    (tmp / "data").mkdir(exist_ok=True)
    (tmp / kind).write_bytes(data)
    with open_inside(tmp, kind) as handle:
        reader = Reader(handle, kind, CANARY)
        return list(reader), [str(f) for _, f in reader.faults]


def _flawless(text: str) -> bool:
    return not (find_unstorable(text) or find_disguise(text) or find_contact(text))


@given(row=case_rows() | criterion_rows(), noise=st.sampled_from([b"", b" ", b"\r", b"x"]))
@settings(max_examples=150, deadline=None)
def test_what_the_grammar_lets_through_the_plain_rules_would_have(
    tmp_path_factory: pytest.TempPathFactory, row: dict[str, object], noise: bytes
) -> None:
    kind, fields = (CASES, CASE_FIELDS) if "theme" in row else (CRITERIA, CRITERION_FIELDS)
    data = line(row)[:-1] + noise + b"\n"
    found, faults = _read(tmp_path_factory.getbasetemp(), kind, data)
    assert len(found) == 1 or faults
    for key, parts, odd, number in found:
        names = [n for n in sorted(fields) if n != "canary"]
        spelled = {
            n: json.loads(b'"%b"' % p if fields[n] is str else p) for n, p in zip(names, parts, strict=True)
        }
        assert {**spelled, "canary": row["canary"]} == row
        assert key == str(row["case_id"]).encode()
        assert number == 1
        if odd:
            continue
        assert data == line(row)
        assert row_fault(row, fields) is None
        assert row["canary"] == CANARY
        texts = ("source", "narrative", "query", "advice") if kind == CASES else ("criterion",)
        assert all(_flawless(str(row[name])) and str(row[name]).strip() for name in texts)


def test_rows_of_the_usual_kind_are_known_by_their_grammar(tmp_path: Path) -> None:
    """Otherwise the saving would be lost, and nobody would see it."""
    cases = [small_case(name, "2026.W46") for name in ("a", "b", "czh", "dzh")]
    rows = [{**c.row(), "canary": CANARY} for c in cases]
    found, faults = _read(tmp_path, CASES, b"".join(map(line, rows)))
    assert [odd for _, _, odd, _ in found] == [False] * 4
    assert not faults
    rows = [{**k.row(), "canary": CANARY} for c in cases for k in c.criteria]
    found, faults = _read(tmp_path, CRITERIA, b"".join(map(line, rows)))
    assert not any(odd for _, _, odd, _ in found)
    assert not faults


def test_only_the_line_with_the_odd_character_is_looked_into(tmp_path: Path) -> None:
    made = [replace(small_case(f"a{n:03d}", "2026.W46")) for n in range(600)]
    made[300] = replace(made[300], advice="Re\u200bst")
    made[301] = replace(made[301], advice="See wWw.example")
    made[599] = replace(made[599], advice="See x://y")
    rows = [{**c.row(), "canary": CANARY} for c in made]
    found, _ = _read(tmp_path, CASES, b"".join(map(line, rows)))
    assert [n for _, _, odd, n in found if odd] == [301, 302, 600]


# Pages of parquet


@given(data=st.binary(max_size=80), values=st.integers(0, 50))
@settings(max_examples=200, deadline=None)
def test_bytes_that_are_no_pages_are_a_fault(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, values: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "pages"
    path.write_bytes(data)
    with path.open("rb", buffering=0) as handle, suppress(PageFault):
        assert unpacked_size(handle, 0, len(data), values) >= 0


def test_a_folder_called_like_another_version_is_not_that_version(copied: Callable[[int], Path]) -> None:
    folder = copied(3)
    other = folder.rename(folder.with_name("medlive-2026.W48"))
    report = verify_snapshot(other)
    assert [(s.number, str(s.findings[0].expected)) for s in report.steps if s.findings] == [
        (5, "version 2026.W48, as its folder is called")
    ]
    assert verify_snapshot(other.rename(folder.with_name("kept"))).ok
