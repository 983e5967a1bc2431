"""The steps of verification, in order: each looks at one thing and says what it expected and what it got."""

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from medlive.integrity.checks import Faults, SaidKey, Skip, Trust, check_signed
from medlive.integrity.folder import (
    REQUIRED,
    SIGNATURE,
    SIGNATURE_COMMENT,
    SUMS,
    Finding,
    Listing,
    TooLong,
    open_inside,
    printable,
    read_all,
)
from medlive.snapshot import parquet
from medlive.snapshot.describe.croissant import DESCRIBED_FILES
from medlive.snapshot.entries import Ledgers, read_ledgers
from medlive.snapshot.identity import canary_of, folder_name, trusted_comment
from medlive.snapshot.manifest import Manifest
from medlive.snapshot.model import CASE_FIELDS, CRITERION_FIELDS, week_end
from medlive.snapshot.rows import CASES, CRITERIA
from medlive.snapshot.verify.lineage import check_lineage, check_parent
from medlive.snapshot.verify.scan import PLAIN, Scan, scan_rows

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

_FOLDER: Final = re.compile(re.escape(folder_name("")) + r"(\d{4}\.W\d{2})")
_SUM_LINE: Final = re.compile(r"([0-9a-f]{64})  ([^\n\r\\]+)")
_TWINS: Final = (("data/cases.parquet", CASES, CASE_FIELDS), ("data/criteria.parquet", CRITERIA, CRITERION_FIELDS))
_STREAMED: Final = frozenset({CASES, CRITERIA, PLAIN})
"""Compared row by row, so that the canary in each row is compared as well."""
_MOST_FOOTER: Final = 16 * 1024 * 1024


@dataclass
class Inspected:
    root: Path
    public_key: "PublicKey | None"
    parent: Path | None
    listing: Listing
    hashes: Mapping[str, Callable[[], str | None]]
    """File → what gives its digest, None where it cannot be read."""
    problems: dict[str, Finding] = field(default_factory=dict)
    trust: Trust = Trust.BROKEN
    note: str = ""
    failed: tuple[int, ...] = ()

    def read(self, name: str) -> bytes:
        """A small file, whole. Raises Skip where there is none."""
        if name not in self.listing.files:
            raise Skip(f"{name} is missing")
        with open_inside(self.root, name) as handle:
            return read_all(handle, name)

    @cached_property
    def sums(self) -> dict[str, str]:
        """Name → digest as SHA256SUMS says, malformed lines left out."""
        text = self.read(SUMS).decode("utf-8", "replace")
        matches = (_SUM_LINE.fullmatch(row) for row in text.split("\n"))
        return {m[2]: m[1] for m in matches if m}

    def digest(self, name: str) -> str | None:
        """The digest of what lies there; None where it cannot be read."""
        return self.hashes[name]() if name in self.hashes else None

    @cached_property
    def manifest(self) -> Manifest | None:
        """The manifest, or None with the reason under `problems`."""
        name = "manifest.json"
        if name not in self.listing.files:
            self.problems[name] = Finding(name, "a file", "none")
            return None
        try:
            data = self.read(name)
            manifest = Manifest.model_validate_json(data)
            if manifest.text().encode("utf-8") != data:
                self.problems[name] = Finding(name, "its canonical spelling", "the same value spelt otherwise")
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            place = ".".join(printable(str(part)) for part in first["loc"])[:200] or "the whole"
            got = f"{place}: {first['msg'][:200]} ({exc.error_count()} faults)"
            self.problems[name] = Finding(name, "a manifest of format 2", got)
            return None
        except (OSError, TooLong, ValueError, RecursionError) as exc:
            self.problems[name] = Finding(name, "a readable manifest", str(exc)[:200])
            return None
        return manifest

    def sure_manifest(self) -> Manifest:
        if self.manifest is None:
            raise Skip("the manifest cannot be read")
        return self.manifest

    @cached_property
    def ledgers(self) -> Ledgers | None:
        return read_ledgers(self.root, self.listing.files, self.manifest) if self.manifest else None

    @cached_property
    def scan(self) -> Scan:
        if missing := [name for name in (CASES, CRITERIA, PLAIN) if name not in self.listing.files]:
            raise Skip(f"{missing[0]} is missing")
        return scan_rows(self.root, self.manifest, self.ledgers)

    def read_rows(self) -> None:
        """Take the pass over the rows now, if it can be taken; else the steps that ask for it will say why not."""
        with suppress(Skip, OSError, TooLong):
            _ = self.scan


