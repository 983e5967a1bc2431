"""Freezing: write a snapshot's folder, byte-identical whenever it is built again from the same rows.

Nothing here reads a clock or a host's name, and memory holds one case at a time. The folder is built beside its
final place and renamed, so that a killed process leaves either nothing or a complete snapshot.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from importlib.metadata import version
from pathlib import Path
from typing import Any

from medlive.errors import CheckFailed, UsageError, require
from medlive.integrity.digest import digest_file, digest_json
from medlive.integrity.folder import (
    FOLDERS,
    REQUIRED,
    SIGNATURE,
    SUMS,
    list_files,
    sha256,
    sums_text,
    sync,
)
from medlive.integrity.log import exclusive, some, writing

from .contents import CASES, CHANGES, CRITERIA, SECTIONS, write_ledger
from .describe import card, croissant, figures
from .gates import row_hits
from .manifest import (
    FileEntry,
    Manifest,
    SnapshotMeta,
    Tally,
    pretty_json,
    warnings_of,
)
from .model import (
    LIVEMEDBENCH_END,
    SnapshotCase,
    canary_of,
    folder_name,
    line,
    livemedbench_piece,
    shape_of,
    stamped,
)
from .parquet import parquet_writer

Sign = Callable[[bytes, str], str]
"""`sign(data, trusted comment)`: a detached signature in minisign's format."""


Entries = Callable[[str], Iterable[Mapping[str, Any]]]
"""`entries(section)`: the entries of a section of `contents.SECTIONS`, in order of its key; each call reads again."""


@dataclass(frozen=True)
class FrozenSnapshot:
    """A frozen snapshot's folder and manifest."""

    path: Path
    manifest: Manifest
    digest: str  # `sha256:` over SHA256SUMS: the identity of the folder
    signature: str | None  # The text of SHA256SUMS.minisig


def write_snapshot(
    rows: Iterable[SnapshotCase],
    meta: SnapshotMeta,
    out_root: Path,
    entries: Entries,
    sign: Sign | None = None,
) -> FrozenSnapshot:
    """Build `<out_root>/medlive-<version>/`; an existing folder is never changed.

    `rows` are in the order of their ids (by code points), `entries` gives the ledgers' entries: changes since
    the parent, and cases held back. `sign` signs SHA256SUMS, and is given exactly when `meta.signing` names its key.

    Raises:
        UsageError: If the key is named and `sign` is not given, or the other way round.
        CheckFailed: If a row is illegal, there are no rows, or the folder exists with other bytes.
        DiskFull: If the disk is full.
        BadInput: If the folder cannot be written.
    """
    if (sign is None) is not (meta.signing is None):
        raise UsageError("a snapshot is signed exactly when it names its key")
    moment = meta.created_at.astimezone(UTC).replace(microsecond=0)
    meta = meta.model_copy(update={"created_at": moment})
    target = out_root / folder_name(meta.version)
    with writing(out_root):
        out_root.mkdir(
            parents=True,
            exist_ok=True,
        )
        with exclusive(out_root / ".freeze.lock"):
            for leftover in out_root.glob(".medlive-*.partial"):
                shutil.rmtree(leftover)
            prefix = f".{target.name}-"
            partial = Path(tempfile.mkdtemp(".partial", prefix, out_root))
            try:
                manifest, signature = _build(rows, meta, entries, sign, partial)
                digest = digest_file(partial / SUMS)
                if not os.path.lexists(target):
                    sync(*partial.rglob("*"), partial)
                    partial.rename(target)
                    sync(out_root)
                elif differing := differences(partial, target):
                    raise CheckFailed(
                        f"{target} exists with other content: {some(differing)}",
                        hint="a frozen snapshot is never replaced: freeze under another version",
                    )
                return FrozenSnapshot(target, manifest, digest, signature)
            finally:
                shutil.rmtree(partial, ignore_errors=True)


