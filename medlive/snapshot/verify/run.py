"""Verification of a snapshot's folder in numbered steps: each checks one thing, and says what it found."""

import json
import os
import re
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from medlive.guard.bounds import VERIFIED_FILE_BYTES
from medlive.guard.printable import printable
from medlive.integrity.checks import (
    Faults,
    SignedDocument,
    Skip,
    StepResult,
    StepState,
    Trust,
    run_steps,
)
from medlive.integrity.folder import (
    REQUIRED,
    SIGNATURE,
    SIGNATURE_COMMENT,
    SUMS,
    Finding,
    Listing,
    TooLong,
    list_files,
    read_small,
    sha256,
)
from medlive.integrity.paths import open_plain
from medlive.snapshot import parquet
from medlive.snapshot.identity import canary_of, folder_name, trusted_comment
from medlive.snapshot.ledgers import CHANGES, HOLDOUTS, Ledgers, read_ledgers
from medlive.snapshot.manifest import (
    FORMATS,
    Counts,
    Headroom,
    Manifest,
    ProofMeans,
    unknown_note,
)
from medlive.snapshot.model import Table, week_end
from medlive.snapshot.parquet_process import compare_twins
from medlive.snapshot.rows import CASES, CRITERIA
from medlive.snapshot.verify.lineage import check_lineage, check_parent
from medlive.snapshot.verify.markup import find_active_markdown, find_active_svg
from medlive.snapshot.verify.scan import Scan
from medlive.snapshot.verify.text_checks import (
    find_contact,
    find_disguise,
    find_unstorable,
)

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

_FOLDER: Final = re.compile(re.escape(folder_name("")) + r"(\d{4}\.W\d{2})")
_SUM_LINE: Final = re.compile(r"([0-9a-f]{64})  ([^\n\r\\]+)")
_TWINS: Final[tuple[tuple[str, str, Table], ...]] = (
    ("data/cases.parquet", CASES, "cases"),
    ("data/criteria.parquet", CRITERIA, "criteria"),
)
LIVEMEDBENCH: Final = "livemedbench.json"
_STREAMED: Final = frozenset({CASES, CRITERIA, LIVEMEDBENCH})
"""Checked row by row, and with each row its canary."""
_DESCRIBED: Final = [
    name for name in REQUIRED if name.startswith("data/") or name == LIVEMEDBENCH
]
"""What croissant.json names."""
_FIRST: Final = (SUMS, SIGNATURE, "manifest.json")
"""The files that state the digests of all others, and are read to know them."""
_MAX_FOOTER: Final = 16 * 1024 * 1024


