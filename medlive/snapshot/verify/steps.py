"""Verifies a snapshot's folder in numbered steps (`STEPS`): each checks one thing, and says what it found."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from pydantic import ValidationError

from medlive.errors import first_fault
from medlive.guard.bounds import VERIFIED_FILE_BYTES
from medlive.integrity.checks import (
    Faults,
    Inspection,
    Report,
    Skip,
    check_signed,
    run_steps,
)
from medlive.integrity.folder import (
    REQUIRED,
    SIGNATURE,
    SIGNATURE_COMMENT,
    SUMS,
    Finding,
    list_files,
    parse_sums,
    read_small,
    sha256,
    sums_text,
)
from medlive.integrity.paths import open_plain
from medlive.integrity.signing import PublicKey
from medlive.snapshot.contents import (
    CASES,
    CHANGES,
    CRITERIA,
    HOLDOUTS,
    Ledgers,
    read_ledgers,
)
from medlive.snapshot.manifest import (
    FORMATS,
    Counts,
    Manifest,
)
from medlive.snapshot.model import (
    TABLES,
    canary_of,
    known_part,
    version_of,
    week_end,
)
from medlive.snapshot.parquet import compare_twins

from .lineage import check_chain
from .markup import find_active_markdown, find_active_svg
from .scan import Scan
from .text_checks import find_leak

LIVEMEDBENCH = "livemedbench.json"
_DESCRIBED = [
    name for name in REQUIRED if name.startswith("data/") or name == LIVEMEDBENCH
]
"""The files that croissant.json names."""
_SMALL = [name for name in REQUIRED if name not in (*_DESCRIBED, CHANGES, HOLDOUTS)]
"""The files whose canary no other step checks."""
_FIRST = (SUMS, SIGNATURE, "manifest.json")
"""The files that state the digests of all others, and are read to know them."""


@dataclass
class Inspected(Inspection):
    """A snapshot's folder under verification, and what the steps have read of it."""

    root: Path
    public_key: PublicKey | None
    sizes: Mapping[str, int]  # Name of a regular file → its bytes
    listing_faults: Sequence[Finding]  # For everything else in the folder
    manifest_faults: Faults = field(default_factory=Faults)
    _digests: dict[str, str] = field(default_factory=dict)

    def read(self, name: str) -> bytes:
        """Read a small file whole. Raises Skip if it is missing, or its digest is refused."""
        self.require(name)
        return read_small(self.root / name, VERIFIED_FILE_BYTES)

    @cached_property
    def sums(self) -> dict[str, str]:
        """Name → digest as SHA256SUMS states them, without malformed lines; none where it cannot be read."""
        with suppress(OSError, Skip):  # a step says so
            return parse_sums(self.read(SUMS))
        return {}

    def require(self, *names: str) -> None:
        """Raise Skip if a file is missing or does not have its stated digest, since it must not be opened then."""
        for name in names:
            if name not in self.sizes:
                raise Skip(f"{name} is missing")
            if name not in _FIRST and self.refused(name):
                raise Skip(f"{name} does not have the digest that is stated for it")

    def refused(self, name: str) -> bool:
        """Whether a file has another digest than SHA256SUMS or the manifest states, or SHA256SUMS states none."""
        stated = {self.sums.get(name)}
        if self.manifest is not None and name in self.manifest.files:
            stated.add(self.manifest.files[name].sha256)
        return stated != {self.digest(name)}

    def readable(
        self,
        names: Iterable[str],
    ) -> Iterator[tuple[str, bytes]]:
        """Yield (name, bytes) of the files that exist with their stated digests."""
        for name in names:
            if name in self.sizes and not self.refused(name):
                yield name, self.read(name)

    def digest(self, name: str) -> str | None:
        """The digest of a file's bytes; None if it is missing or cannot be read."""
        if name not in self._digests and name in self.sizes:
            with suppress(OSError):
                self._digests[name] = sha256(self.root / name)
        return self._digests.get(name)

    @cached_property
    def manifest(self) -> Manifest | None:
        """The manifest; None with the reason in `manifest_faults` if it cannot be read."""
        name = "manifest.json"
        if name not in self.sizes:
            self.manifest_faults.add(name, "a file", "none")
            return None
        try:
            data = self.read(name)
            manifest = Manifest.model_validate_json(data)
            if manifest.text().encode("utf-8") != data:
                got = "the same value spelled otherwise"
                self.manifest_faults.add(name, "its canonical spelling", got)
            return manifest
        except ValidationError as exc:
            self.manifest_faults.add(name, FORMATS, first_fault(exc))
        except (OSError, ValueError, RecursionError) as exc:
            self.manifest_faults.add(name, "a readable manifest", str(exc))
        return None

    def require_manifest(self) -> Manifest:
        """The manifest. Raises Skip if it cannot be read."""
        if self.manifest is None:
            raise Skip("the manifest cannot be read")
        return self.manifest

    @cached_property
    def ledgers(self) -> Ledgers:
        """Both ledgers. Raises Skip if a file is missing or refused, or the manifest cannot be read."""
        self.require(CHANGES, HOLDOUTS)
        return read_ledgers(self.root, self.require_manifest())

    @cached_property
    def scan(self) -> Scan:
        """What the one pass over the rows found. Raises Skip if the rows must not be opened."""
        self.require(CASES, CRITERIA)
        scan = Scan(self.require_manifest(), self.ledgers)
        scan.run(self.root)
        return scan


