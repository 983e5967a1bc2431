"""Verification: any byte, row or file that is not as frozen is caught and named; nothing makes it crash."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from medlive.snapshot.folder import REQUIRED, SUMS, sha256
from medlive.snapshot.verify import STEPS, StepState, VerificationReport, verify_snapshot

NAMES = (*REQUIRED, SUMS)


def failed(report: VerificationReport) -> set[int]:
    return {s.number for s in report.steps if s.state is StepState.FAILED}


def test_a_frozen_snapshot_passes_every_step(copied: Callable[[int], Path]) -> None:
    report = verify_snapshot(copied(7))
    assert report.ok, report.summary()
    assert report.complete
    assert len(report.steps) == len(STEPS) == 14


def flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def drop_last(data: bytes, rng: random.Random) -> bytes:
    return data[:-1]


def add(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + bytes([rng.randrange(256)]) + data[at:]


def append(data: bytes, rng: random.Random) -> bytes:
    return data + b"\n"


def crlf(data: bytes, rng: random.Random) -> bytes:
    return data.replace(b"\n", b"\r\n")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", [flip, cut, drop_last, add, append, crlf])
def test_a_changed_byte_is_caught_and_the_file_named(
    copied: Callable[[int], Path], name: str, change: Callable[[bytes, random.Random], bytes]
) -> None:
    path = copied(4)
    good = (path / name).read_bytes()
    rng = random.Random(f"{name}{change.__name__}")
    for _ in range(2):
        bad = change(good, rng)
        if bad == good:
            continue
        (path / name).write_bytes(bad)
        report = verify_snapshot(path)
        assert not report.ok
        # A digest that was changed in SHA256SUMS shows at the file it belongs to.
        assert any(f.file.startswith(name) for f in report.findings) or name == SUMS
    (path / name).write_bytes(good)
    assert verify_snapshot(path).ok


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(copied: Callable[[int], Path], name: str) -> None:
    path = copied(3)
    (path / name).unlink()
    report = verify_snapshot(path)
    assert 1 in failed(report)
    assert any(f.file == name for f in report.findings)


@pytest.mark.parametrize("name", NAMES)
def test_a_link_in_a_file_s_place_is_not_followed(
    copied: Callable[[int], Path], tmp_path: Path, name: str
) -> None:
    path = copied(3)
    aside = tmp_path / "aside"
    shutil.move(path / name, aside)
    (path / name).symlink_to(aside)
    report = verify_snapshot(path)
    assert 1 in failed(report)
    assert any("symbolic link" in f.got for f in report.findings)


def test_every_swap_of_two_files_is_caught(copied: Callable[[int], Path]) -> None:
    path = copied(3)
    for i, one in enumerate(NAMES):
        for other in NAMES[i + 1 :]:
            a, b = (path / one).read_bytes(), (path / other).read_bytes()
            (path / one).write_bytes(b)
            (path / other).write_bytes(a)
            assert not verify_snapshot(path).ok, (one, other)
            (path / one).write_bytes(a)
            (path / other).write_bytes(b)
    assert verify_snapshot(path).ok


def make_extra_file(path: Path) -> None:
    (path / "data" / "more.jsonl").write_text("")


def make_folder(path: Path) -> None:
    (path / "attic").mkdir()


def make_pipe(path: Path) -> None:
    os.mkfifo(path / "pipe")


def make_odd_name(path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(path) + b"/\xff\n"))).write_text("x")


def make_deep(path: Path) -> None:
    deep = path / "data" / Path(*["d"] * 50)
    deep.mkdir(parents=True)


def make_many(path: Path) -> None:
    for i in range(1100):
        (path / f"x{i}").touch()


@pytest.mark.parametrize("make", [make_extra_file, make_folder, make_pipe, make_odd_name, make_deep, make_many])
def test_what_does_not_belong_is_caught(copied: Callable[[int], Path], make: Callable[[Path], None]) -> None:
    path = copied(3)
    make(path)
    report = verify_snapshot(path)
    assert 1 in failed(report)
    report.summary().encode("utf-8")


def seal(path: Path) -> None:
    """What a careful forger does: make the manifest and SHA256SUMS agree with the files as they are now."""
    manifest = json.loads((path / "manifest.json").read_bytes())
    for name, entry in manifest["files"].items():
        entry["size"], entry["sha256"] = (path / name).stat().st_size, sha256(path / name)
    text = json.dumps(manifest, ensure_ascii=False, sort_keys=True, indent=2) + "\n"
    (path / "manifest.json").write_bytes(text.encode())
    (path / SUMS).write_text("".join(f"{sha256(path / n)}  {n}\n" for n in sorted(REQUIRED)))


def edit_rows(path: Path, name: str, edit: Callable[[list[dict[str, object]]], None]) -> None:
    file = path / "data" / f"{name}.jsonl"
    rows = [json.loads(x) for x in file.read_bytes().split(b"\n") if x]
    edit(rows)
    dump = (json.dumps(r, ensure_ascii=False, sort_keys=True, separators=(",", ":")) for r in rows)
    file.write_bytes("".join(f"{row}\n" for row in dump).encode())


FORGERIES: list[tuple[str, str, Callable[[list[dict[str, object]]], None], set[int]]] = [
    ("another weight", "criteria", lambda r: r[0].update(points=9), {11, 12}),
    ("weight nought", "criteria", lambda r: r[0].update(points=0), {8}),
    ("weight eleven", "criteria", lambda r: r[0].update(points=11), {8}),
    ("a weight as text", "criteria", lambda r: r[0].update(points="5"), {6}),
    ("a weight as truth", "criteria", lambda r: r[0].update(points=True), {6}),
    ("no positive weight", "criteria", lambda r: [x.update(points=-1) for x in r] and None, {8}),
    ("an unknown axis", "criteria", lambda r: r[0].update(axis="Charm"), {8, 10}),
    ("a criterion of no case", "criteria", lambda r: r[0].update(case_id="a"), {7}),
    ("a criterion twice", "criteria", lambda r: r[1].update(criterion_id=r[0]["criterion_id"]), {7}),
    ("a lost criterion", "criteria", lambda r: r.pop(), {10, 11, 12}),
    ("a case twice", "cases", lambda r: r.insert(1, dict(r[0])), {6, 7}),
    ("a lost case", "cases", lambda r: r.pop(), {7, 10, 11}),
    ("another order", "cases", lambda r: r.reverse(), {6}),
    ("an unknown theme", "cases", lambda r: r[0].update(theme="Gossip"), {8, 10}),
    ("an unknown field", "cases", lambda r: r[0].update(url="x"), {6}),
    ("a later first release", "cases", lambda r: r[0].update(first_release="2027.W01"), {9}),
    ("a date that is none", "cases", lambda r: r[0].update(posted_at="2025-02-30"), {9}),
    ("a date of the future", "cases", lambda r: r[0].update(posted_at="2027-02-20"), {9}),
    ("an address", "cases", lambda r: r[0].update(advice="See https://forum.example/t/1"), {14, 11}),
    ("an e-mail address", "cases", lambda r: r[0].update(advice="Write to a.b@example.org"), {14}),
    ("a handle", "cases", lambda r: r[0].update(advice="Thanks @someone_99"), {14}),
    ("a control character", "cases", lambda r: r[0].update(advice="Rest\x00"), {14}),
]


@pytest.mark.parametrize(("name", "file", "edit", "steps"), FORGERIES, ids=[f[0] for f in FORGERIES])
def test_a_forger_who_mends_the_digests_is_caught_by_meaning(
    copied: Callable[[int], Path],
    name: str,
    file: str,
    edit: Callable[[list[dict[str, object]]], None],
    steps: set[int],
) -> None:
    path = copied(4)
    edit_rows(path, file, edit)
    seal(path)
    report = verify_snapshot(path)
    assert steps <= failed(report), report.summary()
    assert not {1, 2, 3, 4, 5} & failed(report)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("data/cases.jsonl", b'{"a":' * 20_000),
        ("data/cases.jsonl", b'{"revision":' + b"9" * 10_000 + b"}\n"),
        ("data/cases.jsonl", b"\xff\xfe\n"),
        ("data/cases.jsonl", b""),
        ("data/criteria.jsonl", b"[]\nnull\n1\n"),
        ("data/cases.parquet", b"PAR1" + b"\xff" * 64 + b"PAR1"),
        ("livemedbench.json", b"["),
        ("changes.json", b'{"added":[1],"revised":{},"withdrawn":null}'),
        ("changes.json", b"[" * 100_000),
        ("manifest.json", b"[" * 100_000),
        ("manifest.json", b'{"files":{"../x":{"size":1,"sha256":"0","rows":1}}}'),
        (SUMS, b"0" * 64 + b"  ../../../etc/hostname\n"),
        (SUMS, b"\xff"),
    ],
)
def test_hostile_content_is_a_finding(copied: Callable[[int], Path], name: str, data: bytes) -> None:
    path = copied(3)
    (path / name).write_bytes(data)
    report = verify_snapshot(path)
    assert not report.ok
    report.summary().encode("utf-8", "strict")


def test_a_swollen_parquet_is_refused_before_it_is_unpacked(copied: Callable[[int], Path]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = copied(3)
    table = pq.read_table(path / "data/criteria.parquet")
    big = pa.concat_tables([table.slice(0, 1)] * 50_000).combine_chunks()
    pq.write_table(big, path / "data/criteria.parquet", compression="zstd", use_dictionary=False)
    seal(path)
    report = verify_snapshot(path)
    assert any("claims" in f.got for f in report.findings)


@pytest.mark.parametrize("what", ["nothing", "a file", "an empty folder", "a link"])
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
    assert not verify_snapshot(path).ok


@pytest.mark.parametrize("name", sorted(set(REQUIRED) - {"manifest.json"}))
def test_a_forger_who_mends_only_one_of_the_two_lists_of_digests_is_caught(
    copied: Callable[[int], Path], name: str
) -> None:
    path = copied(3)
    data = (path / name).read_bytes()
    (path / name).write_bytes(data[:-2] + b" " + data[-1:])
    (path / SUMS).write_text("".join(f"{sha256(path / n)}  {n}\n" for n in sorted(REQUIRED)))
    report = verify_snapshot(path)
    assert 5 in failed(report)
    assert 3 not in failed(report)