@dataclass
class Inspected:
    """A snapshot's folder under verification, and what the steps have read of it."""

    root: Path
    public_key: "PublicKey | None"
    parent: Path | None
    listing: Listing
    problems: dict[str, Finding] = field(default_factory=dict)
    trust: Trust = Trust.BROKEN
    note: str = ""
    failed: tuple[int, ...] = ()
    _digests: dict[str, str] = field(default_factory=dict)

    def read(self, name: str) -> bytes:
        """Read a small file whole. Raises Skip if it is missing, or its digest is refused."""
        if name not in _FIRST:
            self.require(name)
        elif name not in self.listing.files:
            raise Skip(f"{name} is missing")
        return read_small(self.root / name, VERIFIED_FILE_BYTES)

    @cached_property
    def sums(self) -> dict[str, str]:
        """Name → digest as SHA256SUMS states them, without malformed lines; none where it cannot be read."""
        try:
            text = self.read(SUMS).decode("utf-8", "replace")
        except (OSError, Skip, TooLong):  # a step says so
            return {}
        sums = {}
        for row in text.split("\n"):
            if match := _SUM_LINE.fullmatch(row):
                sums[match[2]] = match[1]
        return sums

    def require(self, *names: str) -> None:
        """Raise Skip for a file that is missing, or does not have the digest that is stated: it is not opened."""
        for name in names:
            if name not in self.listing.files:
                raise Skip(f"{name} is missing")
            if self.refused(name):
                raise Skip(f"{name} does not have the digest that is stated for it")

    def refused(self, name: str) -> bool:
        """Whether a file has another digest than SHA256SUMS or the manifest states, or SHA256SUMS states none."""
        stated = {self.sums.get(name)}
        if self.manifest is not None and name in self.manifest.files:
            stated.add(self.manifest.files[name].sha256)
        return stated != {self.digest(name)}

    def digest(self, name: str) -> str | None:
        """The digest of a file's bytes; None if it is missing or cannot be read."""
        if name not in self._digests and name in self.listing.files:
            with suppress(OSError):
                self._digests[name] = sha256(self.root / name)
        return self._digests.get(name)

    @cached_property
    def manifest(self) -> Manifest | None:
        """The manifest; None with the reason in `problems` if it cannot be read."""
        name = "manifest.json"
        if name not in self.listing.files:
            self.problems[name] = Finding(name, "a file", "none")
            return None
        try:
            data = self.read(name)
            manifest = Manifest.model_validate_json(data)
            if manifest.text().encode("utf-8") != data:
                self.problems[name] = Finding(
                    name, "its canonical spelling", "the same value spelled otherwise"
                )
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            place = ".".join(printable(str(part)) for part in first["loc"])[:200]
            got = f"{place}: {first['msg'][:200]} ({exc.error_count()} faults)"
            self.problems[name] = Finding(name, FORMATS, got.removeprefix(": "))
            return None
        except (OSError, TooLong, ValueError, RecursionError) as exc:
            self.problems[name] = Finding(name, "a readable manifest", str(exc)[:200])
            return None
        return manifest

    def require_manifest(self) -> Manifest:
        if self.manifest is None:
            raise Skip("the manifest cannot be read")
        return self.manifest

    @cached_property
    def ledgers(self) -> Ledgers:
        self.require(CHANGES, HOLDOUTS)
        return read_ledgers(self.root, self.require_manifest())

    @cached_property
    def scan(self) -> Scan:
        self.require(CASES, CRITERIA)
        scan = Scan(self.require_manifest(), self.ledgers)
        scan.run(self.root)
        return scan


def _signature(folder: Inspected, out: Faults) -> None:
    manifest, has_signature = folder.manifest, SIGNATURE in folder.listing.files
    if manifest is None:
        out.append(folder.problems["manifest.json"])
        return
    signed = SignedDocument(
        what="snapshot",
        document="manifest.json",
        key=None
        if manifest.signing is None
        else (manifest.signing.key_id, manifest.signing.public_key),
        comment=trusted_comment(manifest.version, manifest.created_at, manifest.canary),
        untrusted=SIGNATURE_COMMENT,
        given=() if folder.public_key is None else (folder.public_key,),
        read=folder.read,
    )
    unsigned = signed.key is None and not has_signature and folder.public_key is None
    folder.trust = Trust.NOT_SIGNED if unsigned else Trust.BROKEN
    folder.trust, folder.note = signed.check(has_signature, out)


def _listing(folder: Inspected, out: Faults) -> None:
    for fault in folder.listing.faults:
        out.append(fault)
    files, required = folder.listing.files, {*REQUIRED, SUMS}
    for name in sorted(required - files):
        out.add(name, "a file", "none")
    # The first step decides whether there must be a signature.
    for name in sorted(files - required - {SIGNATURE}):
        out.add(name, "nothing of that name", "a file")


def _sums(folder: Inspected, out: Faults) -> None:
    sums = folder.sums
    data = folder.read(SUMS)
    for name in sorted(sums.keys() - set(REQUIRED)):
        out.add(SUMS, "the names of this snapshot's files", repr(name)[:200])
    for name in sorted(set(REQUIRED) - sums.keys()):
        out.add(SUMS, f"a line for {name}", "none")
    if data != "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)).encode(
        "utf-8"
    ):
        out.add(
            SUMS,
            "one line of sha256sum for each file, in order",
            "other lines, order or line ends",
        )


def _digests(folder: Inspected, out: Faults) -> None:
    for name, stated in sorted(folder.sums.items()):
        if name in folder.listing.files:
            got = folder.digest(name) or "an unreadable file"
            if got != stated:
                out.add(name, f"the sha256 that {SUMS} states, {stated}", got)


