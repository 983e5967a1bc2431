"""Freezing: write a snapshot's folder, byte-identical whenever it is built again from the same rows.

Nothing here reads a clock or a host's name, and memory holds one case at a time. The folder is built beside its
final place and renamed, so that a killed process leaves either nothing or a complete snapshot.
"""

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any, Protocol

from medlive.digest import digest_json
from medlive.errors import BadInput, CheckFailed, DiskFull, UsageError
from medlive.integrity.folder import SIGNATURE, SUMS, list_files, sha256
from medlive.integrity.lock import exclusive
from medlive.snapshot.describe import card, croissant, figures
from medlive.snapshot.diff import Change, ChangeKind
from medlive.snapshot.gates import row_hits
from medlive.snapshot.identity import folder_name, trusted_comment
from medlive.snapshot.ledgers import CHANGES, HOLDOUT_SECTIONS, HOLDOUTS, write_ledger
from medlive.snapshot.manifest import FileEntry, Manifest, SnapshotMeta, Tally, pretty_json
from medlive.snapshot.model import (
    CASE_FIELDS,
    CRITERION_FIELDS,
    SnapshotCase,
    last_day,
    line,
    livemedbench_end,
    livemedbench_piece,
    stamped,
)
from medlive.snapshot.parquet import ParquetRows, writer_name

Sign = Callable[[bytes, str], str]
"""`sign(data, trusted comment)`: a detached signature in minisign's format."""


class Entries(Protocol):
    """The entries of a snapshot's ledgers, in order; each call reads them again."""

    def changes(self, kind: ChangeKind) -> Iterable[Change]:
        """Return the cases that changed in this way since the parent, by case id."""
        ...

    def holdouts(self, section: str) -> Iterable[Mapping[str, Any]]:
        """Return the entries of a section of `ledger.HOLDOUT_SECTIONS`, by its key."""
        ...


@dataclass(frozen=True, slots=True)
class ListedEntries:
    """Entries in memory."""

    changed: tuple[Change, ...] = ()
    held: tuple[Mapping[str, Any], ...] = ()
    revealed: tuple[Mapping[str, Any], ...] = ()
    dropped: tuple[Mapping[str, Any], ...] = ()

    def changes(self, kind: ChangeKind) -> Iterable[Change]:
        """Return the changes of that kind, by case id."""
        return sorted((c for c in self.changed if c.kind is kind), key=lambda c: c.case_id)

    def holdouts(self, section: str) -> Iterable[Mapping[str, Any]]:
        """Return the entries of that section, by its key."""
        listed: tuple[Mapping[str, Any], ...] = getattr(self, section)
        return sorted(listed, key=lambda e: str(e["case_id" if section == "revealed" else "commitment"]))


@dataclass(frozen=True, slots=True)
class FrozenSnapshot:
    """A frozen snapshot's folder and manifest."""

    path: Path
    manifest: Manifest
    digest: str
    """`sha256:` over SHA256SUMS: the identity of the folder."""
    signature: str | None
    """The text of SHA256SUMS.minisig."""
    unchanged: bool
    """Whether the folder existed with the same bytes."""


def write_snapshot(
    rows: Iterable[SnapshotCase],
    meta: SnapshotMeta,
    out_root: Path,
    entries: Entries | None = None,
    sign: Sign | None = None,
) -> FrozenSnapshot:
    """Build `<out_root>/medlive-<version>/`; an existing folder is never changed.

    Args:
        rows: The cases, in the order of their ids (by code points).
        meta: What the snapshot states besides its rows.
        out_root: The folder of the snapshots.
        entries: The ledgers' entries; None: they are empty.
        sign: Signs SHA256SUMS; given exactly when `meta.signing` names its key.

    Raises:
        UsageError: If `meta` is inconsistent, or its version is not an ISO week.
        CheckFailed: If a row is illegal or out of order, there are no rows, or the folder exists with other bytes.
        DiskFull: If the disk is full.
        BadInput: If the folder cannot be written.
    """
    meta = _checked(meta, sign)
    target = out_root / folder_name(meta.version)
    with _disk(out_root):
        out_root.mkdir(parents=True, exist_ok=True)
        with exclusive(out_root / ".freeze.lock"):
            for leftover in out_root.glob(".medlive-*.partial"):
                shutil.rmtree(leftover)
            partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", suffix=".partial", dir=out_root))
            try:
                built = _build(rows, meta, entries or ListedEntries(), sign, partial)
                unchanged = target.is_symlink() or target.exists()
                if unchanged:
                    _compare(partial, target)
                else:
                    _make_durable(partial)
                    partial.rename(target)
                    _sync(out_root)
                return FrozenSnapshot(target, *built, unchanged)
            finally:
                shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _disk(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"no space is left for a snapshot in {root}",
                hint="free some space and run this again; no partial snapshot is left behind",
            ) from exc
        raise BadInput(f"{root} cannot be written: {exc.strerror or exc}") from exc