# The steps; what each checks is said in STEPS.


def check_origin(folder: Inspected, out: Faults) -> None:
    manifest = folder.manifest
    if manifest is None:
        out.extend(folder.manifest_faults)
        return
    signing = manifest.signing
    check_signed(
        folder,
        out,
        document="manifest.json",
        key=(signing.key_id, signing.public_key) if signing else None,
        comments=(manifest.trusted_comment, SIGNATURE_COMMENT),
        signers=() if folder.public_key is None else (folder.public_key,),
        has_signature=SIGNATURE in folder.sizes,
    )


def check_listing(folder: Inspected, out: Faults) -> None:
    for fault in folder.listing_faults:
        out.append(fault)
    required = {*REQUIRED, SUMS}
    for name in sorted(required - folder.sizes.keys()):
        out.add(name, "a file", "none")
    # The first step decides whether there must be a signature.
    for name in sorted(folder.sizes.keys() - required - {SIGNATURE}):
        out.add(name, "nothing of that name", "a file")


def check_sums(folder: Inspected, out: Faults) -> None:
    sums = folder.sums
    for name in sorted(sums.keys() - set(REQUIRED)):
        out.add(SUMS, "the names of this snapshot's files", repr(name))
    for name in sorted(set(REQUIRED) - sums.keys()):
        out.add(SUMS, f"a line for {name}", "none")
    if folder.read(SUMS) != sums_text(sums).encode("utf-8"):
        expected = "one line of sha256sum for each file, in order"
        out.add(SUMS, expected, "other lines, order or line ends")


def check_digests(folder: Inspected, out: Faults) -> None:
    for name, stated in sorted(folder.sums.items()):
        if name in folder.sizes:
            got = folder.digest(name) or "an unreadable file"
            if got != stated:
                out.add(name, f"the sha256 that {SUMS} states, {stated}", got)


def check_manifest(folder: Inspected, out: Faults) -> None:
    manifest = folder.manifest
    out.extend(folder.manifest_faults)
    if manifest is None:
        return
    for version in manifest.line:
        if week_end(version) is None:
            out.add("manifest.json", "versions that are ISO weeks", version)
    # A folder may have any name but another version's, under which it would be found.
    named = version_of(folder.root.absolute().name)
    if named not in (None, manifest.version):
        expected = f"version {named}, as in its folder's name"
        out.add("manifest.json", expected, manifest.version)
    if manifest.publishable == bool(manifest.why_not):
        reasons = repr(manifest.why_not)
        out.add("manifest.json", "reasons exactly when not publishable", reasons)
    folder.note = manifest.newer