def _build(
    rows: Iterable[SnapshotCase],
    meta: SnapshotMeta,
    entries: Entries,
    sign: Sign | None,
    out: Path,
) -> tuple[Manifest, str | None]:
    """Write every file, each before those that hold its digest; return the manifest and the signature."""

    def write(name: str, text: str) -> None:
        (out / name).write_bytes(text.encode("utf-8"))

    for folder in FOLDERS:
        (out / folder).mkdir()
    require("pyarrow", "parquet")
    manifest = draft_manifest(meta)
    tally = _write_rows(rows, manifest, out)
    numbers: dict[str, int] = {}  # How many entries each section has
    for name, sections in SECTIONS.items():
        head: dict[str, Any] = {"canary": manifest.canary, "version": manifest.version}
        if name == CHANGES:
            head["parent"] = manifest.parent
        written = ((section, entries(section)) for section in sections)
        with (out / name).open("wb") as ledger:
            numbers |= write_ledger(ledger.write, head, written)
    counts = tally.counts(numbers["held"])
    manifest = manifest.model_copy(update={"counts": counts})
    changes = card.changes_md(manifest, numbers, entries)
    with (out / "CHANGES.md").open("w", encoding="utf-8", newline="\n") as note:
        note.writelines(changes)  # Not joined: there may be one for each case
    for name, text in figures.figures(manifest).items():
        write(name, text)
    write("LICENSE", card.licence(manifest.canary))
    rows_digest = digest_json([sha256(out / CASES), sha256(out / CRITERIA)])
    write("README.md", card.readme(manifest, rows_digest))
    for name in REQUIRED:
        if (out / name).is_file():
            manifest.files[name] = _entry(out, name, tally)
    write("croissant.json", pretty_json(croissant.croissant(manifest)))
    manifest.files["croissant.json"] = _entry(out, "croissant.json", tally)
    write("manifest.json", manifest.text())
    sums = sums_text({name: sha256(out / name) for name in REQUIRED})
    write(SUMS, sums)
    if sign is None:
        return manifest, None
    signature = sign(sums.encode("utf-8"), manifest.trusted_comment)
    write(SIGNATURE, signature)
    return manifest, signature


def draft_manifest(meta: SnapshotMeta) -> Manifest:
    """Return the manifest of a snapshot that has no case and no file yet."""
    shape = shape_of()
    parent = meta.lineage[-1] if meta.lineage else None
    return Manifest(
        **dict(meta),
        parent=parent.version if parent else None,
        parent_digest=parent.digest if parent else None,
        publishable=not meta.why_not,
        counts=Tally(shape).counts(0),
        writers={"parquet": f"pyarrow {version('pyarrow')}"},
        warnings=warnings_of(meta.provenance),
        canary=canary_of(meta.version),
        files={},
        columns=dict(shape.columns),
        enumerations=dict(shape.enumerations),
    )


def _entry(out: Path, name: str, tally: Tally) -> FileEntry:
    path = out / name
    return FileEntry(
        size=path.stat().st_size, sha256=sha256(path), rows=tally.rows(name)
    )


def _write_rows(rows: Iterable[SnapshotCase], manifest: Manifest, out: Path) -> Tally:
    """Write the rows into every data file; return their tally."""
    tally = Tally(manifest.shape)
    columns = manifest.shape.columns
    case_names = [column.name for column in columns["cases"]]
    criterion_names = [column.name for column in columns["criteria"]]
    data = out / "data"
    canary = manifest.canary
    with (
        parquet_writer(data / "cases.parquet", columns["cases"], canary) as add_case,
        parquet_writer(
            data / "criteria.parquet", columns["criteria"], canary
        ) as add_criterion,
        (out / CASES).open("wb") as case_lines,
        (out / CRITERIA).open("wb") as criterion_lines,
        (out / "livemedbench.json").open("wb") as plain,
    ):
        for case in _legal(rows, manifest):
            row = stamped(case.row(), canary, case_names)
            case_lines.write(line(row))
            add_case(row)
            case_criteria = []
            for criterion in case.criteria:
                criterion_row = stamped(criterion.row(), canary, criterion_names)
                criterion_lines.write(line(criterion_row))
                add_criterion(criterion_row)
                case_criteria.append(criterion_row)
            plain.write(livemedbench_piece(tally.cases, row, case_criteria))
            tally.add(case)
        plain.write(LIVEMEDBENCH_END)
    if not tally.cases:
        raise CheckFailed("there is no case to freeze")
    return tally


def _legal(rows: Iterable[SnapshotCase], manifest: Manifest) -> Iterator[SnapshotCase]:
    """Yield the rows. Raises CheckFailed at the first illegal one."""
    for case in rows:
        faults = [hit.detail for hit in row_hits(case)]
        if case.first_release not in manifest.line:
            expected = f"neither {manifest.version} nor one of its ancestors"
            faults.append(f"first release {case.first_release} is {expected}")
        if faults:
            raise CheckFailed(f"case {case.case_id!r} cannot be frozen: {faults[0]}")
        yield case


def differences(built: Path, existing: Path) -> list[str]:
    """Return the names of files that differ between two folders, and of everything that is no snapshot's file."""
    first, first_faults = list_files(built)
    other, other_faults = list_files(existing)
    differing = {fault.file for fault in (*first_faults, *other_faults)}
    differing |= first.keys() ^ other.keys()
    for name in first.keys() & other.keys():
        if sha256(built / name) != sha256(existing / name):
            differing.add(name)
    return sorted(differing)