def _checked(meta: SnapshotMeta, sign: Sign | None) -> SnapshotMeta:
    try:
        last_day(meta.version)
    except ValueError as exc:
        raise UsageError(f"expected an ISO week such as 2026.W47 as version, got {meta.version!r}") from exc
    if meta.created_at.tzinfo is None:
        raise UsageError("created_at must have a time zone")
    versions = [ancestor.version for ancestor in meta.lineage] + [meta.version]
    if versions != sorted(set(versions)):
        raise UsageError(f"a snapshot follows its ancestors, in order: {', '.join(versions[-3:])}")
    if (sign is None) is not (meta.signing is None):
        raise UsageError("a snapshot is signed exactly when it names its key")
    return SnapshotMeta(
        version=meta.version,
        created_at=meta.created_at.astimezone(UTC).replace(microsecond=0),
        provenance=meta.provenance,
        lineage=tuple(meta.lineage),
        signing=meta.signing,
        why_not=tuple(meta.why_not),
    )


def _build(
    rows: Iterable[SnapshotCase], meta: SnapshotMeta, entries: Entries, sign: Sign | None, out: Path
) -> tuple[Manifest, str, str | None]:
    (out / "data").mkdir()
    (out / "figures").mkdir()
    files: dict[str, FileEntry] = {}
    tally, new = _write_rows(rows, meta, out, files)
    numbers = _write_ledgers(entries, meta, out, files)
    counts = tally.counts(numbers["held"])
    with _Hashed(out, "CHANGES.md", files) as change_note:
        for piece in card.changes_md(meta, numbers, new.counts(0), entries.changes):
            change_note.write(_utf8("CHANGES.md", piece))
    texts = figures.figures(counts, meta.canary, meta.version)
    texts["LICENSE"] = card.licence(meta.canary)
    rows_digest = digest_json([files[name].sha256 for name in ("data/cases.jsonl", "data/criteria.jsonl")])
    texts["README.md"] = card.readme(meta, counts, rows_digest)
    for name, text in texts.items():
        files[name] = _write(out, name, text)
    files["croissant.json"] = _write(out, "croissant.json", pretty_json(croissant.croissant(meta, counts, files)))
    manifest = Manifest(
        version=meta.version,
        created_at=meta.created_at,
        parent=meta.parent,
        parent_digest=meta.parent_digest,
        lineage=meta.lineage,
        signing=meta.signing,
        publishable=not meta.why_not,
        why_not=meta.why_not,
        counts=counts,
        provenance=meta.provenance,
        writers={"parquet": writer_name()},
        canary=meta.canary,
        files=dict(sorted(files.items())),
    )
    sums = {name: entry.sha256 for name, entry in files.items()}
    sums["manifest.json"] = _write(out, "manifest.json", manifest.text()).sha256
    listing = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))
    digest = "sha256:" + _write(out, SUMS, listing).sha256
    if sign is None:
        return manifest, digest, None
    comment = trusted_comment(meta.version, meta.created_at, meta.canary)
    signature = sign(listing.encode("utf-8"), comment)
    _write(out, SIGNATURE, signature)
    return manifest, digest, signature


class _Hashed:
    """A file that is hashed while it is written; closing it adds its entry to `files`."""

    def __init__(self, out: Path, name: str, files: dict[str, FileEntry], rows: int | None = None) -> None:
        self._handle = (out / name).open("wb")
        self._name, self._files = name, files
        self._digest, self._size = hashlib.sha256(), 0
        self.rows = rows

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        self._size += len(data)
        return self._handle.write(data)

    def __enter__(self) -> "_Hashed":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._handle.close()
        if kind is None:
            digest = self._digest.hexdigest()
            self._files[self._name] = FileEntry(size=self._size, sha256=digest, rows=self.rows)


