"""Freezing: rows become a folder, byte-identical whenever and wherever it is built again from the same rows.

Nothing here reads a clock or a host's name. The folder is built beside its place and moved there whole, so that
a kill leaves either nothing or a complete snapshot.
"""

import json
import os
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files as package_files
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final

from medlive.errors import BadInput, CheckFailed, UsageError
from medlive.snapshot import card
from medlive.snapshot.diff import Change
from medlive.snapshot.folder import SUMS, list_files, sha256
from medlive.snapshot.gates import row_hits
from medlive.snapshot.lock import exclusive
from medlive.snapshot.manifest import Counts, FileEntry, Manifest, Provenance, pretty_json
from medlive.snapshot.model import (
    CASE_FIELDS,
    CRITERION_FIELDS,
    SnapshotCase,
    case_from_rows,
    last_day,
    line,
    livemedbench_end,
    livemedbench_piece,
)
from medlive.snapshot.parquet import ParquetRows, writer_name

_CANARY_SPACE: Final = uuid.UUID("5c6b1f0e-7d3a-4c5e-9a41-6d65646c6976")


@dataclass(frozen=True, slots=True)
class SnapshotMeta:
    """What a snapshot says of itself besides its rows. All of it is given: the same values make the same bytes."""

    version: str
    """An ISO week, `2026.W47`."""
    created_at: datetime
    """Aware; kept to the second."""
    provenance: Provenance
    parent: str | None = None
    why_not: tuple[str, ...] = ()
    """Why it may not be published (see `gates.release_hits`); empty when it may."""
    canary: str | None = None
    """None: a GUID made from the version."""


@dataclass(frozen=True, slots=True)
class FrozenSnapshot:
    """A snapshot's folder, its manifest, and whether the folder had been there with the same bytes."""

    path: Path
    manifest: Manifest
    unchanged: bool


@dataclass(slots=True)
class _Tally:
    cases: int = 0
    criteria: int = 0
    language: Counter[str] = field(default_factory=Counter)
    source: Counter[str] = field(default_factory=Counter)
    theme: Counter[str] = field(default_factory=Counter)
    specialty: Counter[str] = field(default_factory=Counter)
    axis: Counter[str] = field(default_factory=Counter)
    month: Counter[str] = field(default_factory=Counter)

    def add(self, case: SnapshotCase) -> None:
        self.cases += 1
        self.criteria += len(case.criteria)
        self.language[case.language] += 1
        self.source[case.source] += 1
        self.theme[case.theme] += 1
        self.specialty[case.specialty] += 1
        self.month[f"{case.posted_at:%Y-%m}"] += 1
        self.axis.update(c.axis for c in case.criteria)

    def counts(self) -> Counts:
        def ordered(counter: Counter[str]) -> dict[str, int]:
            return dict(sorted(counter.items()))

        return Counts(
            cases=self.cases,
            criteria=self.criteria,
            by_language=ordered(self.language),
            by_source=ordered(self.source),
            by_theme=ordered(self.theme),
            by_specialty=ordered(self.specialty),
            by_axis=ordered(self.axis),
            by_month=ordered(self.month),
        )


def folder_name(version: str) -> str:
    """The name of a version's folder."""
    return f"medlive-{version}"


def canary_of(version: str) -> str:
    """The canary GUID of a version: fixed, so that anybody can look for it."""
    return str(uuid.uuid5(_CANARY_SPACE, version))


def write_snapshot(
    rows: Iterable[SnapshotCase], meta: SnapshotMeta, changes: Sequence[Change], out_root: Path
) -> FrozenSnapshot:
    """Build `<out_root>/medlive-<version>/` from rows in any order; memory holds one id a case, not the cases.

    A folder that is there already is left as it is: with the same bytes the result says `unchanged`, with others
    CheckFailed is raised, for frozen means frozen. Raises UsageError for a version that is no ISO week,
    CheckFailed for rows that no snapshot may hold (two of one id, an illegal axis, text that UTF-8 cannot hold)
    or for no rows at all, BadInput when the disk refuses.
    """
    meta = _checked(meta)
    target = out_root / folder_name(meta.version)
    try:
        out_root.mkdir(parents=True, exist_ok=True)
        with exclusive(out_root / ".freeze.lock"):
            for left in out_root.glob(".medlive-*.partial"):
                shutil.rmtree(left)
            partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", suffix=".partial", dir=out_root))
            try:
                manifest = _build(rows, meta, changes, partial)
                if target.is_symlink() or target.exists():
                    _compare(partial, target)
                    return FrozenSnapshot(target, manifest, unchanged=True)
                _settle(partial)
                partial.rename(target)
                return FrozenSnapshot(target, manifest, unchanged=False)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as exc:
        raise BadInput(f"{out_root} cannot be written: {exc.strerror or exc}") from exc


def _checked(meta: SnapshotMeta) -> SnapshotMeta:
    try:
        last_day(meta.version)
    except ValueError as exc:
        raise UsageError(f"a snapshot's version is an ISO week such as 2026.W47, not {meta.version!r}") from exc
    if meta.created_at.tzinfo is None:
        raise UsageError("a snapshot's created_at must have a zone")
    return SnapshotMeta(
        version=meta.version,
        created_at=meta.created_at.astimezone(UTC).replace(microsecond=0),
        provenance=meta.provenance,
        parent=meta.parent,
        why_not=tuple(meta.why_not),
        canary=meta.canary or canary_of(meta.version),
    )