def check_sizes(folder: Inspected, out: Faults) -> None:
    manifest = folder.require_manifest()
    required = set(REQUIRED) - {"manifest.json"}
    for name in sorted(required ^ manifest.files.keys()):
        expected = f"the files {', '.join(sorted(required))}"
        out.add("manifest.json", expected, f"differs in {name!r}")
    for name, entry in sorted(manifest.files.items()):
        if name not in required & folder.sizes.keys():
            continue
        size, digest = folder.sizes[name], folder.digest(name)
        if (size, digest) != (entry.size, entry.sha256):
            expected = f"the size and sha256 that manifest.json states, {entry.size}, {entry.sha256}"
            out.add(name, expected, f"{size}, {digest or 'an unreadable file'}")
    for name, data in folder.readable(["croissant.json"]):
        _check_described(name, data, manifest, out)


def _check_described(
    name: str,
    data: bytes,
    manifest: Manifest,
    out: Faults,
) -> None:
    """Check that croissant.json names the data files with the manifest's digests."""
    expected = []
    for file in _DESCRIBED:
        if file in manifest.files:
            expected.append((file, manifest.files[file].sha256))
    listed = []
    try:
        for described in json.loads(data)["distribution"]:
            listed.append((described["contentUrl"], described["sha256"]))
        is_same = sorted(listed) == sorted(expected)
    except (ValueError, LookupError, TypeError, RecursionError) as exc:
        fault = f"{type(exc).__name__}: {exc!s}"
        out.add(name, "the data files with their digests", fault)
        return
    if not is_same:
        out.add(name, "the data files with the manifest's digests", "others")


def _report(
    name: str,
    ledger: str = "",
) -> Callable[[Inspected, Faults], None]:
    """The step that reports the scan's faults under `name`, and the faults of a ledger."""

    def step(folder: Inspected, out: Faults) -> None:
        if ledger:
            out.extend(folder.ledgers.faults[ledger])
        out.extend(folder.scan.faults[name])

    return step


def check_counts(folder: Inspected, out: Faults) -> None:
    manifest = folder.require_manifest()
    tally = folder.scan.tally
    held_out = len(folder.ledgers.entries(HOLDOUTS, "held"))
    counted = tally.counts(held_out)
    for name in sorted(Counts.model_fields):
        expected = known_part(getattr(counted, name))
        if (got := known_part(getattr(manifest.counts, name))) != expected:
            out.add("manifest.json", f"{name} {expected}", f"{got}")
    for name, entry in sorted(manifest.files.items()):
        if entry.rows != (rows := tally.rows(name)):
            out.add("manifest.json", f"{name}: {rows} rows", f"{entry.rows}")


def check_livemedbench(folder: Inspected, out: Faults) -> None:
    if folder.scan.livemedbench != folder.digest(LIVEMEDBENCH):
        expected = f"exactly the rows of {CASES} and {CRITERIA}"
        out.add(LIVEMEDBENCH, expected, "other bytes")


def check_parquet(folder: Inspected, out: Faults) -> None:
    if find_spec("pyarrow") is None:
        raise Skip("pyarrow is not installed; install medlive[service]", allowed=True)
    manifest = folder.require_manifest()
    if folder.scan.faults["rows"].count:
        raise Skip("the JSON Lines to compare with are not valid")
    folder.require("data/cases.parquet", "data/criteria.parquet")
    with ExitStack() as opened:
        comparisons = []
        for table in TABLES:
            path = folder.root / f"data/{table}.parquet"
            source = opened.enter_context(open_plain(path))
            twin = opened.enter_context(open_plain(path.with_suffix(".jsonl")))
            columns = manifest.shape.columns[table]
            comparisons.append(
                (source.fileno(), twin.fileno(), columns, manifest.canary)
            )
        results = compare_twins(comparisons)
    for table, result in zip(TABLES, results, strict=False):
        name = f"data/{table}.parquet"
        if isinstance(result, ValueError):
            out.add(name, "parquet with the rows of its twin", str(result))
        elif result is not None:
            expected = f"the rows of data/{table}.jsonl"
            out.add(f"{name}: {result}", expected, "other rows")


