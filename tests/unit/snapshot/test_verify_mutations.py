"""Mutations: over five hundred ways to spoil a snapshot, each caught and named, and nothing outside it touched."""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from medlive.integrity.signing import SecretKey, generate
from medlive.snapshot.load import load_snapshot
from medlive.snapshot.verify.steps import VerificationReport, verify_snapshot
from tests.support.forgeries import chain_forgeries, forgeries
from tests.support.forging import sealed
from tests.support.snapshots import Line, build_line
from tests.support.spoiling import (
    BYTES,
    NAMES,
    Mutation,
    Original,
    append,
    flip,
    in_file,
    seal,
    structural,
    sums_mutations,
)

FORGER = SecretKey.parse(generate()[0])
TWINS = ("data/cases.parquet", "data/criteria.parquet")


@dataclass(frozen=True)
class Place:
    """A snapshot to be spoilt, alone and beside its parents; `outside` is what must stay as it is."""

    line: Line
    alone: Original
    beside: Original
    outside: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    root = tmp_path_factory.mktemp("mutations")
    line = build_line(root / "line")
    alone = root / "alone" / line.last.name
    shutil.copytree(line.last, alone)
    outside = alone.parent / "outside"
    shutil.copytree(line.last, outside)
    for name in NAMES:
        shutil.copy(line.last / name, outside / name.replace("/", "-"))
    (outside / "secret").write_text("kept")
    return Place(line, Original(alone), Original(line.last), outside)