def _manifest(folder: Inspected, out: Faults) -> None:
    manifest = folder.manifest
    if (problem := folder.problems.get("manifest.json")) is not None:
        out.append(problem)
    if manifest is None:
        return
    for version in (
        manifest.version,
        *(ancestor.version for ancestor in manifest.lineage),
    ):
        if week_end(version) is None:
            out.add("manifest.json", "versions that are ISO weeks", version)
    # A folder may have any name but another version's, under which it would be found.
    match = _FOLDER.fullmatch(folder.root.absolute().name)
    if match is not None and match[1] != manifest.version:
        out.add(
            "manifest.json",
            f"version {match[1]}, as in its folder's name",
            manifest.version,
        )
    if manifest.publishable == bool(manifest.why_not):
        out.add(
            "manifest.json",
            "reasons exactly when not publishable",
            repr(manifest.why_not)[:200],
        )
    folder.note = unknown_note(manifest.unknown)


def _sizes(folder: Inspected, out: Faults) -> None:
    manifest = folder.require_manifest()
    required = set(REQUIRED) - {"manifest.json"}
    for name in sorted(required ^ manifest.files.keys()):
        out.add(
            "manifest.json",
            f"the files {', '.join(sorted(required))}",
            f"differs in {name!r}"[:200],
        )
    for name, entry in sorted(manifest.files.items()):
        if name not in required & folder.listing.files:
            continue
        size = folder.listing.sizes[name]
        if size != entry.size:
            out.add(
                name, f"the bytes that manifest.json states, {entry.size}", f"{size}"
            )
        if (digest := folder.digest(name)) != entry.sha256:
            out.add(
                name,
                f"the sha256 that manifest.json states, {entry.sha256}",
                digest or "an unreadable file",
            )
    _croissant(folder, manifest, out)


def _croissant(folder: Inspected, manifest: Manifest, out: Faults) -> None:
    """Check that croissant.json names the data files with the manifest's digests."""
    name = "croissant.json"
    if name not in folder.listing.files or folder.refused(name):
        return
    try:
        listed = {
            x["contentUrl"]: x["sha256"]
            for x in json.loads(folder.read(name))["distribution"]
        }
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        out.add(
            name,
            "the data files with their digests",
            f"{type(exc).__name__}: {str(exc)[:100]}",
        )
        return
    expected = {n: manifest.files[n].sha256 for n in _DESCRIBED if n in manifest.files}
    if listed != expected:
        wrong = []
        for described in expected.keys() | listed.keys():
            if expected.get(described) != listed.get(described):
                wrong.append(str(described))
        wrong.sort()
        out.add(
            name,
            "the data files with the manifest's digests",
            f"another of {', '.join(wrong)}"[:200],
        )


def _scanned(name: str) -> Callable[[Inspected, Faults], None]:
    """The step that reports what the scan found under a name."""

    def step(folder: Inspected, out: Faults) -> None:
        out.extend(getattr(folder.scan, name))

    return step


def _counts(folder: Inspected, out: Faults) -> None:
    manifest, tally = folder.require_manifest(), folder.scan.tally
    held_out = len((folder.ledgers.holdouts or {}).get("held", ()))
    stated, counted = (_known(c) for c in (manifest.counts, tally.counts(held_out)))
    for name, expected in sorted(counted.items()):
        value = stated.get(name)
        if value != expected:
            out.add("manifest.json", f"{name} {expected}"[:300], f"{value}"[:300])
    rows = dict.fromkeys((CASES, "data/cases.parquet", LIVEMEDBENCH), tally.cases)
    rows |= dict.fromkeys((CRITERIA, "data/criteria.parquet"), tally.criteria)
    for name, entry in sorted(manifest.files.items()):
        if entry.rows != rows.get(name):
            out.add(
                "manifest.json", f"{name}: {rows.get(name)} rows"[:200], f"{entry.rows}"
            )


def _known(model: Counts | ProofMeans | Headroom) -> dict[str, object]:
    """The counts that this medlive can make itself."""
    known: dict[str, object] = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        known[name] = (
            _known(value) if isinstance(value, ProofMeans | Headroom) else value
        )
    return known


def _livemedbench(folder: Inspected, out: Faults) -> None:
    if folder.scan.livemedbench != folder.digest(LIVEMEDBENCH):
        out.add(
            LIVEMEDBENCH, f"exactly the rows of {CASES} and {CRITERIA}", "other bytes"
        )


