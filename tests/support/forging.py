"""Forging: what a snapshot says is changed, and every digest and the signature made to fit again."""

import io
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from medlive.integrity.signing import SecretKey
from medlive.snapshot.contents import (
    read_ledger,
    write_ledger,
)
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.model import (
    LIVEMEDBENCH_END,
    PROOF_FIELDS,
    TABLES,
    livemedbench_piece,
)
from medlive.snapshot.parquet import parquet_writer
from tests.support.spoiling import Spoil, dump, seal

Row = dict[str, Any]
Rows = list[Row]

CASES, CRITERIA, PLAIN, MANIFEST = (
    "data/cases.jsonl",
    "data/criteria.jsonl",
    "livemedbench.json",
    "manifest.json",
)


def read_rows(folder: Path, name: str) -> Rows:
    """The rows of a JSON Lines file."""
    return [
        json.loads(data) for data in (folder / name).read_bytes().split(b"\n") if data
    ]


def write_rows(folder: Path, name: str, rows: Rows) -> None:
    """The rows, spelled canonically."""
    (folder / name).write_bytes(b"".join(dump(row) + b"\n" for row in rows))


def derive(folder: Path) -> None:
    """What is derived from the rows is derived from those that are there now."""
    cases, criteria = read_rows(folder, CASES), read_rows(folder, CRITERIA)
    canary = json.loads((folder / MANIFEST).read_bytes())["canary"]
    with (folder / PLAIN).open("wb") as plain:
        for number, case in enumerate(cases):
            mine = [c for c in criteria if c["case_id"] == case["case_id"]]
            plain.write(livemedbench_piece(number, case, mine))
        plain.write(LIVEMEDBENCH_END)
    manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    columns = manifest.shape.columns
    for table, rows in zip(TABLES, (cases, criteria), strict=True):
        path = folder / f"data/{table}.parquet"
        with parquet_writer(path, columns[table], canary) as add:
            for row in rows:
                add(row)


def recount(manifest: Row, folder: Path) -> None:
    """The manifest's counts fit the rows."""
    cases, criteria = read_rows(folder, CASES), read_rows(folder, CRITERIA)
    counts = manifest["counts"]
    counts["cases"], counts["criteria"] = len(cases), len(criteria)

    def count(values: Iterable[str]) -> dict[str, int]:
        listed = list(values)
        return {value: listed.count(value) for value in sorted(set(listed))}

    for name in (
        "language",
        "source",
        "theme",
        "specialty",
        "difficulty",
        "dialogue_register",
        "first_release",
    ):
        counts[f"by_{name}"] = count(c[name] for c in cases)
    counts["by_month"] = count(c["posted_at"][:7] for c in cases)
    counts["by_axis"] = count(c["axis"] for c in criteria)
    counts["by_origin"] = count(c["origin"] for c in criteria)
    counts.pop("proof", None)
    if proved := [c for c in cases if c["ceiling"] is not None]:
        counts["proof"] = {"cases": len(proved)}
        for name in PROOF_FIELDS:
            counts["proof"][name] = round(fmean(c[name] for c in proved), 4)
    owners = [c["case_id"] for c in criteria]
    counts["criteria_per_case"] = count(str(owners.count(c["case_id"])) for c in cases)
    for name, entry in manifest["files"].items():
        if "cases." in name or name == PLAIN:
            entry["rows"] = len(cases)
        elif "criteria." in name:
            entry["rows"] = len(criteria)


def in_ledger(
    name: str, edit: Callable[[Row, dict[str, Rows]], object]
) -> Callable[[Path], None]:
    """A change to a ledger's entries."""

    def spoil(folder: Path) -> None:
        head, sections = read_ledger(folder, name)
        edit(head, sections)
        out = io.BytesIO()
        write_ledger(out.write, head, sections.items())
        (folder / name).write_bytes(out.getvalue())

    return spoil


def sealed(key: SecretKey, edit: Callable[[Path], object]) -> Spoil:
    """A change to files, with digests and signature made to fit."""

    def spoil(folder: Path, rng: random.Random) -> None:
        edit(folder)
        seal(folder, key)

    return spoil


def whole(key: SecretKey, edit: Callable[[Rows, Rows], object]) -> Spoil:
    """A change to rows, with all that is derived from them, the counts too."""

    def spoil(folder: Path, rng: random.Random) -> None:
        cases, criteria = read_rows(folder, CASES), read_rows(folder, CRITERIA)
        edit(cases, criteria)
        write_rows(folder, CASES, cases)
        write_rows(folder, CRITERIA, criteria)
        derive(folder)
        seal(folder, key, lambda manifest: recount(manifest, folder))

    return spoil


def in_rows(name: str, edit: Callable[[Rows], object]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        rows = read_rows(folder, name)
        edit(rows)
        write_rows(folder, name, rows)

    return spoil


def in_text(name: str, old: str, new: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        text = (folder / name).read_text("utf-8")
        assert old in text
        (folder / name).write_bytes(
            text.replace(old, new, 1).encode("utf-8", "surrogatepass")
        )

    return spoil


def changed(index: int, **changes: object) -> Callable[[Rows], object]:
    return lambda rows: rows[index].update(changes)


def change_entry(case_id: str, before: int | None, now: int | None) -> Row:
    return {
        "case_id": case_id,
        "from_revision": before,
        "reason": "x",
        "to_revision": now,
    }


def old_place(sections: dict[str, Rows]) -> int:
    """The place of the case that the parent holds as well; its commitment stays in order where it becomes 0."""
    return next(
        n
        for n, entry in enumerate(sections["held"])
        if entry["held_since"] == "2026.W44"
    )


def case_of(cases: Rows, case_id: str) -> Row:
    return next(c for c in cases if c["case_id"] == case_id)


def criteria_of(criteria: Rows, case_id: str) -> Rows:
    return [c for c in criteria if c["case_id"] == case_id]


def drop(cases: Rows, criteria: Rows, case_id: str) -> None:
    cases[:] = [c for c in cases if c["case_id"] != case_id]
    criteria[:] = [c for c in criteria if c["case_id"] != case_id]


def rename(cases: Rows, criteria: Rows, old: str, new: str) -> None:
    case_of(cases, old)["case_id"] = new
    for place, criterion in enumerate(criteria_of(criteria, old), start=1):
        criterion.update(case_id=new, criterion_id=f"{new}-c{place}")
    cases.sort(key=lambda c: str(c["case_id"]))
    criteria.sort(key=lambda c: (str(c["case_id"]), int(c["position"])))


def revise(cases: Rows, criteria: Rows, case_id: str, revision: int) -> None:
    for row in (case_of(cases, case_id), *criteria_of(criteria, case_id)):
        row["revision"] = revision