def check_canary(folder: Inspected, out: Faults) -> None:
    manifest = folder.require_manifest()
    if manifest.canary != (expected := canary_of(manifest.version)):
        expected = f"the canary of {manifest.version}, {expected}"
        out.add("manifest.json", expected, manifest.canary)
    out.extend(folder.scan.faults["canary"])
    for name, data in folder.readable(_SMALL):
        if manifest.canary.encode() not in data:
            out.add(name, f"the canary {manifest.canary}", "a file without it")


_VIEWED = {".svg": find_active_svg, ".md": find_active_markdown}
"""Suffix → the check of such files, which a browser or a page of a forge shows."""


def check_leaks(folder: Inspected, out: Faults) -> None:
    out.extend(folder.scan.faults["leaks"])
    # Pages show the values that the manifest names and this medlive does not know.
    for name in folder.require_manifest().shape.unknown_names():
        if leak := find_leak(name):
            out.add("manifest.json", "plain names of columns and values", leak)
    for suffix, find_active in _VIEWED.items():
        viewed = [name for name in REQUIRED if name.endswith(suffix)]
        for name, data in folder.readable(viewed):
            if (active := find_active(data)) is not None:
                expected = "nothing that a viewer could run, load or follow"
                out.add(name, expected, repr(active))
    out.extend(folder.ledgers.leaks)


STEPS: tuple[tuple[str, Callable[[Inspected, Faults], None]], ...] = (
    (
        "the signature is valid, and exists exactly when the manifest names its key",
        check_origin,
    ),
    (
        "every file of a snapshot exists as a plain file, and nothing else",
        check_listing,
    ),
    ("SHA256SUMS names every file once", check_sums),
    ("every file has the digest that SHA256SUMS states", check_digests),
    ("the manifest has its schema", check_manifest),
    ("every file has the size and digest that the manifest states", check_sizes),
    ("the rows are canonical JSON Lines in order", _report("rows")),
    ("ids are unique and every criterion has its case", _report("ids")),
    (
        "languages, themes, specialties, axes and weights are legal",
        _report("rubric"),
    ),
    ("each case has a criterion with a positive weight", _report("positive")),
    ("the manifest's counts are those of the rows", check_counts),
    ("livemedbench.json holds the same", check_livemedbench),
    ("the parquet files hold the same", check_parquet),
    (
        "first releases and posting dates are possible and of this line of releases",
        _report("releases"),
    ),
    (
        "changes.json lists what was added, revised and withdrawn",
        _report("changes", CHANGES),
    ),
    (
        "held-out cases are committed to, and revealed ones prove their commitments",
        _report("proofs", HOLDOUTS),
    ),
    ("every file holds the canary", check_canary),
    (
        "no text has an address, a handle or a disguised character, and no figure or page runs or loads anything",
        check_leaks,
    ),
    (
        "the releases follow one another, and the parent is as this one states",
        check_chain,
    ),
)
"""What each step checks, and its function, in order."""


@dataclass(frozen=True, kw_only=True)
class VerificationReport(Report):
    """The results of all steps, and what the snapshot states."""

    manifest: Manifest | None  # None if it could not be read
    # What the snapshot holds and this medlive does not know
    unknown: tuple[str, ...] = ()

    def summary(self) -> str:
        """Describe the failed steps in one line, for an error message."""
        if self.ok:
            return f"{self.path} verifies"
        return f"{self.path} fails verification: {'; '.join(map(str, self.failed[:4]))}"


def verify_snapshot(
    path: Path,
    *,
    public_key: PublicKey | None = None,
) -> VerificationReport:
    """Run every step over a folder, whatever it holds; faults are returned and nothing is raised.

    Nothing outside the folder and its parent is opened, nothing is written and no link is followed.

    Args:
        path: The snapshot's folder.
        public_key: The key that must have signed it. Without one the signature is checked with the key that the
            manifest names, which proves integrity and not origin (`VerificationReport.trust`).
    """
    root = Path(path)
    folder = Inspected(root, public_key, *list_files(root))
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