def stamps(
    folder: Path, without: Path | None = None
) -> dict[str, tuple[int, int, int, int]]:
    """What shows whether anything was written: each entry's number, size and times of writing."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        if without is None or (
            path != without and without not in path.parents and path != without.parent
        ):
            status = path.lstat()
            found[str(path)] = (
                status.st_ino,
                status.st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
            )
    return found


def failed(report: VerificationReport) -> set[int]:
    return {s.number for s in report.steps if s.state == "failed"}


def check(original: Original, mutations: list[Mutation], **given: Any) -> list[str]:
    """Spoil, verify and bring back; what was not as it must be, as texts."""
    root = original.folder.parent
    outside = stamps(root, original.folder)
    wrong = []
    for mutation in mutations:
        mutation.apply(original.folder)
        before = stamps(original.folder) if not original.folder.is_symlink() else {}
        report = verify_snapshot(original.folder, **given)
        if before and stamps(original.folder) != before:
            wrong.append(f"{mutation.label}: verify wrote into the folder")
        said = [
            f"{f.file} {f.expected} {f.got}"
            for step in report.steps
            for f in step.findings
        ]
        "".join(said).encode("utf-8", "strict")
        if report.ok:
            wrong.append(f"{mutation.label}: not caught")
        elif not any(name in text for name in mutation.named for text in said):
            wrong.append(f"{mutation.label}: {mutation.named} not named in {said[:3]}")
        elif not mutation.steps <= failed(report):
            wrong.append(
                f"{mutation.label}: steps {sorted(failed(report))}: {said[:3]}"
            )
        original.restore()
    assert stamps(root, original.folder) == outside
    assert verify_snapshot(original.folder).ok
    return wrong


BYTE_MUTATIONS = [
    Mutation(f"{name}: {change.__name__}", in_file(name, change), (name,))
    for name in NAMES
    for change in BYTES
]
STRUCTURE = list(structural())
SUMS_MUTATIONS = list(sums_mutations(FORGER))
FORGERIES = list(forgeries(FORGER))
CHAIN = list(chain_forgeries(FORGER))


def test_there_are_over_five_hundred() -> None:
    groups = (BYTE_MUTATIONS, STRUCTURE, SUMS_MUTATIONS, FORGERIES, CHAIN, PARQUET)
    assert sum(map(len, groups)) >= 500
    labels = [m.label for group in groups for m in group]
    assert len(set(labels)) == len(labels)


@pytest.mark.thorough
def test_a_changed_byte_is_caught_in_every_file(place: Place) -> None:
    assert check(place.alone, BYTE_MUTATIONS) == []


@pytest.mark.thorough
def test_what_is_missing_linked_swapped_or_does_not_belong_is_caught(
    place: Place,
) -> None:
    assert check(place.alone, STRUCTURE) == []


@pytest.mark.thorough
def test_lines_of_the_sums_lead_nowhere(place: Place) -> None:
    assert check(place.alone, SUMS_MUTATIONS) == []


@pytest.mark.thorough
def test_a_forger_who_mends_every_digest_and_signs_is_caught_by_meaning(
    place: Place,
) -> None:
    assert check(place.alone, FORGERIES) == []


@pytest.mark.thorough
def test_a_forger_who_mends_all_that_one_release_shows_is_caught_by_its_parent(
    place: Place,
) -> None:
    assert check(place.beside, CHAIN) == []


@pytest.mark.thorough
def test_only_the_key_that_was_given_proves_who_signed(place: Place) -> None:
    """What means the same, and what only its text says otherwise, is told by the key alone: without one it passes,
    as integrity, and is the snapshot that its rows and ledgers say it is."""
    rng = random.Random(3)
    free = ["README.md", "LICENSE", "CHANGES.md"]
    good = list(load_snapshot(place.alone.folder))
    for name in free:
        place.alone.restore()
        in_file(name, lambda data, rng: append(data, rng).replace(b"\0", b" "))(
            place.alone.folder, rng
        )
        seal(place.alone.folder, FORGER)
        report = verify_snapshot(place.alone.folder)
        assert report.ok, (name, report.summary())
        assert report.trust == "integrity"
        assert list(load_snapshot(place.alone.folder)) == good
        report = verify_snapshot(place.alone.folder, public_key=place.line.key.public)
        assert failed(report) == {1}
        assert report.trust == "broken"
    place.alone.restore()
    report = verify_snapshot(place.alone.folder, public_key=place.line.key.public)
    assert report.ok
    assert report.trust == "origin"
    assert failed(verify_snapshot(place.alone.folder, public_key=FORGER.public)) == {1}


# Parquet


def _write(
    name: str, edit: Callable[[pa.Table], pa.Table], **settings: Any
) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        table = edit(pq.read_table(folder / name))
        pq.write_table(table, folder / name, **settings)

    return spoil


def _with_column(table: pa.Table, column: str, values: list[Any]) -> pa.Table:
    place = table.schema.get_field_index(column)
    return table.set_column(
        place,
        table.schema.field(column),
        pa.array(values, table.schema.field(column).type),
    )


def _long_entry(table: pa.Table) -> pa.Table:
    return _with_column(table, "narrative", ["x" * 1_000_000] * len(table))


DELTA = {"narrative": "DELTA_BYTE_ARRAY"}


def _change_one(column: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    return lambda table: _with_column(
        table, column, [value, *table.column(column).to_pylist()[1:]]
    )


Column: TypeAlias = "pa.Field[Any]"


def _typed(change: Callable[[Column], Column]) -> Callable[[pa.Table], pa.Table]:
    return lambda t: t.cast(
        pa.schema([change(f) for f in t.schema]).with_metadata(t.schema.metadata)
    )


def _wide(field: Column) -> Column:
    return field.with_type(
        {"int32": pa.int64(), "string": pa.large_string()}.get(
            str(field.type), field.type
        )
    )


def _swollen(table: pa.Table) -> pa.Table:
    return _with_column(
        table, "narrative", ["x" * 3_000_000, *table["narrative"].to_pylist()[1:]]
    )


CASE_TWIN, CRITERION_TWIN = TWINS
PARQUET_EDITS: tuple[tuple[str, Callable[[Path], object], str], ...] = (
    ("another weight", _write(CRITERION_TWIN, _change_one("points", 9)), "points"),
    ("another text", _write(CASE_TWIN, _change_one("narrative", "x")), "narrative"),
    (
        "another date",
        _write(CASE_TWIN, _change_one("posted_at", date(2025, 3, 4))),
        "posted_at",
    ),
    (
        "a date before all others",
        _write(CASE_TWIN, _change_one("posted_at", date.min)),
        "posted_at",
    ),
    ("a row less", _write(CASE_TWIN, lambda t: t.slice(1)), "rows"),
    (
        "a row twice",
        _write(CRITERION_TWIN, lambda t: pa.concat_tables([t.slice(0, 1), t])),
        "rows",
    ),
    (
        "rows turned round",
        _write(CRITERION_TWIN, lambda t: t.take(list(range(len(t)))[::-1])),
        "row 1",
    ),
    ("no rows", _write(CRITERION_TWIN, lambda t: t.slice(0, 0)), "rows"),
    (
        "a column less",
        _write(CASE_TWIN, lambda t: t.drop_columns(["theme"])),
        "columns",
    ),
    (
        "a column more",
        _write(CASE_TWIN, lambda t: t.append_column("url", t["theme"])),
        "columns",
    ),
    (
        "other columns",
        _write(CASE_TWIN, lambda t: t.select(t.schema.names[::-1])),
        "columns",
    ),
    ("wide columns", _write(CRITERION_TWIN, _typed(_wide)), "columns"),
    (
        "nullable columns",
        _write(CRITERION_TWIN, _typed(lambda f: f.with_nullable(True))),
        "columns",
    ),
    (
        "no canary",
        _write(CRITERION_TWIN, lambda t: t.replace_schema_metadata({})),
        "canary",
    ),
    (
        "prefixes",
        _write(CASE_TWIN, _long_entry, use_dictionary=False, column_encoding=DELTA),
        "cases.parquet",
    ),
    (
        "an entry that repeats",
        _write(CASE_TWIN, _long_entry, compression="zstd"),
        "cases.parquet",
    ),
    (
        "a page that swells",
        _write(CASE_TWIN, _swollen, compression="zstd", use_dictionary=False),
        "cases.parquet",
    ),
    (
        "a dictionary that swells",
        _write(CASE_TWIN, _swollen, compression="zstd"),
        "cases.parquet",
    ),
    (
        "no parquet",
        lambda f: (f / CASE_TWIN).write_bytes(b"PAR1" + b"\xff" * 64 + b"PAR1"),
        "cases.parquet",
    ),
    (
        "the other's",
        lambda f: shutil.copy(f / CASE_TWIN, f / CRITERION_TWIN),
        "columns",
    ),
)
PARQUET = [
    Mutation(f"parquet: {label}", sealed(FORGER, edit), (word,), frozenset({13}))
    for label, edit, word in PARQUET_EDITS
]


@pytest.mark.thorough
def test_parquet_that_holds_or_claims_something_else_is_caught(place: Place) -> None:
    assert check(place.alone, PARQUET) == []


@pytest.mark.thorough
def test_parquet_with_a_byte_changed_and_mended_digests_is_caught_or_says_the_very_same(
    place: Place,
) -> None:
    """Some bytes of parquet mean nothing to who reads the rows: then the tables are equal, to the last value."""
    rng, caught = random.Random(8), 0
    good = {name: pq.read_table(place.alone.folder / name) for name in TWINS}
    for number in range(40):
        name = TWINS[number % 2]
        in_file(name, flip)(place.alone.folder, rng)
        seal(place.alone.folder, FORGER)
        if verify_snapshot(place.alone.folder).ok:
            assert pq.read_table(place.alone.folder / name).equals(
                good[name], check_metadata=True
            )
        else:
            caught += 1
        place.alone.restore()
    assert caught >= 10