def _build(rows: Iterable[SnapshotCase], meta: SnapshotMeta, changes: Sequence[Change], out: Path) -> Manifest:
    (out / "data").mkdir()
    tally = _write_rows(rows, meta.version, out)
    counts = tally.counts()
    canary = meta.canary or canary_of(meta.version)
    numbers = {
        "data/cases.jsonl": tally.cases,
        "data/cases.parquet": tally.cases,
        "data/criteria.jsonl": tally.criteria,
        "data/criteria.parquet": tally.criteria,
        "livemedbench.json": tally.cases,
    }
    _write(out / "changes.json", pretty_json(card.changes_json(meta.version, meta.parent, changes)))
    _write(out / "CHANGES.md", card.changes_md(meta.version, meta.parent, changes))
    terms = package_files("medlive.snapshot").joinpath("terms.txt").read_text(encoding="utf-8")
    _write(out / "LICENSE", f"{terms}\nCanary: {canary}\n")
    described = card.Described(
        meta.version, meta.created_at, meta.parent, counts, meta.provenance, meta.why_not, canary
    )
    _write(out / "README.md", card.readme(described))
    entries = {name: _entry(out, name, rows_in) for name, rows_in in numbers.items()}
    _write(out / "croissant.json", pretty_json(card.croissant(described, entries)))
    for name in ("changes.json", "CHANGES.md", "LICENSE", "README.md", "croissant.json"):
        entries[name] = _entry(out, name, None)
    manifest = Manifest(
        version=meta.version,
        created_at=meta.created_at,
        parent=meta.parent,
        publishable=not meta.why_not,
        why_not=meta.why_not,
        counts=counts,
        provenance=meta.provenance,
        writers={"parquet": writer_name()},
        canary=canary,
        files=entries,
    )
    _write(out / "manifest.json", manifest.text())
    sums = {name: entry.sha256 for name, entry in entries.items()}
    sums["manifest.json"] = _entry(out, "manifest.json", None).sha256
    _write(out / SUMS, "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))
    return manifest


def _write_rows(rows: Iterable[SnapshotCase], version: str, out: Path) -> _Tally:
    tally = _Tally()
    with tempfile.TemporaryFile(dir=out) as spool:
        index = _spool(rows, version, spool)
        cases = ParquetRows(out / "data" / "cases.parquet", CASE_FIELDS)
        criteria = ParquetRows(out / "data" / "criteria.parquet", CRITERION_FIELDS)
        with (
            (out / "data" / "cases.jsonl").open("wb") as case_lines,
            (out / "data" / "criteria.jsonl").open("wb") as criterion_lines,
            (out / "livemedbench.json").open("wb") as plain,
        ):
            for number, (case, case_criteria) in enumerate(_unspool(spool, index, tally)):
                case_lines.write(line(case))
                cases.add(case)
                for criterion in case_criteria:
                    criterion_lines.write(line(criterion))
                    criteria.add(criterion)
                plain.write(livemedbench_piece(number, case, case_criteria))
            plain.write(livemedbench_end())
        cases.close()
        criteria.close()
    return tally


def _spool(rows: Iterable[SnapshotCase], version: str, spool: IO[bytes]) -> list[tuple[str, int]]:
    """Write each case to the spool as it comes; the ids in order, each with its place."""
    index: list[tuple[str, int]] = []
    at = 0
    for case in rows:
        fault = next((f"{h.gate}: {h.detail}" for h in row_hits(case)), None)
        if fault is None and case.first_release > version:
            fault = f"first release {case.first_release} comes after {version}"
        if fault is not None:
            raise CheckFailed(f"case {case.case_id!r} cannot be frozen: {fault}")
        try:
            data = line(case.record())
        except ValueError as exc:
            raise CheckFailed(f"case {case.case_id!r} cannot be frozen: {exc}") from exc
        index.append((case.case_id, at))
        at += spool.write(data)
    index.sort()
    for (one, _), (other, _) in pairwise(index):
        if one == other:
            raise CheckFailed(f"case {one!r} came twice")
    if not index:
        raise CheckFailed("there is no case to freeze")
    return index


def _unspool(
    spool: IO[bytes], index: list[tuple[str, int]], tally: _Tally
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    seen: set[str] = set()
    for _, at in index:
        spool.seek(at)
        case = json.loads(spool.readline())
        criteria = case.pop("criteria")
        for criterion in criteria:
            if criterion["criterion_id"] in seen:
                raise CheckFailed(f"criterion {criterion['criterion_id']!r} came twice")
            seen.add(criterion["criterion_id"])
        tally.add(case_from_rows(case, criteria))
        yield case, criteria


def _write(path: Path, text: str) -> None:
    try:
        path.write_bytes(text.encode("utf-8"))
    except UnicodeEncodeError as exc:
        raise CheckFailed(f"{path.name} would hold text that UTF-8 cannot: {exc.reason}") from exc


def _entry(out: Path, name: str, rows: int | None) -> FileEntry:
    path = out / name
    return FileEntry(size=path.stat().st_size, sha256=sha256(path), rows=rows)


def _compare(built: Path, there: Path) -> None:
    """Raise CheckFailed unless both folders hold the same files with the same bytes."""
    listing = list_files(there)
    mine = {str(p.relative_to(built)) for p in built.rglob("*") if p.is_file()}
    if listing.faults or listing.files != mine:
        odd = sorted(listing.files ^ mine) or [listing.faults[0].file]
        raise CheckFailed(f"{there} is there with other files: {', '.join(odd[:5])}")
    for name in sorted(mine):
        if _entry(built, name, None).sha256 != _entry(there, name, None).sha256:
            raise CheckFailed(
                f"{there} is there with other bytes in {name}",
                hint="a frozen snapshot is never replaced: freeze under another version",
            )


def _settle(folder: Path) -> None:
    """Have the system write every file out, and open the folder to readers as any other folder is."""
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    folder.chmod(0o755)