def _parquet(folder: Inspected, out: Faults) -> None:
    if not parquet.available():
        raise Skip("pyarrow is not installed; install medlive[service]", allowed=True)
    manifest, scan = folder.require_manifest(), folder.scan
    if scan.rows.count:
        raise Skip("the JSON Lines to compare with are not valid")
    counts = scan.tally.cases, scan.tally.criteria
    folder.require("data/cases.parquet", "data/criteria.parquet")
    with ExitStack() as opened:
        comparisons = []
        for (name, twin, table), rows in zip(_TWINS, counts, strict=True):
            source, text = (
                opened.enter_context(open_plain(folder.root / n)) for n in (name, twin)
            )
            comparison = parquet.TwinComparison(
                source=source.fileno(),
                twin=text.fileno(),
                columns=manifest.shape.columns[table],
                canary=manifest.canary,
                rows=rows,
                # A row's JSON names every column, so it is longer than its values and their lengths in parquet.
                max_bytes=2 * folder.listing.sizes[twin] + 1_000_000,
            )
            comparisons.append(comparison)
        results = compare_twins(comparisons)
    for (name, twin, _), result in zip(_TWINS, results, strict=False):
        if isinstance(result, parquet.ParquetFault):
            out.add(name, "parquet with the rows of its twin", str(result)[:300])
        elif result is not None:
            out.add(f"{name}: {result}", f"the rows of {twin}", "other rows")


def _changes(folder: Inspected, out: Faults) -> None:
    out.extend(folder.ledgers.change_faults)
    out.extend(folder.scan.changes)


def _holdouts(folder: Inspected, out: Faults) -> None:
    out.extend(folder.ledgers.holdout_faults)
    out.extend(folder.scan.proofs)


def _canary(folder: Inspected, out: Faults) -> None:
    manifest = folder.require_manifest()
    if manifest.canary != (expected := canary_of(manifest.version)):
        out.add(
            "manifest.json",
            f"the canary of {manifest.version}, {expected}",
            manifest.canary,
        )
    out.extend(folder.scan.canary)
    canary = manifest.canary.encode()
    for name in REQUIRED:
        if name not in folder.listing.files - _STREAMED or folder.refused(name):
            continue
        if not _contains(folder.root, name, canary):
            out.add(name, f"the canary {manifest.canary}", "a file without it")


def _contains(root: Path, name: str, text: bytes) -> bool:
    """Whether a file contains a text; in a parquet file only the footer counts."""
    with open_plain(root / name) as handle:
        if name.endswith(".parquet"):
            size = os.fstat(handle.fileno()).st_size
            handle.seek(max(0, size - 8))
            footer = int.from_bytes(handle.read(4), "little")
            handle.seek(max(0, size - 8 - min(footer, _MAX_FOOTER)))
            return text in handle.read(_MAX_FOOTER)
        before = b""
        while piece := handle.read(1 << 20):
            if text in before + piece:
                return True
            before = piece[-len(text) :]
    return False


_VIEWED: Final = {".svg": find_active_svg, ".md": find_active_markdown}
"""The files that a browser or a page of a forge shows, by suffix."""


def _leaks(folder: Inspected, out: Faults) -> None:
    out.extend(folder.scan.leaks)
    _stated_values(folder.require_manifest(), out)
    for name in sorted(folder.listing.files & set(REQUIRED)):
        find_active = _VIEWED.get(Path(name).suffix)
        if find_active is None or folder.refused(name):
            continue
        if (active := find_active(folder.read(name))) is not None:
            out.add(
                name, "nothing that a viewer could run, load or follow", repr(active)
            )
    out.extend(folder.ledgers.leaks)


def _stated_values(manifest: Manifest, out: Faults) -> None:
    """Check the values that the manifest names and this medlive does not know: pages show them."""
    for name in manifest.shape.unknown_names():
        for find in (find_unstorable, find_disguise, find_contact):
            if (disguise := find(name)) is not None:
                out.add("manifest.json", "plain names of columns and values", disguise)


def _chain(folder: Inspected, out: Faults) -> None:
    manifest = folder.require_manifest()
    check_lineage(manifest, out)
    parent = folder.parent
    if manifest.parent is None:
        if parent is not None:
            out.add("manifest.json", f"a parent, {parent.name}", "none")
        return
    if parent is None:
        parent = (
            Path(os.path.abspath(folder.root)).parent / f"medlive-{manifest.parent}"
        )
        if parent.is_symlink() or not parent.is_dir():
            if out.count:
                return
            raise Skip(
                f"the parent was not found: there is no {parent.name} beside it",
                allowed=True,
            )
    if not {CASES, CRITERIA} <= folder.listing.files or folder.scan.rows.count:
        raise Skip("the rows are missing or not valid")
    check_parent(folder.root, manifest, folder.ledgers, parent, out)