def _signature(folder: Inspected, out: Faults) -> None:
    manifest, there = folder.manifest, SIGNATURE in folder.listing.files
    if manifest is None:
        problem = folder.problems["manifest.json"]
        out.add(problem.file, problem.expected, problem.got)
        return
    said = SaidKey(
        what="snapshot",
        document="manifest.json",
        key=None if manifest.signing is None else (manifest.signing.key_id, manifest.signing.public_key),
        comment=trusted_comment(manifest.version, manifest.created_at, manifest.canary),
        untrusted=SIGNATURE_COMMENT,
    )
    given = () if folder.public_key is None else (folder.public_key,)
    folder.trust = Trust.NOT_SIGNED if said.key is None and not there and not given else Trust.BROKEN
    folder.trust, folder.note = check_signed(said, there, given, folder.read, out)


def _listing(folder: Inspected, out: Faults) -> None:
    for fault in folder.listing.faults:
        out.put(fault)
    there, wanted = folder.listing.files, {*REQUIRED, SUMS}
    for name in sorted(wanted - there):
        out.add(name, "a file", "none")
    # Whether there must be a signature is the first step's question.
    for name in sorted(there - wanted - {SIGNATURE}):
        out.add(name, "nothing of that name", "a file")


def _sums(folder: Inspected, out: Faults) -> None:
    sums = folder.sums
    data = folder.read(SUMS)
    for name in sorted(sums.keys() - set(REQUIRED)):
        out.add(SUMS, "the names of this snapshot's files", repr(name)[:200])
    for name in sorted(set(REQUIRED) - sums.keys()):
        out.add(SUMS, f"a line for {name}", "none")
    if data != "".join(f"{sums[name]}  {name}\n" for name in sorted(sums)).encode("utf-8"):
        out.add(SUMS, "one line of sha256sum for each file, in order", "other lines, order or line ends")


def _digests(folder: Inspected, out: Faults) -> None:
    for name, stated in sorted(folder.sums.items()):
        if name in folder.listing.files:
            got = folder.digest(name) or "nothing readable"
            if got != stated:
                out.add(name, f"the sha256 that {SUMS} states, {stated}", got)


def _manifest(folder: Inspected, out: Faults) -> None:
    manifest = folder.manifest
    if (problem := folder.problems.get("manifest.json")) is not None:
        out.put(problem)
    if manifest is None:
        return
    for version in (manifest.version, *(ancestor.version for ancestor in manifest.lineage)):
        if week_end(version) is None:
            out.add("manifest.json", "versions that are ISO weeks", version)
    # A folder may have any name, but not another version's: whoever asks for that one would get this one.
    named = _FOLDER.fullmatch(folder.root.absolute().name)
    if named is not None and named[1] != manifest.version:
        out.add("manifest.json", f"version {named[1]}, as its folder is called", printable(manifest.version)[:50])
    if manifest.publishable == bool(manifest.why_not):
        out.add("manifest.json", "reasons exactly when not publishable", repr(manifest.why_not)[:200])


def _sizes(folder: Inspected, out: Faults) -> None:
    manifest = folder.sure_manifest()
    wanted = set(REQUIRED) - {"manifest.json"}
    for name in sorted(wanted ^ manifest.files.keys()):
        out.add("manifest.json", f"the files {', '.join(sorted(wanted))}", f"differs in {name!r}"[:200])
    for name, entry in sorted(manifest.files.items()):
        if name not in wanted & folder.listing.files:
            continue
        size = folder.listing.stamps[name][2]
        if size != entry.size:
            out.add(name, f"the bytes that manifest.json states, {entry.size}", f"{size}")
        if (digest := folder.digest(name)) != entry.sha256:
            out.add(name, f"the sha256 that manifest.json states, {entry.sha256}", digest or "nothing readable")
    _described(folder, manifest, out)