def _write_rows(
    rows: Iterable[SnapshotCase], meta: SnapshotMeta, out: Path, files: dict[str, FileEntry]
) -> tuple[Tally, Tally]:
    """Write the rows; return the tally of all cases, and of those that are new in this release."""
    tally, new = Tally(), Tally()
    cases = ParquetRows(out / "data" / "cases.parquet", CASE_FIELDS, meta.canary)
    criteria = ParquetRows(out / "data" / "criteria.parquet", CRITERION_FIELDS, meta.canary)
    with (
        _Hashed(out, "data/cases.jsonl", files) as case_lines,
        _Hashed(out, "data/criteria.jsonl", files) as criterion_lines,
        _Hashed(out, "livemedbench.json", files) as plain,
    ):
        for number, case in enumerate(_legal(rows, meta)):
            tally.add(case)
            if case.first_release == meta.version:
                new.add(case)
            row = stamped(case.row(), meta.canary)
            mine = [stamped(criterion.row(), meta.canary) for criterion in case.criteria]
            try:
                case_lines.write(line(row))
                criterion_lines.write(b"".join(map(line, mine)))
                plain.write(livemedbench_piece(number, row, mine))
            except ValueError as exc:
                raise CheckFailed(f"case {case.case_id!r} cannot be frozen: {exc}") from exc
            cases.add(row)
            for criterion_row in mine:
                criteria.add(criterion_row)
        plain.write(livemedbench_end())
        case_lines.rows = plain.rows = tally.cases
        criterion_lines.rows = tally.criteria
    for stem, writer, number in (("cases", cases, tally.cases), ("criteria", criteria, tally.criteria)):
        writer.close()
        name = f"data/{stem}.parquet"
        files[name] = FileEntry(size=(out / name).stat().st_size, sha256=sha256(out / name), rows=number)
    if not tally.cases:
        raise CheckFailed("there is no case to freeze")
    return tally, new


def _legal(rows: Iterable[SnapshotCase], meta: SnapshotMeta) -> Iterator[SnapshotCase]:
    """Yield the rows. Raises CheckFailed at the first that is illegal or out of order."""
    releases = {*(ancestor.version for ancestor in meta.lineage), meta.version}
    previous: str | None = None
    for case in rows:
        fault = next((f"{h.gate}: {h.detail}" for h in row_hits(case)), None)
        if fault is None and case.first_release not in releases:
            fault = f"first release {case.first_release} is neither {meta.version} nor one of its ancestors"
        if fault is None and previous is not None and case.case_id <= previous:
            fault = "it came twice" if case.case_id == previous else f"it came after {previous!r}"
        if fault is not None:
            raise CheckFailed(f"case {case.case_id!r} cannot be frozen: {fault}")
        previous = case.case_id
        yield case


def _write_ledgers(entries: Entries, meta: SnapshotMeta, out: Path, files: dict[str, FileEntry]) -> dict[str, int]:
    """Write both ledgers and return how many entries each section has."""
    head = {"canary": meta.canary, "version": meta.version}
    changes = ((kind.value, (c.row() for c in entries.changes(kind))) for kind in ChangeKind)
    with _Hashed(out, CHANGES, files) as ledger:
        numbers = write_ledger(ledger, {**head, "parent": meta.parent}, changes)
    holdouts = ((section, entries.holdouts(section)) for section in HOLDOUT_SECTIONS)
    with _Hashed(out, HOLDOUTS, files) as ledger:
        return numbers | write_ledger(ledger, head, holdouts)


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as exc:
        raise CheckFailed(f"{name} has text that UTF-8 cannot encode: {exc.reason}") from exc


def _write(out: Path, name: str, text: str) -> FileEntry:
    data = _utf8(name, text)
    (out / name).write_bytes(data)
    return FileEntry(size=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=None)


def _compare(built: Path, existing: Path) -> None:
    """Raise CheckFailed unless both folders have the same files with the same bytes."""
    if differing := differences(built, existing):
        raise CheckFailed(
            f"{existing} exists with other content: {', '.join(differing[:5])}",
            hint="a frozen snapshot is never replaced: freeze under another version",
        )


def differences(built: Path, existing: Path) -> list[str]:
    """Return the names that differ between two folders, with everything that is not a snapshot's file."""
    one, other = list_files(built), list_files(existing)
    unexpected = {fault.file for fault in (*one.faults, *other.faults)} | (one.files ^ other.files)
    return sorted(unexpected | {n for n in one.files & other.files if sha256(built / n) != sha256(existing / n)})


def _make_durable(folder: Path) -> None:
    """Flush every file to the disk, and give the folder the usual permissions."""
    for path in [*folder.rglob("*"), folder]:
        _sync(path)
    folder.chmod(0o755)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