STEPS: Final[tuple[tuple[str, Callable[[Inspected, Faults], None]], ...]] = (
    (
        "the signature is valid, and exists exactly when the manifest names its key",
        _signature,
    ),
    ("every file of a snapshot exists as a plain file, and nothing else", _listing),
    ("SHA256SUMS names every file once", _sums),
    ("every file has the digest that SHA256SUMS states", _digests),
    ("the manifest has its schema", _manifest),
    ("every file has the size and digest that the manifest states", _sizes),
    ("the rows are canonical JSON Lines in order", _scanned("rows")),
    ("ids are unique and every criterion has its case", _scanned("ids")),
    ("languages, themes, specialties, axes and weights are legal", _scanned("rubric")),
    ("each case has a criterion with a positive weight", _scanned("positive")),
    ("the manifest's counts are those of the rows", _counts),
    ("livemedbench.json holds the same", _livemedbench),
    ("the parquet files hold the same", _parquet),
    (
        "first releases and posting dates are possible and of this line of releases",
        _scanned("releases"),
    ),
    ("changes.json lists what was added, revised and withdrawn", _changes),
    (
        "held-out cases are committed to, and revealed ones prove their commitments",
        _holdouts,
    ),
    ("every file holds the canary", _canary),
    (
        "no text has an address, a handle or a disguised character, and no figure or page runs or loads anything",
        _leaks,
    ),
    ("the releases follow one another, and the parent is as this one states", _chain),
)
"""The steps, in order."""


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """The results of all steps, in order."""

    path: Path
    steps: tuple[StepResult, ...]
    manifest: Manifest | None  # None if it could not be read
    trust: Trust  # What the signature proves
    unknown: tuple[str, ...] = ()  # What it holds and this medlive does not know

    @property
    def ok(self) -> bool:
        """Whether no step failed."""
        return StepState.FAILED not in self._states

    @property
    def complete(self) -> bool:
        """Whether no step was skipped."""
        return StepState.SKIPPED not in self._states

    @property
    def skipped(self) -> tuple[str, ...]:
        """The steps that were skipped, each with the reason."""
        skipped = [step for step in self.steps if step.state is StepState.SKIPPED]
        return tuple(f"step {s.number} ({s.name}): {s.why}" for s in skipped)

    @property
    def _states(self) -> set[StepState]:
        return {step.state for step in self.steps}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all steps."""
        return tuple(chain.from_iterable(step.findings for step in self.steps))

    def summary(self) -> str:
        """Describe the failed steps in one line, for an error message."""
        failed = [s for s in self.steps if s.state is StepState.FAILED]
        if not failed:
            return f"{self.path} verifies"
        faults = [f"step {s.number} ({s.name}): {s.findings[0]}" for s in failed]
        return f"{self.path} fails verification: " + "; ".join(faults[:4])


def verify_snapshot(
    path: Path, *, public_key: "PublicKey | None" = None, parent: Path | None = None
) -> VerificationReport:
    """Run every step over a folder, whatever it holds; faults are returned and nothing is raised.

    Nothing outside the folder and its parent is opened, nothing is written and no link is followed.

    Args:
        path: The snapshot's folder.
        public_key: The key that must have signed it. Without one the signature is checked with the key that the
            manifest names, which proves integrity and not origin (`VerificationReport.trust`).
        parent: The parent's folder, by default the folder of its name beside `path` if there is one.
    """
    root = Path(path)
    folder = Inspected(root, public_key, parent, list_files(root))
    steps = run_steps(folder, STEPS)
    unknown: tuple[str, ...] = ()
    if folder.manifest is not None:
        unknown = folder.manifest.unknown
        with suppress(Skip):
            unknown = (*unknown, *sorted(folder.ledgers.unknown))
    return VerificationReport(
        path=root,
        steps=steps,
        manifest=folder.manifest,
        trust=folder.trust,
        unknown=unknown,
    )