def _described(folder: Inspected, manifest: Manifest, out: Faults) -> None:
    """Croissant names the data files with the digests that the manifest has."""
    name = "croissant.json"
    if name not in folder.listing.files:
        return
    try:
        listed = {x["contentUrl"]: x["sha256"] for x in json.loads(folder.read(name))["distribution"]}
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        out.add(name, "the data files with their digests", f"{type(exc).__name__}: {str(exc)[:100]}")
        return
    wanted = {n: manifest.files[n].sha256 for n in DESCRIBED_FILES if n in manifest.files}
    if listed != wanted:
        odd = sorted(str(n) for n in wanted.keys() | listed.keys() if wanted.get(n) != listed.get(n))
        out.add(name, "the data files with the manifest's digests", f"another of {', '.join(odd)}"[:200])


def _scanned(what: str) -> Callable[[Inspected, Faults], None]:
    def step(folder: Inspected, out: Faults) -> None:
        out.take(getattr(folder.scan, what))

    return step


def _counts(folder: Inspected, out: Faults) -> None:
    manifest, scan = folder.sure_manifest(), folder.scan
    stated = manifest.counts.model_dump()
    found: dict[str, Any] = {name: scan.counted(name) for name in scan.counts}
    found |= {"cases": scan.cases, "criteria": scan.criteria}
    found["held"] = folder.ledgers.numbers.get("held", 0) if folder.ledgers else 0
    for name, value in stated.items():
        if value != found[name]:
            out.add("manifest.json", f"{name} {found[name]}"[:300], f"{value}"[:300])
    for name, entry in sorted(manifest.files.items()):
        rows = {"cases": scan.cases, "criteria": scan.criteria, "livemedbench": scan.cases}
        stem = Path(name).stem if name in _STREAMED or name.endswith(".parquet") else ""
        if entry.rows != rows.get(stem):
            out.add("manifest.json", f"{name}: {rows.get(stem)} rows"[:200], f"{entry.rows}")


def _plain(folder: Inspected, out: Faults) -> None:
    folder.sure_manifest()
    _scanned("plain")(folder, out)


def _parquet(folder: Inspected, out: Faults) -> None:
    if not parquet.available():
        raise Skip("pyarrow is not installed (medlive[service] brings it)", innocent=True)
    manifest, scan = folder.sure_manifest(), folder.scan
    if scan.rows.count:
        raise Skip("the rows to compare with are no rows")
    for name, twin, fields in _TWINS:
        if not {name, twin} <= folder.listing.files:
            raise Skip(f"{name} or {twin} is missing")
        # Whoever meant to mislead made the digests fit; a file that is merely broken need not be opened.
        if folder.digest(name) != folder.sums.get(name) or folder.digest(twin) != folder.sums.get(twin):
            raise Skip(f"{name} or {twin} has another digest than {SUMS} states")
        rows = scan.cases if twin == CASES else scan.criteria
        # A row's JSON names every column, and so is longer than its values and their lengths.
        most = 2 * folder.listing.stamps[twin][2] + 1_000_000
        try:
            with open_inside(folder.root, name) as source, open_inside(folder.root, twin) as text:
                difference = parquet.find_difference(source, text, fields, manifest.canary, rows=rows, most=most)
            if difference is not None:
                out.add(f"{name}: {difference}", f"the rows of {twin}", "other rows")
        except (parquet.ParquetFault, OSError, TooLong) as exc:
            out.add(name, "parquet with the rows of its twin", str(exc)[:300])


def _changes(folder: Inspected, out: Faults) -> None:
    _from_ledgers(folder, out, "changes", "changes")


def _holdouts(folder: Inspected, out: Faults) -> None:
    _from_ledgers(folder, out, "holdouts", "proofs")


def _from_ledgers(folder: Inspected, out: Faults, stated: str, compared: str) -> None:
    folder.sure_manifest()
    out.take(getattr(folder.ledgers, stated))
    out.take(getattr(folder.scan, compared))


def _canary(folder: Inspected, out: Faults) -> None:
    manifest = folder.sure_manifest()
    if manifest.canary != (made := canary_of(manifest.version)):
        out.add("manifest.json", f"the canary of {manifest.version}, {made}", manifest.canary)
    _scanned("canary")(folder, out)
    wanted = manifest.canary.encode()
    for name in REQUIRED:
        if name in folder.listing.files - _STREAMED and not _holds(folder.root, name, wanted):
            out.add(name, f"the canary {manifest.canary}", "it is nowhere in it")


