"""Verification: numbered steps over a snapshot's files alone, each naming the file, what it expected and got."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from medlive.snapshot import parquet
from medlive.snapshot.diff import ChangeKind
from medlive.snapshot.folder import (
    REQUIRED,
    SUMS,
    Finding,
    Listing,
    TooLong,
    lines,
    list_files,
    read_small,
    sha256,
)
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.model import CASE_FIELDS, CRITERION_FIELDS, line
from medlive.snapshot.scan import Faults, Scan, scan_rows

_SUM_LINE: Final = re.compile(r"([0-9a-f]{64})  ([^\n\r\\]+)")


class StepState(StrEnum):
    """How a step ended. `skipped` says nothing about the snapshot, good or bad."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step's outcome."""

    number: int
    name: str
    state: StepState
    findings: tuple[Finding, ...] = ()
    """The first faults; `faults` counts them all."""
    faults: int = 0
    why: str = ""
    """Why it was skipped."""


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """Every step's outcome, in order."""

    path: Path
    steps: tuple[StepResult, ...]
    manifest: Manifest | None
    """None when it could not be read."""

    @property
    def ok(self) -> bool:
        """Whether no step failed."""
        return all(step.state is not StepState.FAILED for step in self.steps)

    @property
    def complete(self) -> bool:
        """Whether every step was taken."""
        return all(step.state is not StepState.SKIPPED for step in self.steps)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The faults of all steps."""
        return tuple(finding for step in self.steps for finding in step.findings)

    def summary(self) -> str:
        """The faults in a few lines, for an error message."""
        failed = [s for s in self.steps if s.state is StepState.FAILED]
        if not failed:
            return f"{self.path} verifies"
        said = [f"step {s.number} ({s.name}): {s.findings[0]}" for s in failed]
        return f"{self.path} fails verification: " + "; ".join(said[:4])


class _Skip(Exception):
    """A step cannot be taken; the text says why. An earlier step failed, then, unless it is `innocent`."""

    def __init__(self, why: str, *, innocent: bool = False) -> None:
        self.innocent = innocent
        super().__init__(why)


@dataclass
class _Folder:
    root: Path
    problems: dict[str, Finding] = field(default_factory=dict)

    @cached_property
    def listing(self) -> Listing:
        return list_files(self.root)

    @cached_property
    def sums(self) -> dict[str, str]:
        """Name → digest as SHA256SUMS says, malformed lines left out."""
        if SUMS not in self.listing.files:
            raise _Skip(f"there is no {SUMS}")
        text = read_small(self.root / SUMS).decode("utf-8", "replace")
        matches = (_SUM_LINE.fullmatch(row) for row in text.split("\n"))
        return {m[2]: m[1] for m in matches if m}

    @cached_property
    def digests(self) -> dict[str, str | None]:
        """Name → digest of what lies there; None where it cannot be read."""
        found: dict[str, str | None] = {}
        for name in sorted(self.listing.files - {SUMS}):
            try:
                found[name] = sha256(self.root / name)
            except OSError:
                found[name] = None
        return found

    @cached_property
    def manifest(self) -> Manifest | None:
        """The manifest, or None with the reason under `problems`."""
        name = "manifest.json"
        if name not in self.listing.files:
            self.problems[name] = Finding(name, "a file", "none")
            return None
        try:
            data = read_small(self.root / name)
            manifest = Manifest.model_validate_json(data)
            if manifest.text().encode("utf-8") != data:
                self.problems[name] = Finding(name, "its canonical spelling", "the same value spelt otherwise")
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "the whole"
            got = f"{place}: {first['msg']} ({exc.error_count()} faults)"
            self.problems[name] = Finding(name, "a manifest of format 1", got)
            return None
        except (OSError, TooLong, ValueError, RecursionError) as exc:
            self.problems[name] = Finding(name, "a readable manifest", str(exc)[:200])
            return None
        return manifest

    def sure_manifest(self) -> Manifest:
        if self.manifest is None:
            raise _Skip("the manifest cannot be read")
        return self.manifest

    @cached_property
    def scan(self) -> Scan:
        missing = [n for n in REQUIRED if n not in self.listing.files and n.endswith((".jsonl", "bench.json"))]
        if missing:
            raise _Skip(f"{missing[0]} is missing")
        return scan_rows(self.root, self.manifest.version if self.manifest else None)


def _listing(folder: _Folder, out: Faults) -> None:
    for fault in folder.listing.faults:
        out.add(fault.file, fault.expected, fault.got)
    there, wanted = folder.listing.files, {*REQUIRED, SUMS}
    for name in sorted(wanted - there):
        out.add(name, "a file", "none")
    for name in sorted(there - wanted):
        out.add(name, "nothing of that name", "a file")


def _sums(folder: _Folder, out: Faults) -> None:
    sums = folder.sums
    data = read_small(folder.root / SUMS)
    for name in sorted(sums.keys() - set(REQUIRED)):
        out.add(SUMS, "the names of this snapshot's files", repr(name)[:200])
    for name in sorted(set(REQUIRED) - sums.keys()):
        out.add(SUMS, f"a line for {name}", "none")
    if data != "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)).encode("utf-8"):
        out.add(SUMS, "one line of sha256sum for each file, in order", "other lines, order or line ends")


def _digests(folder: _Folder, out: Faults) -> None:
    for name, stated in sorted(folder.sums.items()):
        if name in folder.listing.files:
            got = folder.digests.get(name) or "nothing readable"
            if got != stated:
                out.add(name, f"sha256 {stated}", got)


def _manifest(folder: _Folder, out: Faults) -> None:
    manifest = folder.manifest
    if (problem := folder.problems.get("manifest.json")) is not None:
        out.add(problem.file, problem.expected, problem.got)
    if manifest is None:
        return
    if manifest.publishable == bool(manifest.why_not):
        out.add("manifest.json", "reasons exactly when not publishable", repr(manifest.why_not))
    if manifest.parent is not None and manifest.parent >= manifest.version:
        out.add("manifest.json", f"a parent before {manifest.version}", manifest.parent)


def _sizes(folder: _Folder, out: Faults) -> None:
    manifest = folder.sure_manifest()
    wanted = set(REQUIRED) - {"manifest.json"}
    for name in sorted(wanted ^ manifest.files.keys()):
        out.add("manifest.json", f"the files {', '.join(sorted(wanted))}", f"differs in {name!r}"[:200])
    for name, entry in sorted(manifest.files.items()):
        if name not in wanted & folder.listing.files:
            continue
        size = (folder.root / name).lstat().st_size
        if size != entry.size:
            out.add(name, f"{entry.size} bytes", f"{size}")
        if (digest := folder.digests.get(name)) != entry.sha256:
            out.add(name, f"sha256 {entry.sha256}", digest or "nothing readable")


def _counts(folder: _Folder, out: Faults) -> None:
    manifest, scan = folder.sure_manifest(), folder.scan
    stated = manifest.counts.model_dump()
    found: dict[str, Any] = {name: dict(scan.counts.get(name, {})) for name in stated if name.startswith("by_")}
    found |= {"cases": scan.cases, "criteria": scan.criteria}
    for name, value in stated.items():
        if value != found[name]:
            out.add("manifest.json", f"{name} {found[name]}"[:300], f"{value}"[:300])
    for name, entry in sorted(manifest.files.items()):
        rows = {"cases": scan.cases, "criteria": scan.criteria, "livemedbench": scan.cases}
        stem = Path(name).stem
        expected = rows.get(stem) if stem in rows else None
        if entry.rows != expected:
            out.add("manifest.json", f"{name}: {expected} rows", f"{entry.rows}")


def _parquet(folder: _Folder, out: Faults) -> None:
    if not parquet.available():
        raise _Skip("pyarrow is not installed (medlive[service] brings it)", innocent=True)
    for stem, fields in (("cases", CASE_FIELDS), ("criteria", CRITERION_FIELDS)):
        name, twin = f"data/{stem}.parquet", f"data/{stem}.jsonl"
        if not {name, twin} <= folder.listing.files:
            raise _Skip(f"{name} or {twin} is missing")
        # Columns in memory are at most the JSON's size, but for integers (4 bytes a digit) and page overhead.
        most = 8 * (folder.root / twin).stat().st_size + 1_000_000
        try:
            rows = parquet.read_rows(folder.root / name, fields, most=most)
            for number, (row, data) in enumerate(zip_longest(rows, lines(folder.root / twin)), start=1):
                if row is None or data is None or line(row) != data:
                    out.add(f"{name}: row {number}", f"line {number} of {twin}", "another" if row else "no row")
                    break
        except (parquet.ParquetFault, OSError, TooLong, ValueError) as exc:
            out.add(name, "parquet with the rows of its twin", str(exc)[:300])


def _changes(folder: _Folder, out: Faults) -> None:
    manifest, scan, name = folder.sure_manifest(), folder.scan, "changes.json"
    if name not in folder.listing.files:
        raise _Skip(f"{name} is missing")
    try:
        stated = json.loads(read_small(folder.root / name))
        entries = [(kind, e["case_id"], e["reason"]) for kind in ChangeKind for e in stated[kind.value]]
        heads = stated["version"], stated["parent"]
    except (OSError, TooLong, ValueError, KeyError, TypeError, RecursionError) as exc:
        out.add(name, "added, revised and withdrawn cases", f"{type(exc).__name__}: {str(exc)[:100]}")
        return
    if heads != (manifest.version, manifest.parent):
        out.add(name, f"version and parent {manifest.version}, {manifest.parent}", f"{heads[0]}, {heads[1]}")
    for kind, case_id, reason in entries:
        if not isinstance(case_id, str) or not isinstance(reason, str) or not reason:
            out.add(name, "a case id and a reason", f"{case_id!r}, {reason!r}"[:200])
        elif (case_id in scan.case_ids) is (kind is ChangeKind.WITHDRAWN):
            there = "not in the snapshot" if kind is ChangeKind.WITHDRAWN else "in the snapshot"
            out.add(name, f"{kind} {case_id!r} {there}", "the contrary")


def _scanned(what: str) -> Callable[[_Folder, Faults], None]:
    def step(folder: _Folder, out: Faults) -> None:
        found: Faults = getattr(folder.scan, what)
        out.kept, out.count = found.kept, found.count

    return step


STEPS: Final[tuple[tuple[str, Callable[[_Folder, Faults], None]], ...]] = (
    ("every file of a snapshot is there, a plain file, and nothing else", _listing),
    ("SHA256SUMS names every file once", _sums),
    ("every file has the digest that SHA256SUMS states", _digests),
    ("the manifest has its schema", _manifest),
    ("every file has the size and digest that the manifest states", _sizes),
    ("the rows are canonical JSON Lines in order", _scanned("rows")),
    ("ids are unique and every criterion has its case", _scanned("ids")),
    ("languages, themes, specialties, axes and weights are legal, one weight is positive", _scanned("rubric")),
    ("first releases and posting dates are possible", _scanned("releases")),
    ("the manifest's counts are those of the rows", _counts),
    ("livemedbench.json holds the same", _scanned("plain")),
    ("the parquet files hold the same", _parquet),
    ("the changes concern cases that are there, or are not", _changes),
    ("no text holds an address, a handle or a control character", _scanned("leaks")),
)
"""The steps, in order: a reviewer checks completeness by counting."""


def verify_snapshot(path: Path) -> VerificationReport:
    """Take every step over the folder at `path`, whatever lies there; faults are values and nothing is raised.

    Nothing outside the folder is opened, no link is followed, and what SHA256SUMS or the manifest name is looked
    up among the files found, never on the disk.
    """
    folder = _Folder(Path(path))
    results: list[StepResult] = []
    for number, (name, step) in enumerate(STEPS, start=1):
        out = Faults()
        try:
            step(folder, out)
        except _Skip as skip:
            if skip.innocent or any(r.state is StepState.FAILED for r in results):
                results.append(StepResult(number, name, StepState.SKIPPED, why=str(skip)))
                continue
            out.add(".", "what this step needs", str(skip))
        except (OSError, TooLong) as exc:
            out.add(".", "files that stay while they are read", str(exc)[:200])
        state = StepState.FAILED if out.count else StepState.PASSED
        results.append(StepResult(number, name, state, tuple(out.kept), out.count))
    return VerificationReport(Path(path), tuple(results), folder.manifest)