def _holds(root: Path, name: str, wanted: bytes) -> bool:
    """Whether a file has these bytes in it; a parquet file, in its footer."""
    with open_inside(root, name) as handle:
        if name.endswith(".parquet"):
            size = os.fstat(handle.fileno()).st_size
            handle.seek(max(0, size - 8))
            footer = int.from_bytes(handle.read(4), "little")
            handle.seek(max(0, size - 8 - min(footer, _MOST_FOOTER)))
            return wanted in handle.read(_MOST_FOOTER)
        before = b""
        while piece := handle.read(1 << 20):
            if wanted in before + piece:
                return True
            before = piece[-len(wanted) :]
    return False


_ACTIVE: Final = re.compile(
    rb"<(?!/?(?:svg|title|desc|metadata|style|g|rect|line|path|polyline|polygon|circle|text|tspan)[\s/>])"
    rb"|<[^>]*\s(?:on\w+|(?:xlink:)?href)\s*=|<style[^>]*>[^<]*(?:url\(|@import)"
    rb"|<[^>]*\s(?:fill|stroke|style|filter|mask|clip-path)\s*=\s*[\"'][^\"']*url\(",
    re.IGNORECASE,
)
"""What in a figure a browser would run, follow or load; text in it has its `<` escaped."""


def _leaks(folder: Inspected, out: Faults) -> None:
    _scanned("leaks")(folder, out)
    for name in sorted(n for n in folder.listing.files if n.endswith(".svg")):
        if (active := _ACTIVE.search(folder.read(name))) is not None:
            out.add(name, "a drawing and nothing that runs or loads", repr(active.group()[:40]))
    if folder.ledgers is not None:
        out.take(folder.ledgers.leaks)


def _chain(folder: Inspected, out: Faults) -> None:
    manifest = folder.sure_manifest()
    check_lineage(manifest, out)
    parent = folder.parent
    if manifest.parent is None:
        if parent is not None:
            out.add("manifest.json", f"a parent, {parent.name}", "none")
        return
    if parent is None:
        parent = Path(os.path.abspath(folder.root)).parent / f"medlive-{manifest.parent}"
        if parent.is_symlink() or not parent.is_dir():
            if out.count:
                return
            raise Skip(f"the parent is not here: {parent.name} lies not beside it", innocent=True)
    if folder.ledgers is None or not {CASES, CRITERIA} <= folder.listing.files:
        raise Skip("the rows or the ledgers are missing")
    check_parent(folder.root, manifest, folder.ledgers, parent, out)


STEPS: Final[tuple[tuple[str, Callable[[Inspected, Faults], None]], ...]] = (
    ("the signature holds, and is there exactly when the manifest names its key", _signature),
    ("every file of a snapshot is there, a plain file, and nothing else", _listing),
    ("SHA256SUMS names every file once", _sums),
    ("every file has the digest that SHA256SUMS states", _digests),
    ("the manifest has its schema", _manifest),
    ("every file has the size and digest that the manifest states", _sizes),
    ("the rows are canonical JSON Lines in order", _scanned("rows")),
    ("ids are unique and every criterion has its case", _scanned("ids")),
    ("languages, themes, specialties, axes and weights are legal", _scanned("rubric")),
    ("each case has a criterion with a positive weight", _scanned("positive")),
    ("the manifest's counts are those of the rows", _counts),
    ("livemedbench.json holds the same", _plain),
    ("the parquet files hold the same", _parquet),
    ("first releases and posting dates are possible and of this line of releases", _scanned("releases")),
    ("changes.json lists what was added, revised and withdrawn", _changes),
    ("held-out cases are committed to, and revealed ones prove their commitments", _holdouts),
    ("every file holds the canary", _canary),
    ("no text holds an address, a handle or a disguised character, no figure what runs or loads", _leaks),
    ("the releases follow one another, and the parent holds what this one says of it", _chain),
)
"""The steps, in order: a reviewer checks completeness by counting."""
